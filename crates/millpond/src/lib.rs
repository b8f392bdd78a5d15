#![doc = include_str!("front.md")]

#[cfg(feature = "mysql")]
pub mod mysql;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(doctest)]
mod readme;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use millpond_core::backoff::{Backoff, Jitter};
pub use millpond_core::buffer::Buffer;
pub use millpond_core::error::{Code, Error, ErrorKind, Result};
pub use millpond_core::limit::Rate;
pub use millpond_core::message::{Due, Headers, MessageId};
pub use millpond_core::poll::PollSettings;
pub use millpond_core::queue::{HistoryLevel, QueueSettings, Transactional};
pub use millpond_core::reason::DropReason;
pub use millpond_core::redact::redact;
pub use millpond_core::settle::Verdict;
pub use millpond_core::store::{Act, Changed, Purged, Redrive, Store, Stored};
pub use millpond_core::time::Timestamp;
pub use millpond_core::{query, state, text, view, within};
pub use millpond_engine::adopt::{Adopt, Adopted};
pub use millpond_engine::batch::{Answers, BatchHandler, IntoAnswers, Jobs};
pub use millpond_engine::body::{Body, BodyError, Encoded, Raw};
pub use millpond_engine::counters::{Counter, Counts};
pub use millpond_engine::handler::{Handler, IntoOutcome, JobError, Outcome, Permanent};
pub use millpond_engine::hook::{Content, Dropped, Hook};
pub use millpond_engine::ids::IdSource;
pub use millpond_engine::item::{Item, ItemOptions};
pub use millpond_engine::job::{CancelCause, Job};
pub use millpond_engine::notify;
pub use millpond_engine::pond::{Path, Sent, SentMessage, UNIT_LIMIT};
pub use millpond_engine::queue::{self, Declaration, FastQueue, Queue, TxQueue};
pub use millpond_engine::send::{self, Ctx};
pub use millpond_engine::test_root::{TEST_ROOT_LIMIT, TestRoot};
pub use millpond_engine::unit::{Begun, Committed, Savepoint, UnitOfWork};
pub use millpond_engine::worker::{Stopped, Worker};
pub use open::Pond;

//! A test kit for programs that use Millpond: [`TestPond`].
//!
//! ```
//! use millpond::{Job, Queue, Verdict};
//! use millpond_test::TestPond;
//!
//! const MAIL: Queue<String> = Queue::new("mail");
//!
//! async fn welcome(job: Job<String>) -> Verdict {
//!     if job.attempt == 1 { Verdict::Retry { after: None } } else { Verdict::Ack }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let kit = TestPond::start();
//! kit.run(kit.worker().handle(&MAIL, welcome));
//! kit.send(&MAIL, ["Ada".to_owned()]).await.unwrap();
//! kit.wait_for_idle().await;
//! kit.advance(std::time::Duration::from_secs(60)).await;
//! kit.wait_for_idle().await;
//! assert_eq!(kit.counts("mail").await.done, 1);
//! kit.close().await;
//! # }
//! ```
//!
//! The guide with everything else is `docs/testing.md`.

#[cfg(doctest)]
mod guide;
mod idle;
mod kit;
mod sent;

pub use kit::{Builder, TestPond};
pub use millpond_testkit::faults::{Fault, Faults};
pub use millpond_testkit::gate::Gate;
pub use millpond_testkit::recorder::{Call, Recorder, Visit};

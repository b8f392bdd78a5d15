//! Notices: people are told of dead letters and of workers in trouble, without asking.
//!
//! The notifier reads the store, so it does not matter who settled a message, and nothing of it is in the way of the
//! work. One group of failures, a queue with a class of errors, is told at most once in five minutes, with the number
//! that was held back meanwhile.

mod notice;
mod throttle;

use std::collections::HashSet;
use std::time::Duration;

use millpond_core::MessageId;
use millpond_core::error::{Code, Result};
use millpond_core::query::{Field, Query};
use millpond_core::queue::QueueSettings;
use millpond_core::store;
use millpond_core::time::Timestamp;
use millpond_core::view::Find;
use tokio_util::sync::CancellationToken;

use crate::item::ItemOptions as _;
use crate::patience::{Patience, roll};
use crate::pond::Pond;
use crate::queue::Queue;
use crate::renewal::pause;
pub use notice::{Notice, Subject};
use throttle::Throttle;

/// The queue of notices that go further than the log: a webhook's worker takes them from here. It is never notified
/// about.
pub const NOTIFY_QUEUE: &str = "millpond.notify";

/// At most one notice of a group in this time.
const EVERY: Duration = Duration::from_secs(300);

/// How often the store is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A commit may be seen a little after its time: that far back it is looked again.
const OVERLAP: Duration = Duration::from_secs(10);

/// Dead letters of one page.
const PAGE_ROWS: usize = 1_000;

/// Pages of one look. What is beyond is counted by nobody, and told all the same with its group.
const PAGES_MAX: usize = 10;

/// Where notices go.
#[derive(Debug, Clone, Copy)]
pub struct Notify {
    log: bool,
    queue: bool,
}

impl Default for Notify {
    fn default() -> Self {
        Self { log: true, queue: false }
    }
}

impl Notify {
    /// Each notice is a line of the log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether each notice is a line of the log. Default: yes.
    #[must_use]
    pub const fn log(self, log: bool) -> Self {
        Self { log, ..self }
    }

    /// Whether each notice is a message of [`NOTIFY_QUEUE`] too. Default: no.
    #[must_use]
    pub const fn queue(self, queue: bool) -> Self {
        Self { queue, ..self }
    }

    /// Looks and tells until it is stopped. Errors are logged and waited out.
    pub async fn run(self, pond: &Pond, stop: CancellationToken) {
        let mut watcher =
            Watcher { notify: self, pond, throttle: Throttle::new(EVERY), seen: Seen::default() };
        let mut patience = Patience::unhurried();
        let mut wait = LOOK_EVERY.mul_f64(roll());
        while pause(&stop, wait).await {
            match watcher.look().await {
                Ok(()) => (wait, _) = (LOOK_EVERY, patience.reset()),
                Err(error) => {
                    tracing::warn!(%error, cause = error.causes(), "cannot look for what to notify of");
                    wait = patience.wait();
                }
            }
        }
    }
}

/// The queue of notices, declared where it is missing. Its name is the product's, so nobody else can declare it.
///
/// # Errors
///
/// What the store says.
pub async fn notify_queue(pond: &Pond) -> Result<store::Queue> {
    if let Some(queue) = pond.store().queue(NOTIFY_QUEUE.to_owned()).await? {
        return Ok(queue);
    }
    // A key is free again when its group may be told again.
    let settings = QueueSettings { dedup_window: EVERY - LOOK_EVERY, ..QueueSettings::DEFAULT };
    pond.store().declare(NOTIFY_QUEUE.to_owned(), settings).await
}

/// What was looked at already.
#[derive(Debug, Default)]
struct Seen {
    /// `None`: nothing yet.
    until: Option<Timestamp>,
    /// Dead letters of the overlap.
    recent: HashSet<MessageId>,
}

struct Watcher<'a> {
    notify: Notify,
    pond: &'a Pond,
    throttle: Throttle,
    seen: Seen,
}

impl Watcher<'_> {
    async fn look(&mut self) -> Result<()> {
        let now = self.pond.store().now().await?;
        // What died while nobody looked is told too, if it is not older than a notice would have been held back.
        let until = self.seen.until.unwrap_or(now - EVERY);
        let mut notices = self.dead_letters(until - OVERLAP).await?;
        let workers = self.pond.store().workers().await?;
        notices.extend(workers.iter().filter_map(|worker| notice::of_worker(worker, until, now)));
        for notice in notices {
            self.throttle.offer(notice, now);
        }
        self.seen.until = Some(now);
        let mut told = Ok(());
        for notice in self.throttle.due(now) {
            if let Err(error) = self.tell(&notice).await {
                // What it tells of is not found again: it waits for the next look.
                self.throttle.put_back(notice);
                told = Err(error);
            }
        }
        told
    }

    async fn dead_letters(&mut self, from: Timestamp) -> Result<Vec<Notice>> {
        let query = Query::default().since(Field::Died, from);
        let mut find = Find { query, rows_max: PAGE_ROWS, ..Find::default() };
        let mut letters = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = self.pond.store().dead_letters(find.clone()).await?;
            letters.extend(page.items);
            find.after = page.next;
            if find.after.is_none() {
                break;
            }
        }
        let recent = letters.iter().map(|letter| letter.id).collect();
        letters.retain(|letter| !self.seen.recent.contains(&letter.id) && letter.queue != NOTIFY_QUEUE);
        self.seen.recent = recent;
        Ok(notice::of_dead_letters(&letters))
    }

    /// The line of the log comes last: a notice that the store did not take is told again.
    async fn tell(&self, notice: &Notice) -> Result<()> {
        if self.notify.queue {
            notify_queue(self.pond).await?;
            // Several nodes look. The first to tell holds the key of the group, and the others' notices are another
            // body under it.
            let item = notice.clone().dedup_key(notice.group());
            match self.pond.send(&Queue::<Notice>::named(NOTIFY_QUEUE.to_owned()), [item]).await {
                Err(error) if error.code() != Code::DedupConflict => return Err(error),
                _ => {}
            }
        }
        if self.notify.log {
            let Notice { queue, class, count, held_back, example, error, .. } = notice;
            let (subject, example) = (notice.subject.as_str(), example.as_deref().unwrap_or(""));
            let error = error.as_deref().unwrap_or("");
            tracing::error!(
                target: "millpond::notify", subject, %queue, %class, count, held_back, example, error, "{}",
                notice.sentence()
            );
        }
        Ok(())
    }
}

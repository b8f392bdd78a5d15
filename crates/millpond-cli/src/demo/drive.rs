//! The course of a demo: declare, start the workers, send the load, kill a worker in the middle, wait, send what
//! kills, wait, and collect what is there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millpond::view::QueueView;
use millpond::{Code, Error, ItemOptions, MessageId, Pond, Result};
use tokio::time::{sleep, timeout};

use crate::demo::Place;
use crate::demo::check::{Counts, Held};
use crate::demo::crew::{Book, Crew, open};
use crate::demo::evidence;
use crate::demo::ledger::Ledger;
use crate::demo::screen::{Screen, Whereabouts};
use crate::demo::workload::{Batch, Kind, Task, Workload};

/// How often the store is asked where the messages are.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long the store may take to say so.
const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// Messages that are named when time is up.
const NAMED_MAX: usize = 5;

/// One demo on one store.
pub(crate) struct Drive<'a> {
    pub(crate) pond: &'a Pond,
    pub(crate) place: &'a Place,
    pub(crate) screen: &'a Arc<Screen>,
    /// How long all of it may take.
    pub(crate) limit: Duration,
}

/// A demo that came to its end.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) ledger: Ledger,
    pub(crate) held: Held,
    /// From the first send until all was settled.
    pub(crate) took: Duration,
    /// Messages of the load that were acknowledged, and how long that took from the first send on.
    pub(crate) load: (u64, Duration),
}

/// What is there before the first send.
struct Start {
    began: Instant,
    counts: BTreeMap<Kind, Counts>,
    sums: Whereabouts,
}

impl Drive<'_> {
    /// Runs it. Dropped, it leaves no worker behind.
    pub(crate) async fn run(&self, workload: Workload) -> Result<Driven> {
        let until = Instant::now() + self.limit;
        for kind in Kind::ALL {
            self.pond.declare(kind.queue()).await?;
        }
        evidence::make_effect_table(self.path()).await?;
        let book: Book = Arc::new(Mutex::new(Ledger::default()));
        let crew = Crew::start(&self.place.url, &book, self.screen)?;
        self.finish_what_was_there(&crew, until).await?;
        let queues = self.queues().await?;
        let start = Start { began: Instant::now(), counts: evidence::counts(&queues), sums: sums(&queues) };
        // Of leftovers, which nobody here sent.
        *open(&book) = Ledger::default();

        crew.kill_one_at(workload.kill_at);
        self.send(workload.load, &book, &start).await?;
        let mut in_time = self.settled(&crew, &book, &start, until).await?;
        let done = sums(&self.queues().await?).since(start.sums).done;
        let load = (done, start.began.elapsed());
        if in_time {
            self.screen.event("now come the messages that kill their worker");
            self.send(workload.poison, &book, &start).await?;
            in_time = self.settled(&crew, &book, &start, until).await?;
        }
        let took = start.began.elapsed();
        tokio::task::block_in_place(|| crew.stop())?;
        let ledger = std::mem::take(&mut *open(&book));
        let held = evidence::collect(self.pond, self.path(), &start.counts).await?;
        if !in_time {
            self.name_what_is_open(&ledger, &held).await?;
        }
        Ok(Driven { ledger, held, took, load })
    }

    fn path(&self) -> &Path {
        &self.place.path
    }

    /// Messages of an earlier demo on this store, which was interrupted.
    async fn finish_what_was_there(&self, crew: &Crew, until: Instant) -> Result<()> {
        let mut told = false;
        loop {
            let now = sums(&self.queues().await?);
            if now.open() == 0 {
                return Ok(());
            }
            if until < Instant::now() || crew.has_ended() {
                let why = format!("{} messages of an earlier demo do not come to their end", now.open());
                return Err(Error::new(Code::StoreUnavailable, "begin a demo").because(why));
            }
            if !told {
                self.screen.event(&format!("{} messages of an earlier demo come first", now.open()));
                told = true;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn send(&self, batches: Vec<Batch>, book: &Book, start: &Start) -> Result<()> {
        let mut looked = Instant::now();
        for Batch { kind, tasks } in batches {
            let sent = self.send_batch(kind, tasks).await?;
            open(book).sent(kind, sent.into_iter());
            if looked.elapsed() < LOOK_EVERY {
                continue;
            }
            looked = Instant::now();
            self.screen.progress(&self.whereabouts(start).await?);
        }
        Ok(())
    }

    async fn send_batch(&self, kind: Kind, tasks: Vec<Task>) -> Result<Vec<MessageId>> {
        let items = tasks.into_iter().map(|task| task.delay(Duration::from_millis(task.delay_ms)));
        Ok(self.pond.send(kind.queue(), items).await?.ids().collect())
    }

    /// Waits until everything that was sent is done or dead, and the worker that was to be killed has been.
    /// False: time is up.
    async fn settled(&self, crew: &Crew, book: &Book, start: &Start, until: Instant) -> Result<bool> {
        while Instant::now() < until && !crew.has_ended() {
            let now = self.whereabouts(start).await?;
            self.screen.progress(&now);
            let sent = open(book).sent.len() as u64;
            if crew.has_killed() && now.open() == 0 && sent <= now.done + now.dead {
                return Ok(true);
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(false)
    }

    async fn whereabouts(&self, start: &Start) -> Result<Whereabouts> {
        Ok(sums(&self.queues().await?).since(start.sums))
    }

    async fn queues(&self) -> Result<Vec<QueueView>> {
        timeout(LOOK_LIMIT, self.pond.store().queues()).await.unwrap_or_else(|_| {
            let why = format!("no answer within {LOOK_LIMIT:?}");
            Err(Error::new(Code::StoreUnavailable, "ask where the messages are").because(why))
        })
    }

    /// Says which messages did not come to their end in time, and where they are.
    async fn name_what_is_open(&self, ledger: &Ledger, held: &Held) -> Result<()> {
        self.screen.event(&format!("time is up after {:?}; still open:", self.limit));
        for (kind, counts) in held.counts.iter().filter(|(_, counts)| counts.open != 0) {
            self.screen.event(&format!("  {} in `{}`", counts.open, kind.queue().name()));
        }
        let is_done = |id: &MessageId| {
            ledger.deliveries.get(id).is_some_and(|list| list.iter().any(|one| one.outcome.is_done()))
        };
        let is_dead = |id: &MessageId| held.dead_letters.iter().any(|(dead, _)| dead == id);
        let open = ledger.sent.iter().map(|(id, _)| id).filter(|id| !is_done(id) && !is_dead(id));
        for id in open.take(NAMED_MAX) {
            let found = self.pond.store().message(*id).await?;
            let state = found.map_or("nowhere".to_owned(), |message| format!("{:?}", message.state));
            self.screen.event(&format!("  {id}: {state}"));
        }
        Ok(())
    }
}

fn sums(queues: &[QueueView]) -> Whereabouts {
    let ours = |queue: &&QueueView| Kind::ALL.iter().any(|kind| kind.queue().name() == queue.name);
    Whereabouts::of(queues.iter().filter(ours))
}

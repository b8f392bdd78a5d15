//! The role of a dropper: makes calls to a store, many at once, and gives up most of them at a random moment.
//!
//! What was given up may have happened; what was answered has. It keeps the store open until its parent has looked
//! whether a connection was left in a transaction.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond::{IdSource, Store};
use millpond_core::error::{Code, Error, ErrorKind, Result};
use millpond_core::store::QueueId;
use millpond_testkit::judge::history::Phase;

use crate::database::open_patiently;
use crate::dice::Dice;
use crate::sender::{events, look_up, messages};
use crate::wire::{Report, Reporter};
use crate::work::{EFFECTS, MessageOrder, Order, PLAIN};

/// Calls that are under way at once.
const AT_ONCE: u64 = 64;

/// How long a call takes, in microseconds, before one was measured.
const USUAL: u64 = 40_000;

/// One in so many calls, in a thousand, is waited for, to know how long one takes.
const WAITED_FOR: u64 = 100;
const LONG: Duration = Duration::from_secs(60);

/// What the calls share.
struct Dropper {
    store: Arc<dyn Store>,
    plain: QueueId,
    effects: QueueId,
    ids: IdSource,
    reporter: Reporter,
    seed: u64,
    calls: u64,
    next: AtomicU64,
    drops: AtomicU64,
    /// How long a call takes at present, in microseconds.
    usual: AtomicU64,
}

/// Makes the calls, and waits until its parent closes the pipe.
pub(crate) fn run(url: &str, calls: u64, seed: u64) -> Result<()> {
    let failed = |error: std::io::Error| Error::new(Code::Internal, "start a dropper").because(error);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let store = open_patiently(url).await?;
        let (plain, effects) =
            (look_up(&*store, PLAIN.name()).await?, look_up(&*store, EFFECTS.name()).await?);
        let dropper = Arc::new(Dropper {
            store,
            plain,
            effects,
            ids: IdSource::new(),
            reporter: Reporter::default(),
            seed,
            calls,
            next: AtomicU64::new(0),
            drops: AtomicU64::new(0),
            usual: AtomicU64::new(USUAL),
        });
        let begun: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let dropper = Arc::clone(&dropper);
                tokio::spawn(async move { dropper.go_on().await })
            })
            .collect();
        for begun in begun {
            begun.await.map_err(|why| Error::new(Code::Internal, "make calls").because(why))??;
        }
        dropper.reporter.send(&Report::Dropped { drops: dropper.drops.load(Ordering::Relaxed) });
        let orphaned = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_to_end(&mut Vec::new()));
        let _ = orphaned.await;
        dropper.store.close().await;
        Ok(())
    })
}

impl Dropper {
    async fn go_on(&self) -> Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if self.calls <= number {
                return Ok(());
            }
            let mut dice = Dice::of(self.seed, 6, number);
            // Every moment of a call is one at which some are given up.
            let patience = match self.usual.load(Ordering::Relaxed) {
                _ if dice.chance(WAITED_FOR) => LONG,
                usual => Duration::from_micros(dice.between(0, 2 * usual.max(1))),
            };
            if dice.chance(60) {
                self.ask(patience).await;
            } else {
                self.send(number, &mut dice, patience).await?;
            }
        }
    }

    /// Questions that hold a connection, some of them in a transaction.
    async fn ask(&self, patience: Duration) {
        let asked = async {
            let _ = self.store.queues().await;
            let _ = self.store.pulse(vec![self.plain]).await;
        };
        if tokio::time::timeout(patience, asked).await.is_err() {
            self.drops.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn send(&self, number: u64, dice: &mut Dice, patience: Duration) -> Result<()> {
        let (queue, of) = if dice.chance(50) { (self.effects, EFFECTS) } else { (self.plain, PLAIN) };
        let delay_ms = if dice.chance(100) { dice.between(10, 500) } else { 0 };
        let order = Order {
            batch: number,
            queue: of.name().to_owned(),
            dedup: dice.chance(300),
            ids: Vec::new(),
            messages: vec![MessageOrder { delay_ms, ..MessageOrder::steady(dice.between(1, 100) as i64) }],
        };
        let ids = self.ids.ids(order.messages.len())?;
        let sent = messages(&order, &ids)?;
        self.reporter.events(events(&order, &ids, Phase::Invoke, None));
        let began = Instant::now();
        let ph = match tokio::time::timeout(patience, self.store.append(queue, sent)).await {
            Ok(Ok(_)) => {
                if patience == LONG {
                    let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                    self.usual.store(took, Ordering::Relaxed);
                }
                Phase::Ok
            }
            Ok(Err(error)) if error.kind() != ErrorKind::Unknown => Phase::Fail,
            Ok(Err(_)) => Phase::Info,
            Err(_) => {
                self.drops.fetch_add(1, Ordering::Relaxed);
                Phase::Info
            }
        };
        self.reporter.events(events(&order, &ids, ph, None));
        Ok(())
    }
}

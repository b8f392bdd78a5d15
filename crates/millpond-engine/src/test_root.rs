//! A transaction around a test: what is done through the pond in it is undone at its end.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::NewMessage;
use millpond_core::store::{self, BoxFuture, EffectTx, Frame, Stored};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::pond::{Batch, Path, Pond, Sent};

/// How long a test may take: then its transaction is rolled back, as any that was forgotten.
pub const TEST_ROOT_LIMIT: Duration = Duration::from_secs(60);

/// The frame of a unit within it.
const UNIT: usize = 1;

/// What a pond has of it. One unit or send is in it at a time.
pub(crate) type Root = Arc<Mutex<Outer>>;

/// The transaction.
pub(crate) struct Outer {
    tx: Box<dyn EffectTx>,
    /// A unit was dropped, and its frame is open.
    is_left_open: bool,
}

impl Outer {
    /// Begins a frame, after what was left open was undone.
    async fn begin(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_left_open) {
            self.tx.frame(Frame::RollBack(UNIT)).await?;
        }
        self.tx.frame(Frame::Open(UNIT)).await
    }
}

/// An open transaction around a test; see [`Pond::begin_test_root`]. Dropping it rolls everything back.
pub struct TestRoot {
    pond: Pond,
    root: Root,
}

impl TestRoot {
    /// Rolls everything back, once the unit of work that is open in it has ended.
    pub async fn roll_back(self) {
        self.pond.set_test_root(None);
        drop(self.root.lock().await);
    }
}

impl Drop for TestRoot {
    fn drop(&mut self) {
        self.pond.set_test_root(None);
    }
}

impl fmt::Debug for TestRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestRoot").finish_non_exhaustive()
    }
}

impl Pond {
    /// Opens a transaction around a test of code that commits: until it is dropped, every unit of work of this pond and of
    /// its clones is a savepoint in it, every send is written into it, and at its end all of it is undone.
    ///
    /// Units in it behave as always: when one *commits*, its hooks run, its `before_commit` may refuse, and what it sent
    /// to a [`FastQueue`](crate::queue::FastQueue) is sent. The outer transaction has no hooks. One unit or send is in it
    /// at a time, on every store, as on SQLite. Declare the queues before, and run no worker: nobody else sees what is not
    /// committed. What your code writes on other connections is not undone. It may be open for [`TEST_ROOT_LIMIT`].
    ///
    /// ```no_run
    /// # // It needs a store; one that runs is in `docs/testing.md`.
    /// # async fn pay(_: &millpond_engine::pond::Pond) {}
    /// # async fn example(pond: millpond_engine::pond::Pond) -> millpond_core::Result<()> {
    /// let root = pond.begin_test_root().await?;
    /// pay(&pond).await; // Begins units of work and commits them.
    /// root.roll_back().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `shutting-down`. `send-inside-transaction`: a unit or another test root is open. What the store says.
    pub async fn begin_test_root(&self) -> Result<TestRoot> {
        let doing = "begin a test root";
        self.may_begin(doing)?;
        if self.test_root().is_some() {
            let why = "one is open on this pond: a test has one, and a pond of its own";
            return Err(Error::new(Code::SendInsideTransaction, doing).because(why));
        }
        self.trust_the_time().await;
        let tx = self.store().open(TEST_ROOT_LIMIT).await?;
        let root = Arc::new(Mutex::new(Outer { tx, is_left_open: false }));
        self.set_test_root(Some(Arc::clone(&root)));
        Ok(TestRoot { pond: self.clone(), root })
    }
}

/// Begins a unit of work in it, once the one before has ended.
pub(crate) async fn begin(root: Root) -> Result<Box<dyn EffectTx>> {
    let mut outer = root.lock_owned().await;
    outer.begin().await?;
    Ok(Box::new(Inner { outer, is_over: false }))
}

/// A send outside of a unit: it is done at once, and undone at the end.
pub(crate) async fn send(root: Root, queue: &store::Queue, batch: Batch) -> Result<Sent> {
    let ids = batch.ids();
    let mut inner = Inner { outer: root.lock_owned().await, is_over: false };
    inner.outer.begin().await?;
    let stored = inner.send(queue, batch.messages).await?;
    Box::new(inner).commit().await?;
    Ok(Sent::of(ids, stored, Path::Outbox))
}

/// A transaction within it: a savepoint.
struct Inner {
    outer: OwnedMutexGuard<Outer>,
    is_over: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.outer.is_left_open = !self.is_over;
    }
}

impl EffectTx for Inner {
    fn queue(&mut self, name: String) -> BoxFuture<'_, Result<Option<store::Queue>>> {
        self.outer.tx.queue(name)
    }

    fn send<'a>(
        &'a mut self,
        queue: &'a store::Queue,
        messages: Vec<NewMessage>,
    ) -> BoxFuture<'a, Result<Vec<Stored>>> {
        self.outer.tx.send(queue, messages)
    }

    fn frame(&mut self, frame: Frame) -> BoxFuture<'_, Result<()>> {
        self.outer.tx.frame(match frame {
            Frame::Open(depth) => Frame::Open(depth + UNIT),
            Frame::Release(depth) => Frame::Release(depth + UNIT),
            Frame::RollBack(depth) => Frame::RollBack(depth + UNIT),
        })
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            self.outer.tx.frame(Frame::Release(UNIT)).await?;
            self.is_over = true;
            Ok(())
        })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self.outer.tx.as_any()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::fake::FakeStore;
    use crate::queue::Queue;

    const MAIL: Queue<u32> = Queue::new("mail");

    #[tokio::test]
    async fn a_unit_in_it_is_a_frame_and_its_hooks_run_when_it_commits() {
        let store = Arc::new(FakeStore::default());
        let pond = Pond::new(Arc::clone(&store) as _);
        pond.declare(&MAIL).await.unwrap();
        let root = pond.begin_test_root().await.unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        for commits in [true, false, true] {
            let mut unit = pond.begin().await.unwrap();
            let ran = Arc::clone(&ran);
            unit.after_commit(move || async move {
                ran.fetch_add(1, Ordering::SeqCst);
                Ok::<(), Error>(())
            });
            if commits {
                unit.commit().await.unwrap();
            }
        }
        assert_eq!(ran.load(Ordering::SeqCst), 2);
        let (open, release, undo) = (Frame::Open(1), Frame::Release(1), Frame::RollBack(1));
        assert_eq!(store.frames(), [open, release, open, undo, open, release]);
        assert_eq!(pond.begin_test_root().await.unwrap_err().code(), Code::SendInsideTransaction);
        root.roll_back().await;
        pond.begin_test_root().await.unwrap();
        assert_eq!(store.relays(), 0, "nothing of it is there to be relayed");
    }

    #[tokio::test]
    async fn what_would_wait_for_itself_is_refused() {
        let store = Arc::new(FakeStore::default());
        let pond = Pond::new(Arc::clone(&store) as _);
        pond.declare(&MAIL).await.unwrap();
        let root = pond.begin_test_root().await.unwrap();
        let unit = pond.begin().await.unwrap();
        assert_eq!(pond.begin().await.unwrap_err().code(), Code::SendInsideTransaction);
        assert_eq!(pond.send(&MAIL, [1]).await.unwrap_err().code(), Code::SendInsideTransaction);
        drop(unit);
        let late = Queue::<u32>::new("late");
        assert_eq!(pond.send(&late, [1]).await.unwrap_err().code(), Code::SendInsideTransaction);
        pond.send(&MAIL, [1]).await.unwrap();
        root.roll_back().await;
        pond.send(&late, [1]).await.unwrap();
    }
}

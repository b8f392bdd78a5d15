//! A unit of work on a transaction that a driver has opened.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::NewMessage;
use millpond_core::store::{BoxFuture, EffectTx, Frame, Queue, Store, Stored};
use millpond_core::within::{self, BlockingUserTx, Dialect, Refused, Row, Statement, UserTx};

use crate::pond::Pond;
use crate::send::{Blocking, Driven};
use crate::unit::{Open, UnitOfWork};

/// What [`UnitOfWork::adopt`] takes: a connection of a driver, owned, with an open transaction on it; everything that
/// [`Pond::within`] takes and that borrows nothing. `Of` says which, and is inferred.
pub trait Adopt<Of>: Send + 'static {
    /// The transaction as the engine holds it.
    fn adopt(self, store: Arc<dyn Store>) -> Box<dyn Adopted>;
}

/// A transaction that was adopted; see [`Adopt`].
pub trait Adopted: EffectTx {
    /// Looks whether a transaction is open, and marks where ours begins in it.
    fn begin(&mut self) -> BoxFuture<'_, Result<()>>;
}

impl<T: UserTx<Of> + 'static, Of: 'static> Adopt<Driven<Of>> for T {
    fn adopt(self, store: Arc<dyn Store>) -> Box<dyn Adopted> {
        Box::new(Foreign { tx: self, store, lent: |tx| tx as &mut dyn Any, of: PhantomData::<fn() -> Of> })
    }
}

impl<T: BlockingUserTx<Of> + Send + 'static, Of: 'static> Adopt<Blocking<Of>> for T {
    fn adopt(self, store: Arc<dyn Store>) -> Box<dyn Adopted> {
        Box::new(Foreign {
            tx: Blocks(self),
            store,
            lent: |tx| &mut tx.0 as &mut dyn Any,
            of: PhantomData::<fn() -> Of>,
        })
    }
}

impl UnitOfWork {
    /// Takes over an open transaction of a driver: what is sent in it is written just before its commit, which is the
    /// unit's to do. It never begins one.
    ///
    /// It takes a connection that is yours, because the commit runs to its end whoever waits: a `tokio_postgres::Client`, a
    /// `mysql_async::Conn` or `Transaction<'static>`, a `rusqlite::Connection`, or what an adapter is written for. It has
    /// no time limit. The connection is dropped with the unit, and where nothing was committed the database rolls back;
    /// one of a pool goes back to its pool. Until then it is lent by `unit.postgres()`, `unit.mysql()` and
    /// `unit.sqlite(…)`, or by [`adopted`](Self::adopted).
    ///
    /// On SQLite it is the one writer of its file, as every open transaction is; with a driver that blocks each statement
    /// blocks its thread.
    ///
    /// ```
    /// use millpond_engine::adopt::Adopt;
    /// use millpond_engine::pond::Pond;
    /// use millpond_engine::queue::FastQueue;
    /// use millpond_engine::unit::UnitOfWork;
    ///
    /// const PINGS: FastQueue<u64> = FastQueue::new("pings");
    ///
    /// /// `open` is a connection on which `begin` was said.
    /// async fn finish<T: Adopt<Of>, Of>(pond: &Pond, open: T) -> millpond_core::Result<()> {
    ///     let mut unit = UnitOfWork::adopt(pond, open).await?;
    ///     unit.send(&PINGS, [7]).await?; // Even this: the unit is told of its commit.
    ///     unit.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// `unsupported-store`: no transaction is open, or it is in a database of another kind. `shutting-down`.
    /// `send-inside-transaction`: on SQLite, from a task that has a unit open. What the database says.
    pub async fn adopt<T: Adopt<Of>, Of>(pond: &Pond, tx: T) -> Result<Self> {
        pond.may_begin(within::ADOPT)?;
        if pond.test_root().is_some() {
            let why = "a test root is open, and this transaction is not in it";
            return Err(Error::new(Code::SendInsideTransaction, within::ADOPT).because(why));
        }
        pond.trust_the_time().await;
        let mut tx = tx.adopt(Arc::clone(pond.store()));
        tx.begin().await?;
        Ok(Self::new(tx, Open::Plain(Some(pond.mark())), pond.clone()))
    }

    /// The connection that was adopted, if it is of this type. Do not begin, commit or roll back through it.
    ///
    /// # Errors
    ///
    /// `unsupported-store`: it is of another type. What the store says when it rolls back a savepoint that was dropped.
    pub async fn adopted<T: 'static>(&mut self) -> Result<&mut T> {
        let other = || Error::new(Code::UnsupportedStore, "write in the transaction");
        let lent = self.tx().await?.as_any().downcast_mut::<T>();
        lent.ok_or_else(|| other().because("it was begun by the pond, or adopted as another type"))
    }
}

/// A driver's transaction.
struct Foreign<T, Of> {
    tx: T,
    store: Arc<dyn Store>,
    /// What is lent to who asks for the driver's own type.
    lent: fn(&mut T) -> &mut dyn Any,
    of: PhantomData<fn() -> Of>,
}

impl<T: UserTx<Of> + 'static, Of: 'static> Adopted for Foreign<T, Of> {
    fn begin(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(within::adopt(&mut self.tx, self.store.dialect()))
    }
}

impl<T: UserTx<Of> + 'static, Of: 'static> EffectTx for Foreign<T, Of> {
    fn queue(&mut self, name: String) -> BoxFuture<'_, Result<Option<Queue>>> {
        Box::pin(async move { within::find_queue(&mut self.tx, &*self.store, &name).await })
    }

    fn send<'a>(
        &'a mut self,
        queue: &'a Queue,
        messages: Vec<NewMessage>,
    ) -> BoxFuture<'a, Result<Vec<Stored>>> {
        Box::pin(async move { within::send(&mut self.tx, &*self.store, queue, &messages).await })
    }

    fn frame(&mut self, frame: Frame) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { within::frame(&mut self.tx, self.store.dialect(), frame).await })
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { within::commit(&mut self.tx, self.store.dialect()).await })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        (self.lent)(&mut self.tx)
    }
}

/// A driver that blocks, as one that does not.
struct Blocks<T>(T);

impl<T: BlockingUserTx<Of> + Send, Of> UserTx<Of> for Blocks<T> {
    fn dialect(&self) -> Dialect {
        self.0.dialect()
    }

    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
    ) -> BoxFuture<'a, std::result::Result<Vec<Row>, Refused>> {
        Box::pin(std::future::ready(self.0.run(statement)))
    }
}

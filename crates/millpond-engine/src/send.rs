//! Where a send stands: in a transaction, outside of one, or where its caller says; and scopes, which collect.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use millpond_core::error::{Code, Error, Result};
use millpond_core::queue::Transactional;
use millpond_core::store::{self, Stored};
use millpond_core::within::{self, BlockingUserTx, UserTx};

use crate::body::Body;
use crate::item::Item;
use crate::pond::{Batch, Path, Pond, Sent, sending};
use crate::queue::{Declaration, Inside, Mode, Outside};
use crate::unit::{UnitOfWork, undeclared};

/// Says where a send stands, in code that may be called either way.
///
/// It is no `Option`, has no default and nothing becomes one by itself: who forgets to pass it on does not compile.
///
/// ```
/// use millpond_engine::pond::Pond;
/// use millpond_engine::queue::Queue;
/// use millpond_engine::send::Ctx;
///
/// const MAIL: Queue<u64> = Queue::new("mail");
///
/// async fn welcome(pond: &Pond, ctx: Ctx<'_>, user: u64) -> millpond_core::Result<()> {
///     pond.with(ctx).send(&MAIL, [user]).await?;
///     Ok(())
/// }
///
/// async fn register(pond: &Pond) -> millpond_core::Result<()> {
///     let mut unit = pond.begin().await?;
///     welcome(pond, Ctx::Tx(&mut unit), 7).await?;
///     unit.commit().await?;
///     welcome(pond, Ctx::NoTx, 7).await
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use millpond_engine::{pond::Pond, send::Ctx};
/// # async fn welcome(_: &Pond, _: Ctx<'_>, _: u64) {}
/// # async fn example(pond: &Pond) {
/// welcome(pond, None, 7).await;
/// # }
/// ```
///
/// A queue that requires a transaction takes the unit itself:
///
/// ```compile_fail,E0277
/// # use millpond_engine::{pond::Pond, queue::TxQueue, send::Ctx};
/// const REPORTS: TxQueue<u64> = TxQueue::new("reports");
///
/// async fn report(pond: &Pond, ctx: Ctx<'_>) -> millpond_core::Result<()> {
///     pond.with(ctx).send(&REPORTS, [7]).await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub enum Ctx<'u> {
    /// Within this unit of work.
    Tx(&'u mut UnitOfWork),
    /// In no transaction.
    NoTx,
}

impl Ctx<'_> {
    /// The same place, lent for one call.
    pub fn again(&mut self) -> Ctx<'_> {
        match self {
            Ctx::Tx(unit) => Ctx::Tx(unit),
            Ctx::NoTx => Ctx::NoTx,
        }
    }
}

/// Where [`Pond::with`] and [`Pond::scope`] may stand: a [`Ctx`], or a `&mut` [`UnitOfWork`].
pub trait Stand: sealed::Sealed + Send {
    /// Which queues it takes: [`Anywhere`] or [`InUnit`].
    type Kind: Kind;

    /// The unit of work, if it is in one.
    fn unit(&mut self) -> Option<&mut UnitOfWork>;
}

impl Stand for Ctx<'_> {
    type Kind = Anywhere;

    fn unit(&mut self) -> Option<&mut UnitOfWork> {
        match self {
            Ctx::Tx(unit) => Some(unit),
            Ctx::NoTx => None,
        }
    }
}

impl Stand for &mut UnitOfWork {
    type Kind = InUnit;

    fn unit(&mut self) -> Option<&mut UnitOfWork> {
        Some(self)
    }
}

/// Of a scope that may stand outside of a transaction.
#[derive(Debug)]
pub enum Anywhere {}

/// Of a scope that stands in a unit of work.
#[derive(Debug)]
pub enum InUnit {}

/// [`Anywhere`] or [`InUnit`].
pub trait Kind: sealed::Sealed + Send {}

impl Kind for Anywhere {}
impl Kind for InUnit {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Anywhere {}
    impl Sealed for super::InUnit {}
    impl Sealed for super::Ctx<'_> {}
    impl Sealed for &mut super::UnitOfWork {}
}

/// A pond at a place; see [`Pond::with`].
#[derive(Debug)]
pub struct With<'p, S> {
    pond: &'p Pond,
    stand: S,
}

impl With<'_, Ctx<'_>> {
    /// Sends there: in the unit of work as [`UnitOfWork::send`], otherwise as [`Pond::send`].
    ///
    /// # Errors
    ///
    /// Those of the one or the other.
    pub async fn send<B, M, I>(self, queue: &Declaration<B, M>, items: I) -> Result<Sent>
    where
        B: Body,
        M: Outside,
        I: IntoIterator + Send,
        I::Item: Into<Item<B>>,
    {
        match self.stand {
            Ctx::Tx(unit) => in_unit(self.pond, unit, queue, items).await,
            Ctx::NoTx => self.pond.send(queue, items).await,
        }
    }
}

impl With<'_, &mut UnitOfWork> {
    /// Sends in the unit of work, as [`UnitOfWork::send`].
    ///
    /// # Errors
    ///
    /// As for [`UnitOfWork::send`].
    pub async fn send<B, M, I>(self, queue: &Declaration<B, M>, items: I) -> Result<Sent>
    where
        B: Body,
        M: Mode,
        I: IntoIterator + Send,
        I::Item: Into<Item<B>>,
    {
        in_unit(self.pond, self.stand, queue, items).await
    }
}

async fn in_unit<B, M, I>(
    pond: &Pond,
    unit: &mut UnitOfWork,
    queue: &Declaration<B, M>,
    items: I,
) -> Result<Sent>
where
    B: Body,
    M: Mode,
    I: IntoIterator,
    I::Item: Into<Item<B>>,
{
    same_pond(pond, unit, queue.name())?;
    unit.send(queue, items).await
}

fn same_pond(pond: &Pond, unit: &UnitOfWork, queue: &str) -> Result<()> {
    if unit.is_of(pond) {
        return Ok(());
    }
    let doing = if queue.is_empty() { "open a scope".to_owned() } else { sending(queue) };
    let why = "the unit of work was begun by another pond: send through the pond that began it";
    Err(Error::new(Code::InvalidConfig, doing).because(why))
}

/// What [`Pond::within`] takes: a transaction of a driver, asynchronous or not, or a [`UnitOfWork`]. `Of` says which, and
/// is inferred.
pub trait Place<'a, Of> {
    /// What sends there.
    type Within;

    /// The pond in this transaction.
    fn place(pond: &'a Pond, tx: &'a mut Self) -> Self::Within;
}

/// Of an asynchronous driver; see [`Place`].
#[derive(Debug)]
pub struct Driven<Of>(PhantomData<Of>);

/// Of a driver that blocks; see [`Place`].
#[derive(Debug)]
pub struct Blocking<Of>(PhantomData<Of>);

/// Of a unit of work; see [`Place`].
#[derive(Debug)]
pub struct Ours;

impl<'a, T: UserTx<Of> + 'a, Of: 'a> Place<'a, Driven<Of>> for T {
    type Within = WithinTx<'a, T, Of>;

    fn place(pond: &'a Pond, tx: &'a mut Self) -> Self::Within {
        WithinTx { pond, tx, of: PhantomData }
    }
}

impl<'a, T: BlockingUserTx<Of> + 'a, Of: 'a> Place<'a, Blocking<Of>> for T {
    type Within = WithinBlockingTx<'a, T, Of>;

    fn place(pond: &'a Pond, tx: &'a mut Self) -> Self::Within {
        WithinBlockingTx { pond, tx, of: PhantomData }
    }
}

impl<'a> Place<'a, Ours> for UnitOfWork {
    type Within = With<'a, &'a mut UnitOfWork>;

    fn place(pond: &'a Pond, tx: &'a mut Self) -> Self::Within {
        With { pond, stand: tx }
    }
}

/// A pond in an open transaction of a driver; see [`Pond::within`].
pub struct WithinTx<'a, T, Of> {
    pond: &'a Pond,
    tx: &'a mut T,
    of: PhantomData<fn() -> Of>,
}

impl<T, Of> fmt::Debug for WithinTx<'_, T, Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithinTx").finish_non_exhaustive()
    }
}

impl<T: UserTx<Of>, Of> WithinTx<'_, T, Of> {
    /// Writes messages into the transaction: they exist exactly if it commits. All of `items`, or none and the transaction
    /// as it was; but one of Postgres may be over if the server itself refused a statement, as after any other statement. A dedup key makes senders of the same key wait for the end of the transaction, and nobody else.
    ///
    /// # Errors
    ///
    /// Those of the checks, as for [`Pond::send`]. `unknown-queue`: a queue is not declared from inside a transaction;
    /// declare it at start, with [`Pond::declare`]. `dedup-conflict`. `unsupported-store`: the transaction is in another
    /// kind of database, or none is open. `statement-failed`, `store-unavailable`, `store-unreachable`, `schema-older`,
    /// `schema-newer`: what the database said.
    pub async fn send<B, M, I>(self, queue: &Declaration<B, M>, items: I) -> Result<Sent>
    where
        B: Body,
        M: Inside,
        I: IntoIterator + Send,
        I::Item: Into<Item<B>>,
    {
        let Self { pond, tx, .. } = self;
        pond.is_open(queue.name())?;
        let Some(batch) = pond.encode(queue.name(), items)? else { return Ok(Sent::default()) };
        let stored_queue = match pond.met(queue.name()) {
            Some(met) => met,
            None => {
                let found = within::find_queue(tx, &**pond.store(), queue.name()).await?;
                met_within(pond, found, queue.name())?
            }
        };
        may_be_a_row(&stored_queue)?;
        pond.trust_the_time().await;
        pond.learn(queue);
        let (batch, removed) = pond.deduplicate(&stored_queue, pond.check(&stored_queue, batch)?);
        let stored = within::send(tx, &**pond.store(), &stored_queue, &batch.messages).await?;
        Ok(removed.merge(sent(pond, &batch, stored)))
    }
}

/// A pond in an open transaction of a driver that blocks; see [`Pond::within`].
pub struct WithinBlockingTx<'a, T, Of> {
    pond: &'a Pond,
    tx: &'a mut T,
    of: PhantomData<fn() -> Of>,
}

impl<T, Of> fmt::Debug for WithinBlockingTx<'_, T, Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithinBlockingTx").finish_non_exhaustive()
    }
}

impl<T: BlockingUserTx<Of>, Of> WithinBlockingTx<'_, T, Of> {
    /// The same as [`WithinTx::send`], without `await`: it blocks as every statement of such a driver does.
    ///
    /// # Errors
    ///
    /// As for [`WithinTx::send`].
    pub fn send<B, M, I>(self, queue: &Declaration<B, M>, items: I) -> Result<Sent>
    where
        B: Body,
        M: Inside,
        I: IntoIterator,
        I::Item: Into<Item<B>>,
    {
        let Self { pond, tx, .. } = self;
        pond.is_open(queue.name())?;
        let Some(batch) = pond.encode(queue.name(), items)? else { return Ok(Sent::default()) };
        let stored_queue = match pond.met(queue.name()) {
            Some(met) => met,
            None => {
                let found = within::find_queue_blocking(tx, &**pond.store(), queue.name())?;
                met_within(pond, found, queue.name())?
            }
        };
        may_be_a_row(&stored_queue)?;
        pond.learn(queue);
        let (batch, removed) = pond.deduplicate(&stored_queue, pond.check(&stored_queue, batch)?);
        let stored = within::send_blocking(tx, &**pond.store(), &stored_queue, &batch.messages)?;
        Ok(removed.merge(sent(pond, &batch, stored)))
    }
}

fn met_within(pond: &Pond, found: Option<store::Queue>, name: &str) -> Result<Arc<store::Queue>> {
    found.map(|found| pond.remember(found)).ok_or_else(|| undeclared(name))
}

/// A name that is known at run time only may be that of a queue which is never a row of a transaction.
fn may_be_a_row(queue: &store::Queue) -> Result<()> {
    if queue.settings.transactional != Transactional::Never {
        return Ok(());
    }
    let why =
        "it is declared `never`, and nobody tells us of this commit: use a unit of work (`pond.begin()`)";
    Err(Error::new(Code::SendInsideTransaction, sending(&queue.name)).because(why))
}

/// What was written is looked for until its transaction is committed.
fn sent(pond: &Pond, batch: &Batch, stored: Vec<Stored>) -> Sent {
    let ids = batch.ids();
    let new = ids.iter().zip(&stored).filter(|(_, stored)| **stored == Stored::New);
    pond.await_commit(new.map(|(id, _)| *id).collect());
    Sent::of(ids, stored, Path::Outbox)
}

/// What collects in a [`Pond::scope`].
pub struct Out<K> {
    pond: Pond,
    /// A unit of work declares no queue.
    is_in_unit: bool,
    collected: Vec<(Arc<store::Queue>, Batch)>,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for Out<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: usize = self.collected.iter().map(|(_, batch)| batch.messages.len()).sum();
        f.debug_struct("Out").field("messages", &messages).finish_non_exhaustive()
    }
}

impl Out<Anywhere> {
    /// Checks an item and keeps it until the scope ends well.
    ///
    /// # Errors
    ///
    /// Those of the checks, as for [`Pond::send`], and `unknown-queue`.
    pub async fn put<B, M>(
        &mut self,
        queue: &Declaration<B, M>,
        item: impl Into<Item<B>> + Send,
    ) -> Result<()>
    where
        B: Body,
        M: Outside,
    {
        self.keep(queue, item).await
    }
}

impl Out<InUnit> {
    /// Checks an item and keeps it until the scope ends well.
    ///
    /// # Errors
    ///
    /// Those of the checks, as for [`Pond::send`], and `unknown-queue`.
    pub async fn put<B, M>(
        &mut self,
        queue: &Declaration<B, M>,
        item: impl Into<Item<B>> + Send,
    ) -> Result<()>
    where
        B: Body,
        M: Mode,
    {
        self.keep(queue, item).await
    }
}

impl<K> Out<K> {
    async fn keep<B: Body, M: Mode>(
        &mut self,
        queue: &Declaration<B, M>,
        item: impl Into<Item<B>>,
    ) -> Result<()> {
        let Some(batch) = self.pond.encode(queue.name(), [item])? else { return Ok(()) };
        let stored = if self.is_in_unit {
            // A store in memory has one connection, which the unit holds; but all of its queues were met here.
            self.pond.known(queue.name()).await?
        } else {
            self.pond.resolve_outside(queue).await?
        };
        self.pond.learn(queue);
        let batch = self.pond.check(&stored, batch)?;
        match self.collected.iter_mut().find(|(known, _)| known.id == stored.id) {
            Some((_, waiting)) => waiting.messages.extend(batch.messages),
            None => self.collected.push((stored, batch)),
        }
        Ok(())
    }
}

impl Pond {
    /// The pond in an open transaction: messages that are sent there exist exactly if it commits.
    ///
    /// It takes a transaction of the store's own driver, or of a library for which there is an adapter, and a
    /// [`UnitOfWork`]. It never begins, commits or rolls back, and a send that is refused leaves the transaction as it
    /// was. The node looks for what was sent until it is committed; another library's commit is told to nobody.
    ///
    /// ```
    /// # use millpond_core::within::UserTx;
    /// # use millpond_engine::{pond::Pond, queue::Queue};
    /// const MAIL: Queue<u64> = Queue::new("mail");
    ///
    /// async fn welcome<T: UserTx<Of>, Of>(pond: &Pond, tx: &mut T) -> millpond_core::Result<()> {
    ///     pond.within(tx).send(&MAIL, [7]).await?;
    ///     Ok(()) // Now commit it, as always.
    /// }
    /// ```
    pub fn within<'a, T: Place<'a, Of>, Of>(&'a self, tx: &'a mut T) -> T::Within {
        T::place(self, tx)
    }

    /// The pond where `stand` says: a [`Ctx`], in code that may be called either way, or a `&mut` [`UnitOfWork`].
    pub fn with<S: Stand>(&self, stand: S) -> With<'_, S> {
        With { pond: self, stand }
    }

    /// Runs `body`, which collects with `out.put(&QUEUE, item)`, and sends what it collected if it returns `Ok`. If it
    /// fails or panics, nothing is sent, and the error passes on unchanged. Items are checked when they are put.
    ///
    /// In a unit of work all of it becomes a part of the unit. Outside of one, what goes to several queues is
    /// stored queue by queue, each wholly or not at all.
    ///
    /// ```
    /// # use millpond_engine::{pond::Pond, queue::Queue, send::Ctx};
    /// const MAIL: Queue<u64> = Queue::new("mail");
    ///
    /// async fn welcome(pond: &Pond, users: &[u64]) -> millpond_core::Result<usize> {
    ///     pond.scope(Ctx::NoTx, async |out| {
    ///         for user in users {
    ///             out.put(&MAIL, *user).await?;
    ///         }
    ///         Ok(users.len())
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The body's own; those of [`Pond::send`].
    pub async fn scope<S, T, E>(
        &self,
        mut stand: S,
        body: impl AsyncFnOnce(&mut Out<S::Kind>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E>
    where
        S: Stand,
        E: From<Error>,
    {
        if let Some(unit) = stand.unit() {
            same_pond(self, unit, "")?;
        }
        let is_in_unit = stand.unit().is_some();
        let mut out = Out { pond: self.clone(), is_in_unit, collected: Vec::new(), kind: PhantomData };
        let value = body(&mut out).await?;
        let Out { collected, .. } = out;
        for (queue, batch) in collected {
            match stand.unit() {
                Some(unit) => drop(unit.keep(&queue, batch)),
                None => drop(self.append_outside(&queue, batch).await?),
            }
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millpond_core::within::{Dialect, Refused, Row, Shape, Statement};

    use super::*;
    use crate::fake::FakeStore;
    use crate::item::ItemOptions;
    use crate::queue::{Queue, TxQueue};

    const MAIL: Queue<f64> = Queue::new("mail");
    const REPORTS: TxQueue<f64> = TxQueue::new("reports");

    fn pond() -> (Arc<FakeStore>, Pond) {
        let store = Arc::new(FakeStore::default());
        (Arc::clone(&store), Pond::new(store))
    }

    /// A transaction that keeps what it ran.
    #[derive(Default)]
    struct FakeTx {
        ran: Vec<String>,
    }

    enum Driver {}

    impl UserTx<Driver> for FakeTx {
        fn dialect(&self) -> Dialect {
            Dialect::Sqlite
        }

        fn run<'a>(
            &'a mut self,
            statement: &'a Statement,
        ) -> store::BoxFuture<'a, std::result::Result<Vec<Row>, Refused>> {
            if statement.shape != Shape::Word {
                self.ran.push(statement.text.clone());
            }
            Box::pin(std::future::ready(Ok(Vec::new())))
        }
    }

    #[tokio::test]
    async fn a_scope_sends_what_it_collected_if_its_body_succeeds() {
        let (store, pond) = pond();
        let value = pond.scope(Ctx::NoTx, async |out| {
            out.put(&MAIL, 1.0).await?;
            out.put(&MAIL, 2.0.priority(1)).await?;
            Ok::<_, Error>("done")
        });
        assert_eq!(value.await.unwrap(), "done");
        assert_eq!(store.bodies(), [b"1.0", b"2.0"]);
    }

    #[tokio::test]
    async fn a_scope_whose_body_fails_or_panics_sends_nothing() {
        #[derive(Debug, PartialEq)]
        struct Own;
        impl From<Error> for Own {
            fn from(_: Error) -> Self {
                panic!("the sends are good")
            }
        }
        let (store, pond) = pond();
        let failed = pond.scope(Ctx::NoTx, async |out| {
            out.put(&MAIL, 1.0).await?;
            Err::<(), _>(Own)
        });
        assert_eq!(failed.await.unwrap_err(), Own, "it passes on unchanged");
        let panics = pond.clone();
        let panicked = tokio::spawn(async move {
            let scope = panics.scope(Ctx::NoTx, async |out| {
                out.put(&MAIL, 1.0).await?;
                panic!("boom") as Result<()>
            });
            scope.await
        });
        panicked.await.unwrap_err();
        assert!(store.bodies().is_empty());
    }

    #[tokio::test]
    async fn a_bad_item_is_refused_where_it_is_put() {
        let (store, pond) = pond();
        let scope = pond.scope(Ctx::NoTx, async |out| {
            out.put(&MAIL, 1.0).await?;
            let refused = out.put(&MAIL, f64::NAN).await.unwrap_err();
            assert_eq!(refused.code(), Code::NotSerialisable);
            Ok::<_, Error>(())
        });
        scope.await.unwrap();
        assert_eq!(store.bodies(), [b"1.0"]);
    }

    #[tokio::test]
    async fn a_place_says_where_a_send_goes() {
        let (store, pond) = pond();
        pond.declare(&MAIL).await.unwrap();
        pond.declare(&REPORTS).await.unwrap();
        assert_eq!(pond.with(Ctx::NoTx).send(&MAIL, [1.0]).await.unwrap().path, Path::Log);
        let mut unit = pond.begin().await.unwrap();
        let mut ctx = Ctx::Tx(&mut unit);
        assert_eq!(pond.with(ctx.again()).send(&MAIL, [2.0]).await.unwrap().path, Path::Outbox);
        pond.with(&mut unit).send(&REPORTS, [3.0]).await.unwrap();
        pond.within(&mut unit).send(&REPORTS, [4.0]).await.unwrap();
        pond.scope(&mut unit, async |out| out.put(&REPORTS, 5.0).await).await.unwrap();
        assert_eq!(store.bodies(), [b"1.0"]);
        unit.commit().await.unwrap();
        assert_eq!(store.bodies(), [b"1.0", b"2.0", b"3.0", b"4.0", b"5.0"]);
    }

    #[tokio::test]
    async fn a_unit_of_another_pond_is_refused() {
        let ((_, one), (_, other)) = (pond(), pond());
        let mut unit = one.begin().await.unwrap();
        let refused = other.within(&mut unit).send(&MAIL, [1.0]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidConfig);
    }

    #[tokio::test]
    async fn a_name_that_requires_a_transaction_is_refused_outside_of_one() {
        let (store, pond) = pond();
        pond.declare(&REPORTS).await.unwrap();
        let named = Queue::<f64>::named("reports".to_owned());
        let refused = pond.send(&named, [1.0]).await.unwrap_err();
        assert_eq!(refused.code(), Code::TransactionRequired);
        let mut unit = pond.begin().await.unwrap();
        unit.send(&named, [1.0]).await.unwrap();
        unit.commit().await.unwrap();
        assert_eq!(store.bodies(), [b"1.0"]);
    }

    #[tokio::test]
    async fn a_drivers_transaction_gets_statements_and_a_fast_queue_is_refused_there() {
        let (_, pond) = pond();
        let mut tx = FakeTx::default();
        let named = Queue::<f64>::named("stored".to_owned());
        let sent = pond.within(&mut tx).send(&named, [1.0]).await.unwrap();
        assert_eq!(sent.path, Path::Outbox);
        pond.within(&mut tx).send(&named, [2.0]).await.unwrap();
        assert_eq!(tx.ran, ["find", "put", "put"], "it is asked for once");
        let unknown = pond.within(&mut tx).send(&MAIL, [1.0]).await.unwrap_err();
        assert_eq!(unknown.code(), Code::UnknownQueue);
        pond.declare(&crate::queue::FastQueue::<f64>::new("pings")).await.unwrap();
        let fast = pond.within(&mut tx).send(&Queue::<f64>::named("pings".to_owned()), [1.0]).await;
        assert_eq!(fast.unwrap_err().code(), Code::SendInsideTransaction);
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_that_nobody_tells_of_is_looked_for_until_it_is_there() {
        let (store, pond) = pond();
        store.arrive_after(4);
        let start = tokio::time::Instant::now();
        let mut tx = FakeTx::default();
        pond.within(&mut tx).send(&Queue::<f64>::named("stored".to_owned()), [1.0]).await.unwrap();
        store.relayed().await;
        assert_eq!((store.looks(), store.relays()), (4, 1));
        assert_eq!(start.elapsed(), Duration::from_millis(4), "each millisecond at first");
        store.looked().await;
        pond.close().await;
    }
}

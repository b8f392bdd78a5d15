//! Opening a store: connections, and what is refused.

use std::sync::Arc;

use millpond_core::capability::Capabilities;
use millpond_core::error::{Code, Error, Result};
use millpond_core::store::{BoxFuture, Clock, Store};
use millpond_sql::Quiet;

use crate::capabilities;
use crate::connection::{Connection, Target};
use crate::error::{Fault, Lost, Tried};
use crate::floor::Floor;
use crate::lane::Lane;
use crate::location::Location;
use crate::migrate::{self, Migration};
use crate::pool::Pool;
use crate::sender::Sender;
use crate::settle::Homes;
use crate::wake::Wake;

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// Whether a missing or older schema is made or migrated. Default: yes.
    pub migrate: bool,
    /// Whether nodes tell each other of new messages. Default: yes. Without it, and behind a proxy that shares
    /// connections, they poll.
    pub hints: bool,
    /// Another time than the server's, for tests. Default: none.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { migrate: true, hints: true, clock: None }
    }
}

/// A store in one schema of a Postgres database.
pub struct PostgresStore {
    pub(crate) main: Lane,
    pub(crate) renewal: Lane,
    pub(crate) sender: Sender,
    pub(crate) wake: Wake,
    pub(crate) homes: Arc<Homes>,
    pub(crate) floor: Arc<Floor>,
    pub(crate) quiet: Arc<Quiet>,
    pub(crate) target: Arc<Target>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("location", &self.target.location).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the store at `url` (see [`Location::parse`]).
    ///
    /// # Errors
    ///
    /// `store-unreachable` (no server, password, database or rights; a standby), `store-unavailable` (it starts, or has
    /// no connection left), `unsupported-store` (too old, or not ours), `schema-newer`, `schema-older`,
    /// `invalid-config`.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        let location = Location::parse(url)?;
        let connections_max = location.connections_max;
        let target = Arc::new(Target::new(location, options.clock.clone())?);
        let opening = Arc::clone(&target);
        // Looked at on a lane that is gone afterwards: what a store runs on depends on what is found.
        let first = Lane::start("millpond-open", Arc::new(Pool::new(Arc::clone(&target), 1)))?;
        let migrate = options.migrate;
        let shared = first.spawn("open the store", async move |_| prepare(&opening, migrate).await).await??;
        target.note_shared(shared);
        let pool = |connections: usize| Arc::new(Pool::new(Arc::clone(&target), connections));
        let main = Lane::start("millpond-postgres", pool(connections_max))?;
        // Each has its connection for itself: sends wait for no lease, and a renewal waits for nothing.
        let renewal = Lane::start("millpond-renewal", pool(1))?;
        let sending = Lane::start("millpond-sender", pool(1))?;
        let wake =
            if options.hints && !shared { Wake::start(&sending, &target).await? } else { Wake::none() };
        let sender = Sender::start(sending, wake.clone()).await?;
        Ok(Self {
            main,
            renewal,
            sender,
            wake,
            homes: Arc::default(),
            floor: Arc::default(),
            quiet: Arc::default(),
            target,
        })
    }

    /// Runs a read.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl AsyncFn(&mut Connection) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        self.main.call(doing, Lost::AskAgain, work)
    }

    /// Runs statements against one snapshot, so that a message that moves meanwhile is seen once.
    pub(crate) fn at_one_moment<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl AsyncFn(&mut Connection) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        self.read(doing, async move |connection: &mut Connection| {
            connection.transaction("begin isolation level repeatable read read only", &work).await
        })
    }

    /// Runs statements that change something, in a transaction of their own.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        lost: Lost,
        work: impl AsyncFn(&mut Connection) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        self.main.call(doing, lost, async move |connection: &mut Connection| {
            connection.change("begin", &work).await
        })
    }
}

impl Store for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        capabilities::POSTGRES
    }
}

/// The state of the schema at `url`, without changing it.
///
/// # Errors
///
/// As for [`PostgresStore::open`].
pub async fn schema(url: &str) -> Result<Vec<Migration>> {
    let target = Arc::new(Target::new(Location::parse(url)?, None)?);
    let lane = Lane::start("millpond-open", Arc::new(Pool::new(Arc::clone(&target), 1)))?;
    let look = async move |_| {
        let connection = Connection::open(&target).await.map_err(opening)?;
        migrate::status(&connection).await
    };
    lane.spawn("read the schema", look).await?
}

/// Looks at the server and its schema, migrates it if that is wanted, and answers whether a proxy between shares
/// connections.
async fn prepare(target: &Arc<Target>, migrate: bool) -> Result<bool> {
    let mut connection = Connection::open(target).await.map_err(opening)?;
    if migrate {
        migrate::up(&mut connection).await?;
    } else {
        migrate::must_be_current(&connection).await?;
    }
    #[cfg(feature = "sabotage")]
    crate::sabotage::spoil(&mut connection).await.map_err(opening)?;
    let shared = is_shared(target, &connection).await.map_err(opening)?;
    if shared {
        tracing::info!(
            "a proxy between gives each transaction another connection: hints are off, workers poll"
        );
    }
    Ok(shared)
}

fn opening(fault: Fault) -> Error {
    match fault {
        Fault::Core(error) => error,
        fault => Error::new(Code::StoreUnreachable, "open the store").because(fault),
    }
}

/// Whether transactions of one connection run in different processes of the server: another connection holds a
/// transaction open meanwhile, so that a proxy has to give the first one something else.
async fn is_shared(target: &Arc<Target>, connection: &Connection) -> Tried<bool> {
    let before: i32 = connection.row("schema_server", &[]).await?.get(2);
    let mut other = Connection::open(target).await?;
    other.begin("begin").await?;
    let between: i32 = other.row("schema_server", &[]).await?.get(2);
    let after: i32 = connection.row("schema_server", &[]).await?.get(2);
    Ok(between == before || after != before || other.backend.pid != between)
}

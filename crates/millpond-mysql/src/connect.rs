//! Opening a store: connections, and what is refused.

use std::sync::Arc;

use millpond_core::capability::Capabilities;
use millpond_core::error::Result;
use millpond_core::store::{BoxFuture, Clock, Store};
use millpond_sql::Quiet;

use crate::capabilities;
use crate::connection::{Connection, Target};
use crate::error::{Lost, Tried};
use crate::lane::Lane;
use crate::location::Location;
use crate::migrate::{self, Migration};
use crate::pool::Pool;
use crate::sender::{Sender, UNDER_WAY_MAX};

/// Begins one that reads, with one snapshot for all of its statements.
const ONE_MOMENT: [&str; 2] = [
    "set transaction isolation level repeatable read",
    "start transaction with consistent snapshot, read only",
];

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// Whether missing or older tables are made or migrated. Default: yes.
    pub migrate: bool,
    /// Another time than the server's, for tests. Default: none.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { migrate: true, clock: None }
    }
}

/// A store in the tables of one prefix in a MySQL or MariaDB database.
pub struct MysqlStore {
    pub(crate) main: Lane,
    pub(crate) renewal: Lane,
    pub(crate) sender: Sender,
    pub(crate) target: Arc<Target>,
    pub(crate) quiet: Arc<Quiet>,
}

impl std::fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MysqlStore").field("location", &self.target.location).finish_non_exhaustive()
    }
}

impl MysqlStore {
    /// Opens the store at `url` (see [`Location::parse`]).
    ///
    /// # Errors
    ///
    /// `store-unreachable` (no server, password, database or rights; a replica), `store-unavailable` (no connection
    /// left), `unsupported-store` (too old, packets too small, a collation that merges keys, or not ours),
    /// `schema-newer`, `schema-older`, `invalid-config`.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        let location = Location::parse(url)?;
        let connections_max = location.connections_max;
        let target = Arc::new(Target::new(location, options.clock.clone()));
        let pool = |connections: usize| Arc::new(Pool::new(Arc::clone(&target), connections));
        let main = Lane::start("millpond-mysql", pool(connections_max))?;
        let (opening, migrate) = (Arc::clone(&target), options.migrate);
        main.spawn("open the store", async move |_| prepare(&opening, migrate).await).await??;
        // Each has its connections for itself: sends wait for no lease, and a renewal waits for nothing.
        let renewal = Lane::start("millpond-renewal", pool(1))?;
        let sender = Sender::start(Lane::start("millpond-sender", pool(UNDER_WAY_MAX))?).await?;
        Ok(Self { main, renewal, sender, target, quiet: Arc::default() })
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
            connection.transaction(&ONE_MOMENT, &work).await
        })
    }

    /// Runs statements that change something, in a transaction of their own.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        lost: Lost,
        work: impl AsyncFn(&mut Connection) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        self.main.call(doing, lost, async move |connection: &mut Connection| connection.change(&work).await)
    }
}

impl Store for MysqlStore {
    fn capabilities(&self) -> Capabilities {
        capabilities::MYSQL
    }
}

/// The state of the schema at `url`, without changing it.
///
/// # Errors
///
/// As for [`MysqlStore::open`].
pub async fn schema(url: &str) -> Result<Vec<Migration>> {
    let target = Arc::new(Target::new(Location::parse(url)?, None));
    let lane = Lane::start("millpond-open", Arc::new(Pool::new(Arc::clone(&target), 1)))?;
    let look = async move |_| migrate::status(&open(&target).await?).await;
    lane.spawn("read the schema", look).await?
}

/// Looks at the server and its tables, and migrates them if that is wanted.
async fn prepare(target: &Arc<Target>, migrate: bool) -> Result<()> {
    let connection = open(target).await?;
    if migrate {
        migrate::up(&connection).await?;
    } else {
        migrate::must_be_current(&connection).await?;
    }
    migrate::must_compare_bytes(&connection).await
}

async fn open(target: &Arc<Target>) -> Result<Connection> {
    Connection::open(target).await.map_err(|fault| fault.into_error("open the store", Lost::AskAgain))
}

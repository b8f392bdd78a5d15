//! One connection to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millpond_core::error::{Code, Error};
use millpond_core::store::Clock;
use tokio::task::AbortHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::error::Tried;
use crate::location::Location;
use crate::refusal::refused;
use crate::sabotage::sabotaged;
use crate::sql::Statements;
use crate::tls;

/// How long connecting may take, with everything that is asked before the first use.
pub(crate) const CONNECT_WAIT: Duration = Duration::from_secs(4);

/// How long a sent byte may stay unconfirmed before the connection counts as lost.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a silent connection is trusted, and how often it is asked then.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// Limits in the server, for the case that this process is gone and does not say so. They are a second belt: nothing
/// relies on them, and a proxy that shares connections does not get them.
const SERVER_LIMITS: &str =
    "set statement_timeout = '60s'; set idle_in_transaction_session_timeout = '60s'; set jit = off";

/// The oldest server that is supported.
const SERVER_VERSION_MIN: i32 = 130_000;

/// A parameter of a statement, with its type: nothing is prepared by name, because a proxy may give the next
/// transaction another connection.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// What every connection of a store is made from.
pub(crate) struct Target {
    pub(crate) location: Location,
    pub(crate) statements: Statements,
    tls: tokio_postgres_rustls::MakeRustlsConnect,
    /// `None`: the server's.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    /// A proxy between gives each transaction another connection, so nothing is set that lasts longer. It counts as so
    /// until it is known better.
    shared: AtomicBool,
}

impl Target {
    /// For the place that a URL names.
    pub(crate) fn new(
        location: Location,
        clock: Option<Arc<dyn Clock>>,
    ) -> millpond_core::error::Result<Self> {
        let (statements, tls) = (Statements::of(&location.schema), tls::connector(&location)?);
        Ok(Self { location, statements, tls, clock, shared: AtomicBool::new(true) })
    }

    /// Whether a proxy between gives each transaction another connection.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Notes whether one does.
    pub(crate) fn note_shared(&self, shared: bool) {
        self.shared.store(shared, Ordering::Relaxed);
    }

    /// What makes connections secure.
    pub(crate) fn tls(&self) -> tokio_postgres_rustls::MakeRustlsConnect {
        self.tls.clone()
    }

    /// The driver's settings, with limits on silence.
    fn config(&self) -> tokio_postgres::Config {
        let mut config = self.location.config.clone();
        if config.get_application_name().is_none() {
            config.application_name("millpond");
        }
        config.connect_timeout(CONNECT_WAIT);
        config.keepalives(true).keepalives_idle(KEEPALIVE_IDLE);
        config.keepalives_interval(KEEPALIVE_INTERVAL).keepalives_retries(KEEPALIVE_RETRIES);
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
        config
    }
}

/// A process of the server, by its number and its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) pid: i32,
    began: i64,
}

/// An open connection. Dropping it closes it at once, and with it whatever it was doing.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) target: Arc<Target>,
    /// The server's process, as it was when this was opened; behind a proxy it may be another one later.
    pub(crate) backend: Backend,
    driver: AbortHandle,
    in_transaction: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Connects, and refuses a server that cannot hold a store. The connection is driven by the runtime of the caller.
    pub(crate) async fn open(target: &Arc<Target>) -> Tried<Self> {
        let opened = tokio::time::timeout(CONNECT_WAIT, Self::open_and_look(target)).await;
        opened.unwrap_or_else(|_| {
            let doing = format!("open store `{}`", target.location.shown);
            let why = format!("the server did not answer within {CONNECT_WAIT:?}");
            Err(Error::new(Code::StoreUnreachable, doing).because(why).into())
        })
    }

    async fn open_and_look(target: &Arc<Target>) -> Tried<Self> {
        let location = &target.location;
        let opened = target.config().connect(target.tls.clone()).await;
        let (client, connection) = opened.map_err(|error| refused(location, &error))?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
        let (driver, target) = (driver.abort_handle(), Arc::clone(target));
        let mut this = Self { client, target, backend: Backend::default(), driver, in_transaction: false };
        this.look().await?;
        Ok(this)
    }

    /// What is asked of every new connection: a server that was the primary may be a standby now.
    async fn look(&mut self) -> Tried<()> {
        let row = self.row("schema_server", &[]).await?;
        let doing = || format!("open store `{}`", self.target.location.shown);
        let refuse = |code, why: String| Err(Error::new(code, doing()).because(why).into());
        if let Some(why) = too_old(row.get(1)) {
            return refuse(Code::UnsupportedStore, why);
        }
        if row.get(0) {
            let why = "the server is in recovery: it is a standby, or still starting; name the primary, or \
                       `target_session_attrs=read-write` with both";
            return refuse(Code::StoreUnreachable, why.to_owned());
        }
        if row.get(3) {
            let why = "the database is read-only (default_transaction_read_only is on)";
            return refuse(Code::StoreUnreachable, why.to_owned());
        }
        let encoding: String = row.get(4);
        if encoding != "UTF8" {
            let why = format!("the database has the encoding {encoding}; make one with UTF8");
            return refuse(Code::UnsupportedStore, why);
        }
        self.backend = Backend { pid: row.get(2), began: row.get(5) };
        Ok(())
    }

    /// Sets the limits that the server keeps by itself. Only for a connection that is ours alone.
    pub(crate) async fn set_limits(&self) -> Tried<()> {
        if sabotaged("answer_before_flush") {
            self.step("set synchronous_commit = off").await?;
        }
        Ok(self.client.batch_execute(SERVER_LIMITS).await?)
    }

    /// Ends another process of the server; true once it is gone, and with it whatever it was doing.
    pub(crate) async fn end(&self, backend: Backend) -> Tried<bool> {
        let params: [Param<'_>; 2] = [(&backend.pid, Type::INT4), (&backend.began, Type::INT8)];
        Ok(self.row("backend_end", &params).await?.get::<_, i64>(0) == 0)
    }

    /// The time of the store, if it is not the server's.
    pub(crate) fn now(&self) -> Option<i64> {
        self.target.clock.as_ref().map(|clock| clock.micros())
    }

    /// The rows of a statement.
    pub(crate) async fn rows(&self, name: &str, params: &[Param<'_>]) -> Tried<Vec<Row>> {
        Ok(self.client.query_typed(self.target.statements.get(name), params).await?)
    }

    /// The only row of a statement that always has one.
    pub(crate) async fn row(&self, name: &str, params: &[Param<'_>]) -> Tried<Row> {
        Ok(self.client.query_typed_one(self.target.statements.get(name), params).await?)
    }

    /// The row of a statement that may have one.
    pub(crate) async fn row_if_any(&self, name: &str, params: &[Param<'_>]) -> Tried<Option<Row>> {
        Ok(self.client.query_typed_opt(self.target.statements.get(name), params).await?)
    }

    /// Runs a statement and answers how many rows it changed.
    pub(crate) async fn run(&self, name: &str, params: &[Param<'_>]) -> Tried<u64> {
        Ok(self.client.execute_typed(self.target.statements.get(name), params).await?)
    }

    /// A statement without parameters or rows.
    pub(crate) async fn step(&self, statement: &str) -> Tried<()> {
        Ok(self.client.batch_execute(statement).await?)
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&mut self, begin: &str) -> Tried<()> {
        self.in_transaction = true;
        self.step(begin).await
    }

    /// A known bug: the connection is taken for one in no transaction.
    pub(crate) fn forget_transaction(&mut self) {
        self.in_transaction = false;
    }

    /// Commits it.
    pub(crate) async fn commit(&mut self) -> Tried<()> {
        self.step("commit").await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Commits one in which others ran statements. Where one of them has failed the server answers `commit` as if it was
    /// done, and rolls back; the statement before it is refused then, and nothing is answered with yes.
    pub(crate) async fn commit_if_sound(&mut self) -> Tried<()> {
        self.step("select 1; commit").await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Runs `work` in a transaction of its own, which is committed if it succeeds.
    pub(crate) async fn transaction<T>(
        &mut self,
        begin: &str,
        work: impl AsyncFnOnce(&mut Self) -> Tried<T>,
    ) -> Tried<T> {
        self.begin(begin).await?;
        match work(self).await {
            Ok(value) => {
                self.commit().await?;
                Ok(value)
            }
            Err(fault) => {
                self.rollback().await;
                Err(fault)
            }
        }
    }

    /// The same for what writes by statements of its own: refused once a later release has migrated.
    pub(crate) async fn change<T>(
        &mut self,
        begin: &str,
        work: impl AsyncFnOnce(&mut Self) -> Tried<T>,
    ) -> Tried<T> {
        let begin = format!("{begin}; {}", self.target.statements.get("still_ours"));
        self.transaction(&begin, work).await
    }

    /// Rolls back. A connection on which that fails stays as it is, and is closed by the pool.
    pub(crate) async fn rollback(&mut self) {
        if self.step("rollback").await.is_ok() {
            self.in_transaction = false;
        }
    }

    /// What drives the connection: aborting it closes the connection.
    pub(crate) fn driver(&self) -> AbortHandle {
        self.driver.clone()
    }

    /// Whether somebody else may use it: it is open and in no transaction.
    pub(crate) fn is_idle(&self) -> bool {
        !self.in_transaction && !self.client.is_closed()
    }
}

/// Why a server is too old, if it is.
fn too_old(version: i32) -> Option<String> {
    let (major, oldest) = (version / 10_000, SERVER_VERSION_MIN / 10_000);
    (version < SERVER_VERSION_MIN)
        .then(|| format!("the server is Postgres {major}; {oldest} and later are supported: upgrade it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_refused_with_its_version() {
        let refused = "the server is Postgres 12; 13 and later are supported: upgrade it";
        assert_eq!(too_old(120_022).as_deref(), Some(refused));
        assert!(too_old(90_624).is_some_and(|why| why.contains("Postgres 9;")));
        assert_eq!(too_old(130_000), None);
        assert_eq!(too_old(180_001), None);
    }
}

//! One connection to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use millpond_core::error::{Code, Error};
use millpond_core::store::Clock;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error as ServerError};
use tokio::sync::Mutex;

use crate::error::{Fault, Tried, number};
pub(crate) use crate::literal::Param;
use crate::location::{Location, Tls};
use crate::refusal::refused;
use crate::row::Row;
use crate::sabotage::sabotaged;
use crate::script::{Packet, Script};
use crate::sql::Statements;

/// How long connecting may take, with everything that is asked before the first use.
pub(crate) const CONNECT_WAIT: Duration = Duration::from_secs(4);

/// What every session of ours is. READ COMMITTED: a poll of an empty range must not keep others from inserting into it.
/// The mode decides how values are written, and refuses what does not fit instead of cutting it. A lock is waited for no
/// longer than a caller waits.
const SESSION: &str = "set names utf8mb4 collate utf8mb4_bin; set session transaction isolation level read committed; \
                       set session sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', \
                       autocommit = 1, innodb_lock_wait_timeout = 5, lock_wait_timeout = 60";

/// The least size of packets: a message of the default limit, with all its bytes escaped.
const PACKET_BYTES_MIN: usize = 3 * 1024 * 1024;

/// The error of a connection that is gone already.
const NO_SUCH_THREAD: u16 = 1094;

/// The oldest servers that know SKIP LOCKED.
const MARIADB_MIN: (u32, u32) = (10, 6);
const MYSQL_MIN: (u32, u32) = (8, 0);

/// What every connection of a store is made from.
pub(crate) struct Target {
    pub(crate) location: Location,
    pub(crate) statements: Statements,
    /// `None`: the server's.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    /// As the server said; 0: it was not asked yet.
    packet_bytes_max: AtomicUsize,
    /// A server that offered none once is not asked for TLS again, unless it is demanded.
    offers_tls: AtomicBool,
}

impl Target {
    /// For the place that a URL names.
    pub(crate) fn new(location: Location, clock: Option<Arc<dyn Clock>>) -> Self {
        let statements = Statements::of(&location.prefix);
        let offers_tls = AtomicBool::new(location.tls != Tls::Disable);
        Self { location, statements, clock, packet_bytes_max: AtomicUsize::new(0), offers_tls }
    }

    /// The largest packet that the server takes.
    pub(crate) fn packet_bytes_max(&self) -> usize {
        match self.packet_bytes_max.load(Ordering::Relaxed) {
            0 => PACKET_BYTES_MIN,
            most => most,
        }
    }

    async fn connect(&self) -> Result<Conn, ServerError> {
        if self.offers_tls.load(Ordering::Relaxed) {
            match Conn::new(self.location.options(true)).await {
                Err(ServerError::Driver(DriverError::NoClientSslFlagFromServer))
                    if self.location.tls == Tls::Prefer =>
                {
                    self.offers_tls.store(false, Ordering::Relaxed);
                }
                connected => return connected,
            }
        }
        Conn::new(self.location.options(false)).await
    }
}

/// An answer to one statement of a script.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) rows: Vec<Row>,
    /// Rows that the statement found to change.
    pub(crate) affected: u64,
}

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Server {
    /// As it writes it, such as `10.11.6-MariaDB`.
    pub(crate) version: String,
    pub(crate) is_mariadb: bool,
    /// The number of this connection there.
    pub(crate) id: u64,
    /// When the server began, in seconds: numbers of connections are given out anew then.
    began: i64,
    /// Nobody is in between who has numbers of its own.
    is_direct: bool,
}

/// How far two readings of the same beginning may be apart.
const BEGAN_SECS_APART: i64 = 2;

/// An open connection. Dropping it closes it, and the server rolls back what was open in it.
pub(crate) struct Connection {
    conn: Mutex<Conn>,
    pub(crate) target: Arc<Target>,
    pub(crate) server: Server,
    in_transaction: AtomicBool,
    /// Nobody knows what it is doing, or it is gone.
    broken: AtomicBool,
}

impl Connection {
    /// Connects, and refuses a server that cannot hold a store.
    pub(crate) async fn open(target: &Arc<Target>) -> Tried<Self> {
        let opened = tokio::time::timeout(CONNECT_WAIT, Self::open_and_look(target)).await;
        opened.unwrap_or_else(|_| {
            let doing = format!("open store `{}`", target.location.shown);
            let why = format!("the server did not answer within {CONNECT_WAIT:?}");
            Err(Error::new(Code::StoreUnreachable, doing).because(why).into())
        })
    }

    async fn open_and_look(target: &Arc<Target>) -> Tried<Self> {
        let connected = target.connect().await;
        let mut conn = connected.map_err(|error| refused(&target.location, &error))?;
        conn.query_drop(SESSION).await?;
        if sabotaged("answer_before_flush") {
            conn.query_drop("set global innodb_flush_log_at_trx_commit = 0").await?;
        }
        let mut this = Self {
            conn: Mutex::new(conn),
            target: Arc::clone(target),
            server: Server::default(),
            in_transaction: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        };
        this.look().await?;
        Ok(this)
    }

    /// What is asked of every new connection: the server may be another one now.
    async fn look(&mut self) -> Tried<()> {
        let row = self.row("schema_server", &[]).await?;
        let doing = || format!("open store `{}`", self.target.location.shown);
        let refuse = |code, why: String| Err(Error::new(code, doing()).because(why).into());
        let version: String = row.get(0);
        let is_mariadb = version.contains("MariaDB");
        let (name, least) = if is_mariadb { ("MariaDB", MARIADB_MIN) } else { ("MySQL", MYSQL_MIN) };
        if numbers(&version) < least {
            let (major, minor) = least;
            let why = format!(
                "the server is {name} {version}: it needs {major}.{minor} or later, which knows SKIP LOCKED"
            );
            return refuse(Code::UnsupportedStore, why);
        }
        let packet: u64 = row.get(1);
        let packet = usize::try_from(packet).unwrap_or(usize::MAX);
        if packet < PACKET_BYTES_MIN {
            let why = format!(
                "the server takes packets of {packet} bytes: raise max_allowed_packet to {PACKET_BYTES_MIN} or more"
            );
            return refuse(Code::UnsupportedStore, why);
        }
        if row.get(2) {
            let why = "the server is read-only: it is a replica, or was set so; name the primary";
            return refuse(Code::StoreUnreachable, why.to_owned());
        }
        if row.get::<_, Option<&str>>(4).is_none() {
            let why = "the URL names no database: write it after the host, as in `mysql://host/database`";
            return refuse(Code::InvalidConfig, why.to_owned());
        }
        self.target.packet_bytes_max.store(packet, Ordering::Relaxed);
        let (id, began) = (row.get(3), self.server_began().await?);
        let is_direct = u64::from(self.conn.get_mut().id()) == id;
        self.server = Server { version, is_mariadb, id, began, is_direct };
        Ok(())
    }

    async fn server_began(&self) -> Tried<i64> {
        let mut script = self.new_script();
        let uptime = script.add("server_uptime", &[])?;
        let clock = script.add("server_clock", &[])?;
        let answers = self.script(script).await?;
        let number = |place: usize, column: usize| {
            answers[place].rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(column))
        };
        Ok(number(clock, 0)? - number(uptime, 1)?)
    }

    /// Ends a connection that was lost, which may not have read its last statement yet; true once it is gone, and with it
    /// whatever it was doing. Behind a proxy it is not known which one that is.
    pub(crate) async fn end(&self, lost: &Server) -> Tried<bool> {
        let is_same = (self.server.began - lost.began).abs() <= BEGAN_SECS_APART;
        if !is_same || !lost.is_direct || !self.server.is_direct || lost.id == self.server.id {
            return Ok(true);
        }
        if self.row("server_thread", &[&lost.id]).await?.get::<_, u64>(0) == 0 {
            return Ok(true);
        }
        // It may end between the two.
        match self.step(&format!("kill {}", lost.id)).await {
            Err(Fault::Mysql(error)) if number(&error) == Some(NO_SUCH_THREAD) => Ok(true),
            ended => ended.map(|()| false),
        }
    }

    /// The driver's connection.
    pub(crate) fn driver(&mut self) -> &mut Conn {
        self.conn.get_mut()
    }

    /// The time of the store, if it is not the server's.
    pub(crate) fn now(&self) -> Option<i64> {
        self.target.clock.as_ref().map(|clock| clock.micros())
    }

    /// A script for this connection.
    pub(crate) fn new_script(&self) -> Script<'_> {
        Script::new(&self.target)
    }

    /// Runs a script; one answer for each statement.
    pub(crate) async fn script(&self, script: Script<'_>) -> Tried<Vec<Answer>> {
        self.script_told(script, |_| {}).await
    }

    /// The same; `told` hears the place of each answer as it comes.
    async fn script_told(&self, script: Script<'_>, told: impl Fn(usize)) -> Tried<Vec<Answer>> {
        let mut answers = Vec::new();
        for packet in script.into_packets() {
            let before = answers.len();
            answers.extend(self.packet(packet, |place| told(before + place)).await?);
        }
        Ok(answers)
    }

    /// Runs a script that begins a transaction and commits it. After an error nothing of it is done. `told` hears the
    /// place of each answer as it comes.
    pub(crate) async fn script_of_transaction(
        &self,
        script: Script<'_>,
        told: impl Fn(usize),
    ) -> Tried<Vec<Answer>> {
        self.in_transaction.store(true, Ordering::Relaxed);
        let answers = self.script_told(script, told).await;
        match &answers {
            Ok(_) => self.in_transaction.store(false, Ordering::Relaxed),
            Err(_) => self.rollback().await,
        }
        answers
    }

    async fn packet(&self, packet: Packet, told: impl Fn(usize)) -> Tried<Vec<Answer>> {
        // A future that is dropped half-way leaves the connection broken.
        self.broken.store(true, Ordering::Relaxed);
        let answered = self.exchange(packet, told).await;
        let alive = answered.as_ref().err().is_none_or(|error| !error.is_fatal());
        self.broken.store(!alive, Ordering::Relaxed);
        Ok(answered?)
    }

    async fn exchange(&self, packet: Packet, told: impl Fn(usize)) -> Result<Vec<Answer>, ServerError> {
        let mut conn = self.conn.lock().await;
        let mut answers = Vec::with_capacity(packet.statements);
        let mut result = conn.query_iter(packet.text).await?;
        for place in 0..packet.statements {
            // What a statement without rows answers is known before the next one is read.
            let affected = result.affected_rows();
            let mut rows = Vec::new();
            while let Some(row) = result.next().await? {
                rows.push(Row(row));
            }
            answers.push(Answer { rows, affected });
            told(place);
        }
        result.drop_result().await?;
        Ok(answers)
    }

    /// Runs one statement.
    async fn one(&self, name: &str, params: &[Param<'_>]) -> Tried<Answer> {
        let mut script = self.new_script();
        script.add(name, params)?;
        Ok(self.script(script).await?.pop().unwrap_or_default())
    }

    /// The rows of a statement.
    pub(crate) async fn rows(&self, name: &str, params: &[Param<'_>]) -> Tried<Vec<Row>> {
        Ok(self.one(name, params).await?.rows)
    }

    /// The only row of a statement that always has one.
    pub(crate) async fn row(&self, name: &str, params: &[Param<'_>]) -> Tried<Row> {
        let missing = || Error::new(Code::Internal, format!("run `{name}`")).because("it answered no row");
        Ok(self.row_if_any(name, params).await?.ok_or_else(missing)?)
    }

    /// The row of a statement that may have one.
    pub(crate) async fn row_if_any(&self, name: &str, params: &[Param<'_>]) -> Tried<Option<Row>> {
        Ok(self.one(name, params).await?.rows.into_iter().next())
    }

    /// Runs a statement and answers how many rows it found to change.
    pub(crate) async fn run(&self, name: &str, params: &[Param<'_>]) -> Tried<u64> {
        Ok(self.one(name, params).await?.affected)
    }

    /// A statement without parameters or rows.
    pub(crate) async fn step(&self, statement: &str) -> Tried<()> {
        let mut script = self.new_script();
        script.step(statement)?;
        self.script(script).await.map(drop)
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&self, begin: &[&str]) -> Tried<()> {
        self.in_transaction.store(true, Ordering::Relaxed);
        let mut script = self.new_script();
        for statement in begin {
            script.step(statement)?;
        }
        self.script(script).await.map(drop)
    }

    /// Notes that a script begins a transaction.
    pub(crate) fn begun(&self) {
        self.in_transaction.store(true, Ordering::Relaxed);
    }

    /// A known bug: the connection is taken for one in no transaction.
    pub(crate) fn forget_transaction(&self) {
        self.in_transaction.store(false, Ordering::Relaxed);
    }

    /// Commits it.
    pub(crate) async fn commit(&self) -> Tried<()> {
        self.step("commit").await?;
        self.in_transaction.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Runs the last script of a transaction, with the commit behind it.
    pub(crate) async fn script_and_commit(&self, mut script: Script<'_>) -> Tried<Vec<Answer>> {
        script.step("commit")?;
        let answers = self.script(script).await?;
        self.in_transaction.store(false, Ordering::Relaxed);
        Ok(answers)
    }

    /// Runs `work` in a transaction of its own, which is committed if it succeeds. Any error rolls all of it back: the
    /// server itself would only undo the statement.
    pub(crate) async fn transaction<T>(
        &mut self,
        begin: &[&str],
        work: impl AsyncFnOnce(&mut Self) -> Tried<T>,
    ) -> Tried<T> {
        self.begin(begin).await?;
        let done = async {
            let value = work(self).await?;
            // The work may have committed with its last statement.
            if self.in_transaction.load(Ordering::Relaxed) {
                self.commit().await?;
            }
            Ok(value)
        };
        let done = done.await;
        if done.is_err() {
            self.rollback().await;
        }
        done
    }

    /// The same for what writes: refused once a later release has migrated.
    pub(crate) async fn change<T>(&mut self, work: impl AsyncFnOnce(&mut Self) -> Tried<T>) -> Tried<T> {
        let begun_and_done = async |connection: &mut Self| {
            let mut script = connection.new_script();
            script.begin()?;
            connection.script(script).await?;
            work(connection).await
        };
        self.transaction(&[], begun_and_done).await
    }

    /// Rolls back. A connection on which that fails stays as it is, and is closed by the pool.
    pub(crate) async fn rollback(&self) {
        if self.in_transaction.load(Ordering::Relaxed)
            && !self.broken.load(Ordering::Relaxed)
            && self.step("rollback").await.is_ok()
        {
            self.in_transaction.store(false, Ordering::Relaxed);
        }
    }

    /// Whether the server answers on it, by the protocol's own question, which is no statement. One who gets no answer drops the
    /// connection.
    pub(crate) async fn is_alive(&self) -> bool {
        let ping = async { self.conn.lock().await.ping().await };
        matches!(tokio::time::timeout(CONNECT_WAIT, ping).await, Ok(Ok(())))
    }

    /// Whether somebody else may use it: it is open and in no transaction.
    pub(crate) fn is_idle(&self) -> bool {
        !self.in_transaction.load(Ordering::Relaxed) && !self.broken.load(Ordering::Relaxed)
    }
}

/// The first two numbers of a version. What old drivers see before those of MariaDB is `5.5.5-`.
fn numbers(version: &str) -> (u32, u32) {
    let version = version.strip_prefix("5.5.5-").filter(|_| version.contains("MariaDB")).unwrap_or(version);
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn versions_are_read_from_what_servers_write() {
        assert_eq!(numbers("10.11.6-MariaDB-0+deb12u1"), (10, 11));
        assert_eq!(numbers("5.5.5-10.5.23-MariaDB"), (10, 5));
        assert_eq!(numbers("8.0.36"), (8, 0));
        assert_eq!(numbers("5.7.44-log"), (5, 7));
    }
}

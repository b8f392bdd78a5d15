//! Opening a store: connections, pragmas, and what is refused.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millpond_core::capability::Capabilities;
use millpond_core::error::{Code, Error, Result};
use millpond_core::store::{BoxFuture, Clock, Store};
use millpond_core::time::Timestamp;
use rusqlite::{Connection, OpenFlags};

use crate::clock::SystemClock;
use crate::draft::Draft;
use crate::error::Tried;
use crate::info::FileOf;
use crate::lane::{Lane, Probe};
use crate::location::{Location, Synchronous, refuse_network};
use crate::reserve::Reserve;
use crate::wal::{WAL_BYTES_MAX, Wal};
use crate::writer::{Durable, Place, Writer};
use crate::{capabilities, migrate};

/// Older ones can corrupt a WAL database when two connections write and checkpoint at the wrong moment.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Pages in the WAL after which a commit copies them into the database: 16 MiB.
const CHECKPOINT_PAGES: u32 = 4_000;

/// Statements kept prepared by a connection.
const STATEMENTS_MAX: usize = 128;

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// Whether a file that is missing is made. Default: yes.
    pub create: bool,
    /// Whether an older schema is migrated. Default: yes.
    pub migrate: bool,
    /// The host's time. Default: the system's.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self { create: true, migrate: true, clock: Arc::new(SystemClock::new()) }
    }
}

/// A store in one SQLite file, or in memory.
pub struct SqliteStore {
    pub(crate) writer: Writer,
    /// `None` in memory: there is one connection.
    pub(crate) renewal: Option<Lane>,
    reader: Option<Lane>,
    /// For lists, which may take a while; the pulse never waits behind one.
    asker: Option<Asker>,
    pub(crate) probe: Probe,
    /// `None` in memory.
    pub(crate) file: Option<FileOf>,
    pub(crate) clock: Arc<dyn Clock>,
    capabilities: Capabilities,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store at `url` (see [`Location::parse`]).
    ///
    /// # Errors
    ///
    /// `store-unreachable` (missing, no rights), `store-unavailable` (locked), `unsupported-store` (not ours, a
    /// network file system, an unsafe SQLite), `schema-newer`, `schema-older`.
    pub fn open(url: &str, options: Options) -> Result<Self> {
        if rusqlite::version_number() < SQLITE_VERSION_MIN {
            let why =
                format!("SQLite {} can damage a WAL database; 3.51.3 or later is safe", rusqlite::version());
            return Err(Error::new(Code::UnsupportedStore, "open the store").because(why));
        }
        let location = Location::parse(url)?;
        match &location.path {
            Some(path) => Self::open_file(path, location.synchronous, options),
            None => Self::open_memory(options),
        }
    }

    fn open_memory(options: Options) -> Result<Self> {
        let mut conn =
            Connection::open_in_memory().map_err(|error| unreachable_store("in memory", &error))?;
        prepare(&mut conn).map_err(|error| unreachable_store("in memory", &error))?;
        migrate::up(&conn, options.clock.micros())?;
        let writer = Writer::start(conn, options.clock.clone(), None, Draft::default())?;
        let capabilities = capabilities::MEMORY;
        Ok(Self {
            writer,
            renewal: None,
            reader: None,
            asker: None,
            probe: Probe::none(),
            file: None,
            clock: options.clock,
            capabilities,
        })
    }

    fn open_file(path: &Path, synchronous: Synchronous, options: Options) -> Result<Self> {
        refuse_network(path)?;
        let shown = path.display().to_string();
        let lost = |error: rusqlite::Error| unreachable_store(&shown, &error);
        let mut conn = open_connection(path, options.create).map_err(lost)?;
        // Looked at before anything is written: a file that is not ours stays as it is.
        migrate::status(&conn)?;
        prepare(&mut conn).map_err(lost)?;
        check_schema(&conn, &options)?;
        let seen = conn.query_row(crate::sql::sql("worker_last_seen"), [], |row| row.get(0)).map_err(lost)?;
        options.clock.not_before(seen);
        let reading = connect(path).map_err(lost)?;
        reading.pragma_update(None, "query_only", true).map_err(lost)?;
        let renewing = connect(path).map_err(lost)?;
        // A lost renewal only means another delivery.
        renewing.pragma_update(None, "synchronous", "normal").map_err(lost)?;
        let probing = connect(path).map_err(lost)?;
        let clock = options.clock;
        let mut draft = Draft::default();
        if synchronous == Synchronous::Normal {
            draft.pragma_durable = "pragma synchronous = normal";
        }
        Ok(Self {
            writer: Writer::start(
                conn,
                clock.clone(),
                Some(Place { reserve: Reserve::beside(path), wal: Wal::of(path) }),
                draft,
            )?,
            renewal: Some(Lane::start("millpond-renewal", renewing, clock.clone())?),
            asker: Some(Asker { path: path.to_owned(), clock: clock.clone(), lane: Mutex::default() }),
            reader: Some(Lane::start("millpond-reader", reading, clock.clone())?),
            probe: Probe::start(probing)?,
            file: Some(FileOf { path: path.to_owned(), synchronous }),
            clock,
            capabilities: capabilities::FILE,
        })
    }

    /// Runs a read on the reading connection; in memory, on the only one.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl Fn(&Connection, Timestamp) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        match &self.reader {
            Some(reader) => reader.call(doing, work),
            None => self.writer.write(Durable::No, doing, move |tx| work(tx.conn, tx.now)),
        }
    }

    /// Runs a read that may take a while on a connection of its own, against one snapshot.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl Fn(&Connection, Timestamp) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        let work = move |conn: &Connection, now: Timestamp| at_one_moment(conn, || work(conn, now));
        match &self.asker {
            Some(asker) => Box::pin(async move { asker.lane()?.call(doing, work).await }),
            None => self.writer.write(Durable::No, doing, move |tx| work(tx.conn, tx.now)),
        }
    }
}

/// A lane that is started when somebody asks for the first time: most processes never do.
struct Asker {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    lane: Mutex<Option<Lane>>,
}

impl Asker {
    fn lane(&self) -> Result<Lane> {
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = &*lane {
            return Ok(lane.clone());
        }
        let lost = |error: rusqlite::Error| unreachable_store(&self.path.display().to_string(), &error);
        let conn = connect(&self.path).map_err(lost)?;
        conn.pragma_update(None, "query_only", true).map_err(lost)?;
        Ok(lane.insert(Lane::start("millpond-asker", conn, self.clock.clone())?).clone())
    }
}

/// Runs statements against one snapshot, so that a message that moves meanwhile is seen once. In memory there is
/// a transaction already.
pub(crate) fn at_one_moment<T>(conn: &Connection, look: impl FnOnce() -> Tried<T>) -> Tried<T> {
    let _snapshot = conn.is_autocommit().then(|| conn.unchecked_transaction()).transpose()?;
    look()
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }
}

/// The state of the schema of a file, without changing it.
///
/// # Errors
///
/// As for [`SqliteStore::open`]; a missing file is `store-unreachable`.
pub fn schema(url: &str) -> Result<Vec<migrate::Migration>> {
    let location = Location::parse(url)?;
    let conn = match &location.path {
        None => Connection::open_in_memory(),
        Some(path) => Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY),
    };
    migrate::status(&conn.map_err(|error| unreachable_store(url, &error))?)
}

fn check_schema(conn: &Connection, options: &Options) -> Result<()> {
    if options.migrate {
        return migrate::up(conn, options.clock.micros()).map(drop);
    }
    if migrate::is_current(conn)? {
        return Ok(());
    }
    Err(Error::new(Code::SchemaOlder, "open the store").because("its schema is older than this release"))
}

fn open_connection(path: &Path, create: bool) -> rusqlite::Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    let mut conn = Connection::open_with_flags(path, flags)?;
    set_busy_handler(&mut conn)?;
    Ok(conn)
}

/// A connection to a store that is known to be ours.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let mut conn = open_connection(path, false)?;
    prepare(&mut conn)?;
    Ok(conn)
}

fn prepare(conn: &mut Connection) -> rusqlite::Result<()> {
    set_busy_handler(conn)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    conn.pragma_update(None, "mmap_size", 0)?;
    conn.pragma_update(None, "journal_mode", "wal")?;
    conn.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    conn.pragma_update(None, "journal_size_limit", WAL_BYTES_MAX as i64)?;
    conn.pragma_update(None, "cache_size", -16_000)?;
    conn.pragma_update(None, "synchronous", "full")
}

/// Makes a connection wait for the locks of others.
pub(crate) fn set_busy_handler(conn: &mut Connection) -> rusqlite::Result<()> {
    conn.busy_handler(Some(wait_for_lock))
}

/// How long a connection waits for the lock of others: less than a send does, as the caller shall hear that nothing
/// was stored, not that nobody knows.
const LOCK_WAIT: Duration = Duration::from_secs(8);

/// Waits for another connection's lock: short sleeps, because a transaction takes a millisecond, and so that a
/// busy writer cannot starve a renewal. The time is measured: on a busy machine each sleep takes longer than it says.
fn wait_for_lock(tries: i32) -> bool {
    thread_local! {
        static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    if tries == 0 {
        SINCE.set(Some(Instant::now()));
    }
    let wait = match tries {
        ..20 => Duration::from_micros(100),
        20..200 => Duration::from_micros(500),
        _ => Duration::from_millis(2),
    };
    std::thread::sleep(wait);
    SINCE.get().is_none_or(|since| since.elapsed() < LOCK_WAIT)
}

fn unreachable_store(shown: &str, error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    let code = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Code::UnsupportedStore,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Code::StoreUnavailable,
        Some(ErrorCode::DiskFull) => Code::StorageFull,
        _ => Code::StoreUnreachable,
    };
    Error::new(code, format!("open store `{shown}`")).because(error.to_string())
}

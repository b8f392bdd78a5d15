//! The server of a run: a private one with durable settings, or for SQLite none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_testkit::proxy::Proxy;
use millpond_testkit::servers::mariadb::Mariadb;
use millpond_testkit::servers::postgres::{Fsync, Postgres};

use crate::Outcome;
use crate::database::Database;
use crate::reader::Reader;

/// Connections that a store of a child keeps at most, so that many children fit on one server.
const CONNECTIONS: usize = 4;

/// Sessions of a store whose transaction is older than anything that is done here, and in which nothing is done at the
/// moment. A store is known by the name of its clients, or by its database.
const LEFT_IN_POSTGRES: &str = "select count(*) from pg_stat_activity
    where state like 'idle in transaction%' and xact_start < clock_timestamp() - interval '2 seconds'
          and application_name = ";
const LEFT_IN_MYSQL: &str = "select count(*) from information_schema.innodb_trx t
    join information_schema.processlist p on p.id = t.trx_mysql_thread_id
    where p.command = 'Sleep' and t.trx_started < now() - interval 2 second and p.db = database()";

/// The server.
pub(crate) enum Server {
    /// SQLite: a file.
    File,
    Postgres(Postgres),
    Mysql(Mariadb),
}

impl Server {
    /// Starts one, with settings under which an acknowledged commit is on the disk.
    pub(crate) fn start(database: Database) -> Arc<Self> {
        Arc::new(match database {
            Database::Sqlite => Self::File,
            Database::Postgres => Self::Postgres(Postgres::start(Fsync::On, &["max_connections=900"])),
            Database::Mysql => Self::Mysql(Mariadb::start(Fsync::On, &["max-connections=900"])),
        })
    }

    pub(crate) fn database(&self) -> Database {
        match self {
            Self::File => Database::Sqlite,
            Self::Postgres(_) => Database::Postgres,
            Self::Mysql(_) => Database::Mysql,
        }
    }

    /// Where a new store is to be.
    pub(crate) fn fresh_url(&self, dir: &Path) -> Outcome<String> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("torture_{number}");
        Ok(match self {
            Self::File => format!("sqlite://{}", dir.join("torture.db").display()),
            Self::Postgres(server) => {
                let url = server.url();
                format!("{url}?schema={name}&application_name={name}&connections={CONNECTIONS}")
            }
            Self::Mysql(server) => {
                Reader::open(server.url())?.step(&format!("create database {name}"))?;
                let (place, _) = server.url().rsplit_once('/').ok_or("its URL names no database")?;
                format!("{place}/{name}?connections={CONNECTIONS}")
            }
        })
    }

    /// A proxy before it.
    pub(crate) fn proxy(&self) -> Outcome<Proxy> {
        Ok(Proxy::start(self.port().ok_or("a file has no connections to cut")?)?)
    }

    /// The same place, through a proxy.
    pub(crate) fn through(&self, url: &str, proxy: &Proxy) -> String {
        let own = format!(":{}/", self.port().unwrap_or(0));
        url.replacen(&own, &format!(":{}/", proxy.port()), 1)
    }

    fn port(&self) -> Option<u16> {
        match self {
            Self::File => None,
            Self::Postgres(server) => Some(server.port()),
            Self::Mysql(server) => Some(server.port()),
        }
    }

    /// kill -9 of the server and of all its processes at once.
    pub(crate) fn kill(&self) {
        match self {
            Self::File => {}
            Self::Postgres(server) => server.kill_tree(),
            Self::Mysql(server) => server.crash(),
        }
    }

    /// Starts it again, on the same data and port, and waits until it lets somebody in.
    pub(crate) fn start_again(&self) {
        match self {
            Self::File => {}
            Self::Postgres(server) => server.start_again(),
            Self::Mysql(server) => server.start_again(),
        }
    }

    /// How many sessions are left in a transaction that nobody works in.
    pub(crate) fn left_in_transaction(reader: &Reader) -> Outcome<u64> {
        let left = match reader.database() {
            Database::Sqlite => 0,
            Database::Postgres => {
                let name = reader.parameter("application_name").unwrap_or_default();
                reader.number(&format!("{LEFT_IN_POSTGRES}'{name}'"))?
            }
            Database::Mysql => reader.number(LEFT_IN_MYSQL)?,
        };
        Ok(left.unsigned_abs())
    }

    /// Whether what is leased or settled may be forgotten by a crash of the server. A send may not.
    pub(crate) fn forgets_leases(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Its name and version.
    pub(crate) fn version(&self) -> String {
        let ask = |url: &str, query: &str| -> Outcome<String> {
            let mut version = String::new();
            Reader::open(url)?.each(query, |row| {
                version = row.text(0)?;
                Ok(())
            })?;
            Ok(version)
        };
        let version = match self {
            Self::File => Ok(millpond::sqlite::rusqlite::version().to_owned()),
            Self::Postgres(server) => ask(server.url(), "show server_version"),
            Self::Mysql(server) => ask(server.url(), "select version()"),
        };
        let version = version.unwrap_or_else(|_| "unknown".to_owned());
        format!("{} {}", self.database().name(), version.split(' ').next().unwrap_or_default())
    }
}

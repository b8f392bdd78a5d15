//! The server of a run: a private one with durable settings, or for SQLite none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_testkit::proxy::Proxy;
use millpond_testkit::servers::mariadb::Mariadb;
use millpond_testkit::servers::pgbouncer::Pgbouncer;
use millpond_testkit::servers::postgres::{Fsync, Postgres};

use crate::Outcome;
use crate::database::Database;
use crate::reader::Reader;

/// Connections that a store of a child keeps at most, so that many children fit on one server.
pub(crate) const CONNECTIONS: usize = 4;

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
    /// With what shares its connections among the processes, if there is something.
    Postgres(Postgres, Option<Pgbouncer>),
    Mysql(Mariadb),
}

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    /// Through a pgbouncer that gives each transaction another connection.
    Pgbouncer,
}

impl Server {
    /// Starts one, with settings under which an acknowledged commit is on the disk.
    pub(crate) fn start(database: Database, way: Way) -> Arc<Self> {
        Arc::new(match database {
            Database::Sqlite => Self::File,
            Database::Postgres => {
                let server = Postgres::start(Fsync::On, &["max_connections=900"]);
                let bouncer = (way == Way::Pgbouncer).then(|| Pgbouncer::start(&server));
                Self::Postgres(server, bouncer)
            }
            Database::Mysql => Self::Mysql(Mariadb::start(Fsync::On, &["max-connections=900"])),
        })
    }

    /// Another one of the kind.
    pub(crate) fn another(&self) -> Arc<Self> {
        Self::start(self.database(), self.way())
    }

    pub(crate) fn way(&self) -> Way {
        match self {
            Self::Postgres(_, Some(_)) => Way::Pgbouncer,
            _ => Way::Direct,
        }
    }

    pub(crate) fn database(&self) -> Database {
        match self {
            Self::File => Database::Sqlite,
            Self::Postgres(..) => Database::Postgres,
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
            Self::Postgres(server, _) => {
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

    /// A proxy before it, and before what shares its connections.
    pub(crate) fn proxy(&self) -> Outcome<Proxy> {
        Ok(Proxy::start(self.door().ok_or("a file has no connections to cut")?)?)
    }

    /// The same place as a child reaches it: through a proxy, if there is one.
    pub(crate) fn through(&self, url: &str, proxy: Option<&Proxy>) -> String {
        let Some((own, door)) = self.port().zip(self.door()) else { return url.to_owned() };
        let door = proxy.map_or(door, Proxy::port);
        url.replacen(&format!(":{own}/"), &format!(":{door}/"), 1)
    }

    /// The port of the server itself.
    fn port(&self) -> Option<u16> {
        match self {
            Self::File => None,
            Self::Postgres(server, _) => Some(server.port()),
            Self::Mysql(server) => Some(server.port()),
        }
    }

    /// The port at which children reach it.
    fn door(&self) -> Option<u16> {
        match self {
            Self::Postgres(_, Some(bouncer)) => Some(bouncer.port()),
            _ => self.port(),
        }
    }

    /// kill -9 of the server and of all its processes at once.
    pub(crate) fn kill(&self) {
        match self {
            Self::File => {}
            Self::Postgres(server, _) => server.kill_tree(),
            Self::Mysql(server) => server.crash(),
        }
    }

    /// Starts it again, on the same data and port, and waits until it lets somebody in.
    pub(crate) fn start_again(&self) {
        match self {
            Self::File => {}
            Self::Postgres(server, _) => server.start_again(),
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
        matches!(self, Self::Postgres(..))
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
            Self::Postgres(server, _) => ask(server.url(), "show server_version"),
            Self::Mysql(server) => ask(server.url(), "select version()"),
        };
        let version = version.unwrap_or_else(|_| "unknown".to_owned());
        let through = if self.way() == Way::Pgbouncer { " through pgbouncer" } else { "" };
        format!("{} {}{through}", self.database().name(), version.split(' ').next().unwrap_or_default())
    }
}

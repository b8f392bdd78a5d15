//! Opening a pond by the URL of its store.

use std::ops::Deref;
use std::sync::Arc;

use millpond_core::error::{Code, Error, Result};
use millpond_core::store::Store;
use millpond_core::store_url;

/// One process's handle on one store. Cloning it is cheap.
///
/// It is opened by a URL; everything else it can do is that of the engine's pond, to which it dereferences: send,
/// declare, look up a queue. It is listed below.
#[derive(Debug, Clone)]
pub struct Pond(millpond_engine::pond::Pond);

impl Pond {
    /// Opens the store at `url`, makes it if it is missing, and migrates its schema.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `sqlite://app.db`, `sqlite:///var/lib/app.db` | a SQLite file; several processes may share it |
    /// | `sqlite://app.db?synchronous=normal` | the same without a flush for each send: a power cut may lose the last sends |
    /// | `sqlite::memory:` | SQLite in memory, gone with the process |
    /// | `postgres://user:password@host/database` | a schema of a Postgres database, 13 and later; with the feature `postgres` |
    /// | `mysql://user:password@host/database`, `mariadb://…` | tables in a MariaDB database, 10.6 and later (and, not tested, MySQL 8); with the feature `mysql` |
    ///
    /// # Errors
    ///
    /// `unsupported-store`, `store-unreachable`, `store-unavailable`, `schema-newer`, `invalid-config`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> millpond::Result<()> {
    /// let pond = millpond::Pond::open("sqlite::memory:").await?;
    /// # pond.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open(url: &str) -> Result<Self> {
        Ok(Self::with_store(store(url).await?))
    }

    /// A pond on a store that is open already.
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self(millpond_engine::pond::Pond::new(store))
    }

    /// Refuses further sends of every clone, writes out what is in a buffer, and closes the store once everything in it
    /// is written out.
    pub async fn close(self) {
        self.0.close().await;
    }
}

/// The engine's own handle, such as a test kit has it.
impl From<millpond_engine::pond::Pond> for Pond {
    fn from(pond: millpond_engine::pond::Pond) -> Self {
        Self(pond)
    }
}

impl Deref for Pond {
    type Target = millpond_engine::pond::Pond;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The forms of a URL for which there is a store.
const BUILT_IN: &[&str] = &[
    #[cfg(feature = "sqlite")]
    "`sqlite://path`",
    #[cfg(feature = "sqlite")]
    "`sqlite::memory:`",
    #[cfg(feature = "postgres")]
    "`postgres://user@host/database`",
    #[cfg(feature = "mysql")]
    "`mysql://user@host/database`",
];

/// Those forms in a sentence.
fn built_in() -> String {
    match BUILT_IN {
        [] => "none is; choose a feature of the crate".to_owned(),
        [one] => format!("{one} is"),
        [some @ .., last] => format!("{} and {last} are", some.join(", ")),
    }
}

async fn store(url: &str) -> Result<Arc<dyn Store>> {
    let refused =
        |why| Error::new(Code::InvalidConfig, format!("open store `{}`", without_password(url))).because(why);
    store_url::check(url).map_err(refused)?;
    #[cfg(feature = "sqlite")]
    if url.starts_with("sqlite:") {
        let owned = url.to_owned();
        let open = move || crate::sqlite::SqliteStore::open(&owned, crate::sqlite::Options::default());
        let opened = tokio::task::spawn_blocking(open).await;
        let ended = |error| Error::new(Code::Internal, format!("open store `{url}`")).because(error);
        return Ok(Arc::new(opened.map_err(ended)??));
    }
    #[cfg(feature = "postgres")]
    if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        let options = crate::postgres::Options::default();
        return Ok(Arc::new(crate::postgres::PostgresStore::open(url, options).await?));
    }
    #[cfg(feature = "mysql")]
    if url.starts_with("mysql:") || url.starts_with("mariadb:") {
        let options = crate::mysql::Options::default();
        return Ok(Arc::new(crate::mysql::MysqlStore::open(url, options).await?));
    }
    let why = format!("the URL names no store that is built in: {}", built_in());
    Err(Error::new(Code::UnsupportedStore, format!("open store `{}`", without_password(url))).because(why))
}

/// A URL may hold a password, which belongs into no error.
fn without_password(url: &str) -> String {
    millpond_core::redact::summary(url)
}

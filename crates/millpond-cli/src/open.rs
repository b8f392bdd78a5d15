//! Opening the store. Only a command that adds something makes a store that is missing; the others say how.

mod mysql;
pub(crate) mod postgres;

use std::error::Error as _;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use millpond::sqlite::Migration;
use millpond::sqlite::{Location, Options, SqliteStore, rusqlite, schema};
use millpond::{Code, Error, Pond};

use crate::exit::{Exit, Failure};
pub(crate) use mysql::is_mysql;
pub(crate) use postgres::is_postgres;

/// Whether the URL names a database on a server.
pub(crate) fn is_server(url: &str) -> bool {
    is_postgres(url) || is_mysql(url)
}

/// The store at `url`, which must be there and have its schema.
pub(crate) async fn existing(url: &str) -> Result<Pond, Failure> {
    has_schema(url).await?;
    open(url, false).await
}

/// The same, for a command that writes.
pub(crate) async fn to_write(url: &str) -> Result<Pond, Failure> {
    has_schema(url).await?;
    writable(url)?;
    open(url, false).await
}

async fn has_schema(url: &str) -> Result<(), Failure> {
    let migrations = look(url).await?;
    if migrations.iter().all(|migration| migration.applied_at.is_none()) && !in_memory(url) {
        return Err(match () {
            () if is_postgres(url) => postgres::no_schema(url),
            () if is_mysql(url) => mysql::no_schema(url),
            () => no_schema(url),
        });
    }
    Ok(())
}

/// The store at `url`, made and migrated if need be.
pub(crate) async fn or_new(url: &str) -> Result<Pond, Failure> {
    if is_there(url)? {
        writable(url)?;
    } else if let Some(folder) = missing_folder(url) {
        let tried = format!("cannot make the store {url}");
        let failure = Failure::new(Exit::Unreachable, Code::StoreUnreachable.as_str(), tried);
        return Err(without_folder(failure, &folder));
    }
    open(url, true).await
}

/// Whether there is something at `url`.
pub(crate) fn is_there(url: &str) -> Result<bool, Failure> {
    if is_server(url) {
        return encoded(url).map(|()| true);
    }
    let Some(path) = location(url)?.path else { return Ok(true) };
    if path.is_dir() {
        let tried = format!("cannot open the store {}", path.display());
        let failure = Failure::new(Exit::Unreachable, Code::StoreUnreachable.as_str(), tried);
        let advice = format!("name a file, such as sqlite://{}", path.join("millpond.db").display());
        return Err(failure.why("it is a directory").advice(advice));
    }
    Ok(path.exists())
}

/// Refuses a URL in which a character stands that must be encoded.
fn encoded(url: &str) -> Result<(), Failure> {
    millpond_core::store_url::check(url).map_err(|why| {
        let tried = format!("cannot read the URL of the store: {why}");
        Failure::new(Exit::Usage, Code::InvalidConfig.as_str(), tried)
            .advice("encode it where the URL is set")
    })
}

fn location(url: &str) -> Result<Location, Failure> {
    encoded(url)?;
    Location::parse(url).map_err(|error| {
        let failure = Failure::from(error);
        let failure =
            if url.contains(':') { failure } else { failure.advice(format!("write sqlite://{url}")) };
        failure.redacted()
    })
}

/// The folder of the store, if it does not exist.
fn missing_folder(url: &str) -> Option<PathBuf> {
    let path = Location::parse(url).ok()?.path?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    folder.map(Path::to_path_buf)
}

fn without_folder(failure: Failure, folder: &Path) -> Failure {
    let why = format!("folder `{}` does not exist", folder.display());
    failure.why(why).advice("make the folder first, or name another with --store or MILLPOND_STORE")
}

/// The migrations of the store at `url`, which is not changed.
pub(crate) async fn look(url: &str) -> Result<Vec<Migration>, Failure> {
    if !is_there(url)? {
        return Err(missing(url));
    }
    if is_postgres(url) {
        return postgres::look(url).await;
    }
    if is_mysql(url) {
        return mysql::look(url).await;
    }
    let owned = url.to_owned();
    blocking(url, move || schema(&owned)).await
}

async fn open(url: &str, make: bool) -> Result<Pond, Failure> {
    if is_postgres(url) {
        return postgres::open(url, make).await;
    }
    if is_mysql(url) {
        return mysql::open(url, make).await;
    }
    let owned = url.to_owned();
    let options = Options { create: make, migrate: make || in_memory(url), ..Options::default() };
    let store = blocking(url, move || SqliteStore::open(&owned, options)).await?;
    Ok(Pond::with_store(Arc::new(store)))
}

async fn blocking<T: Send + 'static>(
    url: &str,
    work: impl FnOnce() -> millpond::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let ended = |why| Error::new(Code::Internal, "open the store").because(why);
    let done = tokio::task::spawn_blocking(work).await.map_err(ended).and_then(|done| done);
    done.map_err(|error| match location(url) {
        Ok(Location { path: Some(path), .. }) if is_no_database(&error) => no_database(&path),
        _ => Failure::from(error).redacted(),
    })
}

fn is_no_database(error: &Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.any(|cause| {
        let code = cause.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
        code == Some(rusqlite::ErrorCode::NotADatabase)
    })
}

fn no_database(path: &Path) -> Failure {
    let tried = format!("{} is not a database", path.display());
    let failure = Failure::new(Exit::Refused, Code::UnsupportedStore.as_str(), tried);
    failure.why("the file has other content, which is left as it is").advice("check --store")
}

/// SQLite opens a file that it may not write for reading, and says so only when it is to write.
///
/// Never while this process has the store open: closing any descriptor of a file drops all locks that the process has
/// on it, and the next program that closes the database would take away the write-ahead log under us.
fn writable(url: &str) -> Result<(), Failure> {
    if is_server(url) {
        return Ok(());
    }
    let Some(path) = location(url)?.path else { return Ok(()) };
    OpenOptions::new().write(true).open(&path).map(drop).map_err(|error| {
        let tried = format!("cannot write to the store {}", path.display());
        let failure = Failure::new(Exit::Unreachable, Code::StoreUnreachable.as_str(), tried);
        failure.why(error.to_string()).advice("check the rights on the file and on its folder")
    })
}

fn in_memory(url: &str) -> bool {
    Location::parse(url).is_ok_and(|location| location.path.is_none())
}

fn missing(url: &str) -> Failure {
    let tried = format!("there is no store at {url}");
    let advice = "`millpond queue add NAME` makes one; --store or MILLPOND_STORE names another";
    let failure = Failure::new(Exit::Unreachable, Code::StoreUnreachable.as_str(), tried);
    match missing_folder(url) {
        Some(folder) => without_folder(failure, &folder),
        None => failure.advice(advice),
    }
}

fn no_schema(url: &str) -> Failure {
    let tried = format!("there is no Millpond schema in {url}");
    let why = "the file is a database, but none of ours";
    let advice = "check --store; to keep queues in this database, run `millpond migrate up`";
    Failure::new(Exit::Refused, Code::SchemaOlder.as_str(), tried).why(why).advice(advice)
}

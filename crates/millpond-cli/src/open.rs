//! Opening the store. Only a command that adds something makes a store that is missing; the others say how.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;

use millpond::sqlite::{Location, Migration, Options, SqliteStore, schema};
use millpond::{Code, Error, Pond};

use crate::exit::{Exit, Failure};

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
        return Err(no_schema(url));
    }
    Ok(())
}

/// The store at `url`, made and migrated if need be.
pub(crate) async fn or_new(url: &str) -> Result<Pond, Failure> {
    if is_there(url)? {
        writable(url)?;
    }
    open(url, true).await
}

/// Whether there is something at `url`.
pub(crate) fn is_there(url: &str) -> Result<bool, Failure> {
    let location = Location::parse(url).map_err(|error| Failure::from(error).redacted())?;
    Ok(location.path.as_deref().is_none_or(Path::exists))
}

/// The migrations of the store at `url`, which is not changed.
pub(crate) async fn look(url: &str) -> Result<Vec<Migration>, Failure> {
    if !is_there(url)? {
        return Err(missing(url));
    }
    let owned = url.to_owned();
    blocking(move || schema(&owned)).await
}

async fn open(url: &str, make: bool) -> Result<Pond, Failure> {
    let owned = url.to_owned();
    let options = Options { create: make, migrate: make || in_memory(url), ..Options::default() };
    let store = blocking(move || SqliteStore::open(&owned, options)).await?;
    Ok(Pond::with_store(Arc::new(store)))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> millpond::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let ended = |why| Error::new(Code::Internal, "open the store").because(why);
    let done = tokio::task::spawn_blocking(work).await.map_err(ended).and_then(|done| done);
    done.map_err(|error| Failure::from(error).redacted())
}

/// SQLite opens a file that it may not write for reading, and says so only when it is to write.
///
/// Never while this process has the store open: closing any descriptor of a file drops all locks that the process has
/// on it, and the next program that closes the database would take away the write-ahead log under us.
fn writable(url: &str) -> Result<(), Failure> {
    let location = Location::parse(url).map_err(|error| Failure::from(error).redacted())?;
    let Some(path) = location.path else { return Ok(()) };
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
    Failure::new(Exit::Unreachable, Code::StoreUnreachable.as_str(), tried).advice(advice)
}

fn no_schema(url: &str) -> Failure {
    let tried = format!("there is no Millpond schema in {url}");
    let why = "the file is a database, but none of ours";
    let advice = "check --store; to keep queues in this database, run `millpond migrate up`";
    Failure::new(Exit::Refused, Code::SchemaOlder.as_str(), tried).why(why).advice(advice)
}

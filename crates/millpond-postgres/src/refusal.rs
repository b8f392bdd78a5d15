//! Why a server does not let us in, and the way out, for people.

use millpond_core::error::{Code, Error};
use tokio_postgres::Error as PostgresError;

use crate::error::{code_of, plain};
use crate::location::{Location, Tls};

/// The error of a connection that was not opened.
pub(crate) fn refused(location: &Location, error: &PostgresError) -> Error {
    let doing = format!("open store `{}`", location.shown);
    let (user, database, said) = (location.user(), location.database(), plain(error));
    let Some(state) = error.code() else {
        return Error::new(Code::StoreUnreachable, doing).because(unanswered(location, error, &said));
    };
    let (code, why) = match state.code() {
        "28P01" => (
            Code::StoreUnreachable,
            format!("the server refused the password of user `{user}`: correct it in the URL ({said})"),
        ),
        "28000" => (
            Code::StoreUnreachable,
            format!("the server does not let user `{user}` in from here: see its pg_hba.conf ({said})"),
        ),
        "3D000" => (
            Code::StoreUnreachable,
            format!(
                "there is no database `{database}`: make it with `createdb {database}`, or name another ({said})"
            ),
        ),
        "42501" => (
            Code::StoreUnreachable,
            format!("user `{user}` may not connect to `{database}`: GRANT CONNECT ON DATABASE ({said})"),
        ),
        "53300" => (
            Code::StoreUnavailable,
            format!(
                "the server has no connection left: raise max_connections, or lower `?connections=` ({said})"
            ),
        ),
        "57P03" => (
            Code::StoreUnavailable,
            format!("the server takes no connections now: it starts, stops or recovers ({said})"),
        ),
        _ => (code_of(error), said),
    };
    Error::new(code, doing).because(why)
}

/// What the network or TLS said.
fn unanswered(location: &Location, error: &PostgresError, said: &str) -> String {
    let hosts: Vec<String> = location
        .config
        .get_hosts()
        .iter()
        .map(|host| match host {
            tokio_postgres::config::Host::Tcp(name) => name.clone(),
            tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    let port = location.config.get_ports().first().copied().unwrap_or(5432);
    let place = format!("{}:{port}", hosts.join(","));
    let encrypted = matches!(location.tls, Tls::Require | Tls::VerifyFull(_));
    if encrypted && said.contains("does not support TLS") {
        return format!(
            "{place} offers no TLS and the URL demands it: switch it on there, or `sslmode=disable`"
        );
    }
    if encrypted && error.to_string().contains("TLS") {
        return format!("{place}: TLS failed ({said}); name the authority with `sslrootcert=`");
    }
    format!("{place} does not answer as a Postgres: check host and port, and that it runs ({said})")
}

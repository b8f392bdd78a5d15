//! Why a server does not let us in, and the way out, for people.

use millpond_core::error::{Code, Error};
use mysql_async::{DriverError, Error as ServerError, IoError};

use crate::error::{code_of, number, plain};
use crate::location::{Location, Tls};

/// The error of a connection that was not opened.
pub(crate) fn refused(location: &Location, error: &ServerError) -> Error {
    let doing = format!("open store `{}`", location.shown);
    let (user, database, said) = (location.user(), location.database(), plain(error));
    let Some(number) = number(error) else {
        return Error::new(Code::StoreUnreachable, doing).because(unanswered(location, error, &said));
    };
    let (code, why) = match number {
        1045 | 1698 => (
            Code::StoreUnreachable,
            format!("the server refused the password of user `{user}`: correct it in the URL ({said})"),
        ),
        1044 => (
            Code::StoreUnreachable,
            format!("user `{user}` has no rights in `{database}`: see `millpond store grants` ({said})"),
        ),
        1049 => (
            Code::StoreUnreachable,
            format!(
                "there is no database `{database}`: make it with `create database {database}`, or name another \
                 ({said})"
            ),
        ),
        1130 => (
            Code::StoreUnreachable,
            format!(
                "the server does not let user `{user}` in from here: see the hosts of its users ({said})"
            ),
        ),
        1040 | 1203 | 1226 => (
            Code::StoreUnavailable,
            format!(
                "the server has no connection left: raise max_connections, or lower `?connections=` ({said})"
            ),
        ),
        _ => (code_of(error), said),
    };
    Error::new(code, doing).because(why)
}

/// What the network, TLS or the driver said.
fn unanswered(location: &Location, error: &ServerError, said: &str) -> String {
    let place = location.place();
    match error {
        ServerError::Driver(DriverError::NoClientSslFlagFromServer) => {
            format!("{place} offers no TLS and the URL demands it: switch it on there, or `?sslmode=disable`")
        }
        ServerError::Io(IoError::Tls(_)) => {
            let way_out = match location.tls {
                Tls::VerifyFull(_) => "name the authority with `?sslrootcert=`",
                _ => "see its ssl_cert and tls_version",
            };
            format!("{place}: TLS failed ({said}); {way_out}")
        }
        _ => {
            format!(
                "{place} does not answer as MySQL or MariaDB: check host and port, and that it runs ({said})"
            )
        }
    }
}

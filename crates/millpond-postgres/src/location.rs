//! Where a store is, from its URL.

use std::path::PathBuf;
use std::str::FromStr;

use millpond_core::error::{Code, Error, Result};
use millpond_core::redact;
use millpond_core::store_url;
use millpond_core::text::nearest;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::sql::SCHEMA;

/// Connections that a store keeps at most, beside one each for sends, renewals and hints.
const CONNECTIONS_MAX: usize = 8;

/// Most that may be asked for.
const CONNECTIONS_LIMIT: usize = 200;

/// What an identifier may have.
const SCHEMA_BYTES_MAX: usize = 63;

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// Parameters of ours and of the driver.
const PARAMETERS: [&str; 17] = [
    "schema",
    "connections",
    "sslmode",
    "sslrootcert",
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "load_balance_hosts",
    "password",
    "port",
    "target_session_attrs",
    "user",
];

/// How a connection is protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    /// Never.
    Disable,
    /// If the server offers it. Its certificate is not checked: whoever is between could have refused TLS as well.
    Prefer,
    /// Always. The certificate is not checked, as in other programs with this word.
    Require,
    /// Always, with a certificate that a known authority has signed for this host; the authorities are those of the
    /// system, or of this file.
    VerifyFull(Option<PathBuf>),
}

/// A parsed `postgres://` URL.
#[derive(Clone)]
pub struct Location {
    pub(crate) config: Config,
    /// The schema that holds everything.
    pub schema: String,
    /// Connections that a store keeps at most, beside one each for sends, renewals and hints.
    pub connections_max: usize,
    /// How connections are protected.
    pub tls: Tls,
    /// The URL without its password.
    pub shown: String,
}

impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Location").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Location {
    /// Parses `postgres://user:password@host:port/database`, with
    ///
    /// - `?schema=name`: the schema that holds everything; `millpond` if it is not given;
    /// - `?connections=8`: how many a store keeps at most, beside three of its own;
    /// - `?sslmode=`: `disable`, `prefer` (the default), `require`, `verify-full`; and `?sslrootcert=file`;
    /// - what the driver knows, such as `application_name` or `target_session_attrs`.
    ///
    /// # Errors
    ///
    /// `unsupported-store` for another scheme, `invalid-config` for an unknown parameter or value.
    pub fn parse(url: &str) -> Result<Self> {
        let shown = redact::summary(url);
        let doing = || format!("open store `{shown}`");
        if !SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
            let why = "the URL does not begin with `postgres://`";
            return Err(Error::new(Code::UnsupportedStore, doing()).because(why));
        }
        let wrong = |why: String| Error::new(Code::InvalidConfig, doing()).because(why);
        store_url::check(url).map_err(|why| Error::new(Code::InvalidConfig, doing()).because(why))?;
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let mut own = Own::default();
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if !own.take(pair).map_err(wrong)? {
                rest.push(pair);
            }
        }
        let for_driver =
            if rest.is_empty() { place.to_owned() } else { format!("{place}?{}", rest.join("&")) };
        let mut config = Config::from_str(&for_driver).map_err(|error| wrong(crate::error::plain(&error)))?;
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        let schema = own.schema.take().unwrap_or_else(|| SCHEMA.to_owned());
        let connections_max = own.connections_max.unwrap_or(CONNECTIONS_MAX);
        let tls = own.tls().map_err(wrong)?;
        config.ssl_mode(match tls {
            Tls::Disable => SslMode::Disable,
            Tls::Prefer => SslMode::Prefer,
            Tls::Require | Tls::VerifyFull(_) => SslMode::Require,
        });
        Ok(Self { config, schema, connections_max, tls, shown })
    }

    /// The user it connects as, as far as the URL says.
    pub(crate) fn user(&self) -> &str {
        self.config.get_user().unwrap_or("the user of this process")
    }

    /// The database, as far as the URL says.
    pub(crate) fn database(&self) -> &str {
        self.config.get_dbname().or(self.config.get_user()).unwrap_or("the database of that user's name")
    }
}

/// The parameters that the driver does not know.
#[derive(Default)]
struct Own {
    schema: Option<String>,
    connections_max: Option<usize>,
    sslmode: Option<String>,
    sslrootcert: Option<PathBuf>,
}

impl Own {
    /// Whether it was one of ours.
    fn take(&mut self, pair: &str) -> std::result::Result<bool, String> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "schema" => self.schema = Some(schema_name(value)?),
            "connections" => self.connections_max = Some(connections(value)?),
            "sslmode" => self.sslmode = Some(value.to_owned()),
            "sslrootcert" => self.sslrootcert = Some(value.into()),
            _ if PARAMETERS.contains(&name) => return Ok(false),
            _ => {
                let hint = nearest(name, &PARAMETERS).map(|near| format!("; did you mean `{near}`?"));
                return Err(format!("there is no parameter `{name}`{}", hint.unwrap_or_default()));
            }
        }
        Ok(true)
    }

    fn tls(self) -> std::result::Result<Tls, String> {
        match self.sslmode.as_deref() {
            Some("disable") => Ok(Tls::Disable),
            None if self.sslrootcert.is_some() => Ok(Tls::VerifyFull(self.sslrootcert)),
            None | Some("prefer" | "allow") => Ok(Tls::Prefer),
            Some("require") => Ok(Tls::Require),
            Some("verify-full" | "verify-ca") => Ok(Tls::VerifyFull(self.sslrootcert)),
            Some(other) => {
                Err(format!("sslmode is `{other}`; it is disable, prefer, require or verify-full"))
            }
        }
    }
}

/// A name that needs no quotes, in lower case, so that it can stand anywhere in a statement.
fn schema_name(name: &str) -> std::result::Result<String, String> {
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if starts && plain && name.len() <= SCHEMA_BYTES_MAX && !name.starts_with("pg_") {
        return Ok(name.to_owned());
    }
    Err(format!(
        "schema is `{name}`; it is a lower-case letter or `_`, then letters, digits and `_`, at most \
         {SCHEMA_BYTES_MAX}, and does not begin with `pg_`"
    ))
}

fn connections(text: &str) -> std::result::Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=CONNECTIONS_LIMIT).contains(number));
    number.ok_or_else(|| format!("connections is `{text}`; it is a number from 1 to {CONNECTIONS_LIMIT}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_everything_or_nothing() {
        let all = "postgres://ada:secret@db:5433/shop?schema=jobs&connections=3&sslmode=verify-full&\
                   sslrootcert=/ca.pem&application_name=x";
        let all = Location::parse(all).unwrap();
        assert_eq!((all.schema.as_str(), all.connections_max), ("jobs", 3));
        assert_eq!(all.tls, Tls::VerifyFull(Some("/ca.pem".into())));
        assert_eq!((all.user(), all.database()), ("ada", "shop"));
        assert!(!all.shown.contains("secret"), "{}", all.shown);
        let least = Location::parse("postgresql://db").unwrap();
        assert_eq!((least.schema.as_str(), least.tls), ("millpond", Tls::Prefer));
    }

    #[test]
    fn mistakes_are_named_and_a_password_is_in_no_error() {
        for (url, code, expected) in [
            ("sqlite://x", Code::UnsupportedStore, "does not begin with `postgres://`"),
            ("postgres://a:hunter2@b/c?shema=x", Code::InvalidConfig, "did you mean `schema`?"),
            ("postgres://a:hunter2@b/c?schema=My", Code::InvalidConfig, "lower-case letter"),
            ("postgres://a:hunter2@b/c?connections=0", Code::InvalidConfig, "from 1 to 200"),
            ("postgres://a:hunter2@b/c?sslmode=on", Code::InvalidConfig, "disable, prefer, require"),
            ("postgres://a:hunter2@b:port/c", Code::InvalidConfig, "port"),
        ] {
            let error = Location::parse(url).unwrap_err();
            assert_eq!(error.code(), code, "{url}");
            assert!(error.causes().contains(expected), "{}", error.causes());
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }
}

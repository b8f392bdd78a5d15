//! Where a store is, from its URL.

use std::path::PathBuf;
use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::redact;
use millpond_core::store_url;
use millpond_core::text::nearest;
use mysql_async::{Opts, OptsBuilder, SslOpts};

use crate::sql::PREFIX;

/// Connections that a store keeps at most, beside one each for sends and renewals.
const CONNECTIONS_MAX: usize = 8;

/// Most that may be asked for.
const CONNECTIONS_LIMIT: usize = 200;

/// What a prefix may have, so that the longest name of a table still has room.
const PREFIX_BYTES_MAX: usize = 32;

/// How long a silent connection is trusted.
const KEEPALIVE: Duration = Duration::from_secs(30);

const SCHEMES: [&str; 2] = ["mysql://", "mariadb://"];

/// Parameters of ours.
const PARAMETERS: [&str; 5] = ["prefix", "connections", "sslmode", "sslrootcert", "socket"];

/// How a connection is protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    /// Never.
    Disable,
    /// If the server offers it. Its certificate is not checked: whoever is between could have refused TLS as well.
    Prefer,
    /// Always. The certificate is not checked, as in other programs with this word.
    Require,
    /// Always, with a certificate that a known authority has signed for this host; the authorities are those that are
    /// built in, or of this file.
    VerifyFull(Option<PathBuf>),
}

/// A parsed `mysql://` or `mariadb://` URL.
#[derive(Clone)]
pub struct Location {
    options: Opts,
    /// What the names of all tables begin with.
    pub prefix: String,
    /// Connections that a store keeps at most, beside one each for sends and renewals.
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
    /// Parses `mysql://user:password@host:port/database` (or `mariadb://…`, which means the same), with
    ///
    /// - `?prefix=name_`: what the names of all tables begin with; `millpond_` if it is not given;
    /// - `?connections=8`: how many a store keeps at most, beside three of its own;
    /// - `?sslmode=`: `disable`, `prefer` (the default), `require`, `verify-full`; and `?sslrootcert=file`;
    /// - `?socket=/run/mysqld/mysqld.sock`: a socket file on this host.
    ///
    /// # Errors
    ///
    /// `unsupported-store` for another scheme, `invalid-config` for an unknown parameter or value.
    pub fn parse(url: &str) -> Result<Self> {
        let shown = redact::summary(url);
        let doing = || format!("open store `{shown}`");
        let Some(rest) = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme)) else {
            let why = "the URL does not begin with `mysql://` or `mariadb://`";
            return Err(Error::new(Code::UnsupportedStore, doing()).because(why));
        };
        let wrong = |why: String| Error::new(Code::InvalidConfig, doing()).because(why);
        store_url::check(url).map_err(|why| Error::new(Code::InvalidConfig, doing()).because(why))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut own = Own::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            own.take(pair).map_err(wrong)?;
        }
        // What the driver says of a URL may hold a part of the password.
        let options = Opts::from_url(&format!("mysql://{place}")).map_err(|_| {
            wrong("host, port or database cannot be read: `mysql://user@host:3306/database`".to_owned())
        })?;
        let mut builder = OptsBuilder::from_opts(options)
            .client_found_rows(true)
            .tcp_keepalive(Some(KEEPALIVE))
            .tcp_nodelay(true)
            // It would go to another server if a proxy is in between.
            .prefer_socket(false)
            .stmt_cache_size(0);
        if let Some(socket) = own.socket.take() {
            builder = builder.socket(Some(socket));
        }
        let prefix = own.prefix.take().unwrap_or_else(|| PREFIX.to_owned());
        let connections_max = own.connections_max.unwrap_or(CONNECTIONS_MAX);
        let tls = own.tls().map_err(wrong)?;
        Ok(Self { options: builder.into(), prefix, connections_max, tls, shown })
    }

    /// The driver's settings.
    pub(crate) fn options(&self, with_tls: bool) -> Opts {
        let builder = OptsBuilder::from_opts(self.options.clone());
        if !with_tls {
            return builder.into();
        }
        let unchecked = SslOpts::default()
            .with_danger_accept_invalid_certs(true)
            .with_danger_skip_domain_validation(true);
        let tls = match &self.tls {
            Tls::Disable => return builder.into(),
            Tls::Prefer | Tls::Require => unchecked,
            Tls::VerifyFull(None) => SslOpts::default(),
            Tls::VerifyFull(Some(file)) => SslOpts::default()
                .with_root_certs(vec![file.clone().into()])
                .with_disable_built_in_roots(true),
        };
        builder.ssl_opts(tls).into()
    }

    /// The user it connects as, as far as the URL says.
    pub(crate) fn user(&self) -> &str {
        self.options.user().unwrap_or("the user of this process")
    }

    /// The database.
    pub(crate) fn database(&self) -> &str {
        self.options.db_name().unwrap_or("")
    }

    /// Host and port, or the socket.
    pub(crate) fn place(&self) -> String {
        match self.options.socket() {
            Some(socket) => socket.to_owned(),
            None => format!("{}:{}", self.options.ip_or_hostname(), self.options.tcp_port()),
        }
    }
}

/// The parameters.
#[derive(Default)]
struct Own {
    prefix: Option<String>,
    connections_max: Option<usize>,
    sslmode: Option<String>,
    sslrootcert: Option<PathBuf>,
    socket: Option<String>,
}

impl Own {
    fn take(&mut self, pair: &str) -> std::result::Result<(), String> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "prefix" => self.prefix = Some(table_prefix(value)?),
            "connections" => self.connections_max = Some(connections(value)?),
            "sslmode" => self.sslmode = Some(value.to_owned()),
            "sslrootcert" => self.sslrootcert = Some(value.into()),
            "socket" => self.socket = Some(value.replace("%2F", "/").replace("%2f", "/")),
            _ => {
                let hint = nearest(name, &PARAMETERS).map(|near| format!("; did you mean `{near}`?"));
                return Err(format!("there is no parameter `{name}`{}", hint.unwrap_or_default()));
            }
        }
        Ok(())
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

/// A prefix that needs no quotes, in lower case, so that it is the same on servers that fold names and on others.
fn table_prefix(name: &str) -> std::result::Result<String, String> {
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if starts && plain && name.ends_with('_') && name.len() <= PREFIX_BYTES_MAX {
        return Ok(name.to_owned());
    }
    Err(format!(
        "prefix is `{name}`; it is a lower-case letter, then letters, digits and `_`, ends with `_`, and has at most \
         {PREFIX_BYTES_MAX}"
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
        let all = "mariadb://ada:secret@db:3307/shop?prefix=jobs_&connections=3&sslrootcert=/ca.pem";
        let all = Location::parse(all).unwrap();
        assert_eq!((all.prefix.as_str(), all.connections_max), ("jobs_", 3));
        assert_eq!(all.tls, Tls::VerifyFull(Some("/ca.pem".into())));
        assert_eq!((all.user(), all.database(), all.place()), ("ada", "shop", "db:3307".to_owned()));
        assert!(!all.shown.contains("secret"), "{}", all.shown);
        let least = Location::parse("mysql://db/app").unwrap();
        assert_eq!((least.prefix.as_str(), least.tls), ("millpond_", Tls::Prefer));
    }

    #[test]
    fn mistakes_are_named_and_a_password_is_in_no_error() {
        for (url, code, expected) in [
            ("sqlite://x", Code::UnsupportedStore, "does not begin with `mysql://`"),
            ("mysql://a:hunter2@b/c?prefx=x_", Code::InvalidConfig, "did you mean `prefix`?"),
            ("mysql://a:hunter2@b/c?prefix=My_", Code::InvalidConfig, "lower-case letter"),
            ("mysql://a:hunter2@b/c?connections=0", Code::InvalidConfig, "from 1 to 200"),
            ("mysql://a:hunter2@b/c?sslmode=on", Code::InvalidConfig, "disable, prefer, require"),
            ("mysql://a:hunter2@b:port/c", Code::InvalidConfig, "port"),
        ] {
            let error = Location::parse(url).unwrap_err();
            assert_eq!(error.code(), code, "{url}");
            assert!(error.causes().contains(expected), "{}", error.causes());
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }
}

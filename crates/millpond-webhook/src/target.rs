//! What a URL may say.

use std::net::IpAddr;

use reqwest::Url;
use reqwest::header::HeaderValue;

use crate::guard::Guard;

/// Why a URL or a secret is refused before anything is sent. Never repeats a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not a URL at all.
    #[error("it is not a URL: {0}")]
    NotUrl(String),
    /// A scheme that is not spoken.
    #[error("its scheme is `{0}`; http and https are spoken")]
    Scheme(String),
    /// A password in a URL ends up in logs.
    #[error("it holds a user or a password; use the signature's secret instead")]
    UserInfo,
    /// A port that is not open.
    #[error("its port is {0}; 80 and 443 are open, and those of `outbound.allow`")]
    Port(u16),
    /// An address that is not public.
    #[error("{0}")]
    Address(#[from] crate::guard::Forbidden),
    /// A secret that cannot sign.
    #[error("the secret is no base64 of 24 to 64 bytes, with or without `whsec_` before it")]
    Secret,
}

/// Reads and checks a URL as far as that can be done without looking a name up.
pub(crate) fn read(text: &str, guard: &Guard) -> Result<Url, Refused> {
    let url = Url::parse(text).map_err(|error| Refused::NotUrl(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Refused::Scheme(url.scheme().to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refused::UserInfo);
    }
    if let Some(port) = url.port_or_known_default().filter(|port| !guard.allows_port(*port)) {
        return Err(Refused::Port(port));
    }
    let host = url.host_str().unwrap_or_default();
    // Decimal, octal and hexadecimal forms were made an address by the parser.
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>()
        && !guard.allows_host(bare)
    {
        guard.check(address)?;
    }
    if HeaderValue::from_str(host).is_err() || host.is_empty() {
        return Err(Refused::NotUrl("it has no host".to_owned()));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_points_inwards_or_holds_a_secret_is_refused() {
        for (text, expected) in [
            ("https://example.com/hook?x=1", ""),
            ("http://example.com:80/", ""),
            ("ftp://example.com/", "its scheme is `ftp`"),
            ("file:///etc/passwd", "its scheme is `file`"),
            ("https://user:tulip@example.com/", "it holds a user"),
            ("https://tulip@example.com/", "it holds a user"),
            ("http://example.com:5432/", "its port is 5432"),
            ("http://127.0.0.1/", "loopback"),
            ("http://2130706433/", "loopback"),
            ("http://0x7f000001/", "loopback"),
            ("http://0177.0.0.1/", "loopback"),
            ("http://127.1/", "loopback"),
            ("http://[::1]/", "loopback"),
            ("http://[::ffff:169.254.169.254]/", "link-local"),
            ("http://169.254.169.254/latest/meta-data", "link-local"),
            ("not a url", "it is not a URL"),
            ("http://", "it is not a URL"),
        ] {
            let found = read(text, &Guard::default()).map_or_else(|why| why.to_string(), |_| String::new());
            assert_eq!(found.is_empty(), expected.is_empty(), "{text}: {found}");
            assert!(found.contains(expected) && !found.contains("tulip"), "{text}: {found}");
        }
    }
}

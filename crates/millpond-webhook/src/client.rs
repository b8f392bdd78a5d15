//! The one client: it connects only to addresses that were decided about, follows nothing and keeps nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;

use crate::guard::Guard;

/// How long a connection may take to come about.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long a whole request may take.
pub(crate) const WHOLE_LIMIT: Duration = Duration::from_secs(30);

/// A client that asks `guard` about every address.
pub(crate) fn client(guard: &Guard) -> Result<reqwest::Client, String> {
    let resolver = Arc::new(Guarded { guard: guard.clone() });
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls()?)
        .dns_resolver(resolver)
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_LIMIT)
        .timeout(WHOLE_LIMIT)
        .user_agent(concat!("millpond/", env!("CARGO_PKG_VERSION")))
        .pool_max_idle_per_host(4)
        .build()
        .map_err(|error| error.to_string())
}

/// The host's certificates, verified with ring: read once, as that takes milliseconds.
fn tls() -> Result<rustls::ClientConfig, String> {
    static CONFIG: OnceLock<Result<rustls::ClientConfig, String>> = OnceLock::new();
    let build = || {
        let mut roots = rustls::RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    };
    CONFIG.get_or_init(build).clone()
}

/// Looks names up, and answers only addresses that the guard lets pass; the connection goes to one of those, without
/// a second look-up that could answer something else.
struct Guarded {
    guard: Guard,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.guard.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            if !guard.allows_host(&host) {
                // One address that is not public, and the name is not to be trusted with the others either.
                for address in &found {
                    guard.check(address.ip()).map_err(|why| io::Error::other(format!("`{host}`: {why}")))?;
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

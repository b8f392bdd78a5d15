//! Which addresses may be reached: those of the public internet, and what a configuration opens by name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Decides about addresses and ports.
///
/// Refused unless opened: loopback, private, link-local, shared, multicast, unspecified, documentation, reserved and
/// unique-local addresses, also inside IPv4-mapped, 6to4 and NAT64 forms.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    hosts: Vec<String>,
    nets: Vec<IpNet>,
    ports: Vec<u16>,
}

/// Why an address may not be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {what}; `outbound.allow` can open it")]
pub struct Forbidden {
    /// The address.
    pub address: IpAddr,
    /// What kind of address it is.
    pub what: &'static str,
}

impl Guard {
    /// Opens a host by its exact name, an address, a network such as `10.1.0.0/16`, or a port such as `:8080`.
    ///
    /// # Errors
    ///
    /// A sentence, when it is none of these.
    pub fn allow(mut self, text: &str) -> Result<Self, String> {
        if let Some(port) = text.strip_prefix(':') {
            self.ports.push(port.parse().map_err(|_| format!("`{text}` is not a port, such as :8080"))?);
        } else if let Ok(net) = text.parse() {
            self.nets.push(net);
        } else if let Ok(address) = text.parse::<IpAddr>() {
            self.nets.push(address.into());
        } else if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c)) {
            self.hosts.push(text.to_ascii_lowercase());
        } else {
            return Err(format!("`{text}` is not a host, an address, a network or a :port"));
        }
        Ok(self)
    }

    /// Whether a port may be reached.
    pub fn allows_port(&self, port: u16) -> bool {
        matches!(port, 80 | 443) || self.ports.contains(&port)
    }

    /// Whether every address of a host may be reached.
    pub fn allows_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    /// Decides about an address of a host that is not opened by its name.
    ///
    /// # Errors
    ///
    /// [`Forbidden`], with what kind of address it is.
    pub fn check(&self, address: IpAddr) -> Result<(), Forbidden> {
        if self.nets.iter().any(|net| net.contains(&address)) {
            return Ok(());
        }
        let what = match address {
            IpAddr::V4(v4) => kind_of_v4(v4),
            IpAddr::V6(v6) => kind_of_v6(v6),
        };
        what.map_or(Ok(()), |what| Err(Forbidden { address, what }))
    }
}

/// What a public address is not.
fn kind_of_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    Some(match (a, b, c) {
        (127, ..) => "a loopback address",
        (0, ..) => "an unspecified address",
        (10, ..) | (192, 168, _) => "a private address",
        (172, 16..=31, _) => "a private address",
        (169, 254, _) => "a link-local address",
        (100, 64..=127, _) => "a shared address",
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => "a documentation address",
        (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _) => "a reserved address",
        (224..=239, ..) => "a multicast address",
        (240..=255, ..) => "a reserved address",
        _ => return None,
    })
}

fn kind_of_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(inner) = inner_v4(address) {
        return kind_of_v4(inner);
    }
    let first = address.segments();
    Some(match first {
        _ if address.is_loopback() => "a loopback address",
        _ if address.is_unspecified() => "an unspecified address",
        [0xff00..=0xffff, ..] => "a multicast address",
        [0xfe80..=0xfebf, ..] => "a link-local address",
        [0xfec0..=0xfeff, ..] => "a site-local address",
        [0xfc00..=0xfdff, ..] => "a unique-local address",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "a documentation address",
        [0x2001, 0..=0x1ff, ..] => "a reserved address",
        // What is not global unicast belongs to nobody yet.
        [0x2000..=0x3fff, ..] => return None,
        _ => "a reserved address",
    })
}

/// The IPv4 address inside a mapped, compatible, 6to4 or NAT64 one.
fn inner_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let pair = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(pair(high, low)),
        // IPv4-compatible, but neither :: nor ::1.
        [0, 0, 0, 0, 0, 0, high, low] if 1 < u32::from(pair(high, low)) => Some(pair(high, low)),
        [0x2002, high, low, ..] => Some(pair(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(pair(high, low)),
        [0x64, 0xff9b, 1, _, _, _, high, low] => Some(pair(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_reached() {
        for (address, expected) in [
            ("93.184.216.34", ""),
            ("2606:2800:220:1::1", ""),
            ("127.0.0.1", "loopback"),
            ("127.9.9.9", "loopback"),
            ("0.0.0.0", "unspecified"),
            ("10.1.2.3", "private"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("172.32.0.1", ""),
            ("192.168.1.1", "private"),
            ("169.254.169.254", "link-local"),
            ("100.64.0.1", "shared"),
            ("192.0.2.1", "documentation"),
            ("198.18.0.1", "reserved"),
            ("224.0.0.1", "multicast"),
            ("255.255.255.255", "reserved"),
            ("::1", "loopback"),
            ("::", "unspecified"),
            ("fe80::1", "link-local"),
            ("fc00::1", "unique-local"),
            ("fd12::1", "unique-local"),
            ("ff02::1", "multicast"),
            ("2001:db8::1", "documentation"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:8.8.8.8", ""),
            ("::7f00:1", "loopback"),
            ("2002:7f00:1::", "loopback"),
            ("2002:a9fe:a9fe::", "link-local"),
            ("64:ff9b::a9fe:a9fe", "link-local"),
            ("64:ff9b::808:808", ""),
        ] {
            let found = Guard::default().check(address.parse().unwrap());
            match (found, expected) {
                (Ok(()), "") => {}
                (Err(why), part) if !part.is_empty() => assert!(why.what.contains(part), "{address}: {why}"),
                (found, _) => panic!("{address}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn a_configuration_opens_hosts_networks_and_ports() {
        let guard = Guard::default();
        let guard = ["10.1.0.0/16", "127.0.0.1", "hooks.internal", ":8080"]
            .into_iter()
            .try_fold(guard, Guard::allow)
            .unwrap();
        assert!(guard.check("10.1.200.3".parse().unwrap()).is_ok());
        assert!(guard.check("10.2.0.1".parse().unwrap()).is_err());
        assert!(guard.check("127.0.0.1".parse().unwrap()).is_ok());
        assert!(guard.allows_host("Hooks.Internal") && !guard.allows_host("other.internal"));
        assert!(guard.allows_port(8080) && guard.allows_port(443) && !guard.allows_port(5432));
        assert!(Guard::default().allow("what is this").is_err());
        assert!(Guard::default().allow(":http").is_err());
    }
}

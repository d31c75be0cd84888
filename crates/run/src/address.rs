//! Addresses that hooks and sandboxed agents may reach. Without this check a config, or a server that redirects, could
//! make cowhand send requests to this machine or its private network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;

/// Resolves the host of a URL. The caller connects only to the returned addresses, so a later DNS answer with other
/// addresses has no effect. Without `allow_private`, all addresses of the host have to be public.
pub async fn addresses(url: &Url, allow_private: bool) -> Result<Vec<SocketAddr>, Unreachable> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Unreachable::Refused(format!("{}: is not an http or https address", url.scheme())));
    }
    let refused = |why: &str| Unreachable::Refused(why.to_owned());
    let host = url.host_str().ok_or_else(|| refused("the web address has no host"))?;
    let port = url.port_or_known_default().ok_or_else(|| refused("the web address has no port"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => tokio::net::lookup_host((host, port))
            .await
            .map_err(|error| Unreachable::NotFound(format!("{host} cannot be found: {error}")))?
            .collect(),
    };
    let forbidden = found.iter().find(|found| !allow_private && !is_public(found.ip()));
    match forbidden {
        // One forbidden address is enough, because the connection may use any of the addresses.
        Some(forbidden) => Err(Unreachable::Private(match forbidden.ip().to_string() {
            address if address == host => format!("{host} is not a public address"),
            address => format!("{host} is {address}, which is not a public address"),
        })),
        None if found.is_empty() => Err(Unreachable::NotFound(format!("{host} has no address"))),
        None => Ok(found),
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The URL is never allowed.
    Refused(String),
    /// The host has an address that is not public. Such a host is allowed only with the setting for private addresses.
    Private(String),
    NotFound(String),
}

/// Returns true if the URL names this machine or its private network without a name lookup: by an address or as
/// `localhost`.
pub fn is_private_as_written(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<IpAddr>();
    address.map_or(host == "localhost" || host.ends_with(".localhost"), |address| !is_public(address))
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let benchmarks = a == 198 && matches!(b, 18 | 19);
    let protocols = (a, b, c) == (192, 0, 0) || (a, b, c) == (192, 88, 99);
    !(a == 0
        || a >= 240
        || shared
        || benchmarks
        || protocols
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast())
}

/// Returns true for assigned addresses (`2000::/3`) outside the special ranges. An IPv4-mapped address and a NAT64
/// address are public if their IPv4 address is public.
fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = address.to_ipv4_mapped() {
        return is_public_v4(inner);
    }
    // A NAT64 address ends with an IPv4 address.
    if let [0x64, 0xff9b, 0, 0, 0, 0, ..] = address.segments() {
        let [.., a, b, c, d] = address.octets();
        return is_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    let [a, b, ..] = address.segments();
    let allocated = a & 0xe000 == 0x2000;
    // 2001::/23 (Teredo and other protocols), documentation, 6to4.
    let special = (a == 0x2001 && b < 0x0200) || (a, b) == (0x2001, 0x0db8) || a == 0x2002 || a == 0x3fff;
    allocated && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_and_private_addresses_are_distinguished() {
        for public in [
            "1.1.1.1",
            "93.184.215.14",
            "100.63.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "192.0.0.192",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "fec0::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "::127.0.0.1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[tokio::test]
    async fn private_addresses_are_refused_in_every_notation() {
        for private in [
            "http://127.0.0.1/",
            "http://localhost/",
            "http://[::1]:8080/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "https://169.254.169.254/latest/",
            "http://[::ffff:10.0.0.1]/",
            "http://user@192.168.0.1/",
            "ftp://1.1.1.1/",
        ] {
            let refused = addresses(&Url::parse(private).unwrap(), false).await.unwrap_err();
            assert!(!matches!(refused, Unreachable::NotFound(_)), "{private}: {refused:?}");
            let is_web = private.starts_with("http");
            assert_eq!(is_private_as_written(&Url::parse(private).unwrap()), is_web, "{private}");
        }
        for public in ["https://example.com/", "http://8.8.8.8/", "http://[2606:4700::1111]/"] {
            assert!(!is_private_as_written(&Url::parse(public).unwrap()), "{public}");
        }
        let allowed = addresses(&Url::parse("http://127.0.0.1:81/").unwrap(), true).await.unwrap();
        assert_eq!(allowed, ["127.0.0.1:81".parse().unwrap()]);
        addresses(&Url::parse("https://1.1.1.1/").unwrap(), false).await.unwrap();
    }
}

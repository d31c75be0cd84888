//! Internet addresses that are public, and web addresses of this machine or its private network.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::Url;

/// Returns the host of a web address if the host is private as it is written: a private IP address in any notation, or
/// `localhost`. Looks up no names.
pub fn private_host_as_written(address: &str) -> Option<String> {
    let url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let shown = url.host_str()?;
    let host = shown.trim_start_matches('[').trim_end_matches(']');
    let is_local = host == "localhost" || host.ends_with(".localhost");
    let is_private = host.parse::<IpAddr>().map_or(is_local, |address| !is_public(address));
    is_private.then(|| shown.to_owned())
}

pub fn is_public(address: IpAddr) -> bool {
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

    #[test]
    fn private_hosts_are_found_in_every_notation() {
        for private in [
            "http://127.0.0.1/",
            "http://localhost/",
            "http://app.localhost/",
            "http://[::1]:8080/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "https://169.254.169.254/latest/",
            "http://[::ffff:10.0.0.1]/",
            "http://user@192.168.0.1/",
        ] {
            assert!(private_host_as_written(private).is_some(), "{private}");
        }
        for other in
            ["https://example.com/", "http://8.8.8.8/", "http://[2606:4700::1111]/", "ftp://127.0.0.1/", "x"]
        {
            assert_eq!(private_host_as_written(other), None, "{other}");
        }
        assert_eq!(private_host_as_written("http://[::1]/x").as_deref(), Some("[::1]"));
    }
}

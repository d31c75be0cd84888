//! Addresses that hooks and sandboxed agents may reach. Without this check a config, or a server that redirects, could
//! make cowhand send requests to this machine or its private network.

use std::net::{IpAddr, SocketAddr};

use cowhand_core::public_address::is_public;
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

#[cfg(test)]
mod tests {
    use super::*;

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
        }
        let allowed = addresses(&Url::parse("http://127.0.0.1:81/").unwrap(), true).await.unwrap();
        assert_eq!(allowed, ["127.0.0.1:81".parse().unwrap()]);
        addresses(&Url::parse("https://1.1.1.1/").unwrap(), false).await.unwrap();
    }
}

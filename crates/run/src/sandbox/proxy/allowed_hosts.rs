//! Hosts that the agent may reach.

use std::net::SocketAddr;

use cowhand_core::sandbox::Host;
use reqwest::Url;

use super::ProxyError;
use crate::address::{self, Unreachable};

pub(super) struct AllowedHosts(Vec<Host>);

impl AllowedHosts {
    pub(super) const fn new(hosts: Vec<Host>) -> Self {
        Self(hosts)
    }

    /// Returns the addresses of an allowed host, or why the host may not be reached. A name may resolve only to public
    /// addresses. A private address has to be listed itself, as an address or as `localhost`.
    pub(super) async fn addresses(&self, host: &Host) -> Result<Vec<SocketAddr>, ProxyError> {
        let Some(allowed) = self.0.iter().find(|allowed| allowed.covers(host)) else {
            return Err(ProxyError::NotAllowed);
        };
        let named = allowed.address().is_some() || allowed.name() == "localhost";
        let url = Url::parse(&format!("https://{host}/"))
            .map_err(|error| ProxyError::Address(error.to_string()))?;
        address::addresses(&url, named).await.map_err(|unreachable| match unreachable {
            Unreachable::Refused(why) | Unreachable::Private(why) | Unreachable::NotFound(why) => {
                ProxyError::Address(why)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_allowed_hosts_are_reached() {
        let hosts = ["127.0.0.1:81", "*.example.com", "localhost:82", "1.1.1.1"];
        let allowed = AllowedHosts::new(hosts.map(|host| host.parse().unwrap()).into());
        for (host, port, expected) in [
            ("127.0.0.1", 81, Ok("127.0.0.1:81")),
            ("127.0.0.1", 82, Err("not in `hosts`")),
            ("127.1", 81, Err("not in `hosts`")),
            ("2130706433", 81, Err("not in `hosts`")),
            ("169.254.169.254", 80, Err("not in `hosts`")),
            ("example.com", 443, Err("not in `hosts`")),
            ("1.1.1.1", 443, Ok("1.1.1.1:443")),
        ] {
            let found = allowed.addresses(&Host::new(host, port)).await;
            match expected {
                Ok(address) => assert_eq!(found.unwrap(), [address.parse().unwrap()], "{host}"),
                Err(word) => assert!(found.unwrap_err().to_string().contains(word), "{host}"),
            }
        }
        let local = allowed.addresses(&Host::new("LOCALHOST", 82)).await.unwrap();
        assert!(local.iter().all(|address| address.ip().is_loopback()), "{local:?}");
        // A name with a private address is refused.
        let named = AllowedHosts::new(vec!["*.localhost:81".parse().unwrap()]);
        let refused = named.addresses(&Host::new("x.localhost", 81)).await.unwrap_err().to_string();
        assert!(refused.contains("not a public address") || refused.contains("cannot be found"), "{refused}");
    }
}

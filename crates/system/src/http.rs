//! The set-up of HTTP clients.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::ClientBuilder;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;

/// Value of the `User-Agent` header in cowhand's requests.
pub const USER_AGENT: &str = concat!("cowhand/", env!("CARGO_PKG_VERSION"));

/// Returns the builder of a client that follows no redirects, because its headers and keys are only for the configured
/// address.
pub fn client_builder() -> ClientBuilder {
    // Building a client panics if no crypto provider is installed. Another part of this process may have installed
    // one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().redirect(Policy::none())
}

/// Lets a client connect only to these addresses, whatever host name a request has. A host that is an IP address is not
/// resolved, so the caller has to check it. No proxy is used, because a proxy would resolve the name itself.
pub fn connect_only_to(client: ClientBuilder, addresses: Vec<SocketAddr>) -> ClientBuilder {
    client.no_proxy().dns_resolver(Arc::new(FixedResolver(addresses)))
}

/// Resolver that returns the same addresses for every name.
#[derive(Debug)]
struct FixedResolver(Vec<SocketAddr>);

impl Resolve for FixedResolver {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

//! The settings of a fleet's HTTP server: its address, host names and TLS files; and the scopes of tokens.

// Rust's `core::net` and not `std::net`, because an address is only a value and no socket is opened here.
use core::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::word::written_as;

/// The server: the API, the dashboard and webhooks over HTTP. Only the key of the root file counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Server")]
pub struct ServerConfig {
    /// Listen on `listen`; `false` means that only the socket in the state folder answers.
    pub enabled: bool,
    /// Address and port; port 0 takes a free one. For access from other machines, set `tls` or use a TLS proxy.
    #[schemars(with = "String", extend("format" = "address"))]
    pub listen: SocketAddr,
    /// True if the address is configured. If it is not, and another program uses the default port, the server takes a
    /// free port.
    #[serde(skip)]
    pub listen_chosen: bool,
    /// Host names without a port under which the server answers, in addition to the names of this machine and the
    /// server's own address.
    #[schemars(inner(regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$")))]
    pub allowed_hosts: Vec<String>,
    /// TLS settings; unset means plain HTTP.
    pub tls: Option<TlsConfig>,
}

/// Files for TLS; read at the start and at each reload of the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Tls")]
pub struct TlsConfig {
    /// File with the certificate in PEM form, followed by its chain. The path is relative to the root file.
    pub certificate: PathBuf,
    /// File with the certificate's private key in PEM form. The path is relative to the root file.
    pub key: PathBuf,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 3232));
        Self { enabled: true, listen, listen_chosen: false, allowed_hosts: Vec::new(), tls: None }
    }
}

/// Rights of a token; each scope includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// View everything except tokens, findings of `doctor` and backups.
    Read,
    /// Create, cancel and control work.
    Operate,
    /// Delete jobs permanently, stop the daemon, run `doctor`, and manage tokens and login links.
    Admin,
}

written_as! {
    Scope { Read = "read", Operate = "operate", Admin = "admin" }
}

impl ServerConfig {
    /// Resolves the paths of its files, which are relative to the `folder` of the root file.
    #[must_use]
    pub fn below(mut self, folder: &Path) -> Self {
        if let Some(tls) = &mut self.tls {
            for path in [&mut tls.certificate, &mut tls.key] {
                *path = folder.join(&*path);
            }
        }
        self
    }

    /// Returns the configured address if other machines can reach it. Unsigned deliveries are refused there.
    pub fn outside(&self) -> Option<SocketAddr> {
        Some(self.listen).filter(|listen| self.enabled && !listen.ip().is_loopback())
    }

    /// Checks whether `Host: host` is a name of this server, to reject foreign names that resolve to this machine.
    pub fn is_named(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        let own = self.listen.ip();
        let own = if own.is_ipv6() { format!("[{own}]") } else { own.to_string() };
        ["localhost", "127.0.0.1", "[::1]", &own].contains(&name.as_str())
            || self.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(&name))
    }
}

/// Removes the port. A port that is not a number stays, so that the name matches nothing.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !is_open_bracket(name) => name,
        _ => host,
    }
}

/// Checks whether the text before a colon ends inside an address in brackets, so that no port follows the colon.
fn is_open_bracket(name: &str) -> bool {
    name.starts_with('[') && !name.ends_with(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_host_names_are_accepted() {
        let server = ServerConfig {
            listen: "192.0.2.7:3232".parse().unwrap(),
            allowed_hosts: vec!["Fleet.example.org".into()],
            ..ServerConfig::default()
        };
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:3232", true),
            ("127.0.0.1:9", true),
            ("[::1]", true),
            ("[::1]:3232", true),
            ("192.0.2.7:3232", true),
            ("fleet.example.org", true),
            ("fleet.example.org:443", true),
            ("", false),
            (":3232", false),
            ("evil.example.org", false),
            ("localhost.evil.example.org", false),
            ("evil.org:localhost", false),
            ("localhost:", false),
            ("localhost:99999", false),
            ("localhost@evil.org", false),
            ("[::1", false),
            ("::1", false),
            ("127.0.0.1.", false),
            ("127.1", false),
        ] {
            assert_eq!(server.is_named(host), expected, "{host:?}");
        }
        let server = ServerConfig { listen: "[2001:db8::1]:1".parse().unwrap(), ..ServerConfig::default() };
        assert!(server.is_named("[2001:db8::1]:8080") && !server.is_named("[2001:db8::2]:8080"));
    }

    #[test]
    fn relative_tls_paths_are_resolved_against_the_fleet_folder() {
        let tls = TlsConfig { certificate: "tls/a.pem".into(), key: "/etc/a.key".into() };
        let server = ServerConfig { tls: Some(tls), ..ServerConfig::default() }.below(Path::new("/fleet"));
        let tls = server.tls.unwrap();
        assert_eq!((tls.certificate, tls.key), ("/fleet/tls/a.pem".into(), "/etc/a.key".into()));
    }

    #[test]
    fn each_scope_includes_the_lower_scopes() {
        assert!(Scope::Read < Scope::Operate && Scope::Operate < Scope::Admin);
        assert_eq!("operate".parse(), Ok(Scope::Operate));
        assert!("root".parse::<Scope>().is_err());
    }
}

//! A host that may be reached, by name or address, with its port.

use core::net::IpAddr;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const HTTPS: u16 = 443;

/// A host, `api.example.com`, `*.example.com`, `10.0.0.7` or `[::1]`, with an optional port; the default is 443.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "host", "examples" = ["api.example.com", "*.example.com:8443"]))]
pub struct Host {
    name: String,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a host; for example api.example.com, *.example.com:8443 or 10.0.0.7:8080")]
pub struct HostError(String);

impl Host {
    /// Creates a host. The name is converted to lower case, without dots at its end.
    pub fn new(name: &str, port: u16) -> Self {
        Self { name: name.trim_end_matches('.').to_ascii_lowercase(), port }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the IP address if the name is an address.
    pub fn address(&self) -> Option<IpAddr> {
        self.name.parse().ok()
    }

    /// Checks whether access to this host includes access to the other.
    pub fn covers(&self, other: &Self) -> bool {
        if self.port != other.port {
            return false;
        }
        match self.name.strip_prefix("*.") {
            Some(above) => {
                let inner = other.name.strip_prefix("*.").unwrap_or(&other.name);
                let is_above = |name: &str| name.strip_suffix(above).is_some_and(|sub| sub.ends_with('.'));
                is_above(inner) && other.address().is_none() || other.name == self.name
            }
            None => match (self.address(), other.address()) {
                (Some(own), Some(other)) => own == other,
                _ => self.name == other.name,
            },
        }
    }
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let wrong = || HostError(text.to_owned());
        let (name, port) = if let Some(rest) = text.strip_prefix('[') {
            let (name, port) = rest.split_once(']').ok_or_else(wrong)?;
            let port = match port {
                "" => None,
                port => Some(port.strip_prefix(':').ok_or_else(wrong)?),
            };
            name.parse::<core::net::Ipv6Addr>().map_err(|_| wrong())?;
            (name, port)
        } else {
            match text.rsplit_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            }
        };
        let port = port.map_or(Ok(HTTPS), |port| port.parse().map_err(|_| wrong()))?;
        let is_address = name.parse::<IpAddr>().is_ok();
        let labels = name.strip_prefix("*.").unwrap_or(name).trim_end_matches('.');
        let is_label = |label: &str| {
            !label.is_empty()
                && !label.starts_with('-')
                && label
                    .chars()
                    .all(|character| character.is_ascii_alphanumeric() || matches!(character, '-' | '_'))
        };
        // A name without a letter is an address in an invalid form.
        let named = labels.split('.').all(is_label)
            && labels.contains(|character: char| character.is_ascii_alphabetic());
        if port == 0 || !(is_address || named) {
            return Err(wrong());
        }
        Ok(Self::new(name, port))
    }
}

impl TryFrom<String> for Host {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self, HostError> {
        text.parse()
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.to_string()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

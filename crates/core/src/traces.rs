//! The destination of job traces: the keys of `traces`.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Traces of ended jobs for an OpenTelemetry collector. Only the key of the root file counts, and it overrides the
/// variables `OTEL_EXPORTER_OTLP_…`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Traces")]
pub struct TracesConfig {
    /// Address of the collector for OTLP over HTTP; `/v1/traces` is appended. Unset means that nothing is sent,
    /// whatever the variables contain.
    #[schemars(extend("format" = "uri"))]
    pub endpoint: Option<String>,
    /// Headers of each request, for example with a key for the collector.
    #[schemars(extend("x-secret" = true))]
    pub headers: IndexMap<String, String>,
}

impl TracesConfig {
    /// Returns the wrong key, if there is one, and a message that contains no secrets.
    pub fn validate(&self) -> Option<(&'static str, String)> {
        let plain = |endpoint: &String| !endpoint.contains(['@', '?', '#']);
        if !self.endpoint.iter().all(plain) {
            let message =
                "the address of a collector must not contain a user or a query; put a key into `headers`";
            return Some(("endpoint", message.to_owned()));
        }
        let is_bad = |(name, value): &(&String, &String)| !is_name(name) || !is_value(value);
        let (name, _) = self.headers.iter().find(is_bad)?;
        Some(("headers", format!("{name:?} with this value is not a valid HTTP header")))
    }
}

fn is_name(name: &str) -> bool {
    let sign = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(sign)
}

fn is_value(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_headers_are_refused() {
        let bad = |name: &str, value: &str| {
            let headers =
                IndexMap::from([("ok".to_owned(), "1".to_owned()), (name.to_owned(), value.to_owned())]);
            TracesConfig { endpoint: None, headers }.validate().map(|(_, message)| message)
        };
        for (name, value) in [("x-api-key", "a b\t~"), ("Authorization", "Basic YTpi"), ("empty", "")] {
            assert_eq!(bad(name, value), None, "{name}");
        }
        for (name, value) in [("", "x"), ("a b", "x"), ("a:", "x"), ("ä", "x"), ("a", "x\ny"), ("a", "é")] {
            assert!(bad(name, value).unwrap().starts_with(&format!("{name:?}")), "{value:?}");
        }
    }
}

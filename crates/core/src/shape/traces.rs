//! Where traces of jobs go.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A trace of each job that has ended, for a collector of OpenTelemetry. Only the root file's counts, and it counts
/// over the variables `OTEL_EXPORTER_OTLP_…`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Traces {
    /// The collector's address for OTLP over HTTP; `/v1/traces` is added to it. Unset means that nothing is sent,
    /// whatever the variables say.
    #[schemars(extend("format" = "uri"))]
    pub endpoint: Option<String>,
    /// Sent with each request, for example a key of the collector's.
    #[schemars(extend("x-secret" = true))]
    pub headers: IndexMap<String, String>,
}

impl Traces {
    /// The key that is wrong, and how, in words that hold nothing of what may be secret.
    pub fn complaint(&self) -> Option<(&'static str, String)> {
        let plain = |endpoint: &String| !endpoint.contains(['@', '?', '#']);
        if !self.endpoint.iter().all(plain) {
            let message = "an address of a collector has no user and no query; a key belongs in `headers`";
            return Some(("endpoint", message.to_owned()));
        }
        let is_bad = |(name, value): &(&String, &String)| !is_name(name) || !is_value(value);
        let (name, _) = self.headers.iter().find(is_bad)?;
        Some(("headers", format!("{name:?} with this value cannot be a header of HTTP")))
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
    fn headers_that_cannot_be() {
        let bad = |name: &str, value: &str| {
            let headers =
                IndexMap::from([("ok".to_owned(), "1".to_owned()), (name.to_owned(), value.to_owned())]);
            Traces { endpoint: None, headers }.complaint().map(|(_, message)| message)
        };
        for (name, value) in [("x-api-key", "a b\t~"), ("Authorization", "Basic YTpi"), ("empty", "")] {
            assert_eq!(bad(name, value), None, "{name}");
        }
        for (name, value) in [("", "x"), ("a b", "x"), ("a:", "x"), ("ä", "x"), ("a", "x\ny"), ("a", "é")] {
            assert!(bad(name, value).unwrap().starts_with(&format!("{name:?}")), "{value:?}");
        }
    }
}

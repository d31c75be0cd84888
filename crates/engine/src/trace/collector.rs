//! The collector of traces: from the config, or from the standard variables of OpenTelemetry.

use cowhand_core::traces::TracesConfig;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::error::TraceError;

pub(super) struct Collector {
    pub(super) url: Url,
    /// HTTP headers, some of which are secret.
    pub(super) headers: HeaderMap,
}

const PATH: &str = "v1/traces";

impl Collector {
    /// Returns the configured collector; `None` if there is none.
    pub(super) fn wanted(
        config: Option<&TracesConfig>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, TraceError> {
        if let Some(traces) = config {
            let Some(endpoint) = &traces.endpoint else { return Ok(None) };
            let url = address("`traces.endpoint`", &below(endpoint))?;
            let headers = traces.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
            return Ok(Some(Self { url, headers: collect("`traces.headers`", headers)? }));
        }
        let (name, endpoint) = match variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            // This variable is the whole address; the general one is the base address of all signals.
            Some(endpoint) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint),
            None => match variable("OTEL_EXPORTER_OTLP_ENDPOINT") {
                Some(endpoint) => ("OTEL_EXPORTER_OTLP_ENDPOINT", below(&endpoint)),
                None => return Ok(None),
            },
        };
        let url = address(name, &endpoint)?;
        let headers = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
        let headers = headers.into_iter().find_map(|name| Some((name, variable(name)?)));
        let headers = headers.map(|(name, written)| collect(name, pairs(&written))).transpose()?;
        Ok(Some(Self { url, headers: headers.unwrap_or_default() }))
    }

    /// Returns the address for display: without user, password and query.
    pub(super) fn place(&self) -> String {
        let mut url = self.url.clone();
        // Neither can fail for an address with a host.
        let _ = (url.set_username(""), url.set_password(None));
        url.set_query(None);
        url.to_string()
    }
}

fn below(endpoint: &str) -> String {
    format!("{}/{PATH}", endpoint.trim_end_matches('/'))
}

/// Parses an address. An error names the location and not the value, which may contain a key.
fn address(place: &str, text: &str) -> Result<Url, TraceError> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.filter(|url| url.host().is_some());
    url.ok_or_else(|| TraceError::NotAnAddress { place: place.to_owned() })
}

/// Parses `name=value,other=value`, with percent-encoded values.
fn pairs(written: &str) -> impl Iterator<Item = (String, String)> {
    written.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value.trim()).decode_utf8_lossy().into_owned();
        (name.trim().to_owned(), value)
    })
}

fn collect(place: &str, pairs: impl Iterator<Item = (String, String)>) -> Result<HeaderMap, TraceError> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let parsed = HeaderName::try_from(&name).ok().zip(HeaderValue::try_from(&value).ok());
        let Some((name, mut value)) = parsed else {
            return Err(TraceError::NotAHeader { place: place.to_owned() });
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(config: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<(String, String)>, String> {
        let config: Option<TracesConfig> = config.map(|json| serde_json::from_str(json).unwrap());
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let collector = Collector::wanted(config.as_ref(), variable).map_err(|error| error.to_string())?;
        Ok(collector.map(|collector| {
            let headers = collector.headers.iter();
            let headers = headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
            (collector.url.to_string(), headers.collect::<Vec<_>>().join("; "))
        }))
    }

    #[test]
    fn where_they_go() {
        const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        const ONLY: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
        let to = |url: &str, headers: &str| Ok(Some((url.to_owned(), headers.to_owned())));
        let all = (ALL, "http://a:4318/");
        for (config, variables, expected) in [
            (None, &[][..], Ok(None)),
            (None, &[(HEADERS, "a=b")], Ok(None)),
            (None, &[all], to("http://a:4318/v1/traces", "")),
            (None, &[(ALL, "https://a/otlp")], to("https://a/otlp/v1/traces", "")),
            (None, &[all, (ONLY, "http://b:1/x")], to("http://b:1/x", "")),
            (
                None,
                &[all, (HEADERS, "Api-Key=a%20b, other = c=d ,,")],
                to("http://a:4318/v1/traces", "api-key: a b; other: c=d"),
            ),
            (
                None,
                &[all, (HEADERS, "a=1"), ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "b=2")],
                to("http://a:4318/v1/traces", "b: 2"),
            ),
            (Some("{}"), &[all], Ok(None)),
            (
                Some(r#"{"endpoint":"http://c:1/base/","headers":{"X-Key":"k"}}"#),
                &[all, (HEADERS, "a=1")],
                to("http://c:1/base/v1/traces", "x-key: k"),
            ),
        ] {
            assert_eq!(wanted(config, variables), expected, "{config:?} {variables:?}");
        }
    }

    #[test]
    fn what_is_wrong_shows_no_value() {
        const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let bad_headers = [(ALL, "http://a"), ("OTEL_EXPORTER_OTLP_HEADERS", "canary key=canary")];
        for variables in [&[(ALL, "canary:4317")][..], &[(ALL, "grpc://canary")], &bad_headers] {
            let trouble = wanted(None, variables).unwrap_err();
            assert!(trouble.contains("OTEL_") && !trouble.contains("canary"), "{trouble}");
        }
        let variable = |_: &str| Some("http://canary:canary@a:1/b?key=canary".to_owned());
        let place =
            Collector::wanted(None, variable).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(!place.contains("canary"), "{place}");
        let url = Url::parse("http://canary:canary@a:1/b?key=canary").unwrap();
        assert_eq!(Collector { url, headers: HeaderMap::new() }.place(), "http://a:1/b");
    }
}

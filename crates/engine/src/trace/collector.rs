//! The collector of traces: from the config, or from the standard variables of OpenTelemetry.

use cowhand_core::traces::TracesConfig;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::error::TraceError;
use crate::collector_headers::{HEADER_VARIABLES, parse_pairs};

pub(super) struct Collector {
    pub(super) url: Url,
    /// HTTP headers, some of which are secret.
    pub(super) headers: HeaderMap,
}

const PATH: &str = "v1/traces";

impl Collector {
    /// Returns the configured collector; `None` if there is none. If the config has `traces`, the variables are not
    /// used: `traces` without an `endpoint` means that there is no collector.
    pub(super) fn configured(
        config: Option<&TracesConfig>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, TraceError> {
        if let Some(traces) = config {
            let Some(endpoint) = &traces.endpoint else { return Ok(None) };
            let url = address("`traces.endpoint`", &traces_url(endpoint))?;
            let headers = traces.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
            return Ok(Some(Self { url, headers: header_map("`traces.headers`", headers)? }));
        }
        let (name, endpoint) = match variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            // This variable is the whole address. The general variable is the base address of all signals.
            Some(endpoint) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint),
            None => match variable("OTEL_EXPORTER_OTLP_ENDPOINT") {
                Some(endpoint) => ("OTEL_EXPORTER_OTLP_ENDPOINT", traces_url(&endpoint)),
                None => return Ok(None),
            },
        };
        let url = address(name, &endpoint)?;
        let headers = HEADER_VARIABLES.into_iter().find_map(|name| Some((name, variable(name)?)));
        let headers = headers.map(|(name, text)| header_map(name, parse_pairs(&text))).transpose()?;
        Ok(Some(Self { url, headers: headers.unwrap_or_default() }))
    }

    /// Returns the address for display: without user, password and query.
    pub(super) fn display_address(&self) -> String {
        let mut url = self.url.clone();
        // These calls cannot fail for an address with a host.
        let _ = (url.set_username(""), url.set_password(None));
        url.set_query(None);
        url.to_string()
    }
}

fn traces_url(endpoint: &str) -> String {
    format!("{}/{PATH}", endpoint.trim_end_matches('/'))
}

/// Parses an address. An error names the setting and not the value, which may contain a key.
fn address(setting: &str, text: &str) -> Result<Url, TraceError> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.filter(|url| url.host().is_some());
    url.ok_or_else(|| TraceError::NotAnAddress { setting: setting.to_owned() })
}

fn header_map(setting: &str, pairs: impl Iterator<Item = (String, String)>) -> Result<HeaderMap, TraceError> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let parsed = HeaderName::try_from(&name).ok().zip(HeaderValue::try_from(&value).ok());
        let Some((name, mut value)) = parsed else {
            return Err(TraceError::NotAHeader { setting: setting.to_owned() });
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collector_of(
        config: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Result<Option<(String, String)>, String> {
        let config: Option<TracesConfig> = config.map(|json| serde_json::from_str(json).unwrap());
        let variable = |name: &str| {
            variables
                .iter()
                .find(|(variable_name, _)| *variable_name == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let collector =
            Collector::configured(config.as_ref(), variable).map_err(|error| error.to_string())?;
        Ok(collector.map(|collector| {
            let headers = collector.headers.iter();
            let headers = headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
            (collector.url.to_string(), headers.collect::<Vec<_>>().join("; "))
        }))
    }

    #[test]
    fn config_and_variables_set_collector_address_and_headers() {
        const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        const ONLY: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
        let collector = |url: &str, headers: &str| Ok(Some((url.to_owned(), headers.to_owned())));
        let all = (ALL, "http://a:4318/");
        for (config, variables, expected) in [
            (None, &[][..], Ok(None)),
            (None, &[(HEADERS, "a=b")], Ok(None)),
            (None, &[all], collector("http://a:4318/v1/traces", "")),
            (None, &[(ALL, "https://a/otlp")], collector("https://a/otlp/v1/traces", "")),
            (None, &[all, (ONLY, "http://b:1/x")], collector("http://b:1/x", "")),
            (
                None,
                &[all, (HEADERS, "Api-Key=a%20b, other = c=d ,,")],
                collector("http://a:4318/v1/traces", "api-key: a b; other: c=d"),
            ),
            (
                None,
                &[all, (HEADERS, "a=1"), ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "b=2")],
                collector("http://a:4318/v1/traces", "b: 2"),
            ),
            (Some("{}"), &[all], Ok(None)),
            (
                Some(r#"{"endpoint":"http://c:1/base/","headers":{"X-Key":"k"}}"#),
                &[all, (HEADERS, "a=1")],
                collector("http://c:1/base/v1/traces", "x-key: k"),
            ),
        ] {
            assert_eq!(collector_of(config, variables), expected, "{config:?} {variables:?}");
        }
    }

    #[test]
    fn errors_and_addresses_show_no_secret() {
        const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let bad_headers = [(ALL, "http://a"), ("OTEL_EXPORTER_OTLP_HEADERS", "canary key=canary")];
        for variables in [&[(ALL, "canary:4317")][..], &[(ALL, "grpc://canary")], &bad_headers] {
            let error = collector_of(None, variables).unwrap_err();
            assert!(error.contains("OTEL_") && !error.contains("canary"), "{error}");
        }
        let variable = |_: &str| Some("http://canary:canary@a:1/b?key=canary".to_owned());
        let error =
            Collector::configured(None, variable).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(!error.contains("canary"), "{error}");
        let url = Url::parse("http://canary:canary@a:1/b?key=canary").unwrap();
        assert_eq!(Collector { url, headers: HeaderMap::new() }.display_address(), "http://a:1/b");
    }
}

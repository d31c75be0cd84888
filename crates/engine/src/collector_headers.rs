//! The headers for a trace collector in the standard variables of OpenTelemetry. Their values are secrets.

use percent_encoding::percent_decode_str;

/// Variables with headers for the collector. The first one that is set counts.
pub(crate) const HEADER_VARIABLES: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

/// Returns each header value of a variable of OpenTelemetry twice: decoded, and as it is written. Returns nothing for
/// other variables.
pub(crate) fn header_values(name: &str, text: &str) -> Vec<String> {
    if !HEADER_VARIABLES.contains(&name) {
        return Vec::new();
    }
    let written = text.split(',').filter_map(|pair| Some(pair.split_once('=')?.1.trim().to_owned()));
    parse_pairs(text).map(|(_, value)| value).chain(written).collect()
}

/// Parses `name=value,other=value`, with percent-encoded values.
pub(crate) fn parse_pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value.trim()).decode_utf8_lossy().into_owned();
        (name.trim().to_owned(), value)
    })
}

//! Reads requests to the Web API: forms, JSON and multipart bodies.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// Returns the parameters of a request. Values that are JSON lists or objects in a form are parsed.
pub(crate) fn params(content_type: &str, query: &str, body: &[u8]) -> Value {
    let mut params = Map::new();
    read_form(query, &mut params);
    if content_type.starts_with("application/json") {
        if let Ok(Value::Object(fields)) = serde_json::from_slice(body) {
            params.extend(fields);
        }
    } else if content_type.starts_with("application/x-www-form-urlencoded") {
        read_form(std::str::from_utf8(body).unwrap_or_default(), &mut params);
    }
    for name in ["blocks", "metadata", "files"] {
        let parsed = params.get(name).and_then(|value| serde_json::from_str(value.as_str()?).ok());
        if let Some(parsed) = parsed {
            params.insert(name.to_owned(), parsed);
        }
    }
    Value::Object(params)
}

fn read_form(form: &str, params: &mut Map<String, Value>) {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    for pair in form.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        params.insert(decode(name), Value::String(decode(value)));
    }
}

/// Returns the content of an uploaded file: the body itself, or the part of a multipart body that has a file name.
pub(crate) fn uploaded_bytes(content_type: &str, body: &[u8]) -> Vec<u8> {
    let Some((_, boundary)) = content_type.split_once("multipart/form-data; boundary=") else {
        return body.to_vec();
    };
    let delimiter = format!("--{}", boundary.trim_matches('"'));
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
    let mut rest = body;
    while let Some(start) = find(rest, delimiter.as_bytes()) {
        rest = &rest[start + delimiter.len()..];
        let Some(length) = find(rest, delimiter.as_bytes()) else { break };
        let part = &rest[..length];
        let Some(head) = find(part, b"\r\n\r\n") else { continue };
        if find(&part[..head], b"filename=").is_some() {
            return part[head + 4..part.len() - 2].to_vec();
        }
    }
    Vec::new()
}

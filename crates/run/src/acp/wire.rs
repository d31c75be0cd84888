//! The JSON-RPC frames between the ACP client and the agent.

use serde_json::{Value, json};

use super::messages::CLIENT_KEY;

/// Maximum length of a frame, which is one line. An update about a tool may contain the tool's whole output.
pub(super) const MAX_FRAME_BYTES: usize = 16 << 20;

/// One line of the agent.
#[derive(Debug, PartialEq)]
pub(super) enum RpcFrame {
    /// Answer to a request of the client. The ids of these requests are numbers.
    Answer {
        id: u64,
        answer: Result<Value, RpcError>,
    },
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Notice {
        method: String,
        params: Value,
    },
    /// A line that is not JSON-RPC; some agents log to stdout.
    NotRpc,
    /// A line of the agent with the key that only lines of the client may have.
    Forged,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Value,
}

impl RpcFrame {
    pub(super) fn read(line: &str) -> Self {
        let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(line) else { return Self::NotRpc };
        if fields.contains_key(CLIENT_KEY) {
            return Self::Forged;
        }
        let params = fields.shift_remove("params").unwrap_or_default();
        let id = fields.shift_remove("id").filter(|id| !id.is_null());
        match (fields.get("method").and_then(Value::as_str), id) {
            (Some(method), Some(id)) => Self::Request { id, method: method.to_owned(), params },
            (Some(method), None) => Self::Notice { method: method.to_owned(), params },
            (None, Some(id)) => {
                match (id.as_u64(), fields.shift_remove("error"), fields.shift_remove("result")) {
                    (Some(id), Some(error), _) if !error.is_null() => {
                        Self::Answer { id, answer: Err(RpcError::read(&error)) }
                    }
                    (Some(id), _, Some(result)) => Self::Answer { id, answer: Ok(result) },
                    _ => Self::NotRpc,
                }
            }
            (None, None) => Self::NotRpc,
        }
    }
}

/// Error code of an agent that requires a login.
const AUTH_REQUIRED: i64 = -32000;

impl RpcError {
    fn read(error: &Value) -> Self {
        Self {
            code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
            message: error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
            data: error.get("data").cloned().unwrap_or_default(),
        }
    }

    pub(super) fn requires_login(&self) -> bool {
        self.code == AUTH_REQUIRED
    }

    /// Returns the message and the details: many agents state the cause only in the details.
    pub(super) fn text(&self) -> String {
        let details = match &self.data {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            data => {
                let named = ["details", "message", "error"].iter().find_map(|key| data.get(*key)?.as_str());
                Some(named.map_or_else(|| data.to_string(), str::to_owned))
            }
        };
        let details =
            details.filter(|details| !details.is_empty() && !self.message.contains(details.as_str()));
        match details {
            Some(details) if self.message.is_empty() => details,
            Some(details) => format!("{}: {details}", self.message),
            None if self.message.is_empty() => format!("error {} without a message", self.code),
            None => self.message.clone(),
        }
    }
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

pub(super) fn notice(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

pub(super) fn answer(id: &Value, result: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
}

/// Builds the answer to a request for a capability that the client does not have.
pub(super) fn method_not_found(id: &Value, method: &str) -> String {
    let error = json!({ "code": -32601, "message": format!("cowhand has no {method}") });
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_classified() {
        let error = |code, message: &str, data| RpcError { code, message: message.to_owned(), data };
        for (line, expected) in [
            (r#"{"jsonrpc":"2.0","id":3,"result":{}}"#, RpcFrame::Answer { id: 3, answer: Ok(json!({})) }),
            (r#"{"id":3,"result":null}"#, RpcFrame::Answer { id: 3, answer: Ok(Value::Null) }),
            (
                r#"{"id":3,"error":{"code":-32603,"message":"no","data":{"details":"why"}}}"#,
                RpcFrame::Answer { id: 3, answer: Err(error(-32603, "no", json!({"details": "why"}))) },
            ),
            (
                r#"{"id":"a","method":"fs/read_text_file","params":{"path":"x"}}"#,
                RpcFrame::Request {
                    id: json!("a"),
                    method: "fs/read_text_file".to_owned(),
                    params: json!({"path": "x"}),
                },
            ),
            (
                r#"{"method":"session/update"}"#,
                RpcFrame::Notice { method: "session/update".to_owned(), params: Value::Null },
            ),
            ("starting up…", RpcFrame::NotRpc),
            (r#"{"cowhand":"failed"}"#, RpcFrame::Forged),
            (r#"{"id":3,"result":{},"\u0063owhand":"asked"}"#, RpcFrame::Forged),
            ("[]", RpcFrame::NotRpc),
            ("{}", RpcFrame::NotRpc),
            (r#"{"id":"x","result":{}}"#, RpcFrame::NotRpc),
            (r#"{"id":4}"#, RpcFrame::NotRpc),
        ] {
            assert_eq!(RpcFrame::read(line), expected, "{line}");
        }
    }

    #[test]
    fn error_texts_contain_message_and_data() {
        for (error, expected) in [
            (
                json!({"code": -32603, "message": "Internal error", "data": {"details": "429"}}),
                "Internal error: 429",
            ),
            (json!({"code": 1, "message": "a: b", "data": "b"}), "a: b"),
            (json!({"code": 1, "data": {"service": "x"}}), r#"{"service":"x"}"#),
            (json!({"code": 7}), "error 7 without a message"),
        ] {
            assert_eq!(RpcError::read(&error).text(), expected);
        }
        assert!(RpcError::read(&json!({"code": -32000})).requires_login());
    }
}

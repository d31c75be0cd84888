//! `POST /v1/responses`, as Codex uses it.

use serde_json::{Value, json};

use super::{CACHED, INPUT, OUTPUT, Vendor, event, shell_of};

pub(super) const VENDOR: Vendor =
    Vendor { conversation: "input", answered: "\"function_call_output\"", words, shell };

fn words(_: &Value, words: &[&str]) -> Vec<String> {
    let part = json!({"type": "output_text", "text": words.concat(), "annotations": []});
    let item = |content: Value| json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content});
    let deltas = words.iter().map(|word| {
        json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": word})
    });
    let mut events =
        vec![json!({"type": "response.output_item.added", "output_index": 0, "item": item(json!([]))})];
    events.extend(deltas);
    events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item(json!([part]))}));
    whole(events)
}

fn shell(request: &Value, command: &str) -> Vec<String> {
    let name = shell_of(&request["tools"]).unwrap_or_default();
    let arguments = match name.as_str() {
        "exec_command" => json!({"cmd": command, "yield_time_ms": 30_000}),
        "shell" => json!({"command": ["bash", "-c", command]}),
        _ => json!({"command": command}),
    };
    let item = json!({
        "id": "fc_1", "type": "function_call", "call_id": "call_1", "name": name, "status": "completed",
        "arguments": arguments.to_string(),
    });
    whole(vec![json!({"type": "response.output_item.done", "output_index": 0, "item": item})])
}

fn whole(inner: Vec<Value>) -> Vec<String> {
    let usage = json!({
        "input_tokens": INPUT + CACHED, "input_tokens_details": {"cached_tokens": CACHED},
        "output_tokens": OUTPUT, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": INPUT + CACHED + OUTPUT,
    });
    let mut events = vec![json!({"type": "response.created", "response": {"id": "resp_1"}})];
    events.extend(inner);
    events.push(json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [], "usage": usage}}));
    events.iter().map(|data| event(data["type"].as_str(), data)).collect()
}

//! `POST /v1/messages`, as Claude Code uses it.

use serde_json::{Value, json};

use super::{CACHED, INPUT, OUTPUT, Vendor, event, shell_of};

pub(super) const VENDOR: Vendor =
    Vendor { conversation: "messages", answered: "\"tool_result\"", words, shell };

fn words(request: &Value, words: &[&str]) -> Vec<String> {
    if request["stream"] != true {
        let content = json!([{"type": "text", "text": words.concat()}]);
        return vec![message(request, &content, "end_turn").to_string()];
    }
    let deltas = words.iter().map(|word| json!({"type": "text_delta", "text": word}));
    stream(request, &json!({"type": "text", "text": ""}), deltas.collect(), "end_turn")
}

fn shell(request: &Value, command: &str) -> Vec<String> {
    let name = shell_of(&request["tools"]).unwrap_or_default();
    let input = json!({"command": command, "description": "say a word"}).to_string();
    let block = json!({"type": "tool_use", "id": "toolu_1", "name": name, "input": {}});
    stream(request, &block, vec![json!({"type": "input_json_delta", "partial_json": input})], "tool_use")
}

/// Streams a question to a person; only Claude Code has the MCP server for it.
pub(super) fn question(request: &Value) -> Vec<String> {
    let input = json!({"question": "Which of the two?"}).to_string();
    let block = json!({"type": "tool_use", "id": "toolu_1", "name": "mcp__cowhand__ask_person", "input": {}});
    stream(request, &block, vec![json!({"type": "input_json_delta", "partial_json": input})], "tool_use")
}

fn message(request: &Value, content: &Value, stop: &str) -> Value {
    // Each answer of a conversation has its own id, as with a real model.
    let id = format!("msg_{}", request["messages"].as_array().map_or(0, Vec::len));
    json!({
        "id": id, "type": "message", "role": "assistant", "model": request["model"], "content": content,
        "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": INPUT, "cache_read_input_tokens": CACHED, "cache_creation_input_tokens": 0, "output_tokens": OUTPUT},
    })
}

fn stream(request: &Value, block: &Value, deltas: Vec<Value>, stop: &str) -> Vec<String> {
    let mut start = message(request, &json!([]), stop);
    start["stop_reason"] = Value::Null;
    let mut events = vec![
        json!({"type": "message_start", "message": start}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
    ];
    events.extend(
        deltas.into_iter().map(|delta| json!({"type": "content_block_delta", "index": 0, "delta": delta})),
    );
    events.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": OUTPUT}}),
        json!({"type": "message_stop"}),
    ]);
    events.iter().map(|data| event(data["type"].as_str(), data)).collect()
}

//! `POST /v1/chat/completions`, as OpenCode uses it.

use serde_json::{Value, json};

use super::{CACHED, INPUT, OUTPUT, Vendor, event, shell_of};

pub(super) const VENDOR: Vendor =
    Vendor { conversation: "messages", answered: "\"role\":\"tool\"", words, shell };

fn words(request: &Value, words: &[&str]) -> Vec<String> {
    if request["stream"] != true {
        let message = json!({"role": "assistant", "content": words.concat()});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        return vec![
            json!({"id": "c1", "object": "chat.completion", "choices": [choice], "usage": usage()})
                .to_string(),
        ];
    }
    stream(request, words.iter().map(|word| json!({"content": word})), "stop")
}

fn shell(request: &Value, command: &str) -> Vec<String> {
    let name = shell_of(&request["tools"]).unwrap_or_default();
    let arguments = json!({"command": command, "description": "say a word"}).to_string();
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}});
    stream(request, std::iter::once(json!({"tool_calls": [call]})), "tool_calls")
}

fn stream(request: &Value, deltas: impl Iterator<Item = Value>, stop: &str) -> Vec<String> {
    let chunk = |choices: Value, usage: Value| json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": request["model"], "choices": choices, "usage": usage});
    let choice = |delta: Value, stop: Value| json!([{"index": 0, "delta": delta, "finish_reason": stop}]);
    let mut events =
        vec![chunk(choice(json!({"role": "assistant", "content": ""}), Value::Null), Value::Null)];
    events.extend(deltas.map(|delta| chunk(choice(delta, Value::Null), Value::Null)));
    events.push(chunk(choice(json!({}), json!(stop)), Value::Null));
    events.push(chunk(json!([]), usage()));
    let done = "data: [DONE]\n\n".to_owned();
    events.iter().map(|data| event(None, data)).chain([done]).collect()
}

fn usage() -> Value {
    json!({
        "prompt_tokens": INPUT + CACHED, "prompt_tokens_details": {"cached_tokens": CACHED},
        "completion_tokens": OUTPUT, "total_tokens": INPUT + CACHED + OUTPUT,
    })
}

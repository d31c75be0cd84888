//! Cases that the recordings in `tests/samples` do not cover.

use serde_json::json;

use super::*;
use crate::runtime::Reader;

fn mapped(lines: &[&str]) -> Value {
    let mut reader = Reader::codex();
    let messages: Vec<_> = lines.iter().flat_map(|line| reader.read(line)).collect();
    serde_json::to_value(messages).unwrap()
}

#[test]
fn each_tool_call_has_one_use_and_one_result() {
    let started = r#"{"type":"item.started","item":{"id":"i1","type":"mcp_tool_call","server":"s","tool":"t","arguments":{"a":1},"status":"in_progress"}}"#;
    let updated = r#"{"type":"item.updated","item":{"id":"i1","type":"mcp_tool_call","server":"s","tool":"t","arguments":{"a":1},"status":"in_progress"}}"#;
    let failed = r#"{"type":"item.completed","item":{"id":"i1","type":"mcp_tool_call","server":"s","tool":"t","arguments":{"a":1},"result":null,"error":{"message":"no such thing"},"status":"failed"}}"#;
    let messages = mapped(&[started, updated, failed]);
    assert_eq!(
        messages[0],
        json!({"type": "tool_use", "tool_name": "mcp__s__t", "tool_use_id": "i1", "input": {"a": 1}})
    );
    assert_eq!(messages[1]["subtype"], "tool_progress");
    assert_eq!(messages[2]["error"], "no such thing");
    assert_eq!((&messages[2]["success"], &messages[2]["tool_use_id"]), (&json!(false), &json!("i1")));

    let declined = r#"{"type":"item.completed","item":{"id":"i2","type":"command_execution","command":"rm","aggregated_output":"","exit_code":null,"status":"declined"}}"#;
    let messages = mapped(&[declined]);
    assert_eq!(messages[0]["input"], json!({"command": "rm"}));
    assert_eq!(messages[1]["error"], "the use of the tool was declined, without a reason");
}

#[test]
fn unknown_lines_are_kept() {
    for (line, expected) in [
        ("  ", json!([])),
        ("not JSON", json!([{"type": "system", "content": "not JSON"}])),
        (
            r#"{"type":"hologram","of":"a cow"}"#,
            json!([{"type": "system", "subtype": "unknown_type", "line": {"type": "hologram", "of": "a cow"}}]),
        ),
        (
            r#"{"type":"item.completed","item":{"id":"i","type":"todo_list","items":[{"text":"x"}]}}"#,
            json!([{"type": "system", "subtype": "todo_list", "line": {"type": "item.completed",
                    "item": {"id": "i", "type": "todo_list", "items": [{"text": "x"}]}}}]),
        ),
        (
            r#"{"type":"item.completed","item":{"id":"i","type":"reasoning","text":"hm"}}"#,
            json!([{"type": "assistant", "line": {"id": "i"}, "thinking": "hm"}]),
        ),
        (
            r#"{"type":"error","message":"Reconnecting... 2/5 (gone)"}"#,
            json!([{"type": "system", "subtype": "api_retry", "content": "Reconnecting... 2/5 (gone)", "line": {"type": "error"}}]),
        ),
    ] {
        assert_eq!(mapped(&[line]), expected, "{line}");
    }
}

#[test]
fn usage_of_an_attempt_excludes_earlier_turns_of_its_thread() {
    let before = Tokens { input: 1000, cached: 300, written: 0, output: 50 };
    let mut reader = Codex { before, model: Some("gpt-9".to_owned()), ..Codex::default() };
    reader.read(r#"{"type":"turn.completed","usage":{"input_tokens":2500,"cached_input_tokens":900,"output_tokens":90}}"#);
    let again: Codex = serde_json::from_str(&serde_json::to_string(&reader).unwrap()).unwrap();
    assert_eq!(again, reader);
    let usage = reader.finish(&ExitStatus::Code { code: 0 }).usage.unwrap();
    let spent = usage.per_model["gpt-9"];
    assert_eq!((spent.input_tokens, spent.cache_read_input_tokens, spent.output_tokens), (900, 600, 40));
    assert_eq!((usage.num_turns, usage.total_cost_usd), (Some(1), None));
}

#[test]
fn http_statuses_are_found_in_messages() {
    for (message, expected) in [
        ("unexpected status 401 Unauthorized: no", Some(401)),
        (r#"{"error":{"code":429}}"#, Some(429)),
        ("exceeded retry limit, last status: 429 Too Many Requests", Some(429)),
        ("status quo", None),
        ("status 12", None),
        ("", None),
    ] {
        assert_eq!(status_in(message), expected, "{message}");
    }
}

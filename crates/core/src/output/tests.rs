use proptest::prelude::*;
use serde_json::json;

use super::*;

const NO_CAP: usize = usize::MAX;

fn read(line: &str) -> OutputMessage {
    OutputMessage::read_line(line).unwrap().unwrap()
}

#[test]
fn every_message_type_is_read_and_written_unchanged() {
    for line in [
        r#"{"type":"system","subtype":"init","content":"hi","timestamp":"2024-01-19T09:00:00Z"}"#,
        r#"{"type":"system"}"#,
        r#"{"type":"assistant","content":"Analyzing…","partial":true,"usage":{"input_tokens":3,"output_tokens":0,"cost":0.5}}"#,
        r#"{"type":"tool_use","tool_name":"Bash","tool_use_id":"t1","input":{"command":"ls\n"},"model":"x"}"#,
        r#"{"type":"tool_use","tool_name":"Bash","input":null}"#,
        r#"{"type":"tool_result","tool_use_id":"t1","result":null,"success":false,"error":"no"}"#,
        r#"{"type":"error","message":"m","code":"E1","stack":"a\nb","session":{"id":[1,null]},"z":null}"#,
    ] {
        assert_eq!(read(line).to_line(NO_CAP).unwrap(), line);
    }
}

#[test]
fn blank_lines_are_skipped_and_invalid_lines_are_explained() {
    for blank in ["", "  ", "\r", "\t \n"] {
        assert_eq!(OutputMessage::read_line(blank), Ok(None));
    }
    for (line, message) in [
        ("{", "an output line must be JSON: EOF while parsing an object at line 1 column 1"),
        ("[1]", "an output message must be a JSON object with a `type`, not an array"),
        ("null", "an output message must be a JSON object with a `type`, not null"),
        ("{}", "an output message needs a `type`: system, assistant, tool_use, tool_result, error"),
        (
            r#"{"type":"Tool"}"#,
            "unknown output type \"Tool\"; expected one of system, assistant, tool_use, tool_result, error",
        ),
        (
            r#"{"type":7}"#,
            "unknown output type 7; expected one of system, assistant, tool_use, tool_result, error",
        ),
        (r#"{"type":"tool_use"}"#, "output message of type tool_use: missing field `tool_name`"),
        (r#"{"type":"error","code":"x"}"#, "output message of type error: missing field `message`"),
        (
            r#"{"type":"error","message":null}"#,
            "output message of type error: invalid type: null, expected a string",
        ),
        (
            r#"{"type":"assistant","content":["a"]}"#,
            "output message of type assistant: invalid type: sequence, expected a string",
        ),
    ] {
        assert_eq!(OutputMessage::read_line(line).unwrap_err().to_string(), message, "{line}");
    }
}

#[test]
fn appending_sets_the_time_once() {
    let (now, later) = ("2024-01-19T09:00:00Z".parse().unwrap(), "2025-01-19T09:00:00Z".parse().unwrap());
    let stamped = read(r#"{"type":"system"}"#).stamped(now).stamped(later);
    assert_eq!(stamped.timestamp(), Some(now));
    assert_eq!(stamped.to_line(NO_CAP).unwrap(), r#"{"type":"system","timestamp":"2024-01-19T09:00:00Z"}"#);
}

#[test]
fn the_final_output_prefers_assistant_text_to_tool_results() {
    for (case, lines, expected) in [
        ("nothing", &[][..], None),
        (
            "assistant text before tool results",
            &[
                r#"{"type":"assistant","content":"first"}"#,
                r#"{"type":"assistant","content":"last"}"#,
                r#"{"type":"assistant","content":"  "}"#,
                r#"{"type":"assistant","usage":{}}"#,
                r#"{"type":"assistant","content":"la","partial":true}"#,
                r#"{"type":"tool_result","result":"raw"}"#,
            ],
            Some("last"),
        ),
        (
            "tool results without assistant text",
            &[
                r#"{"type":"tool_result","result":"one"}"#,
                r#"{"type":"tool_result","result":{"n":2}}"#,
                r#"{"type":"tool_result","result":null}"#,
                r#"{"type":"tool_result","result":""}"#,
                r#"{"type":"error","message":"m"}"#,
            ],
            Some(r#"{"n":2}"#),
        ),
        (
            "result line of the agent",
            &[
                r#"{"type":"assistant","content":"half of it"}"#,
                r#"{"type":"system","subtype":"result","line":{"type":"result","result":"all of it"}}"#,
                r#"{"type":"system","subtype":"result","line":{"type":"result","result":null}}"#,
                r#"{"type":"assistant","content":"and more"}"#,
            ],
            Some("all of it"),
        ),
        (
            "result line of a command",
            &[
                r#"{"type":"system","content":"noise"}"#,
                r#"{"type":"system","content":"{\"is_error\":false,\"result\":\"all good\"}"}"#,
                r#"{"type":"system","content":"{\"level\":\"info\"}"}"#,
            ],
            Some("all good"),
        ),
        (
            "result line of a command without a result",
            &[
                r#"{"type":"system","content":"noise"}"#,
                r#"{"type":"system","content":"{\"type\":\"result\",\"is_error\":false,\"total_cost_usd\":0.1}"}"#,
                r#"{"type":"system","content":"{\"is_error\":true,\"result\":null}"}"#,
            ],
            Some("noise"),
        ),
        ("only such a line", &[r#"{"type":"system","content":"{\"is_error\":false}"}"#], None),
        (
            "messages of a subagent do not count",
            &[
                r#"{"type":"assistant","content":"mine"}"#,
                r#"{"type":"assistant","content":"its","line":{"parent_tool_use_id":"t1"}}"#,
            ],
            Some("mine"),
        ),
        (
            "unstructured lines",
            &[
                r#"{"type":"system","subtype":"init","content":"i"}"#,
                r#"{"type":"system","content":"one"}"#,
                r#"{"type":"system","subtype":"stderr","content":"oops"}"#,
                r#"{"type":"system","content":"two"}"#,
            ],
            Some("one\ntwo"),
        ),
        (
            "a later attempt",
            &[
                r#"{"type":"assistant","content":"I give up"}"#,
                r#"{"type":"system","content":"one"}"#,
                r#"{"type":"system","subtype":"attempt","content":"attempt 2"}"#,
                r#"{"type":"system","content":"two"}"#,
            ],
            Some("two"),
        ),
        (
            "a later attempt without output",
            &[
                r#"{"type":"system","subtype":"result","line":{"type":"result","result":"half"}}"#,
                r#"{"type":"system","subtype":"attempt","content":"attempt 2"}"#,
            ],
            None,
        ),
        ("blank lines", &[r#"{"type":"system","content":" "}"#], None),
    ] {
        let mut output = FinalOutput::default();
        for line in lines {
            output.add(read(line));
        }
        assert_eq!(output.into_text().as_deref(), expected, "{case}");
    }
}

#[test]
fn the_last_lines_of_a_long_output_are_kept() {
    let mut endless = FinalOutput::default();
    for n in 0..100_000 {
        endless.add(read(&format!(r#"{{"type":"system","content":"line {n}"}}"#)));
    }
    let text = endless.into_text().unwrap();
    assert!(
        text.len() < 70_000 && text.starts_with("…\nline ") && text.ends_with("line 99999"),
        "the last lines are kept"
    );
}

#[test]
fn only_the_long_part_of_a_message_is_cut() {
    let long = "\"é\n".repeat(100_000);
    let many: Vec<_> = (0..100_000).collect();
    let keys: Map<String, Value> = (0..10_000).map(|n| (format!("key{n}"), json!(n))).collect();
    let with_keys = |mut message: Value| {
        message.as_object_mut().unwrap().extend(keys.clone());
        message
    };
    for (case, message, pointer, kept) in [
        ("content", json!({"type": "assistant", "content": long, "id": "m1"}), "/content", "/id"),
        (
            "nested",
            json!({"type": "tool_use", "tool_name": "Write", "input": {"path": "a.rs", "edits": [{"text": long}]}}),
            "/input/edits/0/text",
            "/input/path",
        ),
        (
            "an array of many",
            json!({"type": "tool_result", "success": true, "result": many}),
            "/result",
            "/success",
        ),
        (
            "an object of many",
            json!({"type": "tool_result", "success": true, "result": keys}),
            "/result",
            "/success",
        ),
        (
            "an extra",
            json!({"type": "error", "message": "m", "code": "c", "more": long}),
            "/more",
            "/message",
        ),
        ("the name", json!({"type": "tool_use", "tool_name": long, "input": 1}), "/tool_name", "/input"),
        ("many extra keys", with_keys(json!({"type": "error", "message": "m"})), "/cut", "/message"),
        ("usage", json!({"type": "assistant", "content": "c", "usage": keys}), "/cut", "/content"),
    ] {
        for cap in [0, 1024, 5000] {
            let line = OutputMessage::from_json(message.clone()).unwrap().to_line(cap).unwrap();
            assert!(line.len() <= cap.max(OutputMessage::MIN_CAP), "{case}: {}", line.len());
            let value: Value = serde_json::from_str(&line).unwrap();
            let cut = value.pointer(pointer).and_then(Value::as_str).unwrap();
            assert!(cut.ends_with(" bytes cut …]"), "{case}: {cut}");
            assert_eq!(value.pointer(kept), message.pointer(kept), "{case}");
            assert_eq!(value["type"], message["type"]);
            read(&line);
        }
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "\\PC{0,40}".prop_map(|text| Value::from(text.repeat(60))),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn message() -> impl Strategy<Value = Value> {
    let text = || prop::option::of(any::<String>());
    let own = (text(), text(), text(), json_value(), any::<bool>()).prop_flat_map(|(a, b, c, json, flag)| {
        let required = a.clone().unwrap_or_default();
        prop::sample::select(vec![
            json!({"type": "system", "subtype": a, "content": b}),
            json!({"type": "assistant", "content": a, "partial": flag, "usage": {"input_tokens": 1, "more": json}}),
            json!({"type": "tool_use", "tool_name": required, "tool_use_id": b, "input": json}),
            json!({"type": "tool_result", "tool_use_id": a, "result": json, "success": flag, "error": c}),
            json!({"type": "error", "message": required, "code": b, "stack": c, "timestamp": "2024-01-19T09:00:00Z"}),
        ])
    });
    let extra = prop::collection::hash_map("x.*", json_value(), 0..5);
    (own, extra).prop_map(|(mut own, extra)| {
        own.as_object_mut().unwrap().extend(extra);
        own
    })
}

/// Removes the texts that are `null`, because a missing text and `null` are equal. For `input`, `result` and extra keys
/// they differ.
fn without_empty_texts(mut message: Value) -> Value {
    let texts = ["subtype", "content", "tool_use_id", "error", "code", "stack"];
    message.as_object_mut().unwrap().retain(|key, value| !(value.is_null() && texts.contains(&key.as_str())));
    message
}

proptest! {
    #[test]
    fn a_message_is_unchanged_after_writing_and_reading(message in message()) {
        let line = OutputMessage::from_json(message.clone()).unwrap().to_line(NO_CAP).unwrap();
        prop_assert!(!line.contains(['\n', '\r']));
        let back: Value = serde_json::from_str(&line).unwrap();
        prop_assert_eq!(back, without_empty_texts(message));
        prop_assert_eq!(read(&line).to_line(NO_CAP).unwrap(), line);
    }

    #[test]
    fn capped_lines_fit_the_cap_and_remain_messages(message in message(), cap in 0_usize..6000) {
        let message = OutputMessage::from_json(message).unwrap();
        let line = message.to_line(cap).unwrap();
        prop_assert!(line.len() <= cap.max(OutputMessage::MIN_CAP), "{} over {cap}", line.len());
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(read(&line).place(), message.place());
        if message.to_line(NO_CAP).unwrap().len() > cap.max(OutputMessage::MIN_CAP) {
            prop_assert!(line.contains(" bytes cut …]"));
        }
    }

    #[test]
    fn reading_any_line_does_not_panic(line in any::<String>()) {
        let _ = OutputMessage::read_line(&line);
    }
}

use serde_json::json;

use super::*;
use crate::runtime::Reader;

fn update(update: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
        .to_string()
}

fn chunk(text: &str, id: Option<&str>) -> String {
    let content = json!({"type": "text", "text": text});
    update(&json!({"sessionUpdate": "agent_message_chunk", "content": content, "messageId": id}))
}

fn thought(text: &str) -> String {
    update(&json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": text}}))
}

fn asked(method: &str) -> String {
    json!({"cowhand": "asked", "id": 1, "method": method}).to_string()
}

/// Returns the messages that a reader makes of these lines after a prompt, including the rest.
fn read(lines: &[String]) -> Value {
    let mut reader = Reader::acp();
    reader.read(&asked("session/prompt"));
    let mut messages: Vec<OutputMessage> = lines.iter().flat_map(|line| reader.read(line)).collect();
    messages.extend(reader.rest());
    assert_eq!(reader.rest(), [], "the rest is returned only once");
    serde_json::to_value(messages).unwrap()
}

#[test]
fn chunks_are_joined() {
    let command = update(&json!({"sessionUpdate": "usage_update", "used": 1}));
    let usage = json!({"type": "system", "subtype": "usage_update", "line": {"sessionUpdate": "usage_update", "used": 1}});
    let picture = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "x"}});
    let assistant = |text: &str| json!({"type": "assistant", "content": text});
    for (lines, expected) in [
        (vec![chunk("a", None), chunk("b", None)], json!([assistant("ab")])),
        // An update about something else does not split the text.
        (vec![chunk("a", None), command, chunk("b", None)], json!([usage, assistant("ab")])),
        (
            vec![chunk("a", Some("1")), chunk("b", Some("2"))],
            json!([
                {"type": "assistant", "content": "a", "line": {"messageId": "1"}},
                {"type": "assistant", "content": "b", "line": {"messageId": "2"}},
            ]),
        ),
        (
            vec![thought("h"), thought("m"), chunk("a", None)],
            json!([{"type": "assistant", "thinking": "hm"}, assistant("a")]),
        ),
        (vec![chunk("", None)], json!([])),
        (
            vec![chunk("a", None), update(&picture), chunk("b", None)],
            json!([assistant("a"), {"type": "system", "subtype": "content", "line": picture}, assistant("b")]),
        ),
        (vec![chunk("a", None), asked("x")], json!([assistant("a")])),
    ] {
        assert_eq!(read(&lines), expected, "{lines:?}");
    }
}

#[test]
fn a_secret_in_pieces_is_hidden() {
    let mut reader = Reader::acp();
    reader.set_redactor(&Redactor::of(vec!["canary-in-a-mine".to_owned()]));
    reader.read(&asked("session/prompt"));
    for piece in ["It is can", "ary-in", "-a-mi", "ne, is it not?"] {
        assert_eq!(reader.read(&chunk(piece, None)), []);
    }
    let checkpoint = serde_json::to_string(&reader).unwrap();
    assert!(!checkpoint.contains("canary"), "{checkpoint}");
    let messages = serde_json::to_value(reader.rest()).unwrap();
    assert_eq!(messages, json!([{"type": "assistant", "content": "It is ***, is it not?"}]));
    assert!(!serde_json::to_string(&reader).unwrap().contains("canary"));
}

/// Text that is not complete is part of checkpoints, so it is limited.
#[test]
fn long_text_is_split_into_several_messages() {
    let lines = vec![chunk(&"x".repeat(100_000), None); 10];
    let messages = read(&lines);
    let lengths: Vec<usize> =
        messages.as_array().unwrap().iter().map(|each| each["content"].as_str().unwrap().len()).collect();
    assert_eq!(lengths, [300_000, 300_000, 300_000, 100_000]);
    let mut reader = Reader::acp();
    reader.read(&asked("session/prompt"));
    for number in 0..200 {
        reader.read(&update(
            &json!({"sessionUpdate": "tool_call", "toolCallId": number.to_string(), "status": "pending",
            "title": "t".repeat(10_000), "rawInput": {"text": "i".repeat(4000)}}),
        ));
    }
    assert!(serde_json::to_string(&reader).unwrap().len() < 400_000);
}

#[test]
fn each_tool_call_has_one_use_and_one_result() {
    let call = |more: Value| {
        let mut fields = json!({"sessionUpdate": "tool_call_update", "toolCallId": "t"});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        update(&fields)
    };
    let announced = |input: Value| {
        call(
            json!({"sessionUpdate": "tool_call", "status": "pending", "title": "bash", "kind": "execute", "rawInput": input}),
        )
    };
    let tool_use = |input: Value| json!({"type": "tool_use", "tool_name": "execute", "tool_use_id": "t", "input": input});
    let kinds = |lines: &[String]| -> Vec<Value> {
        let all = read(lines);
        all.as_array().unwrap().iter().filter(|line| line["type"] != "system").cloned().collect()
    };
    let done = call(json!({"status": "completed", "rawOutput": {"output": "x"}}));
    let result =
        json!({"type": "tool_result", "tool_use_id": "t", "success": true, "result": {"output": "x"}});
    // The input may arrive at once, in pieces, later, or never.
    let lines = [
        announced(json!({"cwd": "/"})),
        call(json!({"status": "in_progress", "rawInput": {"command": "id"}})),
        done.clone(),
    ];
    assert_eq!(kinds(&lines), [tool_use(json!({"command": "id"})), result.clone()]);
    let lines = [announced(json!({"command": "id"})), call(json!({"status": "in_progress"})), done.clone()];
    assert_eq!(kinds(&lines), [tool_use(json!({"command": "id"})), result.clone()]);
    let lines = [announced(json!({})), done.clone()];
    assert_eq!(kinds(&lines), [tool_use(json!({"title": "bash"})), result]);
    let lines = [announced(json!({}))];
    assert_eq!(kinds(&lines), [tool_use(json!({"title": "bash"}))]);
    let content = json!([{"type": "content", "content": {"type": "text", "text": "no such file"}}]);
    let lines = [announced(json!({"command": "id"})), call(json!({"status": "failed", "content": content}))];
    let failed = json!({"type": "tool_result", "tool_use_id": "t", "success": false, "result": "no such file", "error": "no such file"});
    assert_eq!(kinds(&lines), [tool_use(json!({"command": "id"})), failed]);
}

#[test]
fn token_counts_are_reconciled_with_the_total() {
    let used = |usage: Value| {
        let mut reader = Acp::default();
        reader.read(&asked("session/prompt"));
        reader.read(&json!({"id": 1, "result": {"stopReason": "end_turn", "usage": usage}}).to_string());
        let usage = reader.finish(&ExitStatus::Code { code: 0 }).usage.unwrap();
        let used = usage.per_model["default"];
        [
            used.input_tokens,
            used.cache_read_input_tokens,
            used.cache_creation_input_tokens,
            used.output_tokens,
        ]
    };
    let counts = |input: u64, output: u64, thought: u64, total: u64| {
        json!({"inputTokens": input, "outputTokens": output, "thoughtTokens": thought, "cachedReadTokens": 300,
            "cachedWriteTokens": 200, "totalTokens": total})
    };
    // Cached tokens may be part of the input or separate; thinking tokens may be part of the output or separate.
    assert_eq!(used(counts(1000, 50, 10, 1550)), [1000, 300, 200, 50]);
    assert_eq!(used(counts(1000, 50, 10, 1050)), [500, 300, 200, 50]);
    assert_eq!(used(counts(1000, 50, 10, 1060)), [500, 300, 200, 60]);
    assert_eq!(used(counts(1000, 50, 10, 1560)), [1000, 300, 200, 60]);
    assert_eq!(used(counts(1000, 50, 10, 7)), [1000, 300, 200, 50]);
    assert_eq!(used(json!({"inputTokens": 5})), [5, 0, 0, 0]);
}

#[test]
fn the_cost_is_that_of_this_turn_or_unknown() {
    let cost = |amount: f64| {
        update(&json!({"sessionUpdate": "usage_update", "cost": {"amount": amount, "currency": "USD"}}))
    };
    let euros = update(&json!({"sessionUpdate": "usage_update", "cost": {"amount": 9.0, "currency": "EUR"}}));
    for (resumed, before, during, expected) in [
        (false, vec![], vec![cost(0.25), cost(0.5)], Some(0.5)),
        (false, vec![cost(1.0)], vec![cost(1.5)], Some(0.5)),
        (true, vec![cost(1.0)], vec![cost(1.5)], Some(0.5)),
        // The agent counts again from 0.
        (true, vec![cost(1.0)], vec![cost(0.25)], Some(0.25)),
        // The session was resumed and its earlier cost is unknown, so the cost of this turn is unknown.
        (true, vec![], vec![cost(1.5)], None),
        // The price is unknown, or the cost is not in dollars.
        (false, vec![], vec![cost(0.0)], None),
        (false, vec![], vec![euros], None),
    ] {
        let mut reader = Acp { spent: AcpUsage::new(None, resumed), ..Acp::default() };
        let prompt = asked("session/prompt");
        for line in before.iter().chain([&prompt]).chain(&during) {
            reader.read(line);
        }
        let usage = reader.finish(&ExitStatus::Code { code: 0 }).usage;
        assert_eq!(usage.and_then(|usage| usage.total_cost_usd), expected, "{before:?} {during:?}");
    }
}

#[test]
fn http_statuses_are_found_in_messages() {
    for (message, expected) in [
        ("unexpected status 401 Unauthorized", Some(401)),
        ("got status code 503", Some(503)),
        (r#"{"error":{"code":400}}"#, Some(400)),
        ("the model says 429", Some(429)),
        ("waited for 500 ms", None),
        ("status é", None),
        ("", None),
    ] {
        assert_eq!(usage::status_in(message), expected, "{message}");
    }
}

#[test]
fn unknown_lines_are_kept() {
    for (line, expected) in [
        ("  ", json!([])),
        ("Hello", json!([{"type": "system", "content": "Hello"}])),
        (
            r#"{"id":5,"result":{}}"#,
            json!([{"type": "system", "subtype": "unknown_type", "line": {"id": 5, "result": {}}}]),
        ),
        (r#"{"x":1}"#, json!([{"type": "system", "subtype": "unknown_type", "line": {"x": 1}}])),
        (r#"{"cowhand":"sings"}"#, json!([{"type": "system", "subtype": "unknown_type", "line": {}}])),
        (
            r#"{"method":"session/update","params":{}}"#,
            json!([{"type": "system", "subtype": "unknown_type", "line": {"method": "session/update", "params": {}}}]),
        ),
        (
            r#"{"method":"session/update","params":{"update":{"sessionUpdate":"hologram","of":"a cow"}}}"#,
            json!([{"type": "system", "subtype": "hologram", "line": {"sessionUpdate": "hologram", "of": "a cow"}}]),
        ),
    ] {
        assert_eq!(serde_json::to_value(Reader::acp().read(line)).unwrap(), expected, "{line}");
    }
}

/// The ACP adapters of two programs report the size of the context differently: after the tool result, or twice in each
/// step.
#[test]
fn usage_during_a_turn_is_derived_from_the_context_size() {
    let used = |used: u64| update(&json!({"sessionUpdate": "usage_update", "used": used, "size": 9}));
    let tool = |status: &str| {
        update(&json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": status}))
    };
    let prompt = asked("session/prompt");
    for (lines, expected) in [
        (vec![used(500)], None),
        (vec![used(500), prompt.clone()], None),
        (vec![prompt.clone(), tool("completed"), used(1050), tool("completed"), used(1100)], Some(2150)),
        (
            vec![prompt.clone(), used(1501), used(1550), tool("in_progress"), tool("failed"), used(1600)],
            Some(3150),
        ),
        // One answer calls two tools.
        (vec![prompt.clone(), used(10), tool("completed"), tool("completed"), used(30)], Some(40)),
    ] {
        let mut reader = Acp { spent: AcpUsage::new(Some("m".to_owned()), false), ..Acp::default() };
        for line in &lines {
            reader.read(line);
        }
        let usage = reader.usage();
        let cached = usage.map(|usage| usage.per_model["m"].cache_read_input_tokens);
        assert_eq!(cached, expected, "{lines:#?}");
        // The usage in the answer replaces the estimate.
        if lines.contains(&prompt) {
            let usage = json!({"inputTokens": 7, "outputTokens": 1, "totalTokens": 8});
            reader.read(&json!({"id": 1, "result": {"stopReason": "end_turn", "usage": usage}}).to_string());
            let used = reader.usage().unwrap().per_model["m"];
            assert_eq!((used.input_tokens, used.cache_read_input_tokens), (7, 0));
        }
    }
}

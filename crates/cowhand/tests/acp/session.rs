//! Sessions, models and MCP servers: the requests to the agent, and agents that do not support them.

use serde_json::{Value, json};

use super::{Run, SessionChoice, describe_outcome};

fn methods(run: &Run) -> Vec<String> {
    run.heard().iter().filter_map(|frame| frame["method"].as_str().map(str::to_owned)).collect()
}

fn resume() -> SessionChoice {
    SessionChoice::Resume("old-1".to_owned())
}

fn fork() -> SessionChoice {
    SessionChoice::Fork { of: "old-1".to_owned(), as_id: None }
}

#[test]
fn session_continues_by_method_that_agent_supports() {
    let end = "chunk ok; end";
    for (capabilities, session, answer, method, id) in [
        (r#"{"loadSession":true}"#, resume(), "{}", "session/load", "old-1"),
        (r#"{"loadSession":true}"#, resume(), "null", "session/load", "old-1"),
        (
            r#"{"loadSession":true,"sessionCapabilities":{"resume":{}}}"#,
            resume(),
            "{}",
            "session/resume",
            "old-1",
        ),
        (
            r#"{"sessionCapabilities":{"fork":{}}}"#,
            fork(),
            r#"{"sessionId":"new-1"}"#,
            "session/fork",
            "new-1",
        ),
        ("{}", SessionChoice::Fresh, r#"{"sessionId":"new-1"}"#, "session/new", "new-1"),
    ] {
        let script = format!("begin '{capabilities}'; hear; answer 2 '{answer}'; hear; {end}");
        let mut run = Run::with(&script, &json!({}), &session);
        let (finish, output) = run.finish();
        assert_eq!(describe_outcome(&finish.outcome), "completed: ok", "{method}: {output:#?}");
        assert_eq!(methods(&run), ["initialize", method, "session/prompt"]);
        assert_eq!(finish.session_id.as_deref(), Some(id), "{method}");
        let prompt = run.heard().pop().unwrap();
        assert_eq!(
            prompt["params"],
            json!({"sessionId": id, "prompt": [{"type": "text", "text": "Say hello."}]})
        );
    }
}

/// Some agents send the history before the answer, others after it. This agent sends the late part together with the
/// answer, because a pause would end the history.
#[test]
fn replayed_history_is_not_in_output() {
    let script = r#"begin '{"loadSession":true}'; hear
        update '{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"old question"}}'; chunk 'old answer'
        update '{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":1.5,"currency":"USD"}}'
        say "$(answer 2 '{}'; chunk 'older still')"; hear; chunk 'new answer'
        update '{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":1.75,"currency":"USD"}}'; end"#;
    let mut run = Run::with(script, &json!({}), &resume());
    let (finish, output) = run.finish();
    assert_eq!(describe_outcome(&finish.outcome), "completed: new answer");
    assert_eq!(finish.usage.unwrap().total_cost_usd, Some(0.25));
    let said: Vec<_> = output.iter().filter(|line| line["type"] == "assistant").collect();
    assert_eq!(said.len(), 1, "{output:#?}");
    let text = serde_json::to_string(&output).unwrap();
    assert!(
        text.contains("the agent repeated 3 updates of the session's history; they are not shown"),
        "{text}"
    );
}

/// The tool was allowed when the session used it, and is forbidden now.
#[test]
fn forbidden_tools_in_history_are_no_new_uses() {
    let call = r#"{"sessionUpdate":"tool_call","toolCallId":"t1","name":"Bash","kind":"execute","status":"completed","rawInput":{"command":"id"}}"#;
    let load = format!(r#"begin '{{"loadSession":true}}'; hear; update '{call}'; answer 2 '{{}}'; hear"#);
    let denied = json!({"denied_tools": ["Bash"]});
    let mut run = Run::with(&format!("{load}; chunk ok; end"), &denied, &resume());
    assert_eq!(describe_outcome(&run.finish().0.outcome), "completed: ok");
    let mut run = Run::with(&format!("{load}; update '{call}'; hear; end cancelled"), &denied, &resume());
    let said = describe_outcome(&run.finish().0.outcome);
    assert!(said.starts_with("reported: the agent used a tool that it may not use"), "{said}");
}

#[test]
fn session_that_cannot_continue_fails_the_attempt() {
    for (script, session, expected) in [
        (
            r#"begin '{"loadSession":true}'; hear; refuse 2 '{"code":-32603,"message":"gone"}'; cat >&2"#,
            resume(),
            "reported: the session old-1 was not found: gone",
        ),
        (
            "begin; cat >&2",
            resume(),
            "reported: the session old-1 was not found: scripted cannot resume a session",
        ),
        (
            "begin; cat >&2",
            fork(),
            "reported: scripted cannot fork a session; `retry` runs the job again in a fresh session",
        ),
    ] {
        let mut run = Run::with(script, &json!({}), &session);
        assert_eq!(describe_outcome(&run.finish().0.outcome), expected);
        let stderr = std::fs::read_to_string(run.attempt.stderr()).unwrap();
        // The daemon looks for this text.
        let missing = expected.contains("was not found");
        assert_eq!(stderr.contains("the session old-1 was not found"), missing, "{stderr}");
    }
}

#[test]
fn model_is_set_by_method_that_agent_supports() {
    let model = json!({"model": "m-2"});
    let rest =
        "hear; answer 3 '{}'; hear; chunk ok; answer 4 '{\"stopReason\":\"end_turn\"}'; cat > /dev/null";
    let own = format!(
        r#"begin; hear; answer 2 '{{"sessionId":"s-1","models":{{"currentModelId":"m-1"}}}}'; {rest}"#
    );
    let option = format!(
        r#"begin; hear; answer 2 '{{"sessionId":"s-1","models":{{}},"configOptions":[{{"id":"o","category":"model"}}]}}'; {rest}"#
    );
    for (script, method, params) in [
        (own, "session/set_model", json!({"sessionId": "s-1", "modelId": "m-2"})),
        (option, "session/set_config_option", json!({"sessionId": "s-1", "configId": "o", "value": "m-2"})),
    ] {
        let mut run = Run::with(&script, &model, &SessionChoice::Fresh);
        assert_eq!(describe_outcome(&run.finish().0.outcome), "completed: ok");
        assert_eq!(methods(&run)[2], method);
        assert_eq!(run.heard()[2]["params"], params);
    }
    let mut run = Run::with("ready; end", &model, &SessionChoice::Fresh);
    let why = "reported: `model` cannot be set for this agent; remove the key `model`, and set the model in the agent's own arguments or settings";
    assert_eq!(describe_outcome(&run.finish().0.outcome), why);
    let unknown = r#"begin; hear; answer 2 '{"sessionId":"s-1","models":{}}'; hear; refuse 3 '{"code":1,"message":"no such model"}'; cat >&2"#;
    let mut run = Run::with(unknown, &model, &SessionChoice::Fresh);
    assert_eq!(
        describe_outcome(&run.finish().0.outcome),
        "reported: the agent refused the model \"m-2\": no such model"
    );
}

/// The servers are passed through the pipe, so neither arguments nor output contain their secrets.
#[test]
fn mcp_servers_reach_agent_without_leaking_secrets() {
    let settings = json!({"mcp_servers": {"s": {"command": "serve", "env": {"TOKEN": "canary-1"}}}});
    let mut run = Run::with("ready; chunk ok; end", &settings, &SessionChoice::Fresh);
    let (finish, output) = run.finish();
    assert_eq!(describe_outcome(&finish.outcome), "completed: ok");
    let servers = json!([{"name": "s", "command": "serve", "args": [], "env": [{"name": "TOKEN", "value": "canary-1"}]}]);
    let asked: Vec<Value> = run.heard();
    assert_eq!(asked[1]["params"]["mcpServers"], servers);
    assert_eq!(asked[1]["params"]["cwd"], json!(run.folder.path().canonicalize().unwrap()));
    let raw = std::fs::read_to_string(run.attempt.stdout()).unwrap();
    assert!(!raw.contains("canary") && !serde_json::to_string(&output).unwrap().contains("canary"), "{raw}");
    let start = serde_json::to_string(&run.launch.start).unwrap();
    assert!(!start.contains("canary"), "{start}");

    let remote = json!({"mcp_servers": {"h": {"url": "http://127.0.0.1:9"}}});
    let mut run = Run::with("begin; cat >&2", &remote, &SessionChoice::Fresh);
    let why = "reported: scripted does not support MCP servers of type http; the server h has this type";
    assert_eq!(describe_outcome(&run.finish().0.outcome), why);
}

//! Answers to an agent's permission requests, and agents that do not ask.

use serde_json::{Value, json};

use super::{Run, SessionChoice, describe_outcome};

const SHELL: &str = r#"{"toolCallId":"t1","name":"Bash","title":"rm -rf /","kind":"execute","rawInput":{"command":"rm -rf /"}}"#;

/// Returns the option that was chosen.
fn chosen(settings: &Value) -> Value {
    let script = format!("ready; ask '{SHELL}'; chunk ok; end");
    let mut run = Run::with(&script, settings, &SessionChoice::Fresh);
    let (finish, output) = run.finish();
    assert_eq!(describe_outcome(&finish.outcome), "completed: ok", "{output:#?}");
    let calls: Vec<_> = output.iter().filter(|line| line["type"] == "tool_use").collect();
    assert_eq!(calls.len(), 1, "{output:#?}");
    assert_eq!((&calls[0]["tool_name"], &calls[0]["input"]["command"]), (&json!("Bash"), &json!("rm -rf /")));
    let decided = output.iter().find(|line| line["subtype"] == "permission").unwrap();
    assert!(decided["content"].as_str().is_some_and(|why| !why.is_empty()), "{decided}");
    let answer = run.heard().into_iter().find(|frame| frame["id"] == "p1").unwrap();
    assert_eq!(answer["result"], decided["line"]["answer"]);
    answer["result"]["outcome"]["optionId"].clone()
}

#[test]
fn permission_request_without_allow_rule_is_refused() {
    for (settings, expected) in [
        (json!({}), "no"),
        (json!({"allowed_tools": ["Bash"]}), "yes"),
        (json!({"allowed_tools": ["execute"]}), "yes"),
        (json!({"permission_mode": "bypassPermissions"}), "yes"),
        (json!({"permission_mode": "bypassPermissions", "denied_tools": ["Bash"]}), "no"),
        (json!({"permission_mode": "dontAsk"}), "no"),
    ] {
        assert_eq!(chosen(&settings), expected, "{settings}");
    }
}

/// The end of the attempt is too late for this tool call, but prevents the next calls.
#[test]
fn use_of_denied_tool_without_asking_ends_attempt() {
    let script = r#"ready; update '{"sessionUpdate":"tool_call","toolCallId":"t1","name":"Bash","kind":"execute","status":"in_progress","rawInput":{"command":"id"}}'
        hear; case "$heard" in *session/cancel*) end cancelled ;; esac; sleep 100"#;
    for settings in [json!({"denied_tools": ["Bash"]}), json!({"tools": ["Read"]})] {
        let mut run = Run::with(script, &settings, &SessionChoice::Fresh);
        let (finish, output) = run.finish();
        let said = describe_outcome(&finish.outcome);
        assert!(
            said.starts_with("reported: the agent used a tool that it may not use, without asking: "),
            "{said}"
        );
        assert!(output.iter().any(|line| line["type"] == "tool_use"), "{output:#?}");
    }
    // A call that the agent announces and then asks for is refused in the usual way.
    let asks = format!(
        r#"ready; update '{{"sessionUpdate":"tool_call","toolCallId":"t1","name":"Bash","kind":"execute","status":"pending"}}'
        ask '{SHELL}'; chunk ok; end"#
    );
    let mut run = Run::with(&asks, &json!({"denied_tools": ["Bash"]}), &SessionChoice::Fresh);
    assert_eq!(describe_outcome(&run.finish().0.outcome), "completed: ok");
}

/// Only the agent itself can enforce its plan mode, so cowhand sets the mode in the agent.
#[test]
fn permission_mode_sets_mode_of_agent() {
    let modes = r#"begin; hear; answer 2 '{"sessionId":"s-1","modes":{"currentModeId":"yolo","availableModes":[{"id":"default"},{"id":"plan"},{"id":"yolo"}]}}'
        hear; answer 3 '{}'; hear; chunk ok; answer 4 '{"stopReason":"end_turn"}'; cat > /dev/null"#;
    for (mode, expected) in [("plan", "plan"), ("acceptEdits", "default")] {
        let mut run = Run::with(modes, &json!({ "permission_mode": mode }), &SessionChoice::Fresh);
        assert_eq!(describe_outcome(&run.finish().0.outcome), "completed: ok");
        let set = run.heard().into_iter().find(|frame| frame["method"] == "session/set_mode").unwrap();
        assert_eq!(set["params"], json!({"sessionId": "s-1", "modeId": expected}));
    }
    let mut run = Run::with("ready; end", &json!({"permission_mode": "plan"}), &SessionChoice::Fresh);
    let why = "reported: `permission_mode: plan` needs an agent with a mode `plan`, and this agent has none";
    assert_eq!(describe_outcome(&run.finish().0.outcome), why);
}

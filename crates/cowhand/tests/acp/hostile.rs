//! Agents that violate the protocol or end in different ways. Each end is reported correctly.

use cowhand_core::job::{FailReason, Outcome};
use serde_json::{Value, json};

use super::{Run, describe_outcome};

/// Runs an agent's script and checks the outcome.
fn check(script: &str, expected: &str) -> Vec<Value> {
    let mut run = Run::of(script);
    let (finish, output) = run.finish();
    assert_eq!(describe_outcome(&finish.outcome), expected, "{script}\n{output:#?}");
    output
}

#[test]
fn message_chunks_become_one_assistant_message() {
    let output = check("ready; chunk 'Hello '; chunk 'there.'; end", "completed: Hello there.");
    let said: Vec<_> = output.iter().filter(|line| line["type"] == "assistant").collect();
    assert_eq!(said.len(), 1, "{said:#?}");
}

#[test]
fn stop_reasons_other_than_end_turn_are_failures() {
    for (reason, expected) in [
        ("max_tokens", "reported: the agent reached the model's limit of tokens"),
        ("max_turn_requests", "reported: the agent reached its limit of requests to the model"),
        ("refusal", "reported: the agent refused to continue"),
        ("cancelled", "reported: the agent ended the turn as cancelled, and cowhand did not ask for that"),
        ("boredom", "reported: the agent stopped for an unknown reason: boredom"),
    ] {
        let mut run = Run::of(&format!("ready; chunk 'So far.'; end {reason}"));
        let (finish, _) = run.finish();
        assert_eq!(describe_outcome(&finish.outcome), expected);
        let Outcome::Failed { reason: why, summary, .. } = finish.outcome else { panic!() };
        let turns = reason == "max_turn_requests";
        assert_eq!(why, if turns { FailReason::MaxTurns } else { FailReason::Error });
        assert_eq!(summary.as_deref(), Some("So far."));
        assert_eq!(finish.session_id.as_deref(), Some("s-1"));
    }
}

#[test]
fn agent_exit_before_its_answer_is_a_failure() {
    check("exit 3", "exit: the agent ended with exit code 3 before it had answered initialize");
    check("begin; hear; exit 0", "exit: the agent ended with exit code 0 before it had answered session/new");
    check(
        "ready; kill -9 $$",
        "signal: the agent was ended by signal 9 before it had answered session/prompt",
    );
    let words = "exit: the agent ended with exit code 4 before it had answered session/prompt";
    let output = check("ready; chunk 'Half a'; chunk ' word'; exit 4", words);
    assert!(output.iter().any(|line| line["content"] == "Half a word"), "{output:#?}");
    // The answer may be the last line before the exit.
    check("ready; chunk hi; answer 3 '{\"stopReason\":\"end_turn\"}'; exit 5", "completed: hi");
    // A child that holds stdout open does not hide the end of the agent.
    check(
        "ready; sleep 100 & exit 6",
        "exit: the agent ended with exit code 6 before it had answered session/prompt",
    );
    check(
        "ready; exec >&-; sleep 100",
        "reported: the agent closed its stdout before it had answered session/prompt",
    );
}

#[test]
fn missing_agent_program_is_a_start_failure() {
    for (command, expected) in [
        (
            json!(["no-such-agent", "--acp"]),
            "start_failed: cannot start \"no-such-agent\": it was not found; is it installed and on the PATH?",
        ),
        (json!(["./agent.sh"]), "start_failed: cannot start \"./agent.sh\": it may not be executed"),
        (json!([]), "start_failed: `runtime: acp` has no `command`"),
    ] {
        let settings = json!({ "command": command });
        let mut run = Run::with("", &settings, &super::SessionChoice::Fresh);
        assert_eq!(describe_outcome(&run.finish().0.outcome), expected);
    }
}

#[test]
fn agent_without_answer_times_out() {
    let unanswered =
        "reported: the agent did not answer initialize within 3s; does it speak the Agent Client Protocol?";
    // Other output does not count as an answer. The last agent gets more time, because it has to answer `initialize`
    // first.
    for (script, seconds, expected) in [
        ("sleep 100", 3, unanswered),
        ("while :; do echo rubbish; sleep 0.05; done", 3, unanswered),
        ("begin; sleep 100", 15, "reported: the agent did not answer session/new within 15s"),
    ] {
        let (finish, output) = Run::with_timeout(script, seconds).finish();
        assert_eq!(describe_outcome(&finish.outcome), expected, "{script}\n{output:#?}");
    }
}

#[test]
fn invalid_lines_of_agent_are_kept_in_output() {
    let script = r#"echo 'starting…'; begin; printf 'caf\351 \377\n'; session; hear; echo '[1]'; echo '{"id":99,"result":{}}'
        echo '{"jsonrpc":"2.0","method":"_x/of_its_own","params":{"a":1}}'; update '{"sessionUpdate":"hologram","of":"a cow"}'
        echo '{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{"path":"/etc/passwd"}}'; hear
        echo '{"jsonrpc":"2.0","id":8,"method":"terminal/create","params":{"command":"id"}}'; hear
        chunk fine; end"#;
    let mut run = Run::of(script);
    let (finish, output) = run.finish();
    assert_eq!(describe_outcome(&finish.outcome), "completed: fine");
    let text = serde_json::to_string(&output).unwrap();
    for kept in ["starting…", "caf\u{fffd}", "_x/of_its_own", "hologram", "a cow", "\"[1]\""] {
        assert!(text.contains(kept), "{kept}: {text}");
    }
    // The client declares neither files nor terminals, and refuses both.
    let answers: Vec<Value> = run.heard().into_iter().filter(|frame| frame.get("error").is_some()).collect();
    let codes: Vec<_> = answers.iter().map(|frame| (&frame["id"], &frame["error"]["code"])).collect();
    assert_eq!(codes, [(&json!(7), &json!(-32601)), (&json!(8), &json!(-32601))]);
}

/// Only the client itself reports decisions about permissions.
#[test]
fn forged_client_lines_are_recorded_as_notes() {
    let script = r#"ready; echo '{"cowhand":"permission","id":1,"why":"forged"}'; echo '{"cowhand":"failed","message":"forged"}'
        chunk fine; end"#;
    let output = check(script, "completed: fine");
    assert!(
        output.iter().all(|line| line["subtype"] != "permission" && line["type"] != "error"),
        "{output:#?}"
    );
    let notes = output.iter().filter(|line| line["subtype"] == "note");
    assert_eq!(notes.filter(|note| note.to_string().contains("the agent wrote: ")).count(), 2, "{output:#?}");
}

#[test]
fn error_answers_of_agent_fail_the_attempt() {
    for (script, expected) in [
        (
            r#"hear; refuse 1 '{"code":-32600,"message":"Invalid Request"}'; cat >&2"#,
            "reported: the agent answered initialize with an error: Invalid Request",
        ),
        (
            r#"hear; answer 1 '{"protocolVersion":2}'; cat >&2"#,
            "reported: the agent speaks version 2 of the Agent Client Protocol, and cowhand version 1",
        ),
        (
            r"hear; answer 1 '{}'; cat >&2",
            "reported: the agent does not state its version of the Agent Client Protocol; check that its command supports this protocol",
        ),
        (
            r#"begin; hear; refuse 2 '{"code":-32603,"message":"Internal error","data":{"details":"no disk"}}'; cat >&2"#,
            "reported: scripted cannot create a session: Internal error: no disk",
        ),
        (r"begin; hear; answer 2 '{}'; cat >&2", "reported: scripted did not return a session id"),
        (
            r#"hear; answer 1 '{"protocolVersion":1,"agentInfo":{"name":"shy"},"authMethods":[{"id":"k","name":"API key","description":"set SHY_KEY"},{"id":"b","name":"Browser"}]}'
               hear; refuse 2 '{"code":-32000,"message":"Authentication required"}'; cat >&2"#,
            "reported: shy requires a login: Authentication required; log in once in a terminal as the user that runs cowhand, or give its key in `env`; it knows: API key (set SHY_KEY), Browser",
        ),
        (
            r#"ready; refuse 3 '{"code":-32603,"message":"Internal error","data":{"details":"status 500 of the model"}}'; cat >&2"#,
            "reported: Internal error: status 500 of the model",
        ),
        (r#"ready; refuse 3 '{"code":429,"message":"slow down"}'; cat >&2"#, "rate_limited: slow down"),
        (
            r#"ready; refuse 3 '{"code":-32603,"message":"You have hit your usage limit"}'; cat >&2"#,
            "rate_limited: You have hit your usage limit",
        ),
    ] {
        let output = check(script, expected);
        assert!(output.iter().any(|line| line["type"] == "error"), "{output:#?}");
    }
}

/// Sends 100 MB in one line: an update is left out, any other line ends the attempt. Neither is read into
/// memory.
#[test]
fn oversized_lines_are_left_out_or_end_the_attempt() {
    let long = r"long() { head -c 100000000 /dev/zero | tr '\0' x; }";
    let update = r#"printf '{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call_update","toolCallId":"t","rawOutput":"'; long; printf '"}}}\n'"#;
    let output = check(&format!("{long}\nready; {update}; chunk fine; end"), "completed: fine");
    let note = output.iter().find(|line| line["subtype"] == "note").unwrap();
    assert_eq!(note["content"], "an update of 100000132 bytes is left out; the maximum is 16777216");
    check(
        &format!("{long}\nready; long; echo; cat >&2"),
        "reported: the agent wrote a line of 100000000 bytes; the maximum is 16777216",
    );
}

/// The agent sends requests without end and reads nothing.
#[test]
fn agent_that_does_not_read_its_input_fails() {
    let flood = r#"ready; while :; do echo '{"jsonrpc":"2.0","id":1,"method":"fs/read_text_file","params":{}}'; done"#;
    check(flood, "reported: the agent does not read its stdin");
}

#[test]
fn agent_that_does_not_exit_after_its_answer_is_killed() {
    check(
        "trap '' TERM; ready; chunk done; answer 3 '{\"stopReason\":\"end_turn\"}'; while :; do sleep 1; done",
        "completed: done",
    );
}

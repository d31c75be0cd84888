//! Cases that the recordings in `tests/samples` do not cover.

use cowhand_core::job::{ErrorKind, FailReason, Outcome, Termination};
use cowhand_core::output::OutputMessage;
use serde_json::json;

use super::Claude;
use crate::ending::{Ending, ExitStatus};
use crate::runtime::{Finish, KnownMessages, Reader};

fn mapped(line: &str) -> serde_json::Value {
    serde_json::to_value(Reader::claude().read(line)).unwrap()
}

fn finish(lines: &[&str], status: ExitStatus, stopped: Option<Termination>) -> Finish {
    let mut reader = Reader::claude();
    for line in lines {
        reader.read(line);
    }
    let at = "2026-01-01T00:00:00Z".parse().unwrap();
    reader.finish(&Ending {
        at,
        boot: None,
        status,
        stopped,
        leftovers: 0,
        full_disk: None,
        lease_loss: None,
    })
}

/// Messages to the job are shown when Claude repeats them, once. The prompt, which Claude repeats too, is not shown.
#[test]
fn repeated_messages_of_the_user_are_confirmations() {
    let (prompt, id) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
    let line = |id: uuid::Uuid| {
        let message = json!({"role": "user", "content": "text of Claude"});
        json!({"type": "user", "message": message, "uuid": id, "isReplay": true}).to_string()
    };
    let known = OutputMessage::text(Some(OutputMessage::STEERING), "text of the store");
    let mut reader = Reader::Claude(Claude { prompt: Some(prompt), ..Claude::default() });
    reader.set_messages(&KnownMessages::new([(id, known.clone())].into()));
    assert_eq!(reader.read(&line(prompt)), []);
    assert_eq!(reader.read(&line(id)), [known]);
    assert_eq!(reader.confirmed_messages(), [id]);
    let written = serde_json::to_string(&reader).unwrap();
    let mut reader: Reader = serde_json::from_str(&written).unwrap();
    reader.set_messages(&KnownMessages::new([(id, OutputMessage::text(None, "again"))].into()));
    assert_eq!(reader.read(&line(id)), []);
    assert_eq!(reader.confirmed_messages(), [id], "the checkpoint has it");
    assert_eq!(reader.read(&line(uuid::Uuid::from_u128(3))).len(), 1, "an unknown message is kept");
}

#[test]
fn unknown_lines_are_kept() {
    let whole = |json: &serde_json::Value| mapped(&json.to_string());
    for (line, expected) in [
        ("   ", json!([])),
        ("not JSON", json!([{"type": "system", "content": "not JSON"}])),
        ("[1]", json!([{"type": "system", "content": "[1]"}])),
        (
            r#"{"type":"hologram","content":3}"#,
            json!([{"type": "system", "subtype": "unknown_type", "line": {"type": "hologram", "content": 3}}]),
        ),
        (
            r#"{"type":"tool_progress","elapsed":3}"#,
            json!([{"type": "system", "subtype": "tool_progress", "line": {"type": "tool_progress", "elapsed": 3}}]),
        ),
        (
            r#"{"type":"system","subtype":"new","content":{"deep":1}}"#,
            json!([{"type": "system", "subtype": "unknown_type",
                    "line": {"type": "system", "subtype": "new", "content": {"deep": 1}}}]),
        ),
        (r#"{"type":"assistant"}"#, json!([{"type": "assistant"}])),
        (r#"{"type":"error","message":"gone"}"#, json!([{"type": "error", "message": "gone"}])),
    ] {
        assert_eq!(mapped(line), expected, "{line}");
    }
    let image = json!({"type": "user", "message": {"content": [{"type": "image", "source": {"data": "x"}}]}});
    assert_eq!(
        whole(&image),
        json!([{"type": "system", "subtype": "user_input",
                "line": {"block": {"type": "image", "source": {"data": "x"}}}}])
    );
}

#[test]
fn each_block_of_a_line_becomes_a_message() {
    let line = json!({"type": "assistant", "uuid": "u", "message": {
        "id": "m", "usage": {"input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 3},
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "I look.", "citations": [1]},
            {"type": "server_tool_use", "id": "t1", "name": "web_search", "input": null},
            {"type": "web_search_tool_result", "tool_use_id": "t1", "content": [{"title": "x"}]},
            {"type": "sculpture", "of": "a cow"},
        ],
    }});
    let later = json!({"message": {"id": "m"}});
    let with = |block: serde_json::Value| {
        let mut line = later.clone();
        line["block"] = block;
        line
    };
    assert_eq!(
        mapped(&line.to_string()),
        json!([
            {"type": "assistant", "thinking": "hm",
             "usage": {"input_tokens": 3, "output_tokens": 3, "cache_read_input_tokens": 2},
             "line": {"uuid": "u", "message": {"id": "m"}, "block": {"signature": "s"}}},
            {"type": "assistant", "content": "I look.", "line": with(json!({"citations": [1]}))},
            {"type": "tool_use", "tool_name": "web_search", "tool_use_id": "t1", "input": null,
             "line": with(json!({"type": "server_tool_use"}))},
            {"type": "tool_result", "tool_use_id": "t1", "success": true, "result": [{"title": "x"}],
             "line": with(json!({"type": "web_search_tool_result"}))},
            {"type": "assistant", "line": with(json!({"type": "sculpture", "of": "a cow"}))},
        ])
    );
}

#[test]
fn usage_is_counted_once_for_each_message() {
    let mut reader = Reader::claude();
    let mut line = |id: &str| {
        let message = json!({"id": id, "model": "opus", "usage": {"input_tokens": 5, "output_tokens": 1},
                             "content": [{"type": "text", "text": "hi"}]});
        let line = json!({"type": "assistant", "message": message}).to_string();
        serde_json::to_value(reader.read(&line)).unwrap()[0]["usage"]["input_tokens"].as_u64()
    };
    let usages = [line("a"), line("a"), line("b"), line("a"), line("b")];
    assert_eq!(usages, [Some(5), None, Some(5), None, None]);
    let at = "2026-01-01T00:00:00Z".parse().unwrap();
    let status = ExitStatus::signal(15);
    let finish = reader.finish(&Ending {
        at,
        boot: None,
        status,
        stopped: None,
        leftovers: 0,
        full_disk: None,
        lease_loss: None,
    });
    let usage = finish.usage.unwrap();
    assert_eq!((usage.per_model["opus"].input_tokens, usage.total_cost_usd), (10, None));
}

#[test]
fn usage_contains_the_input_of_an_interrupted_call() {
    let call = |id: &str| {
        json!({"type": "assistant", "message": {"id": id, "model": "opus", "content": [],
               "usage": {"input_tokens": 700, "cache_read_input_tokens": 300, "output_tokens": 1}}})
        .to_string()
    };
    for model in ["opus", "opus-4-1"] {
        let interrupted = json!({"type": "result", "subtype": "error_during_execution", "is_error": true,
            "total_cost_usd": 0.5, "modelUsage": {model: {
                "inputTokens": 1_400, "cacheReadInputTokens": 600, "outputTokens": 100, "costUSD": 0.5}}})
        .to_string();
        let lines = [call("a"), call("b"), call("c"), interrupted];
        let usage =
            finish(&lines.each_ref().map(String::as_str), ExitStatus::Code { code: 1 }, None).usage.unwrap();
        assert_eq!(
            serde_json::to_value(usage).unwrap()["per_model"],
            json!({model: {"input_tokens": 2_100, "output_tokens": 100, "cache_creation_input_tokens": 0,
                           "cache_read_input_tokens": 900, "cost_usd": 0.5}})
        );
    }
}

#[test]
fn a_result_without_usage_keeps_the_usage_so_far() {
    let message =
        r#"{"type":"assistant","message":{"id":"a","model":"opus","usage":{"input_tokens":5},"content":[]}}"#;
    for (result, tokens, dollars) in [
        (r#"{"type":"result","subtype":"success","result":"hi"}"#, 5, None),
        (r#"{"type":"result","subtype":"success","total_cost_usd":0.5,"modelUsage":{}}"#, 5, Some(0.5)),
        (r#"{"type":"result","total_cost_usd":0.5,"modelUsage":{"opus":{"inputTokens":7}}}"#, 7, Some(0.5)),
    ] {
        let usage = finish(&[message, result], ExitStatus::Code { code: 0 }, None).usage.unwrap();
        assert_eq!(
            (usage.per_model["opus"].input_tokens, usage.total_cost_usd),
            (tokens, dollars),
            "{result}"
        );
    }
}

#[test]
fn failures_are_classified() {
    let result = |rest: &str| format!(r#"{{"type":"result",{rest}}}"#);
    for (rest, reason, kind, message) in [
        (
            r#""subtype":"success","is_error":true,"api_error_status":529,"result":"API Error: busy""#,
            FailReason::Error,
            ErrorKind::RateLimited,
            "API Error: busy",
        ),
        (
            r#""subtype":"success","is_error":true,"result":"Claude AI usage limit reached|1768000000""#,
            FailReason::Error,
            ErrorKind::RateLimited,
            "Claude AI usage limit reached|1768000000",
        ),
        (
            r#""subtype":"success","is_error":true,"api_error_status":500,"result":"The pipes\n\n  burst""#,
            FailReason::Error,
            ErrorKind::Reported,
            "The pipes burst",
        ),
        (
            r#""subtype":"error_max_turns","is_error":true,"errors":["Reached 3"]"#,
            FailReason::MaxTurns,
            ErrorKind::Reported,
            "Reached 3",
        ),
        (
            r#""subtype":"error_max_budget_usd""#,
            FailReason::Error,
            ErrorKind::Budget,
            "the agent reported error_max_budget_usd without a reason",
        ),
        (
            r#""is_error":true,"api_error_status":503"#,
            FailReason::Error,
            ErrorKind::Reported,
            "the model's server answered 503",
        ),
        (
            r#""subtype":"success","is_error":true,"result":"API Error: Request timed out.""#,
            FailReason::Timeout,
            ErrorKind::Reported,
            "API Error: Request timed out.",
        ),
        (
            r#""subtype":"error_during_execution","errors":["connect ETIMEDOUT 10.0.0.1:443"]"#,
            FailReason::Timeout,
            ErrorKind::Reported,
            "connect ETIMEDOUT 10.0.0.1:443",
        ),
        (
            r#""is_error":true,"api_error_status":504"#,
            FailReason::Timeout,
            ErrorKind::Reported,
            "the model's server answered 504",
        ),
    ] {
        match finish(&[&result(rest)], ExitStatus::Code { code: 0 }, None).outcome {
            Outcome::Failed { reason: r, error, .. } => {
                assert_eq!((r, error.kind, error.message.as_str()), (reason, kind, message));
            }
            other => panic!("{rest}: {other:?}"),
        }
    }
}

#[test]
fn the_exit_status_counts_only_without_a_result_line() {
    let done = r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#;
    let hello = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"hello"}]}}"#;
    let message = |lines: &[&str], status| match finish(lines, status, None).outcome {
        Outcome::Failed { error, summary, .. } => (error.kind, error.message, summary),
        other => panic!("{other:?}"),
    };
    let killed = ExitStatus::signal(15);
    assert_eq!(
        finish(&[done], killed.clone(), None).outcome,
        Outcome::Completed { summary: Some("done".to_owned()) }
    );
    let (kind, text, summary) = message(&[hello], killed);
    assert_eq!(kind, ErrorKind::Signal);
    assert_eq!(text, "ended by SIGTERM, which was not sent by cowhand, and no result line came");
    assert_eq!(summary.as_deref(), Some("hello"));
    let (kind, message, _) = message(&[hello, "Segfault at 0"], ExitStatus::Code { code: 0 });
    assert_eq!(kind, ErrorKind::Exit);
    assert_eq!(message, "exit code 0, and no result line came; last line on stdout: Segfault at 0");

    // If Claude is interrupted while it streams, it writes a result and exits with 0.
    for lines in [&[done][..], &[]] {
        let outcome = finish(lines, ExitStatus::Code { code: 0 }, Some(Termination::Graceful)).outcome;
        assert_eq!(outcome, Outcome::Cancelled { how: Termination::Graceful });
    }
}

#[test]
fn a_reader_is_restored_from_its_checkpoint() {
    let mut reader = Reader::claude();
    reader.read(r#"{"type":"system","subtype":"init","session_id":"s1"}"#);
    assert_eq!(reader.session_id(), Some("s1"));
    reader.read_stderr("careful");
    let again: Reader = serde_json::from_str(&serde_json::to_string(&reader).unwrap()).unwrap();
    assert_eq!(again, reader);
}

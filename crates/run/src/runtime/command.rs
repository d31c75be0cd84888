//! The runtime `command`: any command, whose lines are text or messages in cowhand's JSON.

use std::collections::BTreeMap;

use cowhand_core::job::{JobUsage, ModelUsage, Outcome};
use cowhand_core::output::OutputMessage;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::description::{Capabilities, CommandLine, Description, LaunchRequest};
use super::json::count;
use super::output_record::OutputRecord;
use super::result_line::ResultLine;
use super::{Finish, OutputReader, Reader};
use crate::ending::ExitStatus;
use crate::process::StopSignal;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CommandReader {
    #[serde(rename = "heard")]
    output: OutputRecord,
    /// Usage that the command's messages state, by model.
    #[serde(default)]
    spent: BTreeMap<String, ModelUsage>,
}

/// The agent's config names the command, which gets the prompt on stdin.
pub(super) const DESCRIPTION: Description = Description {
    program: None,
    oldest: None,
    // A command has no session, so a fork only runs the command again.
    capabilities: Capabilities {
        resume: false,
        fork: true,
        cost: true,
        session_id: false,
        asks: false,
        messages: false,
    },
    plan,
    reader: Reader::command,
    interactive: &[],
    missing_session_messages: &[],
    variable_prefixes: &[],
    homes: &[],
    provider: None,
};

fn plan(request: &LaunchRequest<'_>) -> CommandLine {
    CommandLine {
        argv: request.agent.program.command.clone(),
        defaults: Vec::new(),
        environment: Vec::new(),
        files: Vec::new(),
        stop_signal: StopSignal::Terminate,
        reader: Reader::command(),
        input: None,
    }
}

impl CommandReader {
    /// Reads a line: a message in cowhand's form, a result line, or text.
    fn message(&mut self, line: &str) -> OutputMessage {
        let json = line.starts_with('{').then(|| serde_json::from_str::<Value>(line).ok()).flatten();
        let result = json.as_ref().and_then(result_line);
        let is_result = result.is_some();
        if let Some(result) = result {
            self.output.result(result);
        }
        if let Some(json) = &json {
            self.count(json);
        }
        if let Some(message) = json.and_then(|json| OutputMessage::from_json(json).ok()) {
            self.output.message(&message);
            return message;
        }
        // A result line is not text for people, so a summary or an error never shows it as the last line.
        if !is_result {
            self.output.stdout(line);
        }
        OutputMessage::text(None, line)
    }
}

impl CommandReader {
    /// Adds the `usage` of a message of type `assistant` or `system`, which is the usage since the previous message. A
    /// command that uses several models has to state `model`.
    fn count(&mut self, message: &Value) {
        let Some(usage) = message.get("usage").filter(|usage| usage.is_object()) else { return };
        if !message.get("type").is_some_and(|kind| kind == "assistant" || kind == "system") {
            return;
        }
        let known = |model: &&str| self.spent.len() < MAX_MODELS || self.spent.contains_key(*model);
        let model = message.get("model").and_then(Value::as_str).filter(|model| model.len() <= 200);
        let model = model.filter(known).unwrap_or("default");
        let used = ModelUsage {
            input_tokens: count(usage, "input_tokens"),
            output_tokens: count(usage, "output_tokens"),
            cache_creation_input_tokens: count(usage, "cache_creation_input_tokens"),
            cache_read_input_tokens: count(usage, "cache_read_input_tokens"),
            cost_usd: usage.get("cost_usd").and_then(Value::as_f64).map(|dollars| dollars.max(0.0)),
        };
        self.spent.entry(model.to_owned()).or_default().add(&used);
    }
}

/// Maximum number of models. Their usage is part of every checkpoint.
const MAX_MODELS: usize = 64;

impl OutputReader for CommandReader {
    fn line_cap(&self) -> usize {
        1 << 20
    }

    fn read(&mut self, line: &str) -> Vec<OutputMessage> {
        vec![self.message(line)]
    }

    fn read_text(&mut self, line: &str) -> bool {
        let is_text = !line.starts_with('{') || is_other_json(line);
        if is_text {
            self.output.stdout(line);
        }
        is_text
    }

    fn output(&mut self) -> &mut OutputRecord {
        &mut self.output
    }

    fn session_id(&self) -> Option<&str> {
        None
    }

    fn usage(&self) -> Option<JobUsage> {
        let reported = self.output.result.as_ref().map(|result| result.usage.clone());
        let is_empty = |usage: &JobUsage| usage.per_model.is_empty() && usage.total_cost_usd.is_none();
        if self.spent.is_empty() || reported.as_ref().is_some_and(|usage| !is_empty(usage)) {
            return reported;
        }
        let costs: Option<Vec<f64>> = self.spent.values().map(|used| used.cost_usd).collect();
        Some(JobUsage {
            per_model: self.spent.clone(),
            num_turns: reported.and_then(|usage| usage.num_turns),
            total_cost_usd: costs.map(|costs| costs.iter().sum()),
            assumed_usd: None,
        })
    }

    fn finish(self, status: &ExitStatus) -> Finish {
        let usage = self.usage();
        let outcome = match (&self.output.result, status) {
            // A reported failure counts with any exit code.
            (Some(result), _) if result.failed() => result.outcome(),
            (_, ExitStatus::Code { code: 0 }) => Outcome::Completed { summary: self.output.summary() },
            _ => self.output.failed_or_timed_out(status),
        };
        Finish { outcome, usage, session_id: None, resets_at: None }
    }
}

/// Returns true if a line is a JSON object that is neither a message nor a result line, for example a line of a log.
/// Returns false if the line may be a message or a result line.
fn is_other_json(line: &str) -> bool {
    /// The keys by which messages and result lines are recognised.
    #[derive(Deserialize)]
    struct Keys<'a> {
        #[serde(rename = "type", borrow)]
        kind: Option<&'a RawValue>,
        #[serde(borrow)]
        is_error: Option<&'a RawValue>,
    }
    // A key that occurs twice is an error here.
    let Ok(Keys { kind, is_error: None }) = serde_json::from_str(line) else { return false };
    // A type with escapes may be any type.
    kind.is_none_or(|kind| {
        !kind.get().contains('\\') && !OutputMessage::is_message_type(kind.get().trim_matches('"'))
    })
}

/// Reads a result line in Claude's form. Tool results may also contain `is_error`, which is not the result of the job.
fn result_line(json: &Value) -> Option<ResultLine> {
    let fields = json.as_object()?;
    let is_result = fields.get("type").is_none_or(|kind| kind == "result");
    (is_result && fields.get("is_error")?.is_boolean()).then(|| ResultLine::read(fields))
}

#[cfg(test)]
mod tests {
    use cowhand_core::job::{ErrorKind, FailReason, JobError, MAX_TOKENS};
    use serde_json::json;

    use super::*;

    fn finish(stdout: &[&str], stderr: &[&str], status: &ExitStatus) -> Finish {
        let mut reader = Reader::command();
        for line in stdout {
            reader.read(line);
        }
        for line in stderr {
            reader.read_stderr(line);
        }
        let Reader::Command(command) = reader else { unreachable!() };
        command.finish(status)
    }

    #[test]
    fn lines_are_parsed_as_messages_or_kept_as_text() {
        let mut reader = Reader::command();
        for (line, expected) in [
            ("building…", json!({"type": "system", "content": "building…"})),
            ("", json!({"type": "system", "content": ""})),
            (
                r#"{"type":"assistant","content":"hi","mood":1}"#,
                json!({"type": "assistant", "content": "hi", "mood": 1}),
            ),
            (
                r#"{"type":"tool_use","tool_name":"sh","tool_use_id":"t1"}"#,
                json!({"type": "tool_use", "tool_name": "sh", "tool_use_id": "t1"}),
            ),
            (r#"{"type":"tool_use"}"#, json!({"type": "system", "content": r#"{"type":"tool_use"}"#})),
            (r#"{"level":"info"}"#, json!({"type": "system", "content": r#"{"level":"info"}"#})),
            ("[1]", json!({"type": "system", "content": "[1]"})),
            (r#"{"type":"assistant""#, json!({"type": "system", "content": r#"{"type":"assistant""#})),
        ] {
            assert_eq!(serde_json::to_value(reader.read(line)).unwrap(), json!([expected]), "{line}");
        }
    }

    #[test]
    fn text_is_read_as_other_lines() {
        for (line, is_text) in [
            ("building…", true),
            (" ", true),
            ("[1]", true),
            ("{x", false),
            ("{} {}", false),
            ("{}", true),
            (r#"{"level":"info","fields":{"type":"system","is_error":true}}"#, true),
            (r#"{"type":7}"#, true),
            (r#"{"type":null,"usage":{}}"#, true),
            (r#"{"type":"\u0078"}"#, false),
            (r#"{"type":"x","type":"y"}"#, false),
            (r#"{"is_error":1}"#, false),
            (r#"{"type":"tool_use"}"#, false),
        ] {
            let (mut one, mut other) = (Reader::command(), Reader::command());
            assert_eq!(one.read_text(line), is_text, "{line}");
            assert_eq!(other.read(line), [OutputMessage::text(None, line)], "{line}");
            assert!(!is_text || one == other, "{line}");
        }
        let no_text = [
            r#"{"type":"assistant","content":"a"}"#,
            r#"{"t\u0079pe":"\u0061ssistant"}"#,
            r#"{"type":"x","type":"system"}"#,
            r#"{"is_error":false}"#,
        ];
        assert!(no_text.iter().all(|line| !Reader::command().read_text(line)));
    }

    #[test]
    fn invalid_and_huge_usage_is_bounded() {
        let usage = |line: &str| finish(&[line], &[], &ExitStatus::Code { code: 0 }).usage.unwrap().bounded();
        let line = |usage: &str| format!(r#"{{"type":"system","subtype":"usage","usage":{usage}}}"#);
        for (figure, expected) in
            [("18446744073709551616", MAX_TOKENS), ("1e30", MAX_TOKENS), ("-1", 0), ("7", 7)]
        {
            let reported = usage(&line(&format!(r#"{{"input_tokens":{figure}}}"#)));
            assert_eq!(reported.per_model["default"].input_tokens, expected, "{figure}");
            let result = format!(r#"{{"is_error":false,"modelUsage":{{"m":{{"inputTokens":{figure}}}}}}}"#);
            assert_eq!(usage(&result).per_model["m"].input_tokens, expected, "{figure}");
        }
        let reported = usage(&line(r#"{"input_tokens":5,"cost_usd":-3}"#));
        assert_eq!((reported.total_cost_usd, reported.per_model["default"].cost_usd), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn success_has_a_summary() {
        let ok = ExitStatus::Code { code: 0 };
        for (stdout, expected) in [
            (&[][..], None),
            (&["one", "two", "  "], Some("two")),
            (&["one", r#"{"type":"assistant","content":"said\nmore"}"#, "noise"], Some("said\nmore")),
            (&[r#"{"type":"assistant","content":"half","partial":true}"#], None),
            (&[r#"{"is_error":false,"result":"all good"}"#, "bye"], Some("all good")),
            (&["all clean", r#"{"type":"result","is_error":false,"total_cost_usd":0.1}"#], Some("all clean")),
        ] {
            let expected = Outcome::Completed { summary: expected.map(str::to_owned) };
            assert_eq!(finish(stdout, &["warning"], &ok).outcome, expected, "{stdout:?}");
        }
    }

    #[test]
    fn failures_name_the_exit_status_and_the_last_line() {
        let reported_failure =
            r#"{"type":"result","is_error":true,"result":"tests are red","total_cost_usd":0.5}"#;
        let code = |code| ExitStatus::Code { code };
        for (stdout, stderr, status, kind, message) in [
            (
                &["out"][..],
                &["oops", ""][..],
                code(3),
                ErrorKind::Exit,
                "exit code 3; last line on stderr: oops",
            ),
            (&["out"], &[], code(1), ErrorKind::Exit, "exit code 1; last line on stdout: out"),
            (
                &[],
                &["fork: no", "cowhand: the sandbox's cap on processes (48) was reached"],
                code(1),
                ErrorKind::Exit,
                "exit code 1; last line on stderr: fork: no",
            ),
            (
                &[],
                &["cowhand: the agent is not started"],
                code(126),
                ErrorKind::Exit,
                "exit code 126; cowhand: the agent is not started",
            ),
            (&[], &[], code(1), ErrorKind::Exit, "exit code 1"),
            (
                &[r#"{"type":"error","message":"no\ndisk"}"#],
                &["trace"],
                code(1),
                ErrorKind::Exit,
                "exit code 1; it reported: no disk",
            ),
            (
                &[],
                &[],
                ExitStatus::signal(9),
                ErrorKind::Signal,
                "ended by SIGKILL (out of memory?), which was not sent by cowhand",
            ),
            (
                &["out"],
                &[],
                ExitStatus::Signal { signal: 15, code: Some(143) },
                ErrorKind::Signal,
                "ended by SIGTERM, which was not sent by cowhand (its sandbox reported exit code 143); last line on \
                 stdout: out",
            ),
            (
                &["out"],
                &[],
                ExitStatus::Lost { why: Some("the engine is gone".to_owned()) },
                ErrorKind::Lost,
                "lost: the engine is gone; last line on stdout: out",
            ),
            (
                &[],
                &[],
                ExitStatus::StartFailed { message: "no such file: agent.sh".to_owned() },
                ErrorKind::StartFailed,
                "could not be started: no such file: agent.sh",
            ),
            (&[reported_failure], &[], code(0), ErrorKind::Reported, "tests are red"),
            (
                &[r#"{"is_error":true}"#],
                &[],
                code(0),
                ErrorKind::Reported,
                "the agent reported is_error without a reason",
            ),
        ] {
            let expected = JobError { kind, message: message.to_owned() };
            match finish(stdout, stderr, &status).outcome {
                Outcome::Failed { reason: FailReason::Error, error, .. } => assert_eq!(error, expected),
                other => panic!("{stdout:?} {status:?}: {other:?}"),
            }
        }
        let usage = finish(&[reported_failure], &[], &code(0)).usage.unwrap();
        assert_eq!(usage.total_cost_usd, Some(0.5));
        let tool_failed = r#"{"type":"tool_result","tool_use_id":"t","is_error":true}"#;
        let outcome = finish(&[tool_failed], &[], &code(0)).outcome;
        assert!(matches!(outcome, Outcome::Completed { .. }), "{outcome:?}");
    }

    /// A timeout of the network is recognised by the message, by the code, and by the last line on stderr, where most
    /// commands state why they failed.
    #[test]
    fn timeouts_of_the_network_are_recognised() {
        let code = |code| ExitStatus::Code { code };
        let timed_out = |stdout: &[&str], stderr: &[&str]| {
            let Outcome::Failed { reason, .. } = finish(stdout, stderr, &code(1)).outcome else { panic!() };
            reason == FailReason::Timeout
        };
        assert!(timed_out(&[r#"{"type":"error","message":"connect ETIMEDOUT 10.0.0.1:443"}"#], &[]));
        assert!(timed_out(&[r#"{"type":"error","message":"no answer","code":"ETIMEDOUT"}"#], &[]));
        assert!(timed_out(&[r#"{"is_error":true,"result":"Request timed out"}"#], &[]));
        assert!(timed_out(&["out"], &["trying", "Error: connect ETIMEDOUT 10.0.0.1:443", ""]));
        assert!(timed_out(&[], &["errno: 'ETIMEDOUT'"]));
        assert!(
            !timed_out(&["connect ETIMEDOUT"], &["connect ETIMEDOUT", "assertion failed"]),
            "ETIMEDOUT is not in the last line on stderr"
        );
        assert!(!timed_out(&["connect ETIMEDOUT"], &[]), "ETIMEDOUT is not on stderr");
        let killed = finish(&[], &["connect ETIMEDOUT"], &ExitStatus::signal(9)).outcome;
        assert!(
            matches!(killed, Outcome::Failed { reason: FailReason::Error, .. }),
            "a killed command did not time out: {killed:?}"
        );
        let well = finish(&[], &["connect ETIMEDOUT, trying again"], &code(0)).outcome;
        assert!(matches!(well, Outcome::Completed { .. }), "{well:?}");
    }
}

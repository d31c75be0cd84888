//! Recordings of Codex, the Gemini CLI, OpenCode and agents that speak the Agent Client Protocol, one for each
//! situation, and the messages that cowhand reads from them. `claude_samples.rs` has the recordings of Claude Code.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in #[test] functions, not in those they call")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use cowhand_core::job::{JobStatus, Termination};
use cowhand_core::output::OutputMessage;
use cowhand_run::ending::{Ending, ExitStatus};
use cowhand_run::runtime::{Finish, Reader};
use serde_json::{Value, json};

#[derive(Default)]
struct Sample {
    stdout: Vec<String>,
    stderr: Vec<String>,
}

/// Returns the recordings by name, each with its stdout and its stderr.
fn samples(runtime: &str) -> BTreeMap<String, Sample> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(runtime);
    let mut samples = BTreeMap::<String, Sample>::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let sample = samples.entry(path.file_stem().unwrap().to_str().unwrap().to_owned()).or_default();
        let lines = std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        match path.extension().unwrap().to_str().unwrap() {
            // A `.txt` file is an exchange, see `transcript`.
            "jsonl" | "txt" => sample.stdout = lines,
            "stderr" => sample.stderr = lines,
            other => panic!("what is a sample called .{other}?"),
        }
    }
    samples
}

impl Sample {
    fn read(
        &self,
        mut reader: Reader,
        code: i32,
        stopped: Option<Termination>,
    ) -> (Vec<OutputMessage>, Finish) {
        let mut messages: Vec<_> = self.stdout.iter().flat_map(|line| reader.read(line)).collect();
        for line in &self.stderr {
            reader.read_stderr(line);
            messages.push(OutputMessage::text(Some(Reader::STDERR), line));
        }
        messages.extend(reader.rest());
        let at = "2026-11-15T06:30:00Z".parse().unwrap();
        let status = ExitStatus::Code { code };
        (
            messages,
            reader.finish(&Ending {
                at,
                boot: None,
                status,
                stopped,
                leftovers: 0,
                full_disk: None,
                lease_loss: None,
            }),
        )
    }

    fn lines(&self) -> Vec<Value> {
        let lines = self.stdout.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        // Lines of cowhand's own client are not output of the agent.
        lines.filter(|line| line.get("cowhand").is_none()).collect()
    }
}

/// Checks all recordings of a runtime. `failed` has the exit codes of the recordings whose program failed.
fn check(runtime: &str, reader: fn() -> Reader, failed: &[(&str, i32)]) {
    let samples = samples(runtime);
    assert!(failed.iter().all(|(name, _)| samples.contains_key(*name)), "{failed:?}");
    for (name, sample) in samples {
        let code = failed.iter().find(|(failed, _)| *failed == name).map_or(0, |(_, code)| *code);
        let (messages, finish) = sample.read(reader(), code, None);
        let expected = if code == 0 { JobStatus::Completed } else { JobStatus::Failed };
        assert_eq!(finish.outcome.status(), expected, "{runtime} {name}: {:?}", finish.outcome);
        assert_nothing_lost(&format!("{runtime} {name}"), &sample, &messages);
        snapshot(runtime, &name, &messages, &finish);
    }
}

fn snapshot(runtime: &str, name: &str, messages: &[OutputMessage], finish: &Finish) {
    let mut page = String::new();
    for message in messages {
        let line = serde_json::to_string(message).unwrap();
        let short: String = line.chars().take(600).collect();
        writeln!(page, "{short}").unwrap();
    }
    writeln!(page, "----- outcome\n{}", serde_json::to_string(&finish.outcome).unwrap()).unwrap();
    writeln!(page, "----- usage\n{}", serde_json::to_string(&finish.usage).unwrap()).unwrap();
    write!(page, "----- session\n{}", finish.session_id.as_deref().unwrap_or("none")).unwrap();
    let path = format!("snapshots/{runtime}");
    insta::with_settings!({snapshot_path => path, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!(name.to_owned(), page);
    });
}

/// Checks that every text and every number of a line is in the messages.
fn assert_nothing_lost(name: &str, sample: &Sample, messages: &[OutputMessage]) {
    let output = serde_json::to_string(messages).unwrap();
    for line in sample.lines() {
        let mut leaves = Vec::new();
        collect(&line, &mut leaves);
        for leaf in leaves.iter().filter(|leaf| !USUAL.contains(&leaf.as_str())) {
            let written = serde_json::to_string(leaf).unwrap();
            let bare = written.trim_matches('"');
            assert!(output.contains(bare), "{name}: {bare} is lost of {line}");
        }
    }
    for line in &sample.stderr {
        assert!(output.contains(serde_json::to_string(line).unwrap().trim_matches('"')), "{name}: {line}");
    }
}

/// Types and states that the type of a message already expresses.
const USUAL: [&str; 22] = [
    "item.started",
    "item.completed",
    "agent_message",
    "turn.failed",
    "message",
    "user",
    "success",
    "tool_use",
    "tool_result",
    "true",
    "text",
    "in_progress",
    "completed",
    "error",
    "2.0",
    "session/update",
    "agent_message_chunk",
    "tool_call_update",
    "tool_call",
    "pending",
    "content",
    "false",
];

/// Keys of lists of which only the length is kept.
const LISTS: [&str; 4] = ["availableCommands", "availableModels", "availableModes", "options"];

fn collect(value: &Value, leaves: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Array(items) => items.iter().for_each(|item| collect(item, leaves)),
        Value::Object(fields) => {
            // The messages contain times in another form.
            let fields =
                fields.iter().filter(|(key, _)| *key != "timestamp" && !LISTS.contains(&key.as_str()));
            fields.for_each(|(_, value)| collect(value, leaves));
        }
        Value::String(text) => leaves.push(text.clone()),
        other => leaves.push(other.to_string()),
    }
}

#[test]
fn codex() {
    let failed = [
        ("connrefused", 1),
        ("err400", 1),
        ("err401", 1),
        ("err500", 1),
        ("nogit", 1),
        ("resume-missing", 1),
    ];
    check("codex", Reader::codex, &failed);
}

#[test]
fn gemini() {
    check("gemini", Reader::gemini, &[("err429", 1), ("json", 1), ("resume-missing", 42)]);
}

#[test]
fn opencode() {
    let failed = [("badmodel", 1), ("err400", 1), ("err401", 1), ("resume-missing", 1)];
    check("opencode", Reader::opencode, &failed);
}

/// Returns the lines of an exchange between a client and an agent, and whether each line is from the client.
fn transcript(name: &str) -> Vec<(bool, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples/acp");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    text.lines().map(|line| (line.starts_with('>'), line[2..].to_owned())).collect()
}

/// Returns the line that cowhand's client writes for a line of the exchange. It does not write parameters.
fn as_our_client_writes((ours, line): &(bool, String)) -> Option<String> {
    let frame: Value = serde_json::from_str(line).unwrap();
    let id = &frame["id"];
    match frame["method"].as_str() {
        _ if !ours => Some(line.clone()),
        Some("session/cancel") => None,
        Some(method) => Some(json!({"cowhand": "asked", "id": id, "method": method}).to_string()),
        None => {
            let line =
                json!({"cowhand": "permission", "id": id, "answer": frame["result"], "why": "recorded"});
            Some(line.to_string())
        }
    }
}

/// Each of these exchanges has three turns: a text answer, a tool call, and a cancelled turn. An attempt has one turn,
/// in a session whose agent may state the earlier cost.
#[test]
fn acp() {
    for agent in ["claude-agent-acp", "codex", "gemini", "qwen"] {
        let lines: Vec<String> =
            transcript(&format!("{agent}.txt")).iter().filter_map(as_our_client_writes).collect();
        let stderr = samples("acp").remove(agent).unwrap().stderr;
        let starts: Vec<usize> =
            (0..lines.len()).filter(|at| lines[*at].contains("\"method\":\"session/prompt\"")).collect();
        assert_eq!(starts.len(), 3, "{agent}");
        for (turn, name) in ["text", "tool", "cancel"].into_iter().enumerate() {
            let end = starts.get(turn + 1).copied().unwrap_or(lines.len());
            let before = lines[starts[0]..starts[turn]].iter().filter(|line| line.contains("usage_update"));
            let opening = lines[..starts[0]].iter().chain(before);
            let stdout = opening.chain(&lines[starts[turn]..end]).cloned().collect();
            let sample = Sample { stdout, stderr: stderr.clone() };
            let stopped = (name == "cancel").then_some(Termination::Graceful);
            let (messages, finish) = sample.read(Reader::acp(), 0, stopped);
            let expected = if stopped.is_some() { JobStatus::Cancelled } else { JobStatus::Completed };
            assert_eq!(finish.outcome.status(), expected, "{agent} {name}: {:?}", finish.outcome);
            assert_nothing_lost(&format!("{agent} {name}"), &sample, &messages);
            snapshot("acp", &format!("{agent}-{name}"), &messages, &finish);
        }
    }
}

/// A recording of Claude Code that is controlled by another program. The reader of Claude Code reads it, and keeps the
/// lines that are only for that program. Other protocols have no recordings: cowhand starts `codex exec` and not `codex
/// app-server`, and the example of the official ACP crate prints Rust values instead of frames.
#[test]
fn a_recording_of_the_control_protocol_is_read() {
    let stdout = transcript("claude-control-protocol.txt");
    let stdout = stdout.into_iter().filter(|(ours, _)| !ours).map(|(_, line)| line).collect();
    let sample = Sample { stdout, stderr: Vec::new() };
    let (messages, finish) = sample.read(Reader::claude(), 1, None);
    assert_eq!(finish.outcome.status(), JobStatus::Failed, "{:?}", finish.outcome);
    snapshot("acp", "claude-control-protocol", &messages, &finish);
}

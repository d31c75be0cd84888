//! Recordings of Codex, the Gemini CLI and OpenCode, one for each situation: what cowhand makes of them. Those of
//! Claude Code have a file of their own.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in #[test] functions, not in those they call")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use cowhand::run::ending::{Ending, ExitStatus};
use cowhand::run::runtime::{Finish, Reader};
use cowhand_core::job::JobStatus;
use cowhand_core::output::OutputMessage;
use serde_json::Value;

#[derive(Default)]
struct Sample {
    stdout: Vec<String>,
    stderr: Vec<String>,
}

/// What a run wrote to stdout and to stderr belongs together.
fn samples(runtime: &str) -> BTreeMap<String, Sample> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(runtime);
    let mut samples = BTreeMap::<String, Sample>::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let sample = samples.entry(path.file_stem().unwrap().to_str().unwrap().to_owned()).or_default();
        let lines = std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        match path.extension().unwrap().to_str().unwrap() {
            "jsonl" => sample.stdout = lines,
            "stderr" => sample.stderr = lines,
            other => panic!("what is a sample called .{other}?"),
        }
    }
    samples
}

impl Sample {
    fn read(&self, mut reader: Reader, code: i32) -> (Vec<OutputMessage>, Finish) {
        let mut messages: Vec<_> = self.stdout.iter().flat_map(|line| reader.read(line)).collect();
        messages.extend(self.stderr.iter().map(|line| reader.read_stderr(line)));
        let at = "2026-11-15T06:30:00Z".parse().unwrap();
        let status = ExitStatus::Code { code };
        (messages, reader.finish(&Ending { at, status, stopped: None, leftovers: 0 }))
    }

    fn lines(&self) -> Vec<Value> {
        self.stdout.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// Takes a recording and the exit code that its program had; the names of those that failed are listed.
fn check(runtime: &str, reader: fn() -> Reader, failed: &[(&str, i32)]) {
    let samples = samples(runtime);
    assert!(failed.iter().all(|(name, _)| samples.contains_key(*name)), "{failed:?}");
    for (name, sample) in samples {
        let code = failed.iter().find(|(failed, _)| *failed == name).map_or(0, |(_, code)| *code);
        let (messages, finish) = sample.read(reader(), code);
        let expected = if code == 0 { JobStatus::Completed } else { JobStatus::Failed };
        assert_eq!(finish.outcome.status(), expected, "{runtime} {name}: {:?}", finish.outcome);
        assert_nothing_lost(&format!("{runtime} {name}"), &sample, &messages);
        let mut page = String::new();
        for message in &messages {
            let line = serde_json::to_string(message).unwrap();
            let short: String = line.chars().take(600).collect();
            writeln!(page, "{short}").unwrap();
        }
        writeln!(page, "----- outcome\n{}", serde_json::to_string(&finish.outcome).unwrap()).unwrap();
        writeln!(page, "----- usage\n{}", serde_json::to_string(&finish.usage).unwrap()).unwrap();
        write!(page, "----- session\n{}", finish.session_id.as_deref().unwrap_or("none")).unwrap();
        let path = format!("snapshots/{runtime}");
        insta::with_settings!({snapshot_path => path, prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!(name.clone(), page);
        });
    }
}

/// Every text and every number of a line can be found again in what came of it.
fn assert_nothing_lost(name: &str, sample: &Sample, messages: &[OutputMessage]) {
    let told = serde_json::to_string(messages).unwrap();
    for line in sample.lines() {
        let mut leaves = Vec::new();
        collect(&line, &mut leaves);
        for leaf in leaves.iter().filter(|leaf| !USUAL.contains(&leaf.as_str())) {
            let written = serde_json::to_string(leaf).unwrap();
            let bare = written.trim_matches('"');
            assert!(told.contains(bare), "{name}: {bare} is lost of {line}");
        }
    }
    for line in &sample.stderr {
        assert!(told.contains(serde_json::to_string(line).unwrap().trim_matches('"')), "{name}: {line}");
    }
}

/// Types and states that the type of a message says as well.
const USUAL: [&str; 14] = [
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
];

fn collect(value: &Value, leaves: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Array(items) => items.iter().for_each(|item| collect(item, leaves)),
        Value::Object(fields) => {
            // Times are those of the messages, in our own form.
            let fields = fields.iter().filter(|(key, _)| *key != "timestamp");
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

//! Recordings of Claude Code, one for each situation, and the messages that cowhand reads from them.
//!
//! The snapshots are for people and shorten long values. Other tests check on the complete messages that nothing is
//! lost.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in #[test] functions, not in those they call")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use cowhand_core::job::{JobStatus, Outcome};
use cowhand_core::output::OutputMessage;
use cowhand_run::ending::{Ending, ExitStatus};
use cowhand_run::runtime::{Finish, Reader};
use serde_json::{Value, json};

struct Sample {
    name: String,
    stdout: Vec<String>,
    stderr: Vec<String>,
}

/// Returns the recordings under `tests/samples/claude`, each with its stdout and its stderr.
fn samples() -> Vec<Sample> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples/claude");
    let mut samples = BTreeMap::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let sample =
            samples.entry(name.clone()).or_insert(Sample { name, stdout: Vec::new(), stderr: Vec::new() });
        let lines = std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        match path.extension().unwrap().to_str().unwrap() {
            "jsonl" => sample.stdout = lines,
            "stderr" => sample.stderr = lines,
            other => panic!("what is a sample called .{other}?"),
        }
    }
    samples.into_values().collect()
}

impl Sample {
    fn input(&self) -> Vec<Value> {
        self.stdout.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn result(&self) -> Option<Value> {
        self.input().into_iter().rfind(|line| line["type"] == "result")
    }

    /// Reads the recording with the exit code that Claude had: 1 after a failure.
    fn read(&self) -> (Vec<OutputMessage>, Finish) {
        let mut reader = Reader::claude();
        let mut messages: Vec<_> = self.stdout.iter().flat_map(|line| reader.read(line)).collect();
        for line in &self.stderr {
            reader.read_stderr(line);
            messages.push(OutputMessage::text(Some(Reader::STDERR), line));
        }
        let failed = self.result().is_none_or(|result| result["is_error"] == true);
        let ending = Ending {
            at: "2026-11-15T06:30:00Z".parse().unwrap(),
            boot: None,
            status: ExitStatus::Code { code: i32::from(failed) },
            stopped: None,
            leftovers: 0,
            full_disk: None,
            lease_loss: None,
        };
        let finish = reader.finish(&ending);
        (messages, finish)
    }
}

#[test]
fn every_recording_matches_its_snapshot() {
    for sample in samples() {
        let (messages, finish) = sample.read();
        let mut page = String::new();
        for message in &messages {
            writeln!(page, "{}", shorten(serde_json::to_value(message).unwrap())).unwrap();
        }
        writeln!(page, "----- outcome\n{}", serde_json::to_string(&finish.outcome).unwrap()).unwrap();
        writeln!(page, "----- usage\n{}", serde_json::to_string(&finish.usage).unwrap()).unwrap();
        write!(page, "----- session\n{}", finish.session_id.as_deref().unwrap_or("none")).unwrap();
        insta::with_settings!({snapshot_path => "snapshots/claude", prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!(sample.name.clone(), page);
        });
    }
}

/// Replaces long texts by their beginning and length, and long lists by their length.
fn shorten(value: Value) -> Value {
    match value {
        Value::String(text) if text.chars().count() > 150 => {
            json!(format!(
                "{}… ({} characters)",
                text.chars().take(60).collect::<String>(),
                text.chars().count()
            ))
        }
        Value::Array(items) if items.len() > 3 => json!(format!("({} items)", items.len())),
        Value::Array(items) => items.into_iter().map(shorten).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, shorten(value))).collect(),
        other => other,
    }
}

fn blocks(lines: &[Value], kind: &str) -> Vec<Value> {
    let contents = lines.iter().filter_map(|line| line["message"]["content"].as_array());
    contents.flatten().filter(|block| block["type"] == kind).cloned().collect()
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

fn texts(values: &[Value], key: &str) -> Vec<String> {
    values.iter().map(|value| value[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn no_tool_call_tool_result_or_text_is_lost() {
    for sample in samples() {
        let (input, (messages, _)) = (sample.input(), sample.read());
        let output: Vec<_> = messages.iter().map(|message| serde_json::to_value(message).unwrap()).collect();
        let of_type =
            |kind: &str| output.iter().filter(|line| line["type"] == kind).cloned().collect::<Vec<_>>();

        let (called, calls) = (blocks(&input, "tool_use"), of_type("tool_use"));
        assert_eq!(texts(&calls, "tool_use_id"), texts(&called, "id"), "{}", sample.name);
        assert_eq!(texts(&calls, "tool_name"), texts(&called, "name"), "{}", sample.name);
        for (call, called) in calls.iter().zip(&called) {
            assert_eq!(call["input"], called["input"], "{}", sample.name);
        }

        let (answered, answers) = (blocks(&input, "tool_result"), of_type("tool_result"));
        assert_eq!(texts(&answers, "tool_use_id"), texts(&answered, "tool_use_id"), "{}", sample.name);
        for (answer, answered) in answers.iter().zip(&answered) {
            let failed = answered["is_error"] == true;
            assert_eq!(answer["success"], !failed, "{}", sample.name);
            assert_eq!(
                answer[if failed { "error" } else { "result" }],
                answered["content"],
                "{}",
                sample.name
            );
        }

        let expected = texts(&blocks(&input, "text"), "text");
        let whole = output.iter().filter(|line| line["partial"] != true);
        let written = whole.filter(|line| line["type"] == "assistant" || line["subtype"] == "user_input");
        let written: Vec<_> =
            written.filter_map(|line| line["content"].as_str().map(str::to_owned)).collect();
        let first = input.iter().filter_map(|line| line["message"]["content"].as_str().map(str::to_owned));
        assert_eq!(sorted(written), sorted(expected.into_iter().chain(first).collect()), "{}", sample.name);

        let thoughts: Vec<_> = output.iter().filter(|line| line["thinking"].is_string()).cloned().collect();
        let thought = blocks(&input, "thinking");
        assert_eq!(texts(&thoughts, "thinking"), texts(&thought, "thinking"), "{}", sample.name);
    }
}

/// The messages contain the ids and the system keys of every line, and the whole result.
#[test]
fn the_ids_and_keys_of_every_line_are_kept() {
    for sample in samples() {
        let (input, (messages, _)) = (sample.input(), sample.read());
        let output: Vec<_> = messages.iter().map(|message| serde_json::to_value(message).unwrap()).collect();
        for line in &input {
            let uuid = &line["uuid"];
            let found =
                output.iter().find(|message| message["uuid"] == *uuid || message["line"]["uuid"] == *uuid);
            let message = found.unwrap_or_else(|| panic!("{}: nothing left of {line}", sample.name));
            match line["type"].as_str().unwrap() {
                "system" => assert_eq!(message, line, "{}", sample.name),
                "result" => assert_eq!(message["line"], *line, "{}", sample.name),
                "user" => {
                    assert_eq!(
                        message["line"]["tool_use_result"], line["tool_use_result"],
                        "{}",
                        sample.name
                    );
                }
                _ => {}
            }
        }
    }
}

#[test]
fn cost_and_outcome_are_those_of_the_result_line() {
    for sample in samples() {
        let (_, finish) = sample.read();
        let Some(result) = sample.result() else {
            assert_eq!(finish.usage, None, "{}", sample.name);
            assert_eq!(finish.outcome.status(), JobStatus::Failed, "{}", sample.name);
            continue;
        };
        let usage = finish.usage.unwrap();
        assert_eq!(usage.total_cost_usd, result["total_cost_usd"].as_f64(), "{}", sample.name);
        let models = result["modelUsage"].as_object().unwrap();
        assert_eq!(usage.per_model.len(), models.len(), "{}", sample.name);
        for (model, counts) in models {
            let tokens = usage.per_model[model];
            assert_eq!(Some(tokens.input_tokens), counts["inputTokens"].as_u64(), "{}", sample.name);
            assert_eq!(Some(tokens.output_tokens), counts["outputTokens"].as_u64(), "{}", sample.name);
        }
        let expected = if result["is_error"] == true { JobStatus::Failed } else { JobStatus::Completed };
        assert_eq!(finish.outcome.status(), expected, "{}", sample.name);
        if let Outcome::Completed { summary } = finish.outcome {
            assert_eq!(summary.as_deref(), result["result"].as_str(), "{}", sample.name);
        }
    }
}

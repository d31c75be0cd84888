mod mixed;

use std::fs;
use std::io::Write as _;

use cowhand_core::job::{ErrorKind, JobStatus, Outcome};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::ending::ExitStatus;
use crate::redact::Redactor;
use crate::watch::Watch;

/// A folder with the files of one attempt.
struct AttemptFiles(TempDir);

impl AttemptFiles {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn paths(&self) -> TailFiles {
        let path = |name: &str| self.0.path().join(name);
        TailFiles {
            stdout: path("stdout"),
            stderr: path("stderr"),
            jsonl: path("job.jsonl"),
            index: path("job.index"),
            attempt: 1,
            previous_ending: None,
        }
    }

    fn open(&self, reader: Reader) -> Tailer {
        Tailer::open(self.paths(), reader, Redactor::default(), now()).unwrap()
    }

    /// Opens the files as a later attempt of the same job.
    fn open_as(&self, attempt: u32) -> Tailer {
        let files = TailFiles { attempt, ..self.paths() };
        Tailer::open(files, Reader::command(), Redactor::default(), now()).unwrap()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.path().join(name), bytes).unwrap();
    }

    fn append(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let file = OpenOptions::new().create(true).append(true).open(self.0.path().join(name));
        file.unwrap().write_all(bytes.as_ref()).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.path().join(name)).unwrap_or_default()
    }

    /// Returns the messages of the JSONL without their timestamps. Every line has to be complete.
    fn messages(&self) -> Vec<Value> {
        let text = String::from_utf8(self.read("job.jsonl")).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        let line = |line: &str| {
            let mut message: Value = serde_json::from_str(line).unwrap();
            assert!(message.as_object_mut().unwrap().remove("timestamp").is_some());
            message
        };
        text.lines().map(line).collect()
    }
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn exited(code: i32) -> Ending {
    Ending {
        at: now(),
        boot: None,
        status: ExitStatus::Code { code },
        stopped: None,
        leftovers: 0,
        full_disk: None,
        lease_loss: None,
    }
}

fn text(content: &str) -> Value {
    json!({"type": "system", "content": content})
}

fn stderr(content: &str) -> Value {
    json!({"type": "system", "subtype": "stderr", "content": content})
}

#[test]
fn lines_become_messages_as_they_come() {
    let files = AttemptFiles::new();
    let mut tail = files.open(Reader::command());
    assert_eq!(tail.advance(now()).unwrap(), 0);
    files.append("stdout", "one\ntw");
    files.append("stderr", "careful\n");
    assert_eq!(tail.advance(now()).unwrap(), 2);
    assert_eq!(files.messages(), [text("one"), stderr("careful")]);
    let first = "{\"type\":\"system\",\"content\":\"one\",\"timestamp\":\"2026-01-01T00:00:00Z\"}\n";
    assert!(files.read("job.jsonl").starts_with(first.as_bytes()));
    files.append("stdout", b"o\r\nthr\xc3");
    assert_eq!(tail.advance(now()).unwrap(), 1);
    assert_eq!(files.messages(), [text("one"), stderr("careful"), text("two")]);
    files.append("stdout", b"\xa9e\xff");
    let finish = tail.finish(&exited(0), now()).unwrap();
    assert_eq!(files.messages().last().unwrap(), &text("thrée\u{fffd}"));
    assert_eq!(finish.outcome, Outcome::Completed { summary: Some("thrée\u{fffd}".to_owned()) });
    assert_eq!(tail.lines(), 4);
}

/// Final content of both raw files, and the reader for them.
struct RawOutput {
    reader: Reader,
    stdout: &'static [u8],
    stderr: &'static [u8],
}

fn raw_outputs() -> [RawOutput; 2] {
    let claude = concat!(
        r#"{"type":"system","subtype":"init","session_id":"s1"}"#,
        "\n",
        r#"{"type":"assistant","message":{"id":"m","model":"o","usage":{"input_tokens":1},"content":[{"type":"text","text":"é"}]}}"#,
        "\n",
        r#"{"type":"assistant","message":{"id":"m","model":"o","usage":{"input_tokens":1},"content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}"#,
        "\n\n",
        r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"busy","total_cost_usd":0.5}"#,
    );
    [
        RawOutput { reader: Reader::claude(), stdout: claude.as_bytes(), stderr: b"slow\nvery slow" },
        RawOutput {
            reader: Reader::command(),
            stdout: b"a\r\nb\xff\n\n{\"type\":\"x\"}\nlast",
            stderr: b"w1\nw2\n",
        },
    ]
}

/// Splits the messages by file, because the order between the two files is not fixed.
fn by_source(appended: Vec<Value>) -> (Vec<Value>, Vec<Value>) {
    appended.into_iter().partition(|message| message["subtype"] == "stderr")
}

/// The daemon dies after each byte that the agent writes. At that time it has written the JSONL, and the checkpoint is
/// missing, cut or complete.
#[test]
fn each_message_is_written_once_despite_kills() {
    for output in raw_outputs() {
        let whole = AttemptFiles::new();
        whole.write("stdout", output.stdout);
        whole.write("stderr", output.stderr);
        let finish = whole.open(output.reader.clone()).finish(&exited(1), now()).unwrap();
        let expected = by_source(whole.messages());

        let running = AttemptFiles::new();
        let mut tail = running.open(output.reader.clone());
        for step in 0..output.stdout.len() {
            let before = running.read("job.index");
            running.append("stdout", &output.stdout[step..=step]);
            running.append("stderr", output.stderr.get(step..=step).unwrap_or_default());
            tail.advance(now()).unwrap();
            let after = running.read("job.index");
            let near_the_end = [before.len(), after.len().saturating_sub(1), after.len()];
            for cut in (before.len()..after.len()).step_by(37).chain(near_the_end) {
                let crashed = AttemptFiles::new();
                for name in ["stdout", "stderr", "job.jsonl"] {
                    crashed.write(name, running.read(name));
                }
                crashed.write("job.index", &after[..cut]);
                // The agent continues to write while no daemon runs.
                crashed.append("stdout", &output.stdout[step + 1..]);
                crashed.append("stderr", output.stderr.get(step + 1..).unwrap_or_default());
                let again = crashed.open(output.reader.clone()).finish(&exited(1), now()).unwrap();
                assert_eq!(by_source(crashed.messages()), expected, "after {step} bytes, index cut at {cut}");
                assert_eq!(again, finish);
            }
        }
    }
}

#[test]
fn a_partly_written_batch_is_removed_and_rewritten() {
    for output in raw_outputs() {
        let whole = AttemptFiles::new();
        whole.write("stdout", output.stdout);
        let fresh = || whole.open(output.reader.clone());
        let first = whole.read("job.index");
        let mut tail = fresh();
        let begun = whole.read("job.index");
        assert!(first.is_empty() && !begun.is_empty());
        tail.advance(now()).unwrap();
        let (expected, written) = (whole.messages(), whole.read("job.jsonl"));
        for cut in 0..written.len() {
            whole.write("job.jsonl", &written[..cut]);
            whole.write("job.index", &begun);
            fresh().advance(now()).unwrap();
            assert_eq!(whole.messages(), expected, "cut at {cut}");
        }
    }
}

#[test]
fn an_incomplete_first_checkpoint_is_ignored() {
    let files = AttemptFiles::new();
    files.open(Reader::command());
    let first = files.read("job.index");
    for cut in 0..first.len() {
        let files = AttemptFiles::new();
        files.write("job.index", &first[..cut]);
        for line in ["one\n", "two\n"] {
            files.append("stdout", line);
            files.open(Reader::command()).advance(now()).unwrap();
        }
        assert_eq!(files.messages(), [text("one"), text("two")], "cut at {cut}");
    }
}

#[test]
fn a_second_attempt_keeps_the_output_of_the_first() {
    let files = AttemptFiles::new();
    // A power failure has left an incomplete line.
    files.write(
        "job.jsonl",
        "{\"type\":\"system\",\"content\":\"first\",\"timestamp\":\"x\"}\n{\"type\":\"sys",
    );
    files.write("stdout", "second\n");
    assert_eq!(files.open_as(2).advance(now()).unwrap(), 2);
    let border = json!({"type": "system", "subtype": "attempt", "content": "attempt 2"});
    assert_eq!(files.messages(), [text("first"), border.clone(), text("second")]);
    files.append("stdout", "third\n");
    let mut tail = files.open_as(2);
    assert_eq!((tail.advance(now()).unwrap(), tail.lines()), (1, 4));
    assert_eq!(files.messages(), [text("first"), border, text("second"), text("third")]);
}

#[test]
fn an_attempt_without_output_is_marked_once() {
    let border = json!({"type": "system", "subtype": "attempt", "content": "attempt 2"});
    let first = "{\"type\":\"system\",\"content\":\"first\",\"timestamp\":\"x\"}\n";
    for (begins, ends) in [(false, false), (true, false), (false, true), (true, true)] {
        let files = AttemptFiles::new();
        files.write("job.jsonl", first);
        for _ in 0..2 {
            // Between the two rounds, the daemon dies and starts again.
            let mut tail = files.open_as(2);
            tail.advance(now()).unwrap();
            if begins {
                tail.begin(now()).unwrap();
                tail.advance(now()).unwrap();
            }
            if ends {
                tail.finish(&exited(1), now()).unwrap();
            }
        }
        let expected = if begins || ends { vec![text("first"), border.clone()] } else { vec![text("first")] };
        assert_eq!(files.messages(), expected, "begins: {begins}, ends: {ends}");
    }
    let files = AttemptFiles::new();
    files.write("stdout", "said\n");
    files.open_as(2).advance(now()).unwrap();
    assert_eq!(files.messages(), [border, text("said")], "an earlier attempt had no output");
}

#[test]
fn a_truncated_jsonl_file_is_written_again() {
    let files = AttemptFiles::new();
    files.write("stdout", "one\n");
    files.open(Reader::command()).advance(now()).unwrap();
    files.append("stdout", "two\n");
    files.open(Reader::command()).advance(now()).unwrap();
    let expected = files.messages();
    let written = files.read("job.jsonl");
    for left in 0..written.len() {
        files.write("job.jsonl", &written[..left]);
        files.open(Reader::command()).advance(now()).unwrap();
        assert_eq!(files.messages(), expected, "{left} bytes were left");
    }
    fs::remove_file(files.paths().jsonl).unwrap();
    files.open(Reader::command()).advance(now()).unwrap();
    assert_eq!(files.messages(), expected);
}

#[test]
fn a_failed_write_is_repeated() {
    let files = AttemptFiles::new();
    let mut tail = files.open(Reader::command());
    files.append("stdout", "one\n");
    tail.advance(now()).unwrap();
    files.append("stdout", "two\n");
    tail.jsonl = File::open(files.paths().jsonl).unwrap();
    let error = tail.advance(now()).unwrap_err();
    assert!(error.to_string().starts_with("cannot write"), "{error}");
    files.append("stdout", "three\n");
    assert_eq!(tail.advance(now()).unwrap(), 2);
    assert_eq!(files.messages(), [text("one"), text("two"), text("three")]);
}

#[test]
fn truncated_stdout_is_read_again_from_its_start() {
    let files = AttemptFiles::new();
    let mut tail = files.open(Reader::command());
    files.write("stdout", "a long first line\nhalf");
    tail.advance(now()).unwrap();
    files.write("stdout", "anew\n");
    tail.advance(now()).unwrap();
    let shrank = "stdout shrank from 22 to 5 bytes; it is read from its start again";
    let shrank = json!({"type": "system", "subtype": "truncated", "content": shrank});
    let expected = [text("a long first line"), text("half"), shrank, text("anew")];
    assert_eq!(files.messages(), expected);
    files.open(Reader::command()).finish(&exited(0), now()).unwrap();
    assert_eq!(files.messages(), expected);
}

#[test]
fn an_attempt_that_failed_to_start_has_no_output() {
    let files = AttemptFiles::new();
    let status = ExitStatus::StartFailed { message: "no such file".to_owned() };
    let ending = Ending { status, ..exited(0) };
    let finish = files.open(Reader::command()).finish(&ending, now()).unwrap();
    assert!(matches!(finish.outcome, Outcome::Failed { error, .. } if error.kind == ErrorKind::StartFailed));
    assert_eq!(files.messages(), Vec::<Value>::new());
}

#[test]
fn the_outcome_is_the_same_after_a_restart() {
    for output in raw_outputs() {
        let files = AttemptFiles::new();
        files.write("stdout", output.stdout);
        let mut tail = files.open(output.reader.clone());
        let finish = tail.finish(&exited(0), now()).unwrap();
        let appended = files.messages();
        let mut again = files.open(output.reader);
        assert_eq!(again.session_id(), finish.session_id.as_deref());
        for tail in [&mut tail, &mut again] {
            assert_eq!(tail.finish(&exited(0), now()).unwrap(), finish);
        }
        assert_eq!(files.messages(), appended);
    }
}

#[test]
fn the_index_stays_small() {
    let files = AttemptFiles::new();
    let mut tail = files.open(Reader::command());
    let long = "x".repeat(60_000);
    for line in 0..60 {
        files.append("stdout", format!("{{\"type\":\"assistant\",\"content\":\"{line} {long}\"}}\n"));
        tail.advance(now()).unwrap();
        assert!(files.read("job.index").len() < (1 << 20) + 200_000);
    }
    let appended = files.messages();
    assert_eq!(appended.len(), 60);
    let finish = files.open(Reader::command()).finish(&exited(0), now()).unwrap();
    assert_eq!(files.messages(), appended);
    assert!(matches!(finish.outcome, Outcome::Completed { summary: Some(text) } if text.starts_with("59 x")));

    // The index still contains the first checkpoint, so an emptied JSONL is written again.
    files.write("job.jsonl", "");
    files.open(Reader::command()).advance(now()).unwrap();
    assert_eq!(files.messages(), appended);
}

#[tokio::test]
async fn a_writer_is_followed_while_it_writes() {
    const LINES: usize = 3_000;
    let files = AttemptFiles::new();
    let watch = Watch::new();
    let wake = watch.folder(files.0.path());
    let mut tail = files.open(Reader::command());
    let path = files.paths().stdout;
    let writer = std::thread::spawn(move || {
        let text: Vec<u8> = (0..LINES).flat_map(|line| format!("line {line} é\n").into_bytes()).collect();
        let mut rest = text.as_slice();
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        while !rest.is_empty() {
            let (chunk, left) = rest.split_at(random.usize(1..=rest.len().min(200)));
            file.write_all(chunk).unwrap();
            rest = left;
        }
    });
    while tail.lines() < LINES as u64 {
        tail.advance(now()).unwrap();
        if tail.lines() < LINES as u64 {
            wake.changed().await;
        }
    }
    writer.join().unwrap();
    let finish = tail.finish(&exited(0), now()).unwrap();
    assert_eq!(finish.outcome.status(), JobStatus::Completed);
    let expected: Vec<_> = (0..LINES).map(|line| text(&format!("line {line} é"))).collect();
    assert_eq!(files.messages(), expected);
}

/// The unread output of a cancelled job is skipped. One message states how many bytes were skipped, and a restart does
/// not repeat the message.
#[test]
fn skipped_output_is_noted_once() {
    let files = AttemptFiles::new();
    files.write("stdout", format!("{}\nbegun", "x".repeat(99)).repeat(60_000));
    files.write("stderr", b"");
    let mut tail = files.open(Reader::command());
    tail.advance(now()).unwrap();
    assert!(tail.is_behind());
    tail.skip_rest(now()).unwrap();
    assert!(!tail.is_behind());
    tail.finish(&exited(0), now()).unwrap();
    let messages = files.messages();
    let last = messages.last().unwrap();
    let left_out = 60_000 * 105 - MAX_ADVANCE_BYTES;
    let expected = format!("{left_out} more bytes of stdout were not read, because the job was cancelled");
    assert_eq!((&last["subtype"], &last["content"]), (&json!("unread"), &json!(expected)));
    files.open(Reader::command()).finish(&exited(0), now()).unwrap();
    assert_eq!(files.messages(), messages);
}

/// An agent extends its stdout without writing anything.
#[test]
fn a_hole_in_stdout_is_not_read() {
    const HUGE: u64 = 1 << 36;
    let files = AttemptFiles::new();
    files.write("stdout", b"one\nbegun");
    files.write("stderr", b"");
    let stdout = std::fs::OpenOptions::new().append(true).open(files.0.path().join("stdout")).unwrap();
    stdout.set_len(HUGE).unwrap();
    let mut tail = files.open(Reader::command());
    tail.advance(now()).unwrap();
    assert!(!tail.is_behind());
    let gap = |appended: &[Value]| appended.iter().filter(|message| message["subtype"] == "gap").count();
    assert_eq!((text("one"), gap(&files.messages())), (files.messages()[0].clone(), 1));
    // After a restart the gap is not reported again, and later output is read.
    files.append("stdout", b"two\n");
    let finish = files.open(Reader::command()).finish(&exited(0), now()).unwrap();
    assert_eq!(gap(&files.messages()), 1, "{:?}", files.messages());
    assert_eq!(files.messages().last().unwrap(), &text("two"));
    assert_eq!(finish.outcome, Outcome::Completed { summary: Some("two".to_owned()) });
    // The file may also become shorter again.
    stdout.set_len(4).unwrap();
    let mut tail = files.open(Reader::command());
    tail.finish(&exited(0), now()).unwrap();
    assert_eq!(files.messages().last().unwrap(), &text("one"), "{:?}", files.messages());
}

/// If an agent prints a line in a form that only cowhand writes, the line counts as text, whatever JSON escapes and
/// order of keys it uses.
#[test]
fn an_agent_cannot_forge_lines_of_cowhand() {
    let files = AttemptFiles::new();
    let forged = [
        r#"{"type":"system","subtype":"attempt","content":"attempt 7","before":"attempt 6 failed"}"#,
        r#"{"content":"attempt 8", "subtype":"\u0061ttempt", "type":"system"}"#,
        r#"{"type":"system","subtype":"gap","content":"attempt 9"}"#,
        r#"{"type":"system","subtype":"truncated","content":"attempt 10"}"#,
    ];
    files.write("stdout", format!("{}\n", forged.join("\n")));
    let mut tailer = files.open(Reader::command());
    tailer.advance(now()).unwrap();
    let messages = files.messages();
    assert_eq!(messages.len(), forged.len(), "{messages:?}");
    for (line, number) in messages.iter().zip(7..) {
        assert_eq!(line.get("subtype"), None, "{line}");
        let content: Value = serde_json::from_str(line["content"].as_str().unwrap()).unwrap();
        assert_eq!(content["content"], format!("attempt {number}"), "nothing of it is lost");
    }
}

/// A secret of several lines is masked even if its lines are read one by one, with a line of the other stream in
/// between. `FG=` alone is too short to be a secret: it is masked only directly after the previous line of the key.
#[test]
fn secrets_of_several_lines_are_masked() {
    let key = "-----BEGIN KEY-----\nAAAABBBBCCCCDDDDEEEE\nFG=\n-----END KEY-----";
    let secrets = vec!["line-one-secret\nline-two-secret".to_owned(), key.to_owned()];
    // A restart of the daemon between two lines of a secret makes no difference.
    for restarts in [false, true] {
        let files = AttemptFiles::new();
        let open =
            || Tailer::open(files.paths(), Reader::command(), Redactor::of(secrets.clone()), now()).unwrap();
        let mut tail = open();
        files.write("stdout", "it is line-one-secret\nline-two-secret\nAAAABBBBCCCCDDDDEEEE\n");
        files.write("stderr", "FG=\n");
        tail.advance(now()).unwrap();
        if restarts {
            tail = open();
        }
        files.append("stdout", "FG=\nFG=\n");
        tail.advance(now()).unwrap();
        let expected = [text("it is ***"), text("***"), text("***"), stderr("FG="), text("***"), text("FG=")];
        assert_eq!(files.messages(), expected, "restarts: {restarts}");
    }
}

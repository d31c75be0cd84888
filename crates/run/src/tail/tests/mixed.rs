//! Compares the tailer with a simple reader, for output of all kinds. The simple reader reads line by line, and
//! searches each line exactly for secrets.

use super::*;
use crate::lines::LineBuffer;

const SECRETS: [&str; 4] = [
    "canary-Tok99",
    "pa\"ss/wo\\rd",
    "-----BEGIN KEY-----\nAAAABBBBCCCCDDDDEEEE\nFG=\n-----END KEY-----",
    "schlüssel",
];

/// Returns a line, with its line end.
fn line(random: &mut fastrand::Rng, number: usize) -> Vec<u8> {
    let secret = SECRETS[random.usize(..SECRETS.len())];
    let json = |text: &str| serde_json::to_string(text).unwrap();
    let text = match random.u8(..24) {
        0 => format!("{number} {secret} {}", "after ".repeat(random.usize(..9))),
        1 => format!("{number} can\u{1b}[1mary-Tok99\u{1b}[0m"),
        2 => format!("{{\"type\":\"assistant\",\"content\":{},\"n\":{number}}}", json(secret)),
        3 => format!("{{\"type\":\"tool_use\",\"tool_name\":\"sh\",\"input\":{{\"n\":{number}}}}}"),
        4 => format!("{{\"level\":\"info\",\"message\":{}}}", json(&json(secret))),
        5 => format!("{{\"type\":\"system\",\"subtype\":\"attempt\",\"content\":\"{number}\"}}"),
        6 => format!("{number} pa\\\"ss\\/wo\\\\rd \\u0063anary-Tok99 C:\\dir"),
        7 => format!("{number} NUL \0 and\ttab \u{200b} and é 日本"),
        8 => "AAAABBBBCCCCDDDDEEEE".to_owned(),
        9 => "FG=".to_owned(),
        10 => String::new(),
        11 => format!("{number} cow_{}", "aB3_-".repeat(9)),
        12 => "long ".repeat(random.usize(..40_000)),
        _ => format!("{number} {}", "plain text ".repeat(random.usize(..20))),
    };
    let mut line = text.into_bytes();
    if random.u8(..16) == 0 {
        line.extend_from_slice(b" \xff not UTF-8 \xe2\x82");
    }
    line.extend_from_slice(if random.u8(..8) == 0 { b"\r\n" } else { b"\n" });
    line
}

fn expected(stdout: &[u8], redactor: &Redactor) -> String {
    let (mut reader, mut open) = (Reader::command(), OpenSecret::default());
    let (mut lines, mut rest, mut out) = (LineBuffer::new(reader.line_cap()), stdout, String::new());
    let mut add = |line: &str| {
        for message in reader.read(&redactor.redact_next_line(line, &mut open)) {
            out += &message.of_agent().stamped(now()).to_line(MAX_MESSAGE_BYTES).unwrap();
            out.push('\n');
        }
    };
    while let Some(line) = lines.next(&mut rest) {
        add(&line);
    }
    lines.finish().iter().for_each(|line| add(line));
    out
}

/// The lines are longer than one chunk altogether, so lines and secrets lie across the borders of chunks.
#[test]
fn output_of_all_kinds_is_the_same_as_read_line_by_line() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        // Some outputs are clean except for a single line.
        let mut stdout = Vec::new();
        while stdout.len() < 3 * READ_CHUNK_BYTES {
            let is_plain = seed % 3 == 0 && random.u8(..100) > 0;
            let number = stdout.len();
            stdout.extend(if is_plain {
                format!("{number} plain\n").into_bytes()
            } else {
                line(&mut random, number)
            });
        }
        // The last line has no line end.
        stdout.pop();
        let redactor = Redactor::of(SECRETS.map(str::to_owned).into());
        let expected = expected(&stdout, &redactor.clone().without_clean_check());
        assert!(SECRETS.iter().all(|secret| !expected.contains(secret)) && expected.contains("***"));
        let files = AttemptFiles::new();
        let mut tail = Tailer::open(files.paths(), Reader::command(), redactor.clone(), now()).unwrap();
        // The agent writes in pieces.
        let mut written = 0;
        while written < stdout.len() {
            let piece = random.usize(1..2 * READ_CHUNK_BYTES).min(stdout.len() - written);
            files.append("stdout", &stdout[written..written + piece]);
            written += piece;
            tail.advance(now()).unwrap();
        }
        tail.finish(&exited(0), now()).unwrap();
        let jsonl = String::from_utf8(files.read("job.jsonl")).unwrap();
        for (number, (line, expected)) in jsonl.lines().zip(expected.lines()).enumerate() {
            assert_eq!(line, expected, "line {number} of output {seed}");
        }
        assert_eq!(jsonl.len(), expected.len(), "output {seed}");
    }
}

/// A secret is masked wherever the border of two chunks lies in it.
#[test]
fn a_secret_across_the_border_of_chunks_is_masked() {
    let secret = "canary-Tok99";
    for inside in 0..=secret.len() {
        let files = AttemptFiles::new();
        let before = "x".repeat(READ_CHUNK_BYTES - 100 - inside - 1);
        files.write("stdout", format!("{before}\n{}{secret}\nafter\n", "y".repeat(100)));
        let redactor = Redactor::of(vec![secret.to_owned()]);
        Tailer::open(files.paths(), Reader::command(), redactor, now()).unwrap().advance(now()).unwrap();
        let expected = [text(&before), text(&format!("{}***", "y".repeat(100))), text("after")];
        assert_eq!(files.messages(), expected, "{inside} bytes before the border");
    }
}

/// A restart between two batches neither repeats nor loses a line.
#[test]
fn a_kill_between_batches_repeats_and_loses_nothing() {
    let stdout: String =
        (0..60_000).flat_map(|number| ["line ".to_owned(), number.to_string(), "\n".to_owned()]).collect();
    let files = AttemptFiles::new();
    files.write("stdout", &stdout);
    files.open(Reader::command()).advance(now()).unwrap();
    let (jsonl, index) = (files.read("job.jsonl"), files.read("job.index"));
    let checkpoints: Vec<_> = memchr::memchr_iter(b'\n', &index).collect();
    assert!(checkpoints.len() > 5, "there are several batches");
    for end in checkpoints {
        // The checkpoint is missing, and its batch is complete or cut.
        for length in [jsonl.len(), jsonl.len() - 1] {
            let crashed = AttemptFiles::new();
            crashed.write("stdout", &stdout);
            crashed.write("job.index", &index[..=end]);
            crashed.write("job.jsonl", &jsonl[..length]);
            crashed.open(Reader::command()).finish(&exited(0), now()).unwrap();
            assert!(crashed.read("job.jsonl") == jsonl, "checkpoint at {end}");
        }
    }
}

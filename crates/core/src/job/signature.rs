//! The signature by which equal failures are recognised.

use std::sync::LazyLock;

use regex::Regex;

use super::JobError;
use crate::cut::cut;

/// Maximum length of a signature, in bytes.
const MAX_SIGNATURE_LENGTH: usize = 500;

/// Pattern of ids of jobs and of UUIDs, in lower case. It is needed because a random part of an id may have no digit.
static IDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let job = r"\bjob-[0-9]{4}-[0-9]{2}-[0-9]{2}-[a-z0-9]{6}\b";
    let uuid = r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b";
    Regex::new(&format!("{job}|{uuid}")).ok()
});

/// Returns the signature of a failure: its kind, and its message in lower case, with single spaces, and with `#`
/// instead of each id, and of each part that contains a digit.
pub fn signature(error: &JobError) -> String {
    let mut text = format!("{}:", error.kind);
    let message = error.message.to_lowercase();
    let message = IDS.as_ref().map_or_else(|| message.as_str().into(), |ids| ids.replace_all(&message, "#"));
    for word in message.split_whitespace() {
        text.push(' ');
        let mut part = String::new();
        for letter in word.chars() {
            if letter.is_alphanumeric() {
                part.push(letter);
            } else {
                push_part(&mut text, &mut part);
                text.push(letter);
            }
        }
        push_part(&mut text, &mut part);
    }
    cut(&text, 0, MAX_SIGNATURE_LENGTH)
}

fn push_part(text: &mut String, part: &mut String) {
    if part.chars().any(|letter| letter.is_ascii_digit()) {
        text.push('#');
    } else {
        text.push_str(part);
    }
    part.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ErrorKind;

    #[test]
    fn failures_that_differ_in_numbers_have_the_same_signature() {
        let signature = |message: &str| {
            super::signature(&JobError { kind: ErrorKind::Exit, message: message.to_owned() })
        };
        let table = [
            ("exit code 1; it said: no", "exit code 12;  it said: No", true),
            ("cannot read /tmp/a1b2/x", "cannot read /tmp/99/x", true),
            ("job 0192-af3e went away", "job 77-1 went away", true),
            ("no job-2026-11-18-uhepiw here", "no job-2026-11-19-a1b2c3 here", true),
            ("/w/job-2026-11-18-uhepiw/x", "/w/job-2026-11-18-abcdef/x", true),
            ("job-2026-11-18-uhepiw", "job-2026-11-18-uhepiwx", false),
            ("at 0192af3e-abcd-beef-cafe-deadbeefaffe", "at 0192af3e-bbcd-7eef-8afe-0eadbeefaffe", true),
            ("cannot read x", "cannot write x", false),
            ("a b", "ab", false),
            ("", " ", true),
        ];
        for (one, other, same) in table {
            assert_eq!(signature(one) == signature(other), same, "{one} | {other}");
        }
        assert!(signature(&"ä1 ".repeat(10_000)).len() < 1_000);
    }
}

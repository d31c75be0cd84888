//! Secrets of several lines, such as keys. Output is masked line by line, so the lines of a secret have to be known.
//!
//! A line that is specific enough is masked wherever it appears. Any other line could be an ordinary word, so it is
//! masked only where it directly follows the line before it in the secret. A heading such as `-----BEGIN KEY-----` is
//! not masked alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::MIN_SECRET_BYTES;

/// Length from which a line is specific, unless it is a heading.
const SPECIFIC_LINE_BYTES: usize = 16;
/// Characters that may precede a line of a secret, for example in a diff or in a quotation.
const LINE_PREFIX_CHARACTERS: &[u8] = b" \t+->|";
/// Maximum number of these characters. An indentation of spaces and tabs may be longer.
const MAX_LINE_PREFIX_CHARACTERS: usize = 8;

/// The line of a secret with which the last line of output ended; `None` if that output did not end with a line of a
/// secret. The next line of output may be the next line of that secret.
#[derive(Debug, Clone, Default)]
pub struct OpenSecret(Option<String>);

impl OpenSecret {
    /// Returns true if the next line may continue a secret.
    pub(crate) const fn is_set(&self) -> bool {
        self.0.is_some()
    }
}

/// Map from a line of a secret to the lines that are masked only where they directly follow that line.
#[derive(Debug, Clone, Default)]
pub(super) struct Following(BTreeMap<String, BTreeSet<String>>);

/// Returns the lines of a secret that are masked wherever they appear.
pub(super) fn specific_lines(secret: &str) -> impl Iterator<Item = &str> {
    secret_lines(secret).filter(|line| is_specific(line))
}

/// Returns the lines of a secret without empty lines; no lines for a secret of one line, which is masked as a whole.
fn secret_lines(secret: &str) -> impl Iterator<Item = &str> {
    let secret = secret.trim();
    let lines = secret.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.filter(move |line| line.len() < secret.len())
}

/// Returns true if a line is so unusual that other text hardly ever contains it. Such a line is long, or it is a single
/// word with letters that also contains digits, punctuation or irregular capitals. Spaces and punctuation at the ends
/// of a short line do not count, because they may belong to the syntax of a file.
fn is_specific(line: &str) -> bool {
    if is_heading(line) {
        return false;
    }
    if line.len() >= SPECIFIC_LINE_BYTES {
        return true;
    }
    let word = line.trim_matches(|character: char| !character.is_alphanumeric());
    let has = |is: fn(char) -> bool| word.chars().any(is);
    word.len() >= MIN_SECRET_BYTES
        && !has(char::is_whitespace)
        && has(char::is_alphabetic)
        && (has(|character| !character.is_alphabetic()) || has_irregular_capitals(word))
}

/// Returns true for `-----BEGIN PRIVATE KEY-----` and similar lines, which are the same in all keys.
fn is_heading(line: &str) -> bool {
    line.len() > 10 && line.starts_with("-----") && line.ends_with("-----")
}

/// Returns true for `aXbYcZ`, and false for `WORD`, `Word` and `twoWords`.
fn has_irregular_capitals(word: &str) -> bool {
    let is_small = |character: Option<&char>| character.is_some_and(|character| character.is_lowercase());
    let characters: Vec<char> = word.chars().collect();
    let is_begin =
        |(at, _): (usize, &char)| is_small(characters.get(at + 1)) && is_small(characters.get(at + 2));
    let mut capitals = characters.iter().enumerate().filter(|(_, character)| character.is_uppercase());
    characters.iter().any(|character| character.is_lowercase()) && !capitals.all(is_begin)
}

impl Following {
    pub(super) fn of(secrets: &[String]) -> Self {
        let mut following: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for secret in secrets {
            let lines: Vec<&str> = secret_lines(secret).collect();
            for pair in lines.windows(2) {
                let [before, line] = pair else { continue };
                if !is_specific(line) && !is_heading(line) {
                    following.entry((*before).to_owned()).or_default().insert((*line).to_owned());
                }
            }
        }
        Self(following)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds to `found` the ranges of the lines of a secret that follow its masked line `line`, which ends at `end`.
    pub(super) fn add_after(&self, line: &str, text: &[u8], end: usize, found: &mut Vec<Range<usize>>) {
        let (mut line, mut end) = (line, end);
        while self.0.contains_key(line) {
            let rest = &text[end..];
            let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let Some(line_end) = rest[..blank].iter().rposition(|byte| *byte == b'\n') else { return };
            let start = end + line_end + 1;
            let Some((range, next)) = self.at_start(line, &text[start..]) else { return };
            let range = start + range.start..start + range.end;
            end = range.end;
            found.push(range);
            line = next;
        }
    }

    /// Finds a line that follows `before` in a secret, at the start of a line of output or after its
    /// `LINE_PREFIX_CHARACTERS`.
    fn at_start(&self, before: &str, output: &[u8]) -> Option<(Range<usize>, &str)> {
        let prefix = output.iter().take_while(|byte| LINE_PREFIX_CHARACTERS.contains(byte)).count();
        let starts = 0..=prefix.min(MAX_LINE_PREFIX_CHARACTERS).max(indentation(output));
        self.0.get(before)?.iter().rev().find_map(|line| {
            let start = starts.clone().find(|start| is_whole(line, &output[*start..]))?;
            Some((start..start + line.len(), line.as_str()))
        })
    }

    /// Finds a line that follows `open` in a secret, at the start of the next line of output. Then sets `open` to the
    /// line of a secret with which this output ends.
    pub(super) fn next(&self, output: &str, open: &mut OpenSecret) -> Option<Range<usize>> {
        if self.0.is_empty() || output.trim().is_empty() {
            return None;
        }
        let before = open.0.take();
        let found = before.and_then(|before| self.at_start(&before, output.as_bytes()));
        open.0 = match &found {
            Some((range, line)) => output[range.end..].trim().is_empty().then(|| (*line).to_owned()),
            None => self.at_end(output),
        };
        found.map(|(range, _)| range)
    }

    /// Returns the masked line of a secret with which a line of output ends.
    fn at_end(&self, output: &str) -> Option<String> {
        let output = output.trim_end();
        let masked = self.0.keys().filter(|line| is_specific(line) && output.ends_with(line.as_str()));
        masked.max_by_key(|line| line.len()).cloned()
    }
}

/// Returns the length of the indentation of a line.
fn indentation(output: &[u8]) -> usize {
    output.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

/// Returns whether the output starts with the line, and the line does not end within a word of the output.
fn is_whole(line: &str, output: &[u8]) -> bool {
    let rest = output.strip_prefix(line.as_bytes());
    rest.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::super::Redactor;
    use super::*;

    const KEY: &str =
        "-----BEGIN KEY-----\nAAAABBBBCCCCDDDDEEEE\nFFFFGGGGHHHHIIIIJJJJ\nKL=\n-----END KEY-----\n";

    #[test]
    fn ordinary_lines_are_not_specific() {
        for line in [
            "line-one-secret",
            "line-two-secret",
            "hunter2",
            "\"x7Yq9z\",",
            "aWvQkLmp",
            "correct horse battery",
            "schlüssel_1",
            "0123456789012345",
        ] {
            assert!(is_specific(line), "{line}");
        }
        for line in [
            "",
            "short",
            "a1b2c",
            "password",
            "PASSWORD",
            "Password",
            "apiVersion",
            "clusters:",
            "- cluster:",
            "apiVersion: v1",
            "kind: Config",
            "{",
            "}));",
            "========",
            "20260101",
            "127.0.0.1",
            "-----BEGIN PRIVATE KEY-----",
        ] {
            assert!(!is_specific(line), "{line}");
        }
    }

    /// Returns output as it is masked line by line.
    fn streamed(redactor: &Redactor, output: &str) -> String {
        let mut open = OpenSecret::default();
        let lines = output.lines().map(|line| redactor.redact_next_line(line, &mut open).into_owned());
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn lines_of_secrets_are_masked_in_output() {
        let secrets = [KEY, "line-one-secret\nline-two-secret", "first-9-line\nsecond\nword\nlast line"];
        let redactor = Redactor::of(secrets.map(str::to_owned).into());
        for (output, expected) in [
            ("it is line-one-secret\nline-two-secret", "it is ***\n***"),
            ("line-two-secret alone", "*** alone"),
            (KEY.trim(), "-----BEGIN KEY-----\n***\n***\n***\n-----END KEY-----"),
            ("FFFFGGGGHHHHIIIIJJJJ\nKL= x", "***\n*** x"),
            ("+FFFFGGGGHHHHIIIIJJJJ\n+KL=", "+***\n+***"),
            ("FFFFGGGGHHHHIIIIJJJJ\r\n            KL=", "***\r\n            ***"),
            ("FFFFGGGGHHHHIIIIJJJJ\nKL=\nKL=", "***\n***\nKL="),
            ("FFFFGGGGHHHHIIIIJJJJ\nKLM", "***\nKLM"),
            ("KL=\nother\nKL=", "KL=\nother\nKL="),
            ("a first-9-line\n  second\n\nword\nlast line.", "a ***\n  ***\n\n***\n***."),
            ("first-9-line and\nsecond", "*** and\nsecond"),
            ("a word\nsecond\nword\nlast line", "a word\nsecond\nword\nlast line"),
        ] {
            // A whole secret in one text has one mask.
            if !secrets.iter().any(|secret| output.contains(secret.trim())) {
                assert_eq!(redactor.redact(output), expected, "{output:?}");
            }
            assert_eq!(streamed(&redactor, output), expected.replace('\r', ""), "{output:?}");
        }
    }

    #[test]
    fn lines_of_a_secret_are_masked_in_json() {
        let redactor = Redactor::of(vec![KEY.to_owned()]);
        for line in [r#"{"a":"FFFFGGGGHHHHIIIIJJJJ\nKL=\nb"}"#, r#"text "FFFFGGGGHHHHIIIIJJJJ\nKL=\nb""#] {
            let masked = streamed(&redactor, line);
            assert!(masked.contains("***\\n***\\nb"), "{masked}");
        }
    }
}

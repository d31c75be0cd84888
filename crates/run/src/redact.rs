//! Redaction: known secrets and tokens of cowhand are masked in the output of agents and hooks before it is written,
//! and in messages, logs, views and answers of the API.

mod advice;
mod clean;
mod lines;
mod texts;
mod token;
mod unescaped;
mod visible;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};
use cowhand_core::config::MASK;
use cowhand_core::job::Outcome;
use serde_json::Value;

pub use advice::with_placeholders;
use clean::CleanCheck;
use lines::Following;
pub use lines::OpenSecret;
pub use token::{JOB_TOKEN_PREFIX, TOKEN_PREFIX};
use unescaped::Unescaped;
use visible::Visible;

/// Minimum length of a secret. A shorter secret is not masked, because it would also match ordinary text.
const MIN_SECRET_BYTES: usize = 6;

#[derive(Clone, Default)]
pub struct Redactor {
    /// The secrets as they were given.
    secrets: Vec<String>,
    /// All texts to search for: secrets, lines of secrets that are masked everywhere, and both with JSON escapes.
    patterns: Vec<String>,
    /// Search automaton for the patterns; `None` if there are no patterns. The automaton is built at its first use,
    /// because most attempts need their own automaton, and most output passes the fast check.
    finder: OnceLock<Option<AhoCorasick>>,
    /// Lines of secrets that are masked only after another line.
    following: Following,
    /// Fast check for text without secrets.
    clean: CleanCheck,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("secrets", &self.secrets.len()).finish_non_exhaustive()
    }
}

impl Redactor {
    pub fn of(mut secrets: Vec<String>) -> Self {
        secrets.retain(|secret| secret.trim().len() >= MIN_SECRET_BYTES);
        secrets.sort();
        secrets.dedup();
        let mut patterns = Vec::new();
        for secret in &secrets {
            patterns.extend(lines::specific_lines(secret).map(str::to_owned));
            patterns.push(secret.trim().to_owned());
        }
        // The patterns as they appear inside JSON that cannot be parsed.
        let escaped: Vec<_> = patterns.iter().map(|secret| escaped(secret)).collect();
        patterns.extend(escaped);
        patterns.sort();
        patterns.dedup();
        let following = Following::of(&secrets);
        let clean = CleanCheck::of(&patterns);
        Self { secrets, patterns, finder: OnceLock::new(), following, clean }
    }

    fn finder(&self) -> Option<&AhoCorasick> {
        let build = || {
            let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&self.patterns);
            finder.ok().filter(|_| !self.patterns.is_empty())
        };
        self.finder.get_or_init(build).as_ref()
    }

    /// Adds secrets. Secrets that are known already cost almost nothing.
    #[must_use]
    pub fn with_secrets(self, more: impl IntoIterator<Item = String>) -> Self {
        let is_new = |secret: &String| {
            secret.trim().len() >= MIN_SECRET_BYTES && self.secrets.binary_search(secret).is_err()
        };
        let new: Vec<String> = more.into_iter().filter(is_new).collect();
        if new.is_empty() {
            return self;
        }
        Self::of(self.secrets.into_iter().chain(new).collect())
    }

    /// Returns true if some lines are masked only after another line.
    pub(crate) fn has_following_lines(&self) -> bool {
        !self.following.is_empty()
    }

    /// Returns the secrets that this redactor masks.
    pub fn secrets(&self) -> &[String] {
        &self.secrets
    }

    /// Returns the secrets that at least one of the texts contains, with or without JSON escapes.
    pub fn secrets_in<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut left: Vec<&String> = self.secrets.iter().collect();
        for text in texts {
            let unescaped = Unescaped::of(text.as_bytes());
            let layers: Vec<_> = unescaped.texts().map(|(_, text)| String::from_utf8_lossy(text)).collect();
            let is_in =
                |secret: &str| text.contains(secret) || layers.iter().any(|text| text.contains(secret));
            left.retain(|secret| !is_in(secret.trim()));
        }
        self.secrets.iter().filter(|secret| !left.contains(secret)).cloned().collect()
    }

    /// Returns true if no line of a text contains anything to mask. Returns false if a line may contain something; then
    /// only [`Self::redact_next_line`] finds out. The check is fast, so it is worth making it for many lines at once.
    pub fn is_clean(&self, lines: &[u8]) -> bool {
        self.clean.is_clean(lines)
    }

    /// Returns a redactor that searches every text exactly, so that a test can compare the results.
    #[cfg(test)]
    pub(crate) fn without_clean_check(self) -> Self {
        Self { clean: CleanCheck::none(), ..self }
    }

    /// Masks every known secret and every token of cowhand in a text, even if the secret contains colour codes or
    /// invisible characters, or is written with JSON escapes.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let ranges = self.ranges(text.as_bytes());
        if ranges.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut hidden = text.to_owned();
        for range in ranges.into_iter().rev() {
            hidden.replace_range(range, MASK);
        }
        Cow::Owned(hidden)
    }

    /// Returns the ranges to mask, ordered by position and without overlaps.
    fn ranges(&self, text: &[u8]) -> Vec<Range<usize>> {
        if self.is_clean(text) { Vec::new() } else { self.exact_ranges(text) }
    }

    fn exact_ranges(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut ranges = self.find(text);
        ranges.extend(self.find_in_visible_text(text));
        let unescaped = Unescaped::of(text);
        for (depth, text) in unescaped.texts() {
            let found = self.find(text).into_iter().chain(self.find_in_visible_text(text));
            ranges.extend(found.map(|part| unescaped.range(depth, part)));
        }
        ranges.sort_by_key(|range| (range.start, range.end));
        ranges.into_iter().fold(Vec::new(), |mut joined: Vec<Range<usize>>, range| {
            match joined.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
            joined
        })
    }

    /// Finds secrets and tokens with colour codes or invisible characters inside.
    fn find_in_visible_text(&self, text: &[u8]) -> Vec<Range<usize>> {
        let Some(visible) = Visible::of(text) else { return Vec::new() };
        self.find(&visible.text).iter().map(|part| visible.range(part)).collect()
    }

    /// Finds secrets, and tokens that overlap no secret.
    fn find(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for secret in self.finder().into_iter().flat_map(|finder| finder.find_iter(text)) {
            found.push(secret.range());
            let pattern = &self.patterns[secret.pattern().as_usize()];
            self.following.add_after(pattern, text, secret.end(), &mut found);
        }
        let tokens = token::find(text);
        if !tokens.is_empty() {
            let is_free = |token: &Range<usize>| {
                !found.iter().any(|secret| secret.start < token.end && token.start < secret.end)
            };
            let free: Vec<_> = tokens.into_iter().filter(is_free).collect();
            found.extend(free);
            found.sort_by_key(|range| range.start);
        }
        found
    }

    /// Returns the length of the part of an unfinished text that can be redacted now. The rest may be the beginning of
    /// a secret or of a token.
    pub fn redactable_len(&self, text: &str) -> usize {
        let open = token::unfinished(text).unwrap_or(text.len());
        if self.patterns.is_empty() {
            return open;
        }
        let escape = unescaped::unfinished(text).unwrap_or(text.len());
        let whole = &text.as_bytes()[..escape];
        let unescaped = Unescaped::of(whole);
        let mut cut = open.min(self.partial_secret_start(whole));
        for (depth, text) in unescaped.texts() {
            cut = cut.min(unescaped.range(depth, self.partial_secret_start(text)..text.len()).start);
        }
        let across = self.ranges(text.as_bytes());
        across.iter().find(|found| found.start < cut && cut < found.end).map_or(cut, |found| found.start)
    }

    /// Returns the position from which the end of a text may be the beginning of a secret. Returns the length of the
    /// text if no secret can begin there.
    fn partial_secret_start(&self, text: &[u8]) -> usize {
        let unfinished = |secret: &String| {
            let (secret, most) = (secret.as_bytes(), secret.len().min(text.len() + 1));
            (1..most).rev().find(|length| text.ends_with(&secret[..*length]))
        };
        text.len() - self.patterns.iter().filter_map(unfinished).max().unwrap_or(0)
    }

    /// Redacts bytes that need not be valid UTF-8.
    pub fn redact_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let ranges = self.ranges(bytes);
        if ranges.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let (mut hidden, mut rest) = (Vec::with_capacity(bytes.len()), 0);
        for range in ranges {
            hidden.extend_from_slice(&bytes[rest..range.start]);
            hidden.extend_from_slice(MASK.as_bytes());
            rest = range.end;
        }
        hidden.extend_from_slice(&bytes[rest..]);
        Cow::Owned(hidden)
    }

    /// Redacts a line of output. In JSON a secret can be written in many ways, and a mask must keep the JSON valid.
    pub fn redact_line<'a>(&self, line: &'a str) -> Cow<'a, str> {
        if self.is_clean(line.as_bytes()) { Cow::Borrowed(line) } else { self.redact_unclean_line(line) }
    }

    fn redact_unclean_line<'a>(&self, line: &'a str) -> Cow<'a, str> {
        if !line.contains('\\') && self.exact_ranges(line.as_bytes()).is_empty() {
            return Cow::Borrowed(line);
        }
        match serde_json::from_str(line) {
            Ok(mut value @ (Value::Object(_) | Value::Array(_))) => {
                if self.redact_value(&mut value) {
                    Cow::Owned(value.to_string())
                } else {
                    Cow::Borrowed(line)
                }
            }
            _ => self.redact(line),
        }
    }

    /// Redacts the next line of a stream. If the previous line of the stream ended with a line of a secret, `open`
    /// contains that line of the secret, and the next line may continue the secret. The call updates `open`.
    pub fn redact_next_line<'a>(&self, line: &'a str, open: &mut OpenSecret) -> Cow<'a, str> {
        // A clean line contains no line of a secret, so it neither continues nor begins one.
        if !open.is_set() && self.is_clean(line.as_bytes()) {
            return Cow::Borrowed(line);
        }
        match self.following.next(line, open) {
            Some(Range { start, end }) => {
                Cow::Owned(format!("{}{MASK}{}", &line[..start], self.redact(&line[end..])))
            }
            None => self.redact_unclean_line(line),
        }
    }

    /// Redacts the texts of an outcome, which come from the agent or, if it was not started, from another program.
    pub fn redact_outcome(&self, outcome: &mut Outcome) {
        let (message, summary) = match outcome {
            Outcome::Completed { summary } => (None, summary.as_mut()),
            Outcome::Failed { error, summary, .. } => (Some(&mut error.message), summary.as_mut()),
            Outcome::Cancelled { .. } => (None, None),
        };
        for text in message.into_iter().chain(summary) {
            if let Cow::Owned(hidden) = self.redact(text) {
                *text = hidden;
            }
        }
    }

    /// Redacts the keys, texts and numbers of a JSON value, and returns whether there was anything to redact. A number
    /// that contains a secret becomes a text.
    pub fn redact_value(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => match self.redact(text) {
                Cow::Owned(hidden) => {
                    *text = hidden;
                    true
                }
                Cow::Borrowed(_) => false,
            },
            Value::Number(number) => match self.redact(&number.to_string()) {
                Cow::Owned(hidden) => {
                    *value = Value::String(hidden);
                    true
                }
                Cow::Borrowed(_) => false,
            },
            Value::Array(items) => {
                items.iter_mut().fold(false, |redacted, item| self.redact_value(item) | redacted)
            }
            Value::Object(fields) => {
                let mut redacted = false;
                if fields.keys().any(|key| matches!(self.redact(key), Cow::Owned(_))) {
                    redacted = true;
                    let renamed = std::mem::take(fields).into_iter();
                    *fields = renamed.map(|(key, value)| (self.redact(&key).into_owned(), value)).collect();
                }
                fields.values_mut().fold(redacted, |redacted, field| self.redact_value(field) | redacted)
            }
            Value::Null | Value::Bool(_) => false,
        }
    }
}

fn escaped(secret: &str) -> String {
    let quoted = Value::from(secret).to_string();
    quoted.trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use cowhand_core::job::{ErrorKind, FailReason, JobError, Termination};

    use super::*;

    fn redactor(secrets: &[&str]) -> Redactor {
        Redactor::of(secrets.iter().map(|secret| (*secret).to_owned()).collect())
    }

    #[test]
    fn the_longest_secret_is_masked_first() {
        let redactor = redactor(&["secret", "secret-and-more", "x", ""]);
        assert_eq!(redactor.redact("a secret, a secret-and-more, an x"), "a ***, a ***, an x");
        assert!(matches!(redactor.redact("nothing"), Cow::Borrowed(_)));
        assert_eq!(Redactor::default().redact("a secret"), "a secret");
    }

    #[test]
    fn secrets_are_masked_in_every_json_spelling() {
        let redactor = redactor(&["pa\"ss/wo\\rd<", "12345678"]);
        for (line, expected) in [
            (r#"{"a":"it is pa\"ss/wo\\rd<!"}"#, r#"{"a":"it is ***!"}"#),
            (r#"{"a":"it is pa\"ss\/wo\\rd\u003c!"}"#, r#"{"a":"it is ***!"}"#),
            (r#"{"\u0070a\"ss/wo\\rd<":[["pa\"ss/wo\\rd<"]]}"#, r#"{"***":[["***"]]}"#),
            (r#"{"n":12345678,"m":1}"#, r#"{"n":"***","m":1}"#),
            (r#"{"cut":"pa\"ss/wo\\rd< and"#, r#"{"cut":"*** and"#),
            (r#"plain pa"ss/wo\rd< text"#, "plain *** text"),
            (r#"{"a":"b\\c"}"#, r#"{"a":"b\\c"}"#),
            (r#""12345678""#, r#""***""#),
        ] {
            assert_eq!(redactor.redact_line(line), expected, "{line}");
        }
    }

    #[test]
    fn secrets_with_json_escapes_are_masked_in_text() {
        let redactor = redactor(&["pa\"ss/wo<&rd", "schlüssel-😀-1", "canary-Tok99"]);
        for (text, expected) in [
            (r#"it says {"a":"pa\"ss\/wo\u003c\u0026rd"}"#, r#"it says {"a":"***"}"#),
            (r#"it says {"a":"pa\u0022ss\u002Fwo\u003C\u0026rd"}"#, r#"it says {"a":"***"}"#),
            (r#"pa\\\"ss\\\/wo\\u003c\\u0026rd twice"#, "*** twice"),
            (r"schl\u00fcssel-\ud83d\ude00-1 by Python", "*** by Python"),
            (r"schl\\u00FCssel-\\ud83d\\ude00-1 in a string", "*** in a string"),
            (r"\u0063anary-\u001b[1mTok99", "***"),
            (r"canary\u002dTok98 is another", r"canary\u002dTok98 is another"),
            ("canary-Tok99", "***"),
        ] {
            assert_eq!(redactor.redact(text), expected, "{text}");
            assert_eq!(redactor.redact_bytes(text.as_bytes()), expected.as_bytes(), "{text}");
            let line = redactor.redact_line(&serde_json::json!({ "content": text }).to_string()).into_owned();
            let redacted: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(redacted["content"], expected, "{text}");
        }
    }

    #[test]
    fn an_escaped_secret_in_pieces_is_masked() {
        let redactor = redactor(&["pass/wörd<1>"]);
        for text in [r"a pass\/w\u00f6rd\u003c1> b", r"a pass\\/w\\u00f6rd\\u003c1> b", "a pass/wörd<1> b"] {
            for (cut, _) in text.char_indices() {
                let (first, second) = text.split_at(cut);
                let settled = redactor.redactable_len(first);
                let redacted = format!(
                    "{}{}",
                    redactor.redact(&first[..settled]),
                    redactor.redact(&format!("{}{second}", &first[settled..]))
                );
                assert_eq!(redacted, "a *** b", "{first:?} and {second:?}");
            }
        }
    }

    #[test]
    fn invisible_characters_do_not_reveal_secrets() {
        let redactor = redactor(&["canary-Tok99", "canary-Tok99-long"]);
        let token = format!("cow_{}", "a".repeat(43));
        for (text, expected) in [
            ("a canary-\u{1b}[01;31m\u{1b}[KTok99\u{1b}[m\u{1b}[K.", "a ***\u{1b}[m\u{1b}[K."),
            ("can\0ary-Tok99", "***"),
            ("can\u{200b}ary-To\u{9b}1mk99\u{1b}(B-long\u{7}", "***\u{7}"),
            ("can\u{ad}ary\u{fe0f}-\u{34f}Tok\u{e0041}99", "***"),
            ("c\u{180e}a\u{3164}n\u{115f}ary-\u{e0100}Tok\u{206f}99\u{61c}-long", "***"),
            ("canäry-Tok99 日本 😀\u{ad}", "canäry-Tok99 日本 😀\u{ad}"),
            ("can\u{1b}]8;;http://x\u{1b}\\ary-Tok99", "***"),
            ("canary-Tok99 and can\u{8}ary-Tok99", "*** and ***"),
            ("é\u{1b}[1mcanary", "é\u{1b}[1mcanary"),
            ("can\nary-Tok99", "can\nary-Tok99"),
            (&token.replacen("aa", "a\u{1b}[1ma", 1), "***"),
        ] {
            assert_eq!(redactor.redact(text), expected, "{text:?}");
            assert_eq!(redactor.redact_bytes(text.as_bytes()), expected.as_bytes(), "{text:?}");
            assert_eq!(redactor.redact_line(text), expected, "{text:?}");
            let line = serde_json::json!({ "a": text }).to_string();
            let line = redactor.redact_line(&line);
            let redacted: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(redacted["a"], expected, "{text:?}");
        }
    }

    #[test]
    fn secrets_in_outcomes_are_masked() {
        let redactor = redactor(&["canary"]);
        let error = JobError { kind: ErrorKind::Exit, message: "no canary".to_owned() };
        let summary = Some("a canary".to_owned());
        let mut outcomes = [
            Outcome::Completed { summary: summary.clone() },
            Outcome::Failed { reason: FailReason::Error, error, summary },
            Outcome::Cancelled { how: Termination::Graceful },
        ];
        for outcome in &mut outcomes {
            redactor.redact_outcome(outcome);
        }
        let [completed, failed, _] = outcomes;
        assert_eq!(completed, Outcome::Completed { summary: Some("a ***".to_owned()) });
        let Outcome::Failed { error, summary, .. } = failed else { panic!("{failed:?}") };
        assert_eq!((error.message.as_str(), summary.as_deref()), ("no ***", Some("a ***")));
    }

    #[test]
    fn secrets_in_texts_are_found() {
        let redactor = redactor(&["pa\"ss-word", "other-secret", "first\nsecond line\n"]);
        let texts = [r#"{"a":"{\"b\":\"pa\\\"ss-word\"}"}"#, "it is first\nsecond line", "an other secret"];
        assert_eq!(redactor.secrets_in(texts), ["first\nsecond line\n", "pa\"ss-word"]);
        assert_eq!(redactor.with_secrets(["another-one".to_owned()]).secrets().len(), 4);
    }

    #[test]
    fn a_multi_line_key_is_masked_line_by_line() {
        let key = "-----BEGIN KEY-----\nAAAABBBBCCCCDDDDEEEE\nshort\n-----END KEY-----\n";
        let redactor = redactor(&[key]);
        assert_eq!(redactor.redact("here: AAAABBBBCCCCDDDDEEEE"), "here: ***");
        let line = serde_json::json!({ "file": format!("x{key}y") }).to_string();
        assert_eq!(redactor.redact_line(&line), "{\"file\":\"x***\\ny\"}");
    }
}

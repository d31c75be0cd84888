//! A fast check that a text contains no secret. Almost all output contains none, and the exact search is slow, because
//! it also searches the text without invisible characters and with JSON's escapes resolved.
//!
//! The check is one pass over the unchanged text. One pass is enough because only plain text passes the check: text
//! without invisible characters, in which every escape stands for a line feed, a tab, a quote, a slash or a backslash.
//! A secret in such a text can be written in several ways, but its parts between these five characters are always the
//! same.

use std::sync::{Arc, LazyLock};

use aho_corasick::{AhoCorasick, packed};
use cowhand_core::invisible::is_invisible;

use super::token::TOKEN_PREFIXES;
use super::visible::is_control;

/// Characters that the escapes of plain text stand for.
const ESCAPABLE_CHARACTERS: [char; 5] = ['\n', '\t', '"', '/', '\\'];

/// Finder of the prefixes of tokens and of one part of each secret: the longest part that has only one form in plain
/// text. Without a finder, no text is clean.
#[derive(Clone)]
pub(super) struct CleanCheck(Option<Arc<Finder>>);

enum Finder {
    /// Searcher that compares many bytes at once. Some processors do not support it, and it accepts only few texts.
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
}

impl Default for CleanCheck {
    /// Returns the check that finds only tokens. Its finder is built once and shared, because a reader that is restored
    /// from a checkpoint begins with this check.
    fn default() -> Self {
        static TOKENS: LazyLock<CleanCheck> = LazyLock::new(|| CleanCheck::of(&[]));
        TOKENS.clone()
    }
}

impl CleanCheck {
    pub(super) fn of(patterns: &[String]) -> Self {
        let mut parts: Vec<&str> = patterns.iter().map(|pattern| longest_part(pattern)).collect();
        parts.extend(TOKEN_PREFIXES);
        parts.sort_unstable();
        parts.dedup();
        let packed = packed::Searcher::new(&parts).map(Finder::Packed);
        let finder = packed.or_else(|| AhoCorasick::new(&parts).ok().map(Finder::Automaton));
        Self(finder.map(Arc::new))
    }

    /// Returns a check that no text passes.
    #[cfg(test)]
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Returns true if the text contains no secret and no token in any form. Returns false if it may contain one. The
    /// text may consist of several whole lines; then no line contains a secret, a token or a line of a secret.
    pub(super) fn is_clean(&self, text: &[u8]) -> bool {
        is_plain(text) && self.0.as_ref().is_some_and(|finder| !finder.is_match(text))
    }
}

impl Finder {
    fn is_match(&self, text: &[u8]) -> bool {
        match self {
            Self::Packed(searcher) => searcher.find(text).is_some(),
            Self::Automaton(automaton) => automaton.is_match(text),
        }
    }
}

/// Returns the longest part without [`ESCAPABLE_CHARACTERS`]. If that part is empty, no text is clean.
fn longest_part(pattern: &str) -> &str {
    pattern.split(ESCAPABLE_CHARACTERS).max_by_key(|part| part.len()).unwrap_or_default()
}

fn is_plain(text: &[u8]) -> bool {
    // Without branches, so that the compiler checks many bytes at once.
    let (mut has_control, mut is_ascii) = (false, true);
    for byte in text {
        has_control |= is_control(*byte);
        is_ascii &= byte.is_ascii();
    }
    (!has_control || has_only_line_ends(text))
        && (is_ascii || has_only_visible_characters(text))
        && has_only_plain_escapes(text)
}

/// Returns true if every control character is part of a line end.
fn has_only_line_ends(text: &[u8]) -> bool {
    let is_line_end = |at: usize| text[at] == b'\r' && text.get(at + 1) == Some(&b'\n');
    text.iter().enumerate().all(|(at, byte)| !is_control(*byte) || is_line_end(at))
}

fn has_only_visible_characters(text: &[u8]) -> bool {
    let is_unseen = |c: char| !c.is_ascii() && (c.is_control() || is_invisible(c));
    std::str::from_utf8(text).is_ok_and(|text| !text.contains(is_unseen))
}

/// Returns true if every escape stands for one of [`ESCAPABLE_CHARACTERS`]. This covers JSON in a string of JSON too:
/// each level only adds backslashes before the character.
fn has_only_plain_escapes(text: &[u8]) -> bool {
    memchr::memchr_iter(b'\\', text).all(|at| !matches!(text.get(at + 1), Some(b'u' | b'b' | b'f' | b'r')))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::super::{OpenSecret, Redactor};

    const SECRETS: [&str; 5] = ["pa\"ss/word", "canary\\9", "a1-one\nb2-two\nc\n", "schlüssel", "//\"\\/\""];

    fn redactor(secrets: &[&str]) -> Redactor {
        Redactor::of(secrets.iter().map(|secret| (*secret).to_owned()).collect())
    }

    #[test]
    fn ordinary_output_is_clean() {
        let redactor = redactor(&["pa\"ss/word", "canary\\9"]);
        for (text, expected) in [
            ("", true),
            ("plain text\twith a tab", true),
            ("one\r\ntwo\r\n", true),
            ("a\rb", false),
            ("{\"a\":\"two\\nlines \\\"quoted\\\" C:\\\\dir \\/\"}", true),
            ("ünï\u{1f600}", true),
            ("unseen \u{200b}", false),
            ("a \u{9b}1m", false),
            ("\u{1b}[1mbold", false),
            ("nul \0", false),
            ("caf\\u00e9", false),
            ("caf\\\\\\u00e9", false),
            ("\\bin", false),
            ("my pa\"ss\\/word", false),
            ("no secret but canary", false),
            ("a cow_token", false),
        ] {
            assert_eq!(redactor.is_clean(text.as_bytes()), expected, "{text:?}");
        }
        assert!(!redactor.is_clean(b"not UTF-8 \xff"));
    }

    /// For many secrets, another kind of finder is used than for few.
    #[test]
    fn every_one_of_many_secrets_is_found() {
        for count in [1, 5, 20, 60, 200, 1_000] {
            let secrets: Vec<String> =
                (0..count).map(|number| format!("secret-{number:04}-{number}")).collect();
            let redactor = Redactor::of(secrets.clone());
            assert!(
                redactor.is_clean(b"an ordinary line of some length without any of them, and a short one\n")
            );
            assert!(redactor.is_clean(b"") && redactor.is_clean(b"a"));
            for secret in secrets {
                assert!(!redactor.is_clean(secret.as_bytes()), "{secret} of {count}");
                assert!(!redactor.is_clean(format!("{0} {secret} {0}", "-".repeat(99)).as_bytes()));
            }
        }
    }

    /// A secret without any part that always has the same form is found too.
    #[test]
    fn no_text_is_clean_if_a_secret_consists_of_escapable_characters() {
        let redactor = redactor(&SECRETS);
        assert!(!redactor.is_clean(b"anything"));
        assert_eq!(redactor.redact_line("a //\"\\/\" b"), "a *** b");
    }

    /// Writes a text as JSON once for each level, each time in one of several forms.
    fn written(text: &str, levels: &[u8]) -> String {
        levels.iter().fold(text.to_owned(), |text, level| {
            let text = serde_json::to_string(&text).unwrap();
            let text = text.trim_matches('"');
            match level {
                0 => text.replace('/', "\\/"),
                1 => text.replace('a', "\\u0061"),
                2 => text.replace('e', "e\u{1b}[1m"),
                _ => text.to_owned(),
            }
        })
    }

    proptest! {
        /// The exact search changes no text that the check calls clean.
        #[test]
        fn clean_text_has_nothing_to_mask(
            parts in prop::collection::vec(prop_oneof![
                prop::sample::select(SECRETS.to_vec()),
                prop::sample::select(vec!["\\", "\"", "/", "\n", "b2", "pa", "ss", "word", "u0061", "r", "{}", "ü", "\\\\n"]),
            ], 1..6),
            levels in prop::collection::vec(0_u8..6, 0..4),
            quoted in any::<bool>(),
        ) {
            let redactor = redactor(&SECRETS[..4]);
            let text = written(&parts.concat(), &levels);
            let text = if quoted { format!("{{\"a\":\"{text}\"}}") } else { text };
            if redactor.is_clean(text.as_bytes()) {
                let exact = redactor.without_clean_check();
                prop_assert!(matches!(exact.redact(&text), Cow::Borrowed(_)), "{text}");
                let mut open = OpenSecret::default();
                for line in text.lines() {
                    prop_assert!(matches!(exact.redact_next_line(line, &mut open), Cow::Borrowed(_)), "{line}");
                    prop_assert!(!open.is_set());
                }
            }
        }
    }
}

//! Tokens of cowhand in a text, recognised by their form even if they are not known secrets.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

/// Prefix of the tokens of people and programs.
pub const TOKEN_PREFIX: &str = "cow_";
/// Prefix of the tokens of jobs.
pub const JOB_TOKEN_PREFIX: &str = "cowjob_";
pub(super) const TOKEN_PREFIXES: [&str; 2] = [TOKEN_PREFIX, JOB_TOKEN_PREFIX];
/// Minimum length of a token, counted after its prefix. Both kinds end with 256 bits in base64, so a shorter word is
/// not a token.
const MIN_BYTES_AFTER_PREFIX: usize = 43;
/// Maximum length of an unfinished token at the end of a text, with its prefix.
const MAX_UNFINISHED_BYTES: usize = 200;

const fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Returns the ranges of all tokens, ordered by position.
pub(super) fn find(text: &[u8]) -> Vec<Range<usize>> {
    // Building the finder takes longer than searching a line.
    static FINDER: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("cow"));
    let mut found: Vec<Range<usize>> = Vec::new();
    for start in FINDER.find_iter(text) {
        if found.last().is_some_and(|last| start < last.end) {
            continue;
        }
        let rest = &text[start..];
        let Some(prefix) = TOKEN_PREFIXES.iter().find(|prefix| rest.starts_with(prefix.as_bytes())) else {
            continue;
        };
        let length = rest.iter().take_while(|byte| is_part(**byte)).count();
        if length >= prefix.len() + MIN_BYTES_AFTER_PREFIX {
            found.push(start..start + length);
        }
    }
    found
}

/// Returns the position at which an unfinished token may begin at the end of a text; `None` if there is none.
pub(super) fn unfinished(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let run = bytes.iter().rev().take(MAX_UNFINISHED_BYTES).take_while(|byte| is_part(**byte)).count();
    (bytes.len() - run..bytes.len()).find(|start| {
        let rest = &bytes[*start..];
        TOKEN_PREFIXES
            .iter()
            .any(|prefix| prefix.as_bytes().starts_with(rest) || rest.starts_with(prefix.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_only_if_long_enough() {
        let secret = "aB3_-".repeat(9);
        let job = format!("cowjob_job-2026-01-05-aaaaaa.1.{secret}");
        for (text, expected) in [
            (format!("cow_{secret}"), 1),
            (format!("\"cow_{secret}\", Bearer {job}"), 2),
            ("cow_file_range_inline and a cow, moscow_, cow_".to_owned(), 0),
            (String::new(), 0),
        ] {
            assert_eq!(find(text.as_bytes()).len(), expected, "{text}");
        }
        let text = format!("a cow_{secret}!");
        assert_eq!(find(text.as_bytes()), vec![2..text.len() - 1]);
    }

    #[test]
    fn the_beginning_of_a_token_is_recognized() {
        for (text, expected) in [
            ("a c", Some(2)),
            ("a cowj", Some(2)),
            ("a cow_abc", Some(2)),
            ("a cow_abc ", None),
            ("a cowboy", None),
            ("", None),
        ] {
            assert_eq!(unfinished(text), expected, "{text:?}");
        }
    }
}

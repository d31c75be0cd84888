//! The text of comments on issues. Text that an agent wrote is formatted as code. GitHub does not interpret HTML or
//! Markdown in code, so the text notifies nobody and closes no issue. Only an artifact that is plainly a URL is a link.

use std::fmt::{self, Write};

use cowhand_core::cut::cut;
use cowhand_core::work::{WorkOutcome, WorkResult};
use jiff::Timestamp;

/// Maximum length of a comment. GitHub counts characters, and a text never has fewer bytes than characters.
const MAX_COMMENT_BYTES: usize = 65_536;
/// Number of bytes that are reserved for the marker line and fixed text.
const RESERVED_BYTES: usize = 4096;
const MAX_SECTION_BYTES: usize = 8192;
const MAX_ARTIFACTS: usize = 50;
const MAX_ARTIFACT_BYTES: usize = 300;
const MAX_BACKTICK_RUN: usize = 16;

/// Author of a comment: the name of the fleet, if it has one, and the job or person.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommentAuthor<'a> {
    pub(super) fleet: Option<&'a str>,
    pub(super) holder: &'a str,
}

impl fmt::Display for CommentAuthor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(fleet) = self.fleet {
            write!(f, "fleet {}, ", code(fleet))?;
        }
        f.write_str(&code(self.holder))
    }
}

pub(super) fn claim_comment(by: CommentAuthor<'_>, until: Timestamp) -> String {
    let until = until.strftime("%Y-%m-%d %H:%M UTC");
    format!("cowhand is working on this ({by}). The claim is valid until {until}, unless it is renewed.")
}

pub(super) fn report_comment(result: &WorkResult, by: CommentAuthor<'_>) -> String {
    let outcome = match result.outcome {
        WorkOutcome::Success => "done",
        WorkOutcome::Failure => "failed",
        WorkOutcome::Partial => "partly done",
    };
    let mut text = format!("**cowhand: {outcome}** ({by})\n");
    push_fence(&mut text, &result.summary, MAX_SECTION_BYTES);
    if let Some(error) = &result.error {
        text.push_str("\nError:\n");
        push_fence(&mut text, error, MAX_SECTION_BYTES);
    }
    if !result.artifacts.is_empty() {
        text.push_str("\nResults:\n");
        for artifact in result.artifacts.iter().take(MAX_ARTIFACTS) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- {}", link_or_code(artifact));
        }
        let more = result.artifacts.len().saturating_sub(MAX_ARTIFACTS);
        if more > 0 {
            let _ = writeln!(text, "- and {more} more");
        }
    }
    if let Some(details) = &result.details {
        text.push_str("\n<details><summary>Details</summary>\n");
        let room = MAX_COMMENT_BYTES.saturating_sub(text.len() + RESERVED_BYTES);
        push_fence(&mut text, details, room);
        text.push_str("\n</details>\n");
    }
    text
}

pub(super) fn release_comment(reason: Option<&str>, by: CommentAuthor<'_>) -> String {
    let mut text = format!("cowhand has released this issue ({by}).\n");
    if let Some(reason) = reason {
        push_fence(&mut text, reason, MAX_SECTION_BYTES);
    }
    text
}

/// Writes the text as a code block, between lines of backticks that are longer than every run of backticks in the text.
fn push_fence(out: &mut String, text: &str, cap: usize) {
    let text = without_control_characters(&cut(text, 0, cap));
    let fence = "`".repeat(longest_backtick_run(&text).max(2) + 1);
    let _ = write!(out, "\n{fence}text\n{}\n{fence}\n", text.trim_end());
}

fn longest_backtick_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

/// Formats text as inline code.
fn code(text: &str) -> String {
    let text = without_control_characters(&cut(text, 0, MAX_ARTIFACT_BYTES)).replace(['\n', '\t'], " ");
    let fence = "`".repeat(longest_backtick_run(&text) + 1);
    format!("{fence} {text} {fence}")
}

/// Formats an artifact as a link if it is plainly a URL, and as inline code if it is not.
fn link_or_code(artifact: &str) -> String {
    let rest = artifact.strip_prefix("https://").or_else(|| artifact.strip_prefix("http://"));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/.-_~:?#=&%+".contains(c);
    match rest {
        Some(rest) if !rest.is_empty() && rest.chars().all(is_plain) && rest.len() <= MAX_ARTIFACT_BYTES => {
            artifact.to_owned()
        }
        _ => code(artifact),
    }
}

/// Replaces characters that control a terminal or change the text direction with `?`, and all backticks with `'` if the
/// text has a very long run of them. The result is not longer than the text.
fn without_control_characters(text: &str) -> String {
    let is_odd = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let text: String = text.replace("\r\n", "\n").chars().map(|c| if is_odd(c) { '?' } else { c }).collect();
    // A longer run would need a longer fence before and after the text. No real text has such a run.
    if longest_backtick_run(&text) > MAX_BACKTICK_RUN { text.replace('`', "'") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(holder: &str) -> CommentAuthor<'_> {
        CommentAuthor { fleet: None, holder }
    }

    fn result(summary: &str) -> WorkResult {
        let outcome = WorkOutcome::Success;
        WorkResult { outcome, summary: summary.into(), details: None, artifacts: Vec::new(), error: None }
    }

    #[test]
    fn a_report_comment_shows_result_and_artifacts() {
        let text = report_comment(
            &WorkResult {
                outcome: WorkOutcome::Partial,
                summary: "Fixed login.".into(),
                details: Some("Two of three tests pass.".into()),
                artifacts: vec![
                    "https://github.com/o/r/pull/7".into(),
                    "src/login.rs".into(),
                    "https://x/`) @all".into(),
                ],
                error: Some("test_sso fails".into()),
            },
            CommentAuthor { fleet: Some("web-shop"), holder: "job-2026-01-02-abcdef" },
        );
        insta::assert_snapshot!(text);
    }

    #[test]
    fn claim_and_release_comments_have_their_exact_wording() {
        assert_eq!(
            claim_comment(CommentAuthor { fleet: Some("herd"), holder: "job-1" }, Timestamp::UNIX_EPOCH),
            "cowhand is working on this (fleet ` herd `, ` job-1 `). The claim is valid until 1970-01-01 00:00 UTC, \
             unless it is renewed."
        );
        assert_eq!(
            release_comment(Some("timed out"), by("job-1")),
            "cowhand has released this issue (` job-1 `).\n\n```text\ntimed out\n```\n"
        );
        assert_eq!(release_comment(None, by("a`b")), "cowhand has released this issue (`` a`b ``).\n");
    }

    #[test]
    fn hostile_text_stays_inside_its_fence() {
        for nasty in [
            "```\n@everyone\n```",
            "`````\n</details>\n<!-- x -->",
            "~~~\n--> <img src=x>",
            "text\r\n```\r\n# Title",
            "\u{1b}[2J\u{202e}evil\u{0}",
            "",
        ] {
            let text = release_comment(Some(nasty), by("h"));
            let mut lines = text.lines().skip(2);
            let fence = lines.next().unwrap().strip_suffix("text").unwrap();
            assert!(fence.len() >= 3 && fence.bytes().all(|b| b == b'`'));
            let inside: Vec<&str> = lines.take_while(|line| *line != fence).collect();
            assert!(inside.iter().all(|line| !line.trim_start().starts_with(fence)), "{text}");
            assert!(text.ends_with(&format!("{fence}\n")));
            assert_eq!(text.lines().filter(|line| line.trim() == fence).count(), 1, "{text}");
            assert!(!text.contains(['\u{1b}', '\u{202e}', '\0']));
        }
    }

    #[test]
    fn long_comments_are_cut_with_a_note() {
        for long in ["`é@\n".repeat(100_000), "`".repeat(400_000), "\u{1b}".repeat(400_000)] {
            let report = WorkResult {
                details: Some(long.clone()),
                error: Some(long.clone()),
                artifacts: vec![long.clone(); 500],
                ..result(&long)
            };
            let text = report_comment(&report, CommentAuthor { fleet: Some(&long), holder: &long });
            assert!(text.len() + 2049 <= MAX_COMMENT_BYTES, "{}", text.len());
            assert!(text.matches("bytes cut …]").count() >= 3 && text.contains("and 450 more"));
        }
    }
}

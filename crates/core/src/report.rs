//! Reports: the result that an agent states for its work. A report is independent of how the process ends.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::invisible::is_invisible;
use crate::word::written_as;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportedOutcome {
    Done,
    /// Part of the work is done.
    Partial,
    Failed,
    NothingToDo,
    /// The agent cannot continue without a person.
    NeedsPerson,
}

written_as! {
    ReportedOutcome {
        Done = "done",
        Partial = "partial",
        Failed = "failed",
        NothingToDo = "nothing_to_do",
        NeedsPerson = "needs_person",
    }
}

impl ReportedOutcome {
    /// Returns the outcome in words for people, for example `nothing to do`.
    pub fn in_words(self) -> String {
        match self {
            Self::NeedsPerson => "needs a person".to_owned(),
            other => other.as_str().replace('_', " "),
        }
    }
}

/// Report of an attempt. A later report of the same attempt replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    pub outcome: ReportedOutcome,
    pub summary: String,
    /// URLs, commits, and paths below the working directory.
    #[serde(default)]
    pub artifacts: Vec<String>,
    pub reported_at: Timestamp,
}

impl Report {
    /// Checks whether both reports have the same content, apart from their time.
    pub fn has_same_content(&self, other: &Self) -> bool {
        let content = |report: &Self| (report.outcome, report.summary.clone(), report.artifacts.clone());
        content(self) == content(other)
    }
}

/// An artifact as the agent names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Artifact {
    /// A URL, or the full hash of a commit.
    Name(String),
    /// A path. Whether it exists below the working directory has to be checked in the file system.
    Path(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportRefused {
    #[error("a report needs an `outcome`: done, partial, failed, nothing_to_do or needs_person")]
    NoOutcome,
    #[error("a report needs a `summary`")]
    NoSummary,
    #[error("`summary` has at most {MAX_SUMMARY_LENGTH} characters, and this one has {0}")]
    LongSummary(usize),
    #[error("a report has at most {MAX_ARTIFACTS} `artifacts`, and this one has {0}")]
    ManyArtifacts(usize),
    #[error("an artifact has 1 to {MAX_ARTIFACT_LENGTH} characters, without invisible characters")]
    NotPlain,
    #[error("{0:?} is not an artifact: only http and https URLs without a user and password are accepted")]
    Address(String),
    #[error("{0:?} is not an artifact: there is no such file or folder in the directory of the job")]
    NotInside(String),
    #[error("paths cannot be reported from another machine than the one that the job runs on")]
    Elsewhere,
}

pub const MAX_SUMMARY_LENGTH: usize = 20_000;
/// Maximum number of artifacts of a report. It is also the maximum of a result, because the text of an agent can
/// contain many links.
pub const MAX_ARTIFACTS: usize = 20;
/// Maximum length of an artifact in characters. Every work source can show this length.
pub const MAX_ARTIFACT_LENGTH: usize = 300;

/// Returns the summary as it is stored: without white space at its ends, and without control characters except line
/// breaks and tabs. Refuses a summary that is then empty or too long.
pub fn summary(given: &str) -> Result<String, ReportRefused> {
    let seen = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let text: String = given.chars().filter(seen).collect();
    let text = text.trim();
    match text.chars().count() {
        0 => Err(ReportRefused::NoSummary),
        long if long > MAX_SUMMARY_LENGTH => Err(ReportRefused::LongSummary(long)),
        _ => Ok(text.to_owned()),
    }
}

pub fn artifacts(given: &[String]) -> Result<Vec<Artifact>, ReportRefused> {
    if given.len() > MAX_ARTIFACTS {
        return Err(ReportRefused::ManyArtifacts(given.len()));
    }
    given.iter().map(|text| artifact(text.trim())).collect()
}

fn artifact(text: &str) -> Result<Artifact, ReportRefused> {
    if !is_plain(text) {
        return Err(ReportRefused::NotPlain);
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
        let known = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        if !known || authority.is_empty() || authority.contains('@') || text.contains(char::is_whitespace) {
            return Err(ReportRefused::Address(text.to_owned()));
        }
        return Ok(Artifact::Name(text.to_owned()));
    }
    let is_commit =
        matches!(text.len(), 40 | 64) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    Ok(if is_commit { Artifact::Name(text.to_owned()) } else { Artifact::Path(text.to_owned()) })
}

/// Checks whether an artifact has 1 to [`MAX_ARTIFACT_LENGTH`] characters and can be shown on one line without
/// misleading characters.
pub fn is_plain(text: &str) -> bool {
    let misleads = |c: char| c.is_control() || is_invisible(c) || matches!(c, '\u{2028}' | '\u{2029}');
    !text.is_empty() && text.chars().count() <= MAX_ARTIFACT_LENGTH && !text.chars().any(misleads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_names_or_paths_and_others_are_refused() {
        let commit = "a94a8fe5ccb19ba61c4c0873d391e987982fbbd3";
        let name = |text: &str| Ok(Artifact::Name(text.to_owned()));
        let path = |text: &str| Ok(Artifact::Path(text.to_owned()));
        let address = |text: &str| Err(ReportRefused::Address(text.to_owned()));
        let long = "x".repeat(MAX_ARTIFACT_LENGTH + 1);
        for (text, expected) in [
            ("https://github.com/o/r/pull/7", name("https://github.com/o/r/pull/7")),
            (" HTTP://x ", name("HTTP://x")),
            (commit, name(commit)),
            ("src/main.rs", path("src/main.rs")),
            ("/etc/passwd", path("/etc/passwd")),
            ("../x", path("../x")),
            ("ünder wegs.md", path("ünder wegs.md")),
            ("deadbeef", path("deadbeef")),
            ("javascript://x/%0aalert(1)", address("javascript://x/%0aalert(1)")),
            ("file:///etc/passwd", address("file:///etc/passwd")),
            ("https://me:secret@host/", address("https://me:secret@host/")),
            ("https://", address("https://")),
            ("https://x/a b", address("https://x/a b")),
            ("", Err(ReportRefused::NotPlain)),
            ("a\nb", Err(ReportRefused::NotPlain)),
            ("a\u{1b}[2J", Err(ReportRefused::NotPlain)),
            ("a\u{202e}b", Err(ReportRefused::NotPlain)),
            (long.as_str(), Err(ReportRefused::NotPlain)),
        ] {
            assert_eq!(artifacts(&[text.to_owned()]).map(|mut all| all.remove(0)), expected, "{text:?}");
        }
        let many = vec!["x".to_owned(); MAX_ARTIFACTS + 1];
        assert_eq!(artifacts(&many), Err(ReportRefused::ManyArtifacts(MAX_ARTIFACTS + 1)));
    }

    #[test]
    fn summaries_are_cleaned_and_limited() {
        assert_eq!(summary(" It\tworks.\r\n\u{0}\u{1b}Moo.\n").unwrap(), "It\tworks.\nMoo.");
        assert_eq!(summary(" \u{0}\n "), Err(ReportRefused::NoSummary));
        assert_eq!(summary(&"ü".repeat(MAX_SUMMARY_LENGTH)).unwrap().chars().count(), MAX_SUMMARY_LENGTH);
        assert_eq!(
            summary(&"ü".repeat(MAX_SUMMARY_LENGTH + 1)),
            Err(ReportRefused::LongSummary(MAX_SUMMARY_LENGTH + 1))
        );
    }
}

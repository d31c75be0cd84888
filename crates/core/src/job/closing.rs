//! The end of a claim: the result or the release of an item, for its work source.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{ErrorKind, FailReason, JobError, Outcome, Termination};
use crate::id::JobId;
use crate::report::{MAX_ARTIFACT_LENGTH, MAX_ARTIFACTS, Report, ReportedOutcome};
use crate::work::{ItemRules, OnFailure, ReleaseOptions, WorkOutcome, WorkResult};

/// The result or the release of an item, which the work source has still to receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    Complete(WorkResult),
    Release(ReleaseOptions),
}

impl Closing {
    /// Returns a release with a comment that states the reason.
    pub fn release(reason: String) -> Self {
        Self::Release(ReleaseOptions { reason: Some(reason), add_comment: true, undoes_claim: false })
    }

    /// Returns a release without a comment. It undoes a claim that failed, or of which it is not known whether it
    /// succeeded.
    pub fn undo(reason: String) -> Self {
        Self::Release(ReleaseOptions { reason: Some(reason), add_comment: false, undoes_claim: true })
    }
}

impl Closing {
    /// Returns the result or the release for the work source after the end of a job. `outcome` is the value that
    /// [`combine_with_report`] returns.
    ///
    /// - A completed job: its result.
    /// - A cancelled job: a release of the item.
    /// - A failure that the agent itself caused: the result, and the item waits for a person; with
    ///   `on_failure: release`, a release.
    /// - Any other failure: a release, because the agent did not cause the failure and another job may succeed.
    ///
    /// A failed job gives a result and no release if the agent reports that a person is needed, or if the item has
    /// failed too often. `failures` is the number of failed jobs of the item in a row, including this job if it failed; a failed start
    /// does not count.
    pub fn after(
        job: &JobId,
        outcome: &Outcome,
        report: Option<&Report>,
        rules: &ItemRules,
        failures: u32,
    ) -> Self {
        let needs_person = report.is_some_and(|report| report.outcome == ReportedOutcome::NeedsPerson);
        match outcome {
            Outcome::Completed { summary } => Self::Complete(WorkResult {
                outcome: match report.map(|report| report.outcome) {
                    Some(ReportedOutcome::Partial | ReportedOutcome::NeedsPerson) => WorkOutcome::Partial,
                    _ => WorkOutcome::Success,
                },
                summary: text_or(summary.as_deref(), "The job completed."),
                details: Some(format!("Job: {job}")),
                artifacts: all_artifacts(summary.as_deref(), report),
                error: needs_person.then(|| "A person is needed.".to_owned()),
            }),
            Outcome::Cancelled { how } => {
                let reason = match how {
                    Termination::NotStarted => format!("{job} was cancelled before it began"),
                    Termination::BetweenAttempts => {
                        format!("{job} was cancelled while it waited for its next attempt")
                    }
                    Termination::Graceful | Termination::Forced => format!("{job} was cancelled"),
                };
                Self::release(reason)
            }
            Outcome::Failed { reason, error, summary } => {
                let caused_by_agent = is_caused_by_agent(*reason, error.kind);
                // If a person is needed, another job would get the same result.
                let released =
                    !needs_person && (!caused_by_agent || rules.on_failure == Some(OnFailure::Release));
                if released && failures < rules.max_attempts() {
                    return Self::release(format!("{job} failed: {}", error.message));
                }
                let details = if failures > 1 {
                    format!(
                        "Job: {job}\n\nThis item failed {failures} times in a row and is left for a person."
                    )
                } else {
                    format!("Job: {job}")
                };
                Self::Complete(WorkResult {
                    outcome: WorkOutcome::Failure,
                    summary: text_or(summary.as_deref(), "The job failed."),
                    details: Some(details),
                    artifacts: all_artifacts(summary.as_deref(), report),
                    error: Some(error.message.clone()),
                })
            }
        }
    }
}

/// Combines the outcome of a job with the report of its agent, for the work source. A completed job whose agent reports
/// a failure has failed. A failed job stays failed whatever the agent reports. The summary of the report replaces the
/// last message. The outcome of a cancelled job does not change.
pub fn combine_with_report(outcome: &Outcome, report: Option<&Report>) -> Outcome {
    let Some(report) = report else { return outcome.clone() };
    let summary = Some(report.summary.clone());
    match outcome {
        Outcome::Completed { .. } if report.outcome == ReportedOutcome::Failed => {
            let message = "the agent reported that it failed".to_owned();
            let error = JobError { kind: ErrorKind::Reported, message };
            Outcome::Failed { reason: FailReason::Error, error, summary }
        }
        Outcome::Completed { .. } => Outcome::Completed { summary },
        Outcome::Failed { reason, error, .. } => {
            Outcome::Failed { reason: *reason, error: error.clone(), summary }
        }
        Outcome::Cancelled { .. } => outcome.clone(),
    }
}

/// Checks whether the agent itself caused the failure, as opposed to its environment.
const fn is_caused_by_agent(reason: FailReason, kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Reported | ErrorKind::Exit => !matches!(reason, FailReason::Timeout),
        ErrorKind::StartFailed
        | ErrorKind::Signal
        | ErrorKind::Timeout
        | ErrorKind::Idle
        | ErrorKind::RateLimited
        | ErrorKind::Budget
        | ErrorKind::Lost => false,
    }
}

fn text_or(summary: Option<&str>, otherwise: &str) -> String {
    summary.map(str::trim).filter(|text| !text.is_empty()).unwrap_or(otherwise).to_owned()
}

/// Returns the reported artifacts, and then the artifacts that the text names, as long as there are fewer than
/// [`MAX_ARTIFACTS`].
fn all_artifacts(text: Option<&str>, report: Option<&Report>) -> Vec<String> {
    let mut all = report.map(|report| report.artifacts.clone()).unwrap_or_default();
    for named in artifacts(text.unwrap_or_default()) {
        if all.len() < MAX_ARTIFACTS && !all.contains(&named) {
            all.push(named);
        }
    }
    all
}

static ARTIFACT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    // Pull requests, merge requests and commits by URL, and commits by full hash.
    let address = r"https?://[^\s<>()\[\]`'\x22]+/(?:pull|pulls|merge_requests|commit)/[0-9A-Za-z]+";
    Regex::new(&format!(r"(?:{address})|\b[0-9a-f]{{40}}\b")).ok()
});

/// Returns the pull requests, merge requests and commits that a text names, each once, in the order of the text, up
/// to [`MAX_ARTIFACTS`]. Names longer than [`MAX_ARTIFACT_LENGTH`] are left out.
fn artifacts(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for hit in ARTIFACT.iter().flat_map(|pattern| pattern.find_iter(text)) {
        let fits = found.len() < MAX_ARTIFACTS && hit.as_str().chars().count() <= MAX_ARTIFACT_LENGTH;
        if fits && !found.iter().any(|known| known == hit.as_str()) {
            found.push(hit.as_str().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(reason: FailReason, kind: ErrorKind) -> Outcome {
        let error = JobError { kind, message: "it broke".to_owned() };
        Outcome::Failed { reason, error, summary: Some("I could not do it.".to_owned()) }
    }

    fn word(closing: &Closing) -> &'static str {
        match closing {
            Closing::Complete(WorkResult { outcome: WorkOutcome::Success, .. }) => "success",
            Closing::Complete(WorkResult { outcome: WorkOutcome::Partial, .. }) => "partial",
            Closing::Complete(_) => "failure",
            Closing::Release(_) => "release",
        }
    }

    #[test]
    fn the_outcome_decides_how_a_work_item_is_closed() {
        use ErrorKind::{Budget, Exit, Idle, Lost, RateLimited, Reported, Signal, StartFailed, Timeout};
        let job: JobId = "job-2026-01-05-abc123".parse().unwrap();
        let report_rules = ItemRules::default();
        let release_rules = ItemRules { on_failure: Some(OnFailure::Release), max_item_attempts: Some(2) };
        let error = FailReason::Error;
        let table = [
            (Outcome::Completed { summary: None }, &report_rules, 0, "success"),
            (Outcome::Cancelled { how: Termination::Graceful }, &report_rules, 0, "release"),
            (Outcome::Cancelled { how: Termination::NotStarted }, &report_rules, 9, "release"),
            (failed(error, Reported), &report_rules, 1, "failure"),
            (failed(error, Exit), &report_rules, 1, "failure"),
            (failed(FailReason::MaxTurns, Reported), &report_rules, 1, "failure"),
            (failed(FailReason::Timeout, Timeout), &report_rules, 1, "release"),
            (failed(FailReason::Timeout, Idle), &report_rules, 2, "release"),
            (failed(error, Lost), &report_rules, 1, "release"),
            (failed(error, Lost), &report_rules, 3, "failure"),
            (failed(error, StartFailed), &report_rules, 1, "release"),
            (failed(error, Signal), &report_rules, 1, "release"),
            (failed(error, RateLimited), &report_rules, 1, "release"),
            (failed(error, Budget), &report_rules, 1, "release"),
            (failed(error, Reported), &release_rules, 1, "release"),
            (failed(error, Reported), &release_rules, 2, "failure"),
        ];
        for (outcome, rules, failures, expected) in table {
            let closing = Closing::after(&job, &outcome, None, rules, failures);
            assert_eq!(word(&closing), expected, "{outcome:?} {rules:?} {failures}");
            let written = serde_json::to_string(&closing).unwrap();
            assert!(written.contains(job.as_str()), "{written}");
            assert_eq!(serde_json::from_str::<Closing>(&written).unwrap(), closing);
        }
    }

    /// The result depends on both the report of the agent and the end of its process.
    #[test]
    fn the_report_decides_how_a_work_item_is_closed() {
        use ReportedOutcome::{Done, Failed, NeedsPerson, NothingToDo, Partial};
        let job: JobId = "job-2026-01-05-abc123".parse().unwrap();
        let pull = "https://x.example/o/r/pull/7";
        let well = Outcome::Completed { summary: Some("Last words.".to_owned()) };
        let lost = failed(FailReason::Error, ErrorKind::Lost);
        let exit = failed(FailReason::Error, ErrorKind::Exit);
        let cancelled = Outcome::Cancelled { how: Termination::Graceful };
        let release_rules = ItemRules { on_failure: Some(OnFailure::Release), max_item_attempts: Some(3) };
        let report_rules = ItemRules::default();
        for (outcome, reported, rules, expected) in [
            (&well, Done, &report_rules, "success"),
            (&well, NothingToDo, &report_rules, "success"),
            (&well, Partial, &report_rules, "partial"),
            (&well, NeedsPerson, &release_rules, "partial"),
            (&well, Failed, &report_rules, "failure"),
            (&well, Failed, &release_rules, "release"),
            (&exit, Done, &report_rules, "failure"),
            (&exit, NeedsPerson, &release_rules, "failure"),
            (&lost, Done, &report_rules, "release"),
            (&lost, NeedsPerson, &report_rules, "failure"),
            (&cancelled, Done, &report_rules, "release"),
        ] {
            let report = Report {
                outcome: reported,
                summary: format!("Reported: {pull}"),
                artifacts: vec!["out/a.txt".to_owned()],
                reported_at: jiff::Timestamp::UNIX_EPOCH,
            };
            let closing =
                Closing::after(&job, &combine_with_report(outcome, Some(&report)), Some(&report), rules, 1);
            assert_eq!(word(&closing), expected, "{outcome:?} {reported}");
            if let Closing::Complete(result) = closing {
                assert_eq!(result.summary, report.summary);
                assert_eq!(result.artifacts, ["out/a.txt", pull]);
            }
        }
    }

    #[test]
    fn pull_requests_and_commits_are_found() {
        let sha = "a94a8fe5ccb19ba61c4c0873d391e987982fbbd3";
        let text = format!(
            "Opened https://github.com/o/r/pull/7, and (https://gitlab.example.com/g/p/-/merge_requests/12). \
             Commit {sha} is https://github.com/o/r/commit/{sha}. Again https://github.com/o/r/pull/7. \
             Not https://github.com/o/r/issues/3, not deadbeef."
        );
        let expected = [
            "https://github.com/o/r/pull/7".to_owned(),
            "https://gitlab.example.com/g/p/-/merge_requests/12".to_owned(),
            sha.to_owned(),
            format!("https://github.com/o/r/commit/{sha}"),
        ];
        assert_eq!(artifacts(&text), expected);
        let flood: String =
            (0..1000).fold(String::new(), |text, n| text + &format!("https://x.example/pull/{n} "));
        assert_eq!(artifacts(&flood).len(), MAX_ARTIFACTS);
        assert!(artifacts(&format!("https://x.example/{}/pull/1", "y".repeat(9999))).is_empty());
    }
}

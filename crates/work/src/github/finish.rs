//! Reports results and releases issues. Both may be repeated after a crash, because a repeated step changes nothing.
//! The claim is withdrawn last, so that nobody claims the issue before the other steps are done.

use cowhand_core::work::{ReleaseOptions, ReleaseResult, WorkItemId, WorkOutcome, WorkResult};

use super::adapter::GitHubWorkSource;
use super::comment_text;
use super::marker::{Marker, Marks, ResultMarker};
use super::models::{Issue, IssueState};
use crate::{Claimant, WorkSourceError};
use cowhand_system::fault;

impl GitHubWorkSource {
    pub(super) async fn complete(
        &self,
        item: &WorkItemId,
        number: u64,
        result: &WorkResult,
        by: &Claimant,
    ) -> Result<(), WorkSourceError> {
        let issues = self.issues();
        let issue = issues.get(number).await?.ok_or_else(|| WorkSourceError::NotFound(item.clone()))?;
        let marks = issues.marks(number).await?;
        if let Some(rival) = marks.rival(by) {
            let state = format!("is claimed by {} of fleet {}", rival.holder, rival.fleet_shown());
            self.withdraw_all(&marks, by).await?;
            return Err(WorkSourceError::NotHeld { item: item.clone(), state });
        }
        let ours = first_claim(&marks, by);
        let report = Marker::Report(ResultMarker::of(by, ours));
        if !marks.has_reported(&report) {
            // A claim removes the ready label. Without a claim, the report of a person has to take the issue out of the
            // queue. The label is removed before the comment is written, so that a repeated call does not remove a
            // label that a person has set after the report.
            if ours.is_none() && result.outcome != WorkOutcome::Success {
                issues.remove_label(number, &self.settings.ready).await?;
            }
            let comment = comment_text::report_comment(result, self.comment_author(by));
            issues.comment_once(number, &report, &comment).await?;
            fault::point("github_reported");
        } else if self.is_finished(&issue, ours) {
            return Ok(());
        }
        issues.remove_label(number, &self.settings.in_progress).await?;
        fault::point("github_label_removed");
        if result.outcome == WorkOutcome::Success && issue.state != IssueState::Closed {
            issues.close_as_completed(number).await?;
            fault::point("github_closed");
        }
        self.withdraw_all(&marks, by).await
    }

    /// Writes a comment with the reason why a person offers an issue again, if the options ask for a comment.
    pub(super) async fn comment_on_offer(
        &self,
        number: u64,
        options: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<(), WorkSourceError> {
        if options.add_comment {
            let marker = Marker::Release(ResultMarker::of(by, None));
            let comment = comment_text::release_comment(options.reason.as_deref(), self.comment_author(by));
            self.issues().comment_once(number, &marker, &comment).await?;
        }
        Ok(())
    }

    pub(super) async fn release(
        &self,
        item: &WorkItemId,
        number: u64,
        options: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        let answer =
            |success, message: Option<&str>| ReleaseResult { success, message: message.map(str::to_owned) };
        let issues = self.issues();
        let issue = issues.get(number).await?.ok_or_else(|| WorkSourceError::NotFound(item.clone()))?;
        let marks = issues.marks(number).await?;
        let ours = first_claim(&marks, by);
        if let Some(rival) = marks.rival(by) {
            self.withdraw_all(&marks, by).await?;
            let (holder, fleet, until) = (&rival.holder, rival.fleet_shown(), rival.until);
            let message = format!(
                "{holder} of fleet {fleet} has claimed it until {until}; only that fleet can release it"
            );
            return Ok(answer(false, Some(&message)));
        }
        if self.is_finished(&issue, ours) || (options.undoes_claim && ours.is_none()) {
            return Ok(answer(true, Some("the issue was not claimed")));
        }
        // If a person has closed the issue, only the claim is removed.
        let is_open = issue.state == IssueState::Open;
        let marker = Marker::Release(ResultMarker::of(by, ours));
        if is_open && options.add_comment && !marks.has_reported(&marker) {
            let comment = comment_text::release_comment(options.reason.as_deref(), self.comment_author(by));
            issues.comment_once(number, &marker, &comment).await?;
            fault::point("github_released");
        }
        issues.remove_label(number, &self.settings.in_progress).await?;
        fault::point("github_release_unlabelled");
        if is_open && (self.settings.cleanup_on_failure || options.undoes_claim) {
            issues.add_label(number, &self.settings.ready).await?;
            fault::point("github_release_labelled");
        }
        self.withdraw_all(&marks, by).await?;
        Ok(answer(true, None))
    }

    /// Returns true if neither the comment nor the label of our claim is left on the issue.
    fn is_finished(&self, issue: &Issue, ours: Option<u64>) -> bool {
        ours.is_none() && !issue.has_label(&self.settings.in_progress)
    }

    async fn withdraw_all(&self, marks: &Marks, by: &Claimant) -> Result<(), WorkSourceError> {
        for (marked, _) in marks.claims_of(by) {
            self.issues().delete_comment(marked.id).await?;
        }
        Ok(())
    }
}

fn first_claim(marks: &Marks, by: &Claimant) -> Option<u64> {
    marks.claims_of(by).map(|(marked, _)| marked.id).min()
}

//! Claims issues, so that each issue has at most one holder, and renews claims. The rules are in
//! `docs/decisions/0009-claims-on-work-items.md`.

use std::time::Duration;

use cowhand_core::work::{ClaimFailureReason, ClaimResult, WorkItemId};
use tracing::{debug, warn};

use super::adapter::{GitHubWorkSource, work_item};
use super::comment_text;
use super::marker::{ClaimMarker, Marker, Marks};
use super::models::{Issue, IssueState};
use super::settings::ClaimMethod;
use crate::error::github::{ApiFailure, GitHubApiError};
use crate::{Claimant, WorkSourceError, can_claim_another};
use cowhand_system::fault;

/// Maximum number of reads of the comments until our own marker appears. If it does not appear, the claim fails,
/// because the answers are out of date.
const MAX_CLAIM_CHECKS: u32 = 4;

/// Reason for a refused claim, with a message for people.
type Refusal = (ClaimFailureReason, String);

/// A claim that was begun: its marker is on the issue, or the claim needs no marker.
struct BegunClaim {
    /// Issue before the claim.
    before: Issue,
    /// Id of the comment with our new marker; `None` if the claim needs no new marker.
    marker: Option<u64>,
}

type Outcome<T> = Result<Result<T, Refusal>, GitHubApiError>;

impl GitHubWorkSource {
    /// Claims several issues: writes the markers one after another, waits once, and then reads which marker is first on
    /// each issue. After an error, or a refusal that would also prevent the following claims, the following claims are
    /// not tried.
    pub(super) async fn claim_issues(
        &self,
        claims: &[(u64, &Claimant)],
    ) -> Vec<Result<ClaimResult, WorkSourceError>> {
        let mut begun: Vec<Outcome<BegunClaim>> = Vec::with_capacity(claims.len());
        for &(number, by) in claims {
            let tries_next = match begun.last() {
                None | Some(Ok(Ok(_))) => true,
                Some(Ok(Err((reason, _)))) => can_claim_another(*reason),
                Some(Err(_)) => false,
            };
            begun.push(if tries_next { self.begin_claim(number, by).await } else { Ok(Err(not_tried())) });
        }
        if begun.iter().any(|begun| matches!(begun, Ok(Ok(BegunClaim { marker: Some(_), .. })))) {
            tokio::time::sleep(self.confirm_delay()).await;
        }
        let mut results = Vec::with_capacity(claims.len());
        for (&(number, by), begun) in claims.iter().zip(begun) {
            let outcome = match begun {
                Ok(Ok(begun)) => self.finish_claim(number, by, begun).await,
                Ok(Err(refusal)) => Ok(Err(refusal)),
                Err(error) => Err(error),
            };
            results.push(match outcome {
                Ok(Ok(issue)) => work_item(issue).map(|item| ClaimResult::Claimed(Box::new(item))),
                Ok(Err((reason, message))) => Ok(ClaimResult::Refused { reason, message: Some(message) }),
                Err(error) => Err(error.into()),
            });
        }
        results
    }

    /// Writes our marker if the issue is free and the claim needs a new marker.
    async fn begin_claim(&self, number: u64, by: &Claimant) -> Outcome<BegunClaim> {
        // Nothing is written yet, so the claim is refused after an error. Only the error of a rate limit is returned,
        // because the caller waits until the rate limit ends.
        let seen = match self.read_issue(number).await {
            Err(error) if !error.is_rate_limit_error() => return Ok(Err(refusal_of(&error))),
            seen => seen?,
        };
        let Some((before, marks)) = seen else { return Ok(Err(not_found())) };
        if let Err(refusal) = self.is_free(&before, marks.as_ref(), by) {
            return Ok(Err(refusal));
        }
        // `is_free` has found no claim of another claimant. So if the issue has a holder, the claim is our own, and it
        // needs no second marker.
        let Some(marks) = marks.filter(|marks| marks.holder().is_none()) else {
            return Ok(Ok(BegunClaim { before, marker: None }));
        };
        let claim = ClaimMarker { fleet_name: self.fleet_name.clone(), ..ClaimMarker::of(by, marks.now) };
        let comment = comment_text::claim_comment(self.comment_author(by), claim.until);
        let ours = match self.issues().comment_once(number, &Marker::Claim(claim), &comment).await {
            Err(error) if error.is_permission_denied() || error.is_not_found() => {
                return Ok(Err(refusal_of(&error)));
            }
            ours => ours?,
        };
        fault::point("github_marked");
        Ok(Ok(BegunClaim { before, marker: Some(ours) }))
    }

    /// Reads which marker is first, if a new marker was written, and sets the labels if the claim is ours.
    async fn finish_claim(&self, number: u64, by: &Claimant, begun: BegunClaim) -> Outcome<Issue> {
        if let Some(ours) = begun.marker
            && let Err(refusal) = self.confirm_claim(&begun.before, ours, by).await?
        {
            return Ok(Err(refusal));
        }
        match self.issues().add_label(number, &self.settings.in_progress).await {
            Err(error) if error.is_permission_denied() => {
                self.withdraw(&self.issues().marks(number).await?, by).await;
                return Ok(Err(refusal_of(&error)));
            }
            labelled => labelled?,
        }
        fault::point("github_labelled");
        // From here on, the marker is not withdrawn after an error: a label without a marker would look like the claim
        // of another program. Every error is returned, and the caller then tries to undo the claim until this succeeds.
        self.issues().remove_label(number, &self.settings.ready).await?;
        fault::point("github_unlabelled");
        Ok(self.issues().get(number).await?.ok_or_else(not_found))
    }

    const fn confirm_delay(&self) -> Duration {
        match self.settings.claim_method {
            ClaimMethod::Marker { confirm_delay } => confirm_delay,
            ClaimMethod::LabelOnly => Duration::ZERO,
        }
    }

    async fn read_issue(&self, number: u64) -> Result<Option<(Issue, Option<Marks>)>, GitHubApiError> {
        let Some(issue) = self.issues().get(number).await? else { return Ok(None) };
        let marks = match self.settings.claim_method {
            ClaimMethod::Marker { .. } if issue.state == IssueState::Open => {
                Some(self.issues().marks(number).await?)
            }
            ClaimMethod::Marker { .. } | ClaimMethod::LabelOnly => None,
        };
        Ok(Some((issue, marks)))
    }

    /// Checks that the issue can be claimed. A label without a marker is the claim of another program or a person. A
    /// label whose markers have all expired was left by a fleet that ended.
    fn is_free(&self, issue: &Issue, marks: Option<&Marks>, by: &Claimant) -> Result<(), Refusal> {
        if issue.state != IssueState::Open {
            return Err(invalid_state());
        }
        if let Some(rival) = marks.and_then(|marks| marks.rival(by)) {
            return Err(claimed_by(rival));
        }
        let has_claim =
            marks.is_some_and(|marks| marks.holder().is_some() || marks.expired().next().is_some());
        if issue.has_label(&self.settings.in_progress) && !has_claim {
            let label = &self.settings.in_progress;
            return Err((
                ClaimFailureReason::AlreadyClaimed,
                format!("the issue already has the label {label:?}"),
            ));
        }
        Ok(())
    }

    /// Checks that the marker `ours` is the first marker; if not, withdraws it.
    async fn confirm_claim(&self, before: &Issue, ours: u64, by: &Claimant) -> Outcome<()> {
        let (issues, number) = (self.issues(), before.number);
        let marks = self.marks_with(number, ours).await?;
        let decided = match marks.holder() {
            Some((first, _)) if first.id == ours => {
                // Another fleet may have claimed and completed the issue between our first read and our marker.
                self.is_unchanged(before, issues.get(number).await?.as_ref())
            }
            Some((_, rival)) => Err(claimed_by(rival)),
            None => {
                Err((ClaimFailureReason::SourceError, "the claim expired before it was confirmed".into()))
            }
        };
        if let Err(refusal) = decided {
            self.withdraw(&marks, by).await;
            return Ok(Err(refusal));
        }
        for (expired, claim) in marks.expired() {
            debug!(number, holder = claim.holder, "GitHub: taking over an expired claim");
            if let Err(error) = issues.delete_comment(expired.id).await {
                warn!(%error, "GitHub: cannot delete the comment of an expired claim");
            }
        }
        Ok(Ok(()))
    }

    /// Reads the markers until ours is among them. The caller has already waited once.
    async fn marks_with(&self, number: u64, ours: u64) -> Result<Marks, GitHubApiError> {
        for check in 0..MAX_CLAIM_CHECKS {
            if check > 0 {
                tokio::time::sleep(self.confirm_delay()).await;
            }
            let marks = self.issues().marks(number).await?;
            if marks.all.iter().any(|marked| marked.id == ours) {
                return Ok(marks);
            }
        }
        if let Err(error) = self.issues().delete_comment(ours).await {
            warn!(number, %error, "GitHub: cannot delete the comment of a claim; the claim expires by itself");
        }
        Err(GitHubApiError {
            status: None,
            endpoint: format!("GET /repos/{}/issues/{number}/comments", self.settings.repo),
            message:
                "the comment of the claim does not appear in the issue, so the order of the claims is not \
                      known"
                    .into(),
            rate_limit: None,
            kind: ApiFailure::Network,
            token: Box::default(),
        })
    }

    fn is_unchanged(&self, before: &Issue, after: Option<&Issue>) -> Result<(), Refusal> {
        let after = after.ok_or_else(not_found)?;
        if after.state != IssueState::Open {
            return Err(invalid_state());
        }
        let has = |issue: &Issue| {
            (issue.has_label(&self.settings.ready), issue.has_label(&self.settings.in_progress))
        };
        let ((was_ready, was_claimed), (is_ready, is_claimed)) = (has(before), has(after));
        if (was_ready && !is_ready) || (is_claimed && !was_claimed) {
            let message = "somebody else took the issue while this fleet was claiming it".to_owned();
            return Err((ClaimFailureReason::AlreadyClaimed, message));
        }
        Ok(())
    }

    /// Withdraws every claim of this claimant. A failure is only logged, because a claim that remains expires.
    async fn withdraw(&self, marks: &Marks, by: &Claimant) {
        for (marked, _) in marks.claims_of(by) {
            if let Err(error) = self.issues().delete_comment(marked.id).await {
                warn!(%error, "GitHub: cannot delete the comment of a claim; the claim expires by itself");
            }
        }
    }

    pub(super) async fn renew(
        &self,
        item: &WorkItemId,
        number: u64,
        by: &Claimant,
    ) -> Result<(), WorkSourceError> {
        let lost = |state: &str| WorkSourceError::NotHeld { item: item.clone(), state: state.to_owned() };
        let marks = self.issues().marks(number).await?;
        if let Some(rival) = marks.rival(by) {
            return Err(lost(&format!("is claimed: {}", claimed_by(rival).1)));
        }
        let Some((marked, claim)) = marks.holder() else {
            return Err(lost("has no claim, because the claim expired or was withdrawn"));
        };
        if by.until <= claim.until {
            return Ok(());
        }
        let renewed = ClaimMarker::renewed(claim, by, marks.now);
        let comment = comment_text::claim_comment(self.comment_author(by), renewed.until);
        match self.issues().edit_comment(marked.id, &Marker::Claim(renewed), &comment).await {
            Err(error) if error.is_not_found() => Err(lost("no longer has the comment of the claim")),
            Err(error) => Err(error.into()),
            Ok(edited) if claim.was_renewed_in_time(edited.updated_at) => Ok(()),
            Ok(_) => Err(lost("has a claim that was renewed too late")),
        }
    }
}

fn refusal_of(error: &GitHubApiError) -> Refusal {
    let reason = if error.is_not_found() {
        ClaimFailureReason::NotFound
    } else if error.is_permission_denied() || error.status == Some(401) {
        ClaimFailureReason::PermissionDenied
    } else {
        ClaimFailureReason::SourceError
    };
    (reason, error.to_string())
}

fn not_tried() -> Refusal {
    (
        ClaimFailureReason::SourceError,
        "this claim was not tried, because the claim before it did not succeed".into(),
    )
}

fn not_found() -> Refusal {
    (ClaimFailureReason::NotFound, "the issue was deleted, moved or hidden".into())
}

fn invalid_state() -> Refusal {
    (ClaimFailureReason::InvalidState, "the issue is not open".into())
}

fn claimed_by(claim: &ClaimMarker) -> Refusal {
    let message =
        format!("{} of fleet {} has claimed it until {}", claim.holder, claim.fleet_shown(), claim.until);
    (ClaimFailureReason::AlreadyClaimed, message)
}

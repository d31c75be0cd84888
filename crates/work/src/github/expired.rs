//! Finds issues whose claim has expired. If a fleet no longer runs, the label of its claim stays on the issue.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use super::adapter::{GitHubWorkSource, work_item};
use super::marker::{ClaimMarker, Marks};
use super::models::Issue;
use crate::{ExpiredClaim, StatedClaimant, WorkSourceError};

/// Known state of claimed issues, by number. Reading an unchanged list of issues does not count against the rate limit,
/// but reading comments does. So comments are read only if they can have changed, or if the known claim has ended.
#[derive(Debug, Default)]
pub(super) struct ClaimedIssues(Mutex<HashMap<u64, Known>>);

#[derive(Debug, Clone, Copy)]
struct Known {
    /// Time of the last change of the issue or its comments.
    updated_at: Option<Timestamp>,
    /// End of the claim by GitHub's clock; `None` if the claim is only a label.
    ends: Option<Timestamp>,
}

impl Known {
    fn is_enough(self, issue: &Issue, now: Timestamp) -> bool {
        self.updated_at == issue.updated_at && self.ends.is_none_or(|ends| now <= ends)
    }
}

impl GitHubWorkSource {
    /// Finds expired claims. A label without a marker is the claim of another program or a person, and does not expire.
    pub(super) async fn find_expired(&self) -> Result<Vec<ExpiredClaim>, WorkSourceError> {
        let (mut expired, mut seen, mut number) = (Vec::new(), HashMap::new(), 1);
        loop {
            let page = self.issues().page(&self.settings.in_progress, number).await?;
            let is_claimed = |issue: &Issue| issue.has_label(&self.settings.in_progress);
            for issue in page.entries.into_iter().filter(|issue| is_claimed(issue) && self.is_offered(issue))
            {
                if let Some(known) =
                    self.claimed_issues.of(issue.number).filter(|known| known.is_enough(&issue, page.now))
                {
                    seen.insert(issue.number, known);
                    continue;
                }
                let marks = self.issues().marks(issue.number).await?;
                if let Some(claim) = left(&marks) {
                    let (holder, fleet, until) = (&claim.holder, &claim.fleet, claim.until);
                    let left_by = format!("{holder} of fleet {fleet}, which claimed it until {until},");
                    let claimant = Some(StatedClaimant { fleet: fleet.clone(), holder: holder.clone() });
                    expired.push(ExpiredClaim { item: work_item(issue)?, left_by, claimant });
                } else {
                    let known = Known { updated_at: issue.updated_at, ends: marks.held_until() };
                    seen.insert(issue.number, known);
                }
            }
            match page.next.filter(|&next| next > number) {
                Some(next) => number = next,
                None => break,
            }
        }
        self.claimed_issues.replace(seen);
        Ok(expired)
    }
}

/// Returns the latest expired claim; `None` if a claim has not expired, or if there is no claim.
fn left(marks: &Marks) -> Option<&ClaimMarker> {
    if marks.holder().is_some() {
        return None;
    }
    marks.expired().max_by_key(|(_, claim)| claim.until).map(|(_, claim)| claim)
}

impl ClaimedIssues {
    fn of(&self, number: u64) -> Option<Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number).copied()
    }

    fn replace(&self, seen: HashMap<u64, Known>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }
}

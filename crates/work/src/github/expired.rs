//! Claimed issues whose claimer let its time run out: a fleet that is gone for good leaves its label behind.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use super::adapter::{GitHubWorkSource, work_item};
use super::marker::{ClaimMarker, Marks};
use super::models::Issue;
use crate::{Claimer, ExpiredClaim, WorkSourceError};

/// What is known of claimed issues, by number. The list of them costs nothing while it does not change, but each
/// issue's comments do, so they are read only when they can say something new.
#[derive(Debug, Default)]
pub(super) struct ClaimedIssues(Mutex<HashMap<u64, Known>>);

#[derive(Debug, Clone, Copy)]
struct Known {
    /// Comments change it, too.
    updated_at: Option<Timestamp>,
    /// When the claim runs out, by GitHub's clock. None: it was made with the label alone.
    ends: Option<Timestamp>,
}

impl Known {
    fn is_enough(self, issue: &Issue, now: Timestamp) -> bool {
        self.updated_at == issue.updated_at && self.ends.is_none_or(|ends| now <= ends)
    }
}

impl GitHubWorkSource {
    /// A label that no marker goes with is another program's or a person's claim, and has no end.
    pub(super) async fn find_expired(&self) -> Result<Vec<ExpiredClaim>, WorkSourceError> {
        let (mut lapsed, mut seen, mut number) = (Vec::new(), HashMap::new(), 1);
        loop {
            let page = self.issues().page(&self.settings.in_progress, number).await?;
            let is_claimed = |issue: &Issue| issue.has_label(&self.settings.in_progress);
            for issue in
                page.entries.into_iter().filter(|issue| is_claimed(issue) && self.is_ours_to_take(issue))
            {
                if let Some(known) =
                    self.watched.of(issue.number).filter(|known| known.is_enough(&issue, page.now))
                {
                    seen.insert(issue.number, known);
                    continue;
                }
                let marks = self.issues().marks(issue.number).await?;
                if let Some(claim) = left(&marks) {
                    let (holder, fleet, until) = (&claim.holder, &claim.fleet, claim.until);
                    let left_by = format!("{holder} of fleet {fleet}, which claimed it until {until}");
                    let claimer = Some(Claimer { fleet: fleet.clone(), holder: holder.clone() });
                    lapsed.push(ExpiredClaim { item: work_item(issue)?, left_by, claimer });
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
        self.watched.replace(seen);
        Ok(lapsed)
    }
}

/// The claim of the dead, if nobody alive has it.
fn left(marks: &Marks) -> Option<&ClaimMarker> {
    if marks.holder().is_some() {
        return None;
    }
    marks.lapsed().max_by_key(|(_, claim)| claim.until).map(|(_, claim)| claim)
}

impl ClaimedIssues {
    fn of(&self, number: u64) -> Option<Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number).copied()
    }

    fn replace(&self, seen: HashMap<u64, Known>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }
}

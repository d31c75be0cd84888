//! The hidden first line of cowhand's comments, and the rules that decide who holds an issue. The rules are explained
//! in `docs/decisions/0009-claims-on-work-items.md`. They depend only on the content on GitHub and on GitHub's time.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::models::Comment;
use crate::Claimant;

/// Maximum time for which a claim is valid after its comment was last written, whatever time the marker states. So a
/// forged marker cannot hold an issue forever.
pub(super) const MAX_CLAIM_AGE: SignedDuration = SignedDuration::from_hours(24);

/// Time that is added to the end of a claim, because GitHub has more than one clock. A claim expires only when this time
/// has passed after its `until`, both for its holder and for all others.
const CLAIM_CLOCK_MARGIN: SignedDuration = SignedDuration::from_secs(10);

/// Maximum length of a marker line. The marker lines that cowhand writes are much shorter.
const MAX_MARKER_BYTES: usize = 2048;
const MARKER_OPENING: &str = "<!-- cowhand:";
const MARKER_CLOSING: &str = " -->";

/// Content of the hidden line, which this and other fleets read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Marker {
    Claim(ClaimMarker),
    /// The comment reports the result of the work.
    Report(ResultMarker),
    /// The comment reports the release of the issue.
    Release(ResultMarker),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClaimMarker {
    pub(super) fleet: String,
    /// Name of the fleet for people; `fleet` is its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fleet_name: Option<String>,
    pub(super) holder: String,
    pub(super) until: Timestamp,
    /// Previous value of `until`, if the claim was renewed. A renewal that arrives more than [`CLAIM_CLOCK_MARGIN`]
    /// after that time does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) renewed_before: Option<Timestamp>,
}

fn saturating_after(at: Timestamp, more: SignedDuration) -> Timestamp {
    at.saturating_add(more).unwrap_or(Timestamp::MAX)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ResultMarker {
    pub(super) fleet: String,
    pub(super) holder: String,
    /// Id of the comment of the claim that ended; `None` if there is no such comment. A job can claim, release and claim
    /// again; the id shows which of these claims is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) claim: Option<u64>,
}

impl ClaimMarker {
    /// Creates the marker of a claim. `now` is GitHub's time. `until` is at most [`MAX_CLAIM_AGE`] after `now`. It is a
    /// whole second, because GitHub states times in whole seconds.
    pub(super) fn of(by: &Claimant, now: Timestamp) -> Self {
        let until = by.until.min(saturating_after(now, MAX_CLAIM_AGE));
        let until = Timestamp::from_second(until.as_second()).unwrap_or(until);
        let (fleet, holder) = (by.fleet.clone(), by.holder.clone());
        Self { fleet, fleet_name: None, holder, until, renewed_before: None }
    }

    /// Returns the name of the fleet for people, or its id if it has no name.
    pub(super) fn fleet_shown(&self) -> &str {
        self.fleet_name.as_deref().unwrap_or(&self.fleet)
    }

    pub(super) fn renewed(&self, by: &Claimant, now: Timestamp) -> Self {
        let fleet_name = self.fleet_name.clone();
        Self { renewed_before: Some(self.until), fleet_name, ..Self::of(by, now) }
    }

    pub(super) fn is_by(&self, by: &Claimant) -> bool {
        self.fleet == by.fleet && self.holder == by.holder
    }

    /// Returns true if a renewal that GitHub wrote at `at` was in time: no other claimant could take over before then.
    pub(super) fn was_renewed_in_time(&self, at: Timestamp) -> bool {
        at <= saturating_after(self.until, CLAIM_CLOCK_MARGIN)
    }
}

impl ResultMarker {
    pub(super) fn of(by: &Claimant, claim: Option<u64>) -> Self {
        Self { fleet: by.fleet.clone(), holder: by.holder.clone(), claim }
    }

    /// Returns true if `other` reports the same result. If one of the two does not name its claim, any result of the
    /// same holder matches.
    fn is_reported_by(&self, other: &Self) -> bool {
        let same_claim = self.claim.is_none() || other.claim.is_none() || self.claim == other.claim;
        self.fleet == other.fleet && self.holder == other.holder && same_claim
    }
}

impl Marker {
    /// Writes the marker as an HTML comment in one line. Its content is escaped, so that it cannot end the comment.
    pub(super) fn line(&self) -> String {
        let (kind, json) = match self {
            Self::Claim(claim) => ("claim", serde_json::to_string(claim)),
            Self::Report(fact) => ("report", serde_json::to_string(fact)),
            Self::Release(fact) => ("release", serde_json::to_string(fact)),
        };
        // Strings and numbers always serialize. In the JSON, only strings can contain `<`, `>` or `@`, and in a string
        // an escape has the same meaning as the character.
        let json = json.unwrap_or_default();
        let json = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('@', "\\u0040");
        format!("{MARKER_OPENING}{kind} {json}{MARKER_CLOSING}")
    }

    /// Reads a marker at the very beginning of a comment. A quoted marker does not count.
    pub(super) fn read(body: &str) -> Option<Self> {
        let line = body.lines().next().filter(|line| line.len() <= MAX_MARKER_BYTES)?;
        let (kind, json) =
            line.strip_prefix(MARKER_OPENING)?.trim_end().strip_suffix(MARKER_CLOSING)?.split_once(' ')?;
        match kind {
            "claim" => serde_json::from_str(json).ok().map(Self::Claim),
            "report" => serde_json::from_str(json).ok().map(Self::Report),
            "release" => serde_json::from_str(json).ok().map(Self::Release),
            _ => None,
        }
    }
}

/// A comment with a marker, of this fleet or another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marked {
    pub(super) id: u64,
    pub(super) author: Option<String>,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) marker: Marker,
}

impl Marked {
    pub(super) fn read(comment: Comment) -> Option<Self> {
        let marker = Marker::read(comment.body.as_deref()?)?;
        let Comment { id, user, created_at, updated_at, .. } = comment;
        Some(Self { id, author: user.map(|user| user.login), created_at, updated_at, marker })
    }
}

/// All marked comments of an issue at `now`, which is GitHub's time.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) all: Vec<Marked>,
    pub(super) now: Timestamp,
    /// Our own account. If it is known, a comment of another account is never ours. If it is not known, only the fleet
    /// and the holder in the marker decide.
    pub(super) viewer: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimState {
    Live,
    Expired,
}

fn claim_end(marked: &Marked, claim: &ClaimMarker) -> Timestamp {
    saturating_after(claim.until.min(saturating_after(marked.updated_at, MAX_CLAIM_AGE)), CLAIM_CLOCK_MARGIN)
}

impl Marks {
    fn claims(&self) -> impl Iterator<Item = (&Marked, &ClaimMarker)> {
        self.all.iter().filter_map(|marked| match &marked.marker {
            Marker::Claim(claim) => Some((marked, claim)),
            Marker::Report(_) | Marker::Release(_) => None,
        })
    }

    fn claim_state(&self, marked: &Marked, claim: &ClaimMarker) -> ClaimState {
        let was_late = claim
            .renewed_before
            .is_some_and(|before| marked.updated_at > saturating_after(before, CLAIM_CLOCK_MARGIN));
        if was_late || self.now > claim_end(marked, claim) { ClaimState::Expired } else { ClaimState::Live }
    }

    /// Returns the time at which the holder's claim ends unless it is renewed; `None` if nobody holds the issue.
    pub(super) fn held_until(&self) -> Option<Timestamp> {
        self.holder().map(|(marked, claim)| claim_end(marked, claim))
    }

    /// Returns the earliest claim that has not expired. Of several claims in one second, the claim whose comment has
    /// the lowest id is the earliest.
    pub(super) fn holder(&self) -> Option<(&Marked, &ClaimMarker)> {
        let live =
            self.claims().filter(|(marked, claim)| self.claim_state(marked, claim) == ClaimState::Live);
        live.min_by_key(|(marked, _)| (marked.created_at, marked.id))
    }

    pub(super) fn expired(&self) -> impl Iterator<Item = (&Marked, &ClaimMarker)> {
        self.claims().filter(|(marked, claim)| self.claim_state(marked, claim) == ClaimState::Expired)
    }

    /// Returns the claims of a claimant, including expired claims.
    pub(super) fn claims_of(&self, by: &Claimant) -> impl Iterator<Item = (&Marked, &ClaimMarker)> {
        self.claims().filter(|(marked, claim)| claim.is_by(by) && self.is_own(marked))
    }

    /// Returns the claim of the holder, unless the holder is `by`.
    pub(super) fn rival(&self, by: &Claimant) -> Option<&ClaimMarker> {
        let (marked, claim) = self.holder()?;
        (!(claim.is_by(by) && self.is_own(marked))).then_some(claim)
    }

    pub(super) fn has_reported(&self, marker: &Marker) -> bool {
        self.all.iter().any(|marked| {
            self.is_own(marked)
                && match (marker, &marked.marker) {
                    (Marker::Report(marker), Marker::Report(reported))
                    | (Marker::Release(marker), Marker::Release(reported)) => marker.is_reported_by(reported),
                    (marker, found) => marker == found,
                }
        })
    }

    /// Returns our comment with exactly this marker.
    pub(super) fn own(&self, marker: &Marker) -> Option<&Marked> {
        self.all.iter().find(|marked| marked.marker == *marker && self.is_own(marked))
    }

    fn is_own(&self, marked: &Marked) -> bool {
        self.viewer.is_none() || self.viewer == marked.author
    }
}

#[cfg(test)]
mod tests;

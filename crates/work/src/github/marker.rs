//! The hidden first line of our comments, and who holds a claim by it. The rules are those of
//! `docs/decisions/0009-claims-on-work-items.md`; all are functions of what stands on GitHub and of GitHub's time.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::models::Comment;
use crate::Claimant;

/// No claim counts for longer than this after its comment was last written, whatever it says: a marker that somebody
/// made up cannot hold an issue for ever.
pub(super) const MAX_CLAIM_AGE: SignedDuration = SignedDuration::from_hours(24);

/// GitHub has more than one clock. A claim lapses this much after its time, for its holder and for all others alike.
const CLAIM_CLOCK_MARGIN: SignedDuration = SignedDuration::from_secs(10);

/// Ours are far shorter; what is longer is somebody's experiment.
const MAX_MARKER_BYTES: usize = 2048;
const MARKER_OPENING: &str = "<!-- cowhand:";
const MARKER_CLOSING: &str = " -->";

/// What one of our comments says to other programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Marker {
    Claim(ClaimMarker),
    /// The outcome was told.
    Report(ResultMarker),
    /// The release was told.
    Release(ResultMarker),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClaimMarker {
    pub(super) fleet: String,
    /// What people call the fleet; `fleet` says which it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fleet_name: Option<String>,
    pub(super) holder: String,
    pub(super) until: Timestamp,
    /// What `until` was before it was renewed. A renewal that arrives later than that revives nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) renewed_before: Option<Timestamp>,
}

fn after(at: Timestamp, more: SignedDuration) -> Timestamp {
    at.saturating_add(more).unwrap_or(Timestamp::MAX)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ResultMarker {
    pub(super) fleet: String,
    pub(super) holder: String,
    /// The comment of the claim that ended so: a job can claim, release and claim again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) claim: Option<u64>,
}

impl ClaimMarker {
    /// `now` is GitHub's. Whole seconds, as GitHub's own times are.
    pub(super) fn of(by: &Claimant, now: Timestamp) -> Self {
        let until = by.until.min(after(now, MAX_CLAIM_AGE));
        let until = Timestamp::from_second(until.as_second()).unwrap_or(until);
        let (fleet, holder) = (by.fleet.clone(), by.holder.clone());
        Self { fleet, fleet_name: None, holder, until, renewed_before: None }
    }

    /// The fleet for people.
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

    /// Whether a renewal that GitHub wrote at `at` came before anybody could take over.
    pub(super) fn was_renewed_in_time(&self, at: Timestamp) -> bool {
        at <= after(self.until, CLAIM_CLOCK_MARGIN)
    }
}

impl ResultMarker {
    pub(super) fn of(by: &Claimant, claim: Option<u64>) -> Self {
        Self { fleet: by.fleet.clone(), holder: by.holder.clone(), claim }
    }

    /// Whether `told` is this fact. Who no longer knows the claim's number takes any of the same holder.
    fn is_told_by(&self, told: &Self) -> bool {
        let same_claim = self.claim.is_none() || told.claim.is_none() || self.claim == told.claim;
        self.fleet == told.fleet && self.holder == told.holder && same_claim
    }
}

impl Marker {
    /// One line that nothing inside it can close.
    pub(super) fn line(&self) -> String {
        let (kind, json) = match self {
            Self::Claim(claim) => ("claim", serde_json::to_string(claim)),
            Self::Report(fact) => ("report", serde_json::to_string(fact)),
            Self::Release(fact) => ("release", serde_json::to_string(fact)),
        };
        // Strings and numbers become JSON without fail. Only strings can have these characters, and there an escape
        // means the same.
        let json = json.unwrap_or_default();
        let json = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('@', "\\u0040");
        format!("{MARKER_OPENING}{kind} {json}{MARKER_CLOSING}")
    }

    /// Only at the very beginning of a comment: a marker that somebody quotes is not theirs.
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

/// A comment of ours, or of another fleet.
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

/// All marked comments of an issue, as they stood at `now`, which is GitHub's.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) all: Vec<Marked>,
    pub(super) now: Timestamp,
    /// Our own account, if we could find out: only what it wrote is ours.
    pub(super) viewer: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimState {
    Live,
    Expired,
}

fn ends(marked: &Marked, claim: &ClaimMarker) -> Timestamp {
    after(claim.until.min(after(marked.updated_at, MAX_CLAIM_AGE)), CLAIM_CLOCK_MARGIN)
}

impl Marks {
    fn claims(&self) -> impl Iterator<Item = (&Marked, &ClaimMarker)> {
        self.all.iter().filter_map(|marked| match &marked.marker {
            Marker::Claim(claim) => Some((marked, claim)),
            Marker::Report(_) | Marker::Release(_) => None,
        })
    }

    fn standing(&self, marked: &Marked, claim: &ClaimMarker) -> ClaimState {
        let was_late =
            claim.renewed_before.is_some_and(|before| marked.updated_at > after(before, CLAIM_CLOCK_MARGIN));
        if was_late || self.now > ends(marked, claim) { ClaimState::Expired } else { ClaimState::Live }
    }

    /// When the claim of the holder is over, unless it is renewed.
    pub(super) fn held_until(&self) -> Option<Timestamp> {
        self.holder().map(|(marked, claim)| ends(marked, claim))
    }

    /// The earliest live claim; of those in one second the one with the smallest number.
    pub(super) fn holder(&self) -> Option<(&Marked, &ClaimMarker)> {
        let live = self.claims().filter(|(marked, claim)| self.standing(marked, claim) == ClaimState::Live);
        live.min_by_key(|(marked, _)| (marked.created_at, marked.id))
    }

    pub(super) fn lapsed(&self) -> impl Iterator<Item = (&Marked, &ClaimMarker)> {
        self.claims().filter(|(marked, claim)| self.standing(marked, claim) == ClaimState::Expired)
    }

    /// Also those that lapsed.
    pub(super) fn claims_of(&self, by: &Claimant) -> impl Iterator<Item = (&Marked, &ClaimMarker)> {
        self.claims().filter(|(marked, claim)| claim.is_by(by) && self.is_own(marked))
    }

    /// The holder, unless it is `by`.
    pub(super) fn rival(&self, by: &Claimant) -> Option<&ClaimMarker> {
        let (marked, claim) = self.holder()?;
        (!(claim.is_by(by) && self.is_own(marked))).then_some(claim)
    }

    pub(super) fn has_told(&self, wanted: &Marker) -> bool {
        self.all.iter().any(|marked| {
            self.is_own(marked)
                && match (wanted, &marked.marker) {
                    (Marker::Report(wanted), Marker::Report(told))
                    | (Marker::Release(wanted), Marker::Release(told)) => wanted.is_told_by(told),
                    (wanted, found) => wanted == found,
                }
        })
    }

    /// Our comment with this very marker.
    pub(super) fn own(&self, marker: &Marker) -> Option<&Marked> {
        self.all.iter().find(|marked| marked.marker == *marker && self.is_own(marked))
    }

    fn is_own(&self, marked: &Marked) -> bool {
        self.viewer.is_none() || self.viewer == marked.author
    }
}

#[cfg(test)]
mod tests;

//! The lease of a running job: how long it is valid, when it is renewed, and what happens to an agent whose node cannot
//! renew it.
//!
//! A node may let an agent work only as long as no other node can take the job over. The node counts the lease from the
//! time at which it *sent* the renewal, and stops the agent a margin before the end of the lease. The margin is necessary
//! because the clocks of two machines run at slightly different speeds, and because stopping an agent takes a moment.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;
use crate::moment::BootTime;
use crate::word::written_as;

/// Action for an agent whose node cannot renew the lease of the job in time, on a database that several nodes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnLostLease {
    /// Pause the agent until the lease is renewed. If another node takes the job over, the agent is ended.
    #[default]
    Pause,
    /// End the agent.
    End,
    /// Let the agent continue. No other node takes the job over, unless somebody cancels the job.
    Continue,
}

/// Action of the keeper when the deadline of its attempt has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtDeadline {
    Pause,
    End,
}

written_as! {
    OnLostLease { Pause = "pause", End = "end", Continue = "continue" }
}

impl OnLostLease {
    /// Returns the action of the keeper; `None` if the agent has no deadline.
    pub const fn at_deadline(self) -> Option<AtDeadline> {
        match self {
            Self::Pause => Some(AtDeadline::Pause),
            Self::End => Some(AtDeadline::End),
            Self::Continue => None,
        }
    }
}

/// Leases of the fleet's jobs, for a fleet on several machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Leases")]
pub struct LeaseConfig {
    /// Time for which the lease of a job is valid without a renewal, 3s to 1h; unset means 30s. A node renews its leases
    /// three times in this time.
    pub length: Option<Interval>,
    /// Time after which a paused agent is ended, if its lease is not renewed; unset means 1h.
    pub max_pause: Option<Interval>,
}

impl LeaseConfig {
    /// Returns why the length is not allowed.
    pub fn validate(&self) -> Option<String> {
        let length = self.length?.duration();
        let is_allowed = (LeaseTimes::MIN_LENGTH..=LeaseTimes::MAX_LENGTH).contains(&length);
        (!is_allowed).then(|| "a lease lasts at least 3s and at most 1h".to_owned())
    }
}

/// The times of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// Time for which a lease is valid without a renewal.
    pub length: SignedDuration,
    /// Time after which a paused agent is ended.
    pub max_pause: SignedDuration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self { length: SignedDuration::from_secs(30), max_pause: SignedDuration::from_hours(1) }
    }
}

impl From<LeaseConfig> for LeaseTimes {
    fn from(config: LeaseConfig) -> Self {
        let default = Self::default();
        Self {
            length: config.length.map_or(default.length, Interval::duration),
            max_pause: config.max_pause.map_or(default.max_pause, Interval::duration),
        }
    }
}

/// Longest pause before a renewal that failed is tried again.
const MAX_RENEWAL_RETRY: SignedDuration = SignedDuration::from_secs(2);

impl LeaseTimes {
    const MIN_LENGTH: SignedDuration = SignedDuration::from_secs(3);
    const MAX_LENGTH: SignedDuration = SignedDuration::from_hours(1);

    /// Returns the time between two renewals.
    pub fn renew_every(self) -> SignedDuration {
        self.length / 3
    }

    /// Returns the pause before a renewal that failed is tried again.
    pub fn retry_after(self) -> SignedDuration {
        (self.length / 12).min(MAX_RENEWAL_RETRY)
    }

    /// Returns the time until which an agent may work after a renewal that was sent at `sent`.
    pub fn deadline(self, sent: BootTime) -> BootTime {
        sent.plus(self.length - self.length / 5)
    }
}

/// Returns the longest time between two contacts of a node with the database that counts as uninterrupted.
///
/// An expired lease of this length is settled only if some node has been in uninterrupted contact for the whole length.
/// After an outage, each node then has that time to renew its leases. An outage that is shorter than this gap, which
/// nobody notices, ends before any lease expires: a node renews its leases after a third of their length.
pub fn max_contact_gap(length: SignedDuration) -> SignedDuration {
    length / 2
}

/// The time in which a node has reached the database without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contact {
    pub since: Timestamp,
    pub at: Timestamp,
}

/// The lease of a running job on a shared database.
#[derive(Debug, Clone, Copy)]
pub struct ExpiringLease {
    pub expires_at: Timestamp,
    pub length: SignedDuration,
    pub on_lost: OnLostLease,
    /// Set if somebody has cancelled the job.
    pub is_cancelled: bool,
}

impl ExpiringLease {
    /// Returns the time from which any node may settle the attempt as lost; none if no node may. The lease has to expire,
    /// and some node has to be in uninterrupted contact with the database for the length of the lease, so that every
    /// healthy node could renew its leases in that time. All times are times of the database.
    pub fn settled_from(&self, contacts: &[Contact], now: Timestamp) -> Option<Timestamp> {
        if self.on_lost == OnLostLease::Continue && !self.is_cancelled {
            return None;
        }
        let gap = max_contact_gap(self.length);
        let present = contacts.iter().filter(|contact| now.duration_since(contact.at) <= gap);
        let since = present.map(|contact| contact.since).min().unwrap_or(now);
        let reached = since.checked_add(self.length).unwrap_or(Timestamp::MAX);
        Some(reached.max(self.expires_at))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_agent_stops_before_its_lease_ends_and_a_renewal_may_fail_once() {
        let sent = BootTime::new(Uuid::from_u128(1), 0);
        for seconds in [3, 30, 3600] {
            let times = LeaseTimes { length: SignedDuration::from_secs(seconds), ..LeaseTimes::default() };
            let deadline = times.deadline(sent).since(sent).unwrap();
            assert!(deadline < times.length);
            assert!(times.renew_every() + times.retry_after() * 2 < deadline, "{seconds}");
            // A lease that was renewed just before an unnoticed outage is renewed again before it expires.
            let outage_ends = times.renew_every() + max_contact_gap(times.length);
            assert!(outage_ends + times.retry_after() < times.length, "{seconds}");
        }
    }

    #[test]
    fn a_lease_has_a_minimum_and_a_maximum_length() {
        for (length, is_allowed) in [("3s", true), ("2s", false), ("1h", true), ("61m", false)] {
            let config = LeaseConfig { length: Some(length.parse().unwrap()), max_pause: None };
            assert_eq!(config.validate().is_none(), is_allowed, "{length}");
        }
        assert_eq!(LeaseConfig::default().validate(), None);
    }

    #[test]
    fn an_attempt_is_settled_after_one_lease_of_contact() {
        let at = |second: i64| Timestamp::from_second(1_000 + second).unwrap();
        let contact = |since, last| Contact { since: at(since), at: at(last) };
        let lease = ExpiringLease {
            expires_at: at(0),
            length: SignedDuration::from_secs(30),
            on_lost: OnLostLease::Pause,
            is_cancelled: false,
        };
        for (contacts, now, expected) in [
            (vec![contact(-100, 0)], 1, Some(0)),
            (vec![contact(-100, -10)], 1, Some(0)),
            // The database was away until second 300.
            (vec![contact(-100, -10)], 300, Some(330)),
            (vec![contact(-100, -10), contact(301, 301)], 302, Some(331)),
            (vec![contact(301, 320), contact(305, 320)], 325, Some(331)),
            (Vec::new(), 5, Some(35)),
        ] {
            assert_eq!(lease.settled_from(&contacts, at(now)), expected.map(at), "{contacts:?} {now}");
        }
        let continues = ExpiringLease { on_lost: OnLostLease::Continue, ..lease };
        assert_eq!(continues.settled_from(&[contact(-100, 0)], at(1)), None);
        let cancelled = ExpiringLease { is_cancelled: true, ..continues };
        assert_eq!(cancelled.settled_from(&[contact(-100, 0)], at(1)), Some(at(0)));
    }
}

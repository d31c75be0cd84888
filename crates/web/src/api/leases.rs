//! Leases that their nodes have not renewed in time, on a database that several nodes share.

use cowhand_core::duration;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::lease::OnLostLease;
use cowhand_store::OverdueLease;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, ApiProblem};

/// A running job whose node has not renewed the lease of the job in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostLease {
    pub job: JobId,
    pub agent: AgentName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
    /// Node that has not renewed the lease.
    pub node: String,
    pub expired_at: Timestamp,
    /// What the node does with the agent: `pause`, `end` or `continue`.
    pub on_lost_lease: OnLostLease,
    /// Time from which another node settles the attempt as lost; absent if no node does this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_over_from: Option<Timestamp>,
    /// What has happened, and what happens next.
    pub message: String,
}

impl LostLease {
    fn of(lease: OverdueLease, now: Timestamp) -> Self {
        let message = message(&lease, now);
        let OverdueLease { job, agent, schedule, node, expired_at, on_lost, settled_from } = lease;
        Self {
            job,
            agent,
            schedule,
            node,
            expired_at,
            on_lost_lease: on_lost,
            taken_over_from: settled_from,
            message,
        }
    }
}

fn message(lease: &OverdueLease, now: Timestamp) -> String {
    let OverdueLease { job, node, .. } = lease;
    let expired = duration::relative_to_now(now, lease.expired_at);
    let agent = match lease.on_lost {
        OnLostLease::Pause => "its agent is paused there, and continues if the node renews the lease",
        OnLostLease::End => "its agent is ended there",
        OnLostLease::Continue => "its agent may still work there (`on_lost_lease: continue`)",
    };
    let next = match lease.settled_from {
        Some(from) if from > now => {
            format!("another node settles the attempt as lost {}", duration::relative_to_now(now, from))
        }
        Some(_) => "the next node that plans the job settles the attempt as lost".to_owned(),
        None => format!("no other node takes the job over; `cowhand cancel {job}` ends the job"),
    };
    format!("node {node} has not renewed the lease of the job, which expired {expired}: {agent}; {next}")
}

impl Api {
    /// Returns the running jobs whose nodes have not renewed their leases in time.
    pub(super) async fn lost_leases(&self) -> Result<Vec<LostLease>, ApiProblem> {
        let now = Timestamp::now();
        let overdue = self.store.overdue_leases(now).await?;
        Ok(overdue.into_iter().map(|lease| LostLease::of(lease, now)).collect())
    }
}

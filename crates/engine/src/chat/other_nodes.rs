//! What this node may do with answers that another node may post: after a wait, because the other node may only restart,
//! or may have a newer config.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use super::context::ChatContext;
use cowhand_store::{OpenAnswer, StoreError};
use cowhand_system::wait;

/// Time after the end of a job in which only the node with its output posts the answer.
pub(super) const OUTPUT_GRACE: SignedDuration = SignedDuration::from_mins(10);
/// Time for which the daemon of a node must be gone before another node posts the end of its jobs.
const GONE_FOR: Duration = Duration::from_secs(15);
/// Time for which an agent must be absent from the config before its answers are dropped, if other nodes can have
/// another config.
const ABSENT_FOR: Duration = Duration::from_mins(10);
/// Longest time between two checks of a condition that is assumed to hold between them.
const CHECKED_WITHIN: Duration = Duration::from_secs(30);

/// Conditions that are acted on only after they have held for some time.
#[derive(Debug, Default)]
pub(super) struct HeldConditions(Mutex<HashMap<String, Held>>);

#[derive(Debug, Clone, Copy)]
struct Held {
    since: Instant,
    checked_at: Instant,
}

impl HeldConditions {
    /// Notes whether a condition holds now, and returns how long it has held.
    fn note(&self, condition: String, holds: bool) -> Duration {
        let now = Instant::now();
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, held| now.duration_since(held.checked_at) <= CHECKED_WITHIN);
        if !holds {
            held.remove(&condition);
            return Duration::ZERO;
        }
        let held = held.entry(condition).or_insert(Held { since: now, checked_at: now });
        held.checked_at = now;
        now.duration_since(held.since)
    }
}

impl ChatContext {
    /// Returns whether the daemon of a node is gone, so that another node may post the end of its jobs. A daemon that
    /// has just stopped may be restarted at once.
    pub(super) async fn is_gone(&self, node: &str) -> Result<bool, StoreError> {
        let is_running = self.store().is_node_running(node.to_owned()).await?;
        Ok(self.held.note(format!("gone {node}"), !is_running) >= wait::length("chat_gone", GONE_FOR))
    }

    /// Returns whether this node decides what happens to an answer whose agent or schedule its config does not contain.
    /// The config of another node may be newer. Therefore only the node that ran the job, or that has the lease of a
    /// bot, decides, and not at once.
    pub(super) async fn is_removed_for_all(&self, open: &OpenAnswer) -> Result<bool, StoreError> {
        if !self.store().is_postgres() {
            return Ok(true);
        }
        let is_ours = self.is_responsible(open).await?;
        let condition = format!("absent {} {} {}", open.agent, open.schedule, open.platform);
        Ok(self.held.note(condition, is_ours) >= ABSENT_FOR)
    }

    async fn is_responsible(&self, open: &OpenAnswer) -> Result<bool, StoreError> {
        let node = self.node();
        match open.job.node() {
            Some(ran_on) if ran_on == node => return Ok(true),
            Some(other) if self.store().is_node_running(other.to_owned()).await? => return Ok(false),
            Some(_) | None => {}
        }
        let (now, platform) = (self.now(), open.platform);
        let mut leased = self.store().chat_bots().await?;
        leased.retain(|bot| bot.platform == platform && bot.until > now);
        let is_used_elsewhere = leased.iter().any(|bot| bot.node != node && bot.agents.contains(&open.agent));
        let is_leased_here = leased.iter().any(|bot| bot.node == node);
        Ok(!is_used_elsewhere && (is_leased_here || leased.is_empty()))
    }

    /// Returns whether the config of this node contains the schedule of an answer.
    pub(super) fn has_schedule(&self, open: &OpenAnswer) -> bool {
        let roster = self.fleet.roster();
        let agent = roster.agent(&open.agent);
        agent.is_some_and(|agent| agent.schedules.iter().any(|schedule| schedule.id == open.schedule))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_condition_is_held_only_while_it_is_checked() {
        let held = HeldConditions::default();
        let note = |holds| held.note("gone b".to_owned(), holds).as_secs();
        assert_eq!(note(true), 0);
        advance(Duration::from_secs(10)).await;
        assert_eq!(note(true), 10);
        assert_eq!(note(false), 0);
        advance(Duration::from_secs(10)).await;
        assert_eq!(note(true), 0);
        advance(Duration::from_secs(20)).await;
        assert_eq!(note(true), 20);
        advance(Duration::from_mins(1)).await;
        assert_eq!(note(true), 0, "it may not have held meanwhile");
    }
}

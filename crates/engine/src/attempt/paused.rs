//! The agents of this node that their keepers have paused. Their files show this even if the database does not answer.

use cowhand_core::id::JobId;
use jiff::Timestamp;

use crate::prune::files::entries;
use crate::state::StateFolder;
use cowhand_run::attempt::Attempt;

/// Returns the jobs whose agents are paused, each with the start of the pause.
pub fn paused_agents(state: &StateFolder) -> Vec<(JobId, Timestamp)> {
    let all = state.attempts();
    let folders = entries(&all).into_iter().flatten().flatten();
    let attempts = folders.filter_map(|entry| Attempt::at(&entry.path()).ok());
    let mut paused: Vec<_> =
        attempts.filter_map(|attempt| Some((attempt.job()?, attempt.paused_since()?.at))).collect();
    paused.sort();
    paused
}

//! `usage`: turns, tokens and costs of the conversation.

use cowhand_core::budget::{Amount, cost_in_words, tokens_in_words};
use cowhand_core::duration;
use cowhand_core::job::{Job, JobUsage};

use super::UsedCommand;
use crate::fleet::FleetError;

/// Maximum number of messages whose jobs are counted.
const MAX_COUNTED_MESSAGES: u32 = 200;

impl UsedCommand<'_> {
    pub(super) async fn usage(&self) -> Result<String, FleetError> {
        let mut jobs = Vec::new();
        for answer in self.last_answers(MAX_COUNTED_MESSAGES).await? {
            jobs.extend(self.job_of(&answer).await?);
        }
        let Some(last) = jobs.last() else { return Ok("This conversation has no jobs.".to_owned()) };
        let duration =
            last.duration_seconds().map(|seconds| format!(", {}", duration::rounded_from_seconds(seconds)));
        let last_line = format!(
            "Last job: {}{}, {}",
            last.id(),
            duration.unwrap_or_default(),
            amounts(&[last.usage().unwrap_or(&JobUsage::default())])
        );
        let usages: Vec<&JobUsage> = jobs.iter().filter_map(Job::usage).collect();
        let count = match jobs.len() {
            1 => "1 job".to_owned(),
            many => format!("the last {many} jobs"),
        };
        Ok(format!("{last_line}\nThis conversation, {count}: {}", amounts(&usages)))
    }
}

/// Formats turns, tokens and costs: `3 turns, 12,345 tokens, $0.05`.
fn amounts(usages: &[&JobUsage]) -> String {
    let turns: Option<u64> = usages.iter().filter_map(|usage| usage.num_turns).reduce(u64::saturating_add);
    let turns = turns.map(|turns| if turns == 1 { "1 turn".to_owned() } else { format!("{turns} turns") });
    let total = usages.iter().map(|usage| Amount::of(usage).tokens).fold(0, u64::saturating_add);
    let cost = cost_in_words(usages.iter().copied()).unwrap_or_else(|| "cost not known".to_owned());
    turns.into_iter().chain([tokens_in_words(total), cost]).collect::<Vec<_>>().join(", ")
}

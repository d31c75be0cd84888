//! The end of an answer.

use jiff::SignedDuration;

use super::{MAX_TEXT_POSTS, RenderedPost, posts_up_to, short_text, tool_result};
use crate::chat::ChatPlatform;
use crate::chat::command::command_text;
use crate::chat::escape::inline_code;
use crate::duration;
use crate::id::JobId;
use crate::job::JobUsage;

const MAX_REASON_CHARS: usize = 600;
const MAX_NAME_CHARS: usize = 80;

/// End of the job whose output is posted.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerEnd {
    pub job: JobId,
    pub outcome: AnswerOutcome,
    pub duration: Option<SignedDuration>,
    pub usage: Option<JobUsage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerOutcome {
    Succeeded,
    Failed {
        reason: String,
    },
    Cancelled {
        /// Name of the person; none if no person is named.
        by: Option<String>,
    },
}

/// Returns the sentence about the end of a job. It is posted if the job failed, was cancelled, or has no answer.
pub(super) fn sentence(end: &AnswerEnd, platform: ChatPlatform) -> String {
    let job = &end.job;
    match &end.outcome {
        AnswerOutcome::Succeeded => {
            format!(
                "The job is done. The agent wrote no answer. Job: {}",
                inline_code(job.as_str(), platform)
            )
        }
        AnswerOutcome::Failed { reason } => {
            let reason = short_text(reason.trim_end_matches('.'), MAX_REASON_CHARS, platform);
            let command = command_text(&format!("why {job}"), platform);
            format!("The job failed: {reason}. More about it: {}", inline_code(&command, platform))
        }
        AnswerOutcome::Cancelled { by } => {
            let by = by.as_ref().map(|by| format!(" by {}", short_text(by, MAX_NAME_CHARS, platform)));
            format!("Job {job} was stopped{}.", by.unwrap_or_default())
        }
    }
}

/// Returns the posts of a final output that is not a message of the agent. It is posted like a text of the agent.
pub(super) fn final_output(text: &str, end: &AnswerEnd, platform: ChatPlatform) -> Vec<RenderedPost> {
    let Some(posts) = posts_up_to(MAX_TEXT_POSTS, text, platform) else {
        let name = format!("output-{}.txt", end.job.suffix());
        return vec![tool_result::with_file("The job is done.", text, name, platform)];
    };
    if posts.is_empty() { vec![super::text_post(sentence(end, platform))] } else { posts }
}

/// Returns one line with duration, turns, cost and tokens; none if nothing is known.
pub(super) fn summary(end: &AnswerEnd) -> Option<String> {
    let mut parts: Vec<String> = end.duration.map(duration::rounded).into_iter().collect();
    if let Some(usage) = &end.usage {
        parts.extend(
            usage.num_turns.map(|turns| format!("{turns} {}", if turns == 1 { "turn" } else { "turns" })),
        );
        parts.extend(cost(usage).map(|cost| format!("${cost:.4}")));
        let models = usage.per_model.values();
        let (read, written) = models.fold((0_u64, 0_u64), |(read, written), model| {
            let cached = model.cache_creation_input_tokens.saturating_add(model.cache_read_input_tokens);
            let input = model.input_tokens.saturating_add(cached);
            (read.saturating_add(input), written.saturating_add(model.output_tokens))
        });
        if read > 0 || written > 0 {
            parts.push(format!("{} tokens in, {} out", grouped(read), grouped(written)));
        }
    }
    (!parts.is_empty()).then(|| parts.join(" · "))
}

fn cost(usage: &JobUsage) -> Option<f64> {
    let per_model = || {
        let costs: Vec<f64> = usage.per_model.values().filter_map(|model| model.cost_usd).collect();
        (!costs.is_empty()).then(|| costs.iter().sum())
    };
    usage.total_cost_usd.or_else(per_model)
}

/// Formats a number with a comma after each group of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

//! The messages to a job: what became of them, and the form that sends one while the job has not ended.

use cowhand_core::job::{JobRecord, JobStatus};
use cowhand_core::steering::{SteeringMessage, SteeringState};
use jiff::Timestamp;
use maud::{Markup, html};

use super::elements;
use super::text::{self, Text};

pub(super) fn part(job: &JobRecord, messages: &[SteeringMessage], now: Timestamp) -> Markup {
    let is_live = matches!(job.status, JobStatus::Pending | JobStatus::Running);
    html! {
        @if !messages.is_empty() {
            section.part #messages data-live {
                div.part-head { h2 { "Messages to the job" } }
                @for message in messages { (one(message, now)) }
            }
        }
        // A part of its own, which does not change while the job is live, so that no update changes what a person enters.
        @if is_live { section.part #say data-live { (form(job)) } }
    }
}

fn one(message: &SteeringMessage, now: Timestamp) -> Markup {
    html! {
        div.ask {
            p.muted {
                (elements::status_as(status_of(&message.state), &text::short(&message.whereabouts(), 140)))
                " · " (text::short(&message.sender(), 80)) " · " (elements::from_now(message.sent_at, now))
                @if message.interrupt { " · ends the turn" }
                @if let SteeringState::NextTurn { next_job, .. } = &message.state { " · " (elements::job(next_job)) }
            }
            p.pre { (Text(&message.text)) }
        }
    }
}

/// Returns the status whose symbol is shown for this state.
const fn status_of(state: &SteeringState) -> &'static str {
    match state {
        SteeringState::Pending => "waiting",
        SteeringState::Delivered { .. } | SteeringState::NextTurn { .. } => "completed",
        SteeringState::Dropped { .. } => "cancelled",
    }
}

fn form(job: &JobRecord) -> Markup {
    let address = format!("/api/v1/jobs/{}/messages", job.id);
    html! {
        form.inline.script data-post=(address) data-said="The message is stored." data-resets {
            input.grow name="text" aria-label="Message to the agent" placeholder="Message to the agent" autocomplete="off" required;
            label { input type="checkbox" name="interrupt" value="true"; " End the current turn" }
            button.primary { "Send" }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(status: &str) -> JobRecord {
        serde_json::from_value(json!({
            "id": "job-2026-01-01-aaaaaa", "agent": "a", "schedule": null, "trigger_type": "manual",
            "status": status, "exit_reason": null, "session_id": null, "forked_from": null,
            "started_at": "2026-01-01T00:00:00Z", "finished_at": null, "duration_seconds": null,
            "prompt": "x", "summary": null, "output_file": null, "attempt": 1,
            "run_started_at": "2026-01-01T00:01:00Z",
        }))
        .unwrap()
    }

    fn message(state: SteeringState) -> SteeringMessage {
        let message = json!({
            "job": "job-2026-01-01-aaaaaa", "number": 1, "uuid": "00000000-0000-0000-0000-000000000001",
            "text": "<script>x</script>", "interrupt": true, "sent_at": "2026-01-01T00:02:00Z", "route": "live",
            "state": "pending",
        });
        SteeringMessage { state, ..serde_json::from_value(message).unwrap() }
    }

    #[test]
    fn messages_are_escaped_and_can_be_sent_while_the_job_is_live() {
        let now = Timestamp::UNIX_EPOCH;
        let html = part(&job("running"), &[message(SteeringState::Pending)], now).into_string();
        for expected in [
            "&lt;script&gt;x",
            "waits until the agent takes it",
            "data-post=\"/api/v1/jobs/job-2026-01-01-aaaaaa/messages\"",
            "ends the turn",
        ] {
            assert!(html.contains(expected), "{expected} in {html}");
        }
        assert!(!html.contains("<script>"), "{html}");
        let next_job = "job-2026-01-01-bbbbbb".parse().unwrap();
        let state = SteeringState::NextTurn { settled_at: now, next_job };
        let html = part(&job("completed"), &[message(state)], now).into_string();
        assert!(html.contains("/jobs/job-2026-01-01-bbbbbb") && !html.contains("data-post"), "{html}");
        let html = part(&job("completed"), &[], now).into_string();
        assert!(!html.contains("Messages to the job"), "{html}");
    }
}

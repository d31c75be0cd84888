//! The definition of a schedule in the config, with secrets masked, on the page of the schedule.

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::text::{Text, short};
use super::{Pages, ProblemPage, elements};
use cowhand_engine::fleet::ScheduleView;
use cowhand_web::api::{Code, StatusView, segment};

/// Definition of a schedule, with the address of its webhook.
#[derive(Debug, Default)]
pub(super) struct Definition {
    /// Keys of the schedule, as in the config.
    fields: Map<String, Value>,
    /// Default prompt of the agent, which a schedule without a prompt uses.
    default_prompt: Option<String>,
    /// Address of the webhook; none if the schedule has another trigger, or the daemon has no server.
    webhook: Option<String>,
}

impl Pages {
    /// Reads the definition from the loaded config. The definition is empty if a program started the fleet without a
    /// config.
    pub(super) async fn definition(&self, view: &ScheduleView) -> Result<Definition, ProblemPage> {
        let config = match self.client.get::<Value>("config").await {
            Ok(config) => config,
            Err(problem) if problem.code == Code::NotFound => return Ok(Definition::default()),
            Err(problem) => return Err(problem.into()),
        };
        let mut agents = config["agents"].as_array().into_iter().flatten();
        let agent = agents.find(|agent| agent["name"] == view.agent.as_str());
        let fields = agent.and_then(|agent| agent["schedules"][view.schedule.as_str()].as_object());
        let default_prompt = agent.and_then(|agent| agent["default_prompt"].as_str()).map(ToOwned::to_owned);
        let webhook = if view.kind == "webhook" { self.webhook(view).await? } else { None };
        Ok(Definition { fields: fields.cloned().unwrap_or_default(), default_prompt, webhook })
    }

    async fn webhook(&self, view: &ScheduleView) -> Result<Option<String>, ProblemPage> {
        let status: StatusView = self.client.get("status").await?;
        let (agent, schedule) = (segment(view.agent.as_str()), segment(view.schedule.as_str()));
        Ok(status.daemon.url.map(|url| format!("{url}/hooks/{agent}/{schedule}")))
    }
}

/// Keys that [`part`] does not list with the other keys, but shows separately. `timezone` is shown only for schedules
/// that the clock fires.
const SHOWN_ELSEWHERE: [&str; 3] = ["type", "prompt", "timezone"];

pub(super) fn part(definition: &Definition, view: &ScheduleView) -> Markup {
    let fields = definition.fields.iter().filter(|(key, _)| !SHOWN_ELSEWHERE.contains(&key.as_str()));
    let is_timed = ["cron", "interval", "delay"].contains(&view.kind.as_str());
    let schedule_prompt = definition.fields.get("prompt").and_then(Value::as_str);
    let content = html! {
        dl.grid {
            div { dt { "type" } dd { code { (view.kind) } } }
            @for (key, value) in fields { div { dt { (short(key, 40)) } dd { code.any { (short(&formatted(value), 300)) } } } }
            @if is_timed { div { dt { "timezone" } dd { code { (view.timezone) } } } }
            @if let Some(address) = &definition.webhook { div { dt { "Webhook address" } dd { code.any { (Text(address)) } } } }
        }
        @match (schedule_prompt, &definition.default_prompt) {
            (Some(prompt), _) => { h3 { "Prompt" } (elements::block(prompt)) },
            (None, Some(prompt)) => { h3 { "Prompt of its agent" } (elements::block(prompt)) },
            (None, None) => p.muted { "Neither the schedule nor its agent has a prompt." },
        }
    };
    super::layout::part("definition", "Definition", &html! { span.muted { "as in the config" } }, &content)
}

/// Formats a text as it is, any other value as JSON.
fn formatted(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_definition_is_escaped() {
        let view: ScheduleView = serde_json::from_value(json!({
            "id": "00000000-0000-0000-0000-000000000000", "agent": "a", "schedule": "s", "type": "cron", "status": "idle", "last_run_at": null, "next_run_at": null,
            "preparing": false, "last_error": null, "skip_reason": null, "timezone": "Europe/Berlin",
        }))
        .unwrap();
        let fields = json!({
            "type": "cron", "expression": "30 2 * * *", "prompt": "<script>", "active_hours": {"start": "09:00"},
        });
        let fields = fields.as_object().unwrap().clone();
        let html = part(&Definition { fields, ..Definition::default() }, &view).into_string();
        for expected in [
            "<dt>expression</dt><dd><code class=\"any\">30 2 * * *</code>",
            "<code>Europe/Berlin</code>",
            "{&quot;start&quot;:&quot;09:00&quot;}",
            "&lt;script&gt;",
        ] {
            assert!(html.contains(expected), "{expected} in {html}");
        }
        assert!(!html.contains("<script>"), "{html}");
    }
}

//! The asks of agents, on the page of the fleet and the page of a job, with buttons for the answers.

use cowhand_core::ask::{Answered, Ask, AskState, AskSubject, Denial};
use maud::{Markup, html};

use super::text::{self, Text};
use super::{elements, layout};

/// Shows open asks; nothing if there are none.
pub(super) fn waiting(asks: &[Ask]) -> Markup {
    if asks.is_empty() {
        return html! {};
    }
    let list = html! { ul.runs { @for ask in asks { (one(ask, true)) } } };
    layout::part("asks", "Waiting for you", &html! { span.muted { (asks.len()) } }, &list)
}

/// Shows all asks of one job, with the answers.
pub(super) fn of_job(asks: &[Ask]) -> Markup {
    if asks.is_empty() {
        return html! {};
    }
    let list = html! { ul.runs { @for ask in asks { (one(ask, false)) } } };
    layout::part("asks", "Asked", &html! { span.muted { (asks.len()) } }, &list)
}

/// Shows the uses of tools that rules denied without an ask.
pub(super) fn denied(denials: &[Denial]) -> Markup {
    if denials.is_empty() {
        return html! {};
    }
    let list = html! {
        ul.runs {
            @for denial in denials {
                li {
                    div.run-head {
                        (elements::status_as("cancelled", "denied"))
                        span { code.any { (text::short(&denial.tool, 80)) } " by the rule " code.any { (text::short(&denial.rule, 120)) } }
                        span.muted { @if denial.times > 1 { (denial.times) " times, last " } (elements::at(denial.last_at)) }
                    }
                }
            }
        }
    };
    layout::part("denied", "Denied by rules", &html! { span.muted { (denials.len()) } }, &list)
}

fn one(ask: &Ask, with_job: bool) -> Markup {
    let is_open = ask.state == AskState::Open;
    html! {
        li {
            div.run-head {
                (elements::status_as(status_of(&ask.state), if is_open { "waiting" } else { ask.state.status().as_str() }))
                @if with_job { b { (elements::agent(&ask.agent)) } (elements::job(&ask.job)) }
                @match &ask.what {
                    AskSubject::Tool { tool, .. } => { span { "wants to use " code.any { (text::short(tool, 80)) } } }
                    AskSubject::Question { .. } => { span { "asks" } }
                }
                span.muted { @if is_open { "until " (elements::at(ask.expires_at)) } @else { (elements::at(ask.asked_at)) } }
            }
            @match &ask.what {
                AskSubject::Tool { input, .. } => {
                    @let text = input_of(input);
                    @if text.len() <= 600 { (elements::block(&text)) }
                    @else { details data-keep=(ask.id) { summary { code.any { (summary_of(input)) } } (elements::block(&text)) } }
                }
                AskSubject::Question { question, .. } => { p.pre { (Text(question)) } }
            }
            @if let AskState::Allowed(answered) | AskState::Denied(answered) | AskState::Answered(answered) = &ask.state { (answer(answered)) }
            @if is_open { (buttons(ask)) }
        }
    }
}

/// Returns the status whose symbol is shown for this state.
const fn status_of(state: &AskState) -> &'static str {
    match state {
        AskState::Open => "waiting",
        AskState::Allowed(_) | AskState::Answered(_) => "completed",
        AskState::Denied(_) => "cancelled",
        AskState::Expired { .. } | AskState::Ended { .. } => "skipped",
    }
}

/// Returns the command in the input, or the input as JSON if it has no command, as one short line. The line is the
/// heading of the folded input.
fn summary_of(input: &serde_json::Value) -> String {
    let command = input.get("command").and_then(serde_json::Value::as_str);
    text::short(&command.map_or_else(|| input.to_string(), |command| command.replace('\n', " ")), 160)
}

/// Formats the input: as text if `command` is its only field, or else as JSON.
fn input_of(input: &serde_json::Value) -> String {
    let fields = input.as_object();
    let command = input.get("command").and_then(serde_json::Value::as_str);
    match (command, fields.map_or(0, serde_json::Map::len)) {
        (Some(command), 1) => command.to_owned(),
        _ => serde_json::to_string_pretty(input).unwrap_or_default(),
    }
}

fn answer(Answered { answered_at, by, message }: &Answered) -> Markup {
    html! {
        p.muted { "answered " (elements::at(*answered_at)) @if let Some(by) = by { " by " (text::short(&by.to_string(), 80)) } }
        @if let Some(message) = message { p.pre { (Text(message)) } }
    }
}

fn buttons(ask: &Ask) -> Markup {
    let address = format!("/api/v1/asks/{}/answer", ask.id);
    match &ask.what {
        AskSubject::Tool { .. } => html! {
            div.buttons.script {
                button.primary data-post=(address) data-answer="allow" data-said="The tool is allowed." { "Allow" }
                button data-post=(address) data-answer="deny" data-said="The ask is denied." { "Deny" }
            }
        },
        AskSubject::Question { options, .. } => html! {
            @if !options.is_empty() {
                div.buttons.script {
                    @for option in options {
                        button data-post=(address) data-answer="text" data-message=(option) data-said="The answer is sent." { (Text(option)) }
                    }
                }
            }
            form.inline.script data-post=(address) data-said="The answer is sent." {
                input type="hidden" name="answer" value="text";
                input.grow name="message" aria-label="Your answer" placeholder="Your answer" autocomplete="off" required;
                button.primary { "Answer" }
                button type="button" data-post=(address) data-answer="deny" data-said="The ask is denied." { "Deny" }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use cowhand_core::actor::Actor;
    use cowhand_core::ask::{AskAnswer, AskId};
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn ask(what: AskSubject) -> Ask {
        let id: AskId = "job-2026-01-05-a1b2c3.1".parse().unwrap();
        let (job, agent, at) = (id.job.clone(), "coder".parse().unwrap(), Timestamp::UNIX_EPOCH);
        let expires_at = Timestamp::from_second(10).unwrap();
        Ask {
            id,
            job,
            agent,
            schedule: None,
            attempt: 1,
            what,
            asked_at: at,
            expires_at,
            state: AskState::Open,
        }
    }

    #[test]
    fn asks_are_escaped_and_can_be_answered() {
        let hostile = "</pre><script>\u{202e}rm\u{1b}[2J \" data-post=\"/x";
        let tool = AskSubject::Tool { tool: "<b>Bash".into(), input: json!({ "command": hostile }) };
        let html = waiting(&[ask(tool.clone())]).into_string();
        for expected in [
            "wants to use <code class=\"any\">&lt;b&gt;Bash</code>",
            "&lt;/pre&gt;&lt;script&gt;‹U+202E›rm &quot; data-post=&quot;/x",
            "data-post=\"/api/v1/asks/job-2026-01-05-a1b2c3.1/answer\" data-answer=\"allow\"",
            "data-answer=\"deny\"",
        ] {
            assert!(html.contains(expected), "{expected} in {html}");
        }
        assert!(!html.contains("<script>"), "{html}");
        let mut answered = ask(tool);
        let jo = Actor::Person { uid: 7, name: Some("<i>jo".into()) };
        let no = AskAnswer::Deny { message: Some("<u>no".into()) };
        answered.answer(no, Some(jo), Timestamp::UNIX_EPOCH).unwrap();
        let html = of_job(&[answered]).into_string();
        assert!(html.contains("&lt;i&gt;jo") && html.contains("&lt;u&gt;no"), "{html}");
        assert!(!html.contains("data-answer"), "{html}");
        let asked = AskSubject::Question { question: "<h1>Which?".into(), options: vec!["\"<b>main".into()] };
        let question = of_job(&[ask(asked)]).into_string();
        assert!(
            question.contains("data-answer=\"text\" data-message=\"&quot;&lt;b&gt;main\"")
                && question.contains(">&quot;&lt;b&gt;main<"),
            "{question}"
        );
        assert!(question.contains("&lt;h1&gt;Which?") && question.contains("name=\"message\""), "{question}");
        assert_eq!(waiting(&[]).into_string(), "");
    }

    /// The name of a tool can be any text of the agent.
    #[test]
    fn denials_are_shown_with_their_number() {
        let denial = |tool: &str, times| Denial {
            tool: tool.into(),
            rule: "Bash(rm *)".into(),
            times,
            first_at: Timestamp::UNIX_EPOCH,
            last_at: Timestamp::UNIX_EPOCH,
        };
        assert_eq!(denied(&[]).into_string(), "");
        let html = denied(&[denial("Bash", 3), denial("<script>", 1)]).into_string();
        assert!(html.contains("Denied by rules") && html.contains("Bash(rm *)"), "{html}");
        assert_eq!(html.matches("times, last").count(), 1, "{html}");
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script"), "{html}");
    }
}

//! The hook runs of an ended job, with their results and output, on the page of the job.

use cowhand_core::hook::HookRun;
use maud::{Markup, html};

use super::text::{self, ShownMessage, plain};
use super::{elements, layout};

pub(super) fn part(hooks: &[HookRun]) -> Markup {
    if hooks.is_empty() {
        return html! {};
    }
    let table = html! {
        table {
            thead { tr { th { "Hook" } th { "Outcome" } th.end { "Tries" } th.wide { "Ended" } th.grow { "Result" } } }
            tbody { @for hook in hooks { (row(hook)) } }
        }
    };
    layout::part("hooks", "Hooks", &html! { span.muted { (hooks.len()) } }, &table)
}

fn row(hook: &HookRun) -> Markup {
    let name = hook.name.as_deref().map(|name| text::short(name, 60));
    html! {
        tr {
            td { span.any { (hook.number) ". " @if let Some(name) = name { (name) } @else { (hook.kind.as_str()) } }
                div.muted { (hook.list.as_str()) ", " (hook.kind.as_str()) } }
            td { (elements::status(hook.state.as_str())) }
            td.end { span.number { (hook.tries) } }
            td.wide { @match hook.ended_at.or(hook.started_at) { Some(time) => (elements::at(time)), None => span.muted { "–" } } }
            td.grow {
                @if let Some(reason) = &hook.reason { p.any.reason { (ShownMessage(reason)) } }
                @if let Some(output) = hook.output.as_deref().filter(|output| !output.trim().is_empty()) { (output_block(output)) }
            }
        }
    }
}

/// Renders a short single line as it is, and folds a longer text behind the start of its first line.
fn output_block(output: &str) -> Markup {
    let output = plain(output);
    let output = output.trim();
    html! {
        @if output.lines().count() <= 1 && output.len() <= 160 { code.any { (output) } }
        @else { details { summary { code.any { (text::short(output, 120)) } } (elements::block(output)) } }
    }
}

#[cfg(test)]
mod tests {
    use cowhand_core::hook::HookEvent;
    use cowhand_core::hook::{HookKind, HookList, HookState};

    use super::*;

    fn hook(output: &str) -> HookRun {
        HookRun {
            number: 2,
            list: HookList::OnError,
            kind: HookKind::Shell,
            name: Some("<b>\u{202e}tell".into()),
            event: HookEvent::Failed,
            state: HookState::Failed,
            tries: 3,
            started_at: None,
            ended_at: None,
            reason: Some("it ended with <i>1</i>".into()),
            output: Some(output.into()),
        }
    }

    #[test]
    fn hook_runs_are_shown_and_their_output_is_escaped() {
        let html = part(&[hook("one\u{1b}[31m line")]).into_string();
        for expected in [
            "2. &lt;b&gt;‹U+202E›tell",
            "on_error, shell",
            "failed",
            "3",
            "it ended with &lt;i&gt;1&lt;/i&gt;",
            "<code class=\"any\">one line</code>",
        ] {
            assert!(html.contains(expected), "{expected} in {html}");
        }
        let long = part(&[hook("first\n<script>")]).into_string();
        assert!(long.contains("<details>") && long.contains("first\n&lt;script&gt;"), "{long}");
        assert_eq!(part(&[]).into_string(), "");
    }
}

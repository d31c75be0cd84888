//! The hook runs of an ended job, with their results and output.

use cowhand_core::hook::HookRun;
use maud::{Markup, html};

use super::text::{self, Text, plain};
use super::{layout, marks};

pub(super) fn part(hooks: &[HookRun]) -> Markup {
    if hooks.is_empty() {
        return html! {};
    }
    let table = html! {
        table {
            thead { tr { th { "Hook" } th { "Outcome" } th.end { "Tries" } th.wide { "Ended" } th.grow { "What came of it" } } }
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
            td { (marks::status(hook.state.as_str())) }
            td.end { span.number { (hook.tries) } }
            td.wide { @match hook.ended_at.or(hook.started_at) { Some(time) => (marks::at(time)), None => span.muted { "–" } } }
            td.grow {
                @if let Some(reason) = &hook.reason { p.any.reason { (Text(reason)) } }
                @if let Some(said) = hook.said.as_deref().filter(|said| !said.trim().is_empty()) { (output_block(said)) }
            }
        }
    }
}

/// Shows a single line as it is; a longer text folded behind its first line.
fn output_block(said: &str) -> Markup {
    let said = plain(said);
    let said = said.trim();
    html! {
        @if said.lines().count() <= 1 && said.len() <= 160 { code.any { (said) } }
        @else { details { summary { code.any { (text::short(said, 120)) } } (marks::block(said)) } }
    }
}

#[cfg(test)]
mod tests {
    use cowhand_core::hook::HookEvent;
    use cowhand_core::hook::{HookKind, HookList, HookState};

    use super::*;

    fn hook(said: &str) -> HookRun {
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
            said: Some(said.into()),
        }
    }

    #[test]
    fn a_hook_is_told_and_what_it_says_is_text() {
        let shown = part(&[hook("one\u{1b}[31m line")]).into_string();
        for expected in [
            "2. &lt;b&gt;‹U+202E›tell",
            "on_error, shell",
            "failed",
            "3",
            "it ended with &lt;i&gt;1&lt;/i&gt;",
            "<code class=\"any\">one line</code>",
        ] {
            assert!(shown.contains(expected), "{expected} in {shown}");
        }
        let long = part(&[hook("first\n<script>")]).into_string();
        assert!(long.contains("<details>") && long.contains("first\n&lt;script&gt;"), "{long}");
        assert_eq!(part(&[]).into_string(), "");
    }
}

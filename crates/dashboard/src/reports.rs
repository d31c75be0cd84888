//! The report of an agent, on the page of its job.

use cowhand_core::report::{Report, ReportedOutcome};
use maud::{Markup, html};

use super::elements;
use super::text::{self, Text};

/// Shows the report; nothing if there is none.
pub(super) fn part(report: Option<&Report>) -> Markup {
    let Some(Report { outcome, summary, artifacts, reported_at }) = report else { return html! {} };
    html! {
        div.summary #report {
            h2 { "Reported" }
            p { (elements::status_as(status_of(*outcome), &outcome.in_words())) span.muted { " " (elements::at(*reported_at)) } }
            p.pre { (Text(summary)) }
            @if !artifacts.is_empty() { ul.artifacts { @for artifact in artifacts { li.any { (link(artifact)) } } } }
        }
    }
}

const fn status_of(outcome: ReportedOutcome) -> &'static str {
    match outcome {
        ReportedOutcome::Done | ReportedOutcome::NothingToDo => "completed",
        ReportedOutcome::Partial | ReportedOutcome::NeedsPerson => "waiting",
        ReportedOutcome::Failed => "failed",
    }
}

/// Shows an artifact. An http or https URL becomes a link; `core` refuses other URLs.
fn link(artifact: &str) -> Markup {
    let lower = artifact.to_ascii_lowercase();
    let is_url = lower.starts_with("https://") || lower.starts_with("http://");
    html! {
        @if is_url { a href=(artifact) rel="noreferrer noopener nofollow" { (text::short(artifact, 120)) } }
        @else { code { (text::short(artifact, 120)) } }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn the_report_is_escaped() {
        let report = Report {
            outcome: ReportedOutcome::NeedsPerson,
            summary: "</p><script>\u{202e}".to_owned(),
            artifacts: vec![
                "https://x.example/\"onclick=\"y".to_owned(),
                "javascript:alert(1)".to_owned(),
                "<b>.txt".to_owned(),
            ],
            reported_at: Timestamp::UNIX_EPOCH,
        };
        let html = part(Some(&report)).into_string();
        for expected in [
            "needs a person",
            "&lt;/p&gt;&lt;script&gt;‹U+202E›",
            "href=\"https://x.example/&quot;onclick=&quot;y\"",
            "<code>javascript:alert(1)</code>",
            "<code>&lt;b&gt;.txt</code>",
        ] {
            assert!(html.contains(expected), "{expected} in {html}");
        }
        assert!(!html.contains("<script>"), "{html}");
        assert_eq!(part(None).into_string(), "");
    }
}

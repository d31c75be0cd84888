//! The text that is appended to the file of an item when its work has ended or the item is released, for the person who
//! opens the file next.

use cowhand_core::cut::cut;
use cowhand_core::work::{WorkOutcome, WorkResult};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Maximum size of the text of a result or release. A longer text is cut, because the file is for people.
const MAX_REPORT_BYTES: usize = 64 << 10;

/// Characters of a name that are escaped: they could end the name or the HTML comment, or (`%`) look like an escape.
const ESCAPED_IN_MARKERS: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'<').add(b'>');

/// Returns the hidden comment above a result. It names the claimant, so that the result is not written twice.
pub(super) fn marker(holder: &str) -> String {
    format!("<!-- cowhand:result {} -->", utf8_percent_encode(holder, ESCAPED_IN_MARKERS))
}

pub(super) const fn word(outcome: WorkOutcome) -> &'static str {
    match outcome {
        WorkOutcome::Success => "success",
        WorkOutcome::Failure => "failure",
        WorkOutcome::Partial => "partial",
    }
}

pub(super) fn result(result: &WorkResult, holder: &str, now: Timestamp) -> String {
    let mut parts = vec![result.summary.clone()];
    parts.extend(result.details.clone());
    if !result.artifacts.is_empty() {
        parts.push(format!("- {}", result.artifacts.join("\n- ")));
    }
    parts.extend(result.error.as_ref().map(|error| format!("Error: {error}")));
    let title = format!("## Result: {} ({})", word(result.outcome), seconds(now));
    format!("{}\n{title}\n\n{}", marker(holder), joined(&parts))
}

pub(super) fn release(reason: Option<&str>, holder: &str, now: Timestamp) -> String {
    let reason = reason.unwrap_or("No reason was given.").to_owned();
    format!("{}{})\n\n{}", release_heading(holder), seconds(now), joined(&[reason]))
}

/// Returns the beginning of the heading of a release. It names the claimant, so that the release is not written twice.
pub(super) fn release_heading(holder: &str) -> String {
    format!("## Released by {} (", joined(&[holder.to_owned()]))
}

/// Returns the text that a person wrote: everything before the first result or release that cowhand appended.
pub(super) fn text_before_reports(body: &str) -> &str {
    let mut end = 0;
    for line in body.split_inclusive('\n') {
        if line.starts_with("<!-- cowhand:result ") || is_release(line) {
            break;
        }
        end += line.len();
    }
    &body[..end]
}

/// Returns true if the line is a heading that [`release`] writes: a fleet and a holder, then a time.
fn is_release(line: &str) -> bool {
    let rest = line.strip_prefix("## Released by ").and_then(|rest| rest.trim_end().strip_suffix(')'));
    rest.and_then(|rest| rest.rsplit_once(" (")).is_some_and(|(holder, at)| {
        holder.contains('/') && !holder.contains(char::is_whitespace) && at.parse::<Timestamp>().is_ok()
    })
}

/// Joins the non-empty parts and cuts the text to [`MAX_REPORT_BYTES`]. Markers in the parts are made ineffective,
/// because they would name another claimant.
fn joined(parts: &[String]) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).collect();
    cut(&parts.join("\n\n").replace("<!-- cowhand:", "<!-- cowhand;"), 0, MAX_REPORT_BYTES)
}

fn seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

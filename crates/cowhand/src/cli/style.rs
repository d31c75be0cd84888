//! Styles of text on a terminal: of headings, of a status, and of notes.

use anstyle::Style;

pub(super) use cowhand_engine::view::style::{BAD, BUSY, FAINT, GOOD, ODD, styled};

/// Style of the first line of a table.
pub(super) const HEADING: Style = Style::new().bold();

/// Returns the style of the status of a job, schedule or hook run, or of the outcome of a firing.
pub(super) fn style_of(status: &str) -> Style {
    match status {
        "completed" | "ran" | "ok" => GOOD,
        "failed" | "error" | "missed" => BAD,
        "cancelled" | "skipped" | "disabled" | "coalesced" | "paused" => ODD,
        "running" => BUSY,
        _ => Style::new(),
    }
}

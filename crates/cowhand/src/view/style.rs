//! Colours. They go away where there is no terminal.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = colour(AnsiColor::Green);
pub(crate) const BAD: Style = colour(AnsiColor::Red);
pub(crate) const ODD: Style = colour(AnsiColor::Yellow);
pub(crate) const BUSY: Style = colour(AnsiColor::Cyan);

const fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(colour)))
}

/// Text in a style.
pub(crate) fn styled(text: impl Display, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

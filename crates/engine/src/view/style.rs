//! Colours for terminals. The code that prints removes them if the output does not go to a terminal.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

pub const FAINT: Style = Style::new().dimmed();
pub const GOOD: Style = colour(AnsiColor::Green);
pub const BAD: Style = colour(AnsiColor::Red);
pub const ODD: Style = colour(AnsiColor::Yellow);
pub const BUSY: Style = colour(AnsiColor::Cyan);

const fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(colour)))
}

/// Returns text in a style.
pub fn styled(text: impl Display, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

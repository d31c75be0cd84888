//! What verbs print: lines, JSON and tables. Colour goes away where there is no terminal, and a reader that has
//! seen enough (`cowhand jobs | head`) ends the program without a word.

use std::fmt::Display;
use std::io::{self, Write as _};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

pub(super) const HEAD: Style = Style::new().bold();
pub(super) const FAINT: Style = Style::new().dimmed();
pub(super) const GOOD: Style = colour(AnsiColor::Green);
pub(super) const BAD: Style = colour(AnsiColor::Red);
pub(super) const ODD: Style = colour(AnsiColor::Yellow);
pub(super) const BUSY: Style = colour(AnsiColor::Cyan);

const fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(colour)))
}

pub(super) fn line(text: impl Display) {
    let mut out = anstream::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        let exit =
            if error.kind() == io::ErrorKind::BrokenPipe { 0 } else { super::Exit::CannotRunHere as i32 };
        std::process::exit(exit);
    }
}

pub(super) fn json(value: &impl Serialize) {
    line(serde_json::to_string_pretty(value).unwrap_or_default());
}

/// Text in a style.
pub(super) fn styled(text: impl Display, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

/// The style of a job's or schedule's status.
pub(super) fn style_of(status: &str) -> Style {
    match status {
        "completed" | "ran" | "ok" => GOOD,
        "failed" | "error" | "missed" => BAD,
        "cancelled" | "skipped" | "disabled" | "coalesced" => ODD,
        "running" => BUSY,
        _ => Style::new(),
    }
}

/// Text from elsewhere on one line: the first one that says something, without control characters.
pub(super) fn one_line(text: &str, longest: usize) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let mut short: String =
        line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(longest).collect();
    if line.chars().count() > longest {
        short.pop();
        short.push('…');
    }
    short
}

/// Text from elsewhere as it is, but for what would move the cursor or colour the screen.
pub(super) fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Columns as wide as what is in them.
#[derive(Debug)]
pub(super) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    pub(super) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// The words of a status get their colour.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cell = |text: String| {
            let style = style_of(&text);
            (text, style)
        };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    pub(super) fn print(self) {
        let head: Vec<_> = self.head.iter().map(|name| ((*name).to_owned(), HEAD)).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&head]).filter_map(|row| row.get(column));
            cells.map(|(text, _)| text.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for row in [&head].into_iter().chain(&self.rows) {
            let mut text = String::new();
            let mut owed = 0;
            for ((cell, style), width) in row.iter().zip(&widths) {
                let length = cell.chars().count();
                if length > 0 {
                    text.push_str(&" ".repeat(owed));
                    text.push_str(&styled(cell, *style));
                    owed = 0;
                }
                owed += width - length + 2;
            }
            line(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_elsewhere_is_kept_in_its_place() {
        assert_eq!(one_line("\n  first\u{1b}[31m \nsecond", 40), "first [31m");
        assert_eq!(one_line("0123456789", 5), "0123…");
        assert_eq!(harmless("a\u{1b}[2J\tb\r\n"), "a[2J\tb\n");
    }
}

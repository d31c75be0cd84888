//! What verbs print: lines, JSON and tables. Colour goes away where there is no terminal, and a reader that has
//! seen enough (`cowhand jobs | head`) ends the program without a word.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};

use anstyle::Style;
use serde::Serialize;

use super::spinner;
pub(super) use crate::view::line::{one_line, plain};
pub(super) use crate::view::style::{BAD, BUSY, FAINT, GOOD, ODD, styled};

pub(super) const HEAD: Style = Style::new().bold();

pub(super) fn line(text: impl Display) {
    part(format!("{text}\n"));
}

/// Not always a whole line.
pub(super) fn part(text: impl Display) {
    let mut out = anstream::stdout().lock();
    if let Err(error) = write!(out, "{text}").and_then(|()| out.flush()) {
        end(&error);
    }
}

/// How wide the terminal is; none for a pipe or a file, where nothing is cut and no line is broken.
fn width() -> Option<usize> {
    let out = io::stdout();
    let size = if out.is_terminal() { rustix::termios::tcgetwinsize(&out).ok()? } else { return None };
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= 40)
}

/// One of many lines, which ends where the terminal does.
pub(super) fn row(text: &str) {
    match width() {
        Some(width) if text.chars().count() > width => {
            line(format!("{}…", text.chars().take(width - 1).collect::<String>()));
        }
        _ => line(text),
    }
}

/// Sentences, broken between words where the terminal ends. What comes below the first line stands `indent` to the right.
pub(super) fn prose(text: &str, indent: usize) {
    line(broken(text, indent, width()));
}

fn broken(text: &str, indent: usize, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let length = |word: &str| anstream::adapter::strip_str(word).to_string().chars().count();
    let mut out = String::new();
    let mut column = 0;
    for (number, word) in text.split(' ').enumerate() {
        let long = length(word);
        if number > 0 && column + 1 + long > width && column > indent {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if number > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += long;
    }
    out
}

/// A reader that has seen enough is no mistake.
fn end(error: &io::Error) {
    let exit = if error.kind() == io::ErrorKind::BrokenPipe { 0 } else { super::Exit::CannotRunHere as i32 };
    std::process::exit(exit);
}

/// Somebody else's text as it is; a terminal gets no signs that would do something to it.
pub(super) fn raw(text: &[u8]) {
    let mut out = io::stdout().lock();
    let harmless = |text: &[u8]| {
        let harmful = |sign: char| sign.is_control() && !matches!(sign, '\n' | '\t');
        String::from_utf8_lossy(text).replace(harmful, "\u{fffd}").into_bytes()
    };
    let text = if out.is_terminal() { harmless(text) } else { text.to_vec() };
    if let Err(error) = out.write_all(&text).and_then(|()| out.flush()) {
        end(&error);
    }
}

/// Beside the answer, for the person who waits for it.
pub(super) fn note(text: impl Display) {
    let erase = if spinner::can_erase() { spinner::ERASE } else { "" };
    anstream::eprintln!("{erase}note: {text}");
}

pub(super) fn json(value: &impl Serialize) {
    line(serde_json::to_string_pretty(value).unwrap_or_default());
}

/// The style of a job's or schedule's status.
pub(super) fn style_of(status: &str) -> Style {
    match status {
        "completed" | "ran" | "ok" => GOOD,
        "failed" | "error" | "missed" => BAD,
        "cancelled" | "skipped" | "disabled" | "coalesced" | "paused" => ODD,
        "running" => BUSY,
        _ => Style::new(),
    }
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
        let room = room_for_last(&widths, self::width());
        for row in [&head].into_iter().chain(&self.rows) {
            let mut text = String::new();
            let mut owed = 0;
            for (column, ((cell, style), width)) in row.iter().zip(&widths).enumerate() {
                let last = column + 1 == widths.len();
                let cell = if last { one_line(cell, room) } else { cell.clone() };
                let length = cell.chars().count();
                if length > 0 {
                    text.push_str(&" ".repeat(owed));
                    text.push_str(&styled(cell, *style));
                    owed = 0;
                }
                owed += width.saturating_sub(length) + 2;
            }
            line(text);
        }
    }
}

/// What is too long on a line is its last column: on a terminal that ends where the line does.
fn room_for_last(widths: &[usize], terminal: Option<usize>) -> usize {
    const LEAST: usize = 10;
    let others: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
    terminal.map_or(usize::MAX, |columns| columns.saturating_sub(others)).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_break_between_words() {
        for (text, indent, width, expected) in [
            ("one two three", 0, None, "one two three"),
            ("one two three", 0, Some(7), "one two\nthree"),
            ("key    one two three", 7, Some(14), "key    one two\n       three"),
            ("averylongword b", 2, Some(5), "averylongword\n  b"),
        ] {
            assert_eq!(broken(text, indent, width), expected);
        }
    }

    #[test]
    fn only_the_last_column_gives_way() {
        assert_eq!(room_for_last(&[10, 10, 200], Some(80)), 56);
        assert_eq!(room_for_last(&[10, 70, 200], Some(80)), 10);
        assert_eq!(room_for_last(&[10, 10, 200], None), usize::MAX);
    }
}

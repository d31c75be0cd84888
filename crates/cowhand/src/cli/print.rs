//! Output of verbs: lines, JSON and tables. Without a terminal there is no colour. When the reader closes the pipe
//! (`cowhand jobs | head`), the program ends without a message.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::advice::with_config_option;
use super::spinner;
pub(super) use super::table::Table;
use super::table::beginning;
use cowhand_engine::secrets::process::known;
use cowhand_engine::view::line;
pub(super) use cowhand_engine::view::line::plain;

pub(super) fn line(text: impl Display) {
    part(format!("{text}\n"));
}

/// Prints text that may be a part of a line.
pub(super) fn part(text: impl Display) {
    if let Err(error) = try_part(text) {
        end(&error);
    }
}

/// Prints a line. Returns the error, for a verb that continues if its output cannot be written.
pub(super) fn try_line(text: impl Display) -> io::Result<()> {
    try_part(format!("{text}\n"))
}

fn try_part(text: impl Display) -> io::Result<()> {
    let text = text.to_string();
    let mut out = anstream::stdout().lock();
    write!(out, "{}", line::harmless(&text)).and_then(|()| out.flush())
}

/// The change that this command made.
static DONE: Mutex<Option<String>> = Mutex::new(None);

/// Remembers a change that this command made. If the output cannot be written, the error message names the change, so
/// that the user does not repeat it.
pub(super) fn remember_done(what: impl Into<String>) {
    *DONE.lock().unwrap_or_else(PoisonError::into_inner) = Some(what.into());
}

/// Prints a change that this command made, as a sentence or as JSON.
pub(super) fn done(sentence: &str, value: &impl Serialize, as_json: bool) {
    remember_done(sentence);
    if as_json {
        json(value);
    } else {
        line(sentence);
    }
}

/// Formats text from outside on one line: on a terminal its first line, cut to `longest` characters; in a pipe or a
/// file all lines.
pub(super) fn one_line(text: &str, longest: usize) -> String {
    if io::stdout().is_terminal() { line::one_line(text, longest) } else { line::joined_lines(text) }
}

/// Formats text from outside for a table. The table cuts the text to the width of the terminal.
pub(super) fn cell(text: &str) -> String {
    one_line(text, usize::MAX)
}

/// Smallest width for which lines are cut. A narrower terminal breaks them.
const MIN_WIDTH: usize = 40;

/// Returns the width of the terminal in columns, at least `MIN_WIDTH`. Returns none for a pipe, a file or a terminal of
/// unknown width: then nothing is cut or wrapped.
pub(super) fn width() -> Option<usize> {
    width_of(&io::stdout())
}

fn width_of(out: &(impl io::IsTerminal + AsFd)) -> Option<usize> {
    let size = if out.is_terminal() { rustix::termios::tcgetwinsize(out).ok()? } else { return None };
    // Some terminals do not tell their width.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0).map(|columns| columns.max(MIN_WIDTH))
}

/// Prints one of many lines, cut at the width of the terminal.
pub(super) fn row(text: &str) {
    match width() {
        Some(width) if text.width() > width => line(format!("{}…", beginning(text, width - 1))),
        _ => line(text),
    }
}

/// Pads a text with spaces to this width.
pub(super) fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// Prints sentences of cowhand, wrapped between words at the width of the terminal. Lines after the first are
/// indented by `indent`. Commands in the text get the `-c` option, so that they can be typed as shown.
pub(super) fn prose(text: &str, indent: usize) {
    wrapped(&with_config_option(text), indent);
}

/// Prints text as [`prose`] does, but does not change commands in it.
pub(super) fn wrapped(text: &str, indent: usize) {
    line(wrap(text, indent, width()));
}

fn wrap(text: &str, indent: usize, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let display_width = |word: &str| anstream::adapter::strip_str(word).to_string().width();
    let mut out = String::new();
    let mut column = 0;
    for (number, word) in text.split(' ').enumerate() {
        let word_width = display_width(word);
        if number > 0 && column + 1 + word_width > width && column > indent {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if number > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word_width;
    }
    out
}

/// Ends the program after a failed write. A closed pipe is not an error.
fn end(error: &io::Error) {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    let done = DONE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let done = done.map(|done| format!("; this change was made: {done}")).unwrap_or_default();
    stderr(&with_config_option(&format!("error: cannot write to standard output: {error}{done}")));
    std::process::exit(super::Exit::CannotRunHere as i32);
}

/// Prints bytes from outside. In a pipe or a file they are unchanged. On a terminal, control characters are replaced,
/// except line ends and tabs.
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

/// Prints a note for the user to standard error, so that it is separate from the result.
pub(super) fn note(text: impl Display) {
    if spinner::can_erase() {
        let _ = write!(anstream::stderr(), "{}", spinner::ERASE_LINE);
    }
    let text = format!("note: {}", with_config_option(&text.to_string()));
    stderr(&wrap(&text, 2, width_of(&io::stderr())));
}

/// Writes a line to standard error, without known secrets. Errors are ignored, for example if the disk is full or the
/// reader has closed the pipe.
pub(super) fn stderr(line: &str) {
    let _ = writeln!(anstream::stderr(), "{}", line::harmless(&known().redact(line)));
}

pub(super) fn json(value: &impl Serialize) {
    json_line(&to_json(value));
}

/// Prints text that is JSON already.
pub(super) fn json_line(text: &str) {
    line(escaped(text));
}

/// Escapes the characters that JSON allows in strings and that a terminal would execute as control characters. JSON
/// allows a carriage return only outside of strings, so it becomes a space.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\r' => escaped.push(' '),
            '\n' | '\t' => escaped.push(c),
            c if line::is_harmful(c) => {
                let _ = std::fmt::Write::write_fmt(&mut escaped, format_args!("\\u{:04x}", u32::from(c)));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

pub(super) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_contains_no_characters_that_a_terminal_obeys() {
        let value = serde_json::json!({"model": "a\u{1b}[2J\u{9b}m\u{7f}\u{202e}ä\n"});
        let printed = escaped(&to_json(&value));
        assert!(printed.chars().all(|c| c == '\n' || !line::is_harmful(c)), "{printed:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).unwrap(), value);
    }

    #[test]
    fn sentences_break_between_words() {
        for (text, indent, width, expected) in [
            ("one two three", 0, None, "one two three"),
            ("one two three", 0, Some(7), "one two\nthree"),
            ("key    one two three", 7, Some(14), "key    one two\n       three"),
            ("averylongword b", 2, Some(5), "averylongword\n  b"),
            ("审阅 完成 ok", 0, Some(9), "审阅 完成\nok"),
        ] {
            assert_eq!(wrap(text, indent, width), expected);
        }
    }
}

//! A spinner on standard error while a verb waits, for a person at a terminal. If standard error is a pipe or a file,
//! no spinner is written.

use std::cell::{Cell, RefCell};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use cowhand_core::duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use unicode_width::UnicodeWidthStr;

use super::table::beginning;

/// Wait before the spinner appears. Shorter work needs no spinner.
const SHOW_AFTER: Duration = Duration::from_millis(200);
/// Time without other output after which the spinner appears again.
const SHOW_AGAIN_AFTER: Duration = Duration::from_secs(1);
const FRAME_EVERY: Duration = Duration::from_millis(100);
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

#[derive(Debug)]
pub(super) struct Spinner {
    text: RefCell<String>,
    can_show: bool,
    /// Time at which other text was last written.
    last_output: Cell<Option<Instant>>,
    /// Set while the current line has other text without a line end.
    line_open: Cell<bool>,
}

impl Spinner {
    pub(super) fn new(text: impl Into<String>) -> Self {
        let (last_output, line_open) = (Cell::new(None), Cell::new(false));
        Self { text: RefCell::new(text.into()), can_show: can_erase(), last_output, line_open }
    }

    /// Checks whether the terminal can show the spinner.
    pub(super) fn can_show(&self) -> bool {
        self.can_show
    }

    pub(super) fn set_text(&self, text: impl Into<String>) {
        self.text.replace(text.into());
    }

    /// Erases the spinner and lets `write` write to the terminal. The spinner returns after [`SHOW_AGAIN_AFTER`]
    /// without other output, but not while the other output ends inside a line.
    pub(super) fn suspend_for(&self, write: impl FnOnce() -> Ends) {
        if self.can_show && !self.line_open.get() {
            draw("");
        }
        let ends = write();
        self.line_open.set(matches!(ends, Ends::InsideLine));
        self.last_output.set(Some(Instant::now()));
    }

    /// Shows the spinner until the work ends, and then erases it, even if the work is interrupted.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        if !self.can_show {
            return work.await;
        }
        let started_at = Instant::now();
        let mut turns = interval_at(started_at + SHOW_AFTER, FRAME_EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut frames = FRAMES.iter().cycle();
        let _erased = Erased(self);
        tokio::pin!(work);
        loop {
            tokio::select! {
                answer = &mut work => return answer,
                _ = turns.tick() => {
                    let since = self.last_output.get().unwrap_or(started_at);
                    if self.line_open.get() || self.last_output.get().is_some() && since.elapsed() < SHOW_AGAIN_AFTER {
                        continue;
                    }
                    let frame = frames.next().copied().unwrap_or_default();
                    let line = format!("{frame} {} {}", self.text.borrow(), duration::rounded_from_seconds(since.elapsed().as_secs()));
                    draw(&fitting(&line, width()));
                }
            }
        }
    }
}

/// Guard that erases the spinner when the guard is dropped, unless the line has other text.
struct Erased<'a>(&'a Spinner);

impl Drop for Erased<'_> {
    fn drop(&mut self) {
        if !self.0.line_open.get() {
            draw("");
        }
    }
}

/// Position at which other text ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ends {
    /// At the start of a line.
    AtLineStart,
    /// Inside a line, which the spinner must not erase.
    InsideLine,
}

/// Checks whether standard error is a terminal on which a line can be rewritten.
pub(super) fn can_erase() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Replaces the text on the current line. Ignores errors, because the terminal may have been closed.
fn draw(line: &str) {
    let mut err = io::stderr().lock();
    drop(write!(err, "{ERASE_LINE}{line}").and_then(|()| err.flush()));
}

/// Control sequence that moves to the start of the line and clears it.
pub(super) const ERASE_LINE: &str = "\r\x1b[K";

/// Cuts a line so that it is narrower than `width`, the width of the terminal: a longer line would wrap, and only its
/// last part could be erased.
fn fitting(line: &str, width: usize) -> String {
    if line.width() < width {
        return line.to_owned();
    }
    let mut short = beginning(line, width.saturating_sub(2)).to_owned();
    if width > 2 {
        short.push('…');
    }
    short
}

fn width() -> usize {
    const DEFAULT_WIDTH: usize = 80;
    let size = rustix::termios::tcgetwinsize(io::stderr()).map(|size| usize::from(size.ws_col));
    size.ok().filter(|columns| *columns > 0).unwrap_or(DEFAULT_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spinner_line_is_narrower_than_the_terminal() {
        let table = [
            ("⠋ stopping 3s", 80, "⠋ stopping 3s"),
            ("0123456789", 11, "0123456789"),
            ("0123456789", 10, "01234567…"),
            ("0123456789", 3, "0…"),
            ("0123456789", 2, ""),
            ("0123456789", 0, ""),
            ("审阅完成", 9, "审阅完成"),
            ("审阅完成", 8, "审阅完…"),
        ];
        for (line, width, expected) in table {
            assert_eq!(fitting(line, width), expected, "{width}");
        }
    }
}

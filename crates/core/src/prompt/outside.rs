//! Text from outside, kept apart from our own: cleaned, fenced and of bounded size.

use std::iter::Peekable;
use std::str::Chars;

use super::{PROMPT_CAP, VALUE_CAP};
use crate::cut::{LONGEST_MARKER, push_cut};

/// One part of a prompt.
#[derive(Debug)]
pub(super) enum Part {
    Own(String),
    Outside(Outside),
}

/// A cleaned value, at most [`VALUE_CAP`] of it.
#[derive(Debug)]
pub(super) struct Outside {
    text: String,
    /// How many bytes more there were.
    cut: usize,
    /// What stands on the first line of its fence, if it has one.
    fence: Option<String>,
    /// It stands between backticks, on the line that it is part of.
    quoted: bool,
}

impl Outside {
    /// Fenced if it is of several lines. Words of others on one line are quoted.
    pub(super) fn new(text: &str, label: &str, of_others: bool) -> Self {
        let value = Self::bare(text);
        let fence = value.text.contains('\n').then(|| label.to_owned());
        let quoted = fence.is_none() && of_others && !is_plain(&value.text);
        Self { fence, quoted, ..value }
    }

    /// Fenced unless it is blank.
    pub(super) fn block(text: &str, label: &str) -> Self {
        let value = Self::bare(text);
        let fence = (!value.text.trim().is_empty()).then(|| label.to_owned());
        Self { fence, ..value }
    }

    /// Of one line, whatever it was, and quoted.
    pub(super) fn line(text: &str) -> Self {
        let value = Self::bare(text);
        let text = value.text.replace('\n', " ");
        Self { quoted: !is_plain(&text), text, ..value }
    }

    fn bare(text: &str) -> Self {
        let kept = &text[..text.floor_char_boundary(VALUE_CAP)];
        let mut clean = clean(kept);
        clean.truncate(clean.trim_end_matches('\n').len());
        Self { text: clean, cut: text.len() - kept.len(), fence: None, quoted: false }
    }
}

/// The most bytes of a value that stands in a prompt without quotes.
const PLAIN_CAP: usize = 200;

/// Says whether a value is one plain word, as numbers, names, branches and addresses are: no sentence, and nothing that
/// could end a quote or a fence.
fn is_plain(text: &str) -> bool {
    let is_part = |sign: char| sign.is_alphanumeric() || "-_./:@#+=%&?,".contains(sign);
    text.len() <= PLAIN_CAP && text.chars().all(is_part)
}

/// The most bytes of a text that has to be of one line.
const LINE_CAP: usize = 1_000;

/// Text from outside as one line without control characters, and not too long for a variable or a table.
pub fn one_line(text: &str) -> String {
    let Outside { text, cut, .. } = Outside::line(text);
    let mut line = String::new();
    push_cut(&mut line, &text, cut, LINE_CAP, char::len_utf8);
    line
}

/// The whole prompt, at most [`PROMPT_CAP`] of it. If it is too long, the longest values give way first, so that
/// our own words and the ends of the fences stay.
pub(super) fn lay_out(parts: &[Part]) -> String {
    let mut cap = VALUE_CAP;
    loop {
        let page = Page::of(parts, cap);
        if page.len() <= PROMPT_CAP {
            return page;
        }
        if cap <= LONGEST_MARKER {
            let mut cut = String::new();
            push_cut(&mut cut, &page, 0, PROMPT_CAP, char::len_utf8);
            return cut;
        }
        cap /= 2;
    }
}

#[derive(Default)]
struct Page {
    text: String,
    /// The last line is the end of a fence, and nothing else may stand on it.
    after_fence: bool,
}

impl Page {
    fn of(parts: &[Part], cap: usize) -> String {
        let mut page = Self::default();
        for part in parts {
            match part {
                Part::Own(text) => page.push(text),
                Part::Outside(value) => {
                    let mut text = String::new();
                    push_cut(&mut text, &value.text, value.cut, cap, char::len_utf8);
                    match &value.fence {
                        Some(label) => page.push_fenced(&text, label),
                        None if value.quoted => page.push(&quote(&text)),
                        None => page.push(&text),
                    }
                }
            }
        }
        page.text
    }

    fn push(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.after_fence && !text.starts_with(['\n', '\r']) {
            self.text.push('\n');
        }
        self.after_fence = false;
        self.text.push_str(text);
    }

    fn push_fenced(&mut self, text: &str, label: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        let fence = fence_for(text);
        for line in [&fence, " ", label, "\n", text, "\n", &fence] {
            self.text.push_str(line);
        }
        self.after_fence = true;
    }
}

/// Puts a line between backticks: more than it has in a row itself, so that nothing in it ends the quote.
fn quote(text: &str) -> String {
    let mark = "`".repeat(longest_run(text, '`') + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{mark}{space}{text}{space}{mark}")
}

/// Longer than any run of the same character in the text, so that no line of the text can end it.
fn fence_for(text: &str) -> String {
    let (tildes, backticks) = (longest_run(text, '~'), longest_run(text, '`'));
    let (mark, run) = if tildes <= backticks { ("~", tildes) } else { ("`", backticks) };
    mark.repeat((run + 1).max(4))
}

fn longest_run(text: &str, of: char) -> usize {
    text.split(|character| character != of).map(str::len).max().unwrap_or_default()
}

/// Without what a terminal or a reader would not show: escape sequences, control characters, marks that turn
/// the direction of text, and letters nobody sees. Every kind of line end is `\n`.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_until_final(&mut rest),
            '\r' if rest.peek() == Some(&'\n') => {}
            '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            '\n' | '\t' => out.push(character),
            hidden if hidden.is_control() || is_invisible(hidden) => {}
            plain => out.push(plain),
        }
    }
    out
}

const fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    )
}

fn skip_escape(rest: &mut Peekable<Chars<'_>>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_until_final(rest);
        }
        // Strings for the terminal (titles, links) go on to a control character that ends them.
        Some(']' | 'P' | 'X' | '^' | '_') => while rest.next_if(|c| !c.is_control()).is_some() {},
        _ => {
            while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            rest.next_if(|c| matches!(c, '0'..='~'));
        }
    }
}

/// The rest of a control sequence: parameters, and one letter that ends it.
fn skip_until_final(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    rest.next_if(|c| matches!(c, '@'..='~'));
}

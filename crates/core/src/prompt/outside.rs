//! Text from outside: removal of control characters, fencing and limits of size.

use crate::cut::{MAX_MARKER_LENGTH, push_cut};
use crate::invisible::without_invisible;

/// Maximum number of bytes that one value adds to a prompt, without its fence or backticks.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;
/// Maximum number of bytes that all values together add to a prompt, with their fences and backticks.
pub(super) const MAX_INSERTED_BYTES: usize = 256 * 1024;

/// One part of a prompt: own text of the template, or the value of a placeholder, which may come from outside.
#[derive(Debug)]
pub(super) enum PromptPart {
    Own(String),
    Value(PromptValue),
}

/// A cleaned value of at most [`MAX_VALUE_BYTES`] bytes.
#[derive(Debug)]
pub(super) struct PromptValue {
    text: String,
    /// Number of bytes that were cut.
    cut: usize,
    /// First line of its fence, if it has one.
    fence: Option<String>,
    /// True if it is put between backticks within its line.
    quoted: bool,
}

impl PromptValue {
    /// Creates a value that is fenced if it has several lines. A value of one line is quoted unless it is plain.
    /// `of_others` is true if the value may come from outside; if it is false, no line is quoted.
    pub(super) fn new(text: &str, label: &str, of_others: bool) -> Self {
        let value = Self::bare(text);
        let fence = value.text.contains('\n').then(|| label.to_owned());
        let quoted = fence.is_none() && of_others && !is_plain(&value.text);
        Self { fence, quoted, ..value }
    }

    /// Creates a value that is fenced unless it is blank.
    pub(super) fn block(text: &str, label: &str) -> Self {
        let value = Self::bare(text);
        let fence = (!value.text.trim().is_empty()).then(|| label.to_owned());
        Self { fence, ..value }
    }

    /// Creates a value of one line, which is quoted unless it is plain.
    pub(super) fn line(text: &str) -> Self {
        let value = Self::bare(text);
        let text = value.text.replace('\n', " ");
        Self { quoted: !is_plain(&text), text, ..value }
    }

    fn bare(text: &str) -> Self {
        let kept = &text[..text.floor_char_boundary(MAX_VALUE_BYTES)];
        let mut clean = without_invisible(kept);
        clean.truncate(clean.trim_end_matches('\n').len());
        Self { text: clean, cut: text.len() - kept.len(), fence: None, quoted: false }
    }
}

/// Maximum number of bytes of a plain value.
const PLAIN_CAP: usize = 200;

/// Checks whether a value is empty or one plain word, such as a number, name, branch or URL: not a sentence, and
/// without characters that could end a quote or a fence.
fn is_plain(text: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || "-_./:@#+=%&?,".contains(character);
    text.len() <= PLAIN_CAP && text.chars().all(is_part)
}

/// Maximum number of bytes of a text that [`one_line`] returns.
const LINE_CAP: usize = 1_000;

/// Returns text from outside as one line without control characters except tabs, short enough for an environment
/// variable.
pub fn one_line(text: &str) -> String {
    let PromptValue { text, cut, .. } = PromptValue::line(text);
    let mut line = String::new();
    push_cut(&mut line, &text, cut, LINE_CAP, char::len_utf8);
    line
}

/// Assembles the prompt. Own text and the ends of fences are never cut. If the prompt is longer than its own text and
/// [`MAX_INSERTED_BYTES`] together, the longest values are cut.
pub(super) fn assemble(parts: &[PromptPart]) -> String {
    let own_length = |part: &PromptPart| match part {
        PromptPart::Own(text) => text.len(),
        PromptPart::Value(_) => 0,
    };
    let longest = MAX_INSERTED_BYTES + parts.iter().map(own_length).sum::<usize>();
    let mut cap = MAX_VALUE_BYTES;
    loop {
        let prompt = PromptBuilder::of(parts, cap);
        if prompt.len() <= longest || cap <= MAX_MARKER_LENGTH {
            return prompt;
        }
        cap /= 2;
    }
}

#[derive(Default)]
struct PromptBuilder {
    text: String,
    /// True if the last line ends a fence, so that nothing else may follow on it.
    after_fence: bool,
}

impl PromptBuilder {
    fn of(parts: &[PromptPart], cap: usize) -> String {
        let mut builder = Self::default();
        for part in parts {
            match part {
                PromptPart::Own(text) => builder.push(text),
                PromptPart::Value(value) => {
                    let mut text = String::new();
                    push_cut(&mut text, &value.text, value.cut, cap, char::len_utf8);
                    match &value.fence {
                        Some(label) => builder.push_fenced(&text, label),
                        None if value.quoted => builder.push(&quote(&text)),
                        None => builder.push(&text),
                    }
                }
            }
        }
        builder.text
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

/// Puts a line between backticks. Their number is greater than the longest run of backticks in the line, so that
/// nothing in the line ends the quote.
fn quote(text: &str) -> String {
    let mark = "`".repeat(longest_run(text, '`') + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{mark}{space}{text}{space}{mark}")
}

/// Returns a fence longer than any run of the same character in the text, so that no line of the text can end it.
fn fence_for(text: &str) -> String {
    let (tildes, backticks) = (longest_run(text, '~'), longest_run(text, '`'));
    let (mark, run) = if tildes <= backticks { ("~", tildes) } else { ("`", backticks) };
    mark.repeat((run + 1).max(4))
}

fn longest_run(text: &str, of: char) -> usize {
    text.split(|character| character != of).map(str::len).max().unwrap_or_default()
}

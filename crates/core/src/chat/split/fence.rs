//! Finds the fences of code blocks, line by line.

use std::ops::Range;

/// Length of a line above which it is not a fence.
const MAX_FENCE_LINE: usize = 60;

/// Fence that opens a code block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fence {
    /// White space and quote marks before the fence.
    indent: String,
    mark: String,
    language: String,
}

/// A line of a text, including its line end.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) range: Range<usize>,
    /// Place after which the line contains only white space.
    pub(super) content_end: usize,
    kind: LineKind,
}

#[derive(Debug)]
enum LineKind {
    Text,
    Opening,
    Code(Fence),
    Closing(Fence),
}

impl Fence {
    /// Returns the line that opens the block again.
    pub(super) fn opening(&self) -> String {
        let Self { indent, mark, language } = self;
        format!("{indent}{mark}{language}\n")
    }

    /// Returns the line that closes the block, without a line end.
    pub(super) fn closing(&self) -> String {
        let Self { indent, mark, .. } = self;
        format!("{indent}{mark}")
    }

    /// Returns the length of the line that closes the block.
    pub(super) fn closing_length(&self) -> usize {
        self.indent.len() + self.mark.len()
    }

    fn read(line: &str) -> Option<Self> {
        let line = line.trim_end();
        if line.len() > MAX_FENCE_LINE {
            return None;
        }
        let start = line.len() - after_markers(line).len();
        let (before, rest) = line.split_at(start);
        let mark = mark_of(rest)?;
        let language = rest[mark.len()..].trim();
        let is_fence = !language.contains('`');
        let indent = before.chars().map(|c| if c == '>' { '>' } else { ' ' }).collect();
        is_fence.then(|| Self { indent, mark: mark.to_owned(), language: language.to_owned() })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let rest = line.trim_start_matches([' ', '\t', '>']).trim_end();
        mark_of(rest).is_some_and(|mark| mark.len() == rest.len() && mark.starts_with(&self.mark))
    }
}

impl Line {
    pub(super) const fn is_opening(&self) -> bool {
        matches!(self.kind, LineKind::Opening)
    }

    pub(super) const fn is_closing(&self) -> bool {
        matches!(self.kind, LineKind::Closing(_))
    }

    pub(super) const fn is_blank(&self) -> bool {
        self.content_end == self.range.start
    }

    /// Checks that the line is not a fence.
    pub(super) const fn is_content(&self) -> bool {
        matches!(self.kind, LineKind::Text | LineKind::Code(_))
    }

    /// Returns the fence that is open before the character at this place of the line.
    pub(super) fn fence_before(&self, at: usize) -> Option<&Fence> {
        match &self.kind {
            LineKind::Code(fence) => Some(fence),
            LineKind::Closing(fence) if at == self.range.start => Some(fence),
            _ => None,
        }
    }
}

/// Returns the lines of a text.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let (mut open, mut start) = (None::<Fence>, 0);
    let read = |line: &str| {
        let range = start..start + line.len();
        start = range.end;
        let content_end = range.start + line.trim_end().len();
        let kind = match open.take() {
            Some(fence) if fence.is_closed_by(line) => LineKind::Closing(fence),
            Some(fence) => LineKind::Code(open.insert(fence).clone()),
            None => {
                open = Fence::read(line);
                if open.is_some() { LineKind::Opening } else { LineKind::Text }
            }
        };
        Line { range, content_end, kind }
    };
    text.split_inclusive('\n').map(read).collect()
}

/// Returns the run of backticks or tildes at the start, if it can be a fence.
fn mark_of(text: &str) -> Option<&str> {
    let first = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = text.len() - text.trim_start_matches(first).len();
    (length >= 3).then(|| &text[..length])
}

/// Returns the line without white space, quote marks and list markers at its start.
fn after_markers(line: &str) -> &str {
    let rest = line.trim_start_matches([' ', '\t', '>']);
    let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let ordered = if digits.len() < rest.len() { digits.strip_prefix(['.', ')']) } else { None };
    let listed = rest.strip_prefix(['-', '*', '+', '•']).or(ordered).and_then(|rest| rest.strip_prefix(' '));
    listed.map_or(rest, after_markers)
}

//! Splits a text into parts that a platform accepts as one message each.

use std::ops::Range;

mod atom;
mod fence;

use atom::atoms;
use fence::{Fence, Line};

/// Smallest number of characters of a part. A part is shorter only if the text has no later place for a cut.
const MIN_PART_CHARS: usize = 100;

/// Splits a text into parts of at most `limit` characters. Characters outside the Basic Multilingual Plane count as
/// two, because some clients count so; the parts are therefore never too long. A limit below 100 counts as 100.
///
/// A part ends after a blank line outside code blocks, or else after a line, a sentence, a comma or a space, in this
/// order of preference. Otherwise it ends between any two characters, but not within an emoji, a link, an entity or
/// inline code. A code block that is cut is closed, and opened again in the next part. Blank lines at the start of a
/// part, white space at its end, and parts without text are dropped.
pub fn split(text: &str, limit: usize) -> Vec<String> {
    let parts = pieces(text, limit.max(MIN_PART_CHARS));
    parts.into_iter().map(|piece| piece.to_text()).filter(|part| !is_bare(part)).collect()
}

/// Returns the length of a text as [`split`] counts it.
pub fn length(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// Returns the text, or its beginning and `…`, within `limit` characters.
pub fn shorten(text: &str, limit: usize) -> String {
    if length(text) <= limit {
        return text.to_owned();
    }
    let (mut used, mut end, mut before) = (0, 0, ReadText::default());
    for (at, character) in text.char_indices() {
        if !before.is_joined_to(character) {
            end = at;
        }
        before.add(character);
        used += character.len_utf16();
        if used >= limit {
            break;
        }
    }
    format!("{}…", text[..end].trim_end())
}

/// A part of the text, with the fences that are added to it.
#[derive(Debug)]
struct Piece<'a> {
    opening: String,
    body: &'a str,
    closing: String,
}

impl Piece<'_> {
    fn to_text(&self) -> String {
        let Self { opening, body, closing } = self;
        let body = if opening.is_empty() { body.trim_start_matches(['\n', '\r']) } else { body };
        let body = if closing.is_empty() { body.trim_end() } else { body.trim_end_matches('\n') };
        let line_end = if closing.is_empty() { "" } else { "\n" };
        format!("{opening}{body}{line_end}{closing}")
    }
}

/// Checks whether a part contains nothing but white space and fences.
fn is_bare(part: &str) -> bool {
    fence::lines(part).iter().all(|line| !line.is_content() || line.is_blank())
}

fn pieces(text: &str, limit: usize) -> Vec<Piece<'_>> {
    let layout = Layout { text, lines: fence::lines(text), atoms: atoms(text, limit / 2) };
    let (mut pieces, mut start) = (Vec::new(), 0);
    while start < text.len() {
        let opening = layout.fence_at(start).map(Fence::opening).unwrap_or_default();
        let room = limit - length(&opening);
        let end = layout.end_of_part(start, room);
        let is_last = end == text.len();
        let closing = layout.fence_at(end).filter(|_| !is_last).map(Fence::closing).unwrap_or_default();
        pieces.push(Piece { opening, body: &text[start..end], closing });
        start = end;
    }
    pieces
}

/// A text with its parts that must not be cut.
struct Layout<'a> {
    text: &'a str,
    lines: Vec<Line>,
    /// Links, entities and inline code.
    atoms: Vec<Range<usize>>,
}

/// Rank of a place for a cut. The lowest rank is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CutRank {
    BlankLine,
    Line,
    Sentence,
    Comma,
    Space,
    Anywhere,
    /// A place before [`MIN_PART_CHARS`].
    Early,
}

impl Layout<'_> {
    /// Returns the end of the part that begins at `start` and has room for `room` characters.
    fn end_of_part(&self, start: usize, room: usize) -> usize {
        let (mut used, mut best, mut last) = (0, None::<(CutRank, usize)>, start);
        let mut before = ReadText::default();
        for (offset, character) in self.text[start..].char_indices() {
            let at = start + offset;
            if used > room {
                break;
            }
            if at > start && self.closing_length(at) + used <= room {
                last = at;
                let rank = if before.is_joined_to(character) { None } else { self.rank(at) };
                if let Some(rank) = rank {
                    let rank = if used < MIN_PART_CHARS.min(room / 2) { CutRank::Early } else { rank };
                    best = Some(best.map_or((rank, at), |(known, place)| {
                        if rank <= known { (rank, at) } else { (known, place) }
                    }));
                }
            }
            before.add(character);
            used += character.len_utf16();
        }
        if used <= room {
            return self.text.len();
        }
        let forced = if last > start { last } else { self.next_char(start) };
        best.map_or(forced, |(_, at)| at)
    }

    fn next_char(&self, start: usize) -> usize {
        start + self.text[start..].chars().next().map_or(0, char::len_utf8)
    }

    /// Returns the rank of a cut at this place; none if the text must not be cut there.
    fn rank(&self, at: usize) -> Option<CutRank> {
        let index = self.line_index(at);
        let line = &self.lines[index];
        if self.is_in_atom(at) {
            return None;
        }
        let before = &self.text[..at];
        if at == line.range.start {
            let previous = &self.lines[index.checked_sub(1)?];
            if previous.is_opening() || line.is_closing() {
                return None;
            }
            let is_outside = self.fence_at(at).is_none();
            return Some(if previous.is_blank() && is_outside { CutRank::BlankLine } else { CutRank::Line });
        }
        let is_rest_blank = at >= line.content_end;
        let closes_next = self.lines.get(index + 1).is_some_and(Line::is_closing);
        if !line.is_content() || (is_rest_blank && closes_next) {
            return None;
        }
        Some(match before.strip_suffix(' ') {
            Some(words) if words.ends_with(['.', '!', '?']) => CutRank::Sentence,
            Some(words) if words.ends_with(',') => CutRank::Comma,
            Some(_) => CutRank::Space,
            None => CutRank::Anywhere,
        })
    }

    fn line_index(&self, at: usize) -> usize {
        self.lines.partition_point(|line| line.range.end <= at).min(self.lines.len().saturating_sub(1))
    }

    fn is_in_atom(&self, at: usize) -> bool {
        let index = self.atoms.partition_point(|atom| atom.end <= at);
        self.atoms.get(index).is_some_and(|atom| atom.start < at)
    }

    /// Returns the fence that is open before the character at this place.
    fn fence_at(&self, at: usize) -> Option<&Fence> {
        self.lines.get(self.line_index(at))?.fence_before(at)
    }

    fn closing_length(&self, at: usize) -> usize {
        self.fence_at(at).map_or(0, |fence| fence.closing_length() + 1)
    }
}

/// Text that was read from the start of a part.
#[derive(Debug, Default)]
struct ReadText {
    last: Option<char>,
    /// Number of regional indicators at the end. Two of them are a flag.
    regions: usize,
}

impl ReadText {
    fn add(&mut self, character: char) {
        self.regions = if is_region(character) { self.regions + 1 } else { 0 };
        self.last = Some(character);
    }

    /// Checks whether the next character belongs to the character before it.
    fn is_joined_to(&self, next: char) -> bool {
        let Some(last) = self.last else { return false };
        last == '\u{200d}'
            || (last == '\r' && next == '\n')
            || (is_region(next) && self.regions % 2 == 1)
            || matches!(
                next,
                '\u{300}'..='\u{36f}'
                    | '\u{1ab0}'..='\u{1aff}'
                    | '\u{200d}'
                    | '\u{20d0}'..='\u{20ff}'
                    | '\u{fe00}'..='\u{fe0f}'
                    | '\u{1f3fb}'..='\u{1f3ff}'
                    | '\u{e0020}'..='\u{e007f}'
            )
    }
}

const fn is_region(character: char) -> bool {
    matches!(character, '\u{1f1e6}'..='\u{1f1ff}')
}

#[cfg(test)]
mod tests;

//! A text without invisible bytes, and the position of each remaining byte.
//!
//! A secret may have a colour code or a NUL between its characters. A terminal or a page does not show these bytes, so
//! a reader sees the secret. Therefore redaction has to find it.

use std::ops::Range;

use cowhand_core::invisible::is_invisible;

/// A text without escape sequences, control characters and invisible characters. Tabs and line feeds stay.
pub(super) struct Visible {
    pub(super) text: Vec<u8>,
    /// Position of each byte of `text` in the whole text.
    positions: Vec<usize>,
}

impl Visible {
    /// Returns `None` if nothing was left out.
    pub(super) fn of(whole: &[u8]) -> Option<Self> {
        if !whole.iter().any(|byte| is_control(*byte) || !byte.is_ascii()) {
            return None;
        }
        let (mut text, mut positions, mut at) =
            (Vec::with_capacity(whole.len()), Vec::with_capacity(whole.len()), 0);
        while let Some(byte) = whole.get(at) {
            let unseen = invisible_len(&whole[at..]);
            if unseen == 0 {
                text.push(*byte);
                positions.push(at);
            }
            at += unseen.max(1);
        }
        (text.len() < whole.len()).then_some(Self { text, positions })
    }

    /// Converts a range in the visible text to the range in the whole text.
    pub(super) fn range(&self, part: &Range<usize>) -> Range<usize> {
        let first = self.positions.get(part.start).copied().unwrap_or_default();
        let last = part.end.checked_sub(1).and_then(|last| self.positions.get(last).copied());
        first..last.map_or(first, |last| last + 1)
    }
}

pub(super) const fn is_control(byte: u8) -> bool {
    matches!(byte, 0..=8 | 11..=31 | 127)
}

/// Returns the length of the escape sequence or invisible character at the beginning, or 0 if there is none.
fn invisible_len(rest: &[u8]) -> usize {
    match rest {
        [0x1b, b'[', rest @ ..] | [0xc2, 0x9b, rest @ ..] => 2 + sequence(rest),
        [0x1b, b']' | b'P' | b'X' | b'^' | b'_', rest @ ..] => {
            2 + rest.iter().take_while(|byte| !is_control(**byte) && **byte != b'\n').count()
        }
        [0x1b, rest @ ..] => {
            let between = rest.iter().take_while(|byte| matches!(byte, b' '..=b'/')).count();
            1 + between + usize::from(rest.get(between).is_some_and(|byte| matches!(byte, b'0'..=b'~')))
        }
        [0xc2, 0x80..=0x9f, ..] => 2,
        [byte, ..] if is_control(*byte) => 1,
        [0xc2..=0xf4, ..] => {
            first(rest).filter(|character| is_invisible(*character)).map_or(0, char::len_utf8)
        }
        _ => 0,
    }
}

/// Returns the first character of a text that begins with a character of several bytes. Returns `None` if these bytes
/// are not UTF-8.
fn first(rest: &[u8]) -> Option<char> {
    let part = (2..=4).filter_map(|length| rest.get(..length));
    part.filter_map(|part| std::str::from_utf8(part).ok()).find_map(|text| text.chars().next())
}

/// Counts the bytes of a control sequence after its introducer.
fn sequence(rest: &[u8]) -> usize {
    let parameters = rest.iter().take_while(|byte| matches!(byte, b' '..=b'?')).count();
    parameters + usize::from(rest.get(parameters).is_some_and(|byte| matches!(byte, b'@'..=b'~')))
}

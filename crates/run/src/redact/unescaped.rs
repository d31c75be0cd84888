//! A text with JSON's escapes resolved, and the position of each byte in the original text. Redaction also searches
//! this text, because a program may write a slash as `/`, as `\/` or as `\u002f`, and may put JSON into a text that is
//! not JSON.

use std::ops::Range;

/// Number of levels of JSON within JSON that are resolved. Each level is escaped once more.
const MAX_ESCAPE_LEVELS: usize = 3;

/// A text in which one level of escapes is resolved.
struct Level {
    text: Vec<u8>,
    /// For each byte, the position of its character or escape in the text before this level was resolved.
    positions: Vec<usize>,
    /// Length of the text before this level was resolved.
    whole: usize,
}

/// Versions of a text: with one level of escapes resolved, with two levels resolved, and so on.
pub(super) struct Unescaped(Vec<Level>);

impl Unescaped {
    pub(super) fn of(whole: &[u8]) -> Self {
        let mut levels: Vec<Level> = Vec::new();
        while levels.len() < MAX_ESCAPE_LEVELS {
            let above = levels.last().map_or(whole, |level| &level.text);
            let Some(level) = Level::of(above) else { break };
            levels.push(level);
        }
        Self(levels)
    }

    /// Returns the depth and the text of each level. At depth 0, one level of escapes is resolved.
    pub(super) fn texts(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.0.iter().enumerate().map(|(depth, level)| (depth, level.text.as_slice()))
    }

    /// Converts a range in the text of this depth to the range in the original text.
    pub(super) fn range(&self, depth: usize, part: Range<usize>) -> Range<usize> {
        self.0.iter().take(depth + 1).rev().fold(part, |part, level| level.range(&part))
    }
}

impl Level {
    /// Resolves one level of escapes. Returns `None` if there is no escape.
    fn of(whole: &[u8]) -> Option<Self> {
        if !whole.contains(&b'\\') {
            return None;
        }
        let (mut text, mut positions, mut at) = (Vec::with_capacity(whole.len()), Vec::new(), 0);
        while let Some(byte) = whole.get(at) {
            let character = if *byte == b'\\' { character(&whole[at..]) } else { None };
            let length = if let Some((character, length)) = character {
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                length
            } else {
                text.push(*byte);
                1
            };
            positions.resize(text.len(), at);
            at += length;
        }
        (text.len() < whole.len()).then_some(Self { text, positions, whole: whole.len() })
    }

    fn range(&self, part: &Range<usize>) -> Range<usize> {
        let first = self.positions.get(part.start).copied().unwrap_or(self.whole);
        let Some(last) = part.end.checked_sub(1).and_then(|last| self.positions.get(last)) else {
            return first..first;
        };
        let after = self.positions[part.end..].iter().find(|position| *position > last);
        first..after.copied().unwrap_or(self.whole)
    }
}

/// Returns the character that the escape at the beginning stands for, and the length of the escape. Returns `None` if
/// the escape is not valid.
fn character(rest: &[u8]) -> Option<(char, usize)> {
    let plain = match rest.get(1)? {
        b'u' => return unicode(rest),
        byte @ (b'"' | b'\\' | b'/') => char::from(*byte),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        _ => return None,
    };
    Some((plain, 2))
}

/// Reads an escape such as `\u0041`, or two such escapes for a character beyond the first 65,536.
fn unicode(rest: &[u8]) -> Option<(char, usize)> {
    let first = unit(rest)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    let second = unit(rest.get(6..)?)?;
    let pair = char::decode_utf16([u16::try_from(first).ok()?, u16::try_from(second).ok()?]);
    pair.flatten().next().map(|character| (character, 12))
}

fn unit(rest: &[u8]) -> Option<u32> {
    let digits = rest.strip_prefix(b"\\u")?.get(..4)?;
    let digits =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

/// Returns where an incomplete escape begins at the end of a text; `None` if there is no incomplete escape. The next
/// piece of text may complete the escape. The first half of a surrogate pair counts as incomplete.
pub(super) fn unfinished(text: &str) -> Option<usize> {
    // The last backslash is searched within this number of bytes. That is more than enough: at most five bytes follow
    // the last backslash of an incomplete escape.
    const MAX_ESCAPE_BYTES: usize = 32;
    let bytes = text.as_bytes();
    let from = bytes.len().saturating_sub(MAX_ESCAPE_BYTES);
    let slash = from + bytes[from..].iter().rposition(|byte| *byte == b'\\')?;
    let tail = &bytes[slash + 1..];
    let open =
        tail.is_empty() || (tail[0] == b'u' && tail.len() < 5 && tail[1..].iter().all(u8::is_ascii_hexdigit));
    let high =
        || unit(&bytes[slash..]).is_some_and(|unit| (0xd800..0xdc00).contains(&unit)) && tail.len() == 5;
    if !open && !high() {
        return None;
    }
    let slashes = bytes[..slash].iter().rev().take_while(|byte| **byte == b'\\').count();
    let start = slash - slashes;
    // Include the first half of a surrogate pair before the escape.
    let half = start
        .checked_sub(6)
        .filter(|half| open && unit(&bytes[*half..]).is_some_and(|unit| (0xd800..0xdc00).contains(&unit)));
    Some(half.unwrap_or(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_with_their_positions() {
        for (text, expected) in [
            (r"a\/b", "a/b"),
            (r"a\u002Fb\u002f", "a/b/"),
            (r"\u00fc\ud83d\ude00", "ü😀"),
            (r"\ud83d!\u12", r"\ud83d!\u12"),
            (r"\\u002f", "/"),
            (r"\\\\u002f", "/"),
            (r"C:\dir", r"C:\dir"),
        ] {
            let unescaped = Unescaped::of(text.as_bytes());
            let last = unescaped.texts().last().map_or(text, |(_, text)| std::str::from_utf8(text).unwrap());
            assert_eq!(last, expected, "{text}");
        }
        let unescaped = Unescaped::of(br"x\u00fcy\/z");
        assert_eq!(unescaped.range(0, 1..3), 1..7);
        assert_eq!(unescaped.range(0, 3..5), 7..10);
        assert_eq!(unescaped.range(0, 5..6), 10..11);
        let unescaped = Unescaped::of(br"x\\u00fcy");
        assert_eq!(unescaped.range(1, 1..3), 1..8);
    }

    #[test]
    fn unfinished_escapes_are_recognized() {
        for (text, expected) in [
            ("plain", None),
            (r"a\", Some(1)),
            (r"a\u", Some(1)),
            (r"a\u00f", Some(1)),
            (r"a\u00fc", None),
            (r"a\\u00f", Some(1)),
            (r"a\ud83d", Some(1)),
            (r"a\ud83d\", Some(1)),
            (r"a\ud83d\ude0", Some(1)),
            (r"a\ud83d\ude00", None),
            (r"a\n", None),
        ] {
            assert_eq!(unfinished(text), expected, "{text}");
        }
    }
}

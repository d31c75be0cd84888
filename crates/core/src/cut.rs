//! Truncation of long texts, with a marker that states how many bytes were cut.

use std::borrow::Cow;
use std::fmt::Write;

use uuid::Uuid;

/// Maximum length of a name from outside in an indexed column of the store. PostgreSQL cannot index long texts.
const MAX_INDEXED_BYTES: usize = 1_000;
const MAX_FIRST_WORD: usize = 50;

/// Returns `text`, or a UUID that is derived from the whole text if `text` is too long for an index. The first word of
/// `text` precedes the UUID, unless that word is long too. Different texts have different results. The rest of
/// a long text is not kept, because redaction does not recognise a part of a secret.
pub fn indexed(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_INDEXED_BYTES {
        return Cow::Borrowed(text);
    }
    let first = text.split_once(' ').map_or("", |(first, _)| first);
    let first = if first.len() <= MAX_FIRST_WORD { first } else { "" };
    let unique = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes());
    Cow::Owned(format!("{first} {unique}").trim_start().to_owned())
}

/// Returns `text`, or as much of it as fits in `cap` bytes together with a marker. `already` is the number of bytes
/// that the caller has already cut off the end of the text; the marker counts them too.
pub fn cut(text: &str, already: usize, cap: usize) -> String {
    if already == 0 && text.len() <= cap {
        return text.to_owned();
    }
    let mut out = String::new();
    push_cut(&mut out, text, already, cap, char::len_utf8);
    out
}

/// Maximum length of a marker.
pub(crate) const MAX_MARKER_LENGTH: usize = 48;

/// Appends all of `text` to `out`, or its beginning and a marker with the number of missing bytes. `cost` returns how
/// much of `cap` a character uses. The appended text, including the marker, uses at most `cap`. `already` is as in
/// `cut`.
///
/// A cap below [`MAX_MARKER_LENGTH`] counts as [`MAX_MARKER_LENGTH`], so that there is always room for the marker.
pub(crate) fn push_cut(out: &mut String, text: &str, already: usize, cap: usize, cost: fn(char) -> usize) {
    let cap = cap.max(MAX_MARKER_LENGTH);
    let room = if already == 0 { cap } else { cap - MAX_MARKER_LENGTH };
    let (mut used, mut end_with_marker) = (0, 0);
    for (at, character) in text.char_indices() {
        used += cost(character);
        if used <= cap - MAX_MARKER_LENGTH {
            end_with_marker = at + character.len_utf8();
        }
        if used > room {
            // If the text ends with the marker of an earlier cut, the new marker counts the bytes of that cut too.
            let (unmarked, cut_earlier) = split_marker(text);
            let kept = end_with_marker.min(unmarked.len());
            out.push_str(&text[..kept]);
            push_marker(out, already + cut_earlier + unmarked.len() - kept);
            return;
        }
    }
    out.push_str(text);
    if already > 0 {
        push_marker(out, already);
    }
}

/// Returns a text without the marker at its end, and the number of cut bytes that the marker states.
fn split_marker(text: &str) -> (&str, usize) {
    let marker = || {
        let (unmarked, bytes) = text.strip_suffix(" bytes cut …]")?.rsplit_once("[… ")?;
        Some((unmarked, bytes.parse().ok()?))
    };
    marker().unwrap_or((text, 0))
}

fn push_marker(out: &mut String, bytes: usize) {
    // Writing to a string cannot fail.
    let _ = write!(out, "[… {bytes} bytes cut …]");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_in_an_index_are_cut_and_stay_different() {
        let (short, long) = ("ä".repeat(500), format!("files {}", "ä".repeat(500)));
        assert_eq!(indexed(&short), short);
        let [one, two] = [indexed(&long).into_owned(), indexed(&format!("{long}2")).into_owned()];
        assert!(one.starts_with("files ") && one.len() == "files ".len() + 36, "{one}");
        assert!(one != two && one == indexed(&long), "{one} {two}");
        assert_eq!(indexed(&"ä".repeat(501)).len(), 36);
    }

    #[test]
    fn text_is_cut_at_character_boundaries_with_a_byte_count() {
        let long = "é".repeat(50);
        for (text, already, cap, expected) in [
            ("short", 0, 100, "short".to_owned()),
            ("", 0, 0, String::new()),
            ("", 7, 100, "[… 7 bytes cut …]".to_owned()),
            ("kept", 7, 100, "kept[… 7 bytes cut …]".to_owned()),
            (&long, 0, 100, long.clone()),
            (&long, 0, 99, format!("{}[… 50 bytes cut …]", "é".repeat(25))),
            (&long, 5, 99, format!("{}[… 55 bytes cut …]", "é".repeat(25))),
            (&long, 0, 0, "[… 100 bytes cut …]".to_owned()),
            (&format!("{long}[… 900 bytes cut …]"), 0, 99, format!("{}[… 950 bytes cut …]", "é".repeat(25))),
            (&format!("{long}[… 900 bytes cut …]"), 0, 148, format!("{long}[… 900 bytes cut …]")),
            (&format!("{long}[… many bytes cut …]"), 0, 99, format!("{}[… 74 bytes cut …]", "é".repeat(25))),
        ] {
            let out = cut(text, already, cap);
            assert_eq!(out, expected, "{text} at {cap}");
            assert!(out.len() <= cap.max(MAX_MARKER_LENGTH));
        }
        assert!(format!("[… {} bytes cut …]", usize::MAX).len() <= MAX_MARKER_LENGTH);
    }
}

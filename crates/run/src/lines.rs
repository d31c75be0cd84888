//! Splits bytes that arrive in chunks of any size into lines of text. Bytes that are not UTF-8 are replaced, and long
//! lines are cut.

use std::borrow::Cow;

use cowhand_core::cut::cut;

/// The line that is being read. It contains at most `cap` + 1 bytes.
#[derive(Debug)]
pub struct LineBuffer {
    cap: usize,
    begun: Vec<u8>,
    /// Number of bytes of this line that were dropped.
    dropped: usize,
}

impl LineBuffer {
    pub const fn new(cap: usize) -> Self {
        Self { cap, begun: Vec::new(), dropped: 0 }
    }

    /// Takes bytes from the front of `chunk` up to the end of a line, and returns that line. Returns `None` if the
    /// chunk contains no line end: then the whole chunk is taken, and the line continues in the next chunk. A line
    /// within one chunk is not copied, unless it has to be changed.
    pub fn next<'a>(&mut self, chunk: &mut &'a [u8]) -> Option<Cow<'a, str>> {
        let end = memchr::memchr(b'\n', chunk);
        let (line, rest) = chunk.split_at(end.unwrap_or(chunk.len()));
        *chunk = if end.is_some() { &rest[1..] } else { rest };
        if end.is_some() && !self.has_begun() && line.len() <= self.cap {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Ok(line) = std::str::from_utf8(line) {
                return Some(Cow::Borrowed(line));
            }
        }
        self.keep(line);
        end.map(|_| Cow::Owned(self.take()))
    }

    /// Returns true if the next bytes continue a line.
    pub const fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Returns the line that has begun when the input ends. Returns `None` if the input ended with a line end.
    pub fn finish(&mut self) -> Option<String> {
        self.has_begun().then(|| self.take())
    }

    /// Keeps at most one byte more than the cap, so that a line that just fits may end with CRLF.
    fn keep(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(self.cap + 1 - self.begun.len());
        self.begun.extend_from_slice(&bytes[..kept]);
        self.dropped += bytes.len() - kept;
    }

    fn take(&mut self) -> String {
        if self.dropped == 0 {
            if self.begun.last() == Some(&b'\r') {
                self.begun.pop();
            }
        } else {
            // The line was cut, so a character at the end may be incomplete. Such a character is dropped.
            let whole = self.begun.len() - incomplete_character_len(&self.begun);
            self.dropped += self.begun.len() - whole;
            self.begun.truncate(whole);
        }
        let line = String::from_utf8_lossy(&self.begun);
        let fits = self.dropped == 0 && line.len() <= self.cap;
        let line = if fits { line.into_owned() } else { cut(&line, self.dropped, self.cap) };
        self.begun.clear();
        self.dropped = 0;
        line
    }
}

/// Returns how many bytes at the end belong to an incomplete character.
fn incomplete_character_len(bytes: &[u8]) -> usize {
    let tail = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(tail) {
        Err(error) if error.error_len().is_none() => tail.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(cap: usize, chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = LineBuffer::new(cap);
        let mut all = Vec::new();
        for mut chunk in chunks.iter().copied() {
            while let Some(line) = lines.next(&mut chunk) {
                all.push(line.into_owned());
            }
            assert!(chunk.is_empty());
            assert!(lines.begun.len() <= cap + 1);
        }
        all.extend(lines.finish());
        all
    }

    #[test]
    fn line_ends_encodings_and_long_lines_are_handled() {
        let long = "é".repeat(60);
        let just = "x".repeat(100);
        for (bytes, expected) in [
            (&b""[..], vec![]),
            (b"\n", vec![""]),
            (b"one\ntwo\n", vec!["one", "two"]),
            (b"one\r\n\r\ntwo", vec!["one", "", "two"]),
            (b"a\rb\r\r\n", vec!["a\rb\r"]),
            (b"\r", vec![""]),
            (b"a\0b\n", vec!["a\0b"]),
            (b"th\xc3\xa9 \xff bad \xe2\x82\nnext", vec!["thé \u{fffd} bad \u{fffd}", "next"]),
            (format!("{just}\r\n{just}").as_bytes(), vec![&just, &just]),
            (format!("{long}\nnext").as_bytes(), vec![&cut(&long, 0, 100), "next"]),
            (format!("x{long}").as_bytes(), vec![&cut(&format!("x{long}"), 0, 100)]),
        ] {
            assert_eq!(split(100, &[bytes]), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn the_memory_for_a_long_line_is_bounded() {
        let mut lines = LineBuffer::new(1000);
        for _ in 0..10_000 {
            assert_eq!(lines.next(&mut &[b'x'; 4096][..]), None);
        }
        assert!(lines.begun.capacity() <= 2048);
        let line = lines.finish().unwrap();
        assert!(line.len() <= 1000);
        assert!(line.ends_with("bytes cut …]"), "{line}");
        assert_eq!(lines.next(&mut &b"after\n"[..]).as_deref(), Some("after"));
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![3 => Just(b'\n'), 2 => Just(b'\r'), 8 => Just(b'a'), 2 => any::<u8>(), 2 => Just(0xe2)];
        prop::collection::vec(byte, 0..400)
    }

    proptest! {
        #[test]
        fn the_size_of_chunks_does_not_change_the_lines(bytes in bytes(), cuts in prop::collection::vec(0..400_usize, 0..20)) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|at| at.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(split(60, &chunks), split(60, &[&bytes]));
        }

        /// Compares with a simple splitter, with a cap that no line reaches.
        #[test]
        fn lines_match_those_of_a_simple_splitter(bytes in bytes()) {
            let mut expected: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
            if expected.last().is_some_and(|last| last.is_empty()) {
                expected.pop();
            }
            let expected: Vec<_> = expected
                .into_iter()
                .map(|line| String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned())
                .collect();
            prop_assert_eq!(split(10_000, &[&bytes]), expected);
        }
    }
}

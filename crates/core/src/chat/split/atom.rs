//! Finds the parts of a line that lose their meaning if they are cut.

use std::ops::Range;

/// Returns the parts of lines that lose their meaning if they are cut: `<…>`, `[…](…)`, `&…;` and inline code. Parts of
/// more than `max` bytes are left out.
pub(super) fn atoms(text: &str, max: usize) -> Vec<Range<usize>> {
    let mut atoms = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let mut ends = AtomEnds::of(line);
        let mut at = 0;
        while let Some(found) = line[at..].find(['<', '[', '&', '`']) {
            let from = at + found;
            let end = ends.end_of(from, max).filter(|end| end - from <= max);
            at = end.unwrap_or_else(|| from + ends.mark_length(from));
            atoms.extend(end.map(|end| start + from..start + end));
        }
        start += line.len();
    }
    atoms
}

/// The ends of atoms in a line. Each end is searched for once, so that the search takes linear time.
#[derive(Debug)]
struct AtomEnds<'a> {
    line: &'a str,
    angle: NextPlace<'a>,
    middle: NextPlace<'a>,
    bracket: NextPlace<'a>,
}

impl<'a> AtomEnds<'a> {
    const fn of(line: &'a str) -> Self {
        Self {
            line,
            angle: NextPlace::of(line, ">"),
            middle: NextPlace::of(line, "]("),
            bracket: NextPlace::of(line, ")"),
        }
    }

    /// Returns the end of the atom that begins here. Inline code of more than `max` bytes is not searched for.
    fn end_of(&mut self, from: usize, max: usize) -> Option<usize> {
        let rest = &self.line[from..];
        match rest.as_bytes().first()? {
            b'<' => self.angle.after(from).map(|end| end + 1),
            b'[' => {
                let middle = self.middle.after(from)?;
                self.bracket.after(middle).map(|end| end + 1)
            }
            b'&' => {
                let name = &rest[..rest.floor_char_boundary(10)];
                name.find(';').filter(|end| !name[..*end].contains(' ')).map(|end| from + end + 1)
            }
            _ => {
                let (mark, near) = (self.mark_length(from), &rest[..rest.floor_char_boundary(max)]);
                let code = near.get(mark..)?;
                code.find(&near[..mark]).map(|end| from + end + 2 * mark)
            }
        }
    }

    /// Returns the length of the mark that begins here: a run of backticks, or one character.
    fn mark_length(&self, from: usize) -> usize {
        let rest = &self.line.as_bytes()[from..];
        rest.iter().take_while(|byte| **byte == b'`').count().max(1)
    }
}

/// The next place of a text in a line.
#[derive(Debug)]
struct NextPlace<'a> {
    line: &'a str,
    pattern: &'static str,
    /// Start of the last search, and the place that it found.
    found: Option<(usize, Option<usize>)>,
}

impl<'a> NextPlace<'a> {
    const fn of(line: &'a str, pattern: &'static str) -> Self {
        Self { line, pattern, found: None }
    }

    /// Returns the first place at or after `from`. Every call needs a place that is not before the last one.
    fn after(&mut self, from: usize) -> Option<usize> {
        match self.found {
            Some((start, place)) if start <= from && place.is_none_or(|place| place >= from) => place,
            _ => {
                let place = self.line[from..].find(self.pattern).map(|place| from + place);
                self.found = Some((from, place));
                place
            }
        }
    }
}

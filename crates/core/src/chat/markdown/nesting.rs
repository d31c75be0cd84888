//! Recognises texts with lists and quotes in each other that nobody writes for people. For each line, the parser reads
//! all lists and quotes that are open, so such a text could use much time.

/// Number of lists and quotes that may begin in one line.
const MAX_NESTING: usize = 100;

pub(super) fn is_too_deep(markdown: &str) -> bool {
    markdown.lines().any(|line| markers(line) > MAX_NESTING)
}

/// Returns the number of markers of lists and quotes at the start of a line.
fn markers(line: &str) -> usize {
    let mut rest = line.trim_start_matches([' ', '\t']);
    let mut count = 0;
    while let Some(after) = after_marker(rest) {
        rest = after.trim_start_matches([' ', '\t']);
        count += 1;
    }
    count
}

fn after_marker(rest: &str) -> Option<&str> {
    let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let ordered = if digits.len() < rest.len() { digits.strip_prefix(['.', ')']) } else { None };
    let is_item_end = |rest: &&str| rest.starts_with([' ', '\t']);
    let listed = rest.strip_prefix(['-', '*', '+']).or(ordered).filter(is_item_end);
    rest.strip_prefix('>').or(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_at_the_start_of_a_line_are_counted() {
        for (line, expected) in [
            ("", 0),
            ("text > - x", 0),
            ("> - 1. 2) * + x", 6),
            (">>> x", 3),
            ("  -\tx", 1),
            ("**bold** - x", 0),
            ("--- x", 0),
            ("2026 - x", 0),
        ] {
            assert_eq!(markers(line), expected, "{line}");
        }
        assert!(is_too_deep(&format!("text\n{}x", "> ".repeat(101))));
        assert!(!is_too_deep(&"> x\n".repeat(101)));
    }
}

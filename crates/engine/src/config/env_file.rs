//! Reads the file `.env`, which has lines of the form `NAME=value`.
//!
//! A line may begin with `export`, `#` begins a comment, and a value in quotes may span several lines. In double quotes
//! `\n`, `\r`, `\t`, `\"` and `\\` are escapes. Nothing is expanded: `$` is a dollar sign.

use std::collections::HashMap;

/// Largest number of invalid lines that get their own note. One more note counts the others. Without this limit, a file
/// of another format would get a note for each line.
const MAX_NOTES: usize = 10;

/// Returns the variables, and notes about the lines that are not assignments.
pub(super) fn parse(text: &str) -> (HashMap<String, String>, Vec<String>) {
    let (mut variables, mut notes) = (HashMap::new(), Vec::new());
    let text = text.trim_start_matches('\u{feff}');
    let (mut rest, mut number, mut invalid_lines) = (text, 1, 0);
    while !rest.is_empty() {
        let (line, mut after) = rest.split_once('\n').unwrap_or((rest, ""));
        let line = line.trim();
        let is_blank = line.is_empty() || line.starts_with('#');
        if is_blank {
            // Skip the line.
        } else if let Some((name, value, remaining)) = assignment(rest) {
            variables.insert(name.to_owned(), value);
            after = remaining;
        } else {
            invalid_lines += 1;
            if invalid_lines <= MAX_NOTES {
                notes.push(format!(".env line {number} is not NAME=value and is ignored"));
            }
        }
        number += rest[..rest.len() - after.len()].matches('\n').count();
        rest = after;
    }
    if invalid_lines > MAX_NOTES {
        notes.push(format!(
            "{} more lines of .env are not NAME=value and are ignored",
            invalid_lines - MAX_NOTES
        ));
    }
    (variables, notes)
}

/// Returns the name, the value, and the text after the last line of the value; `None` if the first line of the text
/// does not begin an assignment.
fn assignment(text: &str) -> Option<(&str, String, &str)> {
    let equals = text.find(['=', '\n']).filter(|at| text[*at..].starts_with('='))?;
    let (name, value) = (&text[..equals], &text[equals + 1..]);
    let name = name.trim();
    let name = name.strip_prefix("export ").map_or(name, str::trim_start);
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.is_empty() || !name.chars().all(is_legal) {
        return None;
    }
    let value = value.trim_start_matches([' ', '\t']);
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\'' | '`'));
    let (value, after) = if let Some(quote) = quote {
        quoted(&value[1..], quote)?
    } else {
        let (line, after) = value.split_once('\n').unwrap_or((value, ""));
        (without_comment(line).trim().to_owned(), after)
    };
    Some((name, value, after))
}

/// Returns a quoted value, and the text after its last line. `text` begins after the opening quote. Returns `None` if
/// the closing quote is missing, or if other text than a comment follows on the same line.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            let (line, after) = text[at + 1..].split_once('\n').unwrap_or((&text[at + 1..], ""));
            let line = line.trim();
            return (line.is_empty() || line.starts_with('#')).then_some((value, after));
        }
        let escaped = (c == '\\' && quote == '"').then(|| text[at + 1..].chars().next()).flatten();
        let unescaped = match escaped {
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            Some(same @ ('"' | '\\')) => Some(same),
            _ => None,
        };
        if unescaped.is_some() {
            chars.next();
        }
        value.push(unescaped.unwrap_or(c));
    }
    None
}

/// Removes a comment. A `#` begins a comment only at the start or after a blank, so that `a#b` is a value.
fn without_comment(line: &str) -> &str {
    let comment = line.match_indices('#').find(|(at, _)| line[..*at].ends_with([' ', '\t']) || *at == 0);
    comment.map_or(line, |(at, _)| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = "\u{feff}# a comment\n\nA=1\nexport B = two words \r\nC=\"say \\\"hi\\\"\\n$A\" # note\nD='raw \\n'\nE=\nF=a#b # c\nG=\"two\nlines\"\nH=`x`\nA=again\nI=a=b\nJ=#none";
        let (variables, notes) = parse(text);
        for (name, value) in [
            ("A", "again"),
            ("B", "two words"),
            ("C", "say \"hi\"\n$A"),
            ("D", "raw \\n"),
            ("E", ""),
            ("F", "a#b"),
            ("G", "two\nlines"),
            ("H", "x"),
            ("I", "a=b"),
            ("J", ""),
        ] {
            assert_eq!(variables.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!((variables.len(), notes.len()), (10, 0));
    }

    #[test]
    fn invalid_lines_are_noted() {
        let (variables, notes) = parse("hello\nA=1\nB=\"open\nC=2\n=3\nD='x' y\n");
        assert_eq!(
            variables,
            HashMap::from([("A".to_owned(), "1".to_owned()), ("C".to_owned(), "2".to_owned())])
        );
        assert_eq!(notes.len(), 4, "{notes:?}");
        assert_eq!(notes[1], ".env line 3 is not NAME=value and is ignored");
    }

    #[test]
    fn a_name_and_its_value_begin_on_one_line() {
        let (variables, notes) = parse("A\n=3\nexport\nB=\"x\ny\"\nno\n");
        assert_eq!(variables, HashMap::from([("B".to_owned(), "x\ny".to_owned())]));
        let lines = [1, 2, 3, 6].map(|line| format!(".env line {line} is not NAME=value and is ignored"));
        assert_eq!(notes, lines);
    }

    /// Regression: this took minutes when the lines of the file were counted again for each line number.
    #[test]
    fn a_large_invalid_file_is_read_quickly() {
        let (variables, notes) = parse(&"A\n".repeat(1_000_000));
        assert_eq!((variables.len(), notes.len()), (0, 11));
        assert_eq!(notes[10], "999990 more lines of .env are not NAME=value and are ignored");
    }
}

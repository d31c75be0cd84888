//! Explanations of the most frequent YAML errors: text that needs quotes, and quotes that are not closed.

use granit_parser::ErrorKind;

use super::secret;

/// A syntax error in a file: its position, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxMistake {
    /// Byte at which the mistake begins.
    pub start: usize,
    pub message: String,
    pub help: String,
}

/// Finds the mistake that causes a parser error at the byte `offset`, if it is a frequent mistake.
pub(super) fn syntax_mistake(text: &str, kind: &ErrorKind, offset: usize) -> Option<SyntaxMistake> {
    match kind {
        ErrorKind::UnclosedQuotedScalar
        | ErrorKind::InvalidQuotedScalarIndent
        | ErrorKind::DocumentIndicatorInQuotedScalar
        | ErrorKind::InvalidTrailingSingleQuotedScalar
        | ErrorKind::InvalidTrailingDoubleQuotedScalar => unclosed_quote(text, offset),
        ErrorKind::MissingAnchorOrAliasName
        | ErrorKind::UnknownAnchor
        | ErrorKind::UnexpectedCharacter { .. } => {
            let rest = text.get(offset..)?;
            let first = rest.chars().next().filter(|first| matches!(first, '*' | '&' | '@' | '`' | '%'))?;
            let mistake = quotes_mistake(text, offset, &first.to_string());
            let name: String =
                rest.chars().skip(1).take_while(|character| character.is_alphanumeric()).collect();
            if *kind == ErrorKind::UnknownAnchor && !name.is_empty() {
                let message = format!("no anchor is called `{name}`; {}", mistake.message);
                return Some(SyntaxMistake { message, ..mistake });
            }
            Some(mistake)
        }
        ErrorKind::MappingValueNotAllowed | ErrorKind::ExpectedFlowMappingSeparator => colon(text, offset),
        _ => None,
    }
}

/// Finds a value with a colon and a space in it, which YAML takes for a second key; `at` is the position of the colon.
fn colon(text: &str, at: usize) -> Option<SyntaxMistake> {
    text.get(at..)?.strip_prefix(':')?;
    let (before, _) = around(text, at);
    let (key, value) = before.rsplit_once(": ")?;
    let value = value.trim_start();
    if value.is_empty() || value.starts_with(['"', '\'', '{', '[', '|', '>']) || key.contains('#') {
        return None;
    }
    let mistake = quotes_mistake(text, at - value.len(), "");
    Some(SyntaxMistake {
        message: "a text with a colon and a space in it needs quotes".to_owned(),
        ..mistake
    })
}

/// Finds a value that begins with `{{`, which YAML takes for a map; `inner` is the position of the second brace.
pub(super) fn braces(text: &str, inner: usize) -> Option<SyntaxMistake> {
    let outer = inner.checked_sub(1)?;
    text.get(outer..)?.starts_with("{{").then(|| quotes_mistake(text, outer, "{{"))
}

fn quotes_mistake(text: &str, start: usize, with: &str) -> SyntaxMistake {
    let (before, rest) = around(text, start);
    let key = key_before(before);
    let is_secret = key.is_some_and(secret::looks_secret);
    let value = if is_secret { "…" } else { value_of(before, rest) };
    let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
    SyntaxMistake {
        start,
        message: format!("a text that begins with `{with}` needs quotes"),
        help: format!("write `{key}{}`", quoted(value)),
    }
}

/// Returns the two parts of the line that contains the byte `at`: before `at`, and from `at`.
fn around(text: &str, at: usize) -> (&str, &str) {
    let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
    (&text[begin..at], text[at..].lines().next().unwrap_or_default())
}

/// Returns the key whose value begins where this part of a line ends.
fn key_before(before: &str) -> Option<&str> {
    let key = before.trim_end().strip_suffix(':')?;
    let key = key.rsplit(['{', ',', '[']).next()?.trim();
    let key = key.strip_prefix("- ").unwrap_or(key).trim();
    (!key.is_empty()).then_some(key)
}

/// Returns the value at the start of `rest`. The value ends at a comment or at the end of the line; inside `{ }` and
/// `[ ]`, also at the next comma or closing bracket. A placeholder `{{ … }}` belongs to the value.
fn value_of<'a>(before: &str, rest: &'a str) -> &'a str {
    let count = |characters: [char; 2]| before.matches(characters).count();
    let inside = count(['{', '[']) > count(['}', ']']);
    let end = if inside {
        let mut from = 0;
        loop {
            let end = rest[from..].find([',', '}', ']']).map(|end| from + end);
            let placeholder = rest[from..end.unwrap_or(rest.len())].find("{{").map(|begin| from + begin);
            match placeholder.and_then(|begin| Some(begin + rest[begin..].find("}}")?)) {
                Some(close) => from = close + 2,
                None => break end,
            }
        }
    } else {
        rest.find(" #")
    };
    rest[..end.unwrap_or(rest.len())].trim_end()
}

pub(super) fn quoted(value: &str) -> String {
    if value.contains('\'') {
        format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    } else {
        format!("'{value}'")
    }
}

/// Number of lines, from the error upwards, in which an unclosed quote is looked for.
const MAX_LINES: usize = 100;

/// Finds the quote that is still open at the line of the error. The parser reports a later position: where the text
/// after the missing quote becomes invalid.
fn unclosed_quote(text: &str, offset: usize) -> Option<SyntaxMistake> {
    let line_end = text[offset..].find('\n').map_or(text.len(), |end| offset + end);
    let mut end = line_end;
    for _ in 0..MAX_LINES {
        let begin = text[..end].rfind('\n').map_or(0, |end| end + 1);
        if let Some(start) = open_quote(&text[begin..end]).map(|at| begin + at)
            && start <= offset
            && closed_at(text, start).is_none_or(|close| close >= text[..offset].rfind('\n').unwrap_or(0))
        {
            let quote = &text[start..=start];
            let help = format!(
                "put {quote} at the end of the text; text of several lines is easier to write after `|`"
            );
            return Some(SyntaxMistake {
                start,
                message: "this quote is not closed on its line".to_owned(),
                help,
            });
        }
        end = begin.checked_sub(1)?;
    }
    None
}

/// Returns the start of a quoted text that does not end in this line.
fn open_quote(line: &str) -> Option<usize> {
    let mut at = 0;
    let mut can_begin = true;
    while let Some(character) = line[at..].chars().next() {
        match character {
            '"' | '\'' if can_begin => match closed_at(line, at) {
                Some(close) => at = close,
                None => return Some(at),
            },
            '#' if line[..at].is_empty() || line[..at].ends_with(' ') => return None,
            _ => {}
        }
        can_begin =
            matches!(character, ' ' | '{' | '[' | ',') && can_begin_after(&line[..at + character.len_utf8()]);
        at += line[at..].chars().next().map_or(1, char::len_utf8);
    }
    None
}

/// Checks whether a value or a key can begin after this part of a line.
fn can_begin_after(before: &str) -> bool {
    let before = before.trim_end();
    before.is_empty() || before.ends_with([':', '-', '{', '[', ','])
}

/// Returns the position of the quote that closes the quote at `start`.
fn closed_at(text: &str, start: usize) -> Option<usize> {
    let quote = text[start..].chars().next()?;
    let mut characters = text[start + 1..].char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let is_doubled =
            quote == '\'' && character == quote && characters.peek().is_some_and(|(_, next)| *next == quote);
        if is_doubled || (character == '\\' && quote == '"') {
            characters.next();
        } else if character == quote {
            return Some(start + 1 + at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unclosed_quote_is_located() {
        for (line, expected) in [
            ("a: \"x\"", None),
            ("a: \"x", Some(3)),
            ("a: 'it''s", Some(3)),
            ("a: 'it''s'", None),
            ("a: \"x\\\"", Some(3)),
            ("a: it's", None),
            ("- 'x", Some(2)),
            ("{a: 'x', b: \"y}", Some(12)),
            ("a: x # \"", None),
            ("\"a\": \"b", Some(5)),
            ("é: \"ü", Some(4)),
            ("", None),
        ] {
            assert_eq!(open_quote(line), expected, "{line}");
        }
    }

    #[test]
    fn a_colon_in_plain_text_gets_a_quoting_hint() {
        for (text, at, expected) in [
            ("a:\n  prompt: Fix: the bug # x", 16, Some("write `prompt: 'Fix: the bug'`")),
            ("s: {type: manual, prompt: Fix: this}", 29, Some("write `prompt: 'Fix: this'`")),
            ("- text: it's: so", 12, Some("write `text: \"it's: so\"`")),
            ("token: a: b", 8, Some("write `token: '…'`")),
            ("  other: x", 7, None),
            ("a: \"b\": c", 6, None),
            ("a: {b: c", 7, None),
        ] {
            assert_eq!(colon(text, at).map(|mistake| mistake.help).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn text_that_needs_quotes_gets_a_quoting_hint() {
        for (text, at, expected) in [
            ("cron: * * # x", 6, "write `cron: '* *'`"),
            ("s: {cron: @daily, a: b}", 10, "write `cron: '@daily'`"),
            ("- @x", 2, "write `'@x'`"),
            ("a: @it's", 3, "write `a: \"@it's\"`"),
            ("api_token: @x", 11, "write `api_token: '…'`"),
            ("{a: {{b}} c, d: e}", 4, "write `a: '{{b}} c'`"),
            ("s: {daily: {type: cron, cron: @daily}}", 30, "write `cron: '@daily'`"),
            ("s: {t: {prompt: @x {{b}} c}}", 16, "write `prompt: '@x {{b}} c'`"),
            ("s: {t: {prompt: {{a}} {{b}}}}", 16, "write `prompt: '{{a}} {{b}}'`"),
            ("{a: @x {{b, c}", 4, "write `a: '@x {{b'`"),
        ] {
            assert_eq!(quotes_mistake(text, at, "@").help, expected, "{text}");
        }
    }
}

//! A parser for shell commands that accepts only a single plain command: one program with its arguments, which may be
//! quoted or be file name patterns. A text is not plain in three cases: a shell would do more with the text than run
//! that program (run a second command, expand a variable, redirect, define a function); not all shells read the text in
//! the same way; or the program itself runs other commands.

use super::runner;

/// One word of a plain command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    Known(String),
    /// A file name pattern, which can expand to any words.
    Files,
}

/// Maximum length of a command in bytes. Nobody reads longer commands, so no allow rule with a pattern matches them,
/// and every ask or deny rule with a pattern does.
pub(super) const MAX_COMMAND: usize = 32 << 10;

/// Returns the words; none if the text is not a plain command.
pub(super) fn plain(text: &str) -> Option<Vec<Word>> {
    if text.len() > MAX_COMMAND {
        return None;
    }
    let mut words = Vec::new();
    let mut letters = text.trim_matches([' ', '\t']).chars().peekable();
    while let Some(next) = letters.peek() {
        if matches!(next, ' ' | '\t') {
            letters.next();
        } else {
            words.push(word(&mut letters)?);
        }
    }
    let Some(Word::Known(program)) = words.first() else { return None };
    let odd_name = program.is_empty() || program.contains('=') || program.contains(char::is_whitespace);
    let finds = runner::base_name(program) == "find";
    let runs = |word: &Word| match word {
        Word::Known(word) => runner::runs_what_follows(word),
        // A file can have the name of an option.
        Word::Files => finds,
    };
    (!odd_name && !runner::runs_others(program) && !words.iter().any(runs)).then_some(words)
}

type Letters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn word(letters: &mut Letters<'_>) -> Option<Word> {
    let (mut text, mut files, mut begins) = (String::new(), false, true);
    while let Some(letter) = letters.peek().copied() {
        if matches!(letter, ' ' | '\t') {
            break;
        }
        letters.next();
        match letter {
            '\'' => single_quoted(letters, &mut text)?,
            '"' => double_quoted(letters, &mut text)?,
            '\\' => text.push(letters.next().filter(|next| next.is_ascii_graphic() || *next == ' ')?),
            '*' | '?' | '[' => files = true,
            // A home directory, a comment, or in zsh the path of a program.
            '~' | '#' | '=' if begins => return None,
            'a'..='z' | 'A'..='Z' | '0'..='9' => text.push(letter),
            '_' | '-' | '.' | '/' | ':' | ',' | '+' | '@' | '%' | '=' | ']' | '~' | '#' | '^' => {
                text.push(letter);
            }
            _ => return None,
        }
        begins = false;
    }
    Some(if files { Word::Files } else { Word::Known(text) })
}

fn single_quoted(letters: &mut Letters<'_>, text: &mut String) -> Option<()> {
    loop {
        match letters.next()? {
            '\'' => return Some(()),
            letter => text.push(ordinary(letter)?),
        }
    }
}

fn double_quoted(letters: &mut Letters<'_>, text: &mut String) -> Option<()> {
    loop {
        match letters.next()? {
            '"' => return Some(()),
            '$' | '`' => return None,
            '\\' => match letters.next()? {
                escaped @ ('"' | '\\' | '$' | '`') => text.push(escaped),
                '\n' => return None,
                other => text.extend(['\\', ordinary(other)?]),
            },
            letter => text.push(ordinary(letter)?),
        }
    }
}

/// Accepts a character inside quotes unless it is a control character other than line feed and tab.
fn ordinary(letter: char) -> Option<char> {
    (matches!(letter, '\n' | '\t') || !letter.is_control()).then_some(letter)
}

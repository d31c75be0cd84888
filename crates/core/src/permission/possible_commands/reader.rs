//! The reader splits a text into commands and words, as a shell does.

use std::iter::Peekable;
use std::str::Chars;

use super::Piece;
use crate::permission::runner;

/// Way in which a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Script,
    /// `#` does not begin a comment, as in an interactive zsh.
    WithoutComments,
    /// Quotes have no meaning either, because it is not known where a quoted text begins.
    WithoutQuotes,
}

/// A command as it is in the text.
#[derive(Debug, Default)]
pub(super) struct ReadCommand {
    /// The words, without assignments before the program.
    pub(super) words: Vec<Piece>,
    /// Number of words at the beginning that are assignments only in some shells.
    pub(super) possible_assignments: usize,
    /// True if the command reads the output of another command.
    pub(super) is_piped: bool,
}

/// Result of the check whether a word that precedes the program is an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Assignment {
    #[default]
    No,
    /// In zsh, names can contain letters of all languages, and a number is the name of a positional parameter.
    InSomeShells,
    Yes,
}

impl Assignment {
    /// Returns whether a word that begins with this text and `=` is an assignment. The form `NAME[…]=` is not needed
    /// here, because a word with `[` is open.
    fn of(start: &str) -> Self {
        let name = start.strip_suffix('+').unwrap_or(start);
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if name.is_empty() || !name.chars().all(|letter| letter.is_alphanumeric() || letter == '_') {
            Self::No
        } else if name.chars().all(is_letter) && !name.starts_with(|first: char| first.is_ascii_digit()) {
            Self::Yes
        } else {
            Self::InSomeShells
        }
    }
}

/// The result of reading a text.
#[derive(Debug, Default)]
pub(super) struct ReadText {
    pub(super) commands: Vec<ReadCommand>,
    /// True if the text contains a nested text, for example in `$(…)` or `{…}`, or if not all shells read the text
    /// in the same way.
    pub(super) nested: bool,
    pub(super) has_comment: bool,
    /// True if the text contains a file name pattern with parentheses: in zsh such a pattern can run commands.
    pub(super) is_unclear: bool,
}

/// Reads a text.
pub(super) fn read(text: &str, reading: Reading) -> ReadText {
    let mut reader = CommandReader {
        reading,
        result: ReadText::default(),
        command: ReadCommand::default(),
        word: None,
        assignment: Assignment::default(),
        is_quoted: false,
        file: false,
    };
    reader.read_all(&mut text.chars().peekable());
    reader.result
}

struct CommandReader {
    reading: Reading,
    result: ReadText,
    command: ReadCommand,
    word: Option<Piece>,
    assignment: Assignment,
    /// True if a part of the word is quoted or escaped.
    is_quoted: bool,
    /// True if the next word is the file of a redirection and not a word of the command.
    file: bool,
}

type Letters<'a> = Peekable<Chars<'a>>;

impl CommandReader {
    fn read_all(&mut self, letters: &mut Letters<'_>) {
        let mut last = ' ';
        while let Some(letter) = letters.next() {
            match letter {
                '\'' | '"' if self.reading == Reading::WithoutQuotes => {}
                '\'' | '"' => self.quoted(letters, letter),
                '\\' if self.reading == Reading::WithoutQuotes => {
                    letters.next_if_eq(&'\n');
                }
                '\\' => match letters.next() {
                    Some('\n') | None => {}
                    Some(escaped) => {
                        self.is_quoted = true;
                        self.letter(escaped);
                    }
                },
                '#' if self.reading == Reading::Script && self.word.is_none() => {
                    self.result.has_comment = true;
                    while letters.next_if(|next| *next != '\n').is_some() {}
                }
                '|' => self.pipe(letters),
                ';' | '&' | '\n' | '\r' => self.end_command(),
                '<' | '>' => self.redirect(letters),
                '(' => self.open_parenthesis(last, letters),
                ')' | '`' => {
                    self.result.nested = true;
                    self.end_command();
                }
                '{' | '}' => {
                    self.result.nested = true;
                    self.word = Some(Piece::Open);
                }
                '$' => {
                    // Bash and sh end `$'…'` at different quotes.
                    self.result.nested |= letters.peek() == Some(&'\'');
                    self.word = Some(Piece::Open);
                }
                '*' | '?' | '[' | '~' => self.word = Some(Piece::Open),
                '=' => self.equals_sign(letters.peek().copied()),
                ' ' | '\t' => self.end_word(),
                // Any other blank separates words in some shells only.
                blank if blank.is_whitespace() => {
                    self.result.nested = true;
                    self.word = Some(Piece::Open);
                }
                other => self.letter(other),
            }
            last = letter;
        }
        self.end_command();
    }

    fn quoted(&mut self, letters: &mut Letters<'_>, quote: char) {
        self.is_quoted = true;
        self.text("");
        loop {
            match letters.next() {
                Some(end) if end == quote => return,
                Some('\\') if quote == '"' => match letters.next() {
                    Some('\n') | None => {}
                    Some(escaped @ ('"' | '\\' | '$' | '`')) => self.letter(escaped),
                    Some(other) => {
                        self.letter('\\');
                        self.letter(other);
                    }
                },
                Some('$') if quote == '"' => {
                    self.result.nested |= match letters.peek() {
                        Some('(') => true,
                        Some('{') => has_quotes(letters.clone()),
                        _ => false,
                    };
                    self.word = Some(Piece::Open);
                }
                Some('`') if quote == '"' => {
                    self.result.nested = true;
                    self.word = Some(Piece::Open);
                }
                Some(letter) => self.letter(letter),
                None => {
                    self.result.nested = true;
                    return;
                }
            }
        }
    }

    fn equals_sign(&mut self, next: Option<char>) {
        match &self.word {
            // In zsh, `=rm` is the path of `rm`.
            None if next.is_some_and(|next| next != '=' && !next.is_whitespace()) => {
                self.word = Some(Piece::Open);
            }
            Some(Piece::Known(start)) if !self.is_quoted && self.assignment == Assignment::No => {
                self.assignment = Assignment::of(start);
                self.letter('=');
            }
            _ => self.letter('='),
        }
    }

    fn letter(&mut self, letter: char) {
        self.text(letter.encode_utf8(&mut [0; 4]));
    }

    /// Appends to the current word. An open word stays open.
    fn text(&mut self, more: &str) {
        if let Piece::Known(text) = self.word.get_or_insert_with(|| Piece::Known(String::new())) {
            text.push_str(more);
        }
    }

    fn end_word(&mut self) {
        let (word, assignment) = (self.word.take(), std::mem::take(&mut self.assignment));
        self.is_quoted = false;
        let Some(word) = word else { return };
        if std::mem::take(&mut self.file) {
            return;
        }
        let command = &mut self.command;
        match assignment {
            Assignment::Yes if command.words.is_empty() => return,
            Assignment::Yes | Assignment::InSomeShells
                if command.words.len() == command.possible_assignments =>
            {
                command.possible_assignments += 1;
            }
            Assignment::Yes | Assignment::InSomeShells | Assignment::No => {}
        }
        command.words.push(word);
    }

    /// Begins a redirection. The number in `2>` is not a word.
    fn redirect(&mut self, letters: &mut Letters<'_>) {
        let is_number = |word: &Piece| matches!(word, Piece::Known(text) if text.chars().all(|letter| letter.is_ascii_digit()));
        if !self.is_quoted && self.word.as_ref().is_some_and(is_number) {
            self.word = None;
        }
        self.end_word();
        self.file = true;
        while let Some(more) = letters.next_if(|next| matches!(next, '<' | '>' | '&' | '|')) {
            self.result.nested |= more == '<';
        }
        // In zsh, `>!` is a redirection, and the file follows.
        self.result.nested |= letters.peek() == Some(&'!');
    }

    fn open_parenthesis(&mut self, last: char, letters: &Letters<'_>) {
        let is_value = last == '=' && (self.assignment != Assignment::No || self.word == Some(Piece::Open));
        let is_substitution = is_value || matches!(last, '$' | '<' | '>');
        let is_definition = letters.clone().find(|next| !matches!(next, ' ' | '\t')) == Some(')');
        // A subshell begins where a command can begin: at the beginning, or after a keyword.
        let before = self.command.words.first().or(self.word.as_ref());
        let is_subshell = match before {
            None => true,
            Some(Piece::Known(word)) => runner::is_keyword(word),
            Some(Piece::Open) => false,
        };
        self.result.is_unclear |= !is_substitution && !is_definition && !is_subshell;
        self.result.nested = true;
        self.end_command();
    }

    fn pipe(&mut self, letters: &mut Letters<'_>) {
        self.end_command();
        self.command.is_piped = letters.next_if_eq(&'|').is_none();
        letters.next_if_eq(&'&');
    }

    fn end_command(&mut self) {
        self.end_word();
        self.file = false;
        if self.command.words.is_empty() {
            return;
        }
        let command = std::mem::take(&mut self.command);
        // The commands in `while …; do …; done` read the same input.
        let continues = match command.words.first() {
            Some(Piece::Known(program)) => runner::is_keyword(program),
            Some(Piece::Open) | None => true,
        };
        self.command.is_piped = command.is_piped && continues;
        self.result.commands.push(command);
    }
}

/// Checks whether a `${…}` contains quotes or further braces, so that it is not clear where it ends.
fn has_quotes(letters: Letters<'_>) -> bool {
    for letter in letters.skip(1) {
        match letter {
            '}' => return false,
            '\'' | '"' | '{' => return true,
            _ => {}
        }
    }
    true
}

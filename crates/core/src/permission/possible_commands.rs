//! All commands that a text may run in a shell, for deny and ask rules. In doubt, a command is included: the result may
//! contain commands that do not run, but no command that runs may be missing.

use super::runner;
use super::shell::MAX_COMMAND;

/// One word of a possible command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Known(String),
    /// A word that is expanded at run time and can become any words.
    Open,
}

/// A possible command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) words: Vec<Piece>,
    /// True if the command may begin at any of its words.
    pub(super) may_begin_anywhere: bool,
}

/// Maximum depth of commands nested in texts.
const MAX_NESTED_COMMANDS: u32 = 6;

/// Returns every command that the text may run; none if that cannot be determined.
pub(super) fn commands(text: &str) -> Option<Vec<Command>> {
    let mut found = Vec::new();
    collect(text, MAX_NESTED_COMMANDS, &mut found).then_some(found)
}

/// Returns every command that these words may run; none if that cannot be determined. No shell parses the words again.
pub(super) fn commands_of_words(words: &[String]) -> Option<Vec<Command>> {
    let mut found = Vec::new();
    let words = words.iter().cloned().map(Piece::Known).collect();
    add(words, MAX_NESTED_COMMANDS, &mut found).then_some(found)
}

fn collect(text: &str, depth: u32, found: &mut Vec<Command>) -> bool {
    if depth == 0 || text.len() > MAX_COMMAND || text.contains('\0') {
        return false;
    }
    let mut reader = Reader::default();
    reader.read(text);
    let nested = reader.nested;
    if !reader.commands.into_iter().all(|words| add(words, depth, found)) {
        return false;
    }
    if nested {
        // If a text contains a nested text, quotes no longer show where a command begins.
        for part in text.split([';', '|', '&', '(', ')', '<', '>', '`', '\n', '{', '}']) {
            let part = part.replace(['"', '\'', '\\'], "");
            let words: Vec<_> = part.split_whitespace().map(piece).collect();
            found.push(Command { words, may_begin_anywhere: true });
        }
    }
    true
}

fn piece(word: &str) -> Piece {
    if word.contains(['$', '*', '?', '[', '~']) { Piece::Open } else { Piece::Known(word.to_owned()) }
}

/// Adds the command, and the commands that it may run in turn. Returns false if these cannot be determined.
fn add(mut words: Vec<Piece>, depth: u32, found: &mut Vec<Command>) -> bool {
    let is_assignment = |word: &Piece| matches!(word, Piece::Known(word) if word.contains('='));
    while words.first().is_some_and(is_assignment) {
        words.remove(0);
    }
    let runs = |word: &Piece| match word {
        Piece::Known(word) => runner::runs_what_follows(word),
        Piece::Open => false,
    };
    let may_begin_anywhere = match words.first() {
        Some(Piece::Known(program)) => runner::may_run_its_words(program) || words.iter().any(runs),
        Some(Piece::Open) => true,
        None => return true,
    };
    if may_begin_anywhere {
        for word in words.iter().skip(1) {
            if let Piece::Known(word) = word
                && word.contains(|letter: char| !letter.is_ascii_alphanumeric() && !"-_./=".contains(letter))
                && !collect(word, depth - 1, found)
            {
                return false;
            }
        }
    }
    found.push(Command { words, may_begin_anywhere });
    true
}

#[derive(Default)]
struct Reader {
    commands: Vec<Vec<Piece>>,
    words: Vec<Piece>,
    word: Option<Piece>,
    /// True if the next word is the file of a redirection and not a word of the command.
    file: bool,
    /// True if the text contains a nested text, for example in `$(…)` or `{…}`, or if a quote is not closed.
    nested: bool,
}

impl Reader {
    fn read(&mut self, text: &str) {
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\'' => self.quoted(&mut letters, '\''),
                '"' => self.quoted(&mut letters, '"'),
                '\\' => match letters.next() {
                    Some('\n') | None => {}
                    Some(escaped) => self.letter(escaped),
                },
                ';' | '|' | '&' | '\n' | '\r' => self.end_command(),
                '<' | '>' => {
                    self.redirect();
                    while let Some(more) = letters.next_if(|next| matches!(next, '<' | '>' | '&' | '|')) {
                        self.nested |= more == '<';
                    }
                }
                '(' | ')' | '`' => {
                    self.nested = true;
                    self.end_command();
                }
                '{' | '}' => {
                    self.nested = true;
                    self.word = Some(Piece::Open);
                }
                '$' | '*' | '?' | '[' | '~' => self.word = Some(Piece::Open),
                blank if blank.is_whitespace() => self.end_word(),
                other => self.letter(other),
            }
        }
        self.end_command();
    }

    fn quoted(&mut self, letters: &mut std::iter::Peekable<std::str::Chars<'_>>, quote: char) {
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
                    self.nested |= letters.peek() == Some(&'(');
                    self.word = Some(Piece::Open);
                }
                Some('`') if quote == '"' => {
                    self.nested = true;
                    self.word = Some(Piece::Open);
                }
                Some(letter) => self.letter(letter),
                None => {
                    self.nested = true;
                    return;
                }
            }
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
        let Some(word) = self.word.take() else { return };
        if !std::mem::take(&mut self.file) {
            self.words.push(word);
        }
    }

    /// Begins a redirection. The number in `2>` is not a word.
    fn redirect(&mut self) {
        let is_number = |word: &Piece| matches!(word, Piece::Known(text) if text.chars().all(|letter| letter.is_ascii_digit()));
        if self.word.as_ref().is_some_and(is_number) {
            self.word = None;
        }
        self.end_word();
        self.file = true;
    }

    fn end_command(&mut self) {
        self.end_word();
        self.file = false;
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
    }
}

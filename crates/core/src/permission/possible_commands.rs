//! All commands that a text may run in a shell, for deny and ask rules. In doubt, a command is included: the result
//! contains every command that the text shows, and may contain commands that do not run. It does not contain the
//! commands of a script, a Makefile or another file, because these are not in the text. The shells are `sh`, bash and
//! zsh. If they read a text differently, the result contains the commands of all readings.

mod reader;

use super::runner;
use super::shell::MAX_COMMAND;
use reader::{Reading, read};

/// One word of a possible command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Known(String),
    /// A word that is expanded at run time and can become any words.
    Open,
}

impl Piece {
    /// Returns what this piece adds to a text for a shell: the word itself, or a variable for a word that is not known.
    fn text(&self) -> &str {
        match self {
            Self::Known(word) => word,
            Self::Open => "$_",
        }
    }
}

/// A possible command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) words: Vec<Piece>,
    /// True if the command may begin at any of its words.
    pub(super) may_begin_anywhere: bool,
    /// True if any further words may follow. The command does not begin with one of them.
    pub(super) may_have_more_words: bool,
}

impl Command {
    fn anywhere(words: Vec<Piece>) -> Self {
        Self { words, may_begin_anywhere: true, may_have_more_words: false }
    }
}

/// Maximum depth of commands nested in texts.
const MAX_NESTED_COMMANDS: u32 = 6;

/// Returns every command that the text may run; none if that cannot be determined.
pub(super) fn commands(text: &str) -> Option<Vec<Command>> {
    let mut found = Vec::new();
    collect(text, MAX_NESTED_COMMANDS, &mut found).then_some(found)
}

/// Returns every command that these words may run; none if that cannot be determined. No shell parses the words again,
/// so none of them is an assignment.
pub(super) fn commands_of_words(words: &[String]) -> Option<Vec<Command>> {
    let mut found = Vec::new();
    let words = words.iter().cloned().map(Piece::Known).collect();
    add(words, MAX_NESTED_COMMANDS, &mut found).then_some(found)
}

fn collect(text: &str, depth: u32, found: &mut Vec<Command>) -> bool {
    if depth == 0 || text.len() > MAX_COMMAND || text.contains('\0') {
        return false;
    }
    let script = read(text, Reading::Script);
    if script.is_unclear {
        return false;
    }
    let (mut commands, mut nested) = (script.commands, script.nested);
    if script.has_comment {
        let interactive = read(text, Reading::WithoutComments);
        nested |= interactive.nested;
        commands.extend(interactive.commands);
    }
    nested |= commands.iter().any(|command| command.is_piped && may_run_its_input(&command.words));
    for command in commands {
        // If only some shells take words for assignments, the command begins at the first word or after these words.
        let after = command.possible_assignments;
        let is_added = after == 0 || add(command.words[after..].to_vec(), depth, found);
        if !(is_added && add(command.words, depth, found)) {
            return false;
        }
    }
    if nested {
        // If a text contains a nested text, quotes no longer show where a command begins.
        for command in read(text, Reading::WithoutQuotes).commands {
            add_anywhere(command.words, found);
        }
        for part in text.split([';', '|', '&', '(', ')', '<', '>', '`', '\n', '{', '}']) {
            let part = part.replace(['"', '\'', '\\'], "");
            add_anywhere(part.split_whitespace().map(piece).collect(), found);
        }
    }
    true
}

/// Adds a command that may begin at any word, and its parts between the words that begin with `#`, because these words
/// may begin comments.
fn add_anywhere(words: Vec<Piece>, found: &mut Vec<Command>) {
    let is_comment = |word: &Piece| matches!(word, Piece::Known(word) if word.starts_with('#'));
    if words.iter().any(is_comment) {
        found.extend(words.split(is_comment).map(|part| Command::anywhere(part.to_vec())));
    }
    found.push(Command::anywhere(words));
}

fn piece(word: &str) -> Piece {
    if word.contains(['$', '*', '?', '[', '~']) { Piece::Open } else { Piece::Known(word.to_owned()) }
}

/// Checks whether a command may run its input, as `sh` does without arguments. Returns false for a program that is
/// [`Piece::Open`], because such a program matches every rule already.
fn may_run_its_input(words: &[Piece]) -> bool {
    let Some(Piece::Known(program)) = words.first() else { return false };
    let is = |word: &Piece, test: fn(&str) -> bool| matches!(word, Piece::Known(word) if test(word));
    let runs_shell = runner::runs_others(program) && words.iter().any(|word| is(word, runner::is_shell));
    let has_only_options = words[1..].iter().all(|word| is(word, |word| word.starts_with('-')));
    runs_shell || (runner::is_interpreter(program) && has_only_options)
}

/// Adds the command, and the commands that it may run in turn. Returns false if these cannot be determined.
fn add(words: Vec<Piece>, depth: u32, found: &mut Vec<Command>) -> bool {
    let runs = |word: &Piece| match word {
        Piece::Known(word) => runner::runs_what_follows(word),
        Piece::Open => false,
    };
    let program = words.first();
    let may_begin_anywhere = match program {
        Some(Piece::Known(program)) => runner::may_run_its_words(program) || words.iter().any(runs),
        Some(Piece::Open) => true,
        None => return true,
    };
    if may_begin_anywhere {
        for word in words.iter().skip(1) {
            if let Piece::Known(word) = word
                && !(add_text(word, depth, found) && add_value(word, depth, found))
            {
                return false;
            }
        }
    }
    if matches!(program, Some(Piece::Known(program)) if runner::runs_others(program)) {
        if !add_joined(&words, depth, found) {
            return false;
        }
        add_with_more_words(&words, found);
    }
    found.push(Command { words, may_begin_anywhere, may_have_more_words: false });
    true
}

/// Adds the commands of a word that may be a text for a shell.
fn add_text(word: &str, depth: u32, found: &mut Vec<Command>) -> bool {
    let is_text = word.contains(|letter: char| !letter.is_ascii_alphanumeric() && !"-_./=".contains(letter));
    !is_text || collect(word, depth - 1, found)
}

/// Adds the commands of the value in `NAME=VALUE`, because `alias`, `env` or `make` may run the value later, with more
/// words.
fn add_value(word: &str, depth: u32, found: &mut Vec<Command>) -> bool {
    let Some((_, value)) = word.split_once('=').filter(|(_, value)| !value.trim().is_empty()) else {
        return true;
    };
    let words = value.split_whitespace().map(piece).collect();
    found.push(Command { words, may_begin_anywhere: false, may_have_more_words: true });
    add_text(value, depth, found)
}

/// Adds the commands of the words behind `eval`, `ssh` and others, which join these words to a text for a shell.
fn add_joined(words: &[Piece], depth: u32, found: &mut Vec<Command>) -> bool {
    let joins = |word: &Piece| matches!(word, Piece::Known(word) if runner::joins_words(word));
    let is_text = |word: &Piece| {
        let has_meaning = |letter: char| letter.is_whitespace() || ";|&()<>`$\"'\\{}*?[~#".contains(letter);
        matches!(word, Piece::Known(word) if word.contains(has_meaning))
    };
    let Some(at) = words.iter().position(joins) else { return true };
    if !words[at..].iter().any(is_text) {
        return true;
    }
    let text: Vec<&str> = words[at + 1..].iter().map(Piece::text).collect();
    let before = found.len();
    if !collect(&text.join(" "), depth - 1, found) {
        return false;
    }
    // Options and a host may precede the command. `eval` has none.
    let is_eval = words[at] == Piece::Known("eval".to_owned());
    found[before..].iter_mut().for_each(|command| command.may_begin_anywhere |= !is_eval);
    true
}

/// Adds the commands that `xargs` may make of the words behind it and of words that it reads.
fn add_with_more_words(words: &[Piece], found: &mut Vec<Command>) {
    let appends = |word: &Piece| matches!(word, Piece::Known(word) if runner::appends_words(word));
    let Some(at) = words.iter().position(appends) else { return };
    let ends = |word: &Piece| matches!(word, Piece::Known(word) if word.starts_with(":::"));
    let words: Vec<Piece> = words[at + 1..].iter().take_while(|word| !ends(word)).cloned().collect();
    if words.is_empty() {
        return;
    }
    let may_run_more = matches!(words.last(), Some(Piece::Known(last)) if runner::may_run_its_words(last));
    if may_run_more || replaces_words(&words) {
        found.push(Command::anywhere(vec![Piece::Open]));
    }
    found.push(Command { words, may_begin_anywhere: true, may_have_more_words: true });
}

/// Checks whether an option of `xargs` names a text that it replaces in the words of the command.
fn replaces_words(words: &[Piece]) -> bool {
    let mut words = words.iter();
    while let Some(Piece::Known(option)) = words.next() {
        match option.strip_prefix('-') {
            None => return false,
            Some(long) if long.starts_with('-') => {
                if long.starts_with("-replace") {
                    return true;
                }
            }
            Some(short) if short.contains(['I', 'i', 'J']) => return true,
            Some("a" | "d" | "E" | "j" | "L" | "n" | "P" | "s") => drop(words.next()),
            Some(_) => {}
        }
    }
    false
}

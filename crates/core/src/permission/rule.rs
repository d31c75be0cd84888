//! One permission rule: a tool, or the shell commands that match a pattern.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::possible_commands::{self, Command, Piece};
use super::runner;
use super::shell::{self, Word};

/// A tool (`Read`, `mcp__files__*`), or commands of a shell tool by their words (`Bash(cargo *)`). `*` inside a word
/// matches any characters; `*` as a separate word matches any number of words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "permission", "examples" = ["Read", "Bash(cargo *)", "mcp__files__*"]))]
pub struct Rule {
    tool: String,
    /// Words of the pattern; none means every use of the tool.
    words: Option<Vec<String>>,
    written: String,
}

/// Names of the runtimes' tools that pass a text to a shell.
const SHELLS: [&str; 6] = ["Bash", "bash", "shell", "local_shell", "run_shell_command", "execute"];

/// Inputs of a shell tool with which an allow rule can match: the command, and inputs that do not change which command
/// is run, or where.
const CHECKED_INPUTS: [&str; 5] = ["command", "description", "timeout", "run_in_background", "timeout_ms"];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("{0:?} names no tool; for example Read, Bash(cargo *) or mcp__files__*")]
    NoTool(String),
    #[error("{0:?} has no `)` at its end; for example Bash(cargo *)")]
    Open(String),
    #[error("{tool:?} is no shell tool, and only those have patterns ({})", SHELLS.join(", "))]
    NotAShell { tool: String },
    #[error("{0:?} has an empty pattern; without the brackets it means every command")]
    Empty(String),
    #[error(
        "{pattern:?} contains {letter:?}: a pattern is compared with the words of one plain command, which cannot contain this character"
    )]
    NotWords { pattern: String, letter: char },
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let (tool, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => {
                let pattern = rest.strip_suffix(')').ok_or_else(|| RuleError::Open(text.to_owned()))?;
                (tool, Some(pattern))
            }
        };
        let named = |letter: char| letter.is_ascii_alphanumeric() || "_-.:/*".contains(letter);
        if tool.is_empty() || !tool.chars().all(named) {
            return Err(RuleError::NoTool(text.to_owned()));
        }
        let words = pattern.map(|pattern| words(text, tool, pattern)).transpose()?;
        Ok(Self { tool: tool.to_owned(), words, written: text.to_owned() })
    }
}

fn words(text: &str, tool: &str, pattern: &str) -> Result<Vec<String>, RuleError> {
    if !SHELLS.contains(&tool) {
        return Err(RuleError::NotAShell { tool: tool.to_owned() });
    }
    let strange = |letter: &char| "\"'\\$`;|&<>(){}!?[\n".contains(*letter);
    if let Some(letter) = pattern.chars().find(strange) {
        return Err(RuleError::NotWords { pattern: pattern.to_owned(), letter });
    }
    // The form `git:*` of Claude Code.
    let (pattern, and_more) = pattern.strip_suffix(":*").map_or((pattern, None), |start| (start, Some("*")));
    let words: Vec<String> = pattern.split_whitespace().chain(and_more).map(str::to_owned).collect();
    if words.is_empty() { Err(RuleError::Empty(text.to_owned())) } else { Ok(words) }
}

impl Rule {
    /// Checks whether the rule matches with certainty, for allow rules.
    pub(super) fn matches_surely(&self, tool: &str, input: &Value) -> bool {
        if !characters_match(&self.tool, tool) {
            return false;
        }
        let Some(pattern) = &self.words else { return true };
        let only_checked = input
            .as_object()
            .is_some_and(|fields| fields.keys().all(|key| CHECKED_INPUTS.contains(&key.as_str())));
        let words = input.get("command").and_then(Value::as_str).and_then(shell::plain);
        only_checked && words.is_some_and(|words| matches_words_surely(pattern, &words))
    }

    /// Checks whether the rule may match, for deny and ask rules.
    pub(super) fn may_match(&self, tool: &str, input: &Value) -> bool {
        if !characters_match(&self.tool.to_ascii_lowercase(), &tool.to_ascii_lowercase()) {
            return false;
        }
        let Some(pattern) = &self.words else { return true };
        let commands = match input.get("command") {
            Some(Value::String(text)) => possible_commands::commands(text),
            Some(Value::Array(words)) => {
                let words: Option<Vec<String>> =
                    words.iter().map(|word| word.as_str().map(str::to_owned)).collect();
                words.and_then(|words| possible_commands::commands_of_words(&words))
            }
            _ => None,
        };
        commands.is_none_or(|commands| commands.iter().any(|command| may_match_words(pattern, command)))
    }
}

fn matches_words_surely(pattern: &[String], words: &[Word]) -> bool {
    let mut reached = vec![false; words.len() + 1];
    reached[0] = true;
    for part in pattern {
        reached = if part == "*" {
            any_words(&reached)
        } else {
            one_word(&reached, |at| matches!(&words[at], Word::Known(word) if characters_match(part, word)))
        };
    }
    reached[words.len()]
}

fn may_match_words(pattern: &[String], command: &Command) -> bool {
    let more = command.may_have_more_words.then_some(&Piece::Open);
    let words: Vec<&Piece> = command.words.iter().chain(more).collect();
    let is_open = |at: usize| *words[at] == Piece::Open;
    // An open piece may expand to no word at all.
    let pass = |mut reached: Vec<bool>| {
        for at in 0..words.len() {
            reached[at + 1] |= reached[at] && is_open(at);
        }
        reached
    };
    let is_option = |at: usize| matches!(words[at], Piece::Known(word) if word.starts_with(['-', '+']));
    // `git -C . push` is a `git push`: options may precede every word but the first, and each option may have a value.
    let pass_options = |mut reached: Vec<bool>| {
        for at in 0..words.len() {
            if reached[at] && is_option(at) {
                reached[at + 1] = true;
                reached[(at + 2).min(words.len())] = true;
            }
        }
        reached
    };
    let mut reached = vec![false; words.len() + 1];
    reached[..=command.words.len()].fill(command.may_begin_anywhere);
    reached[command.words.len()] &= more.is_none();
    reached[0] = true;
    reached = pass(reached);
    for (index, part) in pattern.iter().enumerate() {
        if index > 0 {
            reached = pass_options(reached);
        }
        let mut next = if part == "*" {
            any_words(&reached)
        } else {
            one_word(
                &reached,
                |at| matches!(words[at], Piece::Known(word) if word_could(part, word, index == 0)),
            )
        };
        // An open piece may also expand to this word and more words.
        for at in 0..words.len() {
            next[at] |= reached[at] && is_open(at);
        }
        reached = pass(next);
    }
    reached[words.len()]
}

/// Returns the positions that a pattern can have reached after a `*`.
fn any_words(reached: &[bool]) -> Vec<bool> {
    let first = reached.iter().position(|reached| *reached).unwrap_or(reached.len());
    (0..reached.len()).map(|at| at >= first).collect()
}

/// Returns the positions that a pattern can have reached after one more word.
fn one_word(reached: &[bool], means: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    for at in 0..reached.len() - 1 {
        next[at + 1] = reached[at] && means(at);
    }
    next
}

/// Checks whether a word may match. A program can be called by its path, and on some file systems in capitals.
fn word_could(pattern: &str, word: &str, is_program: bool) -> bool {
    if !is_program {
        return characters_match(pattern, word);
    }
    let (pattern, word) = (pattern.to_ascii_lowercase(), word.to_ascii_lowercase());
    characters_match(&pattern, &word) || characters_match(&pattern, runner::base_name(&word))
}

/// Checks whether a text matches a pattern in which `*` matches any characters, or none.
fn characters_match(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    let mut rest = rest;
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.written
    }
}

impl TryFrom<String> for Rule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        text.parse()
    }
}

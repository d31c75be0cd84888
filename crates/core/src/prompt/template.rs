//! Templates of prompts: own text and placeholders, checked when the config is loaded.

use std::collections::BTreeSet;

use minijinja::value::Value;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, filters};
use serde_json::Value as Json;

use super::author::FenceLabels;
use super::outside::{PromptPart, PromptValue};
use super::{Context, PromptError, Variables};
use crate::cut::push_cut;

pub(super) const MAX_TEMPLATE_BYTES: usize = 256 * 1024;
pub(super) const MAX_PLACEHOLDERS: usize = 500;

/// Maximum number of steps of the template engine for one placeholder, enough for any useful expression.
const MAX_ENGINE_STEPS: u64 = 1_000;

/// Maximum length of an expression in bytes. The engine parses by recursion, and a short expression cannot exhaust the
/// stack.
const MAX_EXPRESSION_LENGTH: usize = 1_000;

/// Variables with the text of the task, which is fenced even on one line.
const TASK_VARIABLES: [&str; 2] = ["body", "issue.body"];
/// The variable with the result of another job, which is fenced even on one line.
const RESULT_VARIABLE: &str = "upstream.result";

/// The variable with earlier messages of a chat. The trust in the author of the task does not apply to it.
const EARLIER_MESSAGES_VARIABLE: &str = "earlier_messages";

/// Variables with text of people who open issues, comment, push or write in a chat. `metadata` and `payload` contain
/// everything that was sent.
const OUTSIDE_VARIABLES: [&str; 10] = [
    "title",
    "body",
    "issue.title",
    "issue.body",
    "head_ref",
    "author_name",
    "attachments",
    EARLIER_MESSAGES_VARIABLE,
    "metadata",
    "payload",
];

/// Further variables whose values come from outside the fleet or from other agents. A value on one line is quoted.
const QUOTED_VARIABLES: [&str; 10] = [
    "labels",
    "issue.labels",
    "assignee",
    "url",
    "issue.url",
    "author",
    "channel",
    "thread",
    "upstream.summary",
    "upstream.work_item",
];

/// A parsed and checked prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    variables: Variables,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Placeholder(Placeholder),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Placeholder {
    line: usize,
    /// Text between the braces.
    expression: String,
}

impl Template {
    /// Returns all problems of a template, for example a variable that is not known for this kind of schedule.
    pub fn problems(text: &str, variables: Variables) -> Vec<PromptError> {
        Self::parse_lenient(text, variables).1
    }

    /// Creates a template in which braces have no meaning.
    pub fn literal(text: &str, variables: Variables) -> Self {
        Self { pieces: vec![Piece::Text(text.to_owned())], variables }
    }

    /// Parses a template without rejecting it: a placeholder with a problem stays as it is written. Returns the
    /// problems too.
    pub fn parse_lenient(text: &str, variables: Variables) -> (Self, Vec<PromptError>) {
        let (mut pieces, mut problems) = (Vec::new(), Vec::new());
        if text.len() > MAX_TEMPLATE_BYTES {
            problems.push(PromptError::TooLong { bytes: text.len() });
        }
        let (mut line, mut rest) = (1, text);
        while let Some(open) = rest.find("{{") {
            if pieces.len() >= 2 * MAX_PLACEHOLDERS {
                problems.push(PromptError::TooMany);
                break;
            }
            let (before, inside) = (&rest[..open], &rest[open + 2..]);
            line += before.matches('\n').count();
            pieces.push(Piece::Text(before.to_owned()));
            let (length, piece) = placeholder(inside, line, &variables);
            pieces.push(piece.unwrap_or_else(|problem| {
                problems.push(problem);
                Piece::Text(format!("{{{{{}", &inside[..length]))
            }));
            rest = &inside[length..];
        }
        pieces.push(Piece::Text(rest.to_owned()));
        (Self { pieces, variables }, problems)
    }

    /// Checks whether the prompt contains text of people who need no rights to write it, for example the author of an
    /// issue. Numbers, URLs and labels do not count, because these people do not choose them.
    pub fn contains_outside_text(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Text(_) => false,
            Piece::Placeholder(placeholder) => placeholder.contains_outside_text(),
        })
    }

    /// Returns the names that the placeholders use, each once, in the order of the alphabet.
    pub fn names(&self) -> BTreeSet<String> {
        let names = |piece: &Piece| match piece {
            Piece::Text(_) => BTreeSet::new(),
            Piece::Placeholder(placeholder) => placeholder.names(),
        };
        self.pieces.iter().flat_map(names).collect()
    }

    /// Returns the parts of the rendered prompt. A placeholder that cannot be evaluated stays as it is written.
    pub(super) fn parts(&self, context: &Context<'_>) -> Vec<PromptPart> {
        let (values, labels) = (context.values(self.variables.exact()), context.author.labels());
        let part = |piece: &Piece| match piece {
            Piece::Text(text) => PromptPart::Own(text.clone()),
            Piece::Placeholder(placeholder) => {
                match placeholder.evaluate(&values, &labels, context.may_have_outside_text()) {
                    Some(value) => PromptPart::Value(value),
                    None => PromptPart::Own(placeholder.as_written()),
                }
            }
        };
        self.pieces.iter().map(part).collect()
    }
}

/// Parses the text after `{{`. Returns the length of the placeholder in this text, including `}}`, and the placeholder
/// or its problem. The length is 0 if there is no `}}`.
fn placeholder(inside: &str, line: usize, variables: &Variables) -> (usize, Result<Piece, PromptError>) {
    let Some(close) = closing(inside) else { return (0, Err(PromptError::Unclosed { line })) };
    let placeholder = Placeholder { line, expression: inside[..close].to_owned() };
    let checked = placeholder.check(variables);
    (close + 2, checked.map(|()| Piece::Placeholder(placeholder)))
}

/// Returns the position of `}}`, on the same line and not inside quotes.
fn closing(inside: &str) -> Option<usize> {
    let line = inside.split('\n').next().unwrap_or_default();
    outside_quotes(line).find(|(at, _)| line[*at..].starts_with("}}")).map(|(at, _)| at)
}

/// Returns the characters of an expression outside strings, with their positions.
fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quote, mut escaped) = (None, false);
    text.char_indices().filter(move |(_, character)| {
        let was_inside = quote.is_some();
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if *character == '\\' => escaped = true,
            Some(open) if *character == open => quote = None,
            None if matches!(character, '"' | '\'') => quote = Some(*character),
            _ => {}
        }
        !was_inside && quote.is_none()
    })
}

impl Placeholder {
    fn as_written(&self) -> String {
        format!("{{{{{}}}}}", self.expression)
    }

    /// Returns the placeholder as written, but short enough for a message.
    fn shown(&self) -> String {
        let mut shown = String::new();
        push_cut(&mut shown, &self.as_written(), 0, 200, char::len_utf8);
        shown
    }

    fn check(&self, variables: &Variables) -> Result<(), PromptError> {
        self.check_supported()?;
        let engine = engine();
        let expression = engine
            .compile_expression(&self.expression)
            .map_err(|error| self.unreadable(problem_of(&error)))?;
        let mut names: Vec<_> = expression.undeclared_variables(true).into_iter().collect();
        names.sort_unstable();
        names.iter().try_for_each(|name| variables.check(name, self.line))
    }

    fn contains_outside_text(&self) -> bool {
        self.uses(&OUTSIDE_VARIABLES)
    }

    /// Returns the names that the expression uses.
    fn names(&self) -> BTreeSet<String> {
        let engine = engine();
        let expression = engine.compile_expression(&self.expression);
        expression.map(|found| found.undeclared_variables(true).into_iter().collect()).unwrap_or_default()
    }

    /// Checks whether the expression uses one of these variables, or a part of one.
    fn uses(&self, names: &[&str]) -> bool {
        self.names().iter().any(|name| {
            let root = name.split_once('.').map_or(name.as_str(), |(root, _)| root);
            names.contains(&name.as_str()) || names.contains(&root)
        })
    }

    /// Rejects expressions whose errors the engine detects only at run time, or not at all: for example, it does not
    /// report which variables a slice uses.
    fn check_supported(&self) -> Result<(), PromptError> {
        if self.expression.len() > MAX_EXPRESSION_LENGTH {
            return Err(self.unreadable(format!("it is longer than {MAX_EXPRESSION_LENGTH} bytes")));
        }
        let plain: String = outside_quotes(&self.expression).map(|(_, character)| character).collect();
        if plain.contains([':', '{', '}']) {
            return Err(self.unreadable("slices and maps are not supported here".to_owned()));
        }
        if plain.split(|c: char| !is_word(c)).any(|word| word == "is") {
            return Err(self.unreadable("tests with `is` are not supported here".to_owned()));
        }
        for after in plain.split('|').skip(1) {
            let name: String = after.trim_start().chars().take_while(|c| is_word(*c)).collect();
            if !TEMPLATE_FILTERS.contains(&name.as_str()) {
                let offered = TEMPLATE_FILTERS.join(", ");
                return Err(self.unreadable(format!("no filter {name:?}; there are {offered}")));
            }
        }
        Ok(())
    }

    /// Returns the value; none if the expression cannot be evaluated, for example because it subtracts from a text.
    fn evaluate(&self, values: &Value, labels: &FenceLabels, others: bool) -> Option<PromptValue> {
        let engine = engine();
        let answer = engine
            .compile_expression(&self.expression)
            .and_then(|expression| expression.eval(values.clone()));
        let value = match answer {
            Ok(value) if value.is_undefined() => Value::from(()),
            Err(error) if error.kind() == ErrorKind::UndefinedError => Value::from(()),
            Ok(value) => value,
            Err(_) => return None,
        };
        let json = serde_json::to_value(&value).ok()?;
        let (text, name) = (printed(&json), self.expression.trim());
        Some(if TASK_VARIABLES.contains(&name) {
            PromptValue::block(&text, &labels.task)
        } else if name == RESULT_VARIABLE {
            PromptValue::block(&text, &labels.other)
        } else {
            let quoted = others && (self.uses(&QUOTED_VARIABLES) || self.contains_outside_text());
            let is_earlier = self.uses(&[EARLIER_MESSAGES_VARIABLE]);
            PromptValue::new(&text, if is_earlier { &labels.several } else { &labels.other }, quoted)
        })
    }

    fn unreadable(&self, problem: String) -> PromptError {
        PromptError::Unreadable { line: self.line, placeholder: self.shown(), problem }
    }
}

const fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

const TEMPLATE_FILTERS: [&str; 5] = ["default", "join", "lower", "trim", "upper"];

/// Creates an engine with only the [`TEMPLATE_FILTERS`]: no functions, no tests, no other templates.
fn engine<'a>() -> Environment<'a> {
    let mut engine = Environment::empty();
    engine.set_undefined_behavior(UndefinedBehavior::Chainable);
    engine.set_fuel(Some(MAX_ENGINE_STEPS));
    engine.set_debug(false);
    engine.add_filter("default", or_default);
    engine.add_filter("join", filters::join);
    engine.add_filter("lower", filters::lower);
    engine.add_filter("trim", filters::trim);
    engine.add_filter("upper", filters::upper);
    engine
}

/// The filter `default`. It also replaces null and an empty text or list, because these are the values of variables for
/// which the firing has no value, for example the assignee of an issue without an assignee. With `lax`, the filter also
/// replaces `false` and 0.
fn or_default(value: Value, default: Option<Value>, lax: Option<bool>) -> Value {
    let is_missing = value.is_undefined() || value.is_none() || value.len() == Some(0);
    if is_missing || (lax == Some(true) && !value.is_true()) {
        default.unwrap_or_else(|| Value::from(""))
    } else {
        value
    }
}

fn problem_of(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

/// Formats a value for people: empty for null, `a, b` for a list, `k: v` lines sorted by key for a map.
fn printed(value: &Json) -> String {
    match value {
        Json::Array(items) => items.iter().map(printed_inside).collect::<Vec<_>>().join(", "),
        Json::Object(fields) => {
            let mut lines: Vec<_> =
                fields.iter().map(|(key, value)| format!("{key}: {}", printed_inside(value))).collect();
            lines.sort_unstable();
            lines.join("\n")
        }
        other => printed_inside(other),
    }
}

fn printed_inside(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

//! Environment variables in values: `${NAME}`, `${NAME:-default}`, and `$${` for a literal `${`.
//!
//! The text is expanded in one pass from left to right, so the value of a variable is never expanded again. As in a
//! shell, the default also replaces a variable that is set but empty.

use super::node::{Location, Node, Scalar, Value};
use super::parse::to_u32;
use super::problem::{Problem, Problems, Severity};

/// Beginning of the message about a variable that is not set.
const UNSET_VARIABLE: &str = "the environment variable `";

/// Returns true if the problem is a variable that is not set. With another environment, there may be no such problem.
pub fn is_unset_variable(problem: &Problem) -> bool {
    problem.severity == Severity::Error && problem.message.starts_with(UNSET_VARIABLE)
}

/// Expands the variables in every value of a file. `source` is the file's text, to locate the variable inside a longer
/// value.
pub fn interpolate(
    node: &mut Node,
    source: &str,
    env: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) {
    match &mut node.value {
        Value::List(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let before = problems.len();
                interpolate(item, source, env, problems);
                problems.prefix_keys(before, &format!("[{index}]"));
            }
        }
        Value::Map(map) => {
            for (key, entry) in &mut map.entries {
                let before = problems.len();
                interpolate(&mut entry.node, source, env, problems);
                problems.prefix_keys(before, key);
            }
        }
        Value::Scalar(scalar) => {
            if scalar.text.contains("${") {
                fill_in(scalar, node.at, source, env, problems);
            }
        }
    }
}

/// Maximum number of undefined variables, and of `${` without a variable, that are reported for one value.
const MAX_REPORTED: usize = 20;

fn fill_in(
    scalar: &mut Scalar,
    at: Location,
    source: &str,
    env: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) {
    let expanded = expand(&scalar.text, env);
    let undefined = !expanded.undefined.is_empty();
    // The search for each location starts at the beginning of the value, so thousands of locations would be slow.
    for (place, undefined) in expanded.undefined.into_iter().take(MAX_REPORTED) {
        let at = locate_variable(at, source, &scalar.text, place, undefined);
        let message = format!("{UNSET_VARIABLE}{undefined}` is not set");
        let help = format!("set it, add it to .env, or give a default: ${{{undefined}:-default}}");
        problems.add(Problem::error(at, message).help(help));
    }
    for place in expanded.literal.into_iter().take(MAX_REPORTED) {
        let at = locate_variable(at, source, &scalar.text, place, "");
        let message = "this `${` does not begin a variable and stays as it is";
        problems.add(
            Problem::warning(at, message)
                .help("write `$${` for a literal `${`, or `${NAME}` for a variable".to_owned()),
        );
    }
    scalar.interpolated = true;
    scalar.variables = expanded.used.into_iter().map(str::to_owned).collect();
    scalar.text = expanded.text;
    scalar.undefined = undefined;
}

/// A text with its variables expanded.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Expanded<'a> {
    pub text: String,
    /// Variables whose values were inserted.
    pub used: Vec<&'a str>,
    /// Positions and names of variables without value or default.
    pub undefined: Vec<(usize, &'a str)>,
    /// Positions of `${` without a variable.
    pub literal: Vec<usize>,
}

pub fn expand<'a>(text: &'a str, env: &dyn Fn(&str) -> Option<String>) -> Expanded<'a> {
    let mut expanded = Expanded::default();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        expanded.text += &rest[..dollar];
        rest = &rest[dollar..];
        let place = text.len() - rest.len();
        if let Some(after) = rest.strip_prefix("$${") {
            expanded.text += "${";
            rest = after;
        } else if let Some((variable, after)) = rest.strip_prefix("${").and_then(Variable::read) {
            expanded.put(&variable, place, env);
            rest = after;
        } else {
            if rest.starts_with("${") {
                expanded.literal.push(place);
            }
            expanded.text.push('$');
            rest = &rest[1..];
        }
    }
    expanded.text += rest;
    expanded
}

impl<'a> Expanded<'a> {
    fn put(&mut self, variable: &Variable<'a>, place: usize, env: &dyn Fn(&str) -> Option<String>) {
        let value = env(variable.name).filter(|value| !value.is_empty() || variable.default.is_none());
        match (value, variable.default) {
            (Some(value), _) => {
                self.text += &value;
                self.used.push(variable.name);
            }
            (None, Some(default)) => self.text += default,
            (None, None) => self.undefined.push((place, variable.name)),
        }
    }
}

struct Variable<'a> {
    name: &'a str,
    default: Option<&'a str>,
}

impl<'a> Variable<'a> {
    /// Parses the text after `${`. Returns the variable and the text after its `}`; none if there is no variable.
    fn read(text: &'a str) -> Option<(Self, &'a str)> {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((Self { name, default: None }, rest));
        }
        let (default, rest) = rest.strip_prefix(":-")?.split_once('}')?;
        Some((Self { name, default: Some(default) }, rest))
    }
}

/// Returns the location in the file of the `${` at `place` in a value's text. The text in the file differs from the
/// value's text where there are escapes and folded lines. So the function counts the `${` before `place`, and takes the
/// `${` with the same number in the file. If `name` does not follow it there, the function returns the location of the
/// whole value.
fn locate_variable(at: Location, source: &str, text: &str, place: usize, name: &str) -> Location {
    let before = text[..place].matches("${").count();
    let start = at.start as usize;
    // Because of escapes and indentation, a value can be longer in the file than its text, but hardly longer than this.
    let end = source.floor_char_boundary(start.saturating_add(8 * text.len() + 256));
    let Some(written) = source.get(start..end) else { return at };
    let Some((offset, _)) = written.match_indices("${").nth(before) else { return at };
    if !written[offset + 2..].starts_with(name) {
        return at;
    }
    let skipped = &written[..offset];
    let lines = skipped.matches('\n').count();
    let column = match skipped.rsplit_once('\n') {
        Some((_, line)) => line.chars().count() + 1,
        None => at.column as usize + skipped.chars().count(),
    };
    let whole = written[offset..].find('}').filter(|_| !name.is_empty()).map_or(2, |end| end + 1);
    Location {
        line: at.line + to_u32(lines),
        column: to_u32(column),
        start: to_u32(start + offset),
        end: to_u32(start + offset + whole),
        ..at
    }
}

//! Interpretation of scalars: the schema decides the type, then the text has to fit.

use serde_json::{Number, Value as Json, json};

use super::format;
use super::node::{Location, Scalar};
use super::schema_check::Checker;
use super::schema_node::{SchemaNode, TextRules};
use super::secret;
use super::suggest::{did_you_mean, one_of};

impl Checker<'_> {
    pub(super) fn scalar(
        &mut self,
        scalar: &mut Scalar,
        at: Location,
        schema: &'static SchemaNode,
    ) -> Option<Json> {
        let kinds = schema.kinds.as_slice();
        let wants = |kind| kinds.contains(&kind);
        // Inside { } and [ ] a variable needs quotes, so quotes around a variable do not mean text.
        if scalar.plain || scalar.interpolated {
            if let Some(truth) = as_bool(&scalar.text).filter(|_| wants("boolean")) {
                return Some(Json::Bool(truth));
            }
            if let Some(number) = as_integer(&scalar.text).filter(|_| wants("integer")) {
                return self.integer(number, at, schema.integers);
            }
            if let Some(number) = as_float(&scalar.text).filter(|_| wants("number")) {
                return self.float(number, at, schema);
            }
        }
        if wants("string") {
            return self.string(scalar, at, &schema.text);
        }
        let quoted = !scalar.plain && (as_bool(&scalar.text).is_some() || as_float(&scalar.text).is_some());
        let found = if quoted { format!("{} in quotes", self.quote(scalar)) } else { self.quote(scalar) };
        let help = self.hint(scalar, kinds);
        self.mismatch(at, kinds, &found, help)
    }

    pub(super) fn not_one_of(&mut self, scalar: &Scalar, at: Location, words: &[&str]) {
        let message = format!("{} is not one of {}", self.quote(scalar), one_of(words.iter().copied()));
        // A suggestion would reveal part of a secret.
        let close = || did_you_mean(&scalar.text, words.iter().copied()).filter(|_| !self.is_secret(scalar));
        let help = self.hint(scalar, &[]).or_else(close);
        self.error(at, message, help);
    }

    fn integer(&mut self, number: i128, at: Location, range: NumberRange) -> Option<Json> {
        let NumberRange { least, most } = range;
        if number < least {
            self.error(at, format!("{number} is too small; the smallest is {least}"), None);
            None
        } else if number > most {
            self.error(at, format!("{number} is too large; the largest is {most}"), None);
            None
        } else {
            i64::try_from(number).map(Json::from).or_else(|_| u64::try_from(number).map(Json::from)).ok()
        }
    }

    fn float(&mut self, number: f64, at: Location, schema: &SchemaNode) -> Option<Json> {
        if let Some(floor) = schema.above.filter(|floor| number <= *floor) {
            self.error(at, format!("{number} is too small; it must be more than {floor}"), None);
            return None;
        }
        if let Some(least) = schema.minimum.filter(|least| number < *least) {
            self.error(at, format!("{number} is too small; the smallest is {least}"), None);
            return None;
        }
        if let Some(most) = schema.maximum.filter(|most| number > *most) {
            let shown = if number < 1e15 { number.to_string() } else { format!("{number:e}") };
            self.error(at, format!("{shown} is too large; the largest is {most}"), None);
            return None;
        }
        Number::from_f64(number).map(Json::Number)
    }

    fn string(&mut self, scalar: &mut Scalar, at: Location, rules: &'static TextRules) -> Option<Json> {
        if let Some(words) = &rules.words {
            if words.contains(&scalar.text.as_str()) {
                return Some(self.text(&scalar.text));
            }
            self.not_one_of(scalar, at, words);
            return None;
        }
        if let Some(message) = self.mistake(scalar, rules) {
            if format::may_be_value_of_variable(rules.format) {
                self.hide(scalar, at);
            }
            self.error(at, message, None);
            return None;
        }
        scalar.valid_format = Some(rules.format);
        match self.reading.sources.filter(|_| rules.is_path) {
            Some(sources) => Some(json!(sources.resolve(at.file, &scalar.text))),
            None => Some(self.text(&scalar.text)),
        }
    }

    /// Returns the typed value of a text.
    fn text(&self, text: &str) -> Json {
        if self.reading.only_problems { Json::Null } else { Json::String(text.to_owned()) }
    }

    /// Returns the error in a text, if there is one.
    fn mistake(&self, scalar: &Scalar, rules: &TextRules) -> Option<String> {
        let text = &scalar.text;
        if rules.min_length > 0 && (text.chars().count() as u64) < rules.min_length {
            return Some("must not be empty".to_owned());
        }
        let is_known = scalar.valid_format == Some(rules.format);
        let complaint = if is_known { None } else { format::validate(rules.format, text) };
        if let Some(complaint) = complaint {
            // Most parsers quote the text, which may be a secret.
            let is_shown = format::never_quotes_text(rules.format, text) || !self.is_secret(scalar);
            return Some(if is_shown { complaint } else { "this value is not valid here".to_owned() });
        }
        let pattern = rules.pattern.as_ref()?;
        if pattern.regex.as_ref().is_some_and(|regex| regex.is_match(text)) {
            return None;
        }
        let pattern = pattern.text;
        let examples = one_of(rules.examples.iter().copied());
        let quoted =
            if is_plain_word_for_url(pattern, scalar) { format!("`{text}`") } else { self.quote(scalar) };
        // If there are examples, the message shows them instead of the pattern.
        Some(if examples.is_empty() {
            format!("{quoted} does not match {pattern}")
        } else {
            format!("{quoted} is not of the right form; for example {examples}")
        })
    }
}

/// The whole numbers that a schema accepts.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberRange {
    least: i128,
    most: i128,
}

impl NumberRange {
    pub(super) fn of(schema: &Json) -> Self {
        let by_format = schema.get("format").and_then(Json::as_str).and_then(number_range);
        let (mut least, mut most) = by_format.unwrap_or((i64::MIN.into(), i64::MAX.into()));
        if let Some(minimum) = schema.get("minimum").and_then(Json::as_i64) {
            least = least.max(minimum.into());
        }
        if let Some(maximum) = schema.get("maximum").and_then(Json::as_i64) {
            most = most.min(maximum.into());
        }
        Self { least, most }
    }
}

/// Checks whether a URL is expected and the scalar is a short plain word or path. Such a word or path cannot contain a
/// password, so a message may quote it.
fn is_plain_word_for_url(pattern: &str, scalar: &Scalar) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '/' | '-' | '_');
    pattern.contains("://")
        && !secret::holds_secret(scalar)
        && scalar.text.len() <= 60
        && scalar.text.chars().all(is_plain)
}

/// Converts a value without a schema by the rules of YAML.
pub(super) fn untyped(scalar: &Scalar) -> Json {
    if !scalar.plain {
        return json!(scalar.text);
    }
    if scalar.is_null() {
        return Json::Null;
    }
    let text = &scalar.text;
    let integer = || as_integer(text).and_then(|number| i64::try_from(number).ok()).map(Json::from);
    let float = || as_float(text).and_then(Number::from_f64).map(Json::Number);
    as_bool(text).map(Json::Bool).or_else(integer).or_else(float).unwrap_or_else(|| json!(text))
}

pub(super) fn number_range(format: &str) -> Option<(i128, i128)> {
    Some(match format {
        "uint8" => (0, u8::MAX.into()),
        "uint16" => (0, u16::MAX.into()),
        "uint32" => (0, u32::MAX.into()),
        "uint64" => (0, u64::MAX.into()),
        _ => return None,
    })
}

fn as_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

fn as_integer(text: &str) -> Option<i128> {
    let radix = |digits: &str, radix| {
        digits
            .starts_with(|c: char| c.is_ascii_hexdigit())
            .then(|| i128::from_str_radix(digits, radix).ok())?
    };
    match text.get(..2) {
        Some("0x") => radix(&text[2..], 16),
        Some("0o") => radix(&text[2..], 8),
        _ => text.parse().ok(),
    }
}

fn as_float(text: &str) -> Option<f64> {
    // Rust also parses `inf`, `nan` and `infinity`, which YAML writes differently.
    let is_numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        && text.contains(|c: char| c.is_ascii_digit());
    if is_numeric { text.parse().ok().filter(|number: &f64| number.is_finite()) } else { None }
}

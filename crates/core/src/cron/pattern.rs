//! The parsed form of expressions.
//!
//! croner's form of an expression has five kilobytes, because it has a byte for each year up to 5000. So a schedule keeps
//! only the text of its expression. The forms of the expressions that were used last are kept here, and equal expressions
//! share one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use croner::parser::{CronParser, Seconds, Year};

use super::CronError;

/// A parsed expression with its original text.
pub(super) struct Pattern {
    pub text: Arc<str>,
    pub croner: croner::Cron,
    /// True if it is a fixed time, false if it is a recurring time.
    pub fixed: bool,
}

/// Maximum number of parsed forms that are kept.
const MAX_KEPT: usize = 500;

static KEPT: LazyLock<Mutex<HashMap<Arc<str>, Arc<Pattern>>>> = LazyLock::new(Mutex::default);

impl Pattern {
    /// Parses an expression, unless its form is kept.
    pub(super) fn of(text: &str) -> Result<Arc<Self>, CronError> {
        if let Some(pattern) = KEPT.lock().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Ok(Arc::clone(pattern));
        }
        let pattern = Arc::new(Self::parse(text)?);
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(Arc::clone(&pattern.text), Arc::clone(&pattern));
        Ok(pattern)
    }

    fn parse(text: &str) -> Result<Self, CronError> {
        if text.is_empty() {
            return Err(CronError::Empty);
        }
        if text.len() > MAX_EXPRESSION {
            return Err(CronError::TooLong);
        }
        let spelled_out = match text.strip_prefix('@') {
            Some(name) => shorthand(name).ok_or_else(|| CronError::Shorthand(text.to_owned()))?,
            None => text,
        };
        let fields: Vec<&str> = spelled_out.split_whitespace().collect();
        if !(5..=6).contains(&fields.len()) {
            return Err(CronError::FieldCount(fields.len()));
        }
        let croner = parser().parse(&fields.join(" ")).map_err(|error| blame_a_field(&fields, &error))?;
        // For an expression that never matches, croner searches up to the year 5000, which takes milliseconds. Reject
        // such an expression once, here.
        let some_day = jiff::civil::date(2000, 1, 1).at(0, 0, 0, 0);
        if croner.find_next_occurrence(&some_day, true).is_err() {
            return Err(CronError::NeverMatches(text.to_owned()));
        }
        let time_fields = &fields[..fields.len() - 3];
        let fixed = !time_fields.iter().any(|field| field.contains(['*', '/', '-', '?']));
        Ok(Self { text: text.into(), croner, fixed })
    }
}

/// Maximum length of an expression in bytes, longer than any that a person writes. A longer expression is rejected
/// before it is parsed.
pub(super) const MAX_EXPRESSION: usize = 1_000;

fn parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).sloppy_ranges(true).build()
}

fn shorthand(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "hourly" => "0 * * * *",
        "daily" | "midnight" => "0 0 * * *",
        "weekly" => "0 0 * * 0",
        "monthly" => "0 0 1 * *",
        "yearly" | "annually" => "0 0 1 1 *",
        _ => return None,
    })
}

const CRON_FIELDS: [(&str, &str); 6] = [
    ("second", "0-59"),
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of month", "1-31 or L, 15W, LW"),
    ("month", "1-12 or JAN-DEC"),
    ("day of week", "0-7 or SUN-SAT, 5L, FRI#2"),
];

/// Finds the wrong field by parsing each field alone, because croner's messages name neither the field nor its value.
fn blame_a_field(fields: &[&str], error: &croner::errors::CronError) -> CronError {
    let names = &CRON_FIELDS[CRON_FIELDS.len() - fields.len()..];
    for (place, (value, (name, range))) in fields.iter().zip(names).enumerate() {
        let mut alone = vec!["*"; fields.len()];
        alone[place] = value;
        if parser().parse(&alone.join(" ")).is_err() {
            return CronError::Field { name, value: (*value).to_owned(), range };
        }
    }
    CronError::Other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_valid_again_after_their_form_was_dropped() {
        let expressions: Vec<String> = (0..2 * MAX_KEPT)
            .map(|number| format!("{} {} {} * *", number % 60, number / 60 % 24, number % 28 + 1))
            .collect();
        for expression in expressions.iter().chain(&expressions) {
            assert_eq!(&*Pattern::of(expression).unwrap().text, expression);
        }
        assert!(KEPT.lock().unwrap().len() <= MAX_KEPT);
    }
}

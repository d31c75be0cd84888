//! The parsed form of expressions.
//!
//! An expression that the crate croner has parsed takes five kilobytes, because its parsed form has a byte for each
//! year up to 5000. So a schedule keeps only the text of its expression. The parsed forms are kept here, up to a
//! maximum number; equal expressions share one form.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use croner::parser::{CronParser, Seconds, Year};
use croner::{CronComponent, YEAR_LOWER_LIMIT};

use super::{CRON_FIELDS, CronError};

/// A parsed expression.
pub(super) struct Pattern(croner::Cron);

/// A valid expression, and whether it is a fixed time. Equal expressions share the text.
#[derive(Clone)]
pub(super) struct ValidText {
    pub text: Arc<str>,
    /// True if it is a fixed time, false if it is a recurring time.
    pub fixed: bool,
}

/// Maximum number of parsed forms that are kept.
const MAX_FORMS: usize = 500;
/// Maximum number of texts that are known to be valid.
const MAX_TEXTS: usize = 100_000;

static FORMS: LazyLock<Mutex<HashMap<Arc<str>, Arc<Pattern>>>> = LazyLock::new(Mutex::default);
static VALID: LazyLock<Mutex<HashMap<Arc<str>, bool>>> = LazyLock::new(Mutex::default);

impl ValidText {
    /// Parses an expression, unless it is known to be valid.
    pub(super) fn of(text: &str) -> Result<Self, CronError> {
        if let Some((text, fixed)) = lock(&VALID).get_key_value(text) {
            return Ok(Self { text: Arc::clone(text), fixed: *fixed });
        }
        let (pattern, fixed) = Pattern::parse(text)?;
        // For an expression that never matches, croner searches up to the year 5000, which takes milliseconds. Reject
        // such an expression once, here.
        let some_day = jiff::civil::date(2000, 1, 1).at(0, 0, 0, 0);
        if pattern.find_next_occurrence(&some_day, true).is_err() {
            return Err(CronError::NeverMatches(text.to_owned()));
        }
        let text: Arc<str> = text.into();
        insert(&FORMS, MAX_FORMS, Arc::clone(&text), Arc::new(pattern));
        insert(&VALID, MAX_TEXTS, Arc::clone(&text), fixed);
        Ok(Self { text, fixed })
    }
}

impl Deref for Pattern {
    type Target = croner::Cron;

    fn deref(&self) -> &croner::Cron {
        &self.0
    }
}

impl Pattern {
    /// Returns the parsed form of a valid expression.
    pub(super) fn of(text: &Arc<str>) -> Option<Arc<Self>> {
        if let Some(pattern) = lock(&FORMS).get(text) {
            return Some(Arc::clone(pattern));
        }
        let pattern = Arc::new(Self::parse(text).ok()?.0);
        insert(&FORMS, MAX_FORMS, Arc::clone(text), Arc::clone(&pattern));
        Some(pattern)
    }

    /// Parses an expression, and returns whether it is a fixed time.
    fn parse(text: &str) -> Result<(Self, bool), CronError> {
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
        let croner = parse_fields(&fields).map_err(|error| blame_a_field(&fields, &error))?;
        let time_fields = &fields[..fields.len() - 3];
        let fixed = !time_fields.iter().any(|field| field.contains(['*', '/', '-', '?']));
        Ok((Self(croner), fixed))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn insert<T>(map: &Mutex<HashMap<Arc<str>, T>>, max: usize, text: Arc<str>, value: T) {
    let mut map = lock(map);
    if map.len() >= max {
        map.clear();
    }
    map.insert(text, value);
}

/// Maximum length of an expression in bytes, longer than any that a person writes. A longer expression is rejected
/// before it is parsed.
pub(super) const MAX_EXPRESSION: usize = 1_000;

fn parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Optional).sloppy_ranges(true).build()
}

/// All years. croner marks them one by one, which takes longer than parsing all other fields, so this is done once.
static ALL_YEARS: LazyLock<Option<CronComponent>> =
    LazyLock::new(|| parser().parse("* * * * *").ok().map(|every_minute| every_minute.pattern.years));

/// Parses five fields, or six with leading seconds.
fn parse_fields(fields: &[&str]) -> Result<croner::Cron, croner::errors::CronError> {
    let seconds = if fields.len() == 5 { "0 " } else { "" };
    let Some(all_years) = &*ALL_YEARS else { return parser().parse(&fields.join(" ")) };
    let first_year = YEAR_LOWER_LIMIT;
    let mut parsed = parser().parse(&format!("{seconds}{} {first_year}", fields.join(" ")))?;
    parsed.pattern.years = all_years.clone();
    Ok(parsed)
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
    fn expressions_are_parsed_again_after_their_form_was_dropped() {
        let expressions: Vec<String> = (0..2 * MAX_FORMS)
            .map(|number| format!("{} {} {} * *", number % 60, number / 60 % 24, number % 28 + 1))
            .collect();
        for expression in expressions.iter().chain(&expressions) {
            let valid = ValidText::of(expression).unwrap();
            assert_eq!((&*valid.text, valid.fixed), (expression.as_str(), true));
            assert!(Pattern::of(&valid.text).is_some());
        }
        assert!(lock(&FORMS).len() <= MAX_FORMS);
    }
}

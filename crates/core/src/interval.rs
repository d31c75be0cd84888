//! Intervals in the config: one positive whole number and one unit, `30s 5m 1h 1d`.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A parsed interval. It keeps its number and its unit, so that `90m` is displayed as `90m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "interval", "examples" = ["30s", "5m", "1h", "1d"]))]
pub struct Interval {
    count: i64,
    unit: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Unit {
    Second,
    Minute,
    Hour,
    Day,
}

impl Unit {
    const fn letter(self) -> char {
        match self {
            Self::Second => 's',
            Self::Minute => 'm',
            Self::Hour => 'h',
            Self::Day => 'd',
        }
    }

    const fn seconds(self) -> i64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        }
    }
}

/// Maximum length in seconds: longer than any useful interval, and within the range of a timestamp.
const MAX_SECONDS: i64 = 36_500 * 86_400;

impl Interval {
    pub const fn seconds(count: i64) -> Self {
        Self { count, unit: Unit::Second }
    }

    pub const fn minutes(count: i64) -> Self {
        Self { count, unit: Unit::Minute }
    }

    pub const fn days(count: i64) -> Self {
        Self { count, unit: Unit::Day }
    }

    pub const fn duration(self) -> SignedDuration {
        SignedDuration::from_secs(self.count * self.unit.seconds())
    }
}

impl FromStr for Interval {
    type Err = IntervalError;

    fn from_str(text: &str) -> Result<Self, IntervalError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(IntervalError::Empty);
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let digits_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, unit) = (&unsigned[..digits_end], unsigned[digits_end..].trim_start());
        if number.is_empty() || number.starts_with('.') {
            return Err(IntervalError::NotAnInterval(text.to_owned()));
        }
        if number.contains('.') {
            return Err(IntervalError::Decimal);
        }
        if unit.is_empty() {
            return Err(IntervalError::MissingUnit);
        }
        if !unit.chars().all(char::is_alphabetic) {
            return Err(IntervalError::NotAnInterval(text.to_owned()));
        }
        let unit = match unit.to_ascii_lowercase().as_str() {
            "s" => Unit::Second,
            "m" => Unit::Minute,
            "h" => Unit::Hour,
            "d" => Unit::Day,
            _ => return Err(IntervalError::InvalidUnit(unit.to_owned())),
        };
        if negative {
            return Err(IntervalError::Negative);
        }
        match number.parse::<i64>() {
            Ok(0) => Err(IntervalError::Zero),
            Ok(count) if count <= MAX_SECONDS / unit.seconds() => Ok(Self { count, unit }),
            _ => Err(IntervalError::TooLong),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.count, self.unit.letter())
    }
}

impl From<Interval> for String {
    fn from(interval: Interval) -> Self {
        interval.to_string()
    }
}

impl TryFrom<String> for Interval {
    type Error = IntervalError;

    fn try_from(text: String) -> Result<Self, IntervalError> {
        text.parse()
    }
}

/// Errors of an interval. The messages of `MissingUnit`, `Decimal`, `Zero`, `Negative` and `InvalidUnit` are exactly
/// those in the documents on which `tests/seeds.md` is based.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntervalError {
    #[error("Missing time unit. Expected format: \"{{number}}{{unit}}\"")]
    MissingUnit,
    #[error("Decimal values are not supported")]
    Decimal,
    #[error("a time limit of zero is not allowed; `0` without a unit means no limit")]
    ZeroLimit,
    #[error("Zero interval is not allowed")]
    Zero,
    #[error("Negative intervals are not allowed")]
    Negative,
    #[error("Invalid time unit \"{0}\". Valid units are: s, m, h, d")]
    InvalidUnit(String),
    #[error("Interval cannot be empty. Expected format: \"{{number}}{{unit}}\"")]
    Empty,
    #[error("{0:?} is not an interval. Use one number and one unit (s, m, h, d), for example 90m")]
    NotAnInterval(String),
    #[error("Interval is too long; the longest is 36500d")]
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammar() {
        for (text, seconds, written) in [
            ("30s", 30, "30s"),
            ("5m", 300, "5m"),
            ("1h", 3_600, "1h"),
            ("1d", 86_400, "1d"),
            ("5M", 300, "5m"),
            ("90m", 5_400, "90m"),
            ("5 m", 300, "5m"),
            (" 5m ", 300, "5m"),
            ("005m", 300, "5m"),
            ("36500d", MAX_SECONDS, "36500d"),
        ] {
            let interval: Interval = text.parse().unwrap();
            assert_eq!(interval.duration().as_secs(), seconds, "{text}");
            assert_eq!(interval.to_string(), written);
        }
    }

    #[test]
    fn the_five_documented_errors_are_worded_exactly() {
        for (text, message) in [
            ("5", r#"Missing time unit. Expected format: "{number}{unit}""#),
            ("5.5m", "Decimal values are not supported"),
            ("0m", "Zero interval is not allowed"),
            ("-5m", "Negative intervals are not allowed"),
            ("5x", r#"Invalid time unit "x". Valid units are: s, m, h, d"#),
        ] {
            assert_eq!(text.parse::<Interval>().unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn other_invalid_intervals_are_refused() {
        use IntervalError::{Empty, InvalidUnit, NotAnInterval, TooLong};
        for (text, error) in [
            ("", Empty),
            ("   ", Empty),
            ("m", NotAnInterval("m".into())),
            ("1h30m", NotAnInterval("1h30m".into())),
            ("5m!", NotAnInterval("5m!".into())),
            ("5ms", InvalidUnit("ms".into())),
            ("5w", InvalidUnit("w".into())),
            ("99999999999999999999s", TooLong),
            ("36501d", TooLong),
            ("٥m", NotAnInterval("٥m".into())),
        ] {
            assert_eq!(text.parse::<Interval>(), Err(error), "{text}");
        }
    }
}

//! Sizes in the config: a positive whole number of bytes, or of a unit: `500MB`, `2GB`, `64MiB`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes, or a number and its unit: KB, MB, GB, TB, or KiB, MiB, GiB, TiB for powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "size", "examples" = ["500MB", "2GB", "64MiB"]))]
pub struct Size {
    count: u64,
    unit: Unit,
}

/// The written form of a unit and its number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unit(&'static str, u64);

const BARE_NUMBER: Unit = Unit("", 1);
const DECIMAL_UNITS: [Unit; 5] = [
    Unit("B", 1),
    Unit("KB", 1_000),
    Unit("MB", 1_000_000),
    Unit("GB", 1_000_000_000),
    Unit("TB", 1_000_000_000_000),
];
const BINARY_UNITS: [Unit; 4] =
    [Unit("KiB", 1 << 10), Unit("MiB", 1 << 20), Unit("GiB", 1 << 30), Unit("TiB", 1 << 40)];

/// Maximum size in bytes: larger than any disk, and small enough for sums.
const MAX_SIZE: u64 = 1_000_000 * 1_000_000_000_000;

impl Size {
    pub const fn bytes(self) -> u64 {
        self.count * self.unit.1
    }

    /// Creates a size; none for zero or a number above the limit.
    pub fn of_bytes(count: u64) -> Option<Self> {
        (1..=MAX_SIZE).contains(&count).then_some(Self { count, unit: BARE_NUMBER })
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(SizeError::Empty);
        }
        if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            return Err(SizeError::Negative);
        }
        let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, rest) = text.split_at(digits_end);
        if number.is_empty() {
            return Err(SizeError::NotASize(text.to_owned()));
        }
        if rest.starts_with(['.', ',']) {
            return Err(SizeError::NotWhole(text.to_owned()));
        }
        let written = rest.trim_start();
        if !written.chars().all(char::is_alphabetic) {
            return Err(SizeError::NotASize(text.to_owned()));
        }
        let mut units = [BARE_NUMBER].into_iter().chain(DECIMAL_UNITS).chain(BINARY_UNITS);
        let unit = units.find(|unit| unit.0.eq_ignore_ascii_case(written));
        let unit = unit.ok_or_else(|| SizeError::UnknownUnit(written.to_owned()))?;
        match number.parse::<u64>() {
            Ok(0) => Err(SizeError::Zero),
            Ok(count) if count <= MAX_SIZE / unit.1 => Ok(Self { count, unit }),
            _ => Err(SizeError::TooLarge),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.count, self.unit.0)
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}

impl TryFrom<String> for Size {
    type Error = SizeError;

    fn try_from(text: String) -> Result<Self, SizeError> {
        text.parse()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("a size cannot be empty; for example 500MB")]
    Empty,
    #[error("a size cannot be negative")]
    Negative,
    #[error("a size cannot be 0; leave the key out for its default")]
    Zero,
    #[error("{0:?} is not a whole number; use a smaller unit, for example 1500MB")]
    NotWhole(String),
    #[error("unknown unit {0:?}; use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB")]
    UnknownUnit(String),
    #[error("{0:?} is not a size; use a whole number and perhaps a unit, for example 500MB")]
    NotASize(String),
    #[error("this size is too large; the largest is 1000000TB")]
    TooLarge,
}

/// Formats a size, rounded down, with one decimal below 100 unless the unit is bytes: `12 B`, `3.4 KB`, `560 MB`.
pub fn in_words(bytes: u64) -> String {
    let unit = DECIMAL_UNITS.into_iter().rev().find(|unit| bytes >= unit.1);
    let Unit(name, factor) = unit.unwrap_or(DECIMAL_UNITS[0]);
    let (whole, tenths) = (bytes / factor, bytes % factor * 10 / factor);
    if factor == 1 || whole >= 100 { format!("{whole} {name}") } else { format!("{whole}.{tenths} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_written() {
        for (text, bytes, written) in [
            ("1", 1, "1"),
            ("1000000", 1_000_000, "1000000"),
            ("12B", 12, "12B"),
            ("500MB", 500_000_000, "500MB"),
            ("500mb", 500_000_000, "500MB"),
            (" 2 GB ", 2_000_000_000, "2GB"),
            ("64MiB", 64 << 20, "64MiB"),
            ("1kib", 1 << 10, "1KiB"),
            ("007KB", 7_000, "7KB"),
            ("1000000TB", MAX_SIZE, "1000000TB"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, written), "{text}");
            assert_eq!(written.parse::<Size>(), Ok(size), "what is written can be read");
        }
    }

    #[test]
    fn invalid_sizes_are_refused() {
        use SizeError::{Empty, Negative, NotASize, NotWhole, TooLarge, UnknownUnit, Zero};
        for (text, error) in [
            ("", Empty),
            ("  ", Empty),
            ("-1", Negative),
            ("-5GB", Negative),
            ("0", Zero),
            ("0GB", Zero),
            ("1.5GB", NotWhole("1.5GB".into())),
            ("1,5GB", NotWhole("1,5GB".into())),
            ("10 apples", UnknownUnit("apples".into())),
            ("1e9", NotASize("1e9".into())),
            ("10M", UnknownUnit("M".into())),
            ("GB", NotASize("GB".into())),
            ("+1", NotASize("+1".into())),
            ("- 1", NotASize("- 1".into())),
            ("0x10", NotASize("0x10".into())),
            ("1GB2", NotASize("1GB2".into())),
            ("٥GB", NotASize("٥GB".into())),
            ("1000001TB", TooLarge),
            ("18446744073709551616", TooLarge),
            ("99999999999999999999999TB", TooLarge),
        ] {
            assert_eq!(text.parse::<Size>(), Err(error), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_with_a_suitable_unit() {
        for (bytes, words) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 KB"),
            (3_450, "3.4 KB"),
            (560_999_999, "560 MB"),
            (1_234_000_000, "1.2 GB"),
            (u64::MAX, "18446744 TB"),
        ] {
            assert_eq!(in_words(bytes), words);
        }
    }
}

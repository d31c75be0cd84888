//! Percentages: a whole number in the config (`20%`), and tenths in reports of programs.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A percentage; in the config, a whole number from 0% to 100%. The value is in tenths of a percent.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "percent", "examples" = ["20%"]))]
pub struct Percent(u32);

impl Percent {
    pub const ZERO: Self = Self(0);
    pub const ALL: Self = Self(1_000);
    /// Largest percentage; a larger one is cut.
    const MAX: Self = Self(100_000);

    /// Creates a percentage of a part of 1, for example 0.2; none if the number is negative or not a number.
    pub fn of_part(part: f64) -> Option<Self> {
        let tenths = (part * 1_000.0).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the number is in the range"
        )]
        (tenths >= 0.0).then(|| Self(tenths.min(f64::from(Self::MAX.0)) as u32))
    }

    pub const fn of_tenths(tenths: u32) -> Self {
        if tenths > Self::MAX.0 { Self::MAX } else { Self(tenths) }
    }

    pub const fn tenths(self) -> u32 {
        self.0
    }

    /// Returns the number of percents.
    pub fn number(self) -> f64 {
        f64::from(self.0) / 10.0
    }

    /// Returns what this percentage leaves of 100%.
    #[must_use]
    pub const fn rest(self) -> Self {
        Self(Self::ALL.0.saturating_sub(self.0))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.number())
    }
}

impl FromStr for Percent {
    type Err = PercentError;

    fn from_str(text: &str) -> Result<Self, PercentError> {
        let refused = || PercentError(text.to_owned());
        let number = text.trim().strip_suffix('%').ok_or_else(refused)?.trim_end();
        let is_whole = !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit());
        let number: u32 =
            if is_whole { number.parse().map_err(|_| refused())? } else { return Err(refused()) };
        if number <= 100 { Ok(Self(number * 10)) } else { Err(refused()) }
    }
}

impl From<Percent> for String {
    fn from(percent: Percent) -> Self {
        percent.to_string()
    }
}

impl TryFrom<String> for Percent {
    type Error = PercentError;

    fn try_from(text: String) -> Result<Self, PercentError> {
        text.parse()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a percentage; use a whole number from 0% to 100%, for example 20%")]
pub struct PercentError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_with_a_percent_sign_are_read() {
        for (text, tenths) in [("20%", 200), ("20 %", 200), (" 0% ", 0), ("100%", 1_000), ("007%", 70)] {
            assert_eq!(text.parse(), Ok(Percent(tenths)), "{text:?}");
        }
        for text in ["", "%", "20", "0.2", "2.5%", "-1%", "+1%", "101%", "99999999999%", "20%%", "٥%", "a%"]
        {
            assert!(text.parse::<Percent>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_percentage_is_shown_with_at_most_one_decimal() {
        for (part, shown) in [(0.0, "0%"), (0.8, "80%"), (0.8035, "80.4%"), (1.02, "102%"), (1e9, "10000%")] {
            assert_eq!(Percent::of_part(part).unwrap().to_string(), shown);
        }
        assert_eq!([-0.1, f64::NAN].map(Percent::of_part), [None, None]);
        assert_eq!((Percent(200).rest(), Percent(1_200).rest()), (Percent(800), Percent(0)));
    }
}

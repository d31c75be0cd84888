//! Parsers for numbers on the command line.

/// Returns a parser for numbers in this range; its error names the range.
pub(super) fn between(
    min: u32,
    max: u32,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ if max == u32::MAX => Err(format!("expected a whole number, {min} or more")),
        _ => Err(format!("expected a whole number from {min} to {max}")),
    }
}

/// Parses a number of seconds.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a whole number of seconds, without a unit".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_expected_number() {
        let any = between(1, u32::MAX);
        assert_eq!(any("7"), Ok(7));
        for wrong in ["foo", "", "0", "-1", "1.5", "99999999999"] {
            assert_eq!(any(wrong).unwrap_err(), "expected a whole number, 1 or more", "{wrong}");
        }
        assert_eq!(between(1, 10)("11").unwrap_err(), "expected a whole number from 1 to 10");
        assert_eq!(seconds("30"), Ok(30));
        assert_eq!(seconds("30s").unwrap_err(), "expected a whole number of seconds, without a unit");
    }
}

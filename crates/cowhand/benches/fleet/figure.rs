//! One measured figure, its limit and its target.

/// What a figure has to reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// At most this multiple of the limit.
    TimesLimit(f64),
}

/// Figure with its name, unit, limit and target.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// `None` if cowhand refused the work.
    pub(crate) value: Option<f64>,
    pub(crate) limit: Option<f64>,
    pub(crate) target: Option<Target>,
    pub(crate) note: Option<String>,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        assert!(value.is_finite(), "a figure is a number");
        Self { name: name.into(), unit, value: Some(value), limit: None, target: None, note: None }
    }

    /// Returns a figure of work that cowhand refused.
    pub(crate) fn refused(name: impl Into<String>, unit: &'static str, why: &str) -> Self {
        Self { name: name.into(), unit, value: None, limit: None, target: None, note: Some(why.to_owned()) }
    }

    pub(crate) fn limit(self, limit: f64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    pub(crate) fn at_most(self, most: f64) -> Self {
        Self { target: Some(Target::AtMost(most)), ..self }
    }

    pub(crate) fn at_least(self, least: f64) -> Self {
        Self { target: Some(Target::AtLeast(least)), ..self }
    }

    pub(crate) fn times_limit(self, times: f64) -> Self {
        Self { target: Some(Target::TimesLimit(times)), ..self }
    }

    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }

    /// Returns the figure as a multiple of the limit.
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.value? / self.limit.filter(|limit| *limit > 0.0)?)
    }

    /// Returns how far the figure is from its target: 1 or less if it is met, 2 if it is missed by half.
    pub(crate) fn distance(&self) -> Option<f64> {
        match self.target? {
            Target::AtMost(most) if most <= 0.0 => {
                self.value.map(|value| if value <= 0.0 { 1.0 } else { f64::INFINITY })
            }
            Target::AtMost(most) => Some(self.value? / most),
            Target::AtLeast(least) => Some(least / self.value?),
            Target::TimesLimit(times) => Some(self.ratio()? / times),
        }
    }

    pub(crate) fn result(&self) -> String {
        match self.distance() {
            Some(distance) if distance <= 1.0 => "met".to_owned(),
            Some(distance) if distance.is_finite() => format!("missed {distance:.2}×"),
            Some(_) => "missed".to_owned(),
            None if self.value.is_none() => "refused".to_owned(),
            None => String::new(),
        }
    }

    pub(crate) fn target_text(&self) -> String {
        match self.target {
            None => String::new(),
            Some(Target::AtMost(most)) => format!("≤ {}", with_unit(most, self.unit)),
            Some(Target::AtLeast(least)) => format!("≥ {}", with_unit(least, self.unit)),
            Some(Target::TimesLimit(times)) => format!("≤ {}× limit", number(times)),
        }
    }
}

pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", number(value))
}

/// Formats a number with about three digits, and thousands with commas.
pub(crate) fn number(value: f64) -> String {
    if value < 0.0 {
        return format!("-{}", number(-value));
    }
    match value {
        size if size >= 100.0 || size.fract() == 0.0 => thousands(size.round() as usize),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub(crate) fn thousands(value: usize) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

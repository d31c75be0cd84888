//! Percentiles of samples.

/// Samples of one measurement, sorted.
#[derive(Debug)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn of(mut samples: Vec<f64>) -> Self {
        assert!(!samples.is_empty(), "a measurement without samples");
        samples.sort_by(f64::total_cmp);
        Self(samples)
    }

    pub(crate) fn p50(&self) -> f64 {
        self.at(0.5)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.at(0.99)
    }

    fn at(&self, share: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * share).round() as usize]
    }
}

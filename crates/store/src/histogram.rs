//! Histograms for Prometheus.

/// Counts of values by upper bound.
#[derive(Debug, Clone)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub const fn bounds(&self) -> &'static [f64] {
        self.bounds
    }

    /// Returns one count for each bound, and one for larger values. Each value is in one count only.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    pub const fn sum(&self) -> f64 {
        self.sum
    }

    pub fn observe(&mut self, value: f64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[bucket] += 1;
        self.sum += value;
    }
}

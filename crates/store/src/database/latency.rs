//! Latency of reads and writes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::Store;
use crate::histogram::Histogram;

/// Upper bounds of the histograms, in seconds.
const LATENCY_BOUNDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

#[derive(Debug, Clone)]
pub(crate) struct Latency {
    reads: Arc<Mutex<Histogram>>,
    writes: Arc<Mutex<Histogram>>,
}

impl Latency {
    pub(crate) fn new() -> Self {
        let [reads, writes] = [(), ()].map(|()| Arc::new(Mutex::new(Histogram::new(LATENCY_BOUNDS))));
        Self { reads, writes }
    }

    pub(crate) fn record_read(&self, started_at: Instant) {
        observe(&self.reads, started_at);
    }

    pub(crate) fn record_write(&self, started_at: Instant) {
        observe(&self.writes, started_at);
    }
}

fn observe(histogram: &Mutex<Histogram>, started_at: Instant) {
    let seconds = started_at.elapsed().as_secs_f64();
    histogram.lock().unwrap_or_else(PoisonError::into_inner).observe(seconds);
}

impl Store {
    /// Returns the histograms of reads and writes since the store was opened.
    pub fn latency(&self) -> [Histogram; 2] {
        [&self.latency.reads, &self.latency.writes]
            .map(|histogram| histogram.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

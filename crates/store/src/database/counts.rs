//! Counts of statements and of the rows that they return or change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Store;

/// Counts since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementCounts {
    pub statements: u64,
    /// Rows that the statements returned or changed.
    pub rows: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct StatementCounter(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    statements: AtomicU64,
    rows: AtomicU64,
}

impl StatementCounter {
    pub(crate) fn add(&self, rows: usize) {
        self.0.statements.fetch_add(1, Ordering::Relaxed);
        self.0.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

impl Store {
    pub fn statement_counts(&self) -> StatementCounts {
        let Counters { statements, rows } = &*self.counter.0;
        StatementCounts { statements: statements.load(Ordering::Relaxed), rows: rows.load(Ordering::Relaxed) }
    }
}

//! How long the output of a job is and how it ends, so that a page that looks again reads only what is new.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cowhand_core::id::JobId;

use super::Pages;
use super::output;
use crate::api::Problem;

#[derive(Debug, Clone, Default)]
pub(super) struct Tails(Arc<Mutex<HashMap<JobId, Tail>>>);

#[derive(Debug, Clone, Default)]
pub(super) struct Tail {
    /// How many lines there are.
    pub(super) lines: u64,
    /// The last one that says something to a person.
    pub(super) said: String,
}

/// More jobs than this are not remembered.
const MOST: usize = 500;

impl Pages {
    pub(super) async fn tail(&self, job: &JobId) -> Result<Tail, Problem> {
        let known = self.tails.0.lock().unwrap_or_else(PoisonError::into_inner).get(job).cloned();
        let mut tail = known.unwrap_or_default();
        let mut lines = self.client.lines(&format!("jobs/{job}/output?after={}", tail.lines)).await?;
        let mut last = None;
        while let Some(line) = lines.next().await? {
            tail.lines += 1;
            if let Some(said) = output::in_short(&line) {
                last = Some(said);
            }
        }
        if let Some(said) = last {
            tail.said = said;
        }
        let mut all = self.tails.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(job.clone(), tail.clone());
        Ok(tail)
    }
}

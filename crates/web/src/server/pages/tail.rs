//! The length and the last line of a job's output. They are cached, so that a page that is loaded again reads only new
//! lines.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cowhand_core::id::JobId;

use super::Pages;
use super::output;
use crate::api::ApiProblem;

#[derive(Debug, Clone, Default)]
pub(super) struct TailCache(Arc<Mutex<HashMap<JobId, Tail>>>);

#[derive(Debug, Clone, Default)]
pub(super) struct Tail {
    /// Number of lines.
    pub(super) lines: u64,
    /// Last line of interest to a person.
    pub(super) last_line: String,
}

/// Maximum number of jobs in the cache.
const MAX_CACHED_TAILS: usize = 500;

impl Pages {
    pub(super) async fn tail(&self, job: &JobId) -> Result<Tail, ApiProblem> {
        let cached = self.tails.0.lock().unwrap_or_else(PoisonError::into_inner).get(job).cloned();
        let mut tail = cached.unwrap_or_default();
        let mut lines = self.client.lines(&format!("jobs/{job}/output?after={}", tail.lines)).await?;
        let mut last = None;
        while let Some(line) = lines.next().await? {
            tail.lines += 1;
            if let Some(text) = output::summarize_line(&line) {
                last = Some(text);
            }
        }
        if let Some(line) = last {
            tail.last_line = line;
        }
        let mut tails = self.tails.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tails.len() >= MAX_CACHED_TAILS {
            tails.clear();
        }
        tails.insert(job.clone(), tail.clone());
        Ok(tail)
    }
}

//! The length and the last line of a job's output. They are cached, so that a page that is loaded again reads only new
//! lines.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use cowhand_core::id::JobId;

use super::Pages;
use super::output;
use cowhand_web::api::{ApiProblem, Code, Lines};

#[derive(Debug, Clone, Default)]
pub(super) struct TailCache(Arc<Mutex<HashMap<JobId, Tail>>>);

#[derive(Debug, Clone, Default)]
pub(super) struct Tail {
    /// Number of lines.
    pub(super) lines: u64,
    /// Last line that [`output::summarize_line`] shows to a person, shortened; empty if there is none.
    pub(super) last_line: String,
}

/// Maximum number of new lines that are searched for the last line to show. To summarize a line takes much longer than
/// to count it.
const MAX_SUMMARIZED_LINES: usize = 200;
/// Maximum number of jobs in the cache.
const MAX_CACHED_TAILS: usize = 500;

impl Pages {
    /// Requests output of a job. Returns none if all its output is on other nodes.
    pub(super) async fn output_lines(&self, address: &str) -> Result<Option<Lines>, ApiProblem> {
        match self.client.lines(address).await {
            Ok(lines) => Ok(Some(lines)),
            Err(problem) if problem.code == Code::Conflict => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    pub(super) async fn tail(&self, job: &JobId) -> Result<Tail, ApiProblem> {
        let cached = self.tails.0.lock().unwrap_or_else(PoisonError::into_inner).get(job).cloned();
        let mut tail = cached.unwrap_or_default();
        let Some(mut lines) = self.output_lines(&format!("jobs/{job}/output?after={}", tail.lines)).await?
        else {
            return Ok(tail);
        };
        let mut last_lines = VecDeque::new();
        while let Some(line) = lines.next().await? {
            tail.lines += 1;
            if last_lines.len() == MAX_SUMMARIZED_LINES {
                last_lines.pop_front();
            }
            last_lines.push_back(line);
        }
        if let Some(line) = last_lines.iter().rev().find_map(|line| output::summarize_line(line)) {
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

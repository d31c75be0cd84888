//! The table of firings that `why` prints.

use cowhand_core::duration;
use cowhand_core::job::JobStatus;
use cowhand_core::schedule::FiringOutcome;
use jiff::Timestamp;

use crate::cli::jobs::status_word;
use crate::cli::print::{self, Table};
use cowhand_web::api::{FiringJob, FiringView};

pub(super) fn table(firings: &[FiringView], now: Timestamp) -> Table {
    let mut table = Table::new(&["DUE", "OUTCOME", "WHY", "JOB"]);
    firings.iter().flat_map(|firing| rows(firing, now)).for_each(|row| table.row(row));
    table
}

/// Returns one row for the firing, which also shows its first job, and one row for each further job. While the firing
/// is still being prepared, its first jobs may have ended; then each job has a row of its own.
fn rows(firing: &FiringView, now: Timestamp) -> Vec<[String; 4]> {
    let why = print::one_line(&firing.why, 500);
    let due = duration::relative_to_now(now, firing.due);
    let is_preparing = firing.outcome == FiringOutcome::Preparing.as_str();
    let first_job = firing.jobs.split_first().filter(|_| !is_preparing);
    let (first_row, further_jobs) = if let Some((first, further_jobs)) = first_job {
        let error = first_error_line(first).map(|error| format!("{why}; {error}"));
        (
            [due, status_word(first.status, first.unsettled), error.unwrap_or(why), first.id.to_string()],
            further_jobs,
        )
    } else {
        // The first job may have been pruned.
        let job = firing.job.as_ref().filter(|_| firing.jobs.is_empty());
        let job = job.map(ToString::to_string).unwrap_or_default();
        ([due, firing.outcome.clone(), why, job], &firing.jobs[..])
    };
    let further_rows = further_jobs.iter().map(|job| {
        let error = first_error_line(job).unwrap_or_default();
        [String::new(), status_word(job.status, job.unsettled), error, job.id.to_string()]
    });
    std::iter::once(first_row).chain(further_rows).collect()
}

/// Formats the first line of the error of a job that failed.
fn first_error_line(job: &FiringJob) -> Option<String> {
    let error = job.error.as_deref().filter(|_| job.status == JobStatus::Failed)?;
    Some(format!("the job failed: {}", print::one_line(error.lines().next()?, 300)))
}

#[cfg(test)]
mod tests {
    use cowhand_core::trigger::Occurrence;

    use super::*;

    fn job(id: &str, status: JobStatus) -> FiringJob {
        FiringJob {
            id: id.parse().unwrap(),
            status,
            exit_reason: None,
            error: None,
            unsettled: false,
            message: None,
        }
    }

    #[test]
    fn outcome_of_a_firing_that_is_being_prepared_is_not_that_of_its_job() {
        let now = Timestamp::UNIX_EPOCH;
        let (one, two) = ("job-2026-01-05-aaaaaa", "job-2026-01-05-bbbbbb");
        let jobs = vec![job(one, JobStatus::Completed), job(two, JobStatus::Running)];
        for (outcome, jobs, expected) in [
            ("preparing", jobs.clone(), vec![("preparing", ""), ("completed", one), ("running", two)]),
            ("ran", jobs, vec![("completed", one), ("running", two)]),
            ("ran", Vec::new(), vec![("ran", one)]),
        ] {
            let firing = FiringView {
                key: Occurrence::Manual("1").key(0),
                due: now,
                decided_at: now,
                outcome: outcome.to_owned(),
                reason: None,
                why: "because".to_owned(),
                note: None,
                job: Some(one.parse().unwrap()),
                jobs,
            };
            let rows = rows(&firing, now);
            let found: Vec<_> = rows.iter().map(|row| (row[1].as_str(), row[3].as_str())).collect();
            assert_eq!(found, expected, "{outcome}");
            assert_eq!(rows.iter().filter(|row| row[2] == "because").count(), 1, "{outcome}");
        }
    }
}

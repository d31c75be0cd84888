//! Integrity check: every page of an SQLite file, every job and schedule, and the newest firings of each schedule.

use super::database::sqlite::SqliteConnection;
use super::{Database, JobFilter, Store, StoreError};

/// Number of jobs that a check reads at a time, and number of firings that a check reads for each schedule.
const CHECK_PAGE_ROWS: u32 = 1_000;

impl Store {
    /// Checks the store. A damaged page, or a row that cowhand cannot read, is an error.
    pub async fn check_integrity(&self) -> Result<(), StoreError> {
        if let Database::Sqlite { readers, .. } = &self.database {
            let check = |connection: &mut SqliteConnection| {
                let results = connection.column::<String>("pragma integrity_check(3)");
                results.map_err(|error| StoreError::statement("integrity_check", error))
            };
            let results = readers.run_long(check).await?;
            if results != ["ok"] {
                return Err(StoreError::Damaged(results.join("; ")));
            }
        }
        self.snapshot().await?;
        for schedule in self.schedules().await? {
            self.ledger(schedule.id, CHECK_PAGE_ROWS).await?;
        }
        let mut filter = JobFilter::default();
        loop {
            let jobs = self.jobs(filter.clone(), CHECK_PAGE_ROWS).await?;
            let Some(last) = jobs.last().filter(|_| jobs.len() == CHECK_PAGE_ROWS as usize) else {
                return Ok(());
            };
            filter.after = Some(last.id().clone());
        }
    }
}

//! Work sources from outside: the registry, the folder of files, the sources of agents, and a custom one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod crash;
mod example;
mod files;
mod hostile;
mod races;
mod registry;
mod sources;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cowhand::clock::Clock;
use cowhand::work::files::FilesWorkSource;
use cowhand::work::{Claimant, WorkSource};
use cowhand_core::work::{
    ClaimFailureReason, ClaimResult, FetchOptions, WorkItem, WorkItemId, WorkOutcome, WorkResult,
};
use jiff::Timestamp;
use tempfile::TempDir;

/// Returns the time this many seconds after an arbitrary moment.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_780_000_000 + seconds).unwrap()
}

fn id(text: &str) -> WorkItemId {
    text.parse().unwrap()
}

/// Returns a claimant with claims that last for an hour.
fn claimant(holder: &str) -> Claimant {
    Claimant { fleet: "home".to_owned(), holder: holder.to_owned(), until: at(3_600) }
}

fn result(outcome: WorkOutcome, summary: &str) -> WorkResult {
    WorkResult { outcome, summary: summary.to_owned(), details: None, artifacts: Vec::new(), error: None }
}

#[track_caller]
fn refusal(claim: &ClaimResult) -> (ClaimFailureReason, &str) {
    match claim {
        ClaimResult::Refused { reason, message } => (*reason, message.as_deref().unwrap_or_default()),
        ClaimResult::Claimed(item) => panic!("{} was claimed", item.id),
    }
}

/// Folder of tasks, with a clock that stands at `at(0)`.
struct Tasks {
    folder: TempDir,
    clock: Clock,
}

impl Tasks {
    fn new(files: &[(&str, &str)]) -> Self {
        let tasks = Self { folder: tempfile::tempdir().unwrap(), clock: Clock::test(at(0)) };
        for (name, text) in files {
            tasks.write(name, text);
        }
        tasks
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.file(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap()
    }

    fn source(&self) -> FilesWorkSource {
        FilesWorkSource::new(self.path(), self.clock.clone())
    }

    fn shared(&self) -> Arc<dyn WorkSource> {
        Arc::new(self.source())
    }
}

async fn list(source: &dyn WorkSource, options: FetchOptions) -> Vec<WorkItem> {
    source.fetch_available_work(&options).await.unwrap().items
}

async fn names(source: &dyn WorkSource) -> Vec<String> {
    let items = list(source, FetchOptions::default()).await;
    items.into_iter().map(|item| item.id.external_id().to_owned()).collect()
}

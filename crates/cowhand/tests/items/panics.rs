//! A custom work source that panics at the first call of each operation.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use cowhand::fleet::{Fleet, Options};
use cowhand::work::files::FilesWorkSource;
use cowhand::work::{Claimant, SourceRegistry, WorkSource, WorkSourceError};
use cowhand_core::event::Fact;
use cowhand_core::job::JobStatus;
use cowhand_core::work::{
    ClaimResult, FetchOptions, FetchResult, ReleaseOptions, ReleaseResult, WorkItem, WorkItemId, WorkResult,
};

use crate::{Scene, jobs, stop, until};

#[derive(Debug)]
struct Touchy {
    files: Arc<dyn WorkSource>,
    asked: Arc<Mutex<HashSet<&'static str>>>,
}

impl Touchy {
    fn first_time(&self, what: &'static str) {
        // The panic is after the lock is released, so that the next call can lock it.
        let is_new = self.asked.lock().unwrap().insert(what);
        assert!(!is_new, "nobody has asked me to {what} before");
    }
}

#[async_trait]
impl WorkSource for Touchy {
    fn source_type(&self) -> &str {
        self.files.source_type()
    }

    async fn fetch_available_work(&self, options: &FetchOptions) -> Result<FetchResult, WorkSourceError> {
        self.first_time("fetch");
        self.files.fetch_available_work(options).await
    }

    async fn claim_work(&self, item: &WorkItemId, by: &Claimant) -> Result<ClaimResult, WorkSourceError> {
        self.first_time("claim");
        self.files.claim_work(item, by).await
    }

    async fn complete_work(
        &self,
        item: &WorkItemId,
        result: &WorkResult,
        by: &Claimant,
    ) -> Result<(), WorkSourceError> {
        self.first_time("complete");
        self.files.complete_work(item, result, by).await
    }

    async fn release_work(
        &self,
        item: &WorkItemId,
        options: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        self.first_time("release");
        self.files.release_work(item, options, by).await
    }

    async fn get_work(&self, item: &WorkItemId) -> Result<Option<WorkItem>, WorkSourceError> {
        self.files.get_work(item).await
    }
}

/// The firing is still prepared, the item is worked on once, and the result is reported in the end.
#[tokio::test]
async fn work_source_is_called_again_after_panic() {
    let scene = Scene::new("cat > /dev/null", "", "type: interval, interval: 1s, jitter: 0, prompt: Work.");
    scene.task("a", "");
    let asked = Arc::new(Mutex::new(HashSet::new()));
    let mut sources = SourceRegistry::empty();
    let all = Arc::clone(&asked);
    let touchy = move |config: &_, setting: &_| {
        let files = FilesWorkSource::from_config(config, setting)?;
        Ok(Arc::new(Touchy { files, asked: Arc::clone(&all) }) as Arc<dyn WorkSource>)
    };
    sources.register("files", touchy).unwrap();
    let options = Options::of(scene.path("cowhand.yaml"), env!("CARGO_BIN_EXE_cowhand"));
    let fleet = Fleet::start(Options { work_sources: sources, ..options }).await.unwrap();
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobCompleted { .. })).await;
    while scene.status("a") != "completed" {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let jobs = jobs(&fleet).await;
    assert_eq!(jobs.iter().map(cowhand_core::job::Job::status).collect::<Vec<_>>(), [JobStatus::Completed]);
    assert_eq!(scene.read("a").matches("## Result: success").count(), 1);
    stop(fleet).await;
    let mut asked: Vec<_> = asked.lock().unwrap().iter().copied().collect();
    asked.sort_unstable();
    assert_eq!(asked, ["claim", "complete", "fetch", "release"]);
}

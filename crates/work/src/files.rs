//! `type: files`: a folder of Markdown files with YAML front matter, one for each item.
//!
//! The `status` of a file is the queue state of the item and is stored nowhere else, so a person can change it with an
//! editor. A process that changes a file holds a lock on the folder, reads the file again under the lock, and replaces
//! it as a whole. So exactly one of many processes claims an item, and no reader sees an incomplete file.

mod folder;
mod front_matter;
mod item;
mod page;
mod report;
mod skipped_count;
mod transitions;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use cowhand_core::work::{
    ClaimResult, FetchOptions, FetchResult, ReleaseOptions, ReleaseResult, WorkItem, WorkItemId, WorkResult,
};
use cowhand_core::work_source::ConfiguredSource;

use self::folder::{Folder, MAX_CLAIMED_ITEM_BYTES};
use self::skipped_count::KnownFiles;
use self::transitions::ItemError;
use super::context::SourceContext;
use super::{Claimant, QueueState, SourceFinding, StatedClaimant, WorkSource, WorkSourceError};
use cowhand_system::beneath::NotOpened;
use cowhand_system::clock::Clock;

pub const NAME: &str = "files";

#[derive(Debug, Clone)]
pub struct FilesWorkSource(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: Folder,
    clock: Clock,
    /// Warnings that were logged. Each warning is logged once.
    warned: Mutex<HashSet<Skipped>>,
    /// Files that earlier calls of [`Self::count_skipped`] have read.
    known: Mutex<KnownFiles>,
}

/// A Markdown file in the folder that is not an item.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Skipped {
    pub file: PathBuf,
    /// Reason, which continues a sentence that begins with the file name: "is larger than 1 MiB".
    pub reason: String,
}

impl FilesWorkSource {
    pub fn new(folder: impl Into<PathBuf>, clock: Clock) -> Self {
        Self::with_writable(folder, Vec::new(), clock)
    }

    /// Creates a source that does not follow a link on the path of its folder if the link is in one of the `writable`
    /// directories.
    fn with_writable(folder: impl Into<PathBuf>, writable: Vec<PathBuf>, clock: Clock) -> Self {
        let folder = Folder::new(folder.into(), writable);
        Self(Arc::new(Inner { folder, clock, warned: Mutex::default(), known: Mutex::default() }))
    }

    /// Creates a source from its config, for the registry. The folder may be created later, so its existence is checked
    /// when it is used.
    pub fn from_config(
        config: &ConfiguredSource,
        context: &SourceContext,
    ) -> Result<Arc<dyn WorkSource>, WorkSourceError> {
        let ConfiguredSource::Files { path, .. } = config else {
            return Err(WorkSourceError::Config(format!(
                "use `type: files` with a `path` to configure `{NAME}`"
            )));
        };
        let (folder, writable) = (context.base.join(path), context.writable.clone());
        Ok(Arc::new(Self::with_writable(folder, writable, context.clock.clone())))
    }

    pub fn folder(&self) -> &Path {
        self.0.folder.path()
    }

    /// Returns every Markdown file that is not an item, with the reason. Hidden files and `README.md` do not count.
    pub async fn skipped(&self) -> Result<Vec<Skipped>, WorkSourceError> {
        self.blocking(|files| {
            let mut skipped = Vec::new();
            files.for_each_file(|file| skipped.extend(file.err()))?;
            skipped.sort();
            Ok(skipped)
        })
        .await
    }

    /// Runs `work` on a blocking thread, because disk access and locks must not block the threads of the async runtime.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, WorkSourceError> + Send + 'static,
    ) -> Result<T, WorkSourceError> {
        let inner = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.map_err(|error| WorkSourceError::Other(error.into()))?
    }
}

#[async_trait]
impl WorkSource for FilesWorkSource {
    fn source_type(&self) -> &str {
        NAME
    }

    async fn fetch_available_work(&self, options: &FetchOptions) -> Result<FetchResult, WorkSourceError> {
        let options = options.clone();
        self.blocking(move |files| files.fetch(&options)).await
    }

    async fn claim_work(&self, item: &WorkItemId, by: &Claimant) -> Result<ClaimResult, WorkSourceError> {
        let (item, by) = (item.clone(), by.clone());
        self.blocking(move |files| Ok(files.claim(&item, &by).unwrap_or_else(ItemError::refusal))).await
    }

    async fn renew_claim(&self, item: &WorkItemId, by: &Claimant) -> Result<(), WorkSourceError> {
        let (item, by) = (item.clone(), by.clone());
        self.blocking(move |files| files.renew(&item, &by)).await
    }

    async fn complete_work(
        &self,
        item: &WorkItemId,
        result: &WorkResult,
        by: &Claimant,
    ) -> Result<(), WorkSourceError> {
        let (item, result, by) = (item.clone(), result.clone(), by.clone());
        self.blocking(move |files| files.complete(&item, &result, &by)).await
    }

    async fn release_work(
        &self,
        item: &WorkItemId,
        options: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        let (item, options, by) = (item.clone(), options.clone(), by.clone());
        self.blocking(move |files| files.release(&item, &options, &by)).await
    }

    async fn get_work(&self, item: &WorkItemId) -> Result<Option<WorkItem>, WorkSourceError> {
        let item = item.clone();
        self.blocking(move |files| match files.read_item(&item, MAX_CLAIMED_ITEM_BYTES) {
            Ok((entry, ..)) => Ok(Some(entry.item)),
            Err(ItemError::Missing(_)) => Ok(None),
            Err(error) => Err(error.into()),
        })
        .await
    }

    async fn moved(&self, item: &WorkItemId, by: &Claimant) -> Result<Option<WorkItemId>, WorkSourceError> {
        let (item, by) = (item.clone(), by.clone());
        self.blocking(move |files| files.moved(&item, &by)).await
    }

    async fn queue_state(&self, item: &WorkItemId) -> Result<QueueState, WorkSourceError> {
        let item = item.clone();
        self.blocking(move |files| files.queue_state(&item)).await
    }

    fn stated_claimant(&self, item: &WorkItem) -> Option<StatedClaimant> {
        let (fleet, holder) = item.metadata.get("claimed_by")?.as_str()?.split_once('/')?;
        Some(StatedClaimant { fleet: fleet.to_owned(), holder: holder.to_owned() })
    }

    async fn offer_work(
        &self,
        item: &WorkItemId,
        options: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        let (item, options, by) = (item.clone(), options.clone(), by.clone());
        self.blocking(move |files| files.offer(&item, &options, &by)).await
    }

    async fn skipped(&self) -> Result<usize, WorkSourceError> {
        self.blocking(Inner::count_skipped).await
    }

    async fn check(&self) -> Vec<SourceFinding> {
        let findings = self.blocking(|files| Ok(files.findings())).await;
        findings.unwrap_or_else(|error| vec![SourceFinding::of_error("folder", &error)])
    }
}

impl Inner {
    /// Explains why the folder cannot be opened, and what to do.
    fn unusable(&self, error: NotOpened) -> WorkSourceError {
        let path = self.folder.path().to_owned();
        let error = match error {
            NotOpened::Link => io::Error::other(
                "a symbolic link on its path lies where an agent may write, and is not followed; set `path` to the real \
                 folder",
            ),
            error => error.into(),
        };
        WorkSourceError::Io { path, error }
    }

    fn findings(&self) -> Vec<SourceFinding> {
        let path = self.folder.path();
        match self.folder.root() {
            Ok(_) => {}
            Err(NotOpened::Missing) => {
                let help = format!("does not exist; create it with `mkdir -p {}`", path.display());
                return vec![SourceFinding::problem("folder", help)];
            }
            Err(error) => return vec![SourceFinding::of_error("folder", &self.unusable(error))],
        }
        let mut findings = vec![match tempfile::tempfile_in(path) {
            Ok(_) => SourceFinding::good("folder", "can be written"),
            Err(error) => SourceFinding::problem("folder", format!("cannot be written: {error}")),
        }];
        let mut skipped = Vec::new();
        if let Err(error) = self.for_each_file(|file| skipped.extend(file.err())) {
            findings.push(SourceFinding::of_error("folder", &error));
        }
        skipped.sort();
        findings.extend(skipped.into_iter().map(|Skipped { file, reason }| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            SourceFinding::warning(name, format!("is not a work item: the file {reason}"))
        }));
        findings
    }
}

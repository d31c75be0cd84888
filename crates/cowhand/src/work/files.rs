//! `type: files`: a folder of Markdown files with YAML front matter, one for each item.
//!
//! The `status` of a file is the item's state, and the file is the only place where it stands: a person with an editor
//! is as good as a program. Whoever changes one holds a lock on the folder, reads the file again under it, and replaces
//! it as a whole, so of many processes exactly one takes an item, and nobody ever sees half a file.

mod folder;
mod front_matter;
mod item;
mod page;
mod report;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use cowhand_core::config::shape;
use cowhand_core::work::{
    ClaimFailureReason, ClaimResult, FetchOptions, FetchResult, ReleaseOptions, ReleaseResult, WorkItem,
    WorkItemId, WorkOutcome, WorkResult,
};
use jiff::Timestamp;

use self::folder::{Folder, MOST_BYTES, MOST_BYTES_CLAIMED, Unreadable, modified};
use self::front_matter::Document;
use self::item::{Entry, Status};
use self::page::Page;
use super::registry::Setting;
use super::{Claimant, WorkSource, WorkSourceError};
use crate::clock::Clock;

pub const NAME: &str = "files";

/// A person who saves the file again and again is not waited for.
const MOST_TRIES: usize = 5;

#[derive(Debug, Clone)]
pub struct Files(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: Folder,
    clock: Clock,
    /// Each is said once, not at every look.
    warned: Mutex<HashSet<Skipped>>,
}

/// A Markdown file in the folder that is no item.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Skipped {
    pub file: PathBuf,
    /// Reads on after the file's name: "is larger than 1 MiB".
    pub reason: String,
}

impl Files {
    pub fn new(folder: impl Into<PathBuf>, clock: Clock) -> Self {
        let folder = Folder::new(folder.into());
        Self(Arc::new(Inner { folder, clock, warned: Mutex::default() }))
    }

    /// As the registry makes it. Whether the folder is there is asked when it is needed: it may be made later.
    pub fn from_config(
        config: &shape::WorkSource,
        setting: &Setting,
    ) -> Result<Arc<dyn WorkSource>, WorkSourceError> {
        let shape::WorkSource::Files { path, .. } = config else {
            return Err(WorkSourceError::Config(format!("`{NAME}` is made by `type: files`, with a `path`")));
        };
        Ok(Arc::new(Self::new(setting.base.join(path), setting.clock.clone())))
    }

    pub fn folder(&self) -> &Path {
        self.0.folder.path()
    }

    /// Every Markdown file that cannot be an item, with the reason.
    pub async fn skipped(&self) -> Result<Vec<Skipped>, WorkSourceError> {
        self.blocking(|files| {
            let mut skipped = Vec::new();
            files.each(|looked| skipped.extend(looked.err()))?;
            skipped.sort();
            Ok(skipped)
        })
        .await
    }

    /// Disks and locks make a thread wait, which the threads of the async runtime must not.
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
impl WorkSource for Files {
    fn source_type(&self) -> &str {
        NAME
    }

    async fn fetch_available_work(&self, options: &FetchOptions) -> Result<FetchResult, WorkSourceError> {
        let options = options.clone();
        self.blocking(move |files| files.fetch(&options)).await
    }

    async fn claim_work(&self, item: &WorkItemId, by: &Claimant) -> Result<ClaimResult, WorkSourceError> {
        let (item, by) = (item.clone(), by.clone());
        self.blocking(move |files| Ok(files.claim(&item, &by).unwrap_or_else(Trouble::refusal))).await
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
        self.blocking(move |files| match files.look(&item, MOST_BYTES_CLAIMED) {
            Ok((entry, ..)) => Ok(Some(entry.item)),
            Err(Trouble::Gone(_)) => Ok(None),
            Err(trouble) => Err(trouble.into()),
        })
        .await
    }
}

/// Why one item cannot be read or changed.
#[derive(Debug)]
enum Trouble {
    Gone(WorkItemId),
    /// A file that is no item, or in no state to be one.
    Unusable(PathBuf, String),
    Failed(PathBuf, io::Error),
}

impl Trouble {
    fn refusal(self) -> ClaimResult {
        let reason = match &self {
            Self::Gone(_) => ClaimFailureReason::NotFound,
            Self::Unusable(..) => ClaimFailureReason::InvalidState,
            Self::Failed(_, error) if is_denied(error) => ClaimFailureReason::PermissionDenied,
            Self::Failed(..) => ClaimFailureReason::SourceError,
        };
        refused(reason, WorkSourceError::from(self).to_string())
    }
}

impl From<Trouble> for WorkSourceError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Gone(item) => Self::NotFound(item),
            Trouble::Unusable(path, reason) => Self::Io {
                path,
                error: io::Error::new(io::ErrorKind::InvalidData, format!("the file {reason}")),
            },
            Trouble::Failed(path, error) => Self::Io { path, error },
        }
    }
}

fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn refused(reason: ClaimFailureReason, message: String) -> ClaimResult {
    ClaimResult::Refused { reason, message: Some(message) }
}

/// As it stands in the file.
fn name_of(by: &Claimant) -> String {
    format!("{}/{}", by.fleet, by.holder)
}

/// What becomes of a file that was read under the lock.
enum Change<T> {
    Leave(T),
    Write(T),
}

impl Inner {
    fn fetch(&self, options: &FetchOptions) -> Result<FetchResult, WorkSourceError> {
        let now = self.clock.now();
        let mut page = Page::after(options.cursor.as_deref(), options.limit)?;
        self.each(|looked| match looked {
            Ok(entry) => {
                let claimed = matches!(entry.status, Status::Claimed { .. }) && options.include_claimed;
                if (claimed || entry.status.is_available(now)) && options.admits(&entry.item) {
                    page.add(entry.item);
                }
            }
            Err(skipped) => self.warn(skipped),
        })?;
        Ok(page.finish())
    }

    /// Every Markdown file of the folder; one that goes away meanwhile is none.
    fn each(&self, mut see: impl FnMut(Result<Entry, Skipped>)) -> Result<(), WorkSourceError> {
        let path = || self.folder.path().to_owned();
        for stem in self.folder.stems().map_err(|error| WorkSourceError::Io { path: path(), error })? {
            let Ok(id) = WorkItemId::new(NAME, &stem) else {
                let reason = "has a name that is no id; use letters, digits, '.', '_' and '-'".to_owned();
                see(Err(Skipped { file: self.folder.file(&stem), reason }));
                continue;
            };
            match self.look(&id, MOST_BYTES) {
                Ok((entry, _)) => see(Ok(entry)),
                Err(Trouble::Gone(_)) => {}
                Err(Trouble::Unusable(file, reason)) => see(Err(Skipped { file, reason })),
                Err(Trouble::Failed(file, error)) => {
                    see(Err(Skipped { file, reason: format!("cannot be read: {error}") }));
                }
            }
        }
        Ok(())
    }

    fn warn(&self, skipped: Skipped) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(skipped.clone()) {
            tracing::warn!(file = %skipped.file.display(), "this file is no work item: it {}", skipped.reason);
        }
    }

    fn look(&self, id: &WorkItemId, most: u64) -> Result<(Entry, Document), Trouble> {
        if id.source() != NAME {
            return Err(Trouble::Gone(id.clone()));
        }
        let content = self.folder.read(id.external_id(), most, false);
        let content = content.map_err(|error| self.trouble(id, error))?;
        self.understand(id, content.text, modified(&content.metadata))
    }

    fn understand(
        &self,
        id: &WorkItemId,
        text: String,
        modified: Timestamp,
    ) -> Result<(Entry, Document), Trouble> {
        let path = self.folder.file(id.external_id());
        let document = Document::parse(text).map_err(|reason| Trouble::Unusable(path.clone(), reason))?;
        let entry = Entry::of(id.clone(), &document, &path, modified);
        Ok((entry.map_err(|reason| Trouble::Unusable(path, reason))?, document))
    }

    fn trouble(&self, id: &WorkItemId, error: Unreadable) -> Trouble {
        let path = self.folder.file(id.external_id());
        match error {
            Unreadable::Gone => Trouble::Gone(id.clone()),
            Unreadable::Unusable(reason) => Trouble::Unusable(path, reason),
            Unreadable::Failed(error) => Trouble::Failed(path, error),
        }
    }

    /// Reads an item under the lock, lets `decide` change the document, and puts it in the file's place.
    fn change<T>(
        &self,
        id: &WorkItemId,
        most: u64,
        mut decide: impl FnMut(&Entry, &mut Document) -> Result<Change<T>, String>,
    ) -> Result<T, Trouble> {
        if id.source() != NAME {
            return Err(Trouble::Gone(id.clone()));
        }
        let path = self.folder.file(id.external_id());
        let failed = |error| Trouble::Failed(path.clone(), error);
        let lock =
            self.folder.lock().map_err(|error| Trouble::Failed(self.folder.path().to_owned(), error))?;
        for _ in 0..MOST_TRIES {
            let content = self.folder.read(id.external_id(), most, true);
            let content = content.map_err(|error| self.trouble(id, error))?;
            let (entry, mut document) = self.understand(id, content.text, modified(&content.metadata))?;
            match decide(&entry, &mut document).map_err(|reason| Trouble::Unusable(path.clone(), reason))? {
                Change::Leave(answer) => return Ok(answer),
                Change::Write(answer) => {
                    if lock.replace(id.external_id(), &content.metadata, document.text()).map_err(failed)? {
                        return Ok(answer);
                    }
                }
            }
        }
        Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, "the file changes all the time")))
    }

    fn claim(&self, id: &WorkItemId, by: &Claimant) -> Result<ClaimResult, Trouble> {
        let (now, holder) = (self.clock.now(), name_of(by));
        let refusal = self.change(id, MOST_BYTES, |entry, document| {
            // Told again after a lost answer, it is the same claim.
            if !entry.status.is_available(now) && !entry.status.is_held_by(&holder) {
                return Ok(Change::Leave(Some(not_available(id, &entry.status))));
            }
            let (created, until) = (entry.item.created_at.to_string(), by.until.to_string());
            // Without it the age would be that of our own write, and an item that comes back would go to the end.
            let created = if document.get("created").is_none() {
                &[("created", Some(created.as_str()))][..]
            } else {
                &[]
            };
            let claim = [
                ("status", Some("claimed")),
                ("claimed_by", Some(holder.as_str())),
                ("claimed_until", Some(until.as_str())),
            ];
            document.set(&[&claim[..], created].concat())?;
            Ok(Change::Write(None))
        })?;
        match refusal {
            Some(refusal) => Ok(refusal),
            None => Ok(ClaimResult::Claimed(Box::new(self.look(id, MOST_BYTES_CLAIMED)?.0.item))),
        }
    }

    fn renew(&self, id: &WorkItemId, by: &Claimant) -> Result<(), WorkSourceError> {
        let (holder, until) = (name_of(by), by.until.to_string());
        let lost = self.change(id, MOST_BYTES_CLAIMED, |entry, document| {
            if !entry.status.is_held_by(&holder) {
                return Ok(Change::Leave(Some(not_held(id, &entry.status))));
            }
            document.set(&[("claimed_until", Some(until.as_str()))])?;
            Ok(Change::Write(None))
        })?;
        lost.map_or(Ok(()), Err)
    }

    /// Also of an item that nobody holds: the work is done, whoever it was. Not of one that another holds or has done.
    fn complete(&self, id: &WorkItemId, result: &WorkResult, by: &Claimant) -> Result<(), WorkSourceError> {
        let (now, holder) = (self.clock.now(), name_of(by));
        let refused = self.change(id, MOST_BYTES_CLAIMED, |entry, document| {
            let ours = entry.status.is_held_by(&holder);
            if !ours && document.body().contains(&report::marker(&holder)) {
                return Ok(Change::Leave(None));
            }
            if !ours && !entry.status.is_available(now) {
                return Ok(Change::Leave(Some(not_held(id, &entry.status))));
            }
            let status = match result.outcome {
                WorkOutcome::Success => "completed",
                WorkOutcome::Failure => "failed",
                WorkOutcome::Partial => "partial",
            };
            document.set(&[("status", Some(status)), ("claimed_by", None), ("claimed_until", None)])?;
            document.append(&report::result(result, &holder, now));
            Ok(Change::Write(None))
        })?;
        refused.map_or(Ok(()), Err)
    }

    fn release(
        &self,
        id: &WorkItemId,
        options: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        let (now, holder) = (self.clock.now(), name_of(by));
        let released = self.change(id, MOST_BYTES_CLAIMED, |entry, document| {
            if entry.status.is_held_by(&holder) {
                document.set(&[
                    ("status", Some("available")),
                    ("claimed_by", None),
                    ("claimed_until", None),
                ])?;
                if options.add_comment {
                    document.append(&report::release(options.reason.as_deref(), &holder, now));
                }
                return Ok(Change::Write(ReleaseResult { success: true, message: None }));
            }
            let message = format!("{id} {}", entry.status);
            let success = entry.status == Status::Available;
            Ok(Change::Leave(ReleaseResult { success, message: Some(message) }))
        });
        match released {
            Err(Trouble::Gone(id)) => {
                let message = WorkSourceError::NotFound(id).to_string();
                Ok(ReleaseResult { success: false, message: Some(message) })
            }
            released => Ok(released?),
        }
    }
}

fn not_available(id: &WorkItemId, status: &Status) -> ClaimResult {
    let reason = match status {
        Status::Claimed { .. } => ClaimFailureReason::AlreadyClaimed,
        _ => ClaimFailureReason::InvalidState,
    };
    refused(reason, format!("{id} {status}"))
}

fn not_held(id: &WorkItemId, status: &Status) -> WorkSourceError {
    WorkSourceError::NotHeld { item: id.clone(), stands: status.to_string() }
}

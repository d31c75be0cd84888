//! The operations on the items in a folder: list, claim, renew, complete, release, offer, and find a renamed file.

use std::io;
use std::path::PathBuf;
use std::sync::PoisonError;

use cowhand_core::work::{
    ClaimFailureReason, ClaimResult, FetchOptions, FetchResult, ReleaseOptions, ReleaseResult, WorkItemId,
    WorkOutcome, WorkResult,
};
use jiff::Timestamp;

use super::folder::{MAX_CLAIMED_ITEM_BYTES, MAX_ITEM_BYTES, Unreadable, modified};
use super::front_matter::Document;
use super::item::{FileItem, FileStatus};
use super::page::PageBuilder;
use super::{Inner, NAME, Skipped, report};
use crate::{Claimant, QueueState, WorkSourceError};

/// Maximum number of tries of a change. A try fails if somebody saves the file between its read and its replacement.
const MAX_CHANGE_TRIES: usize = 5;

/// Reason why a file is not an item, if its name cannot be the id of an item ([`WorkItemId::new`]).
const NAME_RULE: &str = "has a name that is not a valid id; a name begins with a letter or a digit, contains only \
    letters, digits, '.', '_' and '-', and no '..', and is short enough for an id of 200 bytes";

/// Reason why an item cannot be read or changed.
#[derive(Debug)]
pub(super) enum ItemError {
    Missing(WorkItemId),
    /// The file is not an item, or its state is invalid.
    Unusable(PathBuf, String),
    Failed(PathBuf, io::Error),
}

impl ItemError {
    pub(super) fn refusal(self) -> ClaimResult {
        let reason = match &self {
            Self::Missing(_) => ClaimFailureReason::NotFound,
            Self::Unusable(..) => ClaimFailureReason::InvalidState,
            Self::Failed(_, error) if is_denied(error) => ClaimFailureReason::PermissionDenied,
            Self::Failed(..) => ClaimFailureReason::SourceError,
        };
        refused(reason, WorkSourceError::from(self).to_string())
    }
}

impl From<ItemError> for WorkSourceError {
    fn from(error: ItemError) -> Self {
        match error {
            ItemError::Missing(item) => Self::NotFound(item),
            ItemError::Unusable(path, reason) => Self::Io {
                path,
                error: io::Error::new(io::ErrorKind::InvalidData, format!("the file {reason}")),
            },
            ItemError::Failed(path, error) => Self::Io { path, error },
        }
    }
}

fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn refused(reason: ClaimFailureReason, message: String) -> ClaimResult {
    ClaimResult::Refused { reason, message: Some(message) }
}

/// Returns the name of the claimant as it is written in the file.
fn claimant_name(by: &Claimant) -> String {
    format!("{}/{}", by.fleet, by.holder)
}

/// Result of a decision about a file that was read under the lock.
enum Change<T> {
    Leave(T),
    Write(T),
}

impl Inner {
    pub(super) fn fetch(&self, options: &FetchOptions) -> Result<FetchResult, WorkSourceError> {
        let now = self.clock.now();
        let mut page = PageBuilder::after(options.cursor.as_deref(), options.limit)?;
        self.for_each_file(|file| match file {
            Ok(entry) => {
                let claimed = matches!(entry.status, FileStatus::Claimed { .. }) && options.include_claimed;
                if (claimed || entry.status.is_available(now)) && options.admits(&entry.item) {
                    page.add(entry.item);
                }
            }
            Err(skipped) => self.warn(&skipped),
        })?;
        Ok(page.finish())
    }

    /// Calls `visit` for every file in [`super::folder::Folder::stems`], with the item or the reason why the file is
    /// not an item. Leaves out files that disappear meanwhile.
    pub(super) fn for_each_file(
        &self,
        mut visit: impl FnMut(Result<FileItem, Skipped>),
    ) -> Result<(), WorkSourceError> {
        for stem in self.folder.stems().map_err(|error| self.unusable(error))? {
            let Ok(id) = WorkItemId::new(NAME, &stem) else {
                let reason = NAME_RULE.to_owned();
                visit(Err(Skipped { file: self.folder.file(&stem), reason }));
                continue;
            };
            match self.read_item(&id, MAX_ITEM_BYTES) {
                Ok((entry, _)) => visit(Ok(entry)),
                Err(ItemError::Missing(_)) => {}
                Err(ItemError::Unusable(file, reason)) => visit(Err(Skipped { file, reason })),
                Err(ItemError::Failed(file, error)) => {
                    visit(Err(Skipped { file, reason: format!("cannot be read: {error}") }));
                }
            }
        }
        Ok(())
    }

    fn warn(&self, skipped: &Skipped) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(skipped.clone()) {
            tracing::warn!(file = %skipped.file.display(), "this file is not a work item: it {}", skipped.reason);
        }
    }

    pub(super) fn read_item(
        &self,
        id: &WorkItemId,
        max_bytes: u64,
    ) -> Result<(FileItem, Document), ItemError> {
        if id.source() != NAME {
            return Err(ItemError::Missing(id.clone()));
        }
        let content = self.folder.read(id.external_id(), max_bytes, false);
        let content = content.map_err(|error| self.item_error(id, error))?;
        let (entry, document) = self.parse(id, content.text, modified(&content.metadata))?;
        // An item that cannot be marked as claimed would be offered forever.
        if entry.status.is_available(self.clock.now()) {
            let unusable = |reason| ItemError::Unusable(self.folder.file(id.external_id()), reason);
            document.check_editable().map_err(unusable)?;
        }
        Ok((entry, document))
    }

    fn parse(
        &self,
        id: &WorkItemId,
        text: String,
        modified: Timestamp,
    ) -> Result<(FileItem, Document), ItemError> {
        let path = self.folder.file(id.external_id());
        let document = Document::parse(text).map_err(|reason| ItemError::Unusable(path.clone(), reason))?;
        let entry = FileItem::of(id.clone(), &document, &path, modified);
        Ok((entry.map_err(|reason| ItemError::Unusable(path, reason))?, document))
    }

    fn item_error(&self, id: &WorkItemId, error: Unreadable) -> ItemError {
        let path = self.folder.file(id.external_id());
        match error {
            Unreadable::Missing => ItemError::Missing(id.clone()),
            Unreadable::Unusable(reason) => ItemError::Unusable(path, reason),
            Unreadable::Failed(error) => ItemError::Failed(path, error),
        }
    }

    /// Reads an item under the lock and lets `decide` change the document. For `Change::Write`, replaces the file with
    /// the document. Starts again if somebody changed the file meanwhile.
    fn change<T>(
        &self,
        id: &WorkItemId,
        max_bytes: u64,
        mut decide: impl FnMut(&FileItem, &mut Document) -> Result<Change<T>, String>,
    ) -> Result<T, ItemError> {
        if id.source() != NAME {
            return Err(ItemError::Missing(id.clone()));
        }
        let path = self.folder.file(id.external_id());
        let failed = |error| ItemError::Failed(path.clone(), error);
        let lock =
            self.folder.lock().map_err(|error| ItemError::Failed(self.folder.path().to_owned(), error))?;
        for _ in 0..MAX_CHANGE_TRIES {
            let content = self.folder.read(id.external_id(), max_bytes, true);
            let content = content.map_err(|error| self.item_error(id, error))?;
            let (entry, mut document) = self.parse(id, content.text, modified(&content.metadata))?;
            match decide(&entry, &mut document).map_err(|reason| ItemError::Unusable(path.clone(), reason))? {
                Change::Leave(answer) => return Ok(answer),
                Change::Write(answer) => {
                    if lock.replace(id.external_id(), &content.metadata, document.text()).map_err(failed)? {
                        return Ok(answer);
                    }
                }
            }
        }
        Err(failed(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another process changed the file at every try",
        )))
    }

    pub(super) fn claim(&self, id: &WorkItemId, by: &Claimant) -> Result<ClaimResult, ItemError> {
        let (now, holder) = (self.clock.now(), claimant_name(by));
        let path = self.folder.file(id.external_id());
        self.change(id, MAX_ITEM_BYTES, |entry, document| {
            // A claim that is repeated after a lost answer is the same claim.
            if !entry.status.is_available(now) && !entry.status.is_held_by(&holder) {
                return Ok(Change::Leave(not_available(id, &entry.status)));
            }
            let until = by.until.to_string();
            let claim = [
                ("status", Some("claimed")),
                ("claimed_by", Some(holder.as_str())),
                ("claimed_until", Some(until.as_str())),
            ];
            set_with_creation_time(document, entry, &claim)?;
            let entry = FileItem::of(id.clone(), document, &path, now)?;
            Ok(Change::Write(ClaimResult::Claimed(Box::new(entry.item))))
        })
    }

    pub(super) fn renew(&self, id: &WorkItemId, by: &Claimant) -> Result<(), WorkSourceError> {
        let (holder, until) = (claimant_name(by), by.until.to_string());
        let lost = self.change(id, MAX_CLAIMED_ITEM_BYTES, |entry, document| {
            if !entry.status.is_held_by(&holder) {
                return Ok(Change::Leave(Some(not_held(id, &entry.status))));
            }
            document.set(&[("claimed_until", Some(until.as_str()))])?;
            Ok(Change::Write(None))
        })?;
        lost.map_or(Ok(()), Err)
    }

    /// Writes the result of an item, once for each claim. The result is also accepted if the item is available,
    /// because the work is done. A person may also complete an item that is not offered, for example a failed one. The
    /// result is refused if another claimant holds the item, or if the item has any other status, for example because
    /// another claimant has completed it.
    pub(super) fn complete(
        &self,
        id: &WorkItemId,
        result: &WorkResult,
        by: &Claimant,
    ) -> Result<(), WorkSourceError> {
        let (now, holder) = (self.clock.now(), claimant_name(by));
        let refused = self.change(id, MAX_CLAIMED_ITEM_BYTES, |entry, document| {
            let ours = entry.status.is_held_by(&holder);
            if !ours && document.body().contains(&report::marker(&holder)) {
                return Ok(Change::Leave(None));
            }
            let by_person = by.is_person() && entry.status.queue_state(now) == QueueState::Withdrawn;
            if !ours && !by_person && !entry.status.is_available(now) {
                return Ok(Change::Leave(Some(not_held(id, &entry.status))));
            }
            let status = match result.outcome {
                WorkOutcome::Success => "completed",
                WorkOutcome::Failure => "failed",
                WorkOutcome::Partial => "partial",
            };
            let end = [("status", Some(status)), ("claimed_by", None), ("claimed_until", None)];
            set_with_creation_time(document, entry, &end)?;
            document.append(&report::result(result, &holder, now));
            Ok(Change::Write(None))
        })?;
        refused.map_or(Ok(()), Err)
    }

    pub(super) fn release(
        &self,
        id: &WorkItemId,
        options: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        let (now, holder) = (self.clock.now(), claimant_name(by));
        let released = self.change(id, MAX_CLAIMED_ITEM_BYTES, |entry, document| {
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
            let message = Some(format!("{id} {}", entry.status));
            let success = entry.status == FileStatus::Available;
            // Only a person gives a reason for an item that is available already. A release that is repeated after a
            // lost answer is the same release.
            let is_noted = document.body().contains(&report::release_heading(&holder));
            if success && options.add_comment && by.is_person() && !is_noted {
                set_with_creation_time(document, entry, &[])?;
                document.append(&report::release(options.reason.as_deref(), &holder, now));
                return Ok(Change::Write(ReleaseResult { success, message }));
            }
            Ok(Change::Leave(ReleaseResult { success, message }))
        });
        Ok(released?)
    }
}

impl Inner {
    pub(super) fn queue_state(&self, id: &WorkItemId) -> Result<QueueState, WorkSourceError> {
        let now = self.clock.now();
        match self.read_item(id, MAX_CLAIMED_ITEM_BYTES) {
            Ok((entry, _)) => Ok(entry.status.queue_state(now)),
            Err(ItemError::Missing(_)) => Ok(QueueState::Done),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds a file that a person renamed. The claim or a result in the file names the holder. A claim takes
    /// precedence, because a result may have been copied.
    pub(super) fn moved(
        &self,
        from: &WorkItemId,
        by: &Claimant,
    ) -> Result<Option<WorkItemId>, WorkSourceError> {
        let holder = claimant_name(by);
        let (marker, mut reported) = (report::marker(&holder), None);
        for stem in self.folder.stems().map_err(|error| self.unusable(error))? {
            let Ok(id) = WorkItemId::new(NAME, &stem) else { continue };
            let Ok((entry, document)) = self.read_item(&id, MAX_CLAIMED_ITEM_BYTES) else { continue };
            if id == *from {
                continue;
            }
            if entry.status.is_held_by(&holder) {
                return Ok(Some(id));
            }
            if document.body().contains(&marker) {
                reported = Some(id);
            }
        }
        Ok(reported)
    }

    /// Sets the status of a withdrawn item to `available`, and appends the reason if the options ask for a comment. The
    /// status of an item that is already available is not changed, and this is a success. A claimed or completed item
    /// is not changed, and this is a failure.
    pub(super) fn offer(
        &self,
        id: &WorkItemId,
        options: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        let (now, holder) = (self.clock.now(), claimant_name(by));
        let offered = self.change(id, MAX_CLAIMED_ITEM_BYTES, |entry, document| {
            let status: &[_] = match entry.status.queue_state(now) {
                QueueState::Available if !options.add_comment => {
                    return Ok(Change::Leave(ReleaseResult { success: true, message: None }));
                }
                QueueState::Available => &[],
                QueueState::Withdrawn => &[("status", Some("available"))],
                QueueState::Claimed | QueueState::Done => {
                    let message = Some(format!("{id} {}", entry.status));
                    return Ok(Change::Leave(ReleaseResult { success: false, message }));
                }
            };
            set_with_creation_time(document, entry, status)?;
            if options.add_comment {
                document.append(&report::release(options.reason.as_deref(), &holder, now));
            }
            Ok(Change::Write(ReleaseResult { success: true, message: None }))
        });
        Ok(offered?)
    }
}

/// Changes the keys of a document, and adds `created` if it is missing. Without `created`, the age of the item would
/// count from this write, and the item would move to the end of the queue.
fn set_with_creation_time(
    document: &mut Document,
    entry: &FileItem,
    changes: &[(&str, Option<&str>)],
) -> Result<(), String> {
    let created_at = entry.item.created_at.to_string();
    let created: &[_] =
        if document.get("created").is_none() { &[("created", Some(created_at.as_str()))] } else { &[] };
    document.set(&[changes, created].concat())
}

fn not_available(id: &WorkItemId, status: &FileStatus) -> ClaimResult {
    let reason = match status {
        FileStatus::Claimed { .. } => ClaimFailureReason::AlreadyClaimed,
        _ => ClaimFailureReason::InvalidState,
    };
    refused(reason, format!("{id} {status}"))
}

fn not_held(id: &WorkItemId, status: &FileStatus) -> WorkSourceError {
    WorkSourceError::NotHeld { item: id.clone(), state: status.to_string() }
}

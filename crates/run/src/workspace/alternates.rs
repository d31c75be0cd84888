//! Other repositories from which a repository takes objects.
//!
//! A worktree uses the objects of its repository. The folder of these objects also contains the list of the other
//! repositories. An agent that may write in this folder can add a repository to the list, and create a branch with
//! commits of the added repository. Those commits are then visible and pushed as if they belonged to the worktree's
//! repository.

use std::path::Path;
use std::time::SystemTime;

use cowhand_core::workspace::{IsolationKind, Workspace};

use super::diff::common;
use super::git::Git;
use crate::minder::LockedMinder;
use cowhand_system::beneath::Root;

/// Describes a change of the list of other repositories after `since`, for a worktree. Returns `None` if the list did
/// not change or is empty. A clone is checked when its commits are copied.
pub(super) fn changed(
    workspace: &Workspace,
    since: SystemTime,
    minder: Option<&LockedMinder>,
) -> Option<String> {
    if workspace.kind != IsolationKind::Worktree {
        return None;
    }
    let repository = common(&Git::at(&workspace.repository).with_minder(minder)).ok()?;
    let objects = Root::open(&repository).ok()?.directory(Path::new("objects/info")).ok()?;
    let named = |name: &str| {
        let found = objects.file(Path::new(name)).ok()?.metadata().ok()?;
        (found.len() > 0 && changed_at(&found) >= since).then(|| format!("objects/info/{name}"))
    };
    let file = named("alternates").or_else(|| named("http-alternates"))?;
    Some(format!(
        "{} was written while the job ran: {} may show commits of another repository; remove the file unless it is yours",
        repository.join(file).display(),
        workspace.repository.display()
    ))
}

/// Returns the time of the last change of the inode, which no user can set.
pub(super) fn changed_at(found: &std::fs::Metadata) -> SystemTime {
    use std::os::unix::fs::MetadataExt;
    let seconds = u64::try_from(found.ctime()).unwrap_or_default();
    let nanoseconds = u32::try_from(found.ctime_nsec()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + std::time::Duration::new(seconds, nanoseconds)
}

//! The parts of a worktree's repository that git writes when it commits. The repository lies outside the worktree.

use std::path::{Path, PathBuf};

use cowhand_system::beneath::Root;

/// Maximum length of a path in git's files.
const MAX_PATH_BYTES: u64 = 8 << 10;

/// The worktree of a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Worktree {
    /// Top directory of the worktree.
    pub(super) top: PathBuf,
    /// Shared repository.
    pub(super) common: PathBuf,
    /// The worktree's own part of the repository.
    pub(super) own: PathBuf,
}

impl Worktree {
    /// Finds the worktree of a directory, given by its real path. Returns `None` if there is no worktree, or if its
    /// files contradict those of the repository, because an agent may have written them.
    pub(super) fn of(directory: &Path) -> Option<Self> {
        let top = directory.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok())?;
        let own = top.join(line(top, ".git")?.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
        let common = own.join(line(&own, "commondir")?).canonicalize().ok()?;
        if own.parent() != Some(&common.join("worktrees")) {
            return None;
        }
        // The repository also lists its worktrees.
        let known = own.join(line(&own, "gitdir")?);
        let known = known.parent()?.canonicalize().ok()?;
        (known == top).then(|| Self { top: top.to_owned(), common, own })
    }

    /// Returns the paths that git writes. Config and hooks are not included, because the next user of the repository
    /// would execute them. Links are left out.
    pub(super) fn written(&self) -> Vec<PathBuf> {
        let Ok(root) = Root::open(&self.common) else { return Vec::new() };
        let parts = ["objects", "refs", "logs"].into_iter().map(PathBuf::from);
        let own = self.own.strip_prefix(&self.common).map(Path::to_owned);
        let real = parts.chain(own).filter(|part| root.directory(part).is_ok());
        real.map(|part| self.common.join(part)).collect()
    }

    /// Returns the paths inside those of [`Self::written`] that must not be written. A path that does not exist, or is
    /// a link, is left out.
    pub(super) fn kept(&self) -> Vec<PathBuf> {
        let Ok(root) = Root::open(&self.common) else { return Vec::new() };
        let folder = Path::new(ALTERNATES_FOLDER);
        let folder = root.directory(folder).is_ok().then(|| self.common.join(folder));
        let own = self.own.strip_prefix(&self.common).unwrap_or(&self.own);
        let files = RECORD_FILES.iter().filter(|name| root.file(&own.join(name)).is_ok());
        folder.into_iter().chain(files.map(|name| self.own.join(name))).collect()
    }
}

/// Files that name the repository and the worktree of a record. Git writes them once, and reads them for commands in
/// other worktrees.
const RECORD_FILES: [&str; 2] = ["commondir", "gitdir"];

/// Folder with the list of other repositories whose objects are visible in this repository.
const ALTERNATES_FOLDER: &str = "objects/info";

/// Reads a small file that has one line.
fn line(folder: &Path, name: &str) -> Option<String> {
    let text = Root::open(folder).ok()?.read(Path::new(name), MAX_PATH_BYTES).ok()?;
    Some(String::from_utf8(text).ok()?.trim().to_owned())
}

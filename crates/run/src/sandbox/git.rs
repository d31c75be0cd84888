//! A worktree's own repository lies elsewhere: which parts of it git writes when it commits.

use std::path::{Path, PathBuf};

use cowhand_system::beneath::Root;

/// The longest path that a file of git's holds here.
const MAX_PATH_BYTES: u64 = 8 << 10;

/// Of the worktree that this directory is in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Worktree {
    /// Its top.
    pub(super) top: PathBuf,
    /// The repository that it shares.
    pub(super) common: PathBuf,
    /// Its own part of that.
    pub(super) own: PathBuf,
}

impl Worktree {
    /// Finds the worktree that a directory, given by its real path, is in. Returns none if it is in none, or if its files
    /// do not say the same as those of the repository: an agent may have written them.
    pub(super) fn of(directory: &Path) -> Option<Self> {
        let top = directory.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok())?;
        let own = top.join(line(top, ".git")?.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
        let common = own.join(line(&own, "commondir")?).canonicalize().ok()?;
        if own.parent() != Some(&common.join("worktrees")) {
            return None;
        }
        // The repository knows its worktrees, too.
        let known = own.join(line(&own, "gitdir")?);
        let known = known.parent()?.canonicalize().ok()?;
        (known == top).then(|| Self { top: top.to_owned(), common, own })
    }

    /// Not its config and not its hooks: what stands there is run by whoever uses the repository next. What is a link is
    /// left out.
    pub(super) fn written(&self) -> Vec<PathBuf> {
        let Ok(root) = Root::open(&self.common) else { return Vec::new() };
        let parts = ["objects", "refs", "logs"].into_iter().map(PathBuf::from);
        let own = self.own.strip_prefix(&self.common).map(Path::to_owned);
        let real = parts.chain(own).filter(|part| root.directory(part).is_ok());
        real.map(|part| self.common.join(part)).collect()
    }

    /// Returns what of the above is not to be written; none if it is not there, or a link.
    pub(super) fn kept(&self) -> Option<PathBuf> {
        let root = Root::open(&self.common).ok()?;
        root.directory(Path::new(ALTERNATES_FOLDER)).is_ok().then(|| self.common.join(ALTERNATES_FOLDER))
    }
}

/// The part of the objects that names other repositories, whose commits would be seen in this one.
const ALTERNATES_FOLDER: &str = "objects/info";

/// Reads the one line of a small file.
fn line(folder: &Path, name: &str) -> Option<String> {
    let text = Root::open(folder).ok()?.read(Path::new(name), MAX_PATH_BYTES).ok()?;
    Some(String::from_utf8(text).ok()?.trim().to_owned())
}

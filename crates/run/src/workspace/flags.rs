//! Flags of an index that hide changes: `assume-unchanged` and `skip-worktree`. An agent can set them in its own index.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::error::WorkspaceError;
use super::git::Git;
use super::hidden::MAX_BASE_BYTES;

/// Removes the flags from a copy of the agent's index. Only a file that is missing in the workspace, and that is also
/// outside the sparse checkout of the repository, keeps `skip-worktree`. `repository` uses the repository's own index.
pub(super) fn clear(git: &Git, repository: &Git, tree: &Path) -> Result<(), WorkspaceError> {
    let listed = list(git)?;
    // A file with a merge conflict (tag `M`) has no flags, and git refuses to set or remove flags of such a file.
    let flagged = || entries(&listed).filter(|(tag, _)| !matches!(tag, b'H' | b'M'));
    if flagged().next().is_none() {
        return Ok(());
    }
    // Without this list, a removed file could not be distinguished from a file outside the sparse checkout. So it is an
    // error if git cannot read the index of the repository; the diff is made later.
    let of_repository = list(repository)?;
    let is_inside = |(tag, name): (u8, &'_ [u8])| (!tag.eq_ignore_ascii_case(&b'S')).then(|| name.to_owned());
    let inside: HashSet<Vec<u8>> = entries(&of_repository).filter_map(is_inside).collect();
    let is_missing = |name: &[u8]| fs::symlink_metadata(tree.join(OsStr::from_bytes(name))).is_err();
    let is_outside = |tag: u8, name: &[u8]| tag == b'S' && is_missing(name) && !inside.contains(name);
    let hiding = flagged().filter(|(tag, name)| !is_outside(*tag, name));
    let hiding: Vec<&OsStr> = hiding.map(|(_, name)| OsStr::from_bytes(name)).collect();
    git.flag("--no-assume-unchanged", &hiding)?;
    git.flag("--no-skip-worktree", &hiding)
}

/// Makes git compare the content of each file, and not only its size and times, which the agent can choose. Git reads
/// each file that is not older than the index, so the index gets a very old time.
pub(super) fn distrust_times(index: &Path) -> Result<(), WorkspaceError> {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let file = File::options().write(true).open(index).map_err(WorkspaceError::file(index))?;
    file.set_modified(old).map_err(WorkspaceError::file(index))
}

fn list(git: &Git) -> Result<Vec<u8>, WorkspaceError> {
    let (listed, cut) = git.run_limited(&["ls-files", "-v", "-z"], MAX_BASE_BYTES)?;
    if cut { Err(WorkspaceError::Git("git ls-files: the index is too long".to_owned())) } else { Ok(listed) }
}

/// Returns the tag and the name of each file. A small letter means `assume-unchanged`, `S` means `skip-worktree`.
fn entries(listed: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    listed.split(|byte| *byte == 0).filter_map(|entry| match entry {
        [tag, b' ', name @ ..] => Some((*tag, name)),
        _ => None,
    })
}

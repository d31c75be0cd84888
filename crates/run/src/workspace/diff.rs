//! The changes of a job: committed, uncommitted and new files, compared with the base commit of its workspace.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cowhand_core::workspace::{IsolationKind, Workspace};
use tracing::warn;

use super::alternates;
use super::branch_ref;
use super::error::WorkspaceError;
use super::flags;
use super::git::Git;
use super::hidden::{self, Attributes};
use super::record;
use super::unlisted::{self, UnreadablePaths};
use crate::minder::LockedMinder;
use cowhand_system::beneath::Root;
use cowhand_system::remove::{is_missing, missing_is_ok};

/// Maximum size of a diff.
const MAX_DIFF_BYTES: usize = 1 << 20;

/// Maximum size of an index that is copied. The agent may have replaced the file.
const MAX_INDEX_BYTES: u64 = 1 << 30;

/// Options of the diff. Changes in submodules are ignored, because git would compare them in a process that uses the
/// submodule's config.
const DIFF_OPTIONS: [&str; 7] = [
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--ignore-submodules=dirty",
];

/// A diff with notes, and whether it was cut.
struct Compared {
    text: Vec<u8>,
    cut: bool,
    /// Notes about the workspace for the reader of the diff.
    notes: Vec<String>,
}

/// Returns the diff. Lines that begin with `# cowhand:` are notes for the reader, for example that the diff was cut,
/// that it does not show some changes, or that the agent changed git's data about the workspace. `scratch` is a file
/// that may be written; `since` is when the job was created. The error [`WorkspaceError::Gone`] is final: neither the
/// directory nor its branch exists. After any other error, a diff may be possible later. If the daemon ends, the minder
/// ends the git process that it runs.
pub fn diff(
    workspace: &Workspace,
    scratch: &Path,
    since: SystemTime,
    minder: Option<&LockedMinder>,
) -> Result<Vec<u8>, WorkspaceError> {
    // A git that was killed leaves its lock of the index.
    let lock = scratch.with_added_extension("lock");
    for file in [scratch, &lock] {
        missing_is_ok(fs::remove_file(file)).map_err(WorkspaceError::file(file))?;
    }
    let whole = compare_tree(workspace, scratch, since, minder);
    // The files belong to this function; errors are ignored.
    for file in [scratch, &lock] {
        let _ = fs::remove_file(file);
    }
    let compared = match whole {
        // Without the directory of the workspace, the commits on its branch are compared.
        Err(why @ WorkspaceError::Gone(_)) => compare_branch(workspace, why, minder),
        whole => whole,
    };
    let Compared { mut text, cut, mut notes } = compared?;
    if cut {
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        text.truncate(end);
        text.extend(
            format!("# cowhand: the diff is longer than {MAX_DIFF_BYTES} bytes and was cut here\n").bytes(),
        );
    }
    notes.extend(alternates::changed(workspace, since, minder));
    for note in &notes {
        warn!(job = %workspace.job, "{note}");
    }
    let notes = notes.iter().map(|note| format!("# cowhand: {}\n", note.replace('\n', " ")));
    Ok(notes.collect::<String>().into_bytes().into_iter().chain(text).collect())
}

/// Compares the files of the workspace with its base, using the original repository and a separate index, so that
/// changes of the agent to `.git` have no effect. The separate index is new or, if a new index would show wrong
/// changes, a copy of the agent's index.
fn compare_tree(
    workspace: &Workspace,
    scratch: &Path,
    since: SystemTime,
    minder: Option<&LockedMinder>,
) -> Result<Compared, WorkspaceError> {
    match fs::symlink_metadata(&workspace.path) {
        Ok(found) if found.is_dir() => {}
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(WorkspaceError::File { path: workspace.path.clone(), error });
        }
        _ => return Err(WorkspaceError::Gone(workspace.path.clone())),
    }
    let restored = record::restore(workspace)?;
    let mut unreadable = UnreadablePaths::find(&workspace.path)?;
    let repository = common(&Git::at(&workspace.repository).with_minder(minder))?;
    let of_repository = Git::after_agent(&workspace.repository, minder)?.with_long_timeout();
    let git = of_repository
        .clone()
        .with_repository(repository.clone(), workspace.path.clone())
        .with_index(scratch.to_owned());
    let known = match agents_index(workspace, scratch, minder) {
        Err(why) if why.is_unrelated() => return Err(why),
        known => known,
    };
    let added = if known.is_ok() { added(&git, &workspace.base) } else { Vec::new() };
    // A new index replaces the copy of the agent's index, except in two cases: if a filter is disabled, a new index
    // would make every file with the filter look changed; if the checkout is sparse, it would make every file outside
    // the checkout look deleted. An agent's index that is not valid is always replaced.
    if known.is_err() || !(git.has_disabled_filters() || is_sparse(&git)) {
        missing_is_ok(fs::remove_file(scratch)).map_err(WorkspaceError::file(scratch))?;
        git.run(&["read-tree", &workspace.base])?;
    } else {
        if !git.has_disabled_filters() {
            flags::distrust_times(scratch)?;
        }
        flags::clear(&git, &of_repository, &workspace.path)?;
    }
    let new = new_files(&git, &added)?;
    // This precedes `add_to_index`, because a file in the index no longer counts as new.
    let unseen = hidden::new_files(&git, &workspace.base, &new, &scratch.with_extension("rules"))?;
    let shown = unreadable.without(&new);
    add_to_index(&git, &shown, &scratch.with_extension("names"))?;
    unreadable.leave_out(&git)?;
    let unlisted = unlisted::note(&git, &workspace.path, &shown)?;
    let compared = [workspace.base.as_str(), "--"];
    let attributes = Attributes::of(&git, &repository, &workspace.base, &compared);
    let (text, cut) =
        git.run_limited(&attributes.diff(&[DIFF_OPTIONS.as_slice(), &compared].concat()), MAX_DIFF_BYTES)?;
    let note = known.err().map(|why| {
        format!("the agent changed the `.git` of its workspace ({why}); its files are compared with the base")
    });
    let inner = hidden::submodules(&git, &workspace.base, since)?;
    let notes = restored.into_iter().chain(note).chain(attributes.as_text).chain(unseen).chain(inner);
    let notes = notes.chain(unlisted).chain(unreadable.notes());
    Ok(Compared { text, cut, notes: notes.collect() })
}

/// Adds new files to the separate index, so that the diff includes them and the workspace stays unchanged. `names` is a
/// temporary file. A file that git refuses does not prevent other files from being added. Only the named files are
/// added, because adding a submodule would use the config of the submodule.
fn add_to_index(git: &Git, files: &[u8], names: &Path) -> Result<(), WorkspaceError> {
    if files.is_empty() {
        return Ok(());
    }
    fs::write(names, files).map_err(WorkspaceError::file(names))?;
    let mut listed = OsString::from("--pathspec-from-file=");
    listed.push(names);
    let add = ["add", "--intent-to-add", "--force", "--ignore-errors", "--pathspec-file-nul"];
    // The exit code is 1 if a file is refused.
    let result = git.succeeds(&[add.map(OsStr::new).as_slice(), &[&listed]].concat());
    missing_is_ok(fs::remove_file(names)).map_err(WorkspaceError::file(names))?;
    result.map(drop)
}

/// Copies the agent's index. The error states why the workspace has no valid index.
fn agents_index(
    workspace: &Workspace,
    scratch: &Path,
    minder: Option<&LockedMinder>,
) -> Result<(), WorkspaceError> {
    let git = Git::after_agent(&workspace.path, minder)?;
    let top = git.run(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top) != workspace.path {
        return Err(WorkspaceError::NoRepository);
    }
    let common = common(&git)?;
    if common != own_repository(workspace, minder)? {
        return Err(WorkspaceError::OtherRepository);
    }
    let index = PathBuf::from(git.run(&["rev-parse", "--path-format=absolute", "--git-path", "index"])?);
    copy_index(&common, &index, scratch).map_err(WorkspaceError::Index)
}

/// Returns the files that are in the agent's index and not in the base, including ignored files.
fn added(git: &Git, base: &str) -> Vec<u8> {
    let how = ["diff", "--cached", "-z", "--name-only", "--no-renames", "--diff-filter=A"];
    let listed =
        git.run_limited(&[how.as_slice(), &["--ignore-submodules=all", base, "--"]].concat(), MAX_DIFF_BYTES);
    // An invalid index lists no files.
    listed.map(whole_names).unwrap_or_default()
}

fn is_sparse(git: &Git) -> bool {
    git.run(&["config", "--type=bool", "core.sparseCheckout"]).is_ok_and(|answer| answer == "true")
}

/// Drops the last name if it was cut.
fn whole_names((mut listed, cut): (Vec<u8>, bool)) -> Vec<u8> {
    if cut {
        let end = listed.iter().rposition(|byte| *byte == 0).map_or(0, |end| end + 1);
        listed.truncate(end);
    }
    listed
}

/// Returns the names of new files that are not ignored, and of the files of `added` that still exist. Nested
/// repositories are left out.
fn new_files(git: &Git, added: &[u8]) -> Result<Vec<u8>, WorkspaceError> {
    let others = git.run_limited(&["ls-files", "-z", "--others", "--exclude-standard"], MAX_DIFF_BYTES)?;
    let mut listed = whole_names(others);
    // Git refuses the whole list of names if one of the files does not exist any more.
    let exists = |name: &&[u8]| {
        let path = git.tree().zip(name.strip_suffix(b"\0"));
        path.is_some_and(|(tree, name)| fs::symlink_metadata(tree.join(OsStr::from_bytes(name))).is_ok())
    };
    listed.extend(added.split_inclusive(|byte| *byte == 0).filter(exists).flatten());
    let files = listed.split_inclusive(|byte| *byte == 0).filter(|name| !name.ends_with(b"/\0"));
    Ok(files.flatten().copied().collect())
}

/// Returns the repository of a working tree, as git reports it.
pub(super) fn common(git: &Git) -> Result<PathBuf, WorkspaceError> {
    git.run(&["rev-parse", "--path-format=absolute", "--git-common-dir"]).map(PathBuf::from)
}

/// Returns the repository with which the workspace was created.
fn own_repository(workspace: &Workspace, minder: Option<&LockedMinder>) -> Result<PathBuf, WorkspaceError> {
    match workspace.kind {
        IsolationKind::Clone => Ok(workspace.path.join(".git")),
        IsolationKind::Worktree | IsolationKind::Shared => {
            common(&Git::at(&workspace.repository).with_minder(minder))
        }
    }
}

fn copy_index(common: &Path, index: &Path, scratch: &Path) -> io::Result<()> {
    // The agent may have replaced any part by a link or a pipe.
    let (top, name) = (common.parent().unwrap_or(common), common.file_name().unwrap_or_default());
    let below = index.strip_prefix(common).map_err(io::Error::other)?;
    let index = Root::open(top)?.directory(Path::new(name))?.file(below)?;
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(scratch)?;
    let copied = io::copy(&mut index.take(MAX_INDEX_BYTES + 1), &mut copy)?;
    if copied > MAX_INDEX_BYTES { Err(io::Error::other("it is too large")) } else { Ok(()) }
}

/// Compares the branch of a workspace with its base, for a workspace whose directory is gone. `why` states that the
/// directory is gone; this error is returned if the branch or the whole repository does not exist either.
fn compare_branch(
    workspace: &Workspace,
    why: WorkspaceError,
    minder: Option<&LockedMinder>,
) -> Result<Compared, WorkspaceError> {
    // A person deletes the directory to end the wait for a repository that does not come back.
    if is_missing(&workspace.repository) {
        return Err(why);
    }
    let git = Git::at(&workspace.repository).with_minder(minder);
    if !git.succeeds(&["show-ref", "--verify", "--quiet", &branch_ref(&workspace.branch)])? {
        return Err(why);
    }
    let compared = [workspace.base.as_str(), &workspace.branch, "--"];
    let attributes = Attributes::of(&git, &common(&git)?, &workspace.base, &compared);
    let (text, cut) =
        git.run_limited(&attributes.diff(&[DIFF_OPTIONS.as_slice(), &compared].concat()), MAX_DIFF_BYTES)?;
    let note = format!("only what was committed to {} is compared with the base: {why}", workspace.branch);
    Ok(Compared { text, cut, notes: [note].into_iter().chain(attributes.as_text).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state folder can have a path that is not UTF-8, if a link leads from there to the workspaces.
    #[test]
    fn the_temporary_files_can_have_any_path() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (repository, path) = (root.join("repository"), root.join("job"));
        fs::create_dir(&repository).unwrap();
        let git = Git::at(&repository);
        git.run(&["init", "--quiet"]).unwrap();
        fs::write(repository.join("README"), "first\n").unwrap();
        fs::write(repository.join(".gitignore"), "*.log\n").unwrap();
        git.run(&["add", "-A"]).unwrap();
        let user = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        git.run(&[user.as_slice(), &["commit", "--quiet", "-m", "first"]].concat()).unwrap();
        git.run(&["worktree", "add", "--quiet", "-b", "mine", "../job"]).unwrap();
        for name in ["new", "x.log"] {
            fs::write(path.join(name), "made\n").unwrap();
        }
        let workspace = Workspace {
            node: "node".to_owned(),
            path,
            job: "job-2026-01-05-aaaaaa".parse().unwrap(),
            agent: "coder".parse().unwrap(),
            kind: IsolationKind::Worktree,
            repository,
            branch: "mine".to_owned(),
            base: git.run(&["rev-parse", "HEAD"]).unwrap(),
        };
        let scratch = root.join(OsStr::from_bytes(b"caf\xe9"));
        fs::create_dir(&scratch).unwrap();
        let text = diff(&workspace, &scratch.join("job.index"), SystemTime::now(), None).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("+++ b/new") && !text.contains("x.log") && !text.contains("# cowhand"),
            "{text}"
        );
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
    }
}

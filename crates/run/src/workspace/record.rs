//! The record of a worktree: the folder `worktrees/NAME` in its repository.
//!
//! The agent of a worktree may write there, because git does. But git also reads the records of all other worktrees,
//! for example to list branches. A pipe in one record blocks every such command, and a record that names another
//! repository makes every such command fail. So records are checked before such a command, without git and without
//! following links.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

use cowhand_core::workspace::{IsolationKind, Workspace};
use cowhand_system::beneath::{NotOpened, Root};
use cowhand_system::remove::remove_folder;
use cowhand_system::tree::{self, Next, Purpose, TreeEntry, TreeStep};
use rustix::fs::FileType;
use tracing::warn;

use super::branch_ref;
use super::diff::common;
use super::error::WorkspaceError;
use super::git::Git;

/// Maximum size of a file of a record that has one line.
const MAX_RECORD_LINE_BYTES: u64 = 16 << 10;
/// Content of `commondir`: the repository, relative to the record.
const COMMON_DIRECTORY: &str = "../..";
/// Files of a record that git reads for commands in other worktrees, or without which git does not work.
const FILES: [&str; 8] =
    ["commondir", "gitdir", "HEAD", "locked", "index", "config.worktree", "BISECT_START", "ORIG_HEAD"];
/// Files of one line that may be missing. A file that is too long is removed.
const OPTIONAL_LINES: [&str; 4] = ["locked", "BISECT_START", "head-name", "onto"];
/// Socket of a daemon that git starts in a worktree with `core.fsmonitor`. Git does not open it as a file.
const MONITOR_SOCKET: &str = "fsmonitor--daemon.ipc";
/// Folder of a record with the repositories of submodules, which git does not read for other worktrees.
const SUBMODULES: &str = "modules";
/// Folders of the repository that an agent with a worktree may write, and that git reads for most commands.
const SHARED_FOLDERS: [&str; 4] = ["refs", "logs", "objects/info", "objects/pack"];

/// Returns the path of the record. Git names the record after the folder of the worktree.
fn path(common: &Path, workspace: &Workspace) -> Option<PathBuf> {
    Some(common.join("worktrees").join(workspace.path.file_name()?))
}

/// Restores the records of this workspace and of all others in the same folder, and removes pipes from the repository.
/// Returns a note for people if the record of this workspace was changed.
pub(super) fn restore(workspace: &Workspace) -> Result<Option<String>, WorkspaceError> {
    // This command reads no records.
    let common = common(&Git::at(&workspace.repository))?;
    remove_pipes(&common);
    let worktrees = common.join("worktrees");
    let entries = match Root::open(&worktrees).and_then(|root| root.entries()) {
        Err(NotOpened::Missing) => return Ok(None),
        entries => entries.map_err(|error| WorkspaceError::NotReadable { path: worktrees.clone(), error })?,
    };
    let mut note = None;
    for (name, kind) in entries {
        let (record, place) = (worktrees.join(&name), workspace.path.with_file_name(&name));
        let is_own = place == workspace.path && workspace.kind == IsolationKind::Worktree;
        // All other records belong to worktrees that are not workspaces of this fleet.
        if kind != FileType::Directory || !(is_own || super::remove::is_directory(&place).unwrap_or_default())
        {
            continue;
        }
        let branch = is_own.then_some(workspace.branch.as_str());
        match restore_one(&record, &place, branch) {
            Ok(changed) if changed.is_empty() => {}
            Ok(changed) => {
                let changed = changed.join(", ");
                warn!(
                    "restored the record of a worktree, which its agent had changed: {changed} in {}",
                    record.display()
                );
                if is_own {
                    note = Some(format!(
                        "the agent changed git's record of the worktree ({changed}); the record was restored"
                    ));
                }
            }
            Err(error) if is_own => return Err(WorkspaceError::File { path: record, error }),
            // A damaged record of another job is not an error of this job. If git cannot read that record, git itself
            // ends with an error or after its timeout.
            Err(error) => warn!("cannot restore the record of a worktree: {}: {error}", record.display()),
        }
    }
    Ok(note)
}

/// Removes the record, whatever is in it. Call this function only while the directory of the workspace does not exist
/// or is not complete.
pub(super) fn remove(workspace: &Workspace) -> Result<(), WorkspaceError> {
    let common = common(&Git::at(&workspace.repository))?;
    let Some(record) = path(&common, workspace) else { return Ok(()) };
    remove_folder(&record).map_err(WorkspaceError::file(&record))
}

/// Returns the commit of a detached HEAD; none if the HEAD is a branch, or if there is no record. Call [`restore`]
/// before.
pub(super) fn detached_head(workspace: &Workspace) -> Result<Option<String>, WorkspaceError> {
    let common = common(&Git::at(&workspace.repository))?;
    let Some(record) = path(&common, workspace) else { return Ok(None) };
    let head = match Root::open(&record).and_then(|root| root.read(Path::new("HEAD"), MAX_RECORD_LINE_BYTES))
    {
        Err(NotOpened::Missing) => return Ok(None),
        head => head.map_err(|error| WorkspaceError::NotReadable { path: record.join("HEAD"), error })?,
    };
    let head = String::from_utf8_lossy(&head).trim_end_matches('\n').to_owned();
    Ok(is_commit(&head).then_some(head))
}

/// Restores a record, and returns the names of the files that were wrong. The agent may still run.
fn restore_one(record: &Path, workspace: &Path, branch: Option<&str>) -> io::Result<Vec<String>> {
    let mut changed = Vec::new();
    tree::walk(record, &mut |step| {
        match step {
            TreeStep::Folder(found) => {
                let below: PathBuf = found.path.iter().skip(1).collect();
                if below == Path::new(SUBMODULES) {
                    return Ok(Next::Skip);
                }
                // If the folder stays closed, the next step reports it.
                found.make_accessible(Purpose::Remove).ok();
            }
            TreeStep::File(found) if is_wrong(found) => {
                found.remove()?;
                changed.push(found.path.iter().skip(1).collect::<PathBuf>().display().to_string());
            }
            TreeStep::File(found) => {
                // A file that has vanished does not have to be accessible.
                found.make_accessible(Purpose::Read).ok();
            }
            TreeStep::Left(_) | TreeStep::Closed(..) => {}
        }
        Ok(Next::Continue)
    })?;
    for name in FILES {
        if super::remove::is_directory(&record.join(name))? {
            remove_folder(&record.join(name))?;
            changed.push(name.to_owned());
        }
    }
    let root = Root::open(record).map_err(io::Error::from)?;
    let line = |name: &str| {
        let text = root.read(Path::new(name), MAX_RECORD_LINE_BYTES).ok()?;
        Some(String::from_utf8(text).ok()?.trim_end_matches('\n').to_owned())
    };
    let place = workspace.join(".git");
    if line("commondir").is_none_or(|line| line != COMMON_DIRECTORY) {
        write(&root, record, "commondir", COMMON_DIRECTORY)?;
        changed.push("commondir".to_owned());
    }
    // Git can be configured to write a relative path.
    if line("gitdir").is_none_or(|line| without_dots(&record.join(line)) != place) {
        write(&root, record, "gitdir", &place.to_string_lossy())?;
        changed.push("gitdir".to_owned());
    }
    if line("HEAD").is_none_or(|line| !is_head(&line)) {
        // The branch of another job is not known here. With this invalid name, git shows the worktree without a branch.
        let branch = branch.map_or_else(|| branch_ref(".invalid"), branch_ref);
        write(&root, record, "HEAD", &format!("ref: {branch}"))?;
        changed.push("HEAD".to_owned());
    }
    changed.sort();
    changed.dedup();
    Ok(changed)
}

/// Returns true for a file of [`OPTIONAL_LINES`] that is too long, and for everything except regular files and the
/// socket of git's own daemon.
fn is_wrong(found: &TreeEntry<'_>) -> bool {
    let is_line =
        || found.path.file_name().is_some_and(|name| OPTIONAL_LINES.iter().any(|line| name == *line));
    match found.kind {
        FileType::RegularFile => is_line() && found.size().is_ok_and(|size| size > MAX_RECORD_LINE_BYTES),
        FileType::Socket => !found.path.iter().skip(1).eq([MONITOR_SOCKET]),
        _ => true,
    }
}

/// Returns true if this is a valid `HEAD`: a commit or a reference.
fn is_head(line: &str) -> bool {
    let is_reference = |name: &str| {
        name.starts_with("refs/")
            && !name.contains("..")
            && !name.contains(|c: char| c.is_control() || c == ' ')
    };
    is_commit(line) || line.strip_prefix("ref: ").is_some_and(is_reference)
}

fn is_commit(line: &str) -> bool {
    matches!(line.len(), 40 | 64) && line.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Writes a file of a record. An existing file is replaced atomically.
fn write(root: &Root, record: &Path, name: &str, line: &str) -> io::Result<()> {
    let new = format!("{name}.cowhand");
    remove_folder(&record.join(&new))?;
    root.create_new(&new)?.write_all(format!("{line}\n").as_bytes())?;
    root.rename(&new, name)
}

/// Resolves `..` without looking at the disk, where the agent could have made links.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Removes pipes, and links to pipes and devices, from the folders that an agent may write. Git would wait for them.
fn remove_pipes(common: &Path) {
    for folder in SHARED_FOLDERS {
        let top = common.join(folder);
        let walked = tree::walk(&top, &mut |step| {
            if let TreeStep::File(found) = step
                && found.path.iter().count() > 1
                && blocks(found, &top)
            {
                found.remove()?;
                warn!(
                    "removed a file that is not regular, for which git would wait: {} in {}",
                    found.path.display(),
                    common.display()
                );
            }
            Ok(Next::Continue)
        });
        if let Err(error) = walked {
            warn!("cannot search {} for pipes: {error}", top.display());
        }
    }
}

/// Returns true if git would wait for this file, or read it without an end.
fn blocks(found: &TreeEntry<'_>, top: &Path) -> bool {
    match found.kind {
        FileType::RegularFile | FileType::Directory => false,
        FileType::Symlink => {
            let path: PathBuf = found.path.iter().skip(1).collect();
            fs::metadata(top.join(path)).is_ok_and(|target| {
                let kind = target.file_type();
                kind.is_fifo() || kind.is_char_device()
            })
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_a_commit_or_a_reference_is_a_head() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        for (line, valid) in [
            (commit, true),
            ("ref: refs/heads/cowhand/coder/job-1", true),
            ("ref: refs/heads/../../x", false),
            ("ref: HEAD", false),
            ("ref: refs/heads/a b", false),
            ("", false),
            ("main", false),
        ] {
            assert_eq!(is_head(line), valid, "{line:?}");
        }
    }

    #[test]
    fn a_changed_record_is_restored_and_a_valid_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (record, place) =
            (folder.path().join("repo/.git/worktrees/job"), folder.path().join("spaces/job"));
        let write_valid = || {
            remove_folder(&record).unwrap();
            fs::create_dir_all(&record).unwrap();
            fs::write(record.join("commondir"), "../..\n").unwrap();
            fs::write(record.join("gitdir"), format!("{}/.git\n", place.display())).unwrap();
            fs::write(record.join("HEAD"), "ref: refs/heads/mine\n").unwrap();
        };
        let pipe = |name: &str| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, record.join(name), FileType::Fifo, mode, 0).unwrap();
        };
        write_valid();
        assert!(restore_one(&record, &place, Some("mine")).unwrap().is_empty());
        fs::write(record.join("gitdir"), "../../../../spaces/job/.git\n").unwrap();
        assert!(restore_one(&record, &place, None).unwrap().is_empty(), "a relative path is valid");
        for name in FILES {
            for damage in ["pipe", "folder", "link", "missing"] {
                write_valid();
                remove_folder(&record.join(name)).unwrap();
                match damage {
                    "pipe" => pipe(name),
                    "folder" => fs::create_dir_all(record.join(name).join("inner")).unwrap(),
                    "link" => std::os::unix::fs::symlink("/etc/passwd", record.join(name)).unwrap(),
                    _ => {}
                }
                let is_needed = ["commondir", "gitdir", "HEAD"].contains(&name);
                let changed = restore_one(&record, &place, Some("branch")).unwrap();
                assert_eq!(changed.is_empty(), damage == "missing" && !is_needed, "{name} {damage}");
                assert_eq!(record.join(name).is_file(), is_needed, "{name} {damage}");
                assert_eq!(fs::read_to_string(record.join("commondir")).unwrap(), "../..\n");
                let gitdir = fs::read_to_string(record.join("gitdir")).unwrap();
                assert_eq!(gitdir, format!("{}/.git\n", place.display()));
                let head = fs::read_to_string(record.join("HEAD")).unwrap();
                assert_eq!(
                    head,
                    format!("ref: refs/heads/{}\n", if name == "HEAD" { "branch" } else { "mine" })
                );
            }
        }
        for (name, text) in [("commondir", "/elsewhere"), ("gitdir", "/elsewhere/.git"), ("HEAD", "garbage")]
        {
            write_valid();
            fs::write(record.join(name), text).unwrap();
            assert_eq!(restore_one(&record, &place, Some("mine")).unwrap(), [name]);
        }
        write_valid();
        fs::create_dir(record.join("rebase-merge")).unwrap();
        pipe("rebase-merge/head-name");
        fs::write(record.join("locked"), vec![b'x'; 20 << 10]).unwrap();
        let changed = restore_one(&record, &place, None).unwrap();
        assert_eq!(changed, ["locked", "rebase-merge/head-name"]);
    }

    #[test]
    fn the_socket_of_gits_own_daemon_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (record, place) = (folder.path().join("record"), folder.path().join("job"));
        fs::create_dir_all(record.join("refs")).unwrap();
        fs::write(record.join("commondir"), "../..\n").unwrap();
        fs::write(record.join("gitdir"), format!("{}/.git\n", place.display())).unwrap();
        fs::write(record.join("HEAD"), "ref: refs/heads/mine\n").unwrap();
        let own = record.join("fsmonitor--daemon.ipc");
        let _listener = UnixListener::bind(&own).unwrap();
        assert_eq!(restore_one(&record, &place, None).unwrap(), [""; 0]);
        assert!(fs::symlink_metadata(&own).unwrap().file_type().is_socket());
        // Git would read these as files.
        let others = ["locked", "refs/fsmonitor--daemon.ipc"];
        let _listeners = others.map(|name| UnixListener::bind(record.join(name)).unwrap());
        assert_eq!(restore_one(&record, &place, None).unwrap(), others);
        fs::remove_file(&own).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &own, FileType::Fifo, mode, 0).unwrap();
        assert_eq!(restore_one(&record, &place, None).unwrap(), ["fsmonitor--daemon.ipc"]);
    }
}

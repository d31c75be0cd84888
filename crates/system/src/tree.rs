//! Walks through a folder that somebody else may have filled. It can contain links, folders without access, and folders
//! so deep that the kernel does not accept their paths. So each folder is opened from the folder above it, with one
//! descriptor at a time, and links are not followed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::vec;

use rustix::fs::{Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// File or folder that a walk finds.
#[derive(Debug)]
pub struct TreeEntry<'a> {
    folder: &'a OwnedFd,
    /// Path that begins with the name of the top folder.
    pub path: &'a Path,
    pub kind: FileType,
}

/// One step of a walk.
#[derive(Debug)]
pub enum TreeStep<'a> {
    /// Anything but a folder.
    File(TreeEntry<'a>),
    /// A folder, before it is opened.
    Folder(TreeEntry<'a>),
    /// A folder, after everything in it was visited.
    Left(TreeEntry<'a>),
    /// A folder that cannot be opened or listed.
    Closed(TreeEntry<'a>, io::Error),
}

/// Instruction to the walk after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Continue,
    /// The content of the folder is left out.
    Skip,
    /// The walk ends.
    Stop,
}

/// Purpose for which this user needs access to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Read a file, or list and search a folder.
    Read,
    /// Remove a file, or a folder with everything in it.
    Remove,
}

impl TreeEntry<'_> {
    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    fn about(&self) -> io::Result<Stat> {
        Ok(rustix::fs::statat(self.folder, self.name(), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Returns the size of a file in bytes.
    pub fn size(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.about()?.st_size).unwrap_or_default())
    }

    /// Returns the time of the last change of the inode, which no user can set.
    pub fn changed_at(&self) -> io::Result<SystemTime> {
        let about = self.about()?;
        let seconds = u64::try_from(about.st_ctime).unwrap_or_default();
        let nanoseconds = u32::try_from(about.st_ctime_nsec).unwrap_or_default();
        Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds))
    }

    /// Gives this user access to a file or folder that the user owns. Returns whether the user has access now.
    pub fn make_accessible(&self, purpose: Purpose) -> io::Result<bool> {
        let (required, access) = match (self.kind, purpose) {
            (FileType::Directory, Purpose::Read) => (0o500, Access::READ_OK | Access::EXEC_OK),
            (FileType::Directory, Purpose::Remove) => {
                (0o700, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
            }
            (FileType::RegularFile, Purpose::Read) => (0o400, Access::READ_OK),
            _ => return Ok(true),
        };
        let about = self.about()?;
        if about.st_mode & required == required && is_own(&about) {
            return Ok(true);
        }
        // The user may already have access although the check above fails: another user owns the entry and its mode
        // allows access, or modes do not apply to this user, for example to root.
        if rustix::fs::accessat(self.folder, self.name(), access, AtFlags::EACCESS).is_ok() {
            return Ok(true);
        }
        if !is_own(&about) {
            return Ok(false);
        }
        self.set_mode(about, required)?;
        Ok(true)
    }

    /// Adds bits to the mode. The file is opened first, so that a link that replaces it is not followed.
    fn set_mode(&self, about: Stat, bits: u32) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(self.folder, self.name(), flags, Mode::empty())?;
        if identity(&rustix::fs::fstat(&opened)?) != identity(&about) {
            return Err(io::Error::other("it was replaced"));
        }
        // `fchmod` does not accept a descriptor that was opened with `O_PATH`, so the mode is changed by this path.
        let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
        fs::set_permissions(path, Permissions::from_mode((about.st_mode & 0o7777) | bits))
    }

    /// Removes a file or an empty folder; a missing one is ignored. Processes that wait at a pipe continue.
    pub fn remove(&self) -> io::Result<()> {
        // While this handle is open, no process waits in `open` for the other end of the pipe. After the handle is
        // closed, a process that reads from the pipe gets the end of the file.
        let _end = (self.kind == FileType::Fifo).then(|| {
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(self.folder, self.name(), flags, Mode::empty())
        });
        let flags = if self.kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(self.folder, self.name(), flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_own(about: &Stat) -> bool {
    about.st_uid == rustix::process::geteuid().as_raw()
}

const fn identity(about: &Stat) -> (u64, u64) {
    (about.st_dev, about.st_ino)
}

/// A folder that is being walked.
struct Level {
    entries: vec::IntoIter<(OsString, FileType)>,
    /// Identity of the folder, to recognise it on the way back.
    identity: (u64, u64),
}

/// Walks through a folder and everything below it, in the order of names. The first step is for the folder itself. If
/// `top` is a file, there is one step. A missing folder is not an error.
pub fn walk(top: &Path, visit: &mut dyn FnMut(&TreeStep<'_>) -> io::Result<Next>) -> io::Result<()> {
    let (above, name) = (top.parent().filter(|above| !above.as_os_str().is_empty()), top.file_name());
    let name = name.ok_or_else(|| io::Error::other(format!("{} has no name", top.display())))?;
    let above = above.unwrap_or(Path::new("."));
    let current = match rustix::fs::openat(CWD, above, OPEN_FOLDER, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let about = match rustix::fs::statat(&current, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        about => about?,
    };
    let first = vec![(name.to_owned(), FileType::from_raw_mode(about.st_mode))];
    let level = Level { entries: first.into_iter(), identity: identity(&rustix::fs::fstat(&current)?) };
    Walk { current, levels: vec![level], path: PathBuf::new() }.run(visit)
}

struct Walk {
    current: OwnedFd,
    levels: Vec<Level>,
    path: PathBuf,
}

impl Walk {
    fn run(mut self, visit: &mut dyn FnMut(&TreeStep<'_>) -> io::Result<Next>) -> io::Result<()> {
        while let Some(level) = self.levels.last_mut() {
            let Some((name, kind)) = level.entries.next() else {
                if !self.leave(visit)? {
                    return Ok(());
                }
                continue;
            };
            self.path.push(name);
            let found = TreeEntry { folder: &self.current, path: &self.path, kind };
            let is_folder = kind == FileType::Directory;
            let step = if is_folder { TreeStep::Folder(found) } else { TreeStep::File(found) };
            match visit(&step)? {
                Next::Stop => return Ok(()),
                Next::Continue if is_folder => match self.enter() {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(error) => {
                        let found = TreeEntry { folder: &self.current, path: &self.path, kind };
                        if visit(&TreeStep::Closed(found, error))? == Next::Stop {
                            return Ok(());
                        }
                    }
                },
                Next::Continue | Next::Skip => {}
            }
            self.path.pop();
        }
        Ok(())
    }

    /// Opens the folder of the current path, and returns whether it still exists.
    fn enter(&mut self) -> io::Result<bool> {
        let name = self.path.file_name().unwrap_or_default();
        let opened = match rustix::fs::openat(&self.current, name, LIST_FOLDER, Mode::empty()) {
            // Somebody removed or replaced it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            opened => opened?,
        };
        let identity = identity(&rustix::fs::fstat(&opened)?);
        // Without the right to search the folder, `leave` could not open `..` in it.
        rustix::fs::statat(&opened, ".", AtFlags::empty())?;
        let entries = entries(&opened)?.into_iter();
        self.levels.push(Level { entries, identity });
        self.current = opened;
        Ok(true)
    }

    /// Goes back to the folder above, and returns whether the walk continues.
    fn leave(&mut self, visit: &mut dyn FnMut(&TreeStep<'_>) -> io::Result<Next>) -> io::Result<bool> {
        self.levels.pop();
        let Some(above) = self.levels.last() else { return Ok(false) };
        let opened = rustix::fs::openat(&self.current, "..", OPEN_FOLDER, Mode::empty())?;
        if identity(&rustix::fs::fstat(&opened)?) != above.identity {
            return Err(io::Error::other(format!("{} was moved meanwhile", self.path.display())));
        }
        self.current = opened;
        let kind = FileType::Directory;
        let next = visit(&TreeStep::Left(TreeEntry { folder: &self.current, path: &self.path, kind }))?;
        self.path.pop();
        Ok(next != Next::Stop)
    }
}

const OPEN_FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const LIST_FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Lists the names in a folder in order, each with its type.
fn entries(folder: &OwnedFd) -> io::Result<Vec<(OsString, FileType)>> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not state the type.
            FileType::Unknown => match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(about) => FileType::from_raw_mode(about.st_mode),
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            },
            kind => kind,
        };
        found.push((OsStr::from_bytes(name.to_bytes()).to_owned(), kind));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// Returns the size of a file, or of all files in a folder. Missing files, and folders that this user may not list,
/// count as 0.
pub fn size(top: &Path) -> io::Result<u64> {
    let mut sum: u64 = 0;
    walk(top, &mut |step| {
        match step {
            // It may have been removed meanwhile.
            TreeStep::File(found) => sum = sum.saturating_add(found.size().unwrap_or_default()),
            TreeStep::Closed(_, error) if error.kind() != io::ErrorKind::PermissionDenied => {
                return Err(io::Error::new(error.kind(), error.to_string()));
            }
            TreeStep::Closed(..) | TreeStep::Folder(_) | TreeStep::Left(_) => {}
        }
        Ok(Next::Continue)
    })?;
    Ok(sum)
}

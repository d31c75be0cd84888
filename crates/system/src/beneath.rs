//! Opens files below a root directory without following a symbolic link.
//!
//! The daemon reads files in directories where an agent can write. The daemon may also read files that the agent may
//! not read. With a symbolic link in such a directory, the agent could make the daemon read such a file and pass it on.
//! So every read in such a directory uses this module: the path of the root may contain links, the path below the root
//! may not, and only regular files are opened.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::remove::remove_folder;

/// Reason why a file or directory was not opened.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    #[error("it does not exist")]
    Missing,
    #[error("it is a symbolic link, or its path contains one; links are not followed here")]
    Link,
    #[error("it is not a regular file")]
    NotRegular,
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    #[error("its path leaves the directory")]
    Outside,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<NotOpened> for io::Error {
    fn from(error: NotOpened) -> Self {
        match error {
            NotOpened::Io(error) => error,
            NotOpened::Missing => Self::from(Errno::NOENT),
            error => Self::other(error),
        }
    }
}

/// A directory below which files are opened.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// Maximum number of links on a path, as in the kernel. More links count as a loop.
pub const MAX_LINKS: usize = 40;

impl Root {
    /// Opens a directory, following links on its own path.
    pub fn open(path: &Path) -> Result<Self, NotOpened> {
        Ok(Self(rustix::fs::openat(CWD, path, OPEN_DIRECTORY, Mode::empty()).map_err(not_opened)?))
    }

    /// Opens a directory that the config names. Links on its path are followed. A link in one of the `writable` folders
    /// is an error, because an agent can make links there.
    pub fn configured(path: &Path, writable: &[PathBuf]) -> Result<Self, NotOpened> {
        // A component that became a link since it was resolved is not followed.
        Self::without_links(&resolve(path, writable)?)
    }

    /// Opens a directory by its real path. A link anywhere on the path is an error.
    pub fn without_links(path: &Path) -> Result<Self, NotOpened> {
        Self::open(Path::new("/"))?.directory(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the real path of this directory.
    pub fn path(&self) -> io::Result<PathBuf> {
        real_path(&self.0)
    }

    /// Opens a directory below this one.
    pub fn directory(&self, below: &Path) -> Result<Self, NotOpened> {
        Ok(Self(self.open_at(&plain(below)?, OPEN_DIRECTORY)?))
    }

    /// Opens a regular file below this directory for reading.
    pub fn file(&self, below: &Path) -> Result<File, NotOpened> {
        self.open_file(below, OFlags::RDONLY)
    }

    /// Opens a regular file below this directory for reading and writing.
    pub fn file_to_change(&self, below: &Path) -> Result<File, NotOpened> {
        self.open_file(below, OFlags::RDWR)
    }

    /// Reads a regular file below this directory if it has at most `most` bytes.
    pub fn read(&self, below: &Path, most: u64) -> Result<Vec<u8>, NotOpened> {
        read(self.file(below)?, most)
    }

    /// Lists the names in this directory, each with its type.
    pub fn entries(&self) -> Result<Vec<(OsString, FileType)>, NotOpened> {
        let listed = rustix::fs::openat(&self.0, ".", LIST_DIRECTORY, Mode::empty()).map_err(not_opened)?;
        let mut found = Vec::new();
        for entry in Dir::new(listed).map_err(not_opened)? {
            let entry = entry.map_err(not_opened)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not state the type.
                FileType::Unknown => match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(about) => FileType::from_raw_mode(about.st_mode),
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(not_opened(error)),
                },
                kind => kind,
            };
            found.push((os_string(name.to_bytes()), kind));
        }
        Ok(found)
    }

    /// Opens the directory itself, to lock or to sync it.
    pub fn handle(&self) -> io::Result<File> {
        Ok(rustix::fs::openat(&self.0, ".", LIST_DIRECTORY, Mode::empty())?.into())
    }

    /// Creates a new file in this directory, for the owner only.
    pub fn create_new(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Creates the directories of a path below this directory, for the owner only, and opens the last one. Directories
    /// that exist stay as they are. A link on the path is an error.
    pub fn make_directories(&self, below: &Path) -> Result<Self, NotOpened> {
        let mut at = self.directory(Path::new("."))?;
        for name in plain(below)?.components().filter(|part| matches!(part, Component::Normal(_))) {
            match rustix::fs::mkdirat(&at.0, name.as_os_str(), Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(not_opened(error)),
            }
            at = at.directory(Path::new(name.as_os_str()))?;
        }
        Ok(at)
    }

    /// Removes a file, or a directory with everything in it, from this directory. Links are removed, not followed. A
    /// missing file is not an error.
    pub fn remove_all(&self, name: &str) -> io::Result<()> {
        let here = PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        remove_folder(&here.join(name))
    }

    /// Renames a file within this directory.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file or a link from this directory.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    fn open_file(&self, below: &Path, mode: OFlags) -> Result<File, NotOpened> {
        // Opening a pipe without a writer must not block.
        let flags = mode | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(self.open_at(&plain(below)?, flags)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(NotOpened::NotRegular) }
    }

    fn open_at(&self, below: &Path, flags: OFlags) -> Result<OwnedFd, NotOpened> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(&self.0, below, flags, Mode::empty(), resolve) {
            // Older kernels do not have this call, and some seccomp filters of containers refuse it.
            Err(Errno::NOSYS | Errno::PERM) => self.walk(below, flags),
            opened => opened.map_err(not_opened),
        }
    }

    /// Opens a path component by component, without following links, where `openat2` is not available.
    fn walk(&self, below: &Path, flags: OFlags) -> Result<OwnedFd, NotOpened> {
        let mut at = rustix::fs::openat(&self.0, ".", OPEN_DIRECTORY, Mode::empty()).map_err(not_opened)?;
        let mut names = below.components().peekable();
        while let Some(name) = names.next() {
            let flags = if names.peek().is_some() { OPEN_DIRECTORY } else { flags };
            let name = name.as_os_str();
            at = match rustix::fs::openat(&at, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
                // The kernel's error for a link depends on the flags.
                Err(Errno::NOTDIR) if is_link(&at, name) => return Err(NotOpened::Link),
                opened => opened.map_err(not_opened)?,
            };
        }
        Ok(at)
    }
}

const OPEN_DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const LIST_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Reads an open file if it has at most `most` bytes.
pub fn read(file: File, most: u64) -> Result<Vec<u8>, NotOpened> {
    let mut bytes = Vec::new();
    if file.metadata()?.len() <= most {
        file.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= most {
            return Ok(bytes);
        }
    }
    Err(NotOpened::TooLarge(most))
}

/// Resolves every link on a path. A link in one of the `writable` folders is an error.
pub fn resolve(path: &Path, writable: &[PathBuf]) -> Result<PathBuf, NotOpened> {
    let path = std::path::absolute(path)?;
    let mut left: Vec<OsString> = reversed(&path);
    let (mut real, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = left.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        let target = match fs::read_link(&next) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                real = next;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NotOpened::Missing),
            Err(error) => return Err(error.into()),
        };
        links += 1;
        if links > MAX_LINKS || writable.iter().any(|place| real.starts_with(place)) {
            return Err(NotOpened::Link);
        }
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        left.extend(reversed(&target));
    }
    Ok(real)
}

/// Returns the real path of an open file or directory.
pub fn real_path(opened: &impl AsRawFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names.map(|part| part.as_os_str().to_owned()).rev().collect()
}

/// Removes `.` and `..` from a path without looking at the disk. A path that leads out of the root is an error.
fn plain(below: &Path) -> Result<PathBuf, NotOpened> {
    let mut plain = PathBuf::new();
    for part in below.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir if plain.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(NotOpened::Outside);
            }
        }
    }
    if plain.as_os_str().is_empty() {
        plain.push(".");
    }
    Ok(plain)
}

fn is_link(at: &OwnedFd, name: &std::ffi::OsStr) -> bool {
    let about = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
    about.is_ok_and(|about| FileType::from_raw_mode(about.st_mode) == FileType::Symlink)
}

fn os_string(name: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(name).to_owned()
}

fn not_opened(error: Errno) -> NotOpened {
    match error {
        Errno::NOENT | Errno::NOTDIR => NotOpened::Missing,
        Errno::LOOP => NotOpened::Link,
        Errno::XDEV => NotOpened::Outside,
        // A socket, a device without hardware, or a directory that was opened for writing.
        Errno::NXIO | Errno::ISDIR => NotOpened::NotRegular,
        error => NotOpened::Io(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Creates a folder with a root, files inside and outside the root, and every kind of link between them.
    fn place() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("root/sub")).unwrap();
        fs::create_dir_all(at("out")).unwrap();
        fs::write(at("root/file"), "inside").unwrap();
        fs::write(at("root/sub/file"), "below").unwrap();
        fs::write(at("out/file"), "outside").unwrap();
        symlink(at("out/file"), at("root/absolute")).unwrap();
        symlink("../out/file", at("root/relative")).unwrap();
        symlink("file", at("root/inner")).unwrap();
        symlink("../out", at("root/folder")).unwrap();
        symlink("sub", at("root/folder-inside")).unwrap();
        symlink("nowhere", at("root/dangling")).unwrap();
        symlink("round", at("root/round")).unwrap();
        symlink("/proc/self/root", at("root/magic")).unwrap();
        rustix::fs::mknodat(CWD, at("root/pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        drop(UnixListener::bind(at("root/socket")).unwrap());
        folder
    }

    fn text_or_error(read: Result<Vec<u8>, NotOpened>) -> String {
        read.map_or_else(|error| error.to_string(), |bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn links_special_files_and_paths_out_of_the_root_are_refused() {
        let folder = place();
        let root = Root::open(&folder.path().join("root")).unwrap();
        let link = NotOpened::Link.to_string();
        let regular = NotOpened::NotRegular.to_string();
        let outside = NotOpened::Outside.to_string();
        let missing = NotOpened::Missing.to_string();
        for (path, expected) in [
            ("file", "inside"),
            ("./sub/../file", "inside"),
            ("sub/file", "below"),
            ("absolute", &link),
            ("relative", &link),
            ("inner", &link),
            ("folder/file", &link),
            ("folder-inside/file", &link),
            ("dangling", &link),
            ("round", &link),
            ("magic/etc/passwd", &link),
            ("pipe", &regular),
            ("socket", &regular),
            ("sub", &regular),
            (".", &regular),
            ("../out/file", &outside),
            ("sub/../../out/file", &outside),
            ("/etc/passwd", &outside),
            ("nothing", &missing),
            ("file/below", &missing),
        ] {
            let path = Path::new(path);
            assert_eq!(text_or_error(root.read(path, 100)), expected, "{}", path.display());
            // The result must be the same without `openat2`, as on older kernels.
            let without_openat2 = plain(path).and_then(|below| {
                let file = File::from(root.walk(&below, OFlags::RDONLY | OFlags::NONBLOCK)?);
                if file.metadata()?.is_file() {
                    Ok(fs::read(real_path(&file)?)?)
                } else {
                    Err(NotOpened::NotRegular)
                }
            });
            assert_eq!(text_or_error(without_openat2), expected, "{} without openat2", path.display());
        }
        assert_eq!(text_or_error(root.read(Path::new("file"), 5)), "it is larger than 5 bytes");
    }

    #[test]
    fn directories_are_made_and_removed_without_following_links() {
        let folder = place();
        let root = Root::open(&folder.path().join("root")).unwrap();
        let made = root.make_directories(Path::new("./a/b/../c")).unwrap();
        made.create_new("x").unwrap();
        assert!(folder.path().join("root/a/c/x").is_file() && !folder.path().join("root/a/b").exists());
        drop(root.make_directories(Path::new("a/c")).unwrap());
        for (path, expected) in [
            ("folder/new", NotOpened::Link),
            ("folder-inside/new", NotOpened::Link),
            ("dangling", NotOpened::Link),
            ("../new", NotOpened::Outside),
            ("file/new", NotOpened::Missing),
        ] {
            let error = root.make_directories(Path::new(path)).unwrap_err();
            assert_eq!(error.to_string(), expected.to_string(), "{path}");
        }
        std::os::unix::fs::symlink("../../out", folder.path().join("root/a/link")).unwrap();
        root.remove_all("a").unwrap();
        root.remove_all("a").unwrap();
        root.remove_all("folder").unwrap();
        assert!(!folder.path().join("root/a").exists());
        assert_eq!(fs::read_to_string(folder.path().join("out/file")).unwrap(), "outside");
        assert!(!folder.path().join("new").exists() && !folder.path().join("out/new").exists());
    }

    #[test]
    fn a_root_may_be_a_link_unless_an_agent_can_make_it() {
        let folder = place();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        symlink("root", at("known-as")).unwrap();
        let read = |path: &str, writable: &[PathBuf]| {
            text_or_error(
                Root::configured(&at(path), writable).and_then(|root| root.read(Path::new("file"), 100)),
            )
        };
        let link = NotOpened::Link.to_string();
        for (path, writable, expected) in [
            ("root", vec![], "inside"),
            ("known-as", vec![], "inside"),
            ("root/folder", vec![], "outside"),
            ("known-as", vec![at("root")], "inside"),
            ("known-as/sub", vec![at("root")], "below"),
            ("known-as/folder", vec![at("root")], &link),
            ("root/folder", vec![at("root")], &link),
            ("root/folder-inside", vec![at("root")], &link),
            ("root/../out", vec![at("root")], "outside"),
            ("root/round", vec![], &link),
            ("root/nothing", vec![], "it does not exist"),
        ] {
            assert_eq!(read(path, &writable), expected, "{path}");
        }
    }

    #[test]
    fn types_of_entries_do_not_follow_links() {
        let folder = place();
        let entries = Root::open(&folder.path().join("root")).unwrap().entries().unwrap();
        let kind = |name: &str| entries.iter().find(|(found, _)| found == name).map(|(_, kind)| *kind);
        assert_eq!(kind("file"), Some(FileType::RegularFile));
        assert_eq!(kind("sub"), Some(FileType::Directory));
        assert_eq!(kind("folder"), Some(FileType::Symlink));
        assert_eq!(kind("pipe"), Some(FileType::Fifo));
        assert_eq!(entries.len(), 12);
    }
}

//! Session files: the files in which an agent's program records its sessions, with their usage so far.
//!
//! The agent may write in the folder of these files. So no link in the folder is followed, only regular files are read,
//! and large files are read only in part.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use serde_json::Value;

use cowhand_system::beneath::Root;

/// Maximum number of bytes of a record that one call reads.
pub(super) const MAX_RECORD_BYTES: u64 = 64 << 20;
/// Maximum length of a line.
pub(super) const MAX_RECORD_LINE_BYTES: u64 = 8 << 20;

/// Opens the first file whose name ends with `suffix`, in the folder or at most `below` levels below it. Names are
/// visited in descending order, so that a newer date comes before an older one.
pub(super) fn find(folder: &Path, suffix: &str, below: usize) -> Option<File> {
    first(&Root::open(folder).ok()?, suffix, below)
}

fn first(folder: &Root, suffix: &str, below: usize) -> Option<File> {
    let mut entries = folder.entries().ok()?;
    entries.sort_unstable_by(|one, other| other.0.cmp(&one.0));
    entries.into_iter().find_map(|(name, kind)| match kind {
        FileType::RegularFile if is_named(&name, suffix) => folder.file(Path::new(&name)).ok(),
        FileType::Directory if below > 0 => {
            first(&folder.directory(Path::new(&name)).ok()?, suffix, below - 1)
        }
        _ => None,
    })
}

/// Opens all files whose name ends with `suffix`, in the folder or at most `below` levels below it, and returns them
/// with their paths.
pub(super) fn find_all(folder: &Path, suffix: &str, below: usize) -> Vec<(PathBuf, File)> {
    let mut found = Vec::new();
    if let Ok(root) = Root::open(folder) {
        gather(&root, folder, suffix, below, &mut found);
    }
    found
}

fn gather(folder: &Root, path: &Path, suffix: &str, below: usize, found: &mut Vec<(PathBuf, File)>) {
    for (name, kind) in folder.entries().unwrap_or_default() {
        let (name, path) = (Path::new(&name), path.join(&name));
        match kind {
            FileType::RegularFile if is_named(name.as_os_str(), suffix) => {
                found.extend(folder.file(name).ok().map(|file| (path, file)));
            }
            FileType::Directory if below > 0 => {
                if let Ok(inner) = folder.directory(name) {
                    gather(&inner, &path, suffix, below - 1, found);
                }
            }
            _ => {}
        }
    }
}

fn is_named(name: &OsStr, suffix: &str) -> bool {
    name.to_str().is_some_and(|name| name.ends_with(suffix))
}

/// Returns the value of the last line that contains `pattern` and that `read` accepts. Of a large record, only the end
/// is read.
pub(super) fn last_value<T>(
    mut record: File,
    pattern: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Option<T> {
    let length = record.metadata().ok()?.len();
    record.seek(SeekFrom::Start(length.saturating_sub(MAX_RECORD_BYTES))).ok()?;
    let mut lines = BufReader::new(record).take(MAX_RECORD_BYTES);
    let (mut line, mut found) = (Vec::new(), None);
    while (&mut lines).take(MAX_RECORD_LINE_BYTES).read_until(b'\n', &mut line).ok()? > 0 {
        if memchr::memmem::find(&line, pattern.as_bytes()).is_some()
            && let Ok(value) = serde_json::from_slice(&line)
        {
            found = read(&value).or(found);
        }
        line.clear();
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode};

    use super::*;

    /// The agent may write in the folder of the records.
    #[test]
    fn links_and_pipes_are_not_read() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("sessions/2026")).unwrap();
        fs::create_dir_all(at("elsewhere")).unwrap();
        fs::write(at("elsewhere/a-1.jsonl"), "{\"n\":1}\n").unwrap();
        symlink(at("elsewhere/a-1.jsonl"), at("sessions/2026/b-1.jsonl")).unwrap();
        symlink(at("elsewhere"), at("sessions/2027")).unwrap();
        let pipe = at("sessions/2026/c-1.jsonl");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(find(&at("sessions"), "-1.jsonl", 3).is_none());
        assert!(find_all(&at("sessions"), "-1.jsonl", 3).is_empty());
        fs::write(at("sessions/2026/a-1.jsonl"), "{\"n\":2}\n{\"n\":3}").unwrap();
        let read = |file| last_value(file, "\"n\"", |line| line["n"].as_u64());
        assert_eq!(find(&at("sessions"), "-1.jsonl", 3).and_then(read), Some(3));
        assert_eq!(find_all(&at("sessions"), "-1.jsonl", 3).len(), 1);
        // The folder itself may be a link that the user made.
        symlink("sessions", at("known-as")).unwrap();
        assert_eq!(find(&at("known-as"), "-1.jsonl", 3).and_then(read), Some(3));
    }

    #[test]
    fn a_large_record_is_read_from_its_end() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a-1.jsonl");
        // The file has a hole of a terabyte.
        fs::write(&path, "{\"n\":1}\n").unwrap();
        let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        std::io::Write::write_all(&mut &file, b"\n{\"n\":2}\n").unwrap();
        let found = find(home.path(), "-1.jsonl", 0)
            .and_then(|file| last_value(file, "\"n\"", |line| line["n"].as_u64()));
        assert_eq!(found, Some(2));
    }
}

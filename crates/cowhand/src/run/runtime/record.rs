//! A CLI's own record of a session, which says what it has used so far.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The file whose name ends like this, in the folder or as many folders below it. In what is named after dates the
/// newest comes first.
pub(super) fn find(folder: &Path, ending: &str, below: usize) -> Option<PathBuf> {
    let mut entries = entries(folder);
    entries.sort_unstable_by(|one, other| other.cmp(one));
    entries.into_iter().find_map(|path| {
        if is_named(&path, ending) {
            Some(path)
        } else if below > 0 && path.is_dir() {
            find(&path, ending, below - 1)
        } else {
            None
        }
    })
}

/// All files of that kind.
pub(super) fn all(folder: &Path, ending: &str, below: usize) -> Vec<PathBuf> {
    let found = entries(folder).into_iter().flat_map(|path| {
        if is_named(&path, ending) {
            vec![path]
        } else if below > 0 && path.is_dir() {
            all(&path, ending, below - 1)
        } else {
            Vec::new()
        }
    });
    found.collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn is_named(path: &Path, ending: &str) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(ending))
}

/// What the last of its lines says that holds `words` and can be read.
pub(super) fn last<T>(record: &Path, words: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
    let lines = BufReader::new(File::open(record).ok()?).split(b'\n').map_while(Result::ok);
    let lines = lines.filter(|line| memchr::memmem::find(line, words.as_bytes()).is_some());
    lines.filter_map(|line| read(&serde_json::from_slice(&line).ok()?)).last()
}

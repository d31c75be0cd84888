//! What an agent could keep out of the diff: files that its own ignore rules cover, text that its attributes call binary,
//! and files in a repository inside of the workspace.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::SystemTime;

use super::alternates::changed_at;
use super::git::Git;
use cowhand_system::beneath::{NotOpened, Root};
use cowhand_system::remove::absent_is_ok;

/// The longest list of names, and the longest file of rules, that is read.
const MAX_LIST_BYTES: usize = 1 << 20;
/// The longest list of the files of a commit.
const MAX_BASE_BYTES: usize = 1 << 26;
/// So many names are in a note; the rest is counted.
const MAX_NAMED_FILES: usize = 10;
/// So many files of an inner repository are counted.
const MAX_COUNTED_FILES: usize = 10_000;

/// Tells which new files are neither in the diff nor ignored by the base. `shown` are the new files that are in the diff,
/// each with a NUL at its end; `rules` is a file that may be written.
pub(super) fn new_files(git: &Git, base: &str, shown: &[u8], rules: &Path) -> Result<Vec<String>, String> {
    let failed = |error| format!("{}: {error}", rules.display());
    fs::write(rules, rules_of(git, base)?).map_err(failed)?;
    let exclude = format!("--exclude-from={}", rules.display());
    let every = git.beginning(&["ls-files", "-z", "--others", &exclude], MAX_LIST_BYTES);
    absent_is_ok(fs::remove_file(rules)).map_err(failed)?;
    let (every, cut) = every?;
    let shown: HashSet<&[u8]> = shown.split(|byte| *byte == 0).collect();
    let whole = every.split_inclusive(|byte| *byte == 0).filter_map(|name| name.strip_suffix(b"\0"));
    let (inner, files): (Vec<&[u8]>, Vec<&[u8]>) = whole.partition(|name| name.ends_with(b"/"));
    let hidden: Vec<&[u8]> = files.into_iter().filter(|name| !shown.contains(name)).collect();
    let mut notes = Vec::new();
    if !hidden.is_empty() {
        let count = if cut { format!("{} or more", hidden.len()) } else { hidden.len().to_string() };
        notes.push(format!(
            "new files that are not in the diff, because of ignore rules that the base does not have: {count} ({})",
            listed(&hidden)
        ));
    }
    for name in inner.iter().take(MAX_NAMED_FILES) {
        let name = String::from_utf8_lossy(name);
        let count = match git.tree().map_or(0, |tree| files_below(&tree.join(&*name))) {
            MAX_COUNTED_FILES => format!("{MAX_COUNTED_FILES} or more"),
            count => count.to_string(),
        };
        notes.push(format!(
            "{name:?} is a repository of its own, which is not in the diff; files in it: {count}"
        ));
    }
    if let Some(more) = inner.len().checked_sub(MAX_NAMED_FILES).filter(|more| *more > 0) {
        notes.push(format!("more repositories inside of the workspace that are not in the diff: {more}"));
    }
    Ok(notes)
}

/// Tells in which submodules of the base something was written since then. Git would compare their files by a process that
/// obeys the submodule's own config.
pub(super) fn submodules(git: &Git, base: &str, since: SystemTime) -> Result<Option<String>, String> {
    let (listed, _) = git.beginning(&["ls-tree", "-r", "-z", base], MAX_BASE_BYTES)?;
    let links = listed.split(|byte| *byte == 0).filter(|entry| entry.starts_with(b"160000 "));
    let names = links.filter_map(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1));
    let Some(tree) = git.tree() else { return Ok(None) };
    let is_written = |name: &&[u8]| is_written_below(&tree.join(OsStr::from_bytes(name)), since);
    let written: Vec<&[u8]> = names.filter(is_written).collect();
    let what = if written.len() == 1 { "submodule" } else { "submodules" };
    Ok((!written.is_empty()).then(|| {
        format!(
            "files in the {what} {} were written while the job ran; they are not compared",
            self::listed(&written)
        )
    }))
}

/// Lists the first names and counts the rest.
fn listed(names: &[&[u8]]) -> String {
    let first = names.iter().take(MAX_NAMED_FILES).map(|name| format!("{:?}", String::from_utf8_lossy(name)));
    let mut list = first.collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMED_FILES {
        list.push_str(", …");
    }
    list
}

/// Collects the rules of all `.gitignore` files of the base, as they would be written at its top.
fn rules_of(git: &Git, base: &str) -> Result<Vec<u8>, String> {
    let (listed, _) = git.beginning(&["ls-tree", "-r", "-z", "--name-only", base], MAX_BASE_BYTES)?;
    let mut rules = Vec::new();
    for name in listed.split(|byte| *byte == 0) {
        let directory = match name.strip_suffix(b".gitignore") {
            Some(b"") => b"".as_slice(),
            Some(directory) if directory.ends_with(b"/") => directory,
            _ => continue,
        };
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let (text, _) = git.beginning(&["cat-file", "blob", &format!("{base}:{name}")], MAX_LIST_BYTES)?;
        for line in text.split(|byte| *byte == b'\n') {
            rules.extend(at_top(directory, line));
        }
    }
    Ok(rules)
}

/// Returns a line of a `.gitignore` as a line of one at the top. The directory is empty or has a slash at its end.
fn at_top(directory: &[u8], line: &[u8]) -> Vec<u8> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() || line.starts_with(b"#") {
        return Vec::new();
    }
    if directory.is_empty() {
        return [line, b"\n"].concat();
    }
    let (not, pattern) = line.strip_prefix(b"!").map_or((b"".as_slice(), line), |rest| (b"!", rest));
    let mut whole = [not, b"/"].concat();
    for byte in directory {
        if matches!(byte, b'\\' | b'*' | b'?' | b'[') {
            whole.push(b'\\');
        }
        whole.push(*byte);
    }
    let trimmed = pattern.trim_ascii_end();
    // Only a pattern with a slash before its end is bound to the directory itself.
    if !trimmed.strip_suffix(b"/").unwrap_or(trimmed).contains(&b'/') {
        whole.extend(b"**/");
    }
    whole.extend(pattern.strip_prefix(b"/").unwrap_or(pattern));
    whole.push(b'\n');
    whole
}

/// Counts the files below a directory, without its own `.git`, up to `MAX_COUNTED_FILES`. Links are not followed.
fn files_below(top: &Path) -> usize {
    let (mut count, mut open) = (0, vec![top.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    if directory != top || entry.file_name() != ".git" {
                        open.push(entry.path());
                    }
                }
                _ => count += 1,
            }
            if count == MAX_COUNTED_FILES {
                return count;
            }
        }
    }
    count
}

/// Whether anything in a directory was changed since then, by the time that nobody can set. Of a large one, the rest that is
/// not looked at counts as changed.
fn is_written_below(top: &Path, since: SystemTime) -> bool {
    let (mut count, mut open) = (0, vec![top.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            count += 1;
            let Ok(found) = entry.metadata() else { continue };
            if count == MAX_COUNTED_FILES || (!found.is_dir() && changed_at(&found) >= since) {
                return true;
            }
            if found.is_dir() {
                open.push(entry.path());
            }
        }
    }
    false
}

/// How a diff is asked for so that no attributes but those of the base decide what is shown.
pub(super) struct Attributes {
    /// Before the name of the command.
    pub(super) before: Vec<String>,
    /// All files are shown as text, and this is why.
    pub(super) as_text: Option<String>,
}

impl Attributes {
    /// `names` are the options that list what is compared.
    pub(super) fn of(git: &Git, repository: &Path, base: &str, names: &[&str]) -> Self {
        // The config may name another file of attributes, or call every file too big to be looked into.
        let set = ["-c", "core.attributesFile=/dev/null", "-c", "core.bigFileThreshold=512m"];
        let mut before: Vec<String> = set.map(str::to_owned).to_vec();
        let mut as_text = hides_text(repository).then(|| {
            let file = repository.join("info/attributes");
            format!("{} says which files are not shown as text; all are shown as text here", file.display())
        });
        // Versions of git before 2.41 do not know it.
        let source = format!("--attr-source={base}");
        if git.run(&[&source, "version"]).is_ok() {
            before.push(source);
        } else if as_text.is_none() {
            let listed =
                git.beginning(&[["diff", "-z", "--name-only"].as_slice(), names].concat(), MAX_LIST_BYTES);
            let is_one = |name: &[u8]| name == b".gitattributes" || name.ends_with(b"/.gitattributes");
            let changed = listed.is_ok_and(|(names, _)| names.split(|byte| *byte == 0).any(is_one));
            as_text = changed.then(|| {
                "`.gitattributes` changed since the base; all files are shown as text here".to_owned()
            });
        }
        Self { before, as_text }
    }

    /// Returns the whole command: `diff` with these options.
    pub(super) fn diff<'a>(&'a self, options: &[&'a str]) -> Vec<&'a str> {
        let before = self.before.iter().map(String::as_str);
        let text = self.as_text.is_some().then_some("--text");
        before.chain(["diff"]).chain(text).chain(options.iter().copied()).collect()
    }
}

/// Tells whether the repository's `info/attributes` may keep text from being shown. Git reads it whatever it is told.
fn hides_text(repository: &Path) -> bool {
    let root = Root::open(repository);
    match root.and_then(|root| root.read(Path::new("info/attributes"), MAX_LIST_BYTES as u64)) {
        Ok(text) => {
            let text = String::from_utf8_lossy(&text);
            text.contains("diff") || text.contains("binary")
        }
        Err(NotOpened::Missing) => false,
        // What cannot be read may say it.
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_below_hold_below() {
        for (directory, line, expected) in [
            ("", "build/", "build/\n"),
            ("", "# no rule", ""),
            ("a/", "*.log\r", "/a/**/*.log\n"),
            ("a/", "build/ ", "/a/**/build/ \n"),
            ("a/", "/build", "/a/build\n"),
            ("a/", "!b/c", "!/a/b/c\n"),
            ("a[1]/", "x", "/a\\[1]/**/x\n"),
        ] {
            let found = at_top(directory.as_bytes(), line.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), expected, "{directory} {line}");
        }
    }
}

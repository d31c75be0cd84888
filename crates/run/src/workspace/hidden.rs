//! Changes that an agent could hide from the diff: files that match ignore rules of the agent, text that git attributes
//! of the agent mark as binary, and files in a nested repository.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::SystemTime;

use super::error::WorkspaceError;
use super::git::Git;
use cowhand_system::beneath::{NotOpened, Root};
use cowhand_system::remove::missing_is_ok;
use cowhand_system::tree::{self, Next, TreeEntry, TreeStep};

/// Maximum size of a list of names and of a file of rules.
const MAX_LIST_BYTES: usize = 1 << 20;
/// Maximum size of the list of files of a commit.
pub(super) const MAX_BASE_BYTES: usize = 1 << 26;
/// Maximum number of names in a note. Further names are only counted.
pub(super) const MAX_NAMED_FILES: usize = 10;
/// Maximum number of files of a nested repository that are counted, and of entries of a submodule that are checked.
const MAX_COUNTED_FILES: usize = 10_000;

/// Describes new files that are neither in the diff nor ignored by the rules of the base, and nested repositories.
/// `shown` has the names of the new files in the diff, each with a NUL at its end; `rules` is a temporary file.
pub(super) fn new_files(
    git: &Git,
    base: &str,
    shown: &[u8],
    rules: &Path,
) -> Result<Vec<String>, WorkspaceError> {
    fs::write(rules, rules_of(git, base)?).map_err(WorkspaceError::file(rules))?;
    let mut exclude = OsString::from("--exclude-from=");
    exclude.push(rules);
    let list = ["ls-files", "-z", "--others"].map(OsStr::new);
    let every = git.run_limited(&[list.as_slice(), &[&exclude]].concat(), MAX_LIST_BYTES);
    missing_is_ok(fs::remove_file(rules)).map_err(WorkspaceError::file(rules))?;
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
        let count = match git.tree().map_or(0, |tree| files_below(&tree.join(OsStr::from_bytes(name)))) {
            MAX_COUNTED_FILES => format!("{MAX_COUNTED_FILES} or more"),
            count => count.to_string(),
        };
        let name = String::from_utf8_lossy(name);
        notes
            .push(format!("{name:?} is a nested repository, which is not in the diff; files in it: {count}"));
    }
    if let Some(more) = inner.len().checked_sub(MAX_NAMED_FILES).filter(|more| *more > 0) {
        notes.push(format!("further nested repositories that are not in the diff: {more}"));
    }
    Ok(notes)
}

/// Describes the submodules of the base in which files were written after `since`. Files of submodules are not
/// compared, because git would compare them in a process that uses the submodule's config.
pub(super) fn submodules(git: &Git, base: &str, since: SystemTime) -> Result<Option<String>, WorkspaceError> {
    let (listed, _) = git.run_limited(&["ls-tree", "-r", "-z", base], MAX_BASE_BYTES)?;
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

/// Lists the first names, with an ellipsis if there are more.
fn listed(names: &[&[u8]]) -> String {
    let first = names.iter().take(MAX_NAMED_FILES).map(|name| format!("{:?}", String::from_utf8_lossy(name)));
    let mut list = first.collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMED_FILES {
        list.push_str(", …");
    }
    list
}

/// Collects the rules of all `.gitignore` files of the base, rewritten for its top directory.
fn rules_of(git: &Git, base: &str) -> Result<Vec<u8>, WorkspaceError> {
    let (listed, _) = git.run_limited(&["ls-tree", "-r", "-z", "--name-only", base], MAX_BASE_BYTES)?;
    let mut rules = Vec::new();
    for name in listed.split(|byte| *byte == 0) {
        let directory = match name.strip_suffix(b".gitignore") {
            Some(b"") => b"".as_slice(),
            Some(directory) if directory.ends_with(b"/") => directory,
            _ => continue,
        };
        let mut blob = OsString::from(format!("{base}:"));
        blob.push(OsStr::from_bytes(name));
        let show = [OsStr::new("cat-file"), OsStr::new("blob"), &blob];
        let (text, _) = git.run_limited(&show, MAX_LIST_BYTES)?;
        for line in text.split(|byte| *byte == b'\n') {
            rules.extend(at_top(directory, line));
        }
    }
    Ok(rules)
}

/// Rewrites a line of a `.gitignore` for the top directory. `directory` is empty or ends with a slash.
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
    let mut count = 0;
    // Files in a folder that cannot be listed are not counted.
    let _ = tree::walk(top, &mut |step| {
        let is_own_git = |found: &TreeEntry<'_>| found.path.iter().skip(1).eq([".git"]);
        Ok(match step {
            TreeStep::Folder(found) if is_own_git(found) => Next::Skip,
            TreeStep::File(_) => {
                count += 1;
                if count == MAX_COUNTED_FILES { Next::Stop } else { Next::Continue }
            }
            TreeStep::Folder(_) | TreeStep::Left(_) | TreeStep::Closed(..) => Next::Continue,
        })
    });
    count
}

/// Returns true if a file below a directory changed after `since`, by the inode's change time, which no user can set. A
/// directory with `MAX_COUNTED_FILES` or more entries, or with a part that cannot be listed, counts as changed.
fn is_written_below(top: &Path, since: SystemTime) -> bool {
    let (mut count, mut is_written) = (0, false);
    let walked = tree::walk(top, &mut |step| {
        count += 1;
        is_written |= count == MAX_COUNTED_FILES
            || match step {
                // A file without a change time may have been removed and does not count.
                TreeStep::File(found) => found.changed_at().is_ok_and(|changed| changed >= since),
                TreeStep::Closed(..) => true,
                TreeStep::Folder(_) | TreeStep::Left(_) => false,
            };
        Ok(if is_written { Next::Stop } else { Next::Continue })
    });
    is_written || walked.is_err()
}

/// Options of a diff that uses only the attributes of the base.
pub(super) struct Attributes {
    /// Options before the name of the command.
    pub(super) before: Vec<String>,
    /// Reason why all files are shown as text.
    pub(super) as_text: Option<String>,
}

impl Attributes {
    /// Determines the options. `names` are the arguments that select what is compared.
    pub(super) fn of(git: &Git, repository: &Path, base: &str, names: &[&str]) -> Self {
        // The config could name another attributes file, or make git treat every file as too big for a diff.
        let set = ["-c", "core.attributesFile=/dev/null", "-c", "core.bigFileThreshold=512m"];
        let mut before: Vec<String> = set.map(str::to_owned).to_vec();
        let mut as_text = hides_text(repository).then(|| {
            let file = repository.join("info/attributes");
            format!(
                "{} hides files from the diff as binary; all files are shown as text here",
                file.display()
            )
        });
        // Git before 2.41 does not support this option.
        let source = format!("--attr-source={base}");
        if git.run(&[&source, "version"]).is_ok() {
            before.push(source);
        } else if as_text.is_none() {
            let listed =
                git.run_limited(&[["diff", "-z", "--name-only"].as_slice(), names].concat(), MAX_LIST_BYTES);
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

/// Returns true if the repository's `info/attributes` may hide text. Git always reads that file.
fn hides_text(repository: &Path) -> bool {
    let root = Root::open(repository);
    match root.and_then(|root| root.read(Path::new("info/attributes"), MAX_LIST_BYTES as u64)) {
        Ok(text) => {
            let text = String::from_utf8_lossy(&text);
            text.contains("diff") || text.contains("binary")
        }
        Err(NotOpened::Missing) => false,
        // A file that cannot be read may hide text.
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignore_rules_of_a_folder_apply_only_below_it() {
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

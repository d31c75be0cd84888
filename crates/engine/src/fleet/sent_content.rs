//! Reads the content of a file that an agent sends into a chat: only a file of the working directory, and none that is
//! hidden from agents.

use std::fs::File;
use std::path::{Path, PathBuf};

use cowhand_core::chat::sending::SendRefused;
use cowhand_core::id::AgentName;

use crate::loaded::Loaded;
use crate::state::StateFolder;
use cowhand_run::attempt::Attempt;
use cowhand_run::sandbox::hidden_paths;
use cowhand_system::beneath::{self, NotOpened};
use cowhand_system::work_dir::WorkDirPath;

/// Where an agent may send files from.
#[derive(Debug)]
pub(super) struct FilePlace<'a> {
    pub(super) work_dir: WorkDirPath<'a>,
    /// Real paths of files and folders that are not sent, although they may lie in the working directory.
    pub(super) hidden: &'a [PathBuf],
}

/// Returns the real paths that are hidden from an agent, whether it has a sandbox or not, and those that the sandbox of
/// its attempt hides.
pub(super) fn hidden_from(
    loaded: &Loaded,
    agent: &AgentName,
    attempt: &Attempt,
    state: &StateFolder,
) -> Vec<PathBuf> {
    const HOME: &str = "HOME";
    let of_agent = loaded.roster.agent(agent).and_then(|agent| agent.program.env.get(HOME));
    let homes = of_agent.into_iter().chain(loaded.variables.get(HOME)).map(PathBuf::from);
    let homes = homes.chain(std::env::var_os(HOME).map(PathBuf::from));
    let mut hidden = hidden_paths(homes, &loaded.files, state.path());
    let sandbox = attempt.start().ok().and_then(|start| start.sandbox);
    hidden.extend(sandbox.into_iter().flat_map(|sandbox| sandbox.hidden));
    hidden
}

/// Reads a file of the working directory. Links are not followed: an agent could make the daemon read a file that the
/// agent itself may not read.
pub(super) fn read(place: &FilePlace<'_>, path: &str, max_bytes: u64) -> Result<Vec<u8>, SendRefused> {
    let refused = |error| refusal(path, &error);
    let file = open(&place.work_dir, Path::new(path)).map_err(refused)?;
    let real = beneath::real_path(&file).map_err(|error| refused(error.into()))?;
    if let Some(hidden) = place.hiding(&real) {
        return Err(SendRefused::Hidden { path: path.to_owned(), hidden: hidden.display().to_string() });
    }
    let content = beneath::read(file, max_bytes).map_err(refused)?;
    if content.is_empty() { Err(SendRefused::Empty { path: path.to_owned() }) } else { Ok(content) }
}

impl FilePlace<'_> {
    /// Returns the hidden path at or above a file. The state folder, which contains the workspaces, does not hide the
    /// files of an agent's own workspace.
    fn hiding(&self, file: &Path) -> Option<&PathBuf> {
        let workspace = self.work_dir.workspace();
        let is_above = |hidden: &&PathBuf| workspace.as_ref().is_some_and(|own| own.starts_with(hidden));
        self.hidden.iter().find(|hidden| file.starts_with(hidden) && !is_above(hidden))
    }
}

/// Opens a file that is named by its path in the working directory, or by its absolute path.
fn open(work_dir: &WorkDirPath<'_>, path: &Path) -> Result<File, NotOpened> {
    let root = work_dir.open()?;
    let real = root.path()?;
    let folders = [work_dir.directory, real.as_path()];
    root.file(folders.into_iter().find_map(|folder| path.strip_prefix(folder).ok()).unwrap_or(path))
}

fn refusal(path: &str, error: &NotOpened) -> SendRefused {
    let path = path.to_owned();
    match error {
        NotOpened::Missing | NotOpened::Outside => SendRefused::NotInside { path },
        NotOpened::TooLarge(max_bytes) => SendRefused::TooLarge { path, max_bytes: *max_bytes },
        NotOpened::Link | NotOpened::NotRegular | NotOpened::Io(_) => {
            SendRefused::NotReadable { path, reason: error.to_string() }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const LINK: &str = "it is a symbolic link, or its path contains one; links are not followed here";

    /// Returns the content of a file below `root`, or the error.
    fn sent(root: &Path, directory: &str, path: &str) -> String {
        let (directory, workspaces) = (root.join(directory), root.join("fleet/.cowhand/workspaces"));
        let work_dir = WorkDirPath { directory: &directory, workspaces: &workspaces, writable: &[] };
        let hidden = hidden_paths(
            [root.join("home")],
            &[root.join("fleet/.env"), root.join("fleet/cowhand.yaml")],
            &root.join("fleet/.cowhand"),
        );
        let content = read(&FilePlace { work_dir, hidden: &hidden }, path, 100);
        content.map_or_else(|error| error.to_string(), |content| String::from_utf8(content).unwrap())
    }

    fn write(root: &Path, path: &str) {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), path).unwrap();
    }

    #[test]
    fn only_files_inside_the_directory_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in ["work/out/a.txt", "secret", "known/key"] {
            write(&root, path);
        }
        fs::write(root.join("work/empty"), "").unwrap();
        fs::write(root.join("work/large"), [b'x'; 101]).unwrap();
        symlink(root.join("secret"), root.join("work/leads-out")).unwrap();
        symlink("out/a.txt", root.join("work/leads-in")).unwrap();
        symlink("..", root.join("work/above")).unwrap();
        symlink("work", root.join("linked")).unwrap();
        let absolute = root.join("work/out/a.txt").display().to_string();
        let through_link = root.join("linked/out/a.txt").display().to_string();
        let outside = |path: &str| format!("{path:?} is not a file inside the working directory of the job");
        let link = |path: &str| format!("{path:?} cannot be sent: {LINK}");
        let text = "work/out/a.txt".to_owned();
        for (path, expected) in [
            ("out/a.txt", text.clone()),
            ("./out/../out/a.txt", text.clone()),
            (absolute.as_str(), text.clone()),
            (through_link.as_str(), text),
            ("empty", r#""empty" is empty"#.to_owned()),
            ("large", r#""large" is too large; the maximum is 100 B"#.to_owned()),
            ("out", r#""out" cannot be sent: it is not a regular file"#.to_owned()),
            ("../secret", outside("../secret")),
            ("/etc/passwd", outside("/etc/passwd")),
            ("nothing", outside("nothing")),
            ("leads-out", link("leads-out")),
            ("leads-in", link("leads-in")),
            ("above/secret", link("above/secret")),
        ] {
            assert_eq!(sent(&root, "linked", path), expected, "{path}");
        }
    }

    #[test]
    fn a_directory_that_the_agent_replaced_by_a_link_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let directory = "fleet/.cowhand/workspaces/job/sub";
        for path in ["home/.ssh/key", "outside/key", &format!("{directory}/key")] {
            write(&root, path);
        }
        assert_eq!(sent(&root, directory, "key"), format!("{directory}/key"));
        for target in ["home/.ssh", "outside"] {
            fs::rename(root.join(directory), root.join(directory).with_file_name(target.replace('/', "-")))
                .unwrap();
            symlink(root.join(target), root.join(directory)).unwrap();
            let absolute = root.join(target).join("key").display().to_string();
            for path in ["key", &absolute] {
                assert_eq!(sent(&root, directory, path), format!("{path:?} cannot be sent: {LINK}"));
            }
        }
    }

    #[test]
    fn files_that_are_hidden_from_agents_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in [
            "fleet/.env",
            "fleet/cowhand.yaml",
            "fleet/sub/.env",
            "fleet/.cowhand/job-key",
            "fleet/.cowhand/workspaces/job/file",
            "fleet/.cowhand/workspaces/other/file",
            "fleet/.herdctl/jobs/job.jsonl",
            "home/.ssh/key",
            "home/.config/gh/hosts.yml",
            "home/.config/other",
            "home/.netrc",
        ] {
            write(&root, path);
        }
        fs::rename(root.join("fleet/.env"), root.join("fleet/variables")).unwrap();
        symlink("variables", root.join("fleet/.env")).unwrap();
        for (directory, path, hidden) in [
            ("fleet", "cowhand.yaml", None),
            ("fleet", "sub/.env", None),
            ("fleet", "variables", Some("fleet/variables")),
            ("fleet", ".cowhand/job-key", Some("fleet/.cowhand")),
            ("fleet", "sub/../.cowhand/job-key", Some("fleet/.cowhand")),
            ("fleet", ".cowhand/workspaces/job/file", Some("fleet/.cowhand")),
            ("fleet/.cowhand/workspaces/job", "file", None),
            ("fleet/.cowhand/workspaces", "job/file", Some("fleet/.cowhand")),
            ("fleet/.cowhand", "job-key", Some("fleet/.cowhand")),
            ("fleet", ".herdctl/jobs/job.jsonl", Some("fleet/.herdctl")),
            ("home", ".ssh/key", Some("home/.ssh")),
            ("home/.ssh", "key", Some("home/.ssh")),
            ("home", ".config/gh/hosts.yml", Some("home/.config/gh")),
            ("home", ".config/other", None),
            ("home", ".netrc", Some("home/.netrc")),
        ] {
            let found = sent(&root, directory, path);
            match hidden.map(|hidden| root.join(hidden)) {
                Some(hidden) => {
                    let hidden = hidden.display();
                    assert_eq!(found, format!("{path:?} cannot be sent: {hidden} is hidden from agents"));
                }
                None => assert!(found.ends_with(path), "{path}: {found}"),
            }
        }
    }
}

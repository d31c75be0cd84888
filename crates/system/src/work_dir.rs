//! The directory in which an agent works, opened so that a link of an agent leads nowhere.

use std::path::{Path, PathBuf};

use crate::beneath::{NotOpened, Root};

/// Path of the directory in which an agent works, and the folders in which agents can make links.
#[derive(Debug, Clone, Copy)]
pub struct WorkDirPath<'a> {
    pub directory: &'a Path,
    /// Folder of all workspaces. In its workspace, the agent can write everywhere, also above its working directory.
    pub workspaces: &'a Path,
    /// Directories of the config in which sandboxed agents may write.
    pub writable: &'a [PathBuf],
}

impl WorkDirPath<'_> {
    /// Opens the directory. A link that an agent can have made on its path is an error.
    pub fn open(&self) -> Result<Root, NotOpened> {
        match self.open_workspace()? {
            Some((workspace, below)) => workspace.directory(&below),
            None => Root::configured(self.directory, self.writable),
        }
    }

    /// Opens the workspace that contains the directory, and returns it with the path of the directory in it. Returns
    /// `None` if the agent works outside of the workspaces.
    pub fn open_workspace(&self) -> Result<Option<(Root, PathBuf)>, NotOpened> {
        let Some((workspace, below)) = self.in_workspace() else { return Ok(None) };
        Ok(Some((Root::without_links(&workspace)?, below)))
    }

    /// Returns the path of the workspace that contains the directory; `None` if the agent works outside of the
    /// workspaces.
    pub fn workspace(&self) -> Option<PathBuf> {
        self.in_workspace().map(|(workspace, _)| workspace)
    }

    /// Returns the path of the workspace, and the path of the directory in it.
    fn in_workspace(&self) -> Option<(PathBuf, PathBuf)> {
        let folder = self.workspaces.canonicalize().ok()?;
        let mut names = self.directory.strip_prefix(&folder).ok()?.components();
        let workspace = folder.join(names.next()?);
        Some((workspace, names.as_path().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_of_agents_on_the_path_of_a_directory_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for name in ["real", "repository/led", "outside/sub", "workspaces/job/sub"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("real"), at("linked")).unwrap();
        symlink(at("workspaces"), at("known-as")).unwrap();
        symlink(at("outside"), at("repository/link")).unwrap();
        symlink(at("outside"), at("workspaces/job/link")).unwrap();
        symlink(at("outside"), at("workspaces/replaced")).unwrap();
        let writable = [at("repository")];
        for (directory, expected) in [
            ("linked", Ok("real")),
            ("repository/led", Ok("repository/led")),
            ("workspaces/job", Ok("workspaces/job")),
            ("workspaces/job/sub", Ok("workspaces/job/sub")),
            ("repository/link", Err(NotOpened::Link)),
            ("workspaces/job/link", Err(NotOpened::Link)),
            ("workspaces/job/link/sub", Err(NotOpened::Link)),
            ("workspaces/replaced", Err(NotOpened::Link)),
            ("workspaces/job/nothing", Err(NotOpened::Missing)),
        ] {
            let (directory, workspaces) = (at(directory), at("known-as"));
            let path = WorkDirPath { directory: &directory, workspaces: &workspaces, writable: &writable };
            let opened = path.open().map(|root| root.path().unwrap()).map_err(|error| error.to_string());
            let expected = expected.map(at).map_err(|error| error.to_string());
            assert_eq!(opened, expected, "{}", directory.display());
        }
    }
}

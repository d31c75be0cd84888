//! The folder of files that are saved in the working directory for one attempt, for example the files of a chat
//! message. It is removed with the attempt's private files.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Attempt;
use cowhand_system::beneath::{NotOpened, Root};

const SAVED_FILE: &str = "saved.json";

/// A folder that has to be removed after the attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFolder {
    /// Real path of the working directory, before the agent starts.
    pub directory: PathBuf,
    /// Path of the folder below the working directory.
    pub below: PathBuf,
}

impl SavedFolder {
    /// Opens the working directory. The agent may have replaced it, or a folder above it, by a link; links are not
    /// followed.
    pub fn open_directory(&self) -> Result<Root, NotOpened> {
        Root::without_links(&self.directory)
    }

    /// Removes the folder, without following links.
    fn remove(&self) -> io::Result<()> {
        let above = self.below.parent().unwrap_or(Path::new("."));
        let Some(name) = self.below.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
        match self.open_directory().and_then(|root| root.directory(above)) {
            Ok(above) => above.remove_all(name),
            Err(NotOpened::Missing | NotOpened::Link) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Attempt {
    /// Records the folder. Call this before the folder is created.
    pub fn record_saved_folder(&self, saved: &SavedFolder) -> io::Result<()> {
        self.make_folder()?;
        self.write(SAVED_FILE, saved)
    }

    /// Removes the recorded folder, if there is one.
    pub(super) fn remove_saved_folder(&self) -> io::Result<()> {
        match self.read::<SavedFolder>(SAVED_FILE)? {
            Some(saved) => saved.remove(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_saved_folder_is_removed_with_the_private_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        let attempt = Attempt::new(&at("state"), &"job-2026-01-05-aaaaaa".parse().unwrap(), 1);
        attempt.remove_private_files().unwrap();
        fs::create_dir_all(at("outside/work/in/files")).unwrap();
        fs::write(at("outside/work/in/files/kept"), "").unwrap();
        let saved = SavedFolder { directory: at("top/work"), below: "in/files".into() };
        for replaced in [None, Some("top/work/in/files"), Some("top/work/in"), Some("top/work"), Some("top")]
        {
            fs::create_dir_all(at("top/work/in/files/deep")).unwrap();
            fs::write(at("top/work/in/other"), "").unwrap();
            attempt.record_saved_folder(&saved).unwrap();
            if let Some(replaced) = replaced {
                fs::remove_dir_all(at(replaced)).unwrap();
                symlink(at(&replaced.replace("top", "outside")), at(replaced)).unwrap();
            }
            attempt.remove_private_files().unwrap();
            attempt.remove_private_files().unwrap();
            assert!(at("outside/work/in/files/kept").exists(), "{replaced:?}");
            match replaced {
                None => assert!(!at("top/work/in/files").exists() && at("top/work/in/other").exists()),
                Some("top/work/in/files") => assert!(at("top/work/in/other").exists()),
                Some(replaced) => fs::remove_file(at(replaced)).unwrap(),
            }
        }
    }
}

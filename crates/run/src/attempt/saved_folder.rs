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
    /// Working directory of the attempt.
    pub directory: PathBuf,
    /// Path of the folder below the working directory.
    pub below: PathBuf,
}

impl SavedFolder {
    /// Removes the folder. The agent may have replaced the folder or a folder above it by a link; links are not
    /// followed.
    fn remove(&self) -> io::Result<()> {
        let above = self.below.parent().unwrap_or(Path::new("."));
        let Some(name) = self.below.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
        match Root::open(&self.directory).and_then(|root| root.directory(above)) {
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
        let at = |name: &str| folder.path().join(name);
        let attempt = Attempt::new(&at("state"), &"job-2026-01-05-aaaaaa".parse().unwrap(), 1);
        attempt.remove_private_files().unwrap();
        for replaced in [None, Some("work/in/files"), Some("work/in")] {
            fs::create_dir_all(at("work/in/files/deep")).unwrap();
            fs::create_dir_all(at("outside/files")).unwrap();
            fs::write(at("outside/files/kept"), "").unwrap();
            fs::write(at("work/in/other"), "").unwrap();
            let saved = SavedFolder { directory: at("work"), below: "in/files".into() };
            attempt.record_saved_folder(&saved).unwrap();
            if let Some(replaced) = replaced {
                fs::remove_dir_all(at(replaced)).unwrap();
                symlink(at(if replaced == "work/in" { "outside" } else { "outside/files" }), at(replaced))
                    .unwrap();
            }
            attempt.remove_private_files().unwrap();
            attempt.remove_private_files().unwrap();
            assert!(at("outside/files/kept").exists(), "{replaced:?}");
            if replaced != Some("work/in") {
                assert!(!at("work/in/files").exists() && at("work/in/other").exists(), "{replaced:?}");
            }
        }
    }
}

//! The files and folders that are hidden from agents, wherever an agent works: credentials of the machine and of its
//! user, and what belongs to the fleet.

use std::path::{Path, PathBuf};

/// Files and folders that only programs of the system read.
const SYSTEM_SECRETS: [&str; 8] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
];
/// Credentials for other machines and accounts in a home directory.
const HOME_SECRETS: [&str; 16] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".password-store",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".local/share/keyrings",
];
/// File with variables beside the root file.
const DOTENV_FILE: &str = ".env";
/// Folder beside the root file in which herdctl keeps its state.
const HERDCTL_FOLDER: &str = ".herdctl";

/// Returns the existing files and folders that are hidden from agents, by their real paths. `homes` are home
/// directories, `files` the files of the config, and `state` is the state folder.
pub fn hidden_paths(
    homes: impl IntoIterator<Item = PathBuf>,
    files: &[PathBuf],
    state: &Path,
) -> Vec<PathBuf> {
    let of_user = homes.into_iter().flat_map(|home| HOME_SECRETS.map(|secret| home.join(secret)));
    let of_system = SYSTEM_SECRETS.into_iter().map(PathBuf::from);
    let of_fleet = dotenv_files(files).cloned().chain(herdctl_folders(files));
    existing_paths(of_user.chain(of_system).chain(of_fleet).chain([state.to_owned()]))
}

/// Returns the folder of herdctl beside the root file of the config, whether it exists or not.
pub(super) fn herdctl_folders(files: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    dotenv_files(files).map(|file| file.with_file_name(HERDCTL_FOLDER))
}

fn dotenv_files(files: &[PathBuf]) -> impl Iterator<Item = &PathBuf> {
    files.iter().filter(|file| file.file_name().is_some_and(|name| name == DOTENV_FILE))
}

/// Returns the existing paths, resolved.
pub(super) fn existing_paths(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    sorted_unique(paths.filter_map(|path| path.canonicalize().ok()))
}

pub(super) fn sorted_unique(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = paths.collect();
    found.sort();
    found.dedup();
    found
}

//! Finds and reads the files of the config. Core interprets their contents.

mod env_file;
mod watch;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use cowhand_core::config::parse::MAX_CONFIG_BYTES;
use cowhand_core::config::{ConfigEnvironment, KeptFleets, LoadedConfig, load_again as load_files};
use cowhand_core::policy::Zone;
use jiff::Timestamp;

use crate::secrets;
use crate::state::StateFolder;
use cowhand_system::closed::{advice, closed_folder};
use cowhand_system::named_file;
pub use watch::{ConfigWatch, WatchedFile};

/// Names of config files; the first that exists in a directory is used.
const NAMES: [&str; 4] = ["cowhand.yaml", "cowhand.yml", "herdctl.yaml", "herdctl.yml"];

#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub file: PathBuf,
    /// Note for the user about the choice of the file.
    pub note: Option<String>,
}

/// Finds the config file. `requested` is a file, or a directory to search from; the default is `current_dir`. The
/// search continues in each parent directory, up to the root.
pub fn find(requested: Option<&Path>, current_dir: &Path) -> anyhow::Result<Found> {
    let from = requested.map_or_else(|| current_dir.to_owned(), |requested| current_dir.join(requested));
    if let Some(requested) = requested.filter(|_| !from.is_dir()) {
        // A daemon continues to run when its config file is removed, and `stop` has to reach that daemon.
        let is_running = || StateFolder::beside(&from).is_locked();
        refuse_closed(&from)?;
        ensure!(
            from.exists() || is_running(),
            "{} does not exist; `-c` takes a config file or its folder",
            requested.display()
        );
        return Ok(Found { file: from, note: None });
    }
    // Resolve `..` first: otherwise the search would treat the part of the path before `..` as a parent directory.
    let from = from.canonicalize().unwrap_or(from);
    let in_directory = |directory: &Path| {
        let mut present = NAMES.iter().map(|name| directory.join(name)).filter(|file| file.is_file());
        let file = present.next()?;
        let others: Vec<PathBuf> = present.collect();
        Some(Found { note: (!others.is_empty()).then(|| ignored(&others, &file)), file })
    };
    let running_without_config = |directory: &Path| {
        let file = directory.join(NAMES[0]);
        let note = format!(
            "there is no config in {}, but a daemon that was started with a removed config still runs; `cowhand \
             stop` stops it",
            directory.display()
        );
        StateFolder::beside(&file).is_locked().then_some(Found { file, note: Some(note) })
    };
    for directory in from.ancestors() {
        if let Some(found) = in_directory(directory).or_else(|| running_without_config(directory)) {
            return Ok(found);
        }
        refuse_closed(&directory.join(NAMES[0]))?;
        // Do not search further: the user does not mean the fleet of a parent directory.
        if let Some(not_regular) = NAMES.iter().map(|name| directory.join(name)).find(|file| file.exists()) {
            bail!("{} is not a regular file", not_regular.display());
        }
    }
    None.with_context(|| {
        format!("no cowhand.yaml (or herdctl.yaml) in {} or above; name one with -c FILE", from.display())
    })
}

/// Fails if access to a folder on the path is denied. Without this check, a file below that folder would seem to be
/// missing.
fn refuse_closed(path: &Path) -> anyhow::Result<()> {
    match closed_folder(path) {
        Some(folder) => bail!("cannot reach {}: permission denied; {}", path.display(), advice(&folder)),
        None => Ok(()),
    }
}

fn ignored(others: &[PathBuf], file: &Path) -> String {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let others: Vec<String> = others.iter().map(|other| name(other)).collect();
    let are = if others.len() == 1 { "is" } else { "are" };
    format!("{} {are} ignored, because {} is in the same folder", others.join(" and "), name(file))
}

/// Returns the configs in the parent directories that include this file under `fleets` or `agents`, the nearest first.
/// A config that cannot be read counts as one that includes nothing.
pub fn including_configs(file: &Path) -> Vec<PathBuf> {
    let Ok(file) = file.canonicalize() else { return Vec::new() };
    let in_directory =
        |directory: &Path| NAMES.iter().map(|name| directory.join(name)).find(|file| file.is_file());
    let above =
        file.parent().into_iter().flat_map(|folder| folder.ancestors().skip(1)).filter_map(in_directory);
    let includes = |above: &PathBuf| load(above).files.iter().any(|read| is_file(read, &file));
    above.filter(includes).collect()
}

fn is_file(path: &Path, file: &Path) -> bool {
    path.file_name() == file.file_name() && path.canonicalize().is_ok_and(|path| path == file)
}

/// Returns the files that a command without `-c` would use instead of this file if they existed. If the name of this
/// file is not in [`NAMES`], returns a file for each of [`NAMES`].
fn preferred_files(file: &Path) -> impl Iterator<Item = PathBuf> {
    let files = NAMES.iter().map(|name| file.with_file_name(name));
    files.take_while(move |candidate| candidate != file)
}

/// A fleet that was loaded from files.
#[derive(Debug)]
pub struct FromDisk {
    pub loaded: LoadedConfig,
    /// Variables of the `.env` beside the root file.
    pub variables: HashMap<String, String>,
    /// All notes for the user.
    pub notes: Vec<String>,
    /// The subset of `notes` that is about the `.env`.
    pub env_notes: Vec<String>,
    /// Files that the loader tried to read, existing or not, and files that a command without `-c` would use instead if
    /// they existed.
    pub files: Vec<PathBuf>,
    /// The subset of `files` that can change the config of this fleet, each with its state just before it was read.
    pub watched: Vec<WatchedFile>,
    /// Names of the variables that the config names as secrets.
    pub named: Vec<String>,
}

/// Loads a fleet with the environment of this process and the `.env` beside the root file. A variable of the
/// environment takes precedence over the same variable of the `.env`.
pub fn load(file: &Path) -> FromDisk {
    load_again(file, KeptFleets::default())
}

/// Loads a fleet as `load` does. Sub-fleets whose inputs have not changed since the load that returned `kept` are taken
/// from `kept`.
pub(crate) fn load_again(file: &Path, kept: KeptFleets) -> FromDisk {
    let dotenv = file.with_file_name(".env");
    let mut files = vec![dotenv.clone()];
    let mut watched = vec![WatchedFile::new(dotenv.clone())];
    let (variables, env_notes) = match read(&dotenv) {
        Ok(text) => env_file::parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (HashMap::new(), Vec::new()),
        Err(error) => (HashMap::new(), vec![format!(".env cannot be read: {error}")]),
    };
    let env = |name: &str| {
        let real = std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        real.or_else(|| variables.get(name).cloned())
    };
    let mut read = |path: &Path| {
        files.push(path.to_owned());
        watched.push(WatchedFile::new(path.to_owned()));
        read(path)
    };
    let outside = ConfigEnvironment {
        read: &mut read,
        env: &env,
        is_folder: &|path| path.is_dir(),
        zone: system_zone(),
        now: Timestamp::now(),
    };
    let loaded = load_files(file, outside, kept);
    let named = secrets::remember_config(&loaded, &variables);
    let mut notes = env_notes.clone();
    notes.extend(inherited_environment(&loaded));
    notes.extend(left_by_herdctl(file));
    let preferred: Vec<PathBuf> = preferred_files(file).collect();
    // A config file whose name is not in `NAMES` is used only if somebody gives its path, so no other file replaces it.
    let is_usual = file.file_name().is_some_and(|own| NAMES.iter().any(|name| own == *name));
    if is_usual {
        watched.extend(preferred.iter().cloned().map(WatchedFile::new));
    }
    files.extend(preferred);
    FromDisk { loaded, variables, notes, env_notes, files, watched, named }
}

/// Returns a note if agents get the daemon's whole environment, as they do under herdctl.
fn inherited_environment(loaded: &LoadedConfig) -> Option<String> {
    let inherits = loaded.roster.agents.iter().any(|agent| agent.inherits_environment);
    inherits.then(|| {
        "agents of a herdctl.yaml get the daemon's whole environment, as under herdctl; \
         with `pass_env: [NAME, …]` an agent gets the minimal set and these variables only"
            .to_owned()
    })
}

/// Returns a note about state of herdctl that the first start of a fleet does not import, because the name of the
/// config file is not herdctl's.
pub fn left_by_herdctl(file: &Path) -> Option<String> {
    let of_herdctl = file.file_stem().is_some_and(|stem| stem == "herdctl");
    let folder = file.with_file_name(".herdctl");
    let has_begun = StateFolder::beside(file).path().join("node").exists();
    // A sandbox reserves the name with an empty folder.
    let has_state = folder.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    (!of_herdctl && !has_begun && has_state).then(|| {
        format!(
            "{} contains the state of herdctl, which is not imported for a fleet in {}: schedules that are disabled \
             in herdctl would run; to import the state, name the config herdctl.yaml for the first start",
            folder.display(),
            file.file_name().unwrap_or_default().to_string_lossy()
        )
    })
}

fn read(path: &Path) -> io::Result<String> {
    named_file::read_text(path, MAX_CONFIG_BYTES as u64)
}

/// Returns the time zone of the machine, or UTC if the machine does not name one.
fn system_zone() -> Zone {
    let system = jiff::tz::TimeZone::system();
    system.iana_name().and_then(|name| name.parse().ok()).unwrap_or(Zone::UTC)
}

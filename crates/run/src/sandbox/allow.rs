//! The paths and hosts that an agent may reach, resolved from the config and the files of this machine.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cowhand_core::sandbox::{Credentials, NetworkAccess, RequestedSandbox, SandboxKind};

use super::SandboxError;
use super::docker;
use super::git::Worktree;
use super::hidden::{existing_paths, herdctl_folders, hidden_paths, sorted_unique};
use super::{ability, protected};
use crate::runtime::description::Description;
use crate::start::{ContainerSettings, SandboxPlan, VolumeMount};

/// Paths with programs, libraries and settings of the machine, which agents may read.
const SYSTEM_PATHS: [&str; 17] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/snap",
    "/home/linuxbrew/.linuxbrew",
    "/var/lib/dpkg",
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
];
/// Folders to which `/etc/resolv.conf` may be a link. Name resolution needs them.
const RESOLVER_PATHS: [&str; 2] = ["/run/systemd/resolve", "/run/resolvconf"];

/// Input of a sandbox plan.
#[derive(Debug, Clone, Copy)]
pub struct SandboxInput<'a> {
    pub requested: &'a RequestedSandbox,
    /// The agent's own directory, in which relative paths of the config begin.
    pub agent_directory: &'a Path,
    /// Working directory.
    pub directory: &'a Path,
    /// Set if the working directory is a workspace of the job.
    pub isolated: bool,
    pub runtime: &'a Description,
    pub environment: &'a HashMap<String, String>,
    pub argv: &'a [String],
    /// Program of the agent, if the started program is the ACP client.
    pub agent: Option<&'a str>,
    /// Folder of files that only the agent's program may read.
    pub private: &'a Path,
    /// Set if the attempt has private files.
    pub has_private: bool,
    /// State folder of the fleet.
    pub state: &'a Path,
    /// Files and folders that cowhand reads and that the agent must not change, for example the config and `.env`.
    pub files: &'a [PathBuf],
    /// Path of cowhand's program.
    pub program: &'a Path,
    /// Folder that replaces the program's own folders in a job with text of strangers, because other jobs share those
    /// folders.
    pub private_home: Option<&'a Path>,
}

/// Returns the sandbox plan; `None` if neither a sandbox nor caps are requested. The error states why the agent is not
/// started.
pub fn resolve_plan(input: &SandboxInput<'_>) -> Result<Option<SandboxPlan>, SandboxError> {
    let requested = input.requested;
    if requested.kind == SandboxKind::None && requested.caps.is_none() {
        return Ok(None);
    }
    let refused = SandboxError::of(requested.kind);
    if let Some(why) = ability::refusal(requested.kind) {
        return Err(refused(why));
    }
    // A config is checked when it is read, but a roster that was built without a config is not.
    if let Some(why) = requested.contradiction() {
        return Err(refused(SandboxError::Contradiction(why)));
    }
    let caps = requested.caps;
    if requested.kind == SandboxKind::Docker {
        return container_plan(input).map(Some).map_err(&refused);
    }
    let name = input.argv.first().map(String::as_str).unwrap_or_default();
    let program = find_program(input, name)?;
    if requested.kind == SandboxKind::None {
        return Ok(Some(SandboxPlan {
            program,
            caps,
            network: NetworkAccess::All,
            ..SandboxPlan::default()
        }));
    }
    let hidden = hidden(input);
    let write = writable_paths(input, &hidden).map_err(&refused)?;
    let read_only = read_only_paths(input, &write, &hidden).map_err(&refused)?;
    let mut read = readable(input, &program, &hidden).map_err(&refused)?;
    if let Some(agent) = input.agent {
        read.push(package(&find_program(input, agent)?));
    }
    let sandbox = SandboxPlan {
        kind: requested.kind,
        program,
        home: home(input),
        read,
        write,
        hidden,
        read_only,
        network: requested.network.clone(),
        gateway: requested.credentials == Credentials::Outside,
        caps,
        home_replacements: home_replacements(input).map_err(&refused)?,
        container: None,
        job_socket_folder: None,
    };
    if requested.kind == SandboxKind::Landlock {
        refuse_hidden_parts(&sandbox).map_err(&refused)?;
    }
    Ok(Some(sandbox))
}

/// Returns the plan of a container: the system and all programs are those of the image.
fn container_plan(input: &SandboxInput<'_>) -> Result<SandboxPlan, SandboxError> {
    let requested = input.requested;
    if input.agent.is_some() {
        return Err(SandboxError::AcpInContainer);
    }
    let hidden = hidden(input);
    let mut write = writable_paths(input, &hidden)?;
    let mut read = own_files(input, &hidden)?;
    if requested.container.read_only {
        let directory = input.directory.canonicalize().unwrap_or_default();
        let (inside, rest) =
            write.into_iter().partition(|path| directory.starts_with(path) || path.starts_with(&directory));
        write = rest;
        read.extend::<Vec<PathBuf>>(inside);
    }
    let volumes = requested.container.volumes.iter().map(|volume| {
        let from = resolve_allowed(input, &volume.from, &hidden)?;
        match hidden.iter().find(|hidden| hidden.starts_with(&from)) {
            Some(hidden) => {
                Err(SandboxError::ContainsHidden { volume: volume.from.clone(), hidden: hidden.clone() })
            }
            None => Ok(VolumeMount { from, to: PathBuf::from(&volume.to), writable: volume.writable }),
        }
    });
    let container = ContainerSettings {
        image: requested.container.image.clone().unwrap_or_default(),
        socket: docker::socket(&requested.container)?,
        user: requested.container.user.clone(),
        tmpfs: requested.container.tmpfs.clone(),
        labels: requested.container.labels.clone(),
        volumes: volumes.collect::<Result<_, SandboxError>>()?,
        cpu_shares: requested.container.cpu_shares,
        host_network: requested.container.host_network,
        excluded_variables: Vec::new(),
        state: input.state.canonicalize().unwrap_or_else(|_| input.state.to_owned()),
    };
    let read_only = read_only_paths(input, &write, &hidden)?;
    Ok(SandboxPlan {
        kind: requested.kind,
        home: home(input),
        read,
        write,
        hidden,
        read_only,
        network: requested.network.clone(),
        caps: requested.caps,
        home_replacements: home_replacements(input)?,
        container: Some(container),
        ..SandboxPlan::default()
    })
}

/// Returns the paths that the agent must not change: files that cowhand reads, even if they do not exist yet, and parts
/// of the shared repository. Creates placeholders for missing files, because a mount protects only an existing path.
/// Landlock cannot protect a path in a writable folder, so for Landlock no placeholders are created, and
/// `refuse_hidden_parts` refuses such a plan.
fn read_only_paths(
    input: &SandboxInput<'_>,
    write: &[PathBuf],
    hidden: &[PathBuf],
) -> Result<Vec<PathBuf>, SandboxError> {
    refuse_links(input, write)?;
    // An existing folder of herdctl is hidden.
    let herdctl = herdctl_folders(input.files);
    let herdctl =
        herdctl.filter(|folder| !protected::real(folder).is_some_and(|real| hidden.contains(&real)));
    let files: Vec<PathBuf> = input.files.iter().cloned().chain(herdctl).collect();
    for file in &files {
        if input.requested.kind != SandboxKind::Landlock {
            protected::reserve_name(file, write)?;
        }
    }
    let worktree = input.directory.canonicalize().ok().and_then(|directory| Worktree::of(&directory));
    // Landlock cannot protect the shared repository. Changes there are detected after the attempt.
    let shared = worktree.filter(|_| input.requested.kind != SandboxKind::Landlock);
    let shared = shared.iter().flat_map(Worktree::kept);
    Ok(sorted_unique(files.iter().filter_map(|file| protected::real(file)).chain(shared)))
}

/// Refuses the plan if a path of the config or of cowhand leads through a link in a writable folder. The agent could
/// redirect the link, and cowhand or the next agent would follow the link.
fn refuse_links(input: &SandboxInput<'_>, write: &[PathBuf]) -> Result<(), SandboxError> {
    let RequestedSandbox { write: own, read, container, .. } = input.requested;
    let volumes = container.volumes.iter().map(|volume| &volume.from);
    for path in own.iter().chain(read).chain(volumes) {
        protected::refuse_link(&resolve(input, path)?, write)?;
    }
    let files = input.files.iter().map(PathBuf::as_path);
    files.chain([input.state, input.directory]).try_for_each(|file| protected::refuse_link(file, write))
}

/// Refuses a plan in which a writable folder contains a hidden or read-only path, because Landlock cannot exclude a
/// part of a writable folder.
fn refuse_hidden_parts(sandbox: &SandboxPlan) -> Result<(), SandboxError> {
    let kept = sandbox.hidden.iter().chain(&sandbox.read_only);
    let held = kept.flat_map(|kept| sandbox.write.iter().map(move |write| (write, kept)));
    match held.into_iter().find(|(write, kept)| kept.starts_with(write)) {
        None => Ok(()),
        Some((write, kept)) => {
            Err(SandboxError::ProtectedInWritable { kept: kept.clone(), write: write.clone() })
        }
    }
}

fn hidden(input: &SandboxInput<'_>) -> Vec<PathBuf> {
    let hidden = hidden_paths(home(input), input.files, input.state);
    let sockets = docker::sockets(&input.requested.container);
    sorted_unique(hidden.into_iter().chain(existing_paths(sockets.into_iter())))
}

fn home(input: &SandboxInput<'_>) -> Option<PathBuf> {
    let home = Path::new(input.environment.get("HOME")?);
    home.is_absolute().then(|| home.canonicalize().ok()).flatten()
}

fn writable_paths(input: &SandboxInput<'_>, hidden: &[PathBuf]) -> Result<Vec<PathBuf>, SandboxError> {
    let real = |path: &Path| {
        let named = |error| SandboxError::NotUsable { path: path.display().to_string(), error };
        path.canonicalize().map_err(named)
    };
    let directory = real(input.directory)?;
    if input.isolated && directory != input.directory {
        return Err(SandboxError::ReplacedByLink(input.directory.to_owned()));
    }
    let worktree = Worktree::of(&directory);
    let top = worktree.as_ref().filter(|_| input.isolated).map(|worktree| worktree.top.clone());
    let mut write = vec![top.unwrap_or(directory)];
    for requested in &input.requested.write {
        write.push(resolve_allowed(input, requested, hidden)?);
    }
    // If the repository lies in a writable folder, its parts are not added: they are writable anyway, and the agent
    // could replace them with links at any time.
    let apart = |worktree: &&Worktree| !write.iter().any(|write| worktree.common.starts_with(write));
    let parts: Vec<PathBuf> = worktree.iter().filter(apart).flat_map(Worktree::written).collect();
    write.extend(parts);
    let home = home(input);
    for write in &write {
        if home.as_ref().is_some_and(|home| home.starts_with(write)) {
            return Err(SandboxError::ContainsHome(write.clone()));
        }
    }
    let homes = input.runtime.homes.iter().filter(|_| input.private_home.is_none());
    for place in homes {
        let Some(path) = place.path(input.environment) else { continue };
        if place.is_folder {
            create_folder(&path)?;
        }
        write.extend(path.canonicalize());
    }
    if input.requested.kind == SandboxKind::Landlock {
        let own = temporary(input.private);
        create_folder(&own)?;
        write.push(real(&own)?);
    }
    Ok(existing_paths(write.into_iter()))
}

/// Creates the folders that replace the program's own folders, and returns each with the folder that it replaces.
/// Without a private home, nothing is replaced.
fn home_replacements(input: &SandboxInput<'_>) -> Result<Vec<(PathBuf, PathBuf)>, SandboxError> {
    let Some(private_home) = input.private_home else { return Ok(Vec::new()) };
    if input.requested.kind == SandboxKind::Landlock && !input.runtime.homes.is_empty() {
        return Err(SandboxError::NoOtherHome);
    }
    let folders = input.runtime.homes.iter().filter(|place| place.is_folder);
    let both = folders.filter_map(|place| Some((place, place.path(input.environment)?)));
    both.map(|(place, theirs)| {
        let ours = private_home.join(place.default_path).join(place.below);
        create_folder(&ours)?;
        if let Some((name, text)) = place.required_file {
            create_file_once(&ours.join(name), text)?;
        }
        Ok((ours, theirs))
    })
    .collect()
}

/// Writes a file unless it exists. A dangling link, which an agent may have made, counts as existing.
fn create_file_once(file: &Path, text: &str) -> Result<(), SandboxError> {
    match std::fs::File::create_new(file).and_then(|mut file| file.write_all(text.as_bytes())) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(SandboxError::NotMade { path: file.to_owned(), error })
        }
        _ => Ok(()),
    }
}

/// Returns the folder of the agent's temporary files, for sandboxes without their own `/tmp`.
pub fn temporary(private: &Path) -> PathBuf {
    private.join("tmp")
}

fn create_folder(folder: &Path) -> Result<(), SandboxError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| SandboxError::NotMade { path: folder.to_owned(), error })
}

/// Makes a path of the config absolute: `~` is the home directory, and other relative paths begin in the agent's
/// directory.
fn resolve(input: &SandboxInput<'_>, path: &str) -> Result<PathBuf, SandboxError> {
    match path.strip_prefix("~/").or_else(|| (path == "~").then_some("")) {
        Some(below) => Ok(home(input).ok_or(SandboxError::NoHome)?.join(below)),
        None => Ok(input.agent_directory.join(path)),
    }
}

fn resolve_allowed(
    input: &SandboxInput<'_>,
    path: &str,
    hidden: &[PathBuf],
) -> Result<PathBuf, SandboxError> {
    let resolved = resolve(input, path)?;
    let real = resolved.canonicalize().map_err(|error| {
        // A relative path is shown with the path that it leads to.
        let is_same = Path::new(path) == resolved;
        let shown = if is_same { path.to_owned() } else { format!("{path} ({})", resolved.display()) };
        SandboxError::NotUsable { path: shown, error }
    })?;
    match hidden.iter().find(|hidden| real.starts_with(hidden)) {
        Some(hidden) => Err(SandboxError::LiesInHidden { path: path.to_owned(), hidden: hidden.clone() }),
        None => Ok(real),
    }
}

fn readable(
    input: &SandboxInput<'_>,
    program: &Path,
    hidden: &[PathBuf],
) -> Result<Vec<PathBuf>, SandboxError> {
    let resolvers: &[&str] =
        if input.requested.network == NetworkAccess::None { &[] } else { &RESOLVER_PATHS };
    let mut read: Vec<PathBuf> = SYSTEM_PATHS.iter().chain(resolvers).map(PathBuf::from).collect();
    let path = input.environment.get("PATH").map(String::as_str).unwrap_or_default();
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    let home = home(input);
    // A folder on PATH that contains the home directory, or that is hidden, is not readable.
    let of_programs = |folder: &PathBuf| {
        let place = folder.canonicalize().unwrap_or_default();
        !home.as_ref().is_some_and(|home| home.starts_with(&place))
            && !hidden.iter().any(|hidden| place.starts_with(hidden))
    };
    read.extend(folders.filter(of_programs));
    read.push(program.to_owned());
    read.push(package(program));
    read.push(input.program.to_owned());
    read.extend(own_files(input, hidden)?);
    read.retain(|path| path.exists());
    let mut seen = std::collections::HashSet::new();
    read.retain(|path| seen.insert(path.clone()));
    Ok(read)
}

/// Returns the readable files of the job, without those of the system.
fn own_files(input: &SandboxInput<'_>, hidden: &[PathBuf]) -> Result<Vec<PathBuf>, SandboxError> {
    let mut read = Vec::new();
    if input.has_private {
        create_folder(input.private)?;
        read.push(input.private.to_owned());
    }
    let directory = input.directory.canonicalize().unwrap_or_default();
    read.extend(Worktree::of(&directory).map(|worktree| worktree.common));
    for requested in &input.requested.read {
        read.push(resolve_allowed(input, requested, hidden)?);
    }
    Ok(read)
}

/// Returns the outermost `node_modules` folder that contains the program, because an npm program consists of many
/// files. For a program outside such a folder, returns the real path of the program.
fn package(program: &Path) -> PathBuf {
    let real = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let above = real.ancestors().filter(|above| above.file_name().is_some_and(|name| name == "node_modules"));
    above.last().map_or_else(|| real.clone(), Path::to_owned)
}

/// Finds an executable file. A name with a slash is a path relative to the working directory; other names are searched
/// on PATH.
fn find_program(input: &SandboxInput<'_>, name: &str) -> Result<PathBuf, SandboxError> {
    let runs = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let found = if name.contains('/') {
        Some(input.directory.join(name)).filter(runs)
    } else {
        let path = input.environment.get("PATH").map(String::as_str).unwrap_or_default();
        std::env::split_paths(path).map(|folder| input.directory.join(folder).join(name)).find(runs)
    };
    found.ok_or_else(|| SandboxError::ProgramNotFound(name.to_owned()))
}

//! What an agent may reach: resolved from the config and the files of this machine.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cowhand_core::sandbox::{Credentials, Reaches, RequestedSandbox, SandboxKind};

use super::SandboxError;
use super::docker;
use super::git::Worktree;
use super::{ability, kept};
use crate::runtime::description::Description;
use crate::start::{Bound, Contained, SandboxPlan};

/// Programs, libraries and settings of the machine.
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
/// Targets of `/etc/resolv.conf`, for name resolution.
const RESOLVER_PATHS: [&str; 2] = ["/run/systemd/resolve", "/run/resolvconf"];

/// Files that only programs of the system read.
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
/// Credentials for other machines and accounts in a home.
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

/// Input of a sandbox plan.
#[derive(Debug, Clone, Copy)]
pub struct SandboxInput<'a> {
    pub asked: &'a RequestedSandbox,
    /// Directory in which relative paths of the config begin.
    pub base: &'a Path,
    /// Working directory.
    pub directory: &'a Path,
    /// Set if that is a workspace of the job.
    pub isolated: bool,
    pub runtime: &'a Description,
    pub environment: &'a HashMap<String, String>,
    pub argv: &'a [String],
    /// Program of the agent, if the started program is the ACP client.
    pub agent: Option<&'a str>,
    /// Folder of files that only the agent's program may read.
    pub private: &'a Path,
    pub has_private: bool,
    /// State folder, config and program of cowhand.
    pub state: &'a Path,
    pub files: &'a [PathBuf],
    pub program: &'a Path,
    /// Folder that replaces the home of the program in a job with text of strangers, because other jobs share that
    /// home.
    pub stead: Option<&'a Path>,
}

/// Returns the sandbox plan, or none without a sandbox. The error says why the agent is not started.
pub fn resolve_plan(setting: &SandboxInput<'_>) -> Result<Option<SandboxPlan>, SandboxError> {
    let asked = setting.asked;
    if asked.kind == SandboxKind::None && asked.caps.is_none() {
        return Ok(None);
    }
    let refused = SandboxError::of(asked.kind);
    if let Some(why) = ability::refusal(asked.kind) {
        return Err(refused(why));
    }
    // A config is checked when it is read; a roster built by a program is not.
    if let Some(why) = asked.contradiction() {
        return Err(refused(SandboxError::Contradiction(why)));
    }
    let caps = asked.caps;
    if asked.kind == SandboxKind::Docker {
        return contained(setting).map(Some).map_err(&refused);
    }
    let name = setting.argv.first().map(String::as_str).unwrap_or_default();
    let program = found(setting, name)?;
    if asked.kind == SandboxKind::None {
        return Ok(Some(SandboxPlan {
            program,
            caps,
            network: Reaches::Everybody,
            ..SandboxPlan::default()
        }));
    }
    let hidden = hidden(setting);
    let write = written(setting, &hidden).map_err(&refused)?;
    let frozen = frozen(setting, &write).map_err(&refused)?;
    let mut read = readable(setting, &program, &hidden).map_err(&refused)?;
    if let Some(agent) = setting.agent {
        read.push(package(&found(setting, agent)?));
    }
    let sandbox = SandboxPlan {
        kind: asked.kind,
        program,
        home: home(setting),
        read,
        write,
        hidden,
        frozen,
        network: asked.network.clone(),
        gateway: asked.credentials == Credentials::Outside,
        caps,
        stead: stead(setting).map_err(&refused)?,
        container: None,
        talk: None,
    };
    if asked.kind == SandboxKind::Landlock {
        all_or_nothing(&sandbox).map_err(&refused)?;
    }
    Ok(Some(sandbox))
}

/// Returns the plan of a container: the system and all programs are those of the image.
fn contained(setting: &SandboxInput<'_>) -> Result<SandboxPlan, SandboxError> {
    let asked = setting.asked;
    if setting.agent.is_some() {
        return Err(SandboxError::AcpInContainer);
    }
    let hidden = hidden(setting);
    let mut write = written(setting, &hidden)?;
    let mut read = own_files(setting, &hidden)?;
    if asked.container.read_only {
        let directory = setting.directory.canonicalize().unwrap_or_default();
        let (inside, rest) =
            write.into_iter().partition(|path| directory.starts_with(path) || path.starts_with(&directory));
        write = rest;
        read.extend::<Vec<PathBuf>>(inside);
    }
    let volumes = asked.container.volumes.iter().map(|volume| {
        let from = declared(setting, &volume.from, &hidden)?;
        match hidden.iter().find(|hidden| hidden.starts_with(&from)) {
            Some(hidden) => {
                Err(SandboxError::HoldsHidden { volume: volume.from.clone(), hidden: hidden.clone() })
            }
            None => Ok(Bound { from, to: PathBuf::from(&volume.to), written: volume.written }),
        }
    });
    let container = Contained {
        image: asked.container.image.clone().unwrap_or_default(),
        socket: docker::socket(&asked.container)?,
        user: asked.container.user.clone(),
        tmpfs: asked.container.tmpfs.clone(),
        labels: asked.container.labels.clone(),
        volumes: volumes.collect::<Result<_, SandboxError>>()?,
        cpu_shares: asked.container.cpu_shares,
        host_network: asked.container.host_network,
        left_outside: Vec::new(),
        state: setting.state.canonicalize().unwrap_or_else(|_| setting.state.to_owned()),
    };
    let frozen = frozen(setting, &write)?;
    Ok(SandboxPlan {
        kind: asked.kind,
        home: home(setting),
        read,
        write,
        hidden,
        frozen,
        network: asked.network.clone(),
        caps: asked.caps,
        stead: stead(setting)?,
        container: Some(container),
        ..SandboxPlan::default()
    })
}

/// Returns the config files, and the names of missing files that would be read. Landlock cannot protect a name, so an
/// agent is not started where that would be needed.
fn frozen(setting: &SandboxInput<'_>, write: &[PathBuf]) -> Result<Vec<PathBuf>, SandboxError> {
    no_links(setting, write)?;
    for file in setting.files {
        if setting.asked.kind != SandboxKind::Landlock {
            kept::take(file, write)?;
        }
    }
    let worktree = setting.directory.canonicalize().ok().and_then(|directory| Worktree::of(&directory));
    // Landlock cannot protect it; changes are detected after the attempt.
    let shared = worktree.filter(|_| setting.asked.kind != SandboxKind::Landlock);
    let shared = shared.and_then(|worktree| worktree.kept()).into_iter();
    Ok(each_once(setting.files.iter().filter_map(|file| kept::real(file)).chain(shared)))
}

/// Refuses links in writable folders: cowhand or the next agent would follow them.
fn no_links(setting: &SandboxInput<'_>, write: &[PathBuf]) -> Result<(), SandboxError> {
    let RequestedSandbox { write: own, read, container, .. } = setting.asked;
    let volumes = container.volumes.iter().map(|volume| &volume.from);
    for path in own.iter().chain(read).chain(volumes) {
        kept::no_link(&placed(setting, path)?, write)?;
    }
    let files = setting.files.iter().map(PathBuf::as_path);
    files.chain([setting.state, setting.directory]).try_for_each(|file| kept::no_link(file, write))
}

/// Refuses a plan that hides a part of a granted folder, which Landlock cannot do.
fn all_or_nothing(sandbox: &SandboxPlan) -> Result<(), SandboxError> {
    let kept = sandbox.hidden.iter().chain(&sandbox.frozen);
    let held = kept.flat_map(|kept| sandbox.write.iter().map(move |write| (write, kept)));
    match held.into_iter().find(|(write, kept)| kept.starts_with(write)) {
        None => Ok(()),
        Some((write, kept)) => Err(SandboxError::KeptInWritable { kept: kept.clone(), write: write.clone() }),
    }
}

fn hidden(setting: &SandboxInput<'_>) -> Vec<PathBuf> {
    let home = home(setting);
    let keys = HOME_SECRETS.iter().filter_map(|key| Some(home.as_ref()?.join(key)));
    let secrets = SYSTEM_SECRETS.iter().map(PathBuf::from);
    let dotenv = setting.files.iter().filter(|file| file.file_name().is_some_and(|name| name == ".env"));
    let sockets = docker::sockets(&setting.asked.container);
    present(keys.chain(secrets).chain(dotenv.cloned()).chain(sockets).chain([setting.state.to_owned()]))
}

fn home(setting: &SandboxInput<'_>) -> Option<PathBuf> {
    let home = Path::new(setting.environment.get("HOME")?);
    home.is_absolute().then(|| home.canonicalize().ok()).flatten()
}

/// Returns the existing paths, resolved.
fn present(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    each_once(paths.filter_map(|path| path.canonicalize().ok()))
}

fn each_once(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = paths.collect();
    found.sort();
    found.dedup();
    found
}

fn written(setting: &SandboxInput<'_>, hidden: &[PathBuf]) -> Result<Vec<PathBuf>, SandboxError> {
    let real = |path: &Path| {
        let named = |error| SandboxError::NotUsable { path: path.display().to_string(), error };
        path.canonicalize().map_err(named)
    };
    let directory = real(setting.directory)?;
    if setting.isolated && directory != setting.directory {
        return Err(SandboxError::LedElsewhere(setting.directory.to_owned()));
    }
    let worktree = Worktree::of(&directory);
    let top = worktree.as_ref().filter(|_| setting.isolated).map(|worktree| worktree.top.clone());
    let mut write = vec![top.unwrap_or(directory)];
    for asked in &setting.asked.write {
        write.push(declared(setting, asked, hidden)?);
    }
    // A repository inside a writable folder could be redirected at any time.
    let apart = |worktree: &&Worktree| !write.iter().any(|write| worktree.common.starts_with(write));
    let parts: Vec<PathBuf> = worktree.iter().filter(apart).flat_map(Worktree::written).collect();
    write.extend(parts);
    let home = home(setting);
    for write in &write {
        if home.as_ref().is_some_and(|home| home.starts_with(write)) {
            return Err(SandboxError::HoldsHome(write.clone()));
        }
    }
    let homes = setting.runtime.homes.iter().filter(|_| setting.stead.is_none());
    for place in homes {
        let Some(path) = place.path(setting.environment) else { continue };
        if place.is_folder {
            make(&path)?;
        }
        write.extend(path.canonicalize());
    }
    if setting.asked.kind == SandboxKind::Landlock {
        let own = temporary(setting.private);
        make(&own)?;
        write.push(real(&own)?);
    }
    Ok(present(write.into_iter()))
}

/// Returns the replacement of each folder of the program.
fn stead(setting: &SandboxInput<'_>) -> Result<Vec<(PathBuf, PathBuf)>, SandboxError> {
    let Some(stead) = setting.stead else { return Ok(Vec::new()) };
    if setting.asked.kind == SandboxKind::Landlock && !setting.runtime.homes.is_empty() {
        return Err(SandboxError::NoOtherHome);
    }
    let folders = setting.runtime.homes.iter().filter(|place| place.is_folder);
    let both = folders.filter_map(|place| Some((place, place.path(setting.environment)?)));
    both.map(|(place, theirs)| {
        let ours = stead.join(place.folder).join(place.below);
        make(&ours)?;
        if let Some((name, text)) = place.first {
            first(&ours.join(name), text)?;
        }
        Ok((ours, theirs))
    })
    .collect()
}

/// Writes a file unless it exists; a dangling link that a stranger made counts as existing.
fn first(file: &Path, text: &str) -> Result<(), SandboxError> {
    match std::fs::File::create_new(file).and_then(|mut file| file.write_all(text.as_bytes())) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(SandboxError::NotMade { path: file.to_owned(), error })
        }
        _ => Ok(()),
    }
}

/// Returns the folder of the agent's temporary files, where it cannot have its own `/tmp`.
pub fn temporary(private: &Path) -> PathBuf {
    private.join("tmp")
}

fn make(folder: &Path) -> Result<(), SandboxError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| SandboxError::NotMade { path: folder.to_owned(), error })
}

/// Resolves a path of the config.
fn placed(setting: &SandboxInput<'_>, path: &str) -> Result<PathBuf, SandboxError> {
    match path.strip_prefix("~/").or_else(|| (path == "~").then_some("")) {
        Some(below) => Ok(home(setting).ok_or(SandboxError::NoHome)?.join(below)),
        None => Ok(setting.base.join(path)),
    }
}

fn declared(setting: &SandboxInput<'_>, path: &str, hidden: &[PathBuf]) -> Result<PathBuf, SandboxError> {
    let placed = placed(setting, path)?;
    let real =
        placed.canonicalize().map_err(|error| SandboxError::NotUsable { path: path.to_owned(), error })?;
    match hidden.iter().find(|hidden| real.starts_with(hidden)) {
        Some(hidden) => Err(SandboxError::LiesInHidden { path: path.to_owned(), hidden: hidden.clone() }),
        None => Ok(real),
    }
}

fn readable(
    setting: &SandboxInput<'_>,
    program: &Path,
    hidden: &[PathBuf],
) -> Result<Vec<PathBuf>, SandboxError> {
    let resolvers: &[&str] = if setting.asked.network == Reaches::Nobody { &[] } else { &RESOLVER_PATHS };
    let mut read: Vec<PathBuf> = SYSTEM_PATHS.iter().chain(resolvers).map(PathBuf::from).collect();
    let path = setting.environment.get("PATH").map(String::as_str).unwrap_or_default();
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    let home = home(setting);
    // A folder that contains the home or a credential is not a folder of programs.
    let of_programs = |folder: &PathBuf| {
        let place = folder.canonicalize().unwrap_or_default();
        !home.as_ref().is_some_and(|home| home.starts_with(&place))
            && !hidden.iter().any(|hidden| place.starts_with(hidden))
    };
    read.extend(folders.filter(of_programs));
    read.push(program.to_owned());
    read.push(package(program));
    read.push(setting.program.to_owned());
    read.extend(own_files(setting, hidden)?);
    read.retain(|path| path.exists());
    let mut seen = std::collections::HashSet::new();
    read.retain(|path| seen.insert(path.clone()));
    Ok(read)
}

/// Returns the files of the job, as opposed to those of the system.
fn own_files(setting: &SandboxInput<'_>, hidden: &[PathBuf]) -> Result<Vec<PathBuf>, SandboxError> {
    let mut read = Vec::new();
    if setting.has_private {
        make(setting.private)?;
        read.push(setting.private.to_owned());
    }
    let directory = setting.directory.canonicalize().unwrap_or_default();
    read.extend(Worktree::of(&directory).map(|worktree| worktree.common));
    for asked in &setting.asked.read {
        read.push(declared(setting, asked, hidden)?);
    }
    Ok(read)
}

/// Returns the package of an npm program, which consists of many files.
fn package(program: &Path) -> PathBuf {
    let real = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let above = real.ancestors().filter(|above| above.file_name().is_some_and(|name| name == "node_modules"));
    above.last().map_or_else(|| real.clone(), Path::to_owned)
}

/// Finds a program on PATH.
fn found(setting: &SandboxInput<'_>, name: &str) -> Result<PathBuf, SandboxError> {
    let runs = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let found = if name.contains('/') {
        Some(setting.directory.join(name)).filter(runs)
    } else {
        let path = setting.environment.get("PATH").map(String::as_str).unwrap_or_default();
        std::env::split_paths(path).map(|folder| setting.directory.join(folder).join(name)).find(runs)
    };
    found.ok_or_else(|| SandboxError::ProgramNotFound(name.to_owned()))
}

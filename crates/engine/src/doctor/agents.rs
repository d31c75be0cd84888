//! Checks the program of each agent: its path, its version, and whether it can start here.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::duration;
use cowhand_core::permission::PermissionMode;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::runtime::Runtime;
use cowhand_core::sandbox::SandboxKind;
use tokio::process::Command;

use super::Finding;
use cowhand_run::acp::{self, AgentVersion, VersionQueryError};
use cowhand_run::runtime::description::{Description, description};

/// Time limit for a program to print its version. Some programs take a second, and longer on a busy machine.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// The version text of a program, or the reason why it is not known.
type VersionResult = Result<String, VersionError>;

#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum VersionError {
    #[error("`--version` ended with {0}")]
    Ended(ExitStatus),
    #[error("`--version` could not be run: {0}")]
    NotRun(Arc<io::Error>),
    #[error("`--version` did not answer within {}", duration::exact(VERSION_TIMEOUT))]
    Silent,
}

/// Why the program of an agent does not work, or may not work. The message is for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramError {
    #[error("its directory {} does not exist", .0.display())]
    NoDirectory(PathBuf),
    #[error("`runtime: {0}` has no command")]
    NoCommand(&'static str),
    #[error("{0} was not found on PATH; install it, or give its whole path in the config")]
    NotOnPath(String),
    /// The config has no key for the path of the program of a built-in runtime.
    #[error(
        "{0} was not found on PATH; install it, or add its folder to PATH: to that of the daemon, and restart it, or to \
         `PATH` in the agent's `env`"
    )]
    BuiltInNotOnPath(&'static str),
    #[error("{} is a folder, not a program", .0.display())]
    IsFolder(PathBuf),
    #[error("{path} is not executable; run `chmod +x {path}`", path = .0.display())]
    NotExecutable(PathBuf),
    #[error("{} is not a program", .0.display())]
    NotAProgram(PathBuf),
    #[error("{} does not exist; install it, or correct its path in the config", .0.display())]
    Missing(PathBuf),
    #[error("{} cannot be used: {error}", path.display())]
    Unusable { path: PathBuf, error: io::Error },
    #[error("it could not be started: {0}")]
    NotStarted(io::Error),
    #[error(transparent)]
    AgentVersion(#[from] VersionQueryError),
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error("its version is unknown: it printed {0:?}")]
    StrangeVersion(String),
    #[error("version {version} is not supported; use {oldest} or newer")]
    TooOld { version: String, oldest: String },
}

pub(super) async fn check(roster: &Roster) -> Vec<Finding> {
    // Many agents use the same program, so the version of each path is requested once.
    let mut versions = HashMap::new();
    let mut findings = Vec::new();
    for agent in &roster.agents {
        findings.push(agent_finding(agent, &mut versions).await);
    }
    findings
}

async fn agent_finding(agent: &Agent, versions: &mut HashMap<PathBuf, VersionResult>) -> Finding {
    let what = format!("agent {}", agent.name);
    let runtime = agent.runtime();
    if let Some(image) = image(agent) {
        return match program(agent) {
            Ok(program) => Finding::works(
                what,
                format!(
                    "{program} in a container of {image}; it is looked for in the image when a job starts"
                ),
            ),
            Err(missing) => Finding::of(what, Err(missing)),
        };
    }
    let (program, path) =
        match program(agent).and_then(|program| Ok((find_program(agent, &program)?, program))) {
            Ok((path, program)) => (program, path),
            Err(missing) => return Finding::of(what, Err(missing)),
        };
    let about = description(runtime);
    if runtime == Runtime::Acp {
        let found = path.display();
        return match query_version(&path, agent).await {
            Ok(AgentVersion { name, version }) => {
                let version = version.map(|version| format!(" {version}")).unwrap_or_default();
                Finding::works(what, format!("{name}{version} at {found}"))
            }
            Err(doubt) => Finding { warning: true, ..Finding::works(what, format!("{found}; {doubt}")) },
        };
    }
    if about.program.is_none() {
        return Finding::works(what, path.display().to_string());
    }
    let version = match versions.get(&path) {
        Some(version) => version.clone(),
        None => version_of(&path, &agent.directory, agent.program.env.iter()).await,
    };
    versions.insert(path.clone(), version.clone());
    let found = format!("{program} at {}", path.display());
    if let Some(refusal) = start_refusal(agent, runtime) {
        return Finding::of(what, Err(format!("{found}; {refusal}")));
    }
    match judge(about, version) {
        Ok(version) => Finding::works(what, format!("{program} {version} at {}", path.display())),
        Err(doubt) => Finding { warning: true, ..Finding::works(what, format!("{found}; {doubt}")) },
    }
}

/// Returns the image of an agent with a Docker sandbox, whose program is in the image; `None` for other agents.
pub(super) fn image(agent: &Agent) -> Option<String> {
    let sandbox = agent.sandbox(None, false);
    (sandbox.kind == SandboxKind::Docker).then(|| sandbox.container.image.unwrap_or_default())
}

/// Returns true if the agent's program was found, or cannot be looked for on this machine.
pub(super) fn may_start(agent: &Agent) -> bool {
    missing_program(agent).is_none()
}

/// Returns why the directory or the program of the agent cannot be used on this machine. The program of an agent with a
/// Docker sandbox is in its image, and is not looked for.
pub(super) fn missing_program(agent: &Agent) -> Option<String> {
    let found = program(agent).and_then(|program| match image(agent) {
        Some(_) => Ok(()),
        None => find_program(agent, &program).map(drop),
    });
    found.err().map(|error| error.to_string())
}

fn program(agent: &Agent) -> Result<String, ProgramError> {
    if !agent.directory.is_dir() {
        return Err(ProgramError::NoDirectory(agent.directory.clone()));
    }
    let configured = || agent.program.command.first().cloned();
    let built_in = description(agent.runtime()).program.map(str::to_owned);
    let runtime = agent.runtime().name();
    built_in.or_else(configured).ok_or(ProgramError::NoCommand(runtime))
}

fn find_program(agent: &Agent, program: &str) -> Result<PathBuf, ProgramError> {
    let found = find(program, &agent.directory, agent.program.env.get("PATH"));
    found.ok_or_else(|| match description(agent.runtime()).program {
        Some(built_in) => ProgramError::BuiltInNotOnPath(built_in),
        None => unusable(program, &agent.directory),
    })
}

/// Explains why a program cannot be started.
pub(super) fn unusable(program: &str, directory: &Path) -> ProgramError {
    if !program.contains('/') {
        return ProgramError::NotOnPath(program.to_owned());
    }
    let path = directory.join(program);
    match path.metadata() {
        Ok(file) if file.is_dir() => ProgramError::IsFolder(path),
        Ok(file) if file.is_file() => ProgramError::NotExecutable(path),
        Ok(_) => ProgramError::NotAProgram(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => ProgramError::Missing(path),
        Err(error) => ProgramError::Unusable { path, error },
    }
}

/// Returns the name and version of an agent of `runtime: acp`, requested over its protocol.
async fn query_version(path: &Path, agent: &Agent) -> Result<AgentVersion, ProgramError> {
    let mut command = Command::new(path);
    command
        .args(agent.program.command.iter().skip(1))
        .envs(&agent.program.env)
        .current_dir(&agent.directory)
        .stderr(Stdio::null());
    let started = acp::AgentProcess::start(command).map_err(ProgramError::NotStarted)?;
    Ok(acp::query_version(started, VERSION_TIMEOUT).await?)
}

/// Returns the first line that `--version` prints, at most 100 characters of it.
pub(super) async fn version_of<'a>(
    path: &Path,
    directory: &Path,
    environment: impl Iterator<Item = (&'a String, &'a String)>,
) -> VersionResult {
    let output = Command::new(path)
        .arg("--version")
        .envs(environment)
        .current_dir(directory)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(VERSION_TIMEOUT, output).await {
        Ok(Ok(output)) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            Ok(text.lines().next().unwrap_or_default().trim().chars().take(100).collect())
        }
        Ok(Ok(output)) => Err(VersionError::Ended(output.status)),
        Ok(Err(error)) => Err(VersionError::NotRun(Arc::new(error))),
        Err(_) => Err(VersionError::Silent),
    }
}

/// Returns the version number, or the reason why the program may not work.
fn judge(about: &Description, version: VersionResult) -> Result<String, ProgramError> {
    let text = version?;
    let Some(version) = version_in(&text) else {
        return Err(ProgramError::StrangeVersion(text));
    };
    let joined = |version: [u32; 3]| version.map(|part| part.to_string()).join(".");
    match about.oldest {
        Some(oldest) if version < oldest => {
            Err(ProgramError::TooOld { version: joined(version), oldest: joined(oldest) })
        }
        _ => Ok(joined(version)),
    }
}

/// Returns the first `1.2.3` in a text.
pub(super) fn version_in(text: &str) -> Option<[u32; 3]> {
    text.split(|letter: char| !letter.is_ascii_digit() && letter != '.').find_map(|word| {
        let parts: Vec<u32> = word.trim_matches('.').split('.').map_while(|part| part.parse().ok()).collect();
        parts.get(..3)?.try_into().ok()
    })
}

/// Explains why the program would refuse to start; `None` if no reason is known.
fn start_refusal(agent: &Agent, runtime: Runtime) -> Option<&'static str> {
    let is_bypass = agent.tools.mode == PermissionMode::BypassPermissions;
    let is_claude = runtime == Runtime::Claude;
    let is_excused = agent.program.env.contains_key("IS_SANDBOX");
    (is_claude && is_bypass && rustix::process::geteuid().is_root() && !is_excused).then_some(
        "it refuses `permission_mode: bypassPermissions` to root; use `allowed_tools`, another user, or IS_SANDBOX=1 in `env`",
    )
}

/// Finds a program as a shell would.
pub(super) fn find(name: &str, directory: &Path, path: Option<&String>) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(directory.join(name)).filter(|path| is_executable(path));
    }
    let path = path.map(Into::into).or_else(|| std::env::var_os("PATH"))?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_the_output_of_programs() {
        for (text, expected) in [
            ("2.1.325 (Claude Code)", Some([2, 1, 325])),
            ("codex-cli 0.166.0", Some([0, 166, 0])),
            ("0.61.0", Some([0, 61, 0])),
            ("v1.18.33-beta.2", Some([1, 18, 33])),
            ("1.2", None),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(version_in(text), expected, "{text}");
        }
    }

    #[test]
    fn the_reason_why_a_program_cannot_start_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        std::fs::write(directory.join("plain"), "#!/bin/sh\n").unwrap();
        std::fs::create_dir(directory.join("sub")).unwrap();
        let absolute = |name: &str| directory.join(name).display().to_string();
        for (program, expected) in [
            (absolute("plain"), "/plain is not executable; run `chmod +x /"),
            ("./plain".to_owned(), "/./plain is not executable"),
            (absolute("sub"), "/sub is a folder, not a program"),
            (absolute("gone"), "/gone does not exist; install it, or correct its path in the config"),
            (absolute("plain/x"), "/plain/x cannot be used: Not a directory"),
            ("no-such-program".to_owned(), "no-such-program was not found on PATH; install it"),
        ] {
            assert_eq!(find(&program, directory, None), None);
            let text = unusable(&program, directory);
            let text = text.to_string();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn old_and_unknown_versions_are_warnings() {
        let about = description(Runtime::Claude);
        let version_of_text =
            |text: &str| judge(about, Ok(text.to_owned())).map_err(|error| error.to_string());
        assert_eq!(version_of_text("2.1.325 (Claude Code)"), Ok("2.1.325".to_owned()));
        assert_eq!(
            version_of_text("1.0.9").unwrap_err(),
            "version 1.0.9 is not supported; use 2.0.0 or newer"
        );
        assert_eq!(version_of_text("moo").unwrap_err(), "its version is unknown: it printed \"moo\"");
        let silent = judge(about, Err(VersionError::Silent)).unwrap_err().to_string();
        assert_eq!(silent, "`--version` did not answer within 20s");
    }
}

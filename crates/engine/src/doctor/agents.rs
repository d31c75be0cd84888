//! Checks the program of each agent: its path, its version, and whether it can start here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cowhand_core::permission::PermissionMode;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::runtime::Runtime;
use tokio::process::Command;

use super::Finding;
use cowhand_run::acp::{self, Introduction};
use cowhand_run::runtime::description::{Description, description};

/// Time limit for the version of a program. Some take a second, and more on a busy machine.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// The version text of a program, or why it is not known.
type VersionResult = Result<String, String>;

pub(super) async fn look(roster: &Roster) -> Vec<Finding> {
    // Many agents use the same program.
    let mut asked = HashMap::new();
    let mut findings = Vec::new();
    for agent in &roster.agents {
        findings.push(agent_finding(agent, &mut asked).await);
    }
    findings
}

async fn agent_finding(agent: &Agent, asked: &mut HashMap<PathBuf, VersionResult>) -> Finding {
    let what = format!("agent {}", agent.name);
    let runtime = agent.runtime();
    let (program, path) = match program(agent).and_then(|program| Ok((located(agent, &program)?, program))) {
        Ok((path, program)) => (program, path),
        Err(missing) => return Finding::of(what, Err(missing)),
    };
    let about = description(runtime);
    if runtime == Runtime::Acp {
        let found = path.display();
        return match introduction(&path, agent).await {
            Ok(Introduction { name, version }) => {
                let version = version.map(|version| format!(" {version}")).unwrap_or_default();
                Finding::of(what, Ok(format!("{name}{version} at {found}")))
            }
            Err(doubt) => Finding { warning: true, ..Finding::of(what, Ok(format!("{found}; {doubt}"))) },
        };
    }
    if about.program.is_none() {
        return Finding::of(what, Ok(path.display().to_string()));
    }
    let version = match asked.get(&path) {
        Some(version) => version.clone(),
        None => said_version(&path, &agent.directory, agent.program.env.iter()).await,
    };
    asked.insert(path.clone(), version.clone());
    let found = format!("{program} at {}", path.display());
    if let Some(obstacle) = obstacle(agent, runtime) {
        return Finding::of(what, Err(format!("{found}; {obstacle}")));
    }
    match judge(about, version) {
        Ok(version) => Finding::of(what, Ok(format!("{program} {version} at {}", path.display()))),
        Err(doubt) => Finding { warning: true, ..Finding::of(what, Ok(format!("{found}; {doubt}"))) },
    }
}

/// Returns the path of the agent's program.
pub(super) fn path(agent: &Agent) -> Result<PathBuf, String> {
    located(agent, &program(agent)?)
}

fn program(agent: &Agent) -> Result<String, String> {
    if !agent.directory.is_dir() {
        return Err(format!("its directory {} does not exist", agent.directory.display()));
    }
    let own = || agent.program.command.first().cloned();
    let known = description(agent.runtime()).program.map(str::to_owned);
    let runtime = agent.runtime().name();
    known.or_else(own).ok_or_else(|| format!("`runtime: {runtime}` has no command"))
}

fn located(agent: &Agent, program: &str) -> Result<PathBuf, String> {
    find(program, &agent.directory, agent.program.env.get("PATH"))
        .ok_or_else(|| unusable(program, &agent.directory))
}

/// Explains why a program cannot be started.
fn unusable(program: &str, directory: &Path) -> String {
    if !program.contains('/') {
        return format!("{program} was not found on PATH; install it, or give its whole path in the config");
    }
    let path = directory.join(program);
    let shown = path.display();
    match path.metadata() {
        Ok(file) if file.is_dir() => format!("{shown} is a folder, not a program"),
        Ok(file) if file.is_file() => format!("{shown} is not executable; `chmod +x` makes it so"),
        Ok(_) => format!("{shown} is not a program"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("{shown} does not exist; install it, or correct its path in the config")
        }
        Err(error) => format!("{shown} cannot be used: {error}"),
    }
}

/// Returns the name and version of an agent of `runtime: acp`, requested over its protocol.
async fn introduction(path: &Path, agent: &Agent) -> Result<Introduction, String> {
    let mut command = Command::new(path);
    command
        .args(agent.program.command.iter().skip(1))
        .envs(&agent.program.env)
        .current_dir(&agent.directory)
        .stderr(Stdio::null());
    let started =
        acp::AgentProcess::start(command).map_err(|error| format!("it could not be started: {error}"))?;
    acp::introduce(started, VERSION_TIMEOUT).await
}

/// Returns the output of `--version`.
pub(super) async fn said_version<'a>(
    path: &Path,
    directory: &Path,
    environment: impl Iterator<Item = (&'a String, &'a String)>,
) -> VersionResult {
    let asked = Command::new(path)
        .arg("--version")
        .envs(environment)
        .current_dir(directory)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(VERSION_TIMEOUT, asked).await {
        Ok(Ok(output)) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            Ok(said.lines().next().unwrap_or_default().trim().chars().take(100).collect())
        }
        Ok(Ok(output)) => Err(format!("`--version` ended with {}", output.status)),
        Ok(Err(error)) => Err(format!("`--version` could not be run: {error}")),
        Err(_) => Err(format!("`--version` did not answer within {} seconds", VERSION_TIMEOUT.as_secs())),
    }
}

/// Returns the version number, or why it may not work.
fn judge(about: &Description, version: VersionResult) -> Result<String, String> {
    let said = version?;
    let Some(version) = figures(&said) else {
        return Err(format!("its version is unknown: it says {said:?}"));
    };
    let written = |version: [u32; 3]| version.map(|part| part.to_string()).join(".");
    match about.oldest {
        Some(oldest) if version < oldest => Err(format!(
            "version {} is too old to rely on; {} is the oldest that is known to work",
            written(version),
            written(oldest)
        )),
        _ => Ok(written(version)),
    }
}

/// Returns the first `1.2.3` in a text.
pub(super) fn figures(text: &str) -> Option<[u32; 3]> {
    text.split(|letter: char| !letter.is_ascii_digit() && letter != '.').find_map(|word| {
        let parts: Vec<u32> = word.trim_matches('.').split('.').map_while(|part| part.parse().ok()).collect();
        parts.get(..3)?.try_into().ok()
    })
}

/// Explains why the program would refuse to start.
fn obstacle(agent: &Agent, runtime: Runtime) -> Option<&'static str> {
    let bypass = agent.tools.mode == PermissionMode::BypassPermissions;
    let claude = runtime == Runtime::Claude;
    let excused = agent.program.env.contains_key("IS_SANDBOX");
    (claude && bypass && rustix::process::geteuid().is_root() && !excused).then_some(
        "it refuses `permission_mode: bypassPermissions` to root; use `allowed_tools`, another user, or IS_SANDBOX=1 in `env`",
    )
}

/// Finds a program as a shell would.
pub(super) fn find(name: &str, directory: &Path, path: Option<&String>) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(directory.join(name)).filter(|path| runs(path));
    }
    let path = path.map(Into::into).or_else(|| std::env::var_os("PATH"))?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| runs(path))
}

fn runs(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (said, expected) in [
            ("2.1.325 (Claude Code)", Some([2, 1, 325])),
            ("codex-cli 0.166.0", Some([0, 166, 0])),
            ("0.61.0", Some([0, 61, 0])),
            ("v1.18.33-beta.2", Some([1, 18, 33])),
            ("1.2", None),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(figures(said), expected, "{said}");
        }
    }

    #[test]
    fn why_a_program_cannot_be_started() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        std::fs::write(here.join("plain"), "#!/bin/sh\n").unwrap();
        std::fs::create_dir(here.join("sub")).unwrap();
        let whole = |name: &str| here.join(name).display().to_string();
        for (program, expected) in [
            (whole("plain"), "/plain is not executable; `chmod +x` makes it so"),
            ("./plain".to_owned(), "/./plain is not executable"),
            (whole("sub"), "/sub is a folder, not a program"),
            (whole("gone"), "/gone does not exist; install it, or correct its path in the config"),
            (whole("plain/x"), "/plain/x cannot be used: Not a directory"),
            ("no-such-program".to_owned(), "no-such-program was not found on PATH; install it"),
        ] {
            assert_eq!(find(&program, here, None), None);
            let said = unusable(&program, here);
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn old_and_unknown_versions_are_doubts() {
        let about = description(Runtime::Claude);
        let judged = |said: &str| judge(about, Ok(said.to_owned()));
        assert_eq!(judged("2.1.325 (Claude Code)"), Ok("2.1.325".to_owned()));
        assert_eq!(
            judged("1.0.9").unwrap_err(),
            "version 1.0.9 is too old to rely on; 2.0.0 is the oldest that is known to work"
        );
        assert_eq!(judged("moo").unwrap_err(), "its version is unknown: it says \"moo\"");
        assert_eq!(judge(about, Err("`--version` hung".to_owned())).unwrap_err(), "`--version` hung");
    }
}

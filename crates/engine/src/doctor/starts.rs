//! Checks that agents could start in their sandboxes, with the checks that a start makes before the agent runs.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use cowhand_core::id::{JobId, ScheduleName};
use cowhand_core::job::{Job, NewJob, TriggerType};
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::runtime::Runtime;
use cowhand_core::sandbox::SandboxKind;
use cowhand_core::trust::Trust;
use cowhand_core::workspace::IsolationKind;
use jiff::{Timestamp, Zoned};
use tempfile::TempDir;

use super::{Finding, agents};
use crate::attempt::credentials::{self, CredentialsError};
use crate::state::StateFolder;
use cowhand_run::launch::{FleetVariables, Launch, LaunchError};
use cowhand_run::runtime::SessionChoice;
use cowhand_run::runtime::description::{Description, description};
use cowhand_run::sandbox::{SandboxError, SandboxInput, ability, resolve_plan, try_out};

/// Why an agent cannot start. The message is for people.
#[derive(Debug, thiserror::Error)]
enum TrialError {
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("a workspace cannot be tried: {0}")]
    NoWorkspace(io::Error),
}

/// The values that the checks of all starts share.
struct Machine<'a> {
    roster: &'a Roster,
    state: &'a StateFolder,
    variables: &'a HashMap<String, String>,
    files: &'a [PathBuf],
    program: PathBuf,
    /// Folder for the files that a start creates. It is removed afterwards.
    folder: TempDir,
}

/// Returns only problems. A problem that several schedules of an agent have is returned once.
pub(super) fn check(
    roster: &Roster,
    state: &StateFolder,
    variables: &HashMap<String, String>,
    files: &[PathBuf],
) -> Vec<Finding> {
    let created = TempDir::new().and_then(|folder| Ok((folder, std::env::current_exe()?)));
    let (folder, program) = match created {
        Ok(created) => created,
        Err(error) => return vec![Finding::of("starts", Err(format!("they cannot be tried: {error}")))],
    };
    let machine = Machine { roster, state, variables, files, program, folder };
    // A missing program has been reported already.
    let installed = roster.agents.iter().filter(|agent| agents::may_start(agent));
    installed.flat_map(|agent| machine.findings(agent)).collect()
}

impl Machine<'_> {
    fn findings(&self, agent: &Agent) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        for schedule in [None].into_iter().chain(agent.schedules.iter().map(Some)) {
            let is_confining = agent.trusts(schedule).into_iter().any(Trust::confines);
            for confined in [false].into_iter().chain(is_confining.then_some(true)) {
                let Err(why) = self.start(agent, schedule, confined) else { continue };
                let why = why.to_string();
                if findings.iter().any(|finding| finding.detail == why) {
                    continue;
                }
                let of = schedule.map(|schedule| format!("/{}", schedule.name)).unwrap_or_default();
                let suffix = if confined { ", for jobs of strangers" } else { "" };
                findings.push(Finding::of(format!("start of {}{of}{suffix}", agent.name), Err(why)));
            }
        }
        findings
    }

    /// Checks a start, without running the agent. Returns the error with which a job would fail.
    fn start(&self, agent: &Agent, schedule: Option<&Schedule>, confined: bool) -> Result<(), TrialError> {
        let name = schedule.map(|schedule| &schedule.name);
        let requested = agent.sandbox(name, confined);
        if requested.kind == SandboxKind::None || ability::refusal(requested.kind).is_some() {
            // Without a sandbox there is nothing to check. A sandbox that this machine does not support is reported
            // once for the machine.
            return Ok(());
        }
        let (private, private_home) = (self.folder.path().join("private"), self.folder.path().join("home"));
        let variables = FleetVariables::of(self.roster, self.variables);
        let launch = Launch::of(agent, &job(agent, name), &SessionChoice::Fresh, &variables, &private)?;
        let mut environment: HashMap<String, String> = launch.environment.iter().cloned().collect();
        let isolated = agent.isolation_of(name).kind != IsolationKind::Shared;
        let mut argv = launch.start.with_program(&self.program).argv;
        let work_dir = self.work_dir(agent, isolated, &mut argv)?;
        let about = description(agent.program.known_runtime());
        // The check must not create a folder in the home directory of a user.
        let homes = if confined { about.homes } else { &[] };
        let about = Description { homes, ..*about };
        let is_acp = agent.runtime() == Runtime::Acp;
        let command = agent.program.command.first().filter(|_| is_acp);
        let input = SandboxInput {
            requested: &requested,
            agent_directory: &agent.directory,
            directory: &work_dir,
            isolated,
            runtime: &about,
            environment: &environment,
            argv: &argv,
            agent: command.map(String::as_str),
            private: &private,
            has_private: !launch.files.is_empty(),
            state: self.state.path(),
            files: self.files,
            program: &self.program,
            private_home: confined.then_some(private_home.as_path()),
        };
        let Some(plan) = resolve_plan(&input)? else { return Ok(()) };
        if plan.gateway {
            credentials::withhold_key(agent, &mut argv, &mut environment)?;
        }
        if plan.kind == SandboxKind::Bubblewrap {
            try_out(&plan, &work_dir, &self.program)?;
        }
        Ok(())
    }

    /// Returns the working directory: the agent's directory, or an empty folder in place of a workspace. For a
    /// workspace, also changes a relative path of the program in `argv` to a path in the agent's directory.
    fn work_dir(&self, agent: &Agent, isolated: bool, argv: &mut [String]) -> Result<PathBuf, TrialError> {
        if !isolated {
            return Ok(agent.directory.clone());
        }
        if let Some(program) = argv.first_mut().filter(|program| program.contains('/')) {
            *program = agent.directory.join(Path::new(program)).display().to_string();
        }
        let work_dir = self.folder.path().join("workspace");
        let created = std::fs::create_dir_all(&work_dir);
        created.and_then(|()| work_dir.canonicalize()).map_err(TrialError::NoWorkspace)
    }
}

/// Builds a job from which the environment of the start is made.
fn job(agent: &Agent, schedule: Option<&ScheduleName>) -> Job {
    let new = NewJob {
        agent: agent.name.clone(),
        trigger_type: TriggerType::Manual,
        schedule: schedule.cloned(),
        prompt: None,
        origin: None,
        work_item: None,
        chat: None,
        message: None,
        confined: None,
        not_before: None,
    };
    Job::new(JobId::new(Zoned::now().date(), 1), new, Timestamp::now())
}

//! Prepares the launch of an attempt: directory, job channel, sandbox, credentials, `setup` and files of chat messages.

use cowhand_core::policy::Timeout;
use cowhand_core::roster::{Agent, JobRestrictions};
use jiff::SignedDuration;
use tracing::warn;

use super::AttemptTask;
use super::orphans;
use super::rules::Rules;
use super::session::{CONTINUE_PROMPT, SessionStart};
use super::start_error::{CannotStart, StartError};
use super::stoppable::Stoppable;
use super::workspaces::{self, WorkDir};
use cowhand_run::attempt::{Attempt, BeforeOutput};
use cowhand_run::launch::{FleetVariables, Launch};
use cowhand_run::redact::Redactor;
use cowhand_run::runtime::SessionChoice;
use cowhand_run::workspace::{Setup, SetupFailure, set_up};
use cowhand_system::fault;
use cowhand_system::remove::is_missing;

/// The parameters of an attempt that are known only at its launch.
pub(super) struct LaunchSpec {
    /// The agent with the directory and the allowance of this attempt.
    pub(super) agent: Agent,
    /// Command line, environment with the job channel, private files, sandbox.
    pub(super) launch: Launch,
    /// Notes for people, and the session that continues.
    pub(super) before_output: BeforeOutput,
    pub(super) prompt: String,
}

impl AttemptTask {
    /// Ends and removes an earlier attempt with the same number, which the store does not know. Such an attempt was
    /// started after the backup from which the store was restored. If the preparation has to end, the processes of the
    /// earlier attempt are killed at once.
    pub(super) async fn clear_folder(&self, stoppable: &Stoppable) -> Result<(), StartError> {
        let attempt = self.attempt();
        if is_missing(attempt.folder()) {
            return Ok(());
        }
        warn!(job = %self.job.id(), attempt = attempt.name(), "found an attempt with the same number that the store does not know; it is removed");
        orphans::end(&attempt, &stoppable.flag()).await;
        let cleared = attempt.on_blocking_thread(Attempt::clear).await;
        Ok(cleared.map_err(CannotStart::FolderNotCleared)?)
    }

    /// Prepares everything that the keeper needs, and runs `setup`. If this fails, the keeper is not started.
    pub(super) async fn prepare(
        &self,
        rules: &Rules,
        start: SessionStart,
        stoppable: &Stoppable,
    ) -> Result<LaunchSpec, StartError> {
        if let JobRestrictions::Removed(schedule) = rules.agent.restrictions(&self.job) {
            return Err(CannotStart::ScheduleRemoved(schedule).into());
        }
        let work_dir = match start.directory.clone() {
            Some(directory) => WorkDir { directory, needs_setup: false },
            None => workspaces::work_dir(&self.engine, &self.job, &rules.agent, stoppable)
                .await
                .map_err(CannotStart::Directory)?,
        };
        fault::point("workspace-made");
        let mut agent = rules.agent.clone();
        agent.directory.clone_from(&work_dir.directory);
        agent.budget = self.allowance().await.unwrap_or_default();
        refuse_secret_in_argument(&agent, &self.redactor(rules))?;
        let launch = self.with_channel(&agent, &start.session)?;
        let launch = self.with_sandbox(&agent, &rules.agent.directory, launch)?;
        let ready = stoppable.unless_stopped(launch.ready()).await?;
        let mut launch = ready.map_err(CannotStart::Launch)?;
        launch.start.rules = Some(rules.of_attempt.clone());
        // `setup` gets the agent's environment, which contains the names of these files.
        self.attempt().write_private(&launch.files).map_err(CannotStart::PrivateFiles)?;
        if work_dir.needs_setup {
            self.set_up(&agent, &launch, stoppable).await?;
        }
        let missing_files = self.save_chat_files(&agent.directory, stoppable).await?;
        let prompt = if start.continues_task { Some(CONTINUE_PROMPT) } else { self.job.prompt() };
        let prompt = prompt.unwrap_or_default().to_owned() + &missing_files;
        let before_output = self.before_output(&agent, start);
        Ok(LaunchSpec { agent, launch, before_output, prompt })
    }

    /// Builds the command line and the environment of the agent's program, with the job channel.
    fn with_channel(&self, agent: &Agent, session: &SessionChoice) -> Result<Launch, CannotStart> {
        let loaded = self.engine.loaded();
        let variables = FleetVariables::of(&loaded.roster, &loaded.variables);
        let agent = self.with_job_channel(agent)?;
        let private = self.attempt().private();
        let mut launch = Launch::of(&agent, &self.job, session, &variables, &private)?;
        launch.environment.extend(self.channel_env()?);
        Ok(launch)
    }

    /// Runs the setup command of a workspace, if there is one, and stops it when the job is stopped.
    async fn set_up(&self, agent: &Agent, launch: &Launch, stoppable: &Stoppable) -> Result<(), StartError> {
        let isolation = &agent.isolation;
        let Some(command) = isolation.setup.clone() else { return Ok(()) };
        let (attempt, stop) = (self.attempt(), stoppable.flag());
        let mut environment = launch.environment.clone();
        environment.push(attempt.mark());
        let directory = agent.directory.clone();
        let timeout = isolation.setup_timeout.unwrap_or(Timeout::SETUP).duration();
        let timeout = timeout.map(SignedDuration::unsigned_abs);
        let minder = self.engine.program.clone();
        let running = tokio::task::spawn_blocking(move || {
            let (command, directory, environment) = (&command, &directory, &environment);
            let result =
                set_up(&Setup { minder: &minder, command, directory, environment, timeout, stop: &stop });
            // A process that called `setsid` has left the process group, but still has the mark.
            if let Err(error) = attempt.kill_marked_processes() {
                warn!(
                    attempt = attempt.name(),
                    "cannot end the processes that `setup` left running: {error}"
                );
            }
            result
        });
        match running.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(SetupFailure::CannotStart(why))) => Err(CannotStart::SetupNotStarted(why).into()),
            Ok(Err(SetupFailure::Failed(why))) => Err(StartError::SetupFailed(why)),
            Ok(Err(SetupFailure::Stopped)) => Err(StartError::Stopped),
            Err(error) => Err(CannotStart::SetupThread(error).into()),
        }
    }

    fn before_output(&self, agent: &Agent, start: SessionStart) -> BeforeOutput {
        let mut notes = start.notes;
        if self.fallback.is_some() {
            let (runtime, model) = (agent.runtime().name(), &agent.program.model);
            let model = model.as_ref().map(|model| format!(" with {model}")).unwrap_or_default();
            // The note leaves out a provider that has the same name as its runtime.
            let provider = agent.program.provider.as_ref().filter(|provider| *provider != runtime);
            let provider = provider.map(|name| format!(" of the provider {name}")).unwrap_or_default();
            let loaded = self.engine.loaded();
            let own = loaded.roster.agent(self.job.agent()).and_then(|own| loaded.roster.slot(own));
            let why = match own {
                _ if start.continues_task => "",
                Some(own) if own.limits.has_reserve() => {
                    "the usage limit or the reserve of its provider is reached; "
                }
                _ => "the usage limit of its provider is reached; ",
            };
            notes.push(format!("{why}this attempt uses the fallback {runtime}{provider}{model}"));
        }
        let resumed = match start.session {
            SessionChoice::Resume(id) | SessionChoice::Fork { of: id, .. } => Some(id),
            SessionChoice::Fresh | SessionChoice::FreshAs(_) => None,
        };
        BeforeOutput { notes, resumed }
    }
}

/// Refuses an agent whose `system_prompt` contains a secret, if its runtime passes the system prompt as an argument.
fn refuse_secret_in_argument(agent: &Agent, redactor: &Redactor) -> Result<(), CannotStart> {
    let Some(prompt) = agent.system_prompt.as_deref() else { return Ok(()) };
    let is_visible = agent.runtime().has_prompt_in_argument() && redactor.redact(prompt) != prompt;
    if is_visible { Err(CannotStart::SecretInArgument) } else { Ok(()) }
}

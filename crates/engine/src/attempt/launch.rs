//! Launches the keeper of a prepared attempt.

use cowhand_core::job::NotBegun;
use tracing::{info, warn};

use super::AttemptTask;
use super::prepare::LaunchSpec;
use super::start_error::{CannotStart, StartError};
use cowhand_run::attempt::Attempt;
use cowhand_run::shortage;
use cowhand_system::fault;

impl AttemptTask {
    /// Starts the keeper, which starts the agent.
    pub(super) async fn launch(&self, spec: &LaunchSpec) -> Result<(), StartError> {
        let (attempt, LaunchSpec { agent, launch, prelude, prompt }) = (self.attempt(), spec);
        let (job, number, runtime) = (self.job.id(), self.job.attempts(), agent.runtime().name());
        match self.engine.store.set_place(job.clone(), number, &agent.directory, runtime).await {
            Ok(true) => {}
            Ok(false) => return Err(StartError::LeaseLost),
            Err(error) => {
                warn!(%job, "where it runs is not written, so nobody can go on with it: {error}");
            }
        }
        let program = &self.engine.program;
        let launched = attempt.launch_after(prelude, program, &launch.start, prompt, &launch.environment);
        let mut keeper =
            launched.map_err(|error| CannotStart::Keeper { folder: attempt.folder().to_owned(), error })?;
        fault::place("launched");
        // Reaped when it ends, however long that takes. This is not a task of the Tokio runtime, which would wait for it
        // at shutdown.
        let reaper = std::thread::Builder::new().spawn(move || keeper.wait());
        if let Err(error) = reaper {
            warn!(%job, "nobody waits for its keeper, which will be a zombie: {error}");
        }
        info!(%job, agent = %self.job.agent(), attempt = number, "started");
        Ok(())
    }

    /// Explains why the keeper ended before it started the agent.
    pub(super) async fn why_no_keeper(&self) -> NotBegun {
        let attempt = self.attempt();
        if let Err(error) = attempt.on_blocking_thread(Attempt::has_room).await
            && shortage::is_named_in(&error.to_string())
        {
            return NotBegun::Shortage(format!("cannot start a keeper: {error}"));
        }
        let program = self.engine.program.display();
        match attempt.keeper_said() {
            Some(said) if shortage::is_named_in(&said) => NotBegun::Shortage(said),
            Some(said) => NotBegun::Failed(format!("its keeper could not start the agent: {said}")),
            None => NotBegun::Failed(format!(
                "its keeper, {program}, ended without a word before it started the agent"
            )),
        }
    }
}

//! Superseded attempts: this node lost the lease of the job, and the attempt was settled as lost. When the processes of
//! the attempt have ended, this node stores how the agent ended and what it spent. The job itself is not changed.

use std::time::Duration;

use cowhand_core::attempt::Superseded;
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{info, warn};

use super::AttemptTask;
use super::follow::lost_ending;
use super::unwritten;
use crate::context::Engine;
use crate::loaded::Loaded;
use crate::secrets::redactor_over;
use crate::state::StateFolder;
use cowhand_run::attempt::Attempt;
use cowhand_run::ending::Ending;
use cowhand_run::runtime::Reader;
use cowhand_run::supervision::AttemptState;
use cowhand_run::tail::Tailer;
use cowhand_store::StoreError;
use cowhand_system::fault;
use cowhand_system::remove::is_missing;

/// Pause before the first new try to store the end of a superseded attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Stores the end of an attempt whose processes have ended, if the attempt is superseded and its end is not stored yet.
/// Can be repeated.
pub(crate) async fn record(engine: &Engine, attempt: &Attempt) -> Result<(), StoreError> {
    let Some((job, number)) = attempt.job_and_number() else { return Ok(()) };
    let node = engine.home.node.clone();
    if !engine.store.is_postgres() || !engine.store.is_superseded(job.clone(), number, node.clone()).await? {
        return Ok(());
    }
    let (state, loaded, now) = (engine.home.state.clone(), engine.loaded(), engine.clock.now());
    let read = attempt.on_blocking_thread(move |attempt| read_end(attempt, &state, &loaded, now)).await;
    let Superseded { outcome, usage } = read.unwrap_or_else(|error| {
        warn!(%job, attempt = number, "the end of the superseded attempt is not known: {error:#}");
        Superseded { outcome: None, usage: None }
    });
    let usage = usage.map(|mut usage| {
        engine.loaded().roster.prices.fill_in(&mut usage);
        usage.bounded()
    });
    let superseded = Superseded { outcome, usage };
    fault::point("superseding");
    match engine.store.record_superseded(job.clone(), number, node, superseded, now).await {
        Ok(()) => {
            info!(%job, attempt = number, "another node has taken the job over; the end of the attempt here is stored");
            Ok(())
        }
        Err(StoreError::NoJob(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads the output of the attempt to its end.
fn read_end(
    attempt: &Attempt,
    state: &StateFolder,
    loaded: &Loaded,
    now: Timestamp,
) -> anyhow::Result<Superseded> {
    let unknown = Superseded { outcome: None, usage: None };
    let Some((job, number)) = attempt.job_and_number().filter(|_| attempt.has_output()) else {
        return Ok(unknown);
    };
    if !is_missing(Attempt::new(state.path(), &job, number + 1).folder()) {
        // The output of this attempt would have to precede that of the next one.
        return Ok(unknown);
    }
    let ending = match attempt.state()? {
        AttemptState::Ended(ending) => ending,
        AttemptState::Gone => lost_ending(now),
        AttemptState::Kept | AttemptState::Unkept => anyhow::bail!("its processes have not ended"),
    };
    let redactor = redactor_over(loaded, None);
    let reader = attempt.start()?.reader.unwrap_or_else(Reader::command);
    let mut tail = Tailer::open(unwritten::files(attempt, state, &job), reader, redactor.clone(), now)?;
    tail.advance(now)?;
    while tail.is_behind() {
        tail.advance(now)?;
    }
    let finish = tail.finish(&ending, now)?;
    let mut outcome = ended_by_itself(&ending).then_some(finish.outcome);
    if let Some(outcome) = &mut outcome {
        redactor.redact_outcome(outcome);
    }
    Ok(Superseded { outcome, usage: finish.usage })
}

fn ended_by_itself(ending: &Ending) -> bool {
    ending.stopped.is_none() && !ending.status.is_lost()
}

impl AttemptTask {
    /// Stores the end of the attempt after its lease was lost, and removes its files. If the daemon stops before the
    /// store answers, the next start does this.
    pub(super) async fn end_superseded(&self) {
        let (attempt, mut pause, mut deadline) = (self.attempt(), FIRST_PAUSE, None::<Instant>);
        while let Err(error) = record(&self.engine, &attempt).await {
            warn!(job = %self.job.id(), "the end of the superseded attempt is not stored yet: {error}");
            if self.gives_up(&mut deadline) {
                return;
            }
            pause = self.wait(pause).await;
        }
        if self.engine.store.is_postgres() {
            attempt.on_blocking_thread(super::orphans::remove_files).await;
        }
    }
}

//! Follows a launched attempt: reads its output, its usage and its limits until it ends.

use std::time::Duration;

use cowhand_core::backoff::Backoff;
use cowhand_core::job::{Job, NotBegun};
use jiff::{SignedDuration, Timestamp};
use tracing::warn;

use super::rules::Rules;
use super::spending::ReportedUsage;
use super::unwritten;
use super::workspaces;
use super::{AttemptTask, Stage};
use crate::context::StopRequest;
use crate::state::modes;
use crate::view::output::OutputLog;
use cowhand_run::attempt::Attempt;
use cowhand_run::ending::{Ending, ExitStatus};
use cowhand_run::launch;
use cowhand_run::shortage;
use cowhand_run::supervision::AttemptState;
use cowhand_run::tail::{TailFiles, Tailer};
use cowhand_system::blocking::run_blocking;
use cowhand_system::fault;
use cowhand_system::remove::is_missing;

impl AttemptTask {
    /// Follows the attempt to its end. After an error it is followed again: the agent continues to run meanwhile.
    pub(super) async fn follow_to_end(&mut self, rules: &Rules) -> Stage {
        let mut failures = 0;
        loop {
            // The output is a view and must not block the attempt.
            match self.follow(rules, failures >= MOST_FAILURES).await {
                Ok(Stage::Settle(settlement)) => {
                    if unwritten::is_unwritten(&self.attempt()) {
                        self.write_up(rules).await;
                    }
                    workspaces::keep_diff(&self.engine, self.job.id(), &rules.redactor).await;
                    return Stage::Settle(settlement);
                }
                Ok(next) => return next,
                Err(error) if is_missing(self.attempt().folder()) => {
                    self.kill_marked_processes().await;
                    return Stage::Settle(self.lost(format!("lost: its folder is gone: {error:#}")));
                }
                // A disk may be full for a while, or a folder closed. The agent continues to run, so the job has not ended.
                Err(error) => {
                    warn!(job = %self.job.id(), "cannot follow it at the moment: {error:#}");
                    modes::restore(&[self.attempt().folder()]);
                }
            }
            failures += 1;
            if *self.stop_requests.borrow() == StopRequest::Detach {
                return Stage::Leave;
            }
            tokio::time::sleep(FOLLOW_BACKOFF.pause_after(failures)).await;
        }
    }

    /// Follows the attempt until it ends or the daemon detaches. With `in_attempt`, the job's output cannot be written to
    /// its file and is kept in the attempt's folder meanwhile.
    async fn follow(&mut self, rules: &Rules, in_attempt: bool) -> anyhow::Result<Stage> {
        let attempt = self.attempt();
        let wake = self.engine.watch.folder(attempt.folder());
        let mut output = self.open_output(rules, in_attempt).await?;
        let mut session = self.job.session_id().map(str::to_owned);
        let mut reported = ReportedUsage::default();
        let mut deadlines = self.deadlines().await;
        loop {
            // Read the state before the output, so that nothing that was written before the end is missed.
            let state = attempt.on_blocking_thread(Attempt::state).await?;
            if attempt.began()? {
                output.tail.begin(self.now())?;
            }
            output = self.advance(output).await?;
            fault::place("looked");
            self.tell_session(&output.tail, &mut session).await;
            let over = self.record_usage(&mut output.tail, &mut reported).await;
            let ending = match state {
                AttemptState::Ended(ending) => Some(ending),
                AttemptState::Gone if attempt.began()? => Some(vanished(self.now())),
                AttemptState::Gone => return Ok(Stage::Requeue(self.why_no_keeper().await)),
                AttemptState::Kept => None,
                AttemptState::Unkept => {
                    attempt.on_blocking_thread(Attempt::end_leftovers).await?;
                    None
                }
            };
            if let Some(ending) = ending {
                fault::place("ended");
                return self.ended(rules, &ending, output).await;
            }
            let stop_request = *self.stop_requests.borrow_and_update();
            if stop_request == StopRequest::Detach {
                return Ok(Stage::Leave);
            }
            self.stop_if_needed(rules, stop_request, over, &mut deadlines).await;
            tokio::select! {
                () = wake.changed() => {}
                _ = self.stop_requests.changed() => {}
                () = tokio::time::sleep(IDLE_POLL_EVERY), if !output.tail.is_behind() => {}
                () = tokio::task::yield_now(), if output.tail.is_behind() => {}
            }
        }
    }

    async fn open_output(&self, rules: &Rules, in_attempt: bool) -> anyhow::Result<Output> {
        let attempt = self.attempt();
        let files = if in_attempt {
            unwritten::files_in_attempt(&attempt)
        } else {
            unwritten::files(&attempt, &self.engine.home.state, self.job.id())
        };
        let files = TailFiles { before: self.before(files.attempt).await, ..files };
        let reader = attempt.start().ok().and_then(|start| start.reader);
        let reader = reader.unwrap_or_else(|| launch::reader(&rules.agent));
        let tail = Tailer::open(files, reader, rules.redactor.clone(), self.now())?;
        let log = rules.output_to_file.then(|| OutputLog::new(&self.engine.home.state, self.job.id()));
        Ok(Output { tail, log })
    }

    /// Reads the rest of the output of an attempt whose processes have ended, and decides what follows.
    async fn ended(&mut self, rules: &Rules, ending: &Ending, mut output: Output) -> anyhow::Result<Stage> {
        if let Some(why) = not_begun(ending).filter(|_| self.stopped.is_none()) {
            return Ok(Stage::Requeue(why));
        }
        if self.stopped.is_none() && self.lost_its_session(rules) {
            return Ok(Stage::StartWithoutSession);
        }
        let finish = output.tail.finish(ending, self.now(), &mut |_| {})?;
        output.log(&self.job);
        fault::place("read");
        self.remove_private_files();
        let settlement = self.settlement(rules, finish, ending, &mut output.tail).await;
        Ok(settlement.map_or(Stage::Leave, Stage::Settle))
    }

    /// Reads new output on a blocking thread, because that may take a while.
    async fn advance(&self, mut output: Output) -> anyhow::Result<Output> {
        let (now, job, growth) = (self.now(), self.job.clone(), self.engine.growth.clone());
        run_blocking(move || {
            let mut grew = false;
            output.tail.advance(now, &mut |_| grew = true)?;
            if grew {
                growth.tell(job.id());
            }
            output.log(&job);
            Ok(output)
        })
        .await
    }

    /// Explains why the keeper ended before it started the agent.
    async fn why_no_keeper(&self) -> NotBegun {
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

    /// Stores the runtime's session id as soon as it is known.
    async fn tell_session(&self, tail: &Tailer, reported: &mut Option<String>) {
        let Some(session) = tail.session_id().filter(|session| reported.as_deref() != Some(*session)) else {
            return;
        };
        let session = session.to_owned();
        match self
            .engine
            .store
            .set_session(self.job.id().clone(), self.epoch, session.clone(), self.now())
            .await
        {
            Ok(_) => *reported = Some(session),
            Err(error) => warn!(job = %self.job.id(), "its session is not written yet: {error}"),
        }
    }
}

/// The stored output of an attempt: the JSONL, and `output.log` if the schedule requests it.
struct Output {
    tail: Tailer,
    log: Option<OutputLog>,
}

impl Output {
    fn log(&mut self, job: &Job) {
        if let Some(Err(error)) = self.log.as_mut().map(OutputLog::catch_up) {
            warn!(job = %job.id(), "its output.log is behind: {error}");
        }
    }
}

/// Number of failed writes of a job's output after which the attempt is followed without them.
const MOST_FAILURES: u32 = 3;

const FOLLOW_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_millis(200), SignedDuration::from_secs(30));

/// Interval between two looks at an attempt without activity.
const IDLE_POLL_EVERY: Duration = Duration::from_millis(500);

/// Returns the shortage of the machine that prevented the start of the agent, if there was one.
fn not_begun(ending: &Ending) -> Option<NotBegun> {
    match &ending.status {
        ExitStatus::StartFailed { message } if shortage::is_named_in(message) => {
            Some(NotBegun::Shortage(message.clone()))
        }
        _ => None,
    }
}

/// Returns the ending of an attempt whose agent and keeper are gone without a record; its last output decides.
fn vanished(at: Timestamp) -> Ending {
    Ending { at, status: ExitStatus::Lost, stopped: None, leftovers: 0 }
}

//! Follows a launched attempt until it ends: reads its output, records its usage and enforces its limits.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cowhand_core::backoff::Backoff;
use cowhand_core::job::{Job, NotBegun};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use tracing::warn;

use super::rules::Rules;
use super::spending::ReportedUsage;
use super::stop::{Deadlines, StopReason};
use super::unwritten;
use super::windows::StoredReports;
use super::{AttemptTask, Stage};
use crate::context::StopRequest;
use crate::loaded::Loaded;
use crate::state::modes;
use crate::view::output::OutputLog;
use cowhand_run::attempt::Attempt;
use cowhand_run::ending::{Ending, ExitStatus};
use cowhand_run::growth::OutputNotifier;
use cowhand_run::launch;
use cowhand_run::shortage;
use cowhand_run::supervision::AttemptState;
use cowhand_run::tail::{TailFiles, Tailer};
use cowhand_system::blocking::run_blocking;
use cowhand_system::fault;
use cowhand_system::remove::is_missing;

impl AttemptTask {
    /// Follows the attempt to its end. After an error, follows the attempt again, because its agent may still run.
    pub(super) async fn follow_to_end(&mut self, rules: &Rules) -> Stage {
        let mut failures = 0;
        let mut unfollowed = Unfollowed::default();
        loop {
            // A failure to write the output must not block the attempt.
            match Box::pin(self.follow(rules, failures >= MAX_OUTPUT_FAILURES)).await {
                Ok(Stage::Settle(settlement)) => {
                    if unwritten::is_unwritten(&self.attempt()) {
                        self.write_output(rules).await;
                    }
                    self.keep_diff(&self.redactor(rules)).await;
                    return Stage::Settle(settlement);
                }
                Ok(next) => return next,
                Err(error) if is_missing(self.attempt().folder()) => {
                    self.kill_marked_processes().await;
                    self.keep_diff(&self.redactor(rules)).await;
                    return Stage::Settle(
                        self.lost_settlement(format!("lost: its folder is gone: {error:#}")),
                    );
                }
                // A disk may be full for a while, or access to a folder may be denied. The agent still runs, so the job
                // has not ended.
                Err(error) => {
                    warn!(job = %self.job.id(), "cannot follow the attempt now; trying again: {error:#}");
                    modes::restore(&[self.attempt().folder()]);
                }
            }
            failures += 1;
            if self.stop_unfollowed(rules, &mut unfollowed).await {
                return Stage::Leave;
            }
            self.wait_unfollowed(FOLLOW_BACKOFF.wait_after(failures)).await;
        }
    }

    /// Ends the attempt on request although it cannot be followed, for example on a disk that has become read-only.
    /// Returns true if the attempt is left to the next start: the daemon detaches, or the attempt has ended and the
    /// daemon gives up settling it.
    async fn stop_unfollowed(&mut self, rules: &Rules, unfollowed: &mut Unfollowed) -> bool {
        let stop_request = *self.stop_requests.borrow_and_update();
        if stop_request == StopRequest::Detach {
            return true;
        }
        let state = self.attempt().on_blocking_thread(Attempt::state).await;
        if matches!(state, Ok(AttemptState::Ended(_) | AttemptState::Gone)) {
            return self.gives_up(&mut unfollowed.gives_up_at);
        }
        if stop_request != StopRequest::Continue {
            let deadlines = match &mut unfollowed.deadlines {
                Some(deadlines) => deadlines,
                none => none.insert(self.deadlines().await),
            };
            self.stop_if_needed(rules, stop_request, None, deadlines).await;
        }
        false
    }

    /// Waits before the attempt is followed again: briefly if it has to end, and at most until the next stop request.
    async fn wait_unfollowed(&mut self, pause: Duration) {
        let pause = match *self.stop_requests.borrow() {
            StopRequest::Continue => pause,
            _ => UNFOLLOWED_POLL_EVERY,
        };
        let mut stop_requests = self.stop_requests.clone();
        tokio::select! {
            _ = self.wait(pause) => {}
            _ = stop_requests.changed() => {}
        }
    }

    /// Follows the attempt until it ends or the daemon detaches. `in_attempt` is true if the job's output cannot be
    /// written to its file; the output is then kept in the attempt's folder.
    async fn follow(&mut self, rules: &Rules, in_attempt: bool) -> anyhow::Result<Stage> {
        let attempt = self.attempt();
        let wake = self.engine.watch.folder(attempt.folder());
        let mut output = self.open_output(rules, in_attempt).await?;
        let mut session = self.job.session_id().map(str::to_owned);
        let (mut reported, mut windows) = (ReportedUsage::default(), StoredReports::default());
        let mut deadlines = self.deadlines().await;
        let mut feed = self.message_feed();
        loop {
            self.pass_messages_on(&mut feed, &mut output.tail, rules).await;
            let next_look = Instant::now() + MIN_LOOK_INTERVAL;
            let look = self.look(output, rules).await?;
            let (state, began) = (look.state, look.began);
            output = look.output;
            fault::point("looked");
            self.store_session_id(&output.tail, &mut session).await;
            self.record_deliveries(&mut feed, &output.tail).await;
            let breach = self.record_usage(&mut output.tail, &mut reported).await;
            self.record_windows(&mut output.tail, &mut windows).await;
            let ending = match state {
                AttemptState::Ended(ending) => Some(ending),
                AttemptState::Gone if began => Some(lost_ending(self.now())),
                AttemptState::Gone => return Ok(Stage::Requeue(self.keeper_failure().await)),
                AttemptState::Kept => None,
                // Without its keeper, nobody would pause the agent at its deadline.
                AttemptState::Unkept if self.engine.deadline_of(self.job.id()).is_some() => {
                    attempt.on_blocking_thread(Attempt::kill).await?;
                    None
                }
                AttemptState::Unkept => {
                    attempt.on_blocking_thread(Attempt::end_leftovers).await?;
                    None
                }
            };
            if let Some(ending) = ending {
                fault::point("ended");
                return Box::pin(self.stage_after_end(rules, &ending, output, windows)).await;
            }
            let stop_request = *self.stop_requests.borrow_and_update();
            if stop_request == StopRequest::Detach {
                return Ok(Stage::Leave);
            }
            self.stop_if_needed(rules, stop_request, breach, &mut deadlines).await;
            tokio::select! {
                () = async { wake.changed().await; tokio::time::sleep_until(next_look).await } => {}
                _ = self.stop_requests.changed() => {}
                () = feed.noticed() => {}
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
        let files = TailFiles { previous_ending: self.previous_failure(files.attempt).await, ..files };
        let reader = attempt.start().ok().and_then(|start| start.reader);
        let reader = reader.unwrap_or_else(|| launch::reader(&rules.agent));
        let config = self.engine.loaded();
        let mut tail = Tailer::open(files, reader, self.redactor(rules), self.now())?;
        tail.set_messages(self.known_messages(rules).await?);
        let log =
            rules.of_attempt.output_to_file.then(|| OutputLog::new(&self.engine.home.state, self.job.id()));
        Ok(Output { tail, log, config })
    }

    /// Writes the line that separates an attempt that was not launched from the previous attempt.
    pub(super) async fn mark_in_output(&self, rules: &Rules) {
        if self.job.attempts() < 2 {
            return;
        }
        let marked = async {
            DirBuilder::new().recursive(true).mode(0o700).create(self.attempt().folder())?;
            let mut output = self.open_output(rules, false).await?;
            output.tail.begin(self.now())?;
            output.tail.advance(self.now())?;
            output.log(&self.job);
            anyhow::Ok(())
        };
        if let Err(error) = marked.await {
            warn!(job = %self.job.id(), "cannot write the line before the attempt to its output: {error:#}");
        }
    }

    /// Reads the rest of the output of an attempt whose processes have ended, and decides what follows.
    async fn stage_after_end(
        &mut self,
        rules: &Rules,
        ending: &Ending,
        output: Output,
        mut windows: StoredReports,
    ) -> anyhow::Result<Stage> {
        if let Some(why) = start_shortage(ending).filter(|_| self.stopped.is_none()) {
            return Ok(Stage::Requeue(why));
        }
        if self.stopped.is_none() && self.has_agent() && self.is_session_missing(rules) {
            return Ok(Stage::StartWithoutSession);
        }
        let Some(mut output) = Box::pin(self.read_rest(output, rules)).await? else {
            return Ok(Stage::Leave);
        };
        let finish = output.tail.finish(ending, self.now())?;
        output.log(&self.job);
        self.record_all_windows(&mut output.tail, &mut windows).await?;
        fault::point("read");
        self.remove_private_files();
        if self.stopped == Some(StopReason::Abandoned) {
            drop(output);
            self.end_superseded().await;
            return Ok(Stage::Leave);
        }
        let settlement = self.settlement(rules, finish, ending, &mut output.tail).await;
        Ok(settlement.map_or(Stage::Leave, Stage::Settle))
    }

    /// Reads the rest of the output of an ended attempt. Returns `None` if the daemon stops meanwhile: the next start
    /// reads on, and nothing is lost. If the job is cancelled, a long rest is left out, because the caller of the
    /// cancellation waits.
    async fn read_rest(&self, mut output: Output, rules: &Rules) -> anyhow::Result<Option<Output>> {
        let mut advances = 0;
        while output.tail.is_behind() {
            let stop_request = *self.stop_requests.borrow();
            if self.engine.is_ending.load(Ordering::Relaxed) || stop_request == StopRequest::Detach {
                warn!(job = %self.job.id(), "its output is not read to its end; the next start of the daemon settles it");
                self.extend_lease().await;
                return Ok(None);
            }
            let is_cancelled = matches!(stop_request, StopRequest::Cancel | StopRequest::CancelNow);
            if is_cancelled && advances >= MAX_ADVANCES_IF_CANCELLED {
                output.tail.skip_rest(self.now())?;
                self.engine.output_notifier.notify(self.job.id());
                break;
            }
            output = self.advance(output, rules).await?;
            advances += 1;
        }
        Ok(Some(output))
    }

    /// Extends the lease of an attempt that has ended and is left to the next start. Without the extension, the lease
    /// could expire before that start, and another node would settle the attempt as lost, although only this node has
    /// its output.
    async fn extend_lease(&self) {
        let (node, job) = (self.engine.home.node.clone(), self.job.id().clone());
        let extended = self.engine.store.extend_lease(node, job, UNREAD_LEASE, self.now()).await;
        if let Err(error) = extended {
            warn!(job = %self.job.id(), "its lease is not extended, so another node may settle it as lost: {error}");
        }
    }

    /// Reads the state of the attempt and its new output on a blocking thread, because that may take a while.
    async fn look(&self, mut output: Output, rules: &Rules) -> anyhow::Result<Look> {
        self.renew_redactor(&mut output, rules);
        let (now, job, growth) = (self.now(), self.job.clone(), self.engine.output_notifier.clone());
        let look = move |attempt: &Attempt| {
            // The state is read before the output. So if the attempt has ended, its output is complete.
            let state = attempt.state()?;
            let began = attempt.began()?;
            if began {
                output.tail.begin(now)?;
            }
            output.advance(now, &job, &growth)?;
            Ok(Look { state, began, output })
        };
        self.attempt().on_blocking_thread(look).await
    }

    /// Reads new output on a blocking thread, because that may take a while.
    async fn advance(&self, mut output: Output, rules: &Rules) -> anyhow::Result<Output> {
        self.renew_redactor(&mut output, rules);
        let (now, job, growth) = (self.now(), self.job.clone(), self.engine.output_notifier.clone());
        run_blocking(move || output.advance(now, &job, &growth).map(|()| output)).await
    }

    /// Masks the secrets of the current config. A new config may have new secrets, which the agent can read.
    fn renew_redactor(&self, output: &mut Output, rules: &Rules) {
        let config = self.engine.loaded();
        if !Arc::ptr_eq(&config, &output.config) {
            output.config = config;
            output.tail.set_redactor(self.redactor(rules));
        }
    }

    /// Explains why the keeper ended before it started the agent.
    async fn keeper_failure(&self) -> NotBegun {
        let attempt = self.attempt();
        if let Err(error) = attempt.on_blocking_thread(Attempt::has_room).await
            && shortage::is_shortage(&error.to_string())
        {
            return NotBegun::Shortage(format!("cannot start a keeper: {error}"));
        }
        let program = self.engine.program.display();
        match attempt.last_keeper_message() {
            Some(message) if shortage::is_shortage(&message) => NotBegun::Shortage(message),
            Some(message) => NotBegun::Failed(format!("the keeper could not start the agent: {message}")),
            None => NotBegun::Failed(format!(
                "the keeper, {program}, ended without an error message before it started the agent"
            )),
        }
    }

    /// Stores the runtime's session id as soon as it is known.
    async fn store_session_id(&self, tail: &Tailer, stored: &mut Option<String>) {
        let Some(session) = tail.session_id().filter(|session| stored.as_deref() != Some(*session)) else {
            return;
        };
        let session = session.to_owned();
        match self
            .engine
            .store
            .set_session(self.job.id().clone(), self.epoch, session.clone(), self.now())
            .await
        {
            Ok(_) => *stored = Some(session),
            Err(error) => warn!(job = %self.job.id(), "cannot store the session of the job yet: {error}"),
        }
    }
}

/// The stored output of an attempt: the JSONL, and `output.log` if the schedule requests it.
struct Output {
    tail: Tailer,
    log: Option<OutputLog>,
    /// The config whose secrets are masked.
    config: Arc<Loaded>,
}

/// The result of one look at an attempt: its state, and the output that was read after the state.
struct Look {
    state: AttemptState,
    /// True if the agent may have been started.
    began: bool,
    output: Output,
}

impl Output {
    /// Reads new output, notifies `growth` of it, and updates `output.log`.
    fn advance(&mut self, now: Timestamp, job: &Job, growth: &OutputNotifier) -> anyhow::Result<()> {
        if self.tail.advance(now)? > 0 {
            growth.notify(job.id());
        }
        self.log(job);
        Ok(())
    }

    fn log(&mut self, job: &Job) {
        if let Some(Err(error)) = self.log.as_mut().map(OutputLog::catch_up) {
            warn!(job = %job.id(), "its output.log is behind: {error}");
        }
    }
}

/// State of an attempt that cannot be followed.
#[derive(Default)]
struct Unfollowed {
    /// Deadlines, set once the attempt is asked to end.
    deadlines: Option<Deadlines>,
    /// Time at which the daemon gives up, set once the attempt has ended while the daemon stops.
    gives_up_at: Option<Instant>,
}

/// Number of failures to follow an attempt after which its output is kept in its folder.
const MAX_OUTPUT_FAILURES: u32 = 3;

/// Maximum number of reads of the output after the end of a cancelled attempt. Each read has a size limit; later output
/// is left out.
const MAX_ADVANCES_IF_CANCELLED: u32 = 1;

/// Length of the lease of an ended attempt whose output is not read to its end when the daemon stops. The daemon of the
/// node has to start again within this time.
const UNREAD_LEASE: SignedDuration = SignedDuration::from_mins(10);

const FOLLOW_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_millis(200), SignedDuration::from_secs(30));

/// Interval between two looks at an attempt that has to end and cannot be followed.
const UNFOLLOWED_POLL_EVERY: Duration = Duration::from_millis(200);

/// Minimum time between two looks at an attempt whose files change. An agent that starts, prints some lines and ends
/// changes its files several times within a moment; one look then finds all changes.
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Interval between two looks at an attempt without activity.
const IDLE_POLL_EVERY: Duration = Duration::from_millis(500);

/// Returns the shortage of the machine that prevented the start of the agent, if there was one.
fn start_shortage(ending: &Ending) -> Option<NotBegun> {
    match &ending.status {
        ExitStatus::StartFailed { message } if shortage::is_shortage(message) => {
            Some(NotBegun::Shortage(message.clone()))
        }
        _ => None,
    }
}

/// Returns the ending of an attempt whose agent and keeper are gone and left no record. Its last output decides its
/// outcome.
pub(super) fn lost_ending(at: Timestamp) -> Ending {
    Ending {
        at,
        boot: None,
        status: ExitStatus::LOST,
        stopped: None,
        leftovers: 0,
        full_disk: None,
        lease_loss: None,
    }
}

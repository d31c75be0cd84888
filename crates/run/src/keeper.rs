//! The keeper: parent and subreaper of one attempt's processes.
//!
//! The keeper starts the agent, waits until the agent and all its descendants have ended, and records how the agent
//! ended. The attempt ends only when no process is left: processes that outlive the agent are asked to exit, then
//! killed.
//!
//! SIGTERM asks the keeper to end the agent: stop signal, grace period, kill. A second SIGTERM skips the grace period.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use cowhand_core::job::Termination;
use cowhand_core::sandbox::SandboxKind;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use cowhand_system::fault;
use cowhand_system::remove::is_missing;

use super::attempt::{AGENT_FILE, Attempt, KEEPER_FILE, PROMPT_FILE};
use super::bounded::BoundedStreams;
use super::caps::{CapsError, Groups, SpawnError};
use super::descriptors;
use super::ending::{Ending, ExitStatus, LeaseLoss};
use super::feeder::Feeder;
use super::fence::{self, LeaseFence};
use super::folder_access::{self, WRITE_RETRY_DELAY, log_error};
use super::process::{self, ProcessIdentity};
use super::sandbox::docker::leftover;
use super::sandbox::{self, BwrapStatus};
use super::shortage::{self, FOLDER_NOT_ACCESSIBLE};
use super::start::{KeeperLimits, SandboxPlan, StartSpec};

/// Grace period of processes that the agent left behind: long enough to write a file, short enough not to delay the
/// job.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// Interval of checks for remaining processes.
const KEEPER_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_CLEAN_UP_TRIES: u32 = 50;
/// A year. Longer timers overflow.
const FOREVER_MS: u64 = 365 * 24 * 3600 * 1000;
/// Interval of checks whether the folder still exists.
const FOLDER_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Runs a keeper process.
pub fn keep(folder: &Path) -> ExitCode {
    if keep_to_end(folder) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the attempt to its end. Returns whether its ending is recorded; if not, the log of the keeper says why.
pub(super) fn keep_to_end(folder: &Path) -> bool {
    match keep_attempt(folder) {
        Ok(()) => true,
        Err(error) => {
            // Before the agent is started, the keeper opens only the attempt's folder, so this error is about that
            // folder.
            let closed = error.kind() == io::ErrorKind::PermissionDenied;
            log_error(
                folder,
                &if closed { format!("{FOLDER_NOT_ACCESSIBLE}: {error}") } else { error.to_string() },
            );
            false
        }
    }
}

fn keep_attempt(folder: &Path) -> io::Result<()> {
    let attempt = Attempt::at(folder)?;
    // The launcher locked the folder and passed the lock as stdin, which is never closed.
    if attempt.try_lock()?.is_some() {
        return Err(io::Error::other("a keeper is started by the daemon, not by hand"));
    }
    if attempt.began()? {
        // The former keeper died. The agent may have run or may still run, so it is not started again.
        return Err(io::Error::other("a keeper has already run this attempt"));
    }
    // The keeper gets its own process session, so that it receives no signals of the daemon's terminal and outlives the
    // daemon. This fails only for the leader of a process group.
    rustix::process::setsid().ok();
    descriptors::close_on_exec()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let start = attempt.start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ending = runtime.block_on(run(&attempt, &start))?;
    let full_disk = shortage::full_disk(&[&start.directory, attempt.folder()]);
    let ending = Ending { full_disk, ..ending };
    fault::point("keeper-ended");
    write_ending(&attempt, &ending)?;
    fault::point("keeper-done");
    Ok(())
}

/// Writes the ending. A write that fails because of a shortage, or because the folder is not accessible, is tried again
/// until it succeeds, because only the keeper knows the ending. If the agent was not started, a failed write is not
/// tried again: the record of the keeper is removed, and the agent can be started again.
fn write_ending(attempt: &Attempt, ending: &Ending) -> io::Result<()> {
    loop {
        let Err(error) = attempt.write_ending(ending) else { return Ok(()) };
        log_error(attempt.folder(), &format!("cannot write ending.json: {error}"));
        if matches!(ending.status, ExitStatus::StartFailed { .. }) {
            attempt.remove_keeper_record()?;
            return Err(error);
        }
        if !folder_access::was_inaccessible(attempt) && !shortage::is_shortage(&error.to_string()) {
            return Err(error);
        }
        std::thread::sleep(WRITE_RETRY_DELAY);
    }
}

async fn run(attempt: &Attempt, start: &StartSpec) -> io::Result<Ending> {
    // Signals are caught before the spawn, so that no child ends unseen and no request kills the keeper.
    let mut child_ended = signal(SignalKind::child())?;
    let mut asked = signal(SignalKind::terminate())?;
    let groups = match prepare_groups(attempt, start) {
        Ok(groups) => groups,
        Err(error) => {
            attempt.remove_keeper_record()?;
            return Err(error);
        }
    };
    let mut groups = match groups {
        Ok(groups) => groups,
        Err(why) => return Ok(not_started(not_enforced(&why))),
    };
    fault::point("keeper-ready");
    let mut fence = LeaseFence::of(attempt, own_pid())?;
    if let Some(fence) = &mut fence
        && let Err(error) = fence.wait_until_open(&mut asked).await
    {
        groups.remove();
        attempt.remove_keeper_record()?;
        return Err(error);
    }
    let mut streams = BoundedStreams::default();
    let wrapped = start.sandbox.as_ref().is_some_and(|plan| plan.kind == SandboxKind::Bubblewrap);
    let mut bwrap_status = if wrapped { Some(BwrapStatus::new()?) } else { None };
    let (input, feeder) = input(attempt, start)?;
    let spawned = spawn(attempt, start, input, &mut groups, &mut streams, bwrap_status.as_ref());
    bwrap_status.iter_mut().for_each(BwrapStatus::spawned);
    let agent = match spawned {
        Ok(Some(agent)) => agent,
        // The agent began, so it must not be started again.
        Ok(None) => {
            end_all(&groups).await?;
            groups.remove();
            return Ok(Ending::now(ExitStatus::LOST, None, 0));
        }
        Err(error) => {
            end_all(&groups).await?;
            groups.remove();
            return Ok(not_started(match error {
                SpawnError::NotEnforced(why) => not_enforced(&why),
                SpawnError::NotStarted(error) => start_failure(attempt, start, &error),
            }));
        }
    };
    let feeding = feeder.map(|feeder| tokio::spawn(feeder.run()).abort_handle());
    let grace = Duration::from_millis(start.grace_ms);
    let mut watch = Watch { agent, wrapped, grace, groups, feeding, ..Watch::default() };
    let mut folder_check = tokio::time::interval(FOLDER_POLL_INTERVAL);
    let mut orphaned = false;
    let mut deadline =
        start.limits.map(|limits| Instant::now() + Duration::from_millis(limits.lifetime_ms.min(FOREVER_MS)));
    while !watch.is_over()? {
        tokio::select! {
            _ = child_ended.recv() => {}
            // Without the folder, no daemon can find, read or stop the agent.
            _ = folder_check.tick(), if !orphaned => {
                folder_access::restore(attempt);
                // A full disk may have room now.
                if !attempt.has_agent() {
                    write_agent(attempt, watch.agent).ok();
                }
                orphaned = is_missing(attempt.folder());
                if orphaned {
                    watch.request_stop(start.stop_signal.signal());
                }
            }
            // A paused agent must not work any more, so it gets no stop signal and no grace period.
            _ = asked.recv() => match fence.as_mut().filter(|fence| fence.is_paused()) {
                Some(fence) => {
                    fence.give_up();
                    watch.end_at_once();
                }
                None => watch.request_stop(start.stop_signal.signal()),
            },
            () = fence::due(fence.as_ref()) => {
                watch.lease_loss = fence::look(fence.as_mut(), watch.groups.tree()).await?;
                if watch.lease_loss.is_some() {
                    watch.end_at_once();
                }
            }
            () = at(deadline) => {
                deadline = None;
                watch.request_stop(start.stop_signal.signal());
            }
            () = watch.next_check() => watch.force_if_due(),
        }
    }
    streams.finish()?;
    folder_access::wait_until_accessible(attempt).await;
    attempt.note(&watch.groups.reached())?;
    watch.clean_up().await;
    end_container(attempt).await?;
    let refusal = attempt.refusal().or_else(|| sandbox_failure(attempt, bwrap_status?, &watch));
    match refusal {
        Some(why) => Ok(not_started(why)),
        None => watch.ending(start, attempt.container_loss()),
    }
}

/// Returns why bubblewrap did not create the sandbox, if bubblewrap ended by itself before it started the agent.
fn sandbox_failure(attempt: &Attempt, bwrap_status: BwrapStatus, watch: &Watch) -> Option<String> {
    let by_itself = matches!(watch.status, Some(ExitStatus::Code { .. })) && watch.stopped.is_none();
    if !by_itself || bwrap_status.began() {
        return None;
    }
    let stderr = std::fs::read(attempt.stderr()).unwrap_or_default();
    Some(sandbox::failure(&String::from_utf8_lossy(&stderr)))
}

/// Records the keeper and creates the control groups of the agent. The inner error states why a cap cannot be enforced;
/// after an outer error nothing was started.
fn prepare_groups(attempt: &Attempt, start: &StartSpec) -> io::Result<Result<Groups, CapsError>> {
    attempt.reserve_ending()?;
    // From here on the keeper can be asked to stop.
    fault::point("keeper-waiting");
    attempt.write(KEEPER_FILE, &ProcessIdentity::of(own_pid())?)?;
    // The record has to survive a power failure, so it is synced before the agent starts.
    attempt.sync_names()?;
    let caps = start.sandbox.as_ref().map(SandboxPlan::own_caps).unwrap_or_default();
    Groups::create(attempt, &caps)
}

/// Ends the container. It is not a child of the keeper, so it may still run after `cowhand contain` was killed.
async fn end_container(attempt: &Attempt) -> io::Result<()> {
    let Err(why) = leftover::end_container_of(attempt).await else { return Ok(()) };
    // If the container engine does not answer, the processes of the container can still be found and killed.
    attempt.end_others()?;
    attempt.note(&[why.to_string()])
}

/// Waits until a time, or forever without a time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Kills all descendants of the keeper after a failed start, and waits until they have ended.
async fn end_all(groups: &Groups) -> io::Result<()> {
    while !matches!(reap()?, Reaped::NoneLeft) {
        groups.kill();
        process::signal_all(&process::descendants(own_pid()), Signal::KILL);
        tokio::time::sleep(KEEPER_POLL_INTERVAL).await;
    }
    Ok(())
}

fn not_enforced(why: &CapsError) -> String {
    format!("the agent is not started: {why}")
}

fn not_started(message: String) -> Ending {
    let status = ExitStatus::StartFailed { message };
    Ending::now(status, None, 0)
}

/// Starts the agent and records its process. Returns `None` if the agent was started and had to be ended at once,
/// because its process could not be recorded. An error means that the agent was not started.
fn spawn(
    attempt: &Attempt,
    start: &StartSpec,
    input: Stdio,
    groups: &mut Groups,
    streams: &mut BoundedStreams,
    bwrap_status: Option<&BwrapStatus>,
) -> Result<Option<i32>, SpawnError> {
    let agent = spawn_in(attempt, start, input, groups, streams, bwrap_status)?;
    fault::point("keeper-spawned");
    match write_agent(attempt, agent) {
        Ok(()) => {}
        // The keeper supervises the agent in any case, and records its process later.
        Err(error)
            if shortage::is_shortage(&error.to_string()) || folder_access::was_inaccessible(attempt) =>
        {
            log_error(attempt.folder(), &format!("cannot record the process of the agent: {error}"));
        }
        Err(error) => {
            log_error(
                attempt.folder(),
                &format!("the process of the agent could not be recorded, so the agent was ended: {error}"),
            );
            // An agent that a later daemon cannot find must not run. Errors are ignored.
            if let Some(group) = Pid::from_raw(agent) {
                rustix::process::kill_process_group(group, Signal::KILL).ok();
            }
            return Ok(None);
        }
    }
    fault::point("keeper-watching");
    Ok(Some(agent))
}

fn spawn_in(
    attempt: &Attempt,
    start: &StartSpec,
    input: Stdio,
    groups: &mut Groups,
    streams: &mut BoundedStreams,
    bwrap_status: Option<&BwrapStatus>,
) -> Result<i32, SpawnError> {
    let (mut command, output) =
        command(attempt, start, input, bwrap_status).map_err(SpawnError::NotStarted)?;
    let agent = groups.spawn(&mut command)?;
    // The command holds the write ends of the pipes. A pipe ends only when all its write ends are closed.
    drop(command);
    for (pipe, file, limit) in output {
        streams.keep(pipe, file, limit);
    }
    Ok(agent)
}

/// Returns the standard input of the agent: the file with the prompt, or a pipe with the feeder that fills it.
fn input(attempt: &Attempt, start: &StartSpec) -> io::Result<(Stdio, Option<Feeder>)> {
    let Some(format) = start.input else { return Ok((attempt.open(PROMPT_FILE)?.into(), None)) };
    let (feeder, reader) = Feeder::new(attempt, format)?;
    Ok((reader.into(), Some(feeder)))
}

/// A pipe that the keeper reads, the file for its content, and the number of bytes to keep.
type BoundedOutput = (PipeReader, File, u64);

/// Returns the command of the agent, and the pipes from which the keeper copies its output. Without limits there are no
/// pipes: the agent writes to the files.
fn command(
    attempt: &Attempt,
    start: &StartSpec,
    input: Stdio,
    bwrap_status: Option<&BwrapStatus>,
) -> io::Result<(Command, Vec<BoundedOutput>)> {
    let mut argv: Vec<OsString> = match &start.sandbox {
        None => start.argv.iter().map(Into::into).collect(),
        Some(sandbox) => sandbox::argv(sandbox, attempt, start)?,
    };
    if let Some(bwrap_status) = bwrap_status {
        bwrap_status.add_status_pipe(&mut argv);
    }
    let (program, arguments) = argv.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&start.directory).stdin(input).process_group(0);
    let (stdout, stderr) = (attempt.append("stdout")?, attempt.append("stderr")?);
    let Some(KeeperLimits { output_bytes, .. }) = start.limits else {
        command.stdout(stdout).stderr(stderr);
        return Ok((command, Vec::new()));
    };
    let ((out, out_writer), (err, err_writer)) = (io::pipe()?, io::pipe()?);
    command.stdout(out_writer).stderr(err_writer);
    Ok((command, vec![(out, stdout, output_bytes), (err, stderr, output_bytes)]))
}

fn write_agent(attempt: &Attempt, agent: i32) -> io::Result<()> {
    attempt.write(AGENT_FILE, &ProcessIdentity::of(agent)?)
}

fn start_failure(attempt: &Attempt, start: &StartSpec, error: &io::Error) -> String {
    let program = start.argv.first().map_or("", String::as_str);
    if !start.directory.is_dir() {
        return format!(
            "cannot start {program:?}: its directory {} does not exist",
            start.directory.display()
        );
    }
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("cannot start {program:?}: it was not found; is it installed and on the PATH?")
        }
        io::ErrorKind::PermissionDenied if folder_access::was_inaccessible(attempt) => {
            format!("cannot start {program:?}: {FOLDER_NOT_ACCESSIBLE}: {error}")
        }
        io::ErrorKind::PermissionDenied => format!("cannot start {program:?}: it may not be executed"),
        _ => format!("cannot start {program:?}: {error}"),
    }
}

/// State of the keeper while processes of the attempt run.
#[derive(Default)]
struct Watch {
    agent: i32,
    /// Set if the agent runs inside bubblewrap, which must not get the stop signal.
    wrapped: bool,
    grace: Duration,
    groups: Groups,
    /// Exit status of the agent.
    status: Option<ExitStatus>,
    stopped: Option<Termination>,
    /// Time of the next kill; at first the end of the grace period.
    kill_at: Option<Instant>,
    leftovers: u32,
    /// The task that feeds the agent.
    feeding: Option<AbortHandle>,
    /// Set if the fence has ended the agent.
    lease_loss: Option<LeaseLoss>,
}

impl Watch {
    /// Reaps ended processes. Returns true if the agent and all its descendants have ended: a subreaper then has no
    /// child to wait for.
    fn is_over(&mut self) -> io::Result<bool> {
        let was_running = self.status.is_none();
        loop {
            match reap()? {
                Reaped::One(pid, status) if pid == self.agent => self.status = Some(status),
                Reaped::One(..) => {}
                Reaped::NoneLeft => return Ok(true),
                Reaped::NoneYet => break,
            }
        }
        if was_running && self.status.is_some() {
            let left = process::descendants(own_pid());
            self.leftovers = u32::try_from(left.len()).unwrap_or(u32::MAX);
            process::signal_all(&left, Signal::TERM);
            self.kill_at.get_or_insert(Instant::now() + LEFTOVER_GRACE.min(self.grace));
        }
        Ok(false)
    }

    fn request_stop(&mut self, stop: Signal) {
        // After a second request, or if only leftover processes remain, there is no further grace period.
        if self.stopped.is_some() || self.status.is_some() {
            self.kill_at = Some(Instant::now());
            return;
        }
        self.stopped = Some(Termination::Graceful);
        // This closes the agent's input.
        if let Some(feeding) = &self.feeding {
            feeding.abort();
        }
        self.kill_at = Some(Instant::now() + self.grace);
        // The signal is sent to the agent's process group, so that the foreground processes of the agent can finish
        // too. With bubblewrap, only the members of the group inside the sandbox get the signal.
        if self.wrapped {
            process::signal_all(&process::inside(self.agent), stop);
        } else if let Some(group) = Pid::from_raw(self.agent) {
            // The agent may have just ended.
            rustix::process::kill_process_group(group, stop).ok();
        }
    }

    /// Kills the agent without a stop signal and a grace period.
    fn end_at_once(&mut self) {
        if self.status.is_none() {
            self.stopped = Some(Termination::Forced);
        }
        self.kill_at = Some(Instant::now());
    }

    fn force_if_due(&mut self) {
        if self.kill_at.is_none_or(|kill_at| kill_at > Instant::now()) {
            return;
        }
        if self.status.is_none() && self.stopped.is_some() {
            self.stopped = Some(Termination::Forced);
        }
        if !self.groups.kill() {
            process::signal_all(&process::descendants(own_pid()), Signal::KILL);
        }
        // Processes that were being forked at that moment are killed at the next check.
        self.kill_at = Some(Instant::now() + KEEPER_POLL_INTERVAL);
    }

    /// Waits until the next check. While the agent runs, only the end of the grace period matters. After the agent has
    /// ended, the keeper polls, because no signal reports the end of a grandchild that another process reaped.
    async fn next_check(&self) {
        let check = self.status.is_some().then(|| Instant::now() + KEEPER_POLL_INTERVAL);
        match (self.kill_at, check) {
            (Some(kill_at), None) => tokio::time::sleep_until(kill_at).await,
            (Some(kill_at), Some(check)) if kill_at <= check => tokio::time::sleep_until(kill_at).await,
            (_, Some(check)) => tokio::time::sleep_until(check).await,
            (None, None) => std::future::pending().await,
        }
    }

    /// Removes the groups. The last process may be a zombie for a moment, and its group busy.
    async fn clean_up(&self) {
        for _ in 0..MAX_CLEAN_UP_TRIES {
            if self.groups.remove() {
                break;
            }
            tokio::time::sleep(KEEPER_POLL_INTERVAL).await;
        }
        // An empty group that is left behind does no harm.
    }

    /// Returns the ending. `loss` states why the exit code of a container is unknown.
    fn ending(self, start: &StartSpec, loss: Option<String>) -> io::Result<Ending> {
        let status = self.status.ok_or_else(|| io::Error::other("the command ended without a status"))?;
        let reports_codes = start.sandbox.as_ref().is_some_and(|plan| plan.kind.reports_signal_as_code());
        let status = match loss {
            Some(why) => ExitStatus::Lost { why: Some(why) },
            None if reports_codes => status.of_sandboxed_agent(),
            None => status,
        };
        let lease_loss = self.lease_loss;
        Ok(Ending { lease_loss, ..Ending::now(status, self.stopped, self.leftovers) })
    }
}

enum Reaped {
    /// A process that has ended: a child of the keeper, or a descendant whose parent ended earlier.
    One(i32, ExitStatus),
    /// All remaining processes still run.
    NoneYet,
    NoneLeft,
}

fn reap() -> io::Result<Reaped> {
    match rustix::process::wait(WaitOptions::NOHANG) {
        Ok(Some((pid, status))) => Ok(Reaped::One(pid.as_raw_nonzero().get(), exit_status(status))),
        Ok(None) => Ok(Reaped::NoneYet),
        Err(rustix::io::Errno::CHILD) => Ok(Reaped::NoneLeft),
        Err(error) => Err(error.into()),
    }
}

fn exit_status(status: WaitStatus) -> ExitStatus {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitStatus::Code { code },
        (None, Some(signal)) => ExitStatus::signal(signal),
        (None, None) => ExitStatus::Code { code: -1 },
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

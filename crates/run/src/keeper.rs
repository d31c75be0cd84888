//! The keeper: parent and subreaper of one attempt's processes.
//!
//! It starts the agent, waits for it and for everything that descends from it, and writes down how it ended. Its
//! attempt is over only when nothing of it is left: what outlives the agent is asked to go, then killed.
//!
//! SIGTERM asks it to end the agent: the stop signal, the grace, then the kill. A second SIGTERM skips the grace.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use cowhand_core::job::Termination;
use cowhand_core::sandbox::SandboxKind;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use cowhand_system::fault;
use cowhand_system::remove::is_gone;

use super::attempt::{AGENT_FILE, Attempt, KEEPER_FILE};
use super::bounded::BoundedStreams;
use super::caps::Groups;
use super::descriptors;
use super::ending::{Ending, ExitStatus};
use super::process::{self, ProcessIdentity};
use super::reach::{self, WRITE_RETRY_DELAY, complain};
use super::sandbox::docker::leftover;
use super::sandbox::{self, Making};
use super::shortage::{self, FOLDER_CLOSED};
use super::start::{KeeperLimits, SandboxPlan, StartSpec};

/// For what the agent left behind: long enough to write a file, short enough not to hold up the job.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// Between two looks at what is left.
const KEEPER_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_CLEAN_UP_TRIES: u32 = 50;
/// A year: a clock that is counted on much longer runs over.
const FOREVER_MS: u64 = 365 * 24 * 3600 * 1000;
/// How soon the agent of a folder that is gone is ended.
const FOLDER_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The whole life of a keeper process.
pub fn keep(folder: &Path) -> ExitCode {
    match keep_attempt(folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing but the attempt's own folder is opened before the agent is started.
            let closed = error.kind() == io::ErrorKind::PermissionDenied;
            complain(folder, &if closed { format!("{FOLDER_CLOSED}: {error}") } else { error.to_string() });
            ExitCode::FAILURE
        }
    }
}

fn keep_attempt(folder: &Path) -> io::Result<()> {
    let attempt = Attempt::at(folder)?;
    // Whoever launched us locked the folder and gave us the lock as our stdin, which we never close.
    if attempt.try_lock()?.is_some() {
        return Err(io::Error::other("a keeper is started by the daemon, not by hand"));
    }
    if attempt.began()? {
        // It died at work, so the agent may have run, or run still: never a second time.
        return Err(io::Error::other("another keeper was at work here before"));
    }
    // A session of its own: neither the daemon's terminal nor its end reaches us. It fails only for a process
    // that leads a group already, which is as good.
    rustix::process::setsid().ok();
    descriptors::keep_from_children()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let start = attempt.start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ending = runtime.block_on(run(&attempt, &start))?;
    fault::place("keeper-ended");
    write_ending(&attempt, &ending)?;
    fault::place("keeper-done");
    Ok(())
}

/// Writes how it ended. Nobody else knows, so a disk that is full and a folder that is closed are waited for. An agent that
/// was not started can be started by another attempt, so that there is nothing to wait for.
fn write_ending(attempt: &Attempt, ending: &Ending) -> io::Result<()> {
    loop {
        let Err(error) = attempt.write_synced("ending.json", ending) else { return Ok(()) };
        complain(attempt.folder(), &format!("cannot write how it ended: {error}"));
        if matches!(ending.status, ExitStatus::StartFailed { .. }) {
            attempt.forget_keeper()?;
            return Err(error);
        }
        if !reach::was_closed(attempt) && !shortage::is_named_in(&error.to_string()) {
            return Err(error);
        }
        std::thread::sleep(WRITE_RETRY_DELAY);
    }
}

async fn run(attempt: &Attempt, start: &StartSpec) -> io::Result<Ending> {
    // Before the spawn, so that no child can end unseen and no request can kill us.
    let mut child_ended = signal(SignalKind::child())?;
    let mut asked = signal(SignalKind::terminate())?;
    let groups = match ready(attempt, start) {
        Ok(groups) => groups,
        Err(error) => {
            attempt.forget_keeper()?;
            return Err(error);
        }
    };
    let mut groups = match groups {
        Ok(groups) => groups,
        Err(why) => return Ok(not_started(format!("it is not started: {why}"))),
    };
    fault::place("keeper-ready");
    let mut streams = BoundedStreams::default();
    let wrapped = start.enclosure.as_ref().is_some_and(|own| own.kind == SandboxKind::Bubblewrap);
    let mut making = if wrapped { Some(Making::watched()?) } else { None };
    let spawned = spawn(attempt, start, &mut streams, making.as_ref());
    making.iter_mut().for_each(Making::spawned);
    groups.leave();
    let agent = match spawned {
        Ok(Some(agent)) => agent,
        // It began, so no other attempt may take its place.
        Ok(None) => {
            end_all(&groups).await?;
            groups.remove();
            return Ok(Ending {
                at: Timestamp::now(),
                status: ExitStatus::Lost,
                stopped: None,
                leftovers: 0,
            });
        }
        Err(error) => {
            end_all(&groups).await?;
            groups.remove();
            return Ok(not_started(start_failure(attempt, start, &error)));
        }
    };
    let grace = Duration::from_millis(start.grace_ms);
    let mut watch = Watch { agent, wrapped, grace, groups, ..Watch::default() };
    let mut look_at_folder = tokio::time::interval(FOLDER_POLL_INTERVAL);
    let mut orphaned = false;
    let mut deadline =
        start.limits.map(|limits| Instant::now() + Duration::from_millis(limits.lifetime_ms.min(FOREVER_MS)));
    while !watch.is_over()? {
        tokio::select! {
            _ = child_ended.recv() => {}
            // Without its folder nobody could ever find the agent, hear it or stop it.
            _ = look_at_folder.tick(), if !orphaned => {
                reach::restore(attempt);
                // A disk that was full may have room by now.
                if !attempt.has_agent() {
                    write_agent(attempt, watch.agent).ok();
                }
                orphaned = is_gone(attempt.folder());
                if orphaned {
                    watch.ask(start.stop_signal.signal());
                }
            }
            _ = asked.recv() => watch.ask(start.stop_signal.signal()),
            () = at(deadline) => {
                deadline = None;
                watch.ask(start.stop_signal.signal());
            }
            () = watch.next_look() => watch.force_if_due(),
        }
    }
    streams.finish()?;
    reach::regained(attempt).await;
    attempt.note(&watch.groups.reached())?;
    watch.clean_up().await;
    end_container(attempt).await?;
    let refusal = attempt.refusal().or_else(|| not_made(attempt, making?, &watch));
    match refusal {
        Some(why) => Ok(not_started(why)),
        None => watch.ending(),
    }
}

/// Why the sandbox was not made, if it ended by itself before the agent was started.
fn not_made(attempt: &Attempt, making: Making, watch: &Watch) -> Option<String> {
    let by_itself = matches!(watch.status, Some(ExitStatus::Code { .. })) && watch.stopped.is_none();
    if !by_itself || making.began() {
        return None;
    }
    let said = std::fs::read(attempt.stderr()).unwrap_or_default();
    Some(sandbox::failure(&String::from_utf8_lossy(&said)))
}

/// Writes down that there is a keeper, and makes the groups that the agent is born in. The inner error is why those cannot
/// be had; after an outer one nothing was started.
fn ready(attempt: &Attempt, start: &StartSpec) -> io::Result<Result<Groups, String>> {
    // From here on we can be asked to stop.
    fault::place("keeper-waiting");
    attempt.write(KEEPER_FILE, &ProcessIdentity::of(own_pid())?)?;
    // That the agent may have begun has to be known after a power cut, too, so its record is on disk before the agent
    // begins. The disk and the kernel, which takes its time with control groups, work side by side.
    let (synced, groups) = std::thread::scope(|scope| {
        let synced = std::thread::Builder::new().spawn_scoped(scope, || attempt.sync_names());
        let caps = start.enclosure.as_ref().map(SandboxPlan::own_caps).unwrap_or_default();
        let groups = Groups::enter(attempt, &caps);
        let panicked = |_| Err(io::Error::other("the sync panicked"));
        (synced.and_then(|synced| synced.join().unwrap_or_else(panicked)), groups)
    });
    synced?;
    groups
}

/// It is no child of ours, so nothing that we did has reached it yet if whoever stood for it was killed.
async fn end_container(attempt: &Attempt) -> io::Result<()> {
    let Err(why) = leftover::end_of(attempt).await else { return Ok(()) };
    // Without the engine, what runs in there is still to be found.
    attempt.end_others()?;
    attempt.note(&[why])
}

/// Never, if there is no such time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Of an agent that could not be written down, its children may have begun already.
async fn end_all(groups: &Groups) -> io::Result<()> {
    while !matches!(reap()?, Reaped::NoneLeft) {
        groups.kill();
        process::signal_all(&process::descendants(own_pid()), Signal::KILL);
        tokio::time::sleep(KEEPER_POLL_INTERVAL).await;
    }
    Ok(())
}

fn not_started(message: String) -> Ending {
    let status = ExitStatus::StartFailed { message };
    Ending { at: Timestamp::now(), status, stopped: None, leftovers: 0 }
}

/// Starts the agent and writes down which process it is; none if it was started and had to be ended at once. After an
/// error nothing was started.
fn spawn(
    attempt: &Attempt,
    start: &StartSpec,
    streams: &mut BoundedStreams,
    making: Option<&Making>,
) -> io::Result<Option<i32>> {
    let mut argv: Vec<OsString> = match &start.enclosure {
        None => start.argv.iter().map(Into::into).collect(),
        Some(enclosure) => sandbox::argv(enclosure, attempt, &start.directory, &start.argv)?,
    };
    if let Some(making) = making {
        making.told_by(&mut argv);
    }
    let (program, arguments) = argv.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&start.directory).stdin(attempt.open("prompt")?).process_group(0);
    let (stdout, stderr) = (attempt.append("stdout")?, attempt.append("stderr")?);
    let mut child = match start.limits {
        None => command.stdout(stdout).stderr(stderr).spawn()?,
        Some(KeeperLimits { output_bytes, .. }) => {
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
                streams.keep(out, stdout, output_bytes);
                streams.keep(err, stderr, output_bytes);
            }
            child
        }
    };
    let agent = i32::try_from(child.id()).map_err(io::Error::other)?;
    fault::place("keeper-spawned");
    match write_agent(attempt, agent) {
        Ok(()) => {}
        // We watch over it all the same, and write it down later.
        Err(error) if shortage::is_named_in(&error.to_string()) || reach::was_closed(attempt) => {
            complain(attempt.folder(), &format!("cannot write down which process the agent is: {error}"));
        }
        Err(error) => {
            complain(
                attempt.folder(),
                &format!("it could not be written down, and was ended at once: {error}"),
            );
            // What nobody could find again must not run. Its end is what we want, whatever comes of asking.
            rustix::process::kill_process_group(Pid::from_child(&child), Signal::KILL).ok();
            child.wait()?;
            return Ok(None);
        }
    }
    fault::place("keeper-watching");
    Ok(Some(agent))
}

fn write_agent(attempt: &Attempt, agent: i32) -> io::Result<()> {
    attempt.write(AGENT_FILE, &ProcessIdentity::of(agent)?)
}

fn start_failure(attempt: &Attempt, start: &StartSpec, error: &io::Error) -> String {
    let program = start.argv.first().map_or("", String::as_str);
    if !start.directory.is_dir() {
        return format!("cannot start {program:?}: its directory {} is not there", start.directory.display());
    }
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("cannot start {program:?}: it was not found; is it installed and on the PATH?")
        }
        io::ErrorKind::PermissionDenied if reach::was_closed(attempt) => {
            format!("cannot start {program:?}: {FOLDER_CLOSED}: {error}")
        }
        io::ErrorKind::PermissionDenied => format!("cannot start {program:?}: it may not be executed"),
        _ => format!("cannot start {program:?}: {error}"),
    }
}

/// What the keeper knows of its attempt.
#[derive(Default)]
struct Watch {
    agent: i32,
    /// The agent runs inside of what we started, which is not to hear of our wishes.
    wrapped: bool,
    grace: Duration,
    groups: Groups,
    /// How the agent itself ended.
    status: Option<ExitStatus>,
    stopped: Option<Termination>,
    /// When patience ends.
    kill_at: Option<Instant>,
    leftovers: u32,
}

impl Watch {
    /// Reaps whatever has ended. Over means that the agent and all that descends from it are gone: to a subreaper
    /// the kernel says so itself, by having no child left to wait for.
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

    fn ask(&mut self, stop: Signal) {
        // Asked again, or only what the agent left behind is still there: no more patience.
        if self.stopped.is_some() || self.status.is_some() {
            self.kill_at = Some(Instant::now());
            return;
        }
        self.stopped = Some(Termination::Graceful);
        self.kill_at = Some(Instant::now() + self.grace);
        // The agent's group: what runs in its foreground gets the same chance to finish.
        if self.wrapped {
            process::signal_all(&process::inside(self.agent), stop);
        } else if let Some(group) = Pid::from_raw(self.agent) {
            // It may have ended this very moment, which is what was asked for.
            rustix::process::kill_process_group(group, stop).ok();
        }
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
        // What was being forked at that moment is caught by the next look.
        self.kill_at = Some(Instant::now() + KEEPER_POLL_INTERVAL);
    }

    /// While the agent runs, only the grace ends the wait; afterwards we look again and again, since the end of a
    /// grandchild that somebody else reaped sends us no signal.
    async fn next_look(&self) {
        let look = self.status.is_some().then(|| Instant::now() + KEEPER_POLL_INTERVAL);
        match (self.kill_at, look) {
            (Some(kill_at), None) => tokio::time::sleep_until(kill_at).await,
            (Some(kill_at), Some(look)) if kill_at <= look => tokio::time::sleep_until(kill_at).await,
            (_, Some(look)) => tokio::time::sleep_until(look).await,
            (None, None) => std::future::pending().await,
        }
    }

    /// The last of them may be a zombie for another moment, and the group busy with it.
    async fn clean_up(&self) {
        for _ in 0..MAX_CLEAN_UP_TRIES {
            if self.groups.remove() {
                break;
            }
            tokio::time::sleep(KEEPER_POLL_INTERVAL).await;
        }
        // An empty group that is left behind costs nothing and is no reason to lose the ending.
    }

    fn ending(self) -> io::Result<Ending> {
        let status = self.status.ok_or_else(|| io::Error::other("it ended without a status"))?;
        Ok(Ending { at: Timestamp::now(), status, stopped: self.stopped, leftovers: self.leftovers })
    }
}

enum Reaped {
    /// A process that has ended, ours or adopted.
    One(i32, ExitStatus),
    /// All that are left still run.
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
        (None, Some(signal)) => ExitStatus::Signal { signal },
        (None, None) => ExitStatus::Code { code: -1 },
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

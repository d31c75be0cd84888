//! The minder: parent and subreaper of one command of the daemon. The command is `when_command`, `setup` or the
//! `git` of a workspace. Without a daemon, `prune` and `job delete` run their `git` under a minder in the same way.
//!
//! A minder's stdin is a connection to the daemon. When the connection closes, because the daemon no longer needs the
//! answer or has ended, the minder ends the command and all its descendants. When the command ends, the minder ends the
//! remaining processes and then reports how the command ended. So the processes of the command end soon after the
//! daemon, even if the daemon is killed.
//!
//! The minder of a `git` holds a lock until all processes have ended. Several minders can hold this lock at the same
//! time. A new daemon waits for the lock before it changes the workspaces that the commands were writing.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, wait};
use serde::{Deserialize, Serialize};

use super::descriptors;
use super::process::{descendants, signal_all};
use cowhand_system::lock_file;

/// Hidden verb of the command line that runs a minder.
pub const MINDER_VERB: &str = "mind";
/// Option before the program. The next argument is the path of the lock that the minder holds.
const LOCK_OPTION: &str = "--lock";
/// Grace period of the processes of a minder with a lock, in which they can remove their temporary files. A minder
/// without a lock kills its processes at once.
const MINDER_GRACE: Duration = Duration::from_secs(2);
/// Interval of the checks for remaining processes, and of the tries to get the lock.
const MINDER_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A command that runs under a minder. The caller sets its directory, environment and output.
#[derive(Debug)]
pub(super) struct MindedCommand {
    pub(super) command: Command,
    pub(super) connection: DaemonConnection,
}

/// The daemon's end of the connection.
#[derive(Debug)]
pub(super) struct DaemonConnection(UnixStream);

/// Report of a minder to the daemon.
#[derive(Debug, Serialize, Deserialize)]
enum MinderReport {
    /// Wait status of the command.
    Ended(i32),
    /// The command could not be started or waited for.
    #[serde(rename = "NotStarted")]
    Failed { code: Option<i32>, message: String },
}

/// How to start a minder with a lock, for a command that a new daemon waits for.
#[derive(Debug, Clone)]
pub struct LockedMinder {
    /// The `cowhand` program.
    pub program: PathBuf,
    /// File that is locked while such a command runs.
    pub lock: PathBuf,
}

impl LockedMinder {
    /// Waits until the commands of an earlier daemon have ended, at most for `timeout`. Returns whether they have.
    pub fn wait_for_earlier(&self, timeout: Duration) -> io::Result<bool> {
        let started = Instant::now();
        let lock = open_lock(&self.lock)?;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(true),
                Err(TryLockError::WouldBlock) if started.elapsed() < timeout => {
                    thread::sleep(MINDER_POLL_INTERVAL);
                }
                Err(TryLockError::WouldBlock) => return Ok(false),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

impl MindedCommand {
    /// Prepares a command. `minder` is the `cowhand` program.
    pub(super) fn new(minder: &Path, program: &str, arguments: &[String]) -> io::Result<Self> {
        Self::prepare(minder, &[OsStr::new(program)], arguments)
    }

    /// Prepares a command that a new daemon waits for.
    pub(super) fn locked(minder: &LockedMinder, program: &str, arguments: &[OsString]) -> io::Result<Self> {
        let first = [OsStr::new(LOCK_OPTION), minder.lock.as_os_str(), OsStr::new(program)];
        Self::prepare(&minder.program, &first, arguments)
    }

    fn prepare(minder: &Path, first: &[&OsStr], arguments: &[impl AsRef<OsStr>]) -> io::Result<Self> {
        let (connection, end) = UnixStream::pair()?;
        let mut command = Command::new(minder);
        command.arg(MINDER_VERB).args(first).args(arguments).stdin(OwnedFd::from(end));
        Ok(Self { command, connection: DaemonConnection(connection) })
    }
}

impl DaemonConnection {
    /// Returns how the command ended. The minder must have ended already: this function does not wait for the minder.
    pub(super) fn ended(mut self) -> io::Result<ExitStatus> {
        // The other end may still be open in this process, so a blocking read would not return.
        self.0.set_nonblocking(true)?;
        let mut report = Vec::new();
        match self.0.read_to_end(&mut report) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        match serde_json::from_slice(&report) {
            Ok(MinderReport::Ended(status)) => Ok(ExitStatus::from_raw(status)),
            Ok(MinderReport::Failed { code: Some(code), .. }) => Err(io::Error::from_raw_os_error(code)),
            Ok(MinderReport::Failed { code: None, message }) => Err(io::Error::other(message)),
            Err(_) => Err(io::Error::other("the minder of the command was killed")),
        }
    }
}

/// Runs this process as a minder. `argv` is the command, after the lock option if there is one.
pub fn mind(argv: &[OsString]) -> ExitCode {
    let minded = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from).and_then(|mut connection| {
        let report = match run(argv, connection.try_clone()?) {
            Ok(status) => MinderReport::Ended(status),
            Err(error) => MinderReport::Failed { code: error.raw_os_error(), message: error.to_string() },
        };
        connection.write_all(&serde_json::to_vec(&report)?)
    });
    // The daemon does not read a minder's own output, so the error is not printed.
    if minded.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(argv: &[OsString], connection: UnixStream) -> io::Result<i32> {
    let (lock, argv) = match argv {
        [option, lock, argv @ ..] if option == LOCK_OPTION => (Some(Path::new(lock)), argv),
        argv => (None, argv),
    };
    let (program, arguments) =
        argv.split_first().ok_or_else(|| io::Error::other("the command has no program"))?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    descriptors::close_on_exec()?;
    // The lock is held until all descendants have ended.
    let lock = lock.map(|lock| take_lock(lock, &connection)).transpose()?;
    let grace = lock.as_ref().map(|_| MINDER_GRACE);
    let child = spawn(program, arguments)?;
    thread::Builder::new().spawn(move || end_when_disconnected(connection, grace))?;
    let mut status = None;
    loop {
        // After the command has ended, the remaining processes have to be killed, so `wait` must not block.
        let options = if status.is_some() { WaitOptions::NOHANG } else { WaitOptions::empty() };
        match wait(options) {
            Ok(Some((pid, ended))) if pid.as_raw_nonzero().get() == child => status = Some(ended.as_raw()),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                end_all();
                thread::sleep(MINDER_POLL_INTERVAL);
            }
            Err(Errno::CHILD) => break,
            Err(error) => return Err(error.into()),
        }
    }
    drop(lock);
    status.ok_or_else(|| io::Error::other("the command ended without a status"))
}

fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).mode(0o600);
    lock_file::open(&mut options, path)
}

/// Takes the lock. Returns an error if the daemon has ended by now: another daemon may already have found the lock
/// free, so the command must not be started.
fn take_lock(path: &Path, connection: &UnixStream) -> io::Result<File> {
    let lock = open_lock(path)?;
    lock.lock_shared()?;
    let mut connection = connection.try_clone()?;
    connection.set_nonblocking(true)?;
    let read = connection.read(&mut [0]);
    connection.set_nonblocking(false)?;
    match read {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(lock),
        _ => Err(io::Error::other("the daemon has ended")),
    }
}

fn spawn(program: &OsStr, arguments: &[OsString]) -> io::Result<i32> {
    // The command has its own process group. If it sends a signal to its group, the minder does not get the signal.
    let child = Command::new(program).args(arguments).stdin(Stdio::null()).process_group(0).spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// Waits until the connection is closed, and then kills all descendants. With `grace`, they first get a stop signal and
/// this time to end.
fn end_when_disconnected(mut connection: UnixStream, grace: Option<Duration>) {
    // The daemon sends nothing, so the copy ends only when the connection closes.
    io::copy(&mut connection, &mut io::sink()).ok();
    if let Some(grace) = grace {
        // If all descendants end earlier, the main thread ends this process during the sleep.
        signal_all(&descendants(rustix::process::getpid().as_raw_nonzero().get()), Signal::TERM);
        thread::sleep(grace);
    }
    loop {
        end_all();
        thread::sleep(MINDER_POLL_INTERVAL);
    }
}

fn end_all() {
    signal_all(&descendants(rustix::process::getpid().as_raw_nonzero().get()), Signal::KILL);
}

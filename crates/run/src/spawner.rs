//! The spawner: a process that makes keepers as copies of itself (decision 0038).
//!
//! Executing the program again for each keeper costs more time than everything that the keeper does. The daemon
//! therefore starts one spawner, which is this program, and requests each keeper over a socket. A keeper that the
//! spawner made behaves like a keeper for which the program was executed. It has its own process session, environment,
//! lock and log. `/proc` shows the folder of its attempt in its command line and the mark of its attempt in its
//! environment.
//!
//! The spawner ends when the daemon closes the socket or ends. Its keepers continue.

mod copy;
mod request;

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open};

use self::copy::{Copied, ShownProcess};
use self::request::KeeperRequest;
use super::attempt::PreparedLaunch;
use super::{descriptors, process};

/// First arguments of a spawner. The third is the state folder with trailing spaces.
pub const SPAWNER_WORDS: [&str; 2] = ["keeper", "spawner"];
/// Space in the command line for the path of a folder.
const PADDED_BYTES: usize = 4096;
/// Space for the mark of an attempt in the environment of a keeper.
const MARK_BYTES: usize = 256;
/// Variable that reserves the space of the mark.
const PADDING_VARIABLE: &str = "COWHAND_PADDING";
/// Number of the socket as a source of events. The number of a keeper is its process id.
const SOCKET_EVENT: u64 = 0;

/// The daemon's side of a spawner.
#[derive(Debug)]
pub(super) struct Spawner {
    process: Child,
    socket: UnixStream,
}

/// Why a spawner made no keeper.
#[derive(Debug)]
pub(super) enum SpawnerError {
    /// The spawner answered that it could not copy itself.
    Refused(io::Error),
    /// The spawner did not answer. It may have made the keeper.
    NoAnswer(io::Error),
    /// A spawner cannot make this keeper.
    Impossible,
}

impl Spawner {
    /// Starts a spawner that has to answer each request within `answer_timeout`.
    pub(super) fn start(program: &Path, state: &Path, answer_timeout: Duration) -> io::Result<Self> {
        let (socket, other_end) = UnixStream::pair()?;
        for set_timeout in [UnixStream::set_read_timeout, UnixStream::set_write_timeout] {
            set_timeout(&socket, Some(answer_timeout))?;
        }
        let process = Command::new(program)
            .args(SPAWNER_WORDS)
            .arg(format!("{:PADDED_BYTES$}", state.display()))
            .env_clear()
            .env(PADDING_VARIABLE, " ".repeat(MARK_BYTES))
            .current_dir("/")
            .stdin(OwnedFd::from(other_end))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { process, socket })
    }

    /// Makes the keeper of an attempt, and returns its process id.
    pub(super) fn spawn(
        &mut self,
        folder: &Path,
        environment: &[(String, String)],
        launch: &PreparedLaunch,
    ) -> Result<i32, SpawnerError> {
        let request = KeeperRequest { folder: folder.to_owned(), environment: environment.to_vec() };
        if !request.is_possible() {
            return Err(SpawnerError::Impossible);
        }
        request.send(&self.socket, launch).map_err(SpawnerError::NoAnswer)?;
        let answer = request::receive_answer(&self.socket).map_err(SpawnerError::NoAnswer)?;
        answer.map_err(SpawnerError::Refused)
    }
}

impl Drop for Spawner {
    /// Ends the spawner. Its keepers continue.
    fn drop(&mut self) {
        // The process may have ended already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Ends the spawners of earlier daemons of this state folder. A spawner ends with its daemon, unless the spawner is
/// suspended (`SIGSTOP`). A request that a suspended spawner has not read yet would hold the lock of an attempt that
/// has no keeper.
pub fn end_left_over(state: &Path) -> io::Result<()> {
    let [first, second] = SPAWNER_WORDS;
    let is_spawner = |arguments: &[u8]| {
        let words: Vec<&[u8]> = arguments.split(|byte| *byte == 0).skip(1).take(3).collect();
        words == [first.as_bytes(), second.as_bytes(), state.as_os_str().as_bytes()]
    };
    let left_over: Vec<i32> = process::with_arguments(is_spawner)?;
    process::signal_all(&left_over, Signal::KILL);
    Ok(())
}

/// Runs a spawner process, whose standard input is the socket. Returns when the daemon has closed the socket. `state`
/// is the padded path of the state folder; the spawner only shows it in its command line.
pub fn run_spawner(state: &str) -> ExitCode {
    match serve(state.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(state: &str) -> io::Result<()> {
    let shown = ShownProcess::find()?;
    let [first, second] = SPAWNER_WORDS;
    // The variable stays in the environment with an empty value. A copy of the spawner removes it.
    shown.show(&[first, second, state], &format!("{PADDING_VARIABLE}="))?;
    // Signals of the daemon's terminal must not end the spawner. `setsid` fails only for the leader of a process group.
    rustix::process::setsid().ok();
    let mut socket = take_stdin()?;
    descriptors::close_on_exec()?;
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&events, &socket, epoll::EventData::new_u64(SOCKET_EVENT), epoll::EventFlags::IN)?;
    let mut keepers = HashMap::new();
    let mut ready = Vec::with_capacity(64);
    loop {
        ready.clear();
        match epoll::wait(&events, rustix::buffer::spare_capacity(&mut ready), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        reap(&mut keepers)?;
        if !ready.iter().any(|event: &epoll::Event| event.data.u64() == SOCKET_EVENT) {
            continue;
        }
        let Some((request, launch)) = KeeperRequest::receive(&socket)? else { return Ok(()) };
        let copied = copy::copy();
        if let Ok(Copied::Keeper) = copied {
            copy::become_keeper(&request, launch, &shown);
        }
        // The lock has to be free as soon as the daemon gets the answer and the keeper has ended.
        drop(launch);
        request.clear();
        let answer = match copied {
            Ok(Copied::Keeper) => unreachable!("a keeper exits"),
            Ok(Copied::Spawner { keeper }) => {
                watch(&events, &mut keepers, keeper);
                keeper
            }
            Err(error) => request::refusal(&error),
        };
        socket.write_all(&answer.to_ne_bytes())?;
    }
}

/// Replaces standard input, which is the socket, by `/dev/null`, and returns the socket.
fn take_stdin() -> io::Result<UnixStream> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(UnixStream::from(socket))
}

/// Adds the end of a keeper to the events for which the spawner waits, so that the spawner reaps the keeper.
fn watch(events: &OwnedFd, keepers: &mut HashMap<i32, OwnedFd>, keeper: i32) {
    let added = Pid::from_raw(keeper).ok_or(rustix::io::Errno::INVAL).and_then(|pid| {
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let data = epoll::EventData::new_u64(u64::from(keeper.unsigned_abs()));
        epoll::add(events, &process, data, epoll::EventFlags::IN)?;
        Ok(process)
    });
    // Without a descriptor the keeper is reaped after the next event.
    keepers.extend(added.ok().map(|process| (keeper, process)));
}

/// Reaps the keepers that have ended.
fn reap(keepers: &mut HashMap<i32, OwnedFd>) -> io::Result<()> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => drop(keepers.remove(&pid.as_raw_nonzero().get())),
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

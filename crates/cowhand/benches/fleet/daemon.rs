//! A running daemon of the measured program.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cowhand_testing::wait_at_most;
use tempfile::TempDir;

use super::Bench;
use super::config::Config;
use super::http::Http;

/// Time in which a daemon has to stop after a signal, before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Daemon that is stopped when dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    /// Kept open, because the daemon may print.
    _stdout: BufReader<ChildStdout>,
    address: String,
    program: PathBuf,
    folder: Option<TempDir>,
    /// Time from the start of the program to its line `ready`.
    pub(crate) ready: Duration,
}

impl Daemon {
    pub(crate) fn start(bench: &Bench, config: &Config) -> Self {
        Self::try_start(bench, config).unwrap_or_else(|refusal| panic!("the daemon did not start: {refusal}"))
    }

    /// Starts a daemon in a new folder. Returns the reason if the daemon refuses the config.
    pub(crate) fn try_start(bench: &Bench, config: &Config) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("cowhand-bench-").tempdir().unwrap();
        config.write(folder.path());
        Self::start_in(bench, folder)
    }

    pub(crate) fn start_in(bench: &Bench, folder: TempDir) -> Result<Self, String> {
        let log = folder.path().join("daemon.log");
        let begin = Instant::now();
        let mut child = Command::new(&bench.program)
            .args(["start", "--listen", "127.0.0.1:0", "--stop-timeout", "0", "-c"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let ready = begin.elapsed();
        let Some(address) = line.trim().strip_prefix("ready http://") else {
            child.wait().unwrap();
            let log = fs::read_to_string(&log).unwrap();
            return Err(log.lines().find(|line| line.contains("error")).unwrap_or("no reason").to_owned());
        };
        let (address, program) = (address.to_owned(), bench.program.clone());
        Ok(Self { child, _stdout: stdout, address, program, folder: Some(folder), ready })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns a path beside the root file. The agents work in this folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.as_ref().unwrap().path().join(name)
    }

    /// Returns a path in the state folder.
    pub(crate) fn state(&self, name: &str) -> PathBuf {
        self.path(".cowhand").join(name)
    }

    /// Connects to the owner's socket, which needs no token.
    pub(crate) fn api(&self) -> Http<UnixStream> {
        Http::new(UnixStream::connect(self.state("sock")).unwrap(), "localhost")
    }

    /// Returns a command of the command line for this fleet.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).arg("-c").arg(self.path(".")).stdin(Stdio::null());
        command
    }

    /// Stops the daemon, and returns its folder.
    pub(crate) fn stop(mut self) -> TempDir {
        self.end();
        self.folder.take().unwrap()
    }

    fn end(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.child.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() > deadline {
                self.child.kill().ok();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.folder.is_some() {
            self.end();
        }
    }
}

/// Runs a command, and returns its time in milliseconds and its output.
pub(crate) fn timed(command: &mut Command) -> (f64, String) {
    let begin = Instant::now();
    let output = command.output().unwrap();
    let time = begin.elapsed().as_secs_f64() * 1e3;
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    (time, String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits for a condition at most five minutes.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    wait_at_most(Duration::from_mins(5), what, || is_true().then_some(()));
}

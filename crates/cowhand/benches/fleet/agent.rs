//! The agents that are measured: this program itself, started again with a hidden word. The limits start the same
//! program without cowhand.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Appends the time of its first instruction to a file.
const STAMP: &str = "--stamp";
/// Waits for a file, and then prints the time again and again.
const TICK: &str = "--tick";
/// Text before each time that [`TICK`] prints.
pub(crate) const TICK_MARK: &str = "tick-";

/// Runs as an agent, if the arguments say so. Returns whether they do.
pub(crate) fn ran(words: &[String]) -> bool {
    let now = nanoseconds();
    match words {
        [word, file] if word == STAMP => stamp(now, Path::new(file)),
        [word, file, count, every] if word == TICK => {
            tick(Path::new(file), count.parse().unwrap(), Duration::from_millis(every.parse().unwrap()));
        }
        _ => return false,
    }
    true
}

/// Returns the time since 1970, in nanoseconds.
pub(crate) fn nanoseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn stamp(now: u64, file: &Path) {
    let agent = std::env::var("COWHAND_AGENT").unwrap_or_default();
    // One short write to a file that is opened for appending: lines of several agents do not mix.
    let line = format!("{now} {agent}\n");
    OpenOptions::new().create(true).append(true).open(file).unwrap().write_all(line.as_bytes()).unwrap();
}

fn tick(file: &Path, count: u32, every: Duration) {
    while !file.exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Agents that print at the same instant would measure the spawns of the readers.
    std::thread::sleep(every * (std::process::id() % 97) / 97);
    for _ in 0..count {
        println!("{TICK_MARK}{}", nanoseconds());
        std::thread::sleep(every);
    }
}

/// A program and its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Program(Vec<String>);

impl Program {
    pub(crate) fn stamp(file: &str) -> Self {
        Self(vec![this_program(), STAMP.to_owned(), file.to_owned()])
    }

    pub(crate) fn tick(file: &str, count: u32, every: Duration) -> Self {
        let every = every.as_millis().to_string();
        Self(vec![this_program(), TICK.to_owned(), file.to_owned(), count.to_string(), every])
    }

    pub(crate) fn shell(script: &str) -> Self {
        Self(["sh", "-c", script].map(str::to_owned).to_vec())
    }

    /// Returns the command for a process without cowhand, in the given folder.
    pub(crate) fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]).current_dir(folder).stdin(Stdio::null());
        command
    }

    /// Returns the value of the key `command`. A list in JSON is YAML too.
    pub(crate) fn yaml(&self) -> String {
        serde_json::to_string(&self.0).unwrap()
    }
}

fn this_program() -> String {
    let path: PathBuf = std::env::current_exe().unwrap();
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// Time of a first instruction, with the name of its agent.
#[derive(Debug, Clone)]
pub(crate) struct Stamp {
    pub(crate) nanoseconds: u64,
    pub(crate) agent: String,
}

/// Returns the stamps in a file; none if the file does not exist.
pub(crate) fn stamps(file: &Path) -> Vec<Stamp> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let read = |line: &str| {
        let (time, agent) = line.split_once(' ')?;
        Some(Stamp { nanoseconds: time.parse().ok()?, agent: agent.to_owned() })
    };
    text.lines().filter_map(read).collect()
}

//! The steps that turn a copy of the spawner into a keeper. This file contains the unsafe calls of the spawner.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::super::attempt::{Attempt, PreparedLaunch};
use super::super::folder_access::log_error;
use super::super::{descriptors, keeper};
use super::SPAWNER_WORDS;
use super::request::KeeperRequest;

/// Exit code of a keeper that panicked, the same as the standard library uses.
const PANICKED: i32 = 101;
/// Positions of `arg_start`, `arg_end`, `env_start` and `env_end` among the fields of `/proc/PID/stat` after the name.
const ARGUMENT_FIELDS: [usize; 2] = [45, 46];
const ENVIRONMENT_FIELDS: [usize; 2] = [47, 48];

pub(super) enum Copied {
    /// This process is the copy.
    Keeper,
    /// This process is the spawner.
    Spawner { keeper: i32 },
}

/// Copies this process.
#[expect(unsafe_code, reason = "no safe crate has fork")]
pub(super) fn copy() -> io::Result<Copied> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a spawner has one thread"));
    }
    // SAFETY: this process has one thread, so no lock is held in the copy, and its memory is consistent.
    match unsafe { libc::fork() } {
        0 => Ok(Copied::Keeper),
        -1 => Err(io::Error::last_os_error()),
        keeper => Ok(Copied::Spawner { keeper }),
    }
}

/// Turns this copy of the spawner into the keeper of the request, and exits when the attempt has ended.
pub(super) fn become_keeper(request: &KeeperRequest, launch: PreparedLaunch, shown: &ShownProcess) -> ! {
    let keep = || {
        take_descriptors(launch)?;
        let mark = Attempt::at(&request.folder)?.mark();
        take_environment(request.environment.iter().chain([&mark]));
        let folder = request.folder.to_str().ok_or_else(|| io::Error::other("the path is not UTF-8"))?;
        shown.show(&[SPAWNER_WORDS[0], folder], &format!("{}={}", mark.0, mark.1))?;
        Ok::<_, io::Error>(keeper::keep_to_end(&request.folder))
    };
    // A panic must not unwind into the code of the spawner that called this function.
    let code = match catch_unwind(AssertUnwindSafe(keep)) {
        Ok(Ok(true)) => 0,
        Ok(Ok(false)) => 1,
        Ok(Err(error)) => {
            log_error(&request.folder, &error.to_string());
            1
        }
        Err(_) => PANICKED,
    };
    std::process::exit(code)
}

/// Uses the lock as standard input and the log as standard error, and closes every other descriptor of the spawner.
fn take_descriptors(launch: PreparedLaunch) -> io::Result<()> {
    let PreparedLaunch { lock, log } = launch;
    rustix::stdio::dup2_stdin(&lock)?;
    rustix::stdio::dup2_stderr(&log)?;
    drop((lock, log));
    descriptors::close_others()
}

#[expect(unsafe_code, reason = "the environment of a process with one thread")]
fn take_environment<'a>(environment: impl Iterator<Item = &'a (String, String)>) {
    let former: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
    // SAFETY: this process has one thread, so nothing else reads or writes the environment.
    unsafe {
        for name in former {
            std::env::remove_var(name);
        }
        environment.for_each(|(name, value)| std::env::set_var(name, value));
    }
}

/// The memory that `/proc` shows as the command line and the environment of this process.
#[derive(Debug)]
pub(super) struct ShownProcess {
    arguments: std::ops::Range<usize>,
    environment: std::ops::Range<usize>,
    program: Vec<u8>,
}

impl ShownProcess {
    pub(super) fn find() -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let number = |field: usize| {
            let number = fields.get(field).and_then(|field| field.parse::<usize>().ok());
            number
                .filter(|number| *number > 0)
                .ok_or_else(|| io::Error::other("no addresses in /proc/self/stat"))
        };
        let range = |[start, end]: [usize; 2]| Ok::<_, io::Error>(number(start)?..number(end)?);
        let program =
            fs::read("/proc/self/cmdline")?.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        Ok(Self { arguments: range(ARGUMENT_FIELDS)?, environment: range(ENVIRONMENT_FIELDS)?, program })
    }

    /// Replaces the arguments and the environment that `/proc` shows.
    pub(super) fn show(&self, arguments: &[&str], environment: &str) -> io::Result<()> {
        let mut line = self.program.clone();
        for argument in arguments {
            line.push(0);
            line.extend(argument.as_bytes());
        }
        replace(&self.arguments, &line)?;
        replace(&self.environment, environment.as_bytes())
    }
}

/// Writes bytes over a part of the initial stack of this process, and zeros over the rest of that part.
#[expect(unsafe_code, reason = "only the memory itself decides what /proc shows")]
fn replace(memory: &std::ops::Range<usize>, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() >= memory.len() {
        return Err(io::Error::other("the path of the attempt is too long for its keeper"));
    }
    let start = ptr::with_exposed_provenance_mut::<u8>(memory.start);
    // SAFETY: the kernel put the arguments and the environment of this process there, and the memory is writable as
    // long as the process lives. The standard library reads the arguments and the first environment only when it is
    // asked for them. Nobody asks for the arguments again, and `take_environment` removes the only variable of the
    // first environment from the list of variables before a keeper writes its mark.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len());
        ptr::write_bytes(start.add(bytes.len()), 0, memory.len() - bytes.len());
    }
    Ok(())
}

//! Starts a process inside a control group (`clone3` with `CLONE_INTO_CGROUP`). A process that is moved into a group, or
//! moves itself, waits some milliseconds for the kernel (decision 0010). A process that starts inside does not wait.

use std::fs;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, WaitOptions};

/// Flag of `clone3`, from `linux/sched.h`. The constant of libc has a type that is too small for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

#[derive(Debug)]
pub(super) enum CloneError {
    /// No process was made in the group.
    NotCloned,
    /// The kernel made the process, but the process could not execute the program.
    NotExecuted(io::Error),
}

/// Starts the command inside the group whose folder is open, and returns its process id. Does not clone a process with
/// several threads, for example a keeper with a proxy. Until the clone executes the program, it is a copy of this
/// process with only one thread. A lock that another thread holds would never be released in the copy.
pub(super) fn spawn_inside(group: BorrowedFd<'_>, command: &mut Command) -> Result<i32, CloneError> {
    if !has_one_thread() {
        return Err(CloneError::NotCloned);
    }
    // The kernel closes the pipe when the program is executed.
    let (mut error_reader, mut error_writer) = io::pipe().map_err(|_| CloneError::NotCloned)?;
    match clone_into(group).map_err(|_| CloneError::NotCloned)? {
        Cloned::Child => {
            // `exec` returns only if it fails.
            let error = command.exec().raw_os_error().unwrap_or(libc::EINVAL);
            // If this fails, the parent sees only the exit code 127.
            error_writer.write_all(&error.to_ne_bytes()).ok();
            exit_now()
        }
        Cloned::Parent { child } => {
            drop(error_writer);
            match read_error(&mut error_reader) {
                None => Ok(child),
                Some(error) => {
                    let pid = Pid::from_raw(child);
                    // An error of the wait is ignored, because the error of the program is returned.
                    rustix::process::waitpid(pid, WaitOptions::empty()).ok();
                    Err(CloneError::NotExecuted(error))
                }
            }
        }
    }
}

/// Returns true if this process has no other thread. Returns false if the threads cannot be read.
fn has_one_thread() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// Waits until the program is executed. Returns the error if it could not be executed.
fn read_error(pipe: &mut PipeReader) -> Option<io::Error> {
    let mut error = [0; size_of::<i32>()];
    pipe.read_exact(&mut error).ok()?;
    Some(io::Error::from_raw_os_error(i32::from_ne_bytes(error)))
}

enum Cloned {
    Parent { child: i32 },
    Child,
}

#[expect(unsafe_code, reason = "no safe crate has clone3 with CLONE_INTO_CGROUP")]
fn clone_into(group: BorrowedFd<'_>) -> io::Result<Cloned> {
    // SAFETY: zero is a valid value of each field, and means that the field is not used.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.cgroup = u64::try_from(group.as_raw_fd()).map_err(io::Error::other)?;
    // SAFETY: without CLONE_VM and a stack, the call behaves as `fork`: the child is a copy with its own memory. The
    // caller has checked that this process has one thread, so the copy is consistent. The kernel only reads `arguments`.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of_val(&arguments)) };
    match i32::try_from(pid).map_err(io::Error::other)? {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Cloned::Child),
        child => Ok(Cloned::Parent { child }),
    }
}

/// Ends the copy of this process without running destructors and exit handlers, which belong to the parent.
#[expect(unsafe_code, reason = "no safe function ends a process without exit handlers")]
fn exit_now() -> ! {
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(127) }
}

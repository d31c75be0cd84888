//! Finding processes.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, getpid, test_kill_process};

/// Returns the processes that work in the folder, or whose arguments or environment name it.
pub fn left_over(folder: &Path) -> Vec<Pid> {
    let name = folder.to_str().unwrap();
    let works_there = |pid: Pid| {
        fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero())).is_ok_and(|cwd| cwd.starts_with(folder))
    };
    let named = processes(|arguments, environment| arguments.contains(name) || environment.contains(name));
    let mut found = all();
    found.retain(|pid| works_there(*pid) || named.contains(pid));
    found
}

/// Returns the processes that match by arguments and environment, each with spaces between its parts.
pub fn processes(matches: impl Fn(&str, &str) -> bool) -> Vec<Pid> {
    let text = |pid: Pid, file: &str| {
        let bytes = fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero())).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let mut found = all();
    found.retain(|pid| matches(&text(*pid, "cmdline"), &text(*pid, "environ")));
    found
}

/// Checks whether the process exists; it may have ended and wait to be reaped.
pub fn lives(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

/// Checks whether the process has ended; it may still wait to be reaped.
pub fn has_ended(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    !lives(pid) || stat.contains(") Z")
}

/// Returns all processes except the current one.
fn all() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| *pid != getpid()).collect()
}

//! Finding processes.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, getpid, test_kill_process};

/// Returns the processes whose working directory is in the folder, or whose arguments or environment name the folder.
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

/// Returns the processes for which `matches` returns true. It gets the arguments and the environment, each joined with
/// spaces.
pub fn processes(matches: impl Fn(&str, &str) -> bool) -> Vec<Pid> {
    let text = |pid: Pid, file: &str| {
        let bytes = fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero())).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let mut found = all();
    found.retain(|pid| matches(&text(*pid, "cmdline"), &text(*pid, "environ")));
    found
}

/// Returns true if the process exists. It may have ended and wait to be reaped.
pub fn lives(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

/// Returns true if the process has ended. It may still wait to be reaped.
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

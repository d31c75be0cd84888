//! Finding processes.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, getpid, test_kill_process};

/// Returns the processes whose working directory is in the folder, or whose arguments or environment name the folder.
/// The arguments of a spawner do not count, because a spawner lives as long as its daemon.
pub fn left_over(folder: &Path) -> Vec<Pid> {
    let name = folder.to_str().unwrap();
    let works_there = |pid: Pid| {
        fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero())).is_ok_and(|cwd| cwd.starts_with(folder))
    };
    let named = processes(|arguments, environment| {
        (arguments.contains(name) && !is_spawner(arguments)) || environment.contains(name)
    });
    let mut found = all();
    found.retain(|pid| works_there(*pid) || named.contains(pid));
    found
}

/// Returns whether the arguments are those of a spawner.
fn is_spawner(arguments: &str) -> bool {
    arguments.contains(" keeper spawner ")
}

/// Returns the spawners of the daemons whose state folder is in the folder.
pub fn spawners(folder: &Path) -> Vec<Pid> {
    let name = folder.to_str().unwrap();
    processes(|arguments, _| is_spawner(arguments) && arguments.contains(name))
}

/// Returns the processes for which `matches` returns true. `matches` gets the arguments and the environment, each
/// joined with spaces.
pub fn processes(matches: impl Fn(&str, &str) -> bool) -> Vec<Pid> {
    let text = |pid: Pid, file: &str| {
        let bytes = fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero())).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let mut found = all();
    found.retain(|pid| matches(&text(*pid, "cmdline"), &text(*pid, "environ")));
    found
}

/// Returns true if the process exists, even if it has ended and waits to be reaped.
pub fn lives(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

/// Returns true if the process has ended with all its threads. The process may still wait to be reaped.
pub fn has_ended(pid: Pid) -> bool {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let is_zombie = fs::read_to_string(format!("{folder}/stat")).unwrap_or_default().contains(") Z");
    // The process is a zombie if its first thread has ended, even while other threads run and hold descriptors.
    let threads = || fs::read_dir(format!("{folder}/task")).map_or(0, Iterator::count);
    !lives(pid) || (is_zombie && threads() <= 1)
}

/// Returns all processes except the current one.
fn all() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| *pid != getpid()).collect()
}

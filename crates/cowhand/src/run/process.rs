//! Processes as the kernel shows them: who lives, who descends from whom.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process for good: its number is used again, but not with the same start time in the same boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) pid: i32,
    pub(super) start_ticks: u64,
    pub(super) boot_id: String,
}

impl Identity {
    /// None if there is no such process.
    pub(super) fn of(pid: i32) -> Option<Self> {
        let stat = Stat::of(pid)?;
        Some(Self { pid, start_ticks: stat.start_ticks, boot_id: boot_id()? })
    }

    pub(super) fn lives(&self) -> bool {
        let same = Self::of(self.pid).is_some_and(|now| now == *self);
        same && Stat::of(self.pid).is_some_and(|stat| !stat.zombie)
    }

    /// Says whether it was there to be signalled. The descriptor is taken before the identity is checked, so that
    /// the signal cannot go to a stranger with the same number.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        self.lives() && pidfd_send_signal(&process, signal).is_ok()
    }
}

fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

#[derive(Debug, Clone, Copy)]
struct Stat {
    parent: i32,
    group: i32,
    start_ticks: u64,
    zombie: bool,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything, parentheses included; the fields come after the last one.
        let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
        let zombie = matches!(*fields.first()?, "Z" | "X");
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
            zombie,
        })
    }
}

/// Every living process below `root`, also those that made a session of their own: a subreaper stays the ancestor
/// of all that descends from it.
pub(super) fn descendants(root: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in all_pids() {
        if let Some(stat) = Stat::of(pid).filter(|stat| !stat.zombie) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let (mut found, mut open) = (Vec::new(), vec![root]);
    while let Some(parent) = open.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        found.extend(&below);
        open.extend(below);
    }
    found
}

/// The members of this process's group but for itself and its children: who runs inside of a wrapper and of what the
/// wrapper makes the first process in there.
pub(super) fn inside(wrapper: i32) -> Vec<i32> {
    let member = |pid: &i32| {
        Stat::of(*pid).is_some_and(|stat| stat.group == wrapper && stat.parent != wrapper && !stat.zombie)
    };
    all_pids().filter(|pid| *pid != wrapper).filter(member).collect()
}

/// Every living process that was started for this attempt, by the mark that it inherits in its environment: the
/// last resort when nobody is left who was their ancestor.
pub(super) fn marked(mark: &str) -> Vec<i32> {
    let carries = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    all_pids().filter(|pid| *pid != own).filter(carries).collect()
}

fn all_pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub(super) fn signal_all(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        // One that has just gone needs no signal.
        rustix::process::kill_process(pid, signal).ok();
    }
}

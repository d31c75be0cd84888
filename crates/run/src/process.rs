//! Processes as `/proc` shows them: their identity, their descendants, and the attempts that they belong to.

use std::collections::HashMap;
use std::fs;
use std::io;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Unique identity of a process: a pid is used again, but not with the same start time in the same boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub(super) pid: i32,
    pub(super) start_ticks: u64,
    pub(super) boot_id: String,
}

impl ProcessIdentity {
    /// Returns the identity of a process; `None` if the process does not exist or is hidden from this user.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        let Some(stat) = Stat::of(pid)? else { return Ok(None) };
        Ok(Some(Self { pid, start_ticks: stat.start_ticks, boot_id: boot_id()? }))
    }

    /// Returns true if the process lives. A zombie has ended.
    pub fn lives(&self) -> io::Result<bool> {
        let same = Self::of(self.pid)?.is_some_and(|now| now == *self);
        Ok(same && Stat::of(self.pid)?.is_some_and(|stat| !stat.has_ended))
    }

    /// Sends a signal, and returns whether it was sent. A process that has ended gets no signal. The descriptor is
    /// opened before the identity is checked, so that the signal cannot go to another process with the same pid.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        self.lives().unwrap_or(false) && pidfd_send_signal(&process, signal).is_ok()
    }
}

/// Signal that asks an agent to stop. Some agents write their result only after an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopSignal {
    Interrupt,
    Terminate,
}

impl StopSignal {
    pub(super) const fn signal(self) -> Signal {
        match self {
            Self::Interrupt => Signal::INT,
            Self::Terminate => Signal::TERM,
        }
    }
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Reads a file of a process in `/proc`. Returns `None` if the process has ended or the file is not readable for this
/// user. Any other error, for example too many open files, is returned, because it does not mean that the process has
/// ended.
fn read(pid: i32, file: &str) -> io::Result<Option<Vec<u8>>> {
    match fs::read(format!("/proc/{pid}/{file}")) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_missing(&error) || error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

#[derive(Debug, Clone, Copy)]
struct Stat {
    parent: i32,
    group: i32,
    start_ticks: u64,
    /// True if all threads of the process have ended, although its parent has not reaped it yet.
    has_ended: bool,
    /// True if a signal or a debugger has stopped the process.
    is_stopped: bool,
}

impl Stat {
    /// Reads the status of a process. Returns `None` if the process does not exist or is hidden from this user.
    fn of(pid: i32) -> io::Result<Option<Self>> {
        Ok(read(pid, "stat")?.and_then(|text| Self::parse(&String::from_utf8_lossy(&text))))
    }

    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may contain parentheses; the fields follow the last closing one.
        let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
        let threads: u32 = fields.get(17)?.parse().ok()?;
        let state = *fields.first()?;
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
            // If only the first thread has ended, the kernel shows the process as a zombie, although its other threads
            // may work for hours.
            has_ended: matches!(state, "Z" | "X") && threads <= 1,
            is_stopped: matches!(state, "T" | "t"),
        })
    }
}

/// Returns every living descendant of `root`. If `root` is a subreaper, it remains the ancestor of processes that start
/// their own session or whose parent has ended, so these are found too.
pub(super) fn descendants(root: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in all_pids().unwrap_or_default() {
        // A process that cannot be read now is found at the next check.
        if let Ok(Some(stat)) = Stat::of(pid)
            && !stat.has_ended
        {
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

/// Returns the living processes inside a bubblewrap sandbox. `wrapper` is the outer process of bubblewrap. The
/// processes inside are the members of its process group, without `wrapper` itself and its children.
pub(super) fn inside(wrapper: i32) -> Vec<i32> {
    let member = |pid: &i32| {
        let stat = Stat::of(*pid).ok().flatten();
        stat.is_some_and(|stat| stat.group == wrapper && stat.parent != wrapper && !stat.has_ended)
    };
    all_pids().unwrap_or_default().into_iter().filter(|pid| *pid != wrapper).filter(member).collect()
}

/// The mark: name of the variable that every process of an attempt inherits. Its value is the attempt's name.
pub(super) const ATTEMPT_VARIABLE: &str = "COWHAND_ATTEMPT_ID";
/// Prefix of the name of an attempt's control group.
pub(super) const CGROUP_PREFIX: &str = "cowhand-";

/// Lists the living processes of an attempt, without this process. A process is recognised by its mark or by its
/// control group, so it is found even if the keeper, which is the common ancestor, has ended.
pub(super) fn of_attempt(name: &str) -> io::Result<Vec<i32>> {
    let of_all = of_attempts()?;
    let own = |names: &[String]| names.iter().any(|own| own == name);
    Ok(of_all.into_iter().filter(|(_, names)| own(names)).map(|(pid, _)| pid).collect())
}

/// Lists the living processes of all attempts of all fleets, without this process. Returns each process with the names
/// of its attempts.
pub(super) fn of_attempts() -> io::Result<Vec<(i32, Vec<String>)>> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let mut found = Vec::new();
    for pid in all_pids()?.into_iter().filter(|pid| *pid != own) {
        let names = attempts_of(pid)?;
        if !names.is_empty() && Stat::of(pid)?.is_some_and(|stat| !stat.has_ended) {
            found.push((pid, names));
        }
    }
    Ok(found)
}

/// Returns the names of the attempts of a process. The names from its mark come first. The names from its control group
/// follow: a process that clears its environment loses its mark, but stays in its control group. This order matters
/// because the API tries the last name first, and a control group is harder to forge than a mark.
fn attempts_of(pid: i32) -> io::Result<Vec<String>> {
    let environment = read(pid, "environ")?.unwrap_or_default();
    let marks = environment.split(|byte| *byte == 0).filter_map(|variable| {
        let value = variable.strip_prefix(ATTEMPT_VARIABLE.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    });
    let groups = read(pid, "cgroup")?.unwrap_or_default();
    let groups = String::from_utf8_lossy(&groups).into_owned();
    Ok(marks.chain(names_of_groups(&groups).map(str::to_owned)).collect())
}

/// Returns the names of the attempts in `/proc/PID/cgroup`. In each line the outermost group comes last, because a
/// process can make groups in its own group, with any names.
fn names_of_groups(groups: &str) -> impl Iterator<Item = &str> {
    let groups = groups.lines().flat_map(|line| line.split('/').rev());
    groups.filter_map(|group| group.strip_prefix(CGROUP_PREFIX))
}

/// Returns the names of the attempts of a process and its ancestors, without repetitions; `None` if the process does
/// not exist. The names of the process come first, and the names of each ancestor follow. A name that several of these
/// processes have is at the place of the most distant of them. So the names of the most distant ancestor are always
/// last, whatever names its descendants have. A keeper is the subreaper of its attempt, so it is an ancestor also of
/// processes that have their own session or whose parent has ended.
pub fn attempts_above(pid: i32) -> io::Result<Option<Vec<String>>> {
    let mut names = Vec::new();
    let (mut child, mut next) = (pid, pid);
    for _ in 0..MAX_ANCESTORS {
        let Some(stat) = Stat::of(next)? else {
            match Stat::of(child)? {
                // The ancestor is hidden by `hidepid`, so it belongs to another user and is not a keeper of this user.
                Some(stat) if next != pid && stat.parent == next => return Ok(Some(names)),
                Some(_) => next = child,
                None if child == pid => return Ok(None),
                // The ancestor and its child have ended meanwhile, so the search starts again.
                None => {
                    names.clear();
                    (child, next) = (pid, pid);
                }
            }
            continue;
        };
        // A process whose parent ended meanwhile is read twice.
        for name in attempts_of(next)? {
            names.retain(|earlier| *earlier != name);
            names.push(name);
        }
        if stat.parent <= 1 {
            return Ok(Some(names));
        }
        (child, next) = (next, stat.parent);
    }
    Err(io::Error::other(format!("the process {pid} has more than {MAX_ANCESTORS} ancestors")))
}

/// Maximum number of processes that are read for one request. No real process has so many ancestors.
const MAX_ANCESTORS: usize = 1000;

fn all_pids() -> io::Result<Vec<i32>> {
    let entries = fs::read_dir("/proc")?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Returns the processes whose arguments, each with a NUL byte at its end, fulfil a condition.
pub(super) fn with_arguments(matches: impl Fn(&[u8]) -> bool) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for pid in all_pids()? {
        if read(pid, "cmdline")?.is_some_and(|arguments| matches(&arguments)) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Returns whether a signal or a debugger has stopped a process.
pub(super) fn is_stopped(pid: i32) -> bool {
    matches!(Stat::of(pid), Ok(Some(stat)) if stat.is_stopped)
}

/// Returns whether a process has neither ended nor been stopped.
pub(super) fn runs(pid: i32) -> bool {
    matches!(Stat::of(pid), Ok(Some(stat)) if !stat.has_ended && !stat.is_stopped)
}

pub(super) fn signal_all(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        // The process may have just ended.
        rustix::process::kill_process(pid, signal).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    /// The kernel shows a process whose first thread has ended as a zombie, although its other threads work.
    #[test]
    fn a_process_whose_first_thread_has_ended_lives() {
        let script = "import ctypes, threading\n\
                      def work():\n    print('up', flush=True)\n    threading.Event().wait()\n\
                      threading.Thread(target=work).start()\n\
                      ctypes.CDLL(None).pthread_exit(None)\n";
        let mut child = Command::new("python3").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        let pid = i32::try_from(child.id()).unwrap();
        let identity = ProcessIdentity::of(pid).unwrap().unwrap();
        let first_thread_has_ended =
            || String::from_utf8_lossy(&read(pid, "stat").unwrap().unwrap()).contains(") Z");
        while !first_thread_has_ended() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(identity.lives().unwrap());
        assert!(descendants(i32::try_from(std::process::id()).unwrap()).contains(&pid));
        assert!(identity.signal(Signal::KILL));
        child.wait().unwrap();
        assert!(!identity.lives().unwrap());
    }

    /// An agent can give its processes the mark of another job, and below them its own mark again.
    #[test]
    fn the_name_of_the_oldest_ancestor_is_last_even_if_a_descendant_repeats_it() {
        let (own, other) = ("test-repeated-own.1", "test-repeated-other.1");
        // The `:` keeps each shell alive, which would otherwise become its last command.
        let script =
            r#"COWHAND_ATTEMPT_ID=$OTHER sh -c 'COWHAND_ATTEMPT_ID=$OWN sh -c "echo \$\$; read line"; :'; :"#;
        let mut child = Command::new("sh")
            .args(["-c", script])
            .envs([(ATTEMPT_VARIABLE, own), ("OWN", own), ("OTHER", other)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut names = attempts_above(line.trim().parse().unwrap()).unwrap().unwrap();
        // The test itself may run in an attempt.
        names.retain(|name| name.starts_with("test-repeated-"));
        assert_eq!(names, [other, own]);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn the_outermost_control_group_is_last() {
        for (groups, expected) in [
            ("0::/user.slice/cowhand-a.1\n", vec!["a.1"]),
            ("0::/user.slice/cowhand-a.1/cowhand-b.1/x\n", vec!["b.1", "a.1"]),
            ("4:memory:/cowhand-a.1\n0::/cowhand-a.1/cowhand-b.1\n", vec!["a.1", "b.1", "a.1"]),
            ("4:memory:/x\n0::/\n", vec![]),
        ] {
            assert_eq!(names_of_groups(groups).collect::<Vec<_>>(), expected, "{groups}");
        }
    }
}

//! Resource limits of an attempt, set by control groups. Each limit needs a controller of the kernel.
//!
//! A machine may have control groups of version 1 and of version 2, each with some of the controllers. Version 2 has
//! one group for all its controllers; in version 1 each controller has its own hierarchy.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cowhand_core::sandbox::Caps;

use super::attempt::Attempt;
use super::cgroup::{self, Cgroup};
use super::clone_into::{self, CloneError};

/// Accounting period of processor time, in microseconds.
const CPU_PERIOD_MICROS: u64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Memory,
    Pids,
    Cpu,
}

impl Controller {
    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

/// All control groups of one attempt.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Group of version 2, by which all processes can be killed at once.
    tree: Option<Cgroup>,
    /// Set if `tree` has limits.
    tree_limits: bool,
    /// Groups of version 1, each with its limit.
    limits: Vec<Group>,
    caps: Caps,
}

#[derive(Debug, Clone)]
struct Group {
    path: PathBuf,
    own_group: PathBuf,
}

impl Groups {
    /// Creates the groups and sets their limits. The inner error states why this machine cannot enforce the caps; the
    /// outer error means that the groups could not be recorded in the attempt's folder. Without caps, control groups
    /// are optional.
    pub(super) fn create(attempt: &Attempt, caps: &Caps) -> io::Result<Result<Self, CapsError>> {
        let groups = match Self::make(attempt.name(), caps) {
            Ok(groups) => groups,
            Err(why) => return Ok(Err(why)),
        };
        // The groups are recorded before a process is started in them.
        groups.record(attempt)?;
        Ok(Ok(groups))
    }

    /// Starts the command inside the groups, and returns its process id.
    pub(super) fn spawn(&mut self, command: &mut Command) -> Result<i32, SpawnError> {
        let entered = self.limits.iter().try_for_each(|group| enter(&group.path));
        let spawned = match entered {
            Ok(()) => self.spawn_in_tree(command),
            Err(error) => Err(SpawnError::NotEnforced(refusal(error.into()))),
        };
        for group in &self.limits {
            // If this fails, the limits also apply to the keeper; the attempt can still run.
            cgroup::move_self(&group.own_group).ok();
        }
        spawned
    }

    fn spawn_in_tree(&mut self, command: &mut Command) -> Result<i32, SpawnError> {
        let Some(tree) = &self.tree else { return spawn(command) };
        let cloned = match File::open(tree.path()) {
            Ok(folder) => clone_into::spawn_inside(folder.as_fd(), command),
            Err(_) => Err(CloneError::NotCloned),
        };
        match cloned {
            Ok(child) => Ok(child),
            Err(CloneError::NotExecuted(error)) => Err(SpawnError::NotStarted(error)),
            // The kernel may be too old for `clone3`, a seccomp filter may refuse it, or this process may have another
            // thread.
            Err(CloneError::NotCloned) => self.spawn_after_move(command),
        }
    }

    /// Moves this process into the group of version 2, starts the command, and moves this process back. The process of
    /// the command stays in the group.
    fn spawn_after_move(&mut self, command: &mut Command) -> Result<i32, SpawnError> {
        let Some(tree) = self.tree.as_ref() else { return spawn(command) };
        let entered = enter(tree.path());
        match entered {
            Ok(()) => {
                let spawned = spawn(command);
                if tree.leave().is_err() {
                    self.tree = None;
                }
                spawned
            }
            Err(error) if self.tree_limits => Err(SpawnError::NotEnforced(refusal(error.into()))),
            Err(_) => {
                remove_group(tree.path());
                self.tree = None;
                spawn(command)
            }
        }
    }

    fn make(name: &str, caps: &Caps) -> Result<Self, CapsError> {
        let needed = needed(caps);
        if needed.is_empty() {
            return Ok(Self { tree: Cgroup::make(name).ok(), ..Self::default() });
        }
        let own = fs::read_to_string("/proc/self/mountinfo").and_then(|mounts| {
            let groups = fs::read_to_string("/proc/self/cgroup")?;
            Ok(needed.iter().map(|controller| v1_group(&mounts, &groups, *controller)).collect::<Vec<_>>())
        });
        let own_groups = own.map_err(|error| refusal(error.into()))?;
        let mut made = Self { caps: *caps, ..Self::default() };
        let v2_controllers: Vec<Controller> = needed
            .iter()
            .zip(&own_groups)
            .filter(|(_, own_group)| own_group.is_none())
            .map(|(own, _)| *own)
            .collect();
        let result = made.make_tree(name, &v2_controllers).and_then(|()| {
            let v1_controllers =
                needed.iter().zip(own_groups).filter_map(|(own, own_group)| Some((*own, own_group?)));
            v1_controllers
                .into_iter()
                .try_for_each(|(controller, own_group)| made.make_limit(name, controller, own_group))
        });
        match result {
            Ok(()) => Ok(made),
            Err(why) => {
                made.remove();
                Err(refusal(why))
            }
        }
    }

    /// Creates the group of version 2 with limits for these controllers. Without controllers the group is optional and
    /// has no limits.
    fn make_tree(&mut self, name: &str, controllers: &[Controller]) -> Result<(), CapsError> {
        if controllers.is_empty() {
            self.tree = Cgroup::make(name).ok();
            return Ok(());
        }
        let own_group = cgroup::own_group_folder()?;
        let words: Vec<&str> = controllers.iter().map(|controller| controller.name()).collect();
        let parent = with_controllers(&own_group, &words)?;
        let tree = Cgroup::make_in(&parent, name, own_group)
            .map_err(|error| CapsError::NoGroup { parent: parent.clone(), error })?;
        let path = tree.path().to_owned();
        self.tree = Some(tree);
        self.tree_limits = true;
        for controller in controllers {
            set_limit_v2(&path, *controller, &self.caps)?;
        }
        Ok(())
    }

    /// Creates the group of version 1 for one controller.
    fn make_limit(
        &mut self,
        name: &str,
        controller: Controller,
        own_group: PathBuf,
    ) -> Result<(), CapsError> {
        let path = own_group.join(format!("{}{name}", super::process::CGROUP_PREFIX));
        fs::create_dir(&path).map_err(|error| CapsError::NoGroup { parent: own_group.clone(), error })?;
        // The group is added before its limit is set, so that the group is also removed if the limit cannot be set.
        self.limits.push(Group { path: path.clone(), own_group });
        set_limit_v1(&path, controller, &self.caps)
    }

    fn record(&self, attempt: &Attempt) -> io::Result<()> {
        if let Some(tree) = &self.tree {
            attempt.record_cgroup(tree)?;
        }
        let paths: Vec<&Path> = self.limits.iter().map(|group| group.path.as_path()).collect();
        if paths.is_empty() { Ok(()) } else { attempt.record_caps(&paths) }
    }

    /// Kills all processes in the group of version 2. Returns false if there is no such group, or if the kill failed.
    pub(super) fn kill(&self) -> bool {
        self.tree.as_ref().is_some_and(|tree| tree.kill().is_ok())
    }

    /// Returns the group of version 2, if there is one.
    pub(super) const fn tree(&self) -> Option<&Cgroup> {
        self.tree.as_ref()
    }

    /// Removes the groups, and returns whether all of them are removed.
    pub(super) fn remove(&self) -> bool {
        let limits = self.limits.iter().map(|group| remove_group(&group.path)).collect::<Vec<_>>();
        let tree = self.tree.as_ref().is_none_or(|tree| remove_group(tree.path()));
        tree && limits.into_iter().all(|gone| gone)
    }

    /// Describes the caps that were reached.
    pub(super) fn reached(&self) -> Vec<String> {
        let tree = self.tree.as_ref().map(|tree| tree.path().to_owned());
        let groups: Vec<PathBuf> = self.limits.iter().map(|group| group.path.clone()).chain(tree).collect();
        reached(&groups, &self.caps)
    }
}

/// Returns how many processes of these groups the kernel has ended because of a cap on memory; `None` if that cannot be
/// read, for example because the groups are removed.
pub(super) fn killed_for_memory(groups: &[PathBuf]) -> Option<u64> {
    let count = |file: &str| groups.iter().find_map(|group| read_counter(&group.join(file), "oom_kill"));
    count("memory.events").or_else(|| count("memory.oom_control"))
}

/// Describes which of these caps were reached in these groups.
pub(super) fn reached(groups: &[PathBuf], caps: &Caps) -> Vec<String> {
    let refused = groups.iter().find_map(|group| read_counter(&group.join("pids.events"), "max"));
    let mut notes = Vec::new();
    if let (Some(bytes), Some(times @ 1..)) = (caps.memory, killed_for_memory(groups)) {
        notes.push(format!("{}; processes ended by the kernel: {times}", memory_reached(bytes)));
    }
    if let (Some(most), Some(times @ 1..)) = (caps.pids, refused) {
        notes.push(format!(
            "the sandbox's cap on processes ({most}) was reached; processes that could not be created: {times}"
        ));
    }
    notes
}

pub(super) fn memory_reached(bytes: u64) -> String {
    format!("the sandbox's cap on memory ({bytes} bytes) was reached")
}

/// Returns the groups in which the kernel counts the memory and the processes of another process; an empty list if they
/// are not visible.
pub(super) fn of_process(pid: i64) -> Vec<PathBuf> {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return Vec::new() };
    let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return Vec::new() };
    // For a process that is ending, version 1 of control groups states the root group. The counters of the root group
    // are not those of the process.
    let groups: Vec<_> = groups.lines().filter(|line| !line.ends_with(":/")).collect();
    let groups = groups.join("\n");
    let one = [Controller::Memory, Controller::Pids].map(|controller| v1_group(&mounts, &groups, controller));
    one.into_iter().flatten().chain(cgroup::own_group(&mounts, &groups)).collect()
}

/// Why caps on memory, processes or processor time are not available on this machine. The message is for people.
#[derive(Debug, thiserror::Error)]
pub enum CapsError {
    #[error("its caps on memory, processes or processor time cannot be enforced here: {0}")]
    NotEnforced(Box<Self>),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("cannot create a control group in {}: {error}", parent.display())]
    NoGroup { parent: PathBuf, error: io::Error },
    #[error(
        "the control group {} cannot delegate {controllers}; under systemd, set Delegate=yes and DelegateSubgroup=daemon in the service",
        own_group.display()
    )]
    NotDelegated { own_group: PathBuf, controllers: String },
    #[error("{} says {shown:?} after {limit} was written", file.display())]
    NotInForce { file: PathBuf, shown: String, limit: u64 },
    #[error("{} cannot be set to {text}: {error}", file.display())]
    NotSet { file: PathBuf, text: String, error: io::Error },
}

/// Why a command was not started in its groups.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error(transparent)]
    NotEnforced(CapsError),
    #[error(transparent)]
    NotStarted(io::Error),
}

fn refusal(why: CapsError) -> CapsError {
    CapsError::NotEnforced(Box::new(why))
}

fn needed(caps: &Caps) -> Vec<Controller> {
    let memory = caps.memory.map(|_| Controller::Memory);
    let (pids, cpu) = (caps.pids.map(|_| Controller::Pids), caps.cpu.map(|_| Controller::Cpu));
    [memory, pids, cpu].into_iter().flatten().collect()
}

fn remove_group(path: &Path) -> bool {
    match fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn spawn(command: &mut Command) -> Result<i32, SpawnError> {
    let child = command.spawn().map_err(SpawnError::NotStarted)?;
    i32::try_from(child.id()).map_err(|error| SpawnError::NotStarted(io::Error::other(error)))
}

/// Moves this process into the group.
fn enter(group: &Path) -> io::Result<()> {
    cgroup::move_self(group)?;
    check_is_member(group)
}

/// Checks that this process is in the group.
fn check_is_member(group: &Path) -> io::Result<()> {
    let own = std::process::id().to_string();
    let inside = fs::read_to_string(group.join("cgroup.procs"))?;
    if inside.lines().any(|pid| pid == own) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "this process is not in the control group {} after it was moved there",
        group.display()
    )))
}

/// Reads a counter from lines such as `oom_kill 3` or `max 7`.
fn read_counter(file: &Path, word: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
}

/// Returns the folder of a process's group in the version 1 hierarchy of a controller. `groups` is the process's file
/// `/proc/PID/cgroup`.
fn v1_group(mounts: &str, groups: &str, controller: Controller) -> Option<PathBuf> {
    let named = |list: &str| list.split(',').any(|word| word == controller.name());
    let (root, mount) = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let fields: Vec<&str> = left.split(' ').collect();
        let kind: Vec<&str> = right.split(' ').collect();
        let fits = kind.first() == Some(&"cgroup") && kind.last().is_some_and(|options| named(options));
        fits.then_some((*fields.get(3)?, *fields.get(4)?))
    })?;
    let own = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (list, path) = rest.split_once(':')?;
        named(list).then_some(path)
    })?;
    let below = own.strip_prefix(root.trim_end_matches('/')).unwrap_or(own);
    Some(Path::new(mount).join(below.trim_start_matches('/')))
}

/// Returns a group whose children can have these controllers: `own_group` or, since a group with processes cannot
/// delegate controllers, the parent of `own_group`.
fn with_controllers(own_group: &Path, words: &[&str]) -> Result<PathBuf, CapsError> {
    let enable = words.iter().map(|word| format!("+{word}")).collect::<Vec<_>>().join(" ");
    let delegates = |group: &Path| {
        let file = group.join("cgroup.subtree_control");
        // An error is ignored, because the controllers may already be enabled.
        fs::write(&file, &enable).ok();
        let enabled = fs::read_to_string(&file).unwrap_or_default();
        words.iter().all(|word| enabled.split_whitespace().any(|enabled| enabled == *word))
    };
    let above = own_group.parent().filter(|above| above.join("cgroup.subtree_control").exists());
    [Some(own_group), above]
        .into_iter()
        .flatten()
        .find(|group| delegates(group))
        .map(Path::to_owned)
        .ok_or_else(|| CapsError::NotDelegated {
            own_group: own_group.to_owned(),
            controllers: words.join(", "),
        })
}

fn set_limit_v1(group: &Path, controller: Controller, caps: &Caps) -> Result<(), CapsError> {
    match controller {
        Controller::Memory => {
            let bytes = caps.memory.unwrap_or_default();
            put(group, "memory.limit_in_bytes", bytes)?;
            // This file limits memory and swap together. It exists only if the kernel counts swap.
            if group.join("memory.memsw.limit_in_bytes").exists() {
                put(group, "memory.memsw.limit_in_bytes", bytes)?;
            }
            Ok(())
        }
        Controller::Pids => put(group, "pids.max", u64::from(caps.pids.unwrap_or_default())),
        Controller::Cpu => {
            put(group, "cpu.cfs_period_us", CPU_PERIOD_MICROS)?;
            put(group, "cpu.cfs_quota_us", quota(caps))
        }
    }
}

fn set_limit_v2(group: &Path, controller: Controller, caps: &Caps) -> Result<(), CapsError> {
    match controller {
        Controller::Memory => {
            put(group, "memory.max", caps.memory.unwrap_or_default())?;
            if group.join("memory.swap.max").exists() {
                put(group, "memory.swap.max", 0)?;
            }
            Ok(())
        }
        Controller::Pids => put(group, "pids.max", u64::from(caps.pids.unwrap_or_default())),
        Controller::Cpu => write(group, "cpu.max", &format!("{} {CPU_PERIOD_MICROS}", quota(caps))),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the config bounds it to a thousand processors"
)]
fn quota(caps: &Caps) -> u64 {
    (caps.cpu.unwrap_or_default() * CPU_PERIOD_MICROS as f64) as u64
}

/// Writes a limit and reads it again: if the kernel shows a higher limit or none, the limit is not in force.
fn put(group: &Path, file: &str, limit: u64) -> Result<(), CapsError> {
    write(group, file, &limit.to_string())?;
    let shown = fs::read_to_string(group.join(file)).unwrap_or_default();
    match shown.trim().parse::<u64>() {
        Ok(holds) if holds <= limit => Ok(()),
        _ => Err(CapsError::NotInForce { file: group.join(file), shown: shown.trim().to_owned(), limit }),
    }
}

fn write(group: &Path, file: &str, text: &str) -> Result<(), CapsError> {
    let path = group.join(file);
    let written = fs::OpenOptions::new().write(true).open(&path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.flush()
    });
    written.map_err(|error| CapsError::NotSet { file: path, text: text.to_owned(), error })
}

/// Checks whether this machine can enforce all caps, by creating groups and removing them. Returns a sentence part that
/// states the version of the control groups.
pub fn ability() -> Result<String, CapsError> {
    let caps = Caps { memory: Some(1 << 30), pids: Some(1_000), cpu: Some(1.0) };
    let groups = Groups::make(&format!("doctor-{}", std::process::id()), &caps)?;
    let one = groups.limits.len();
    groups.remove();
    Ok(match one {
        0 => "memory, processes and processor time by control groups of version 2".to_owned(),
        3 => "memory, processes and processor time by control groups of version 1".to_owned(),
        _ => "memory, processes and processor time by control groups of both versions".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
    const UNIFIED: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

    #[test]
    fn the_cgroup_of_each_controller_is_found() {
        use Controller::{Cpu, Memory, Pids};
        let groups = "5:memory:/a/b\n1:cpu,cpuacct:/\n0::/";
        for (mounts, controller, expected) in [
            (HYBRID, Memory, Some("/sys/fs/cgroup/memory/a/b")),
            (HYBRID, Cpu, Some("/sys/fs/cgroup/cpu,cpuacct")),
            (HYBRID, Pids, None),
            (UNIFIED, Memory, None),
        ] {
            assert_eq!(v1_group(mounts, groups, controller), expected.map(PathBuf::from), "{controller:?}");
        }
        let contained = "35 31 0:32 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory";
        let own = v1_group(contained, "5:memory:/docker/x/y", Memory);
        assert_eq!(own, Some(PathBuf::from("/sys/fs/cgroup/memory/y")));
    }

    #[test]
    fn cgroup_v2_without_delegation_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let daemon = top.path().join("daemon");
        fs::create_dir(&daemon).unwrap();
        let file = |group: &Path| group.join("cgroup.subtree_control");
        // A write to a folder fails, like a write to this file of a group with processes.
        fs::create_dir(file(&daemon)).unwrap();
        fs::create_dir(file(top.path())).unwrap();
        let refused = with_controllers(&daemon, &["memory", "pids"]).unwrap_err().to_string();
        assert!(refused.contains("cannot delegate memory, pids"), "{refused}");
        assert!(refused.contains("Delegate=yes"), "{refused}");
    }

    #[test]
    fn cgroup_v2_limits_are_written() {
        let group = tempfile::tempdir().unwrap();
        for file in ["memory.max", "memory.swap.max", "pids.max", "cpu.max"] {
            fs::write(group.path().join(file), "").unwrap();
        }
        let caps = Caps { memory: Some(1_000_000), pids: Some(64), cpu: Some(0.5) };
        for controller in needed(&caps) {
            set_limit_v2(group.path(), controller, &caps).unwrap();
        }
        let read = |file: &str| fs::read_to_string(group.path().join(file)).unwrap();
        assert_eq!(
            [read("memory.max"), read("memory.swap.max"), read("pids.max"), read("cpu.max")],
            ["1000000", "0", "64", "50000 100000"]
        );
    }
}

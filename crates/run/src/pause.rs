//! Pausing the processes of an attempt, without their cooperation.
//!
//! The control group of the attempt is frozen, if the attempt has one. Otherwise every process gets SIGSTOP, again and
//! again until none runs, because a process may start another one meanwhile. The processes of a container are not
//! descendants of the keeper: the container engine pauses them.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use super::attempt::Attempt;
use super::cgroup::Cgroup;
use super::folder_access::log_error;
use super::process;
use super::sandbox::docker::leftover::{ContainerPause, pause_container_of, resume_container_of};

/// Time between two looks at processes that are being paused.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Time for which one call waits until all processes are paused. A process that the kernel cannot stop yet, for example
/// because it waits for a disk, stops before it works again.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// Time for the engine to pause a container.
const CONTAINER_TIMEOUT: Duration = Duration::from_secs(2);

/// The paused processes of an attempt.
#[derive(Debug)]
pub(super) struct AgentPause<'a> {
    attempt: &'a Attempt,
    /// Process whose descendants are paused.
    keeper: i32,
    /// The frozen control group. `None` if the processes are stopped by signals.
    frozen: Option<Cgroup>,
    /// Processes that were stopped before the pause. They stay stopped after it.
    stopped_before: BTreeSet<i32>,
    container: ContainerPause,
}

impl<'a> AgentPause<'a> {
    /// Pauses the processes below `keeper`, which are in `group` if there is one.
    pub(super) async fn begin(attempt: &'a Attempt, keeper: i32, group: Option<&Cgroup>) -> Self {
        let frozen = group.filter(|group| match group.freeze() {
            Ok(()) => true,
            Err(error) => {
                log_error(attempt.folder(), &format!("cannot freeze the control group: {error}"));
                false
            }
        });
        let (frozen, container) = (frozen.cloned(), ContainerPause::NotPaused);
        let mut pause = Self { attempt, keeper, frozen, stopped_before: BTreeSet::new(), container };
        let own = pause.own_processes().into_iter().chain(pause.outside_processes());
        pause.stopped_before = own.filter(|pid| process::is_stopped(*pid)).collect();
        pause.hold().await;
        pause
    }

    /// Pauses processes that still run or run again, and waits a limited time until all are paused.
    pub(super) async fn hold(&mut self) {
        if self.container == ContainerPause::NotPaused {
            let paused = tokio::time::timeout(CONTAINER_TIMEOUT, pause_container_of(self.attempt)).await;
            self.container = match paused {
                Ok(Ok(container)) => container,
                Ok(Err(why)) => {
                    log_error(self.attempt.folder(), &format!("cannot pause the container: {why}"));
                    ContainerPause::NotPaused
                }
                // Its processes are stopped by signals, and the engine is asked again later.
                Err(_) => ContainerPause::NotPaused,
            };
        }
        let until = Instant::now() + MAX_WAIT;
        while !self.hold_once() && Instant::now() < until {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Stops the processes that run, and returns whether there were none.
    fn hold_once(&self) -> bool {
        let is_frozen = self.frozen.as_ref().is_none_or(Cgroup::is_frozen);
        let mut running = self.own_processes();
        running.extend(self.outside_processes());
        running.retain(|pid| process::runs(*pid));
        process::signal_all(&running, Signal::STOP);
        running.is_empty() && is_frozen
    }

    /// Returns the processes that need a signal, each after its parent.
    fn own_processes(&self) -> Vec<i32> {
        if self.frozen.is_some() { Vec::new() } else { process::descendants(self.keeper) }
    }

    /// Returns the processes of a container that its engine has not paused.
    fn outside_processes(&self) -> Vec<i32> {
        if self.container != ContainerPause::NotPaused {
            return Vec::new();
        }
        let inside = process::descendants(self.keeper);
        let marked = process::of_attempt(self.attempt.name()).unwrap_or_default();
        marked.into_iter().filter(|pid| *pid != self.keeper && !inside.contains(pid)).collect()
    }

    /// Lets the processes continue, and returns whether all of them do. A process continues before its parent does, so
    /// that a parent that waits for stopped children does not see them stopped.
    pub(super) async fn end(&self) -> bool {
        let mut stopped = self.own_processes();
        stopped.extend(self.outside_processes());
        stopped.retain(|pid| process::is_stopped(*pid) && !self.stopped_before.contains(pid));
        stopped.reverse();
        process::signal_all(&stopped, Signal::CONT);
        let log = |what: &str| log_error(self.attempt.folder(), what);
        if self.container != ContainerPause::NoContainer
            && let Err(why) = resume_container_of(self.attempt).await
            && self.container == ContainerPause::Paused
        {
            log(&format!("cannot resume the container: {why}"));
            return false;
        }
        if let Some(Err(error)) = self.frozen.as_ref().map(Cgroup::thaw) {
            log(&format!("cannot thaw the control group: {error}"));
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::CommandExt as _;
    use std::path::Path;
    use std::process::{Child, Command};

    use super::*;
    use cowhand_core::id::JobId;

    /// A shell whose children count in files of their own, one of them in its own process session and without a parent.
    const TREE: &str = "count() { i=0; while :; do i=$((i+1)); echo $i > $1; done; }\n\
        count a & (setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i > b; done' &) ; count c";

    struct Tree {
        root: Child,
        folder: tempfile::TempDir,
        attempt: Attempt,
    }

    impl Tree {
        /// Starts the tree, in a group if there is one.
        fn start(group: Option<&Cgroup>) -> Self {
            rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let attempt = Attempt::new(folder.path(), &JobId::new(jiff::civil::date(2026, 1, 5), 1), 1);
            fs::create_dir_all(attempt.folder()).unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", TREE]).current_dir(folder.path()).process_group(0);
            if let Some(group) = group {
                fs::write(group.path().join("cgroup.procs"), "0").unwrap();
            }
            let root = command.spawn().unwrap();
            if let Some(group) = &group {
                group.leave().unwrap();
            }
            let tree = Self { root, folder, attempt };
            tree.until_all_count();
            tree
        }

        fn counts(&self) -> Vec<u64> {
            let count = |name| fs::read_to_string(self.folder.path().join(name)).ok()?.trim().parse().ok();
            ["a", "b", "c"].into_iter().filter_map(count).collect()
        }

        /// Waits until each process has counted on. A file may be empty for a moment.
        fn until_all_count(&self) {
            let before = self.full_counts();
            let has_grown = || self.full_counts().iter().zip(&before).all(|(now, before)| now > before);
            while !has_grown() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }

        fn full_counts(&self) -> Vec<u64> {
            loop {
                let counts = self.counts();
                if counts.len() == 3 {
                    return counts;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }

        fn processes() -> Vec<i32> {
            process::descendants(own_pid())
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            process::signal_all(&Self::processes(), Signal::KILL);
            self.root.wait().unwrap();
            while rustix::process::wait(rustix::process::WaitOptions::empty()).is_ok() {}
        }
    }

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    /// Returns the processor time of a process, in ticks. A paused process uses none.
    fn ticks(pid: i32) -> u64 {
        let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap();
        let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// Checks that no process uses processor time while this one uses a measurable amount.
    fn assert_no_work(processes: &[i32]) {
        let before: Vec<u64> = processes.iter().map(|pid| ticks(*pid)).collect();
        let own = ticks(own_pid());
        while ticks(own_pid()) < own + 10 {}
        let after: Vec<u64> = processes.iter().map(|pid| ticks(*pid)).collect();
        assert_eq!(before, after);
    }

    #[tokio::test]
    async fn all_processes_are_stopped_by_signals_and_continue() {
        let tree = Tree::start(None);
        let mut pause = AgentPause::begin(&tree.attempt, own_pid(), None).await;
        let processes = Tree::processes();
        assert_eq!(processes.len(), 3);
        assert!(processes.iter().all(|pid| process::is_stopped(*pid)));
        assert_no_work(&processes);
        // Somebody else lets a process continue.
        process::signal_all(&processes[..1], Signal::CONT);
        pause.hold().await;
        assert!(Tree::processes().iter().all(|pid| process::is_stopped(*pid)));
        assert!(pause.end().await);
        tree.until_all_count();
    }

    #[tokio::test]
    async fn a_process_that_was_stopped_before_the_pause_stays_stopped() {
        let tree = Tree::start(None);
        let stopped = Tree::processes()[0];
        process::signal_all(&[stopped], Signal::STOP);
        while !process::is_stopped(stopped) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let pause = AgentPause::begin(&tree.attempt, own_pid(), None).await;
        assert!(pause.end().await);
        let others: Vec<i32> = Tree::processes().into_iter().filter(|pid| *pid != stopped).collect();
        while others.iter().any(|pid| process::is_stopped(*pid)) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        assert!(process::is_stopped(stopped));
    }

    #[tokio::test]
    async fn a_control_group_is_frozen_and_thawed() {
        let group = Cgroup::make(&format!("test-pause-{}", own_pid())).expect("a control group of version 2");
        let tree = Tree::start(Some(&group));
        let processes = Tree::processes();
        let pause = AgentPause::begin(&tree.attempt, own_pid(), Some(&group)).await;
        assert!(group.is_frozen());
        assert!(!processes.iter().any(|pid| process::is_stopped(*pid)));
        assert_no_work(&processes);
        assert!(pause.end().await);
        tree.until_all_count();
        // A frozen group can be killed.
        AgentPause::begin(&tree.attempt, own_pid(), Some(&group)).await;
        group.kill().unwrap();
        drop(tree);
        while group.remove().is_err() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

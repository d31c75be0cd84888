//! Reports the caps that a container has reached, as the kernel's counters show. The counters disappear with the
//! container, so they are read while the container runs.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use cowhand_core::sandbox::Caps;

use super::engine::ContainerEngine;
use crate::attempt::Attempt;
use crate::caps::{killed_for_memory, memory_reached, of_process, reached};
use cowhand_system::stderr;

/// Interval between reads of the counters.
const LIMIT_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Control groups whose counters are read, and which caps were already reported.
pub(super) struct LimitWatch<'a> {
    attempt: &'a Attempt,
    caps: &'a Caps,
    groups: Vec<PathBuf>,
    memory_reported: bool,
    pids_reported: bool,
}

impl<'a> LimitWatch<'a> {
    pub(super) async fn new(
        engine: &ContainerEngine,
        name: &str,
        attempt: &'a Attempt,
        caps: &'a Caps,
    ) -> Self {
        let capped = caps.memory.is_some() || caps.pids.is_some();
        let groups = match engine.inspect(name).await {
            Ok(found) if capped => found["State"]["Pid"].as_i64().map(of_process).unwrap_or_default(),
            _ => Vec::new(),
        };
        Self { attempt, caps, groups, memory_reported: false, pids_reported: false }
    }

    pub(super) async fn watch(&mut self) -> Infallible {
        loop {
            tokio::time::sleep(LIMIT_POLL_INTERVAL).await;
            self.check();
        }
    }

    /// Reads the counters and reports each cap that was reached, once. Returns the number of processes that the kernel
    /// ended because of memory; `None` if it cannot be read.
    pub(super) fn check(&mut self) -> Option<u64> {
        let memory = reached(&self.groups, &Caps { memory: self.caps.memory, ..Caps::default() });
        let pids = reached(&self.groups, &Caps { pids: self.caps.pids, ..Caps::default() });
        report_once(self.attempt, &memory, &mut self.memory_reported);
        report_once(self.attempt, &pids, &mut self.pids_reported);
        killed_for_memory(&self.groups)
    }

    /// Determines from the engine and the exit code whether the cap on memory was reached, and reports it once.
    pub(super) async fn check_after_end(&mut self, engine: &ContainerEngine, name: &str, end: ContainerEnd) {
        let Some(bytes) = self.caps.memory.filter(|_| !self.memory_reported) else { return };
        let engine_says = match engine.inspect(name).await {
            Ok(found) => found["State"]["OOMKilled"] == true,
            Err(error) => {
                stderr::write_line(format!(
                    "cowhand: cannot determine whether the cap on memory was reached: {error}"
                ));
                false
            }
        };
        if let Some(note) = memory_note(bytes, engine_says, end) {
            report_once(self.attempt, &[note], &mut self.memory_reported);
        }
    }
}

/// How a container ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContainerEnd {
    pub(super) code: i64,
    /// True if cowhand sent a signal to the container.
    pub(super) is_stopped: bool,
    /// Number of processes that the kernel ended because of memory, read after the output had ended; `None` if the
    /// counters could not be read.
    pub(super) killed: Option<u64>,
}

/// Exit code of a container whose main process was ended by SIGKILL.
const EXIT_KILLED: i64 = 128 + 9;

/// Returns the note about the cap on memory, if it was or may have been reached. Podman and Docker often do not notice
/// that the kernel ended the last process of a container, and the counters are removed with the container. Then only
/// the exit code is left.
fn memory_note(bytes: u64, engine_says: bool, end: ContainerEnd) -> Option<String> {
    if engine_says {
        return Some(memory_reached(bytes));
    }
    let is_unexplained = end.code == EXIT_KILLED && !end.is_stopped && end.killed.is_none();
    is_unexplained.then(|| {
        format!(
            "the sandbox's cap on memory ({bytes} bytes) was probably reached: the agent was ended by SIGKILL, and the \
             container engine does not state why"
        )
    })
}

fn report_once(attempt: &Attempt, notes: &[String], reported: &mut bool) {
    if *reported || notes.is_empty() {
        return;
    }
    *reported = true;
    if let Err(error) = attempt.note(notes) {
        stderr::write_line(format!("cowhand: {}; {error}", notes.join("; ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_without_a_known_cause_is_explained_by_the_cap_on_memory() {
        let reached = "the sandbox's cap on memory (5000 bytes) was reached";
        let probably = "the sandbox's cap on memory (5000 bytes) was probably reached: the agent was ended by SIGKILL, \
                        and the container engine does not state why";
        for (engine_says, code, is_stopped, killed, expected) in [
            (true, 137, false, None, Some(reached)),
            (true, 0, true, Some(0), Some(reached)),
            (false, 137, false, None, Some(probably)),
            // Something else killed the agent.
            (false, 137, false, Some(0), None),
            (false, 137, true, None, None),
            (false, 0, false, None, None),
            (false, 143, false, None, None),
        ] {
            let end = ContainerEnd { code, is_stopped, killed };
            assert_eq!(memory_note(5000, engine_says, end).as_deref(), expected, "{engine_says} {end:?}");
        }
    }
}

//! Reports the caps that a container has reached, by the kernel's counters. The counters disappear with the container,
//! so they are read while it runs.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use cowhand_core::sandbox::Caps;

use super::engine::ContainerEngine;
use crate::attempt::Attempt;
use crate::caps::{memory_reached, of_process, reached};
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

    /// Reads the counters and reports each cap that was reached, once.
    pub(super) fn check(&mut self) {
        let memory = reached(&self.groups, &Caps { memory: self.caps.memory, ..Caps::default() });
        let pids = reached(&self.groups, &Caps { pids: self.caps.pids, ..Caps::default() });
        report_once(self.attempt, &memory, &mut self.memory_reported);
        report_once(self.attempt, &pids, &mut self.pids_reported);
    }

    /// Asks the engine whether the cap on memory was reached, and reports it once.
    pub(super) async fn check_after_end(&mut self, engine: &ContainerEngine, name: &str) {
        let Some(bytes) = self.caps.memory else { return };
        match engine.inspect(name).await {
            Ok(found) if found["State"]["OOMKilled"] == true => {
                report_once(self.attempt, &[memory_reached(bytes)], &mut self.memory_reported);
            }
            Ok(_) => {}
            Err(error) => {
                stderr::write_line(format!(
                    "cowhand: cannot determine whether the cap on memory was reached: {error}"
                ));
            }
        }
    }
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

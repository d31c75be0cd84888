//! `state.yaml`: the current state of agents and schedules.
//!
//! The text of each agent is kept, and only the texts of agents with new events are made again, so that the cost of a
//! change does not depend on the number of agents. A large file is written less often than its agents change.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::plan::Snapshot;
use cowhand_core::roster::Agent;
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::Serialize;

use super::{to_yaml, write_text};
use crate::loaded::Loaded;
use crate::schedule_view::{self, schedules_of_agent};
use crate::secrets::redactor;
use crate::state::StateFolder;
use cowhand_store::{Store, WaitingJobs};

const FILE_HEAD: &str =
    "# A view of the store: editing it changes nothing. Use `cowhand schedule enable|disable`.\n";
const AGENTS_HEAD: &str = "agents:\n";
/// Number of agents whose rows are read at once.
const AGENTS_PER_READ: usize = 64;
/// Pause before the next write, as a multiple of the time that the last write took.
const PAUSE_FACTOR: u32 = 20;
/// Longest time of a write after which there is no pause.
const SHORT_WRITE: Duration = Duration::from_millis(5);
/// Size from which a file is large.
const LARGE_FILE: usize = 64 << 10;
/// Pause after a write of a large file, for each KiB. A file for 10,000 schedules is written about every 4 seconds
/// while schedules fire, and takes less than a thousandth of a processor.
const PAUSE_PER_KIB: Duration = Duration::from_micros(2_500);
/// Time from a change to the write of a large file. If the change is the start of a job, the write then does not slow
/// down that start, and one write shows both the start and the end of a short job.
const CHANGE_DELAY: Duration = Duration::from_millis(500);

#[derive(Debug, Serialize)]
struct FleetPart {
    fleet: FleetState,
}

#[derive(Debug, Serialize)]
struct FleetState {
    started_at: Timestamp,
}

#[derive(Debug, Serialize)]
struct AgentsPart<'a> {
    agents: IndexMap<&'a AgentName, AgentState<'a>>,
}

#[derive(Debug, Serialize)]
struct AgentState<'a> {
    status: &'static str,
    current_job: Option<&'a JobId>,
    last_job: Option<&'a JobId>,
    next_schedule: Option<&'a ScheduleName>,
    next_trigger_at: Option<Timestamp>,
    schedules: IndexMap<&'a ScheduleName, ScheduleView<'a>>,
}

#[derive(Debug, Serialize)]
struct ScheduleView<'a> {
    status: &'static str,
    last_run_at: Option<Timestamp>,
    next_run_at: Option<Timestamp>,
    last_error: Option<&'a str>,
}

/// The file, with the text of each agent.
#[derive(Debug, Default)]
pub(super) struct StateFile {
    texts: HashMap<AgentName, String>,
    /// Config with which the texts were made.
    config: Weak<Loaded>,
    /// Agents whose texts have to be made again.
    changed: BTreeSet<AgentName>,
    /// True if the file has to be written.
    is_behind: bool,
    /// Time before which the file is not written.
    pause_until: Option<Instant>,
    /// True if the last write was of a large file.
    is_large: bool,
}

impl StateFile {
    /// Notes that the text of an agent has to be made again.
    pub(super) fn change(&mut self, agent: AgentName) {
        self.changed.insert(agent);
    }

    /// Ends the pause, so that the next call of [`Self::write`] writes the file.
    pub(super) fn end_pause(&mut self) {
        self.pause_until = None;
    }

    /// Returns how long the file has to wait for its next write; `None` if it is up to date.
    pub(super) fn pause(&self) -> Option<Duration> {
        let pause = self.pause_until.map(|until| until.saturating_duration_since(Instant::now()));
        self.is_behind.then(|| pause.unwrap_or_default())
    }

    /// Makes the texts of changed agents again, or all texts after a change of the config, and writes the file. During
    /// a pause, only records that the file has to be written.
    pub(super) async fn write(
        &mut self,
        folder: &StateFolder,
        store: &Store,
        fleet: &Arc<Loaded>,
        started_at: Timestamp,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        let is_first_change = !std::mem::replace(&mut self.is_behind, true);
        if self.is_large && is_first_change && self.config.ptr_eq(&Arc::downgrade(fleet)) {
            self.pause_until = self.pause_until.max(Some(begin + CHANGE_DELAY));
        }
        if self.pause_until.is_some_and(|until| until > begin) {
            return Ok(());
        }
        let roster = &fleet.roster;
        if !self.config.ptr_eq(&Arc::downgrade(fleet)) {
            self.texts.clear();
            self.changed = roster.agents.iter().map(|agent| agent.name.clone()).collect();
            self.config = Arc::downgrade(fleet);
        }
        let changed: Vec<AgentName> = self.changed.iter().cloned().collect();
        for agents in changed.chunks(AGENTS_PER_READ) {
            self.make_texts(store, fleet, agents, now).await?;
        }
        self.changed.clear();
        let path = folder.path().join("state.yaml");
        let redactor = redactor(fleet);
        let fleet_part = FleetPart { fleet: FleetState { started_at } };
        let mut text = to_yaml(&path, FILE_HEAD, &fleet_part, &redactor)?;
        text.push_str(if roster.agents.is_empty() { "agents: {}\n" } else { AGENTS_HEAD });
        for agent in &roster.agents {
            text.push_str(self.texts.get(&agent.name).map_or("", String::as_str));
        }
        write_text(&path, &text)?;
        self.is_behind = false;
        self.is_large = text.len() >= LARGE_FILE;
        let pause = pause_after(text.len(), begin.elapsed());
        self.pause_until = pause.map(|pause| Instant::now() + pause);
        Ok(())
    }

    async fn make_texts(
        &mut self,
        store: &Store,
        fleet: &Loaded,
        agents: &[AgentName],
        now: Timestamp,
    ) -> anyhow::Result<()> {
        let roster = &fleet.roster;
        let snapshot = store
            .snapshot_of_agents(roster, agents, WaitingJobs::to_fill_places(roster, agents), now)
            .await?;
        let last_jobs = store.last_ended(agents).await?;
        let last_jobs: HashMap<&AgentName, &Job> = last_jobs.iter().map(|job| (job.agent(), job)).collect();
        let input = StateInput { snapshot: &snapshot, last_jobs };
        for agent in agents.iter().filter_map(|name| roster.agent(name)) {
            let schedules = schedules_of_agent(roster, agent, &snapshot, now);
            let part = AgentsPart { agents: [(&agent.name, input.agent(agent, &schedules))].into() };
            let text = to_yaml("state.yaml".as_ref(), "", &part, &redactor(fleet))?;
            let text = text.strip_prefix(AGENTS_HEAD).unwrap_or(&text).to_owned();
            self.texts.insert(agent.name.clone(), text);
        }
        Ok(())
    }
}

/// Returns the time from a write to the next one; `None` if the file is small and was written quickly.
fn pause_after(bytes: usize, took: Duration) -> Option<Duration> {
    let for_size = PAUSE_PER_KIB * u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
    let for_size = (bytes >= LARGE_FILE).then_some(for_size);
    for_size.max((took > SHORT_WRITE).then(|| took * PAUSE_FACTOR))
}

struct StateInput<'a> {
    snapshot: &'a Snapshot,
    last_jobs: HashMap<&'a AgentName, &'a Job>,
}

impl<'a> StateInput<'a> {
    fn agent(&self, agent: &'a Agent, schedules: &'a [schedule_view::ScheduleView]) -> AgentState<'a> {
        let current = self.snapshot.jobs.iter().find(|job| job.takes_place_of(agent));
        let last = self.last_jobs.get(&agent.name);
        let has_failed = last.is_some_and(|job| job.status() == JobStatus::Failed);
        let upcoming = schedules.iter().filter_map(|view| Some((view.next_run_at?, &view.schedule)));
        let next = upcoming.min_by_key(|(at, _)| *at);
        AgentState {
            status: if current.is_some() {
                "running"
            } else if has_failed {
                "error"
            } else {
                "idle"
            },
            current_job: current.map(|job| &job.id),
            last_job: last.map(|job| job.id()),
            next_schedule: next.map(|(_, name)| name),
            next_trigger_at: next.map(|(at, _)| at),
            schedules: schedules.iter().map(|view| (&view.schedule, ScheduleView::from(view))).collect(),
        }
    }
}

impl<'a> From<&'a schedule_view::ScheduleView> for ScheduleView<'a> {
    fn from(view: &'a schedule_view::ScheduleView) -> Self {
        Self {
            status: view.status.as_str(),
            last_run_at: view.last_run_at,
            next_run_at: view.next_run_at,
            last_error: view.last_error.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_or_slow_files_have_a_pause() {
        let (quick, slow) = (Duration::from_millis(1), Duration::from_millis(50));
        for (bytes, took, pause) in [
            (1_000, quick, None),
            (LARGE_FILE - 1, quick, None),
            (1_000, slow, Some(Duration::from_secs(1))),
            (1 << 20, quick, Some(Duration::from_millis(2_560))),
            (16 << 20, quick, Some(Duration::from_millis(40_960))),
            (LARGE_FILE, slow, Some(Duration::from_secs(1))),
        ] {
            assert_eq!(pause_after(bytes, took), pause, "{bytes} bytes, {took:?}");
        }
    }
}

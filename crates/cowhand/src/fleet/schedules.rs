//! How the schedules of a fleet stand, and when they fire.

use cowhand_core::id::{AgentName, ScheduleId, ScheduleName};
use cowhand_core::plan::{self, LiveJob, LiveState, Snapshot};
use cowhand_core::provider::Parked;
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::schedule::{ScheduleState, SkipReason};
use cowhand_core::trigger::Driver;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Fleet, FleetError};
use crate::store::{Store, StoreError};

/// How a schedule stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleView {
    /// By which a `dispatch_result` names it (`source_workflow_id`).
    pub id: ScheduleId,
    pub agent: AgentName,
    pub schedule: ScheduleName,
    #[serde(rename = "type")]
    pub kind: String,
    pub status: ScheduleStatus,
    pub last_run_at: Option<Timestamp>,
    /// A time that has passed means: due, and held back.
    pub next_run_at: Option<Timestamp>,
    /// It has fired, and what it runs for is being found out.
    pub preparing: bool,
    pub last_error: Option<String>,
    /// Why it does not fire now.
    pub skip_reason: Option<SkipReason>,
    /// When that ends by itself, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_until: Option<Timestamp>,
    /// Where its `enabled: false` is written, as `FILE:LINE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_in_file: Option<String>,
    /// That reason in a sentence, where there is more to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleStatus {
    Idle,
    Running,
    Disabled,
    Error,
    /// By its breaker.
    Paused,
    /// Its `end_at` has passed.
    Finished,
}

impl ScheduleStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Disabled => "disabled",
            Self::Error => "error",
            Self::Paused => "paused",
            Self::Finished => "finished",
        }
    }
}

impl Fleet {
    /// All of them, in the order of the fleet's files.
    pub async fn schedules(&self) -> Result<Vec<ScheduleView>, FleetError> {
        Ok(schedules(self.store(), &self.roster(), self.clock().now()).await?)
    }
}

/// See [`Fleet::schedules`], which is this for a fleet that runs.
pub(crate) async fn schedules(
    store: &Store,
    roster: &Roster,
    now: Timestamp,
) -> Result<Vec<ScheduleView>, StoreError> {
    let snapshot = store.snapshot_of(roster, now).await?;
    let next = plan::next_runs(now, roster, &snapshot);
    let of_agent = |agent: &Agent| -> Vec<ScheduleView> {
        let view = |schedule: &Schedule| {
            let view = ScheduleView::of(agent, schedule, &snapshot, next.get(&schedule.id).copied(), now);
            view.explained(roster, agent, schedule, &snapshot, now)
        };
        agent.schedules.iter().map(view).collect()
    };
    Ok(roster.agents.iter().flat_map(of_agent).collect())
}

impl ScheduleView {
    fn of(
        agent: &Agent,
        schedule: &Schedule,
        snapshot: &Snapshot,
        next_run_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let record = snapshot.schedules.get(&schedule.id);
        let state = record.map_or(&ScheduleState::Active, |record| &record.state);
        let runs = snapshot
            .jobs
            .iter()
            .any(|job| job.schedule == Some(schedule.id) && matches!(job.state, LiveState::Running { .. }));
        let (status, gave_up) = match state {
            ScheduleState::Error { reason } => (ScheduleStatus::Error, Some(reason.clone())),
            ScheduleState::Paused { .. } if schedule.enabled => (ScheduleStatus::Paused, None),
            ScheduleState::Paused { .. } | ScheduleState::Disabled { .. } => (ScheduleStatus::Disabled, None),
            ScheduleState::Active | ScheduleState::Finished if !schedule.enabled => {
                (ScheduleStatus::Disabled, None)
            }
            ScheduleState::Active | ScheduleState::Finished if runs => (ScheduleStatus::Running, None),
            _ if record.is_some_and(|record| record.is_finished(schedule, now)) => {
                (ScheduleStatus::Finished, None)
            }
            ScheduleState::Active | ScheduleState::Finished => (ScheduleStatus::Idle, None),
        };
        let waiting = record.and_then(|record| record.waiting.as_ref()).map(|waiting| waiting.reason);
        let waits = || snapshot.waits_for_session(agent, schedule.id).then_some(SkipReason::SessionBusy);
        let waiting = waiting.or_else(waits);
        let skip_reason = match status {
            ScheduleStatus::Disabled => Some(SkipReason::Disabled),
            ScheduleStatus::Error | ScheduleStatus::Finished => waiting,
            ScheduleStatus::Paused => Some(SkipReason::Paused),
            ScheduleStatus::Idle | ScheduleStatus::Running => waiting.or_else(|| {
                match (schedule.trigger.driver(), next_run_at) {
                    (Driver::Hand | Driver::Delivery, _) => Some(SkipReason::UnsupportedType),
                    // It looks for something to do by itself, and nobody knows when it finds it.
                    (Driver::Strategy, _) => None,
                    (Driver::Clock, Some(at)) => (at > now).then_some(SkipReason::NotDue),
                    // An interval counts from the end of what runs.
                    (Driver::Clock, None) => runs.then_some(SkipReason::AlreadyRunning),
                }
            }),
        };
        Self {
            id: schedule.id,
            agent: agent.name.clone(),
            schedule: schedule.name.clone(),
            kind: schedule.trigger.type_name().to_owned(),
            status,
            last_run_at: record.and_then(|record| record.last_run_at),
            next_run_at,
            preparing: snapshot.preparing.iter().any(|firing| firing.schedule == schedule.id),
            last_error: gave_up.or_else(|| record.and_then(|record| record.last_error.clone())),
            skip_reason,
            skip_until: None,
            off_in_file: schedule.place_of_off(),
            skip_note: None,
        }
    }

    /// With all there is to say about a pause or a budget. One that waits for something else has the note all the same:
    /// that is what it will wait for then.
    fn explained(
        mut self,
        roster: &Roster,
        agent: &Agent,
        schedule: &Schedule,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Self {
        let state = snapshot.schedules.get(&schedule.id).map(|record| &record.state);
        if let (ScheduleStatus::Paused, Some(ScheduleState::Paused { reason, until })) = (self.status, state)
        {
            (self.skip_until, self.skip_note) = (Some(*until), Some(reason.clone()));
            return self;
        }
        if matches!(self.status, ScheduleStatus::Idle | ScheduleStatus::Running)
            && let Some(over) = roster.over_budget(agent, &snapshot.ledger, now)
        {
            if matches!(self.skip_reason, Some(SkipReason::UnsupportedType) | None) {
                self.skip_reason = Some(SkipReason::OverBudget);
            }
            (self.skip_until, self.skip_note) = (over.until, Some(over.sentence(&agent.name, roster.zone())));
        } else if let Some(parked) = limit(agent, schedule, snapshot, now) {
            self.skip_reason = Some(SkipReason::UsageLimit);
            (self.skip_until, self.skip_note) = (Some(parked.until), Some(parked.sentence()));
        } else if let Some((until, sentence)) = put_back(schedule, snapshot, now) {
            self.skip_reason = Some(SkipReason::Requeued);
            (self.skip_until, self.skip_note) = (Some(until), Some(sentence));
        }
        self
    }
}

/// The limit that its jobs wait for, if one of them does; the oldest comes first.
fn limit<'a>(
    agent: &Agent,
    schedule: &Schedule,
    snapshot: &'a Snapshot,
    now: Timestamp,
) -> Option<&'a Parked> {
    let waits =
        |job: &&LiveJob| job.schedule == Some(schedule.id) && matches!(job.state, LiveState::Pending { .. });
    snapshot.jobs.iter().filter(waits).find_map(|job| snapshot.limit_of(agent, job, now))
}

/// Why its oldest job that could not be started waits, and until when.
fn put_back(schedule: &Schedule, snapshot: &Snapshot, now: Timestamp) -> Option<(Timestamp, String)> {
    let jobs = snapshot.jobs.iter().filter(|job| job.schedule == Some(schedule.id));
    jobs.filter_map(|job| Some((job, job.put_back(now)?)))
        .map(|(job, (until, sentence))| (until, format!("{}: {sentence}", job.id)))
        .next()
}

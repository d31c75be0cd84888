//! The state of a fleet's schedules and their next firings, as users see them.

mod notes;

use cowhand_core::duration;
use cowhand_core::id::{AgentName, ScheduleId, ScheduleName};
use cowhand_core::node::no_node_for;
use cowhand_core::plan::next_firings::Outlook;
use cowhand_core::plan::{LiveState, Missed, Snapshot};
use cowhand_core::policy::ClosedBy;
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::schedule::{ScheduleRecord, ScheduleState, SkipReason, TriggerFailure};
use cowhand_core::shell::schedule_word;
use cowhand_core::trigger::Driver;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cowhand_store::{Store, StoreError};
pub(crate) use notes::{BY_CHAT, BY_EVENTS, BY_TRUST, REFUSED_MESSAGE, passed_while_off_sentence};
pub use notes::{
    RESCHEDULED_AT_START, RETRY_DUE, WHEN_COMMAND, because, message_in_words, prepared_by, why_of,
};

/// Beginning of the note about a webhook that refuses all its deliveries. A note with this beginning is removed when the
/// webhook has no problem any more.
pub(crate) const UNSIGNED_NOTE: &str = "its deliveries are refused, because no secret is set";

/// State of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleView {
    /// Id with which a `dispatch_result` names the schedule (`source_workflow_id`).
    pub id: ScheduleId,
    pub agent: AgentName,
    pub schedule: ScheduleName,
    #[serde(rename = "type")]
    pub kind: String,
    pub status: ScheduleStatus,
    /// End of the last job that the schedule fired by itself, or time of the last firing or poll of its trigger that
    /// ran nothing, for example because there was no work or `when_command` rejected the firing. Runs by hand do not
    /// count: they do not move an interval.
    pub last_run_at: Option<Timestamp>,
    /// Next firing by the clock, never in the past. Absent if the clock does not fire the schedule, if the schedule is
    /// disabled, paused or finished, if its interval starts at the end of a job that still runs, or if the end of its
    /// wait is not known.
    pub next_run_at: Option<Timestamp>,
    /// True if the schedule has fired and the firing is being prepared.
    pub preparing: bool,
    /// Start of the preparation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparing_since: Option<Timestamp>,
    /// Checks and sources that the preparation uses: `trust`, `when_command`, a work source. Absent if they were
    /// removed from the config after the schedule fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparing_by: Option<String>,
    /// Error because of which the firing cannot be prepared at present. The preparation is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_error: Option<String>,
    pub last_error: Option<String>,
    /// Failure of its trigger, for example of each poll of a list. It ends when the trigger answers again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_error: Option<TriggerFailure>,
    /// Reason why the schedule does not fire now.
    pub skip_reason: Option<SkipReason>,
    /// Time at which `skip_reason` ends by itself, if the time is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_until: Option<Timestamp>,
    /// Location of its `enabled: false`, as `FILE:LINE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_in_file: Option<String>,
    /// True if a person disabled the schedule. The schedule then stays off even if its file enables it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub off_by_person: bool,
    /// Explanation of why the schedule does not fire now, or will not fire when it is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_note: Option<String>,
    /// Reason that `skip_note` explains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_note_reason: Option<SkipReason>,
    /// The oldest job that waits for a retry, and the error of its last attempt, as text. Only present if `skip_note`
    /// is about a budget: a note about the retry itself contains that error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_attempt: Option<String>,
    /// First due time since the last firing, if a firing is due and waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_since: Option<Timestamp>,
    /// Number of further due times since `due_since`, at most 1000. One firing covers all of them, unless `misfire` is
    /// `run_all`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub due_again: usize,
    /// Reason why the key `adopt` has had no effect: the store does not know the schedule that `adopt` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt_note: Option<String>,
    /// Missed due times, about which a daemon decides when it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<MissedTimes>,
    /// Number of waiting jobs of the schedule.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jobs_waiting: usize,
    /// Number of jobs of the schedule whose attempt has ended or never began, while no daemon runs that writes this. The
    /// next start ends or continues them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsettled: usize,
    /// Reason why its trigger can never fire the schedule, for example because its `active_hours` allow none of its
    /// times. A person can still fire it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never_fires: Option<String>,
    /// True if the schedule is over: its `end_at` has passed, or it is a `delay` that has fired, or whose time passed
    /// while it was off. It cannot be enabled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
    /// Time zone of its cron expression, its active hours and its excluded dates.
    pub timezone: String,
}

/// Due times that passed while no daemon ran or the daemon was stopping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissedTimes {
    /// First missed due time.
    pub since: Timestamp,
    /// Number of missed due times, at most 100.
    pub times: usize,
    /// Number of jobs that a daemon starts for the missed due times when it starts.
    pub runs: usize,
    /// Summary of the fields above in a sentence.
    pub note: String,
}

impl From<Missed> for MissedTimes {
    fn from(missed: Missed) -> Self {
        Self { since: missed.since, times: missed.times, runs: missed.runs, note: missed.sentence() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleStatus {
    Idle,
    Running,
    Disabled,
    Error,
    /// Paused by its breaker.
    Paused,
    /// Its `end_at` has passed, or it is a `delay` that has fired, or whose time passed while it was off.
    Finished,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
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

/// Describes all schedules of a fleet now.
pub async fn schedules(
    store: &Store,
    roster: &Roster,
    now: Timestamp,
) -> Result<Vec<ScheduleView>, StoreError> {
    Ok(schedules_of(roster, &store.snapshot_of(roster, now).await?, now))
}

/// Describes all schedules of a snapshot, in the order of the fleet's files. API, command line, pages, `state.yaml` and
/// metrics all use this function.
pub fn schedules_of(roster: &Roster, snapshot: &Snapshot, now: Timestamp) -> Vec<ScheduleView> {
    let of_agent = |agent: &Agent| schedules_of_agent(roster, agent, snapshot, now);
    roster.agents.iter().flat_map(of_agent).collect()
}

/// Describes the schedules of one agent. The snapshot needs to contain only the rows of this agent.
pub(crate) fn schedules_of_agent(
    roster: &Roster,
    agent: &Agent,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Vec<ScheduleView> {
    let outlook = Outlook::new(now, roster, snapshot);
    let view = |schedule: &Schedule| {
        let view = ScheduleView::of(agent, schedule, snapshot, outlook.next(agent, schedule), now);
        let is_waiting = view.due_since.is_some();
        let missed = outlook.missed(agent, schedule);
        let missed_runs = missed.as_ref().map_or(0, |missed| missed.runs);
        let view = view.with_missed(missed_runs);
        let view = ScheduleView {
            due_again: if is_waiting { outlook.times_waited(agent, schedule).saturating_sub(1) } else { 0 },
            missed: missed.map(MissedTimes::from),
            never_fires: view.why_never(schedule, now).filter(|_| missed_runs == 0),
            ..view
        };
        view.with_explanation(roster, agent, schedule, snapshot, now)
    };
    // The schedule of web chat is shown after its first message.
    let web_chat = agent.web_chat.iter().map(|chat| &*chat.schedule);
    let used = web_chat.filter(|schedule| snapshot.schedules.contains_key(&schedule.id));
    agent.schedules.iter().chain(used).map(view).collect()
}

/// Time that a schedule may wait for a place or another job before it counts as starved. It is short, because until then
/// lists show only the next due time, which may be a day away.
const STARVED_AFTER: SignedDuration = SignedDuration::from_secs(5);

impl ScheduleView {
    /// Returns whether the schedule is due and has waited for a place, or for another job, for more than five seconds
    /// or over more than one due time.
    pub fn is_starved(&self, now: Timestamp) -> bool {
        let waits_for_others = matches!(
            self.skip_reason,
            Some(SkipReason::AtCapacity | SkipReason::AlreadyRunning | SkipReason::SessionBusy)
        );
        let is_on = matches!(self.status, ScheduleStatus::Idle | ScheduleStatus::Running);
        let is_long = self
            .due_since
            .is_some_and(|since| now.duration_since(since) > STARVED_AFTER || self.due_again > 0);
        is_on && waits_for_others && is_long && !self.preparing
    }

    /// Corrects the status of a schedule whose `end_at` passed while no daemon ran: a due time that was missed before
    /// `end_at` runs when a daemon starts.
    fn with_missed(self, missed_runs: usize) -> Self {
        if self.status != ScheduleStatus::Finished || missed_runs == 0 {
            return self;
        }
        Self { status: ScheduleStatus::Idle, over: false, ..self }
    }

    /// Returns why the trigger of the schedule can never fire it; `None` if the trigger can fire it, or if the schedule
    /// is off, paused or over. The search takes time, so the calendar is searched only in two cases: the clock fires
    /// the schedule and no next firing is known, or a delivery or a strategy fires it and the calendar is closed now.
    fn why_never(&self, schedule: &Schedule, now: Timestamp) -> Option<String> {
        let zone = schedule.zone.time_zone();
        let is_searched = match schedule.trigger.driver() {
            Driver::Clock => self.next_run_at.is_none() && !self.over,
            Driver::Delivery | Driver::Strategy => schedule.timing.closed_by(now, zone).is_some(),
            Driver::Hand => false,
        };
        let is_on = matches!(self.status, ScheduleStatus::Idle | ScheduleStatus::Running);
        let never = (is_on && is_searched).then(|| schedule.never_fires(now)).flatten();
        never.map(|never| never.reason)
    }

    /// Returns whether the clock fires the schedule.
    pub fn is_by_clock(&self) -> bool {
        matches!(self.kind.as_str(), "interval" | "cron" | "delay")
    }

    /// Returns the explanation for a delay whose time passed while it was off.
    pub fn passed_while_off(&self) -> Option<&str> {
        let is_finished = self.status == ScheduleStatus::Finished && self.kind == "delay";
        self.skip_note.as_deref().filter(|note| is_finished && *note != ClosedBy::EndAt.sentence())
    }

    /// Describes what the schedule waits for.
    pub fn awaited(&self) -> Option<&str> {
        let reason = self.skip_reason?;
        let note = self.skip_note.as_deref().filter(|_| self.skip_note_reason == Some(reason));
        Some(note.unwrap_or_else(|| because(reason)))
    }

    /// Describes how to turn the schedule on if its file turns it off.
    pub fn off_in_file_advice(&self) -> Option<String> {
        let location = self.off_in_file.as_deref()?;
        Some(off_in_file_advice(&self.agent, &self.schedule, location, self.off_by_person))
    }

    /// Describes the firing that cannot be prepared: the error and, for a schedule that is turned off, what happens to
    /// the firing.
    pub fn unprepared(&self) -> Option<String> {
        let error = self.prepare_error.as_deref()?;
        if self.status != ScheduleStatus::Disabled {
            return Some(error.to_owned());
        }
        Some(match self.starts_although_off() {
            Some(note) => format!("{note}; it cannot be prepared, and is retried: {error}"),
            None => format!(
                "its firing by the clock could not be prepared, and is skipped at the next try, because the schedule is \
                 turned off: {error}"
            ),
        })
    }

    /// Describes the jobs and the firings from outside or by hand that start although the schedule is turned off.
    fn starts_although_off(&self) -> Option<&str> {
        self.skip_note.as_deref().filter(|_| self.skip_note_reason == Some(SkipReason::Disabled))
    }

    /// Checks whether its firing is dropped at the next try of its preparation, because the schedule is turned off.
    pub fn drops_unprepared(&self) -> bool {
        self.status == ScheduleStatus::Disabled
            && self.prepare_error.is_some()
            && self.starts_although_off().is_none()
    }

    /// Describes why an active webhook refuses all its deliveries, and what to do.
    pub fn refuses_deliveries(&self) -> Option<&str> {
        let is_active = matches!(self.status, ScheduleStatus::Idle | ScheduleStatus::Running);
        self.last_error.as_deref().filter(|error| is_active && error.starts_with(UNSIGNED_NOTE))
    }

    /// Describes the failure of the trigger of an active schedule: since when, the error, and what to do. `is_alone` is
    /// true if no daemon runs.
    pub fn failing_trigger(&self, is_alone: bool, now: Timestamp) -> Option<String> {
        let TriggerFailure { message, since } = self.trigger_error.as_ref()?;
        // The trigger of a schedule that is off or paused is not called.
        if !matches!(self.status, ScheduleStatus::Idle | ScheduleStatus::Running) {
            return None;
        }
        let since = duration::relative_to_now(now, *since);
        if is_alone {
            return Some(format!(
                "since {since}: {message}; no daemon runs, and the next daemon tries again"
            ));
        }
        Some(format!(
            "since {since}: {message}; cowhand tries again. After the cause is corrected, for example the token in `.env`, \
             `cowhand reload` tries again at once"
        ))
    }

    /// Returns text such as `, since 3m ago` for a schedule that an error of its trigger has stopped; empty if the time
    /// is not known.
    pub fn stopped_since(&self, now: Timestamp) -> String {
        let stopped = self.trigger_error.as_ref().filter(|_| self.status == ScheduleStatus::Error);
        stopped
            .map(|error| format!(", since {}", duration::relative_to_now(now, error.since)))
            .unwrap_or_default()
    }

    /// Returns text such as `, and 13 times more since then`; empty if the schedule was due once.
    pub fn due_again_in_words(&self) -> String {
        match self.due_again {
            0 => String::new(),
            1 => ", and once more since then".to_owned(),
            more => format!(", and {more} times more since then"),
        }
    }

    fn of(
        agent: &Agent,
        schedule: &Schedule,
        snapshot: &Snapshot,
        next_run_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let record = snapshot.schedules.get(&schedule.id);
        let state = record.map_or(&ScheduleState::Active, |record| &record.state);
        let is_running =
            snapshot.jobs.iter().any(|job| job.schedule == Some(schedule.id) && snapshot.runs(job));
        let is_done = record.is_some_and(ScheduleRecord::is_done);
        let is_on = matches!(state, ScheduleState::Active | ScheduleState::Finished);
        let has_passed = is_on && record.is_some_and(|record| record.passed_while_off(schedule).is_some());
        let (status, trigger_error) = match state {
            ScheduleState::Error { reason } => (ScheduleStatus::Error, Some(reason.clone())),
            ScheduleState::Paused { .. } if schedule.enabled => (ScheduleStatus::Paused, None),
            ScheduleState::Disabled { .. } if schedule.enabled && is_done => {
                (if is_running { ScheduleStatus::Running } else { ScheduleStatus::Finished }, None)
            }
            ScheduleState::Paused { .. } | ScheduleState::Disabled { .. } => (ScheduleStatus::Disabled, None),
            ScheduleState::Active | ScheduleState::Finished if !schedule.enabled => {
                (ScheduleStatus::Disabled, None)
            }
            ScheduleState::Active | ScheduleState::Finished if is_running => (ScheduleStatus::Running, None),
            // Without a record, no daemon has loaded the schedule yet.
            _ if record.map_or_else(|| schedule.is_over(now), |record| record.is_finished(schedule, now)) => {
                (ScheduleStatus::Finished, None)
            }
            ScheduleState::Active | ScheduleState::Finished => (ScheduleStatus::Idle, None),
        };
        // An earlier version stored a waiting reason for an interval before its `start_at`.
        let is_before_start = schedule.timing.start_at.is_some_and(|start| start > now);
        let wait = record.and_then(|record| record.waiting.as_ref()).filter(|_| !is_before_start);
        let waiting_reason = wait.map(|wait| wait.reason);
        let has_jobs = snapshot.jobs.iter().any(|job| job.schedule == Some(schedule.id));
        // Firings that are held back until the end of a pause are not being prepared.
        let preparing_since = snapshot.to_prepare(schedule.id).map(|firing| firing.since).min();
        let preparing = preparing_since.is_some();
        let session_wait =
            || snapshot.waits_for_session(agent, schedule.id).then_some(SkipReason::SessionBusy);
        let waiting_reason = waiting_reason.or_else(session_wait);
        let skip_reason = match status {
            ScheduleStatus::Disabled | ScheduleStatus::Error => Some(SkipReason::Disabled),
            ScheduleStatus::Finished => waiting_reason.or(Some(SkipReason::NotDue)),
            ScheduleStatus::Paused => Some(SkipReason::Paused),
            ScheduleStatus::Idle | ScheduleStatus::Running => waiting_reason.or_else(|| {
                match (schedule.trigger.driver(), next_run_at) {
                    (Driver::Hand | Driver::Delivery, _) => Some(SkipReason::UnsupportedType),
                    // A strategy looks for work by itself, so the time of its next firing is unknown.
                    (Driver::Strategy, _) => None,
                    (Driver::Clock, Some(at)) => (at > now).then_some(SkipReason::NotDue),
                    // The next time of an interval is counted from the end of the job that it has fired.
                    (Driver::Clock, None) if has_jobs || preparing => Some(SkipReason::AlreadyRunning),
                    // The calendar has no further time.
                    (Driver::Clock, None) => Some(SkipReason::NotDue),
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
            preparing,
            preparing_since,
            preparing_by: notes::prepared_by(agent, schedule).filter(|_| preparing),
            prepare_error: record
                .and_then(ScheduleRecord::firing_error)
                .map(ToOwned::to_owned)
                .or_else(|| no_node_for(agent, &snapshot.nodes))
                .filter(|_| preparing),
            last_error: trigger_error.or_else(|| record.and_then(|record| record.last_error.clone())),
            trigger_error: record.and_then(|record| record.trigger_error.clone()),
            skip_reason,
            skip_until: None,
            off_in_file: schedule.disabled_in_file(),
            off_by_person: record.is_some_and(ScheduleRecord::is_disabled_by_person),
            skip_note: None,
            skip_note_reason: None,
            failed_attempt: None,
            due_since: wait.map(|wait| wait.due),
            due_again: 0,
            adopt_note: None,
            missed: None,
            jobs_waiting: snapshot
                .jobs
                .iter()
                .filter(|job| {
                    job.schedule == Some(schedule.id) && matches!(job.state, LiveState::Pending { .. })
                })
                .count(),
            unsettled: snapshot
                .jobs
                .iter()
                .filter(|job| job.schedule == Some(schedule.id) && snapshot.unsettled.contains(&job.id))
                .count(),
            never_fires: None,
            over: is_done || has_passed || schedule.is_over(now),
            timezone: schedule.zone.to_string(),
        }
    }
}

/// Describes how to turn on a schedule that its file turns off.
pub(crate) fn off_in_file_advice(
    agent: &AgentName,
    schedule: &ScheduleName,
    location: &str,
    off_by_person: bool,
) -> String {
    if !off_by_person {
        return format!("turned off by `enabled: false` in {location}; change it there to turn it on");
    }
    let word = schedule_word(agent, schedule);
    format!(
        "turned off by `enabled: false` in {location}, and by a person; change the file, and then run \
         `cowhand schedule enable {word}`"
    )
}

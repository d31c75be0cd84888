//! Explanations why a schedule does not fire, or why a firing did not run.

use cowhand_core::firing::{AFTER_HOURS, BY_FILTER, BY_TRIGGER_LIMIT, MISSED};
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::OriginMessage;
use cowhand_core::plan::{
    AwaitedStart, Holds, LiveJob, LiveState, ProviderHold, ScheduleHold, SlotWait, Snapshot, free_places,
};
use cowhand_core::policy::ClosedBy;
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::schedule::{FiringOutcome, ScheduleRecord, ScheduleState, SkipReason};
use cowhand_core::shell::{option_words, trigger_words};
use cowhand_core::trigger::{Driver, TriggerConfig};
use cowhand_core::work_source::ConfiguredSource;
use jiff::{SignedDuration, Timestamp};

use super::{ScheduleStatus, ScheduleView};
use cowhand_store::LedgerRow;

impl ScheduleView {
    /// Adds a note that explains why the schedule does not fire or why its jobs do not start, for example because of a
    /// pause, a budget, a usage limit, a requeue, a provider slot or the calendar. The first reason that applies is
    /// used. A schedule that already waits for something else gets the note too: after that wait, the reason in the
    /// note delays the schedule further.
    pub(super) fn with_explanation(
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
            let (until, note) = pause_note(roster, agent, (reason, *until), snapshot, now);
            return self.with_note(SkipReason::Paused, Some(until), note);
        }
        let is_delay = matches!(schedule.trigger, TriggerConfig::Delay { .. });
        let record = snapshot.schedules.get(&schedule.id);
        let is_done = record.is_some_and(ScheduleRecord::is_done);
        if self.status == ScheduleStatus::Finished && is_delay && !is_done {
            let passed = record.and_then(|record| record.passed_while_off(schedule));
            let note = passed.map_or_else(
                || ClosedBy::EndAt.sentence(),
                |due| passed_while_off_sentence(&self.agent, &self.schedule, due),
            );
            return self.with_note(SkipReason::NotDue, None, note);
        }
        if self.status == ScheduleStatus::Disabled
            && let Some((until, sentence)) = waiting_work_note(agent, schedule, snapshot, now)
        {
            return self.with_note(SkipReason::Disabled, until, sentence);
        }
        if !matches!(self.status, ScheduleStatus::Idle | ScheduleStatus::Running) {
            return self;
        }
        if let Some(over) = roster.over_budget(agent, &snapshot.ledger, now) {
            // The end of the wait for reservations of running jobs is not known.
            let until = over.until.filter(|_| !over.fits_after_running());
            let is_interval = matches!(schedule.trigger, TriggerConfig::Interval { .. });
            let is_delayed = self.skip_reason == Some(SkipReason::NotDue)
                && self.never_fires.is_none()
                && if over.fits_after_running() {
                    is_interval && self.next_run_at.is_none()
                } else {
                    self.fires_before(schedule, until, now)
                };
            // A schedule that would not fire anyway, and has no job that waits, has a better reason in its calendar.
            if !is_delayed && self.skip_reason == Some(SkipReason::NotDue) && self.jobs_waiting == 0 {
                let by_calendar = self.clone().with_calendar(schedule, snapshot, now);
                if by_calendar.skip_note.is_some() {
                    return by_calendar;
                }
            }
            if is_delayed || matches!(self.skip_reason, Some(SkipReason::UnsupportedType) | None) {
                self.skip_reason = Some(SkipReason::OverBudget);
            }
            return self.with_note(SkipReason::OverBudget, until, over.sentence(&agent.name, roster.zone()));
        }
        if let Some(hold) = provider_hold(roster, agent, schedule, snapshot, now) {
            self.skip_reason = Some(hold.reason());
            return self.with_note(hold.reason(), Some(hold.until()), hold.sentence());
        }
        let requeue = requeue_note(schedule, snapshot, now);
        if let Some((until, sentence)) = requeue.or_else(|| retry_note(schedule, snapshot, now)) {
            self.skip_reason = Some(SkipReason::Requeued);
            return self.with_note(SkipReason::Requeued, Some(until), sentence);
        }
        if let Some((until, sentence)) = person_note(roster, agent, schedule, snapshot) {
            return self.with_note(SkipReason::OverBudget, until, sentence);
        }
        if let Some(wait) = slot_wait(roster, agent, schedule, snapshot, now) {
            self.skip_reason = Some(SkipReason::AtCapacity);
            return self.with_note(SkipReason::AtCapacity, wait.until, wait.sentence);
        }
        if self.unsettled > 0 && self.skip_reason == Some(SkipReason::AlreadyRunning) {
            let note = "the attempt of its job has ended or never began, and the next start ends or continues the job";
            return self.with_note(SkipReason::AlreadyRunning, None, note.to_owned());
        }
        if self.status != ScheduleStatus::Running
            && let Some(job) = snapshot.first_ready(roster, agent, schedule.id, now)
        {
            let awaited = snapshot.awaited_start(roster, agent, job, now);
            let reason = awaited.as_ref().and_then(|awaited| awaited.reason);
            // Without a daemon and without another reason, the missed due times explain the wait.
            if reason.is_some() || self.missed.is_none() {
                let retry = job.retry_due(now).map(|_| SkipReason::Requeued);
                let reason = reason.or(retry).unwrap_or(SkipReason::AlreadyRunning);
                self.skip_reason = Some(reason);
                let (until, sentence) = pending_note(job, awaited, now);
                return self.with_note(reason, until, sentence);
            }
        }
        if let Some(hold) = snapshot.provider_hold_of_new(roster, agent, schedule, now) {
            let is_by_clock = schedule.trigger.driver() == Driver::Clock;
            if !self.preparing
                && !is_by_clock
                && matches!(self.skip_reason, Some(SkipReason::UnsupportedType) | None)
            {
                self.skip_reason = Some(hold.reason());
            }
            return self.with_note(hold.reason(), Some(hold.until()), hold.sentence());
        }
        if self.skip_reason == Some(SkipReason::AtCapacity) && free_places(now, agent, schedule, snapshot) > 0
        {
            let note =
                format!("the agent has a free place again, and it fires {}", at_next_tick(snapshot, now));
            return self.with_note(SkipReason::AtCapacity, None, note);
        }
        self.with_calendar(schedule, snapshot, now)
    }

    /// Returns whether the schedule would fire before the budget allows spending again.
    fn fires_before(&self, schedule: &Schedule, until: Option<Timestamp>, now: Timestamp) -> bool {
        let Some(until) = until else { return self.next_run_at.is_none() };
        match &schedule.trigger {
            TriggerConfig::Cron { expression, .. } => {
                let start = schedule.timing.start_at.and_then(|start| start.checked_sub(TICK).ok());
                let from = start.map_or(now, |start| start.max(now));
                expression.next_after(from, schedule.zone.time_zone()).is_some_and(|at| at < until)
            }
            _ => self.next_run_at == Some(until),
        }
    }

    /// Adds a note about the key of the calendar that prevents the schedule from firing. A person can still trigger the
    /// schedule.
    fn with_calendar(mut self, schedule: &Schedule, snapshot: &Snapshot, now: Timestamp) -> Self {
        let zone = schedule.zone.time_zone();
        let is_past_end = schedule.timing.closed_by(now, zone) == Some(ClosedBy::EndAt);
        if let Some(never) = self.never_fires.as_ref().filter(|_| !is_past_end) {
            let note = format!("it can never fire: {never}");
            if matches!(self.skip_reason, Some(SkipReason::UnsupportedType) | None) {
                self.skip_reason = Some(SkipReason::OutsideHours);
            }
            let waits = self.skip_reason == Some(SkipReason::OutsideHours);
            let reason = if waits { SkipReason::OutsideHours } else { SkipReason::NotDue };
            return self.with_note(reason, None, note);
        }
        if let Some(calendar_skip_note) = self.calendar_skip_note(schedule, now) {
            let next = self.next_run_at;
            return self.with_note(SkipReason::NotDue, next, calendar_skip_note);
        }
        let Some(closed) = schedule.timing.closed_by(now, zone) else {
            if let Some((id, until)) = waits_for_earlier_calendar(schedule, snapshot, now)
                && matches!(self.skip_reason, Some(SkipReason::UnsupportedType) | None)
            {
                self.skip_reason = Some(SkipReason::OutsideHours);
                let note = format!("{id}: {RESCHEDULED_AT_START}");
                return self.with_note(SkipReason::OutsideHours, Some(until), note);
            }
            if self.skip_reason != Some(SkipReason::OutsideHours) {
                return self;
            }
            // No tick has run since the calendar opened or was changed.
            let when = at_next_tick(snapshot, now);
            let note = format!("its calendar was closed and is open now; it fires {when}");
            return self.with_note(SkipReason::OutsideHours, None, note);
        };
        let opens = schedule.timing.next_allowed(now, zone);
        match (schedule.trigger.driver(), self.skip_reason, closed) {
            (Driver::Clock, Some(SkipReason::NotDue), ClosedBy::StartAt(_)) => {
                self.with_note(SkipReason::NotDue, opens, closed.sentence())
            }
            (Driver::Clock, Some(SkipReason::OutsideHours), _) => {
                self.with_note(SkipReason::OutsideHours, opens, closed.sentence())
            }
            (Driver::Delivery | Driver::Strategy, Some(SkipReason::UnsupportedType) | None, _) => {
                self.skip_reason = Some(SkipReason::OutsideHours);
                self.with_note(SkipReason::OutsideHours, opens, closed.sentence())
            }
            _ => self,
        }
    }

    /// Explains which key of the calendar skips the next time of the cron expression.
    fn calendar_skip_note(&self, schedule: &Schedule, now: Timestamp) -> Option<String> {
        let TriggerConfig::Cron { expression, .. } = &schedule.trigger else { return None };
        if self.skip_reason != Some(SkipReason::NotDue) {
            return None;
        }
        let zone = schedule.zone.time_zone();
        let time = expression.next_after(now, zone)?;
        if self.next_run_at.is_some_and(|next| next <= time) {
            return None;
        }
        match schedule.timing.closed_by(time, zone)? {
            ClosedBy::EndAt => None,
            closed @ ClosedBy::StartAt(_) => Some(closed.sentence()),
            closed => Some(format!("{time:.0} is skipped: {}", closed.sentence())),
        }
    }

    fn with_note(self, reason: SkipReason, until: Option<Timestamp>, note: String) -> Self {
        Self { skip_until: until, skip_note: Some(note), skip_note_reason: Some(reason), ..self }
    }
}

/// Explains a pause, and returns the time of the next try. After the pause, the schedule waits for a budget that is used
/// up until later.
fn pause_note(
    roster: &Roster,
    agent: &Agent,
    (reason, ends): (&str, Timestamp),
    snapshot: &Snapshot,
    now: Timestamp,
) -> (Timestamp, String) {
    let over = roster.over_budget(agent, &snapshot.ledger, now).filter(|over| !over.fits_after_running());
    let renewed = over.and_then(|over| Some((over, over.until.filter(|renewed| *renewed > ends)?)));
    match renewed {
        Some((over, renewed)) => {
            let over = over.sentence(&agent.name, roster.zone());
            (renewed, format!("{reason}; its pause ends at {ends:.0}, and {over}"))
        }
        None => (ends, reason.to_owned()),
    }
}

/// The smallest step of a time: a time of a cron expression at `start_at` itself is after `start_at` less this step.
const TICK: SignedDuration = SignedDuration::from_nanos(1);

/// Explains why a delay whose time passed while it was off does not fire, and what to do.
pub(crate) fn passed_while_off_sentence(
    agent: &AgentName,
    schedule: &ScheduleName,
    due: Timestamp,
) -> String {
    format!(
        "its time ({due:.0}) passed while it was off, so it does not fire; `cowhand trigger {}` runs it, and a new \
         `run_at` or `in` in its file arms it again",
        trigger_words(agent, schedule)
    )
}

fn at_next_tick(snapshot: &Snapshot, now: Timestamp) -> &'static str {
    if snapshot.has_daemon(now) { "at the daemon's next tick" } else { "when a daemon starts" }
}

/// Note about a job that still waits for a time that the calendar no longer requires, because the config was changed
/// while no daemon ran.
pub const RESCHEDULED_AT_START: &str =
    "it waits for a calendar that was changed, and gets a new earliest start when a daemon starts";

/// Returns the oldest job of the schedule that waits for its first attempt until a time in the future.
fn waits_for_earlier_calendar<'a>(
    schedule: &Schedule,
    snapshot: &'a Snapshot,
    now: Timestamp,
) -> Option<(&'a JobId, Timestamp)> {
    let is_new = |job: &&LiveJob| job.schedule == Some(schedule.id) && job.began_at.is_none();
    snapshot.jobs.iter().filter(is_new).find_map(|job| match job.state {
        LiveState::Pending { not_before } => Some((&job.id, not_before.filter(|until| *until > now)?)),
        LiveState::Running { .. } => None,
    })
}

/// Returns the hold of the provider of the schedule's oldest job that waits for its provider, if there is one.
fn provider_hold<'a>(
    roster: &Roster,
    agent: &Agent,
    schedule: &Schedule,
    snapshot: &'a Snapshot,
    now: Timestamp,
) -> Option<ProviderHold<'a>> {
    let is_pending =
        |job: &&LiveJob| job.schedule == Some(schedule.id) && matches!(job.state, LiveState::Pending { .. });
    snapshot.jobs.iter().filter(is_pending).find_map(|job| snapshot.provider_hold(roster, agent, job, now))
}

/// Returns the provider slot for which a job of the schedule waits, if there is one and the agent has a free place.
fn slot_wait(
    roster: &Roster,
    agent: &Agent,
    schedule: &Schedule,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Option<SlotWait> {
    let is_running =
        |job: &&LiveJob| job.agent == agent.name && matches!(job.state, LiveState::Running { .. });
    if snapshot.jobs.iter().filter(is_running).count() >= agent.max_concurrent as usize {
        return None;
    }
    let is_ready = |job: &&LiveJob| {
        job.schedule == Some(schedule.id)
            && matches!(job.state, LiveState::Pending { not_before } if not_before.is_none_or(|at| at <= now))
    };
    snapshot.jobs.iter().filter(is_ready).find_map(|job| snapshot.slot_wait(roster, agent, job, now))
}

/// Explains why the oldest requeued job of the schedule waits, and until when.
fn requeue_note(schedule: &Schedule, snapshot: &Snapshot, now: Timestamp) -> Option<(Timestamp, String)> {
    let jobs = snapshot.jobs.iter().filter(|job| job.schedule == Some(schedule.id));
    jobs.filter_map(|job| Some((job, job.requeued_until(now)?)))
        .map(|(job, (until, sentence))| (until, format!("{}: {sentence}", job.id)))
        .next()
}

/// Explains that the oldest job of the schedule whose sender has no budget left waits, and until when.
fn person_note(
    roster: &Roster,
    agent: &Agent,
    schedule: &Schedule,
    snapshot: &Snapshot,
) -> Option<(Option<Timestamp>, String)> {
    let mut jobs = snapshot.jobs.iter().filter(|job| job.schedule == Some(schedule.id));
    let (job, over) =
        jobs.find_map(|job| snapshot.ledger.over_person.get(&job.id).map(|over| (&job.id, over)))?;
    let until = over.until.filter(|_| !over.fits_after_running());
    Some((until, format!("{job}: {}", over.sentence(&agent.name, roster.zone()))))
}

/// Explains why the oldest job of the schedule that waits for a retry still waits, and until when.
fn retry_note(schedule: &Schedule, snapshot: &Snapshot, now: Timestamp) -> Option<(Timestamp, String)> {
    let (job, until) = snapshot.next_retry(schedule.id, now)?;
    Some((until, format!("{}: its last attempt failed and will be retried", job.id)))
}

/// Explains which of the waiting jobs and accepted firings of a disabled schedule will start and which will not. Also
/// returns the end of the pause for which they wait.
fn waiting_work_note(
    agent: &Agent,
    schedule: &Schedule,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Option<(Option<Timestamp>, String)> {
    let holds = Holds::of(agent, snapshot, now);
    let is_pending =
        |job: &&LiveJob| job.schedule == Some(schedule.id) && matches!(job.state, LiveState::Pending { .. });
    let (held_jobs, free_jobs): (Vec<_>, Vec<_>) =
        snapshot.jobs.iter().filter(is_pending).map(|job| holds.job(job)).partition(Option::is_some);
    let of_schedule = snapshot.preparing.iter().filter(|firing| firing.schedule == schedule.id);
    let firings = of_schedule.filter(|firing| !firing.key.is_dropped_when_disabled());
    let (held_firings, free_firings): (Vec<_>, Vec<_>) =
        firings.map(|firing| holds.firing(firing)).partition(Option::is_some);
    let first_hold = held_jobs.iter().chain(&held_firings).copied().flatten().next();
    let held = first_hold.map(|hold| {
        let until = if hold == ScheduleHold::Off { "until it is on again" } else { "yet" };
        let counted = counted(held_jobs.len(), held_firings.len());
        let sentence = hold.sentence(&agent.name, schedule.zone.time_zone());
        format!("{counted} of it will not start {until}: {sentence}")
    });
    let (agent_name, option) = (&agent.name, option_words("--schedule", schedule.name.as_str()));
    let free = (!free_jobs.is_empty() || !free_firings.is_empty()).then(|| {
        let cancel = format!("`cowhand cancel --agent {agent_name} {option} --status pending`");
        let counted = counted(free_jobs.len(), free_firings.len());
        format!("{counted} of it will still start; {cancel} cancels the waiting jobs and firings")
    });
    let sentences: Vec<String> = held.into_iter().chain(free).collect();
    (!sentences.is_empty()).then(|| (first_hold.and_then(ScheduleHold::until), sentences.join("; ")))
}

/// Formats counts: `1 waiting job`, `2 accepted firings`, `2 waiting jobs and 1 accepted firing`.
fn counted(jobs: usize, firings: usize) -> String {
    let in_words = |count: usize, what: &str| match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        more => Some(format!("{more} {what}s")),
    };
    let parts: Vec<String> =
        in_words(jobs, "waiting job").into_iter().chain(in_words(firings, "accepted firing")).collect();
    parts.join(" and ")
}

/// Explains what a pending job waits for after its due time, and until when.
fn pending_note(job: &LiveJob, awaited: Option<AwaitedStart>, now: Timestamp) -> (Option<Timestamp>, String) {
    let (until, wait) = awaited.map_or_else(
        || (None, "it starts at the daemon's next tick".to_owned()),
        |awaited| (awaited.until, awaited.sentence),
    );
    let id = &job.id;
    let sentence = match (job.retry_due(now), job.requeued.sentence()) {
        (Some(since), _) => {
            format!("{id}: its last attempt failed{RETRY_DUE} since {since:.0}, and waits: {wait}")
        }
        (None, Some(requeued)) => format!("{id} is pending: {requeued}; {wait}"),
        (None, None) => format!("{id} is pending: {wait}"),
    };
    (until, sentence)
}

/// Lists the checks and the work source that prepare a firing of the schedule, in their order. Returns `None` if the
/// config no longer has any of them.
pub fn prepared_by(agent: &Agent, schedule: &Schedule) -> Option<String> {
    let source = schedule.work_source.as_deref().map(|source| match source {
        ConfiguredSource::Github { repo, .. } => {
            format!("the work source github {}", repo.as_deref().unwrap_or_default())
        }
        ConfiguredSource::Files { path, .. } => format!("the work source files {path}"),
        ConfiguredSource::Custom { name, .. } => format!("the work source {name}"),
    });
    let trust = (!agent.trusts(Some(schedule)).is_empty()).then(|| "`trust`".to_owned());
    let command = schedule.when_command.as_ref().map(|_| "`when_command`".to_owned());
    let parts: Vec<String> = trust.into_iter().chain(command).chain(source).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Explains why a firing ran or did not run. After its preparation, only `row` is used, because the config may have
/// changed since then. The other arguments are about the present, and are used only for a firing that still has to be
/// prepared: `record` is the state of its schedule, `prepared_by` lists the checks and the work source of its schedule.
pub fn why_of(
    row: &LedgerRow,
    record: Option<&ScheduleRecord>,
    prepared_by: Option<&str>,
    daemon_runs: bool,
) -> String {
    let (key, note) = (&row.key, row.note.as_deref());
    let with_note = |why: &str| note.map_or_else(|| why.to_owned(), |note| format!("{why}; {note}"));
    match row.outcome {
        FiringOutcome::Preparing if record.is_some_and(|record| record.holds_back(key)) => {
            with_note("its schedule is paused, and it waits for the end of the pause")
        }
        FiringOutcome::Preparing if !daemon_runs => {
            with_note("no daemon runs; it is prepared when a daemon starts")
        }
        FiringOutcome::Preparing => match prepared_by {
            Some(preparer) => {
                with_note(&format!("it is being prepared: it waits for the answer of {preparer}"))
            }
            None => with_note("it is being prepared"),
        },
        FiringOutcome::Missed => with_note("its time passed while nothing could fire it"),
        FiringOutcome::Coalesced => with_note("a later firing covers it"),
        FiringOutcome::Skipped(SkipReason::Filtered) => match note {
            Some(note)
                if note.starts_with(WHEN_COMMAND)
                    || note.starts_with(REFUSED_MESSAGE)
                    || FILTERS.contains(&note) =>
            {
                note.to_owned()
            }
            Some(note) => format!("{BY_TRUST}{note}"),
            // Earlier versions wrote no note.
            None => "its trigger, `filter` or `when_command` rejected it".to_owned(),
        },
        FiringOutcome::Skipped(SkipReason::OutsideHours) => {
            note.unwrap_or_else(|| because(SkipReason::OutsideHours)).to_owned()
        }
        FiringOutcome::Skipped(reason) => with_note(because(reason)),
        FiringOutcome::Ran if key.is_by_hand() => with_note("fired by hand"),
        FiringOutcome::Ran if key.is_fill() => with_note("a place was free"),
        FiringOutcome::Ran if key.is_by_clock() => match note {
            // A note about a late run is more precise than "it was due".
            Some(note) if note.starts_with(MISSED) || note.starts_with(AFTER_HOURS) => note.to_owned(),
            _ => with_note("it was due"),
        },
        FiringOutcome::Ran => match row.jobs.iter().find_map(|job| job.message.as_ref()) {
            Some(message) => with_note(&message_in_words(message)),
            None => with_note("its trigger fired"),
        },
    }
}

/// Text in the note about a job whose retry is due. It comes directly after the failure of the last attempt.
pub const RETRY_DUE: &str = "; the retry has been due";

/// Describes a chat message with its author, its place and its link.
pub fn message_in_words(message: &OriginMessage) -> String {
    let link = message.url.as_ref().map(|url| format!(" ({url})")).unwrap_or_default();
    format!("a message of {message}{link}")
}

/// Start of the explanation of a firing whose text `trust` refused.
pub(crate) const BY_TRUST: &str = "`trust`: ";

/// Start of the note of a firing whose chat message was refused.
pub(crate) const REFUSED_MESSAGE: &str = "its chat refused ";

/// Start of the note of a firing that its `when_command` skipped.
pub const WHEN_COMMAND: &str = "`when_command`";

// Notes of firings that were skipped: because of the trigger, because of its `filter`, or because too many schedules
// have triggered each other in a row.
pub(crate) const BY_EVENTS: &str = "its `events` rejected it";
pub(crate) const BY_CHAT: &str = "its `platform`, `channels` or `patterns` rejected it";
const FILTERS: [&str; 9] = [
    BY_EVENTS,
    BY_CHAT,
    BY_FILTER,
    BY_TRIGGER_LIMIT,
    // Earlier versions stored these notes.
    "its `platform`, `channel` or `pattern` rejected it",
    "its `events` did not let it through",
    "its `platform`, `channel` or `pattern` did not let it through",
    "its `filter` did not let it through",
    "too many schedules have fired each other one after another",
];

pub const fn because(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::UnsupportedType => "the clock does not fire this type of trigger",
        SkipReason::Disabled => "it was turned off",
        SkipReason::Removed => "it was removed from the config",
        SkipReason::AlreadyRunning => "an earlier job or firing of it had not ended",
        SkipReason::AtCapacity => {
            "all places of the agent (`max_concurrent`) are taken by jobs that run or wait, or by items that are being \
             claimed"
        }
        SkipReason::NoNode => "no node of the fleet runs jobs of its agent",
        SkipReason::NotDue => "it was not due",
        SkipReason::Duplicate => "the same work is done or in progress",
        SkipReason::Filtered => "its `filter`, `trust` or `when_command` rejected it",
        SkipReason::NoWork => "there was no work",
        SkipReason::OutsideHours => {
            "its calendar (`active_hours`, `exclude_dates`, `start_at`, `end_at`) excluded this time"
        }
        SkipReason::OverBudget => "it would have exceeded a budget",
        SkipReason::Paused => "it had paused itself",
        SkipReason::UsageLimit => "the usage limit of its provider was reached",
        SkipReason::ReserveReached => "the reserve of its provider was reached",
        SkipReason::SessionBusy => "an earlier job with the same session has not ended",
        SkipReason::Requeued => "its job could not be started, and is tried again",
        SkipReason::Cancelled => "somebody cancelled it before it had a job",
    }
}

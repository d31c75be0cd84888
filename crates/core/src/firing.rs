//! From an occurrence of a trigger to its firing: the decision about it, the note for the ledger, and the job with its
//! rendered prompt.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::actor::Actor;
use crate::duration;
use crate::id::ScheduleId;
use crate::job::{NewJob, OriginMessage, TriggerType};
use crate::policy::{ClosedBy, Misfire, Timing};
use crate::prompt::{self, AuthorTrust, Context, PromptAuthor, Template, Upstream, Variables};
use crate::roster::{Agent, Schedule};
use crate::schedule::{FiringOutcome, SkipReason};
use crate::trigger::{ClockTrigger, FiringContext, FiringKey, Task, TriggerKind};
use crate::trust::Treatment;
use crate::work::WorkItem;
use crate::work_source::ConfiguredSource;

/// An occurrence with the decision about it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewFiring {
    pub schedule: ScheduleId,
    pub key: FiringKey,
    pub due: Timestamp,
    pub decision: Decision,
    /// Note for the ledger.
    pub note: Option<String>,
}

/// Decision about an occurrence. `Run` creates exactly one job.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Run(NewJob),
    /// The firing has to be prepared: its jobs depend on a work source, on trust or on a command.
    Prepare(FiringContext),
    Skip(SkipReason),
    Miss,
    Coalesce,
}

impl Decision {
    pub const fn outcome(&self) -> FiringOutcome {
        match self {
            Self::Run(_) => FiringOutcome::Ran,
            Self::Prepare(_) => FiringOutcome::Preparing,
            Self::Skip(reason) => FiringOutcome::Skipped(*reason),
            Self::Miss => FiringOutcome::Missed,
            Self::Coalesce => FiringOutcome::Coalesced,
        }
    }
}

/// The schedule of an occurrence, its agent, and who caused the occurrence.
#[derive(Debug, Clone)]
pub struct Dispatch<'a> {
    pub agent: &'a Agent,
    pub schedule: &'a Schedule,
    /// Actor who requested the firing, if there is one.
    pub by: Option<Actor>,
}

/// What the planner decided about a due time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DueOutcome {
    pub due: Timestamp,
    pub outcome: FiringOutcome,
    /// True if the due time was missed and runs now because of `misfire`.
    pub by_misfire: bool,
    /// True if the firing was due earlier and waited until the calendar of its schedule allowed it.
    pub after_hours: bool,
}

impl Dispatch<'_> {
    /// Decides what happens to an occurrence that the clock did not cause.
    pub fn firing(&self, key: FiringKey, firing_context: FiringContext, now: Timestamp) -> NewFiring {
        let (decision, note) = self.decision(&key, None, firing_context, now);
        NewFiring { schedule: self.schedule.id, key, due: now, decision, note }
    }

    /// Decides what happens to a due time about which the planner has decided.
    pub fn clock_firing(&self, key: FiringKey, planned: DueOutcome, now: Timestamp) -> NewFiring {
        let DueOutcome { due, outcome, by_misfire, after_hours } = planned;
        let schedule = self.schedule;
        let (decision, refused) = match outcome {
            FiringOutcome::Ran | FiringOutcome::Preparing => {
                let firing_context = FiringContext::by_clock(schedule, &key, due);
                self.decision(&key, Some(due), firing_context, now)
            }
            FiringOutcome::Skipped(reason) => (Decision::Skip(reason), calendar_note(schedule, reason, due)),
            FiringOutcome::Missed => (Decision::Miss, Some(missed_note(&schedule.timing))),
            FiringOutcome::Coalesced => (Decision::Coalesce, None),
        };
        let misfire = by_misfire.then(|| make_up_note(schedule.timing.misfire));
        let waited = after_hours.then(|| calendar_wait_note(schedule, due));
        NewFiring { schedule: schedule.id, key, due, decision, note: misfire.or(refused).or(waited) }
    }

    /// Returns the decision (the occurrence runs, is prepared first, or is skipped and recorded) and the note for the
    /// ledger. A firing by hand is never skipped.
    fn decision(
        &self,
        key: &FiringKey,
        due: Option<Timestamp>,
        firing_context: FiringContext,
        now: Timestamp,
    ) -> (Decision, Option<String>) {
        match self.refusal(key, &firing_context, now).filter(|_| !key.is_by_hand()) {
            Some((reason, note)) => (Decision::Skip(reason), note),
            None if self.schedule.needs_preparing(self.agent) => {
                (Decision::Prepare(FiringContext { by: self.by.clone(), ..firing_context }), None)
            }
            None => {
                let (schedule, zone) = (Some(self.schedule), self.schedule.zone.time_zone());
                let firing_context = &firing_context;
                let firing = Firing { agent: self.agent, schedule, key, due, firing_context, zone };
                let note = firing_context.confined.as_deref().map(confined_note);
                (Decision::Run(firing.job(None, now)), note)
            }
        }
    }

    fn refusal(
        &self,
        key: &FiringKey,
        firing_context: &FiringContext,
        now: Timestamp,
    ) -> Option<(SkipReason, Option<String>)> {
        let (timing, zone) = (&self.schedule.timing, self.schedule.zone.time_zone());
        if key.event().is_some() && firing_context.task.ends_a_cycle() {
            Some((SkipReason::Filtered, Some(BY_TRIGGER_LIMIT.to_owned())))
        } else if !self.schedule.passes_filter(firing_context) {
            Some((SkipReason::Filtered, Some(BY_FILTER.to_owned())))
        } else if !key.is_by_clock() && timing.next_allowed(now, zone).is_none() {
            Some((SkipReason::OutsideHours, timing.closed_by(now, zone).map(ClosedBy::sentence)))
        } else {
            None
        }
    }
}

pub const BY_FILTER: &str = "its `filter` rejected it";
pub const BY_TRIGGER_LIMIT: &str = "too many schedules in a row have triggered each other";
/// Start of the note of a firing that was missed and runs now.
pub const MISSED: &str = "its time was missed";
/// Start of the note of a firing that was due at a time that the calendar of its schedule excludes.
pub const AFTER_HOURS: &str = "it waited for its calendar (`active_hours`, `exclude_dates`)";

/// Start of the note of a firing whose text is not trusted.
pub const CONFINED: &str = "in the strict sandbox: ";

/// Formats the note for the ledger about a firing whose text is not trusted.
pub fn confined_note(why: &str) -> String {
    format!("{CONFINED}{why}")
}

/// Returns the note of a missed firing that runs because of the misfire policy.
fn make_up_note(misfire: Misfire) -> String {
    let policy = misfire.as_str();
    format!("{MISSED}, because nothing could fire it, and this run makes up for it (`misfire: {policy}`)")
}

/// Returns the note of a firing that waited for the calendar of its schedule. The calendar may have been changed since
/// then.
fn calendar_wait_note(schedule: &Schedule, due: Timestamp) -> String {
    match schedule.timing.closed_by(due, schedule.zone.time_zone()) {
        Some(_) => format!("{AFTER_HOURS} to open"),
        None => format!("{AFTER_HOURS}, which was changed and no longer excludes this time"),
    }
}

/// Returns the note of a firing that was missed and does not run.
fn missed_note(timing: &Timing) -> String {
    match timing.latest().filter(|_| timing.misfire != Misfire::Skip) {
        Some(latest) => format!("it was late by more than `max_lateness` ({})", duration::rounded(latest)),
        None => "`misfire: skip` drops missed firings".to_owned(),
    }
}

/// Returns the note of a firing that the calendar of its schedule does not allow; `None` for any other skip reason.
fn calendar_note(schedule: &Schedule, reason: SkipReason, due: Timestamp) -> Option<String> {
    let closed = schedule.timing.closed_by(due, schedule.zone.time_zone());
    closed.filter(|_| reason == SkipReason::OutsideHours).map(ClosedBy::sentence)
}

/// A firing from which jobs are created.
#[derive(Debug, Clone, Copy)]
pub struct Firing<'a> {
    pub agent: &'a Agent,
    /// None for a job that belongs to an agent but to no schedule.
    pub schedule: Option<&'a Schedule>,
    pub key: &'a FiringKey,
    /// Due time, if the clock caused the firing.
    pub due: Option<Timestamp>,
    pub firing_context: &'a FiringContext,
    /// Time zone of the machine, used if there is no schedule.
    pub zone: &'a TimeZone,
}

impl FiringContext {
    /// Returns the context of a firing by the clock.
    pub fn by_clock(schedule: &Schedule, key: &FiringKey, due: Timestamp) -> Self {
        let mut task = Task { source_id: key.to_string(), ..Task::default() };
        match schedule.trigger.kind() {
            TriggerKind::Clock(ClockTrigger::Cron(expression)) => {
                task.title = format!("Cron trigger: {expression}");
                task.metadata.insert("fire_time".to_owned(), due.to_string());
                task.metadata.insert("cron_expression".to_owned(), expression.to_string());
            }
            TriggerKind::Clock(ClockTrigger::Delay) => {
                task.title = format!("Delay trigger: {due}");
                task.metadata.insert("fire_time".to_owned(), due.to_string());
                task.metadata.insert("run_at".to_owned(), due.to_string());
                task.metadata.insert("workflow_id".to_owned(), schedule.id.to_string());
            }
            TriggerKind::Clock(ClockTrigger::Interval(_))
            | TriggerKind::Hand
            | TriggerKind::Webhook { .. }
            | TriggerKind::Chat
            | TriggerKind::Event(_)
            | TriggerKind::Github { .. }
            | TriggerKind::Tasks { .. } => {}
        }
        Self { task, ..Self::default() }
    }
}

impl Schedule {
    /// Returns the next time that the calendar allows; `None` if the calendar allows `now`, or no time after it.
    pub fn next_opening(&self, now: Timestamp) -> Option<Timestamp> {
        self.timing.next_allowed(now, self.zone.time_zone()).filter(|opens| *opens > now)
    }
}

impl Firing<'_> {
    /// Returns the job of this firing, for `item` if there is one.
    pub fn job(&self, item: Option<&WorkItem>, now: Timestamp) -> NewJob {
        NewJob {
            agent: self.agent.name.clone(),
            trigger_type: self.trigger_type(),
            schedule: self.schedule.map(|schedule| schedule.name.clone()),
            prompt: Some(self.prompt(item, now)),
            origin: None,
            work_item: item.cloned(),
            chat: self.firing_context.chat.clone(),
            message: OriginMessage::of(self.firing_context),
            confined: self.firing_context.confined.clone(),
            not_before: self.earliest_start(now),
        }
    }

    /// Returns the earliest start of the job by the calendar of its schedule; `None` if the job may start now. A job
    /// that the clock fired may start now, because the clock fires only when the calendar allows it. A job by hand may
    /// start at any time.
    fn earliest_start(&self, now: Timestamp) -> Option<Timestamp> {
        let schedule = self.schedule.filter(|_| !self.key.is_by_hand() && !self.key.is_by_clock())?;
        schedule.next_opening(now)
    }

    fn trigger_type(&self) -> TriggerType {
        match self.key.as_str().split_once(':') {
            Some(("manual", _)) if self.firing_context.from_dashboard => TriggerType::Web,
            Some(("manual", _)) => TriggerType::Manual,
            Some(("webhook", _)) => TriggerType::Webhook,
            Some(("chat", message)) if message.starts_with("slack:") => TriggerType::Slack,
            Some(("chat", message)) if message.starts_with("discord:") => TriggerType::Discord,
            Some(("chat", _)) => TriggerType::Chat,
            _ => TriggerType::Schedule,
        }
    }

    /// Returns the author of the item or task, as its source states it.
    fn author<'a>(&'a self, item: Option<&'a WorkItem>) -> PromptAuthor<'a> {
        let of_item = item.and_then(|item| item.metadata.get("author")?.as_str());
        let of_task =
            || self.firing_context.task.metadata.get("author").map(String::as_str).filter(|_| item.is_none());
        PromptAuthor { name: of_item.or_else(of_task), trust: self.trust(item) }
    }

    /// Returns the trust in the author, as the prompt states it. The trust rules are applied before a job is created.
    /// So the author is trusted if a rule checked the author and the firing is not confined.
    fn trust(&self, item: Option<&WorkItem>) -> AuthorTrust {
        let trusts = self.agent.trusts(self.schedule);
        let source = match self.schedule {
            Some(schedule) => schedule.work_source.as_deref(),
            None => self.agent.work_source.as_ref(),
        };
        let is_own = item.is_some() && source.is_some_and(ConfiguredSource::is_of_owner);
        if self.firing_context.confined.is_some() {
            AuthorTrust::Stranger
        } else if trusts.is_empty() || self.key.is_by_hand() {
            AuthorTrust::NotChecked
        } else if !is_own && trusts.iter().all(|trust| trust.for_strangers() == Treatment::Allow) {
            AuthorTrust::Allowed
        } else {
            AuthorTrust::Trusted
        }
    }

    fn prompt(&self, item: Option<&WorkItem>, now: Timestamp) -> String {
        let given = self.firing_context.prompt.as_deref();
        let own = self.schedule.and_then(|schedule| schedule.prompt.as_deref());
        let text = prompt::choose(given, own, self.agent.default_prompt.as_deref());
        let trigger = self.schedule.map_or("manual", |schedule| schedule.trigger.type_name());
        let zone = self.schedule.map_or(self.zone, |schedule| schedule.zone.time_zone());
        let upstream = Upstream::of(trigger, &self.firing_context.task);
        let context = Context {
            now: &now.to_zoned(zone.clone()),
            agent: &self.agent.name,
            schedule: self.schedule.map(|schedule| &schedule.name),
            firing: prompt::PromptFiring { trigger, key: self.key, fired_at: now, scheduled_for: self.due },
            task: &self.firing_context.task,
            work_item: item,
            upstream: upstream.as_ref(),
            payload: self.firing_context.payload.as_ref(),
            author: self.author(item),
        };
        let variables = Variables::of(trigger, item.is_some());
        let template = if given.is_some() {
            Template::literal(text, variables)
        } else {
            // Problems were reported when the config was loaded. A variable without a value does not prevent the
            // firing.
            Template::parse_lenient(text, variables).0
        };
        prompt::build_prompt(&template, &context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::Occurrence;
    use crate::trigger::TriggerConfig;

    fn job(trigger: &str, key: &FiringKey, own: &str, given: Option<&str>) -> NewJob {
        let mut agent = Agent::new("coder".parse().unwrap());
        agent.default_prompt = Some("Do what you do.".to_owned());
        let trigger: TriggerConfig = serde_json::from_str(trigger).unwrap();
        let mut schedule = Schedule::new(&agent.name, "s".parse().unwrap(), trigger);
        schedule.prompt = (!own.is_empty()).then(|| own.to_owned());
        let due: Timestamp = "2026-01-05T09:00:00Z".parse().unwrap();
        let firing_context = match given {
            Some(given) => FiringContext::by_hand(key, Some(given.to_owned())),
            None => FiringContext::by_clock(&schedule, key, due),
        };
        let (schedule, due, zone) = (Some(&schedule), Some(due), &TimeZone::UTC);
        Firing { agent: &agent, schedule, key, due, firing_context: &firing_context, zone }
            .job(None, "2026-01-05T09:00:01Z".parse().unwrap())
    }

    #[test]
    fn the_prompt_of_a_firing_is_rendered() {
        let (daily, once) = (
            r#"{"type":"cron","expression":"@daily"}"#,
            r#"{"type":"delay","run_at":"2026-01-05T09:00:00Z"}"#,
        );
        let table = [
            (daily, "Now: {{fire_time}}, {{cron_expression}}", None, "Now: 2026-01-05T09:00:00Z, @daily"),
            (
                once,
                "{{title}} at {{run_at}}",
                None,
                "Delay trigger: 2026-01-05T09:00:00Z at 2026-01-05T09:00:00Z",
            ),
            (once, "Now: {{fire_time}}", None, "Now: 2026-01-05T09:00:00Z"),
            (daily, "", None, "Do what you do."),
            (
                daily,
                "Its own.",
                Some("Mine, with {{date}} and {{braces}}."),
                "Mine, with {{date}} and {{braces}}.",
            ),
            (daily, "Its own of {{date}}.", Some("  "), "Its own of 2026-01-05."),
            (daily, "{{nothing_like_that}}", None, "{{nothing_like_that}}"),
        ];
        let key = Occurrence::Cron("2026-01-05T09:00:00Z".parse().unwrap()).key(0);
        for (trigger, own, given, expected) in table {
            assert_eq!(job(trigger, &key, own, given).prompt.as_deref(), Some(expected), "{own:?} {given:?}");
        }
    }

    #[test]
    fn a_delivery_outside_active_hours_waits() {
        let mut agent = Agent::new("coder".parse().unwrap());
        let trigger = serde_json::from_str(r#"{"type":"webhook","allow_unsigned":true}"#).unwrap();
        let mut schedule = Schedule::new(&agent.name, "s".parse().unwrap(), trigger);
        schedule.timing =
            serde_json::from_str(r#"{"active_hours":{"start":"09:00","end":"17:00"}}"#).unwrap();
        agent.schedules.push(schedule);
        let open = |occurrence: Occurrence<'_>, now: &str| {
            let (key, firing_context) = (occurrence.key(0), FiringContext::default());
            let schedule = Some(&agent.schedules[0]);
            let (due, zone) = (None, &TimeZone::UTC);
            let firing =
                Firing { agent: &agent, schedule, key: &key, due, firing_context: &firing_context, zone };
            firing.job(None, now.parse().unwrap()).not_before.map(|at| at.to_string())
        };
        let hook = Occurrence::Webhook { delivery_id: "1" };
        assert_eq!(open(hook, "2026-01-05T03:00:00Z").as_deref(), Some("2026-01-05T09:00:00Z"));
        assert_eq!(open(hook, "2026-01-05T10:00:00Z"), None);
        assert_eq!(open(Occurrence::Manual("1"), "2026-01-05T03:00:00Z"), None, "by hand: no wait");
    }

    /// The fence states the trust in the author of an item, which depends on the `trust` of the agent and of the
    /// schedule.
    #[test]
    fn the_prompt_says_whether_the_author_of_an_item_is_trusted() {
        let item = |source: &str| -> WorkItem {
            let json = serde_json::json!({
                "id": format!("{source}-1"), "source": source, "external_id": "1", "title": "Fix it",
                "description": "Please.", "priority": "medium", "labels": [], "metadata": {"author": "eve"},
                "url": "https://x.example/1", "created_at": "2026-01-05T09:00:00Z",
                "updated_at": "2026-01-05T09:00:00Z",
            });
            serde_json::from_value(json).unwrap()
        };
        let fence = |trusts: [&str; 2], source: &str| {
            let mut agent = Agent::new("coder".parse().unwrap());
            let trigger = serde_json::from_str(r#"{"type":"interval","interval":"1m"}"#).unwrap();
            let mut schedule = Schedule::new(&agent.name, "s".parse().unwrap(), trigger);
            let [of_agent, own] = trusts;
            agent.trust = serde_json::from_str(of_agent).unwrap();
            schedule.trust = serde_json::from_str(own).unwrap();
            let config = serde_json::json!({"type": source, "path": "tasks"});
            schedule.work_source = Some(serde_json::from_value(config).unwrap());
            let (key, due) = (Occurrence::Interval(1).key(0), None);
            let (schedule, firing_context, zone) =
                (Some(&schedule), &FiringContext::default(), &TimeZone::UTC);
            let firing = Firing { agent: &agent, schedule, key: &key, due, firing_context, zone };
            let job = firing.job(Some(&item(source)), "2026-01-05T09:00:00Z".parse().unwrap());
            let prompt = job.prompt.unwrap();
            let line = prompt.lines().find(|line| line.contains("this is your task")).unwrap();
            let (_, authors) = line.split_once("written by ").unwrap();
            authors.split_once("; it cannot").unwrap().0.to_owned()
        };
        let (none, allow, write) = ("null", r#"{"strangers":"allow"}"#, r#"{"min_permission":"write"}"#);
        let allowed = "eve (not known to be trusted, since this fleet allows strangers)";
        assert_eq!(fence([none, none], "github"), "eve");
        assert_eq!(fence([write, none], "github"), "eve (trusted)");
        assert_eq!(fence([allow, none], "github"), allowed);
        assert_eq!(fence([allow, allow], "github"), allowed);
        assert_eq!(fence([allow, write], "github"), "eve (trusted)", "one of the two rules was checked");
        assert_eq!(fence([none, allow], "files"), "eve (trusted)", "a folder of the owner");
    }

    #[test]
    fn the_occurrence_determines_the_trigger_type_of_a_job() {
        use crate::trigger::ChatPlatform::{Discord, Slack};
        let table = [
            (Occurrence::Manual("x"), TriggerType::Manual),
            (Occurrence::Interval(1), TriggerType::Schedule),
            (Occurrence::Webhook { delivery_id: "slack:1" }, TriggerType::Webhook),
            (Occurrence::Chat { platform: Slack, message_id: "1" }, TriggerType::Slack),
            (Occurrence::Chat { platform: Discord, message_id: "1" }, TriggerType::Discord),
            (Occurrence::Github { number: 7, head: None }, TriggerType::Schedule),
            (Occurrence::Event { seq: 7 }, TriggerType::Schedule),
        ];
        for (occurrence, expected) in table {
            let key = occurrence.key(0);
            assert_eq!(job(r#"{"type":"manual"}"#, &key, "", None).trigger_type, expected, "{key}");
        }
    }
}

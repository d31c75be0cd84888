//! Tests of the planner. Each case has a fleet, a snapshot of the store, the current time, and the lines of the
//! resulting plan.

mod clocks;
mod delays;
mod ends;
mod money;
mod next_firings;
mod nodes;
mod overdue;
mod overlap;
mod pending;
mod preparing;
mod sessions;
mod slots;
mod work;

use super::*;
use crate::schedule::{DisabledBy, WaitingFiring};
use crate::trigger::tests::GOLDEN;
use crate::trigger::{Driver, TriggerConfig};

/// Returns a time on 2026-01-05, a Monday, unless the text has another date.
fn at(text: &str) -> Timestamp {
    let full = if text.contains('T') { text.to_owned() } else { format!("2026-01-05T{text}") };
    let full = if full.len() == 16 { format!("{full}:00Z") } else { format!("{full}Z") };
    full.parse().unwrap()
}

struct Scene {
    roster: Roster,
    snapshot: Snapshot,
}

impl Scene {
    /// Creates one agent `a` with one schedule `s`, which is written in JSON with the keys of the config and is armed
    /// at midnight.
    fn new(schedule: &str) -> Self {
        let mut scene = Self {
            roster: Roster::of(vec![Agent::new("a".parse().unwrap())]),
            snapshot: Snapshot::default(),
        };
        scene.add("s", schedule);
        scene
    }

    fn add(&mut self, name: &str, schedule: &str) -> ScheduleId {
        let json: serde_json::Value = serde_json::from_str(schedule).unwrap();
        let (timing, trigger): (serde_json::Map<_, _>, serde_json::Map<_, _>) = json
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .partition(|(key, _)| TIMING.contains(&key.as_str()));
        let agent = &mut self.roster.agents[0];
        let trigger = serde_json::from_value(trigger.into()).unwrap();
        let timing = serde_json::from_value(timing.into()).unwrap();
        let schedule = Schedule { timing, ..Schedule::new(&agent.name, name.parse().unwrap(), trigger) };
        let record = ScheduleRecord::new(&agent.name, &schedule, at("00:00"));
        self.snapshot.schedules.insert(schedule.id, record);
        agent.schedules.push(schedule);
        self.roster.agents[0].schedules.last().unwrap().id
    }

    fn max(mut self, max_concurrent: u32) -> Self {
        self.roster.agents[0].max_concurrent = max_concurrent;
        self
    }

    fn record(&mut self) -> &mut ScheduleRecord {
        let id = self.roster.agents[0].schedules[0].id;
        self.snapshot.schedules.get_mut(&id).unwrap()
    }

    fn last_due(mut self, due: &str) -> Self {
        self.record().last_due = Some(at(due));
        self
    }

    fn last_run(mut self, end: &str) -> Self {
        self.record().record_run_or_poll(at(end).into());
        self.record().interval_count = 1;
        self
    }

    /// Sets the time at which the daemon started.
    fn up_since(mut self, start: &str) -> Self {
        self.snapshot.uptime = Uptime::since(at(start).into());
        self
    }

    fn waiting(mut self, due: &str, reason: SkipReason) -> Self {
        self.record().waiting = Some(WaitingFiring { due: at(due), reason });
        self
    }

    /// Adds a live job: of schedule `s` fired by the clock (`clock`), of `s` by hand (`hand`), or without a schedule
    /// (`agent`).
    fn job(mut self, origin: &str, state: LiveState) -> Self {
        let of_schedule = (origin != "agent").then_some(self.roster.agents[0].schedules[0].id);
        self.snapshot.jobs.push(LiveJob {
            id: JobId::new(jiff::civil::date(2026, 1, 5), self.snapshot.jobs.len() as u64 + 1),
            agent: "a".parse().unwrap(),
            schedule: of_schedule,
            schedule_name: of_schedule.map(|_| "s".parse().unwrap()),
            by_trigger: origin == "clock",
            automatic: origin == "clock",
            item: None,
            began_at: matches!(state, LiveState::Running { .. }).then(|| at("09:30")),
            resumes: None,
            provider: None,
            requeued: Requeued::default(),
            reserved: Amount::default(),
            chat: None,
            confined: false,
            session_key: matches!(state, LiveState::Running { .. }).then(|| "agent".to_owned()),
            state,
        });
        self
    }

    fn plan(&self, now: &str) -> String {
        let plan = plan(at(now), &self.roster, &self.snapshot);
        let mut lines: Vec<String> = plan.actions.iter().map(|action| self.line(action)).collect();
        let wake = plan.wake_at.filter(|wake| *wake < Timestamp::MAX);
        lines.extend(wake.map(|wake| format!("wake {}", short(wake))));
        lines.join(" | ")
    }

    fn line(&self, action: &Action) -> String {
        let number = |job: &JobId| job.as_str().trim_start_matches("job-2026-01-05-00000").to_owned();
        match action {
            Action::Expire { job, epoch } => format!("expire {} epoch {epoch}", number(job)),
            Action::Stop { job } => format!("stop {}", number(job)),
            Action::CancelPrevious { job } => format!("cancel {}", number(job)),
            Action::Fire { key, due, outcome, .. } => {
                let reason = outcome.skip_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
                let key = if key.kind() == "cron" { "cron" } else { key.as_str() };
                format!("{}{reason} {key} {}", outcome.as_str(), short(*due))
            }
            Action::Prepare { key, .. } => format!("prepare {key}"),
            Action::Wait { hold, schedule, due } => {
                let agent = &self.roster.agents[0];
                let schedule = agent.schedules.iter().find(|known| known.id == *schedule).unwrap();
                format!("{}, due {}", hold.line(&agent.name, schedule), short(*due))
            }
            Action::Resume { .. } => "resume".to_owned(),
            Action::Finish { .. } => "finish".to_owned(),
            Action::Reopen { .. } => "reopen".to_owned(),
            Action::RestartFromNow { .. } => "restart".to_owned(),
            Action::Start { job, .. } => format!("start {}", number(job)),
        }
    }
}

const TIMING: [&str; 8] =
    ["jitter", "misfire", "max_lateness", "overlap", "active_hours", "exclude_dates", "start_at", "end_at"];

/// Formats as `HH:MM`, with seconds and date where needed.
fn short(at: Timestamp) -> String {
    let seconds = if at.as_second() % 60 == 0 { "" } else { ":%S" };
    let day = if at.to_string().starts_with("2026-01-05") { "" } else { "%m-%d " };
    at.strftime(&format!("{day}%H:%M{seconds}")).to_string()
}

const RUNNING: LiveState = LiveState::Running { epoch: 1, lease_until: Timestamp::MAX, cancel: false };
const PENDING: LiveState = LiveState::Pending { not_before: None };

fn check(cases: impl IntoIterator<Item = (&'static str, Scene, &'static str, &'static str)>) {
    for (case, scene, now, expected) in cases {
        assert_eq!(scene.plan(now), expected, "{case}");
    }
}

const EVERY: &str = r#"{"type":"interval","interval":"5m"}"#;
const HOURLY: &str = r#"{"type":"cron","expression":"0 * * * *"}"#;

fn hourly(policies: &str) -> Scene {
    Scene::new(&format!(r#"{{"type":"cron","expression":"0 * * * *",{policies}}}"#)).last_due("09:00")
}

#[test]
fn intervals_count_from_completion() {
    check([
        ("never ran: at once", Scene::new(EVERY), "10:00", "ran interval:1 00:00"),
        ("not due", Scene::new(EVERY).last_run("10:03"), "10:05", "wake 10:08"),
        ("due", Scene::new(EVERY).last_run("10:03"), "10:08", "ran interval:2 10:08"),
        ("long overdue: runs once", Scene::new(EVERY).last_run("10:00"), "10:30", "ran interval:2 10:05"),
        (
            "its own job has not ended: no next time",
            Scene::new(EVERY).job("clock", RUNNING).last_run("10:00"),
            "11:00",
            "",
        ),
        (
            "a job by hand delays the firing and does not move the due time",
            Scene::new(EVERY).max(2).job("hand", RUNNING).last_run("10:00"),
            "10:06",
            "Skipping a/s: already running, due 10:05",
        ),
        ("clock set back: counts from now", Scene::new(EVERY).last_run("10:00"), "09:00", "restart"),
    ]);
}

#[test]
fn cron_fires_at_its_times() {
    check([
        ("not yet", Scene::new(HOURLY).last_due("09:00"), "09:30", "wake 10:00"),
        ("due", Scene::new(HOURLY).last_due("09:00"), "10:00", "ran cron 10:00 | wake 11:00"),
        ("decided already", Scene::new(HOURLY).last_due("10:00"), "10:00", "wake 11:00"),
        ("due times before it was armed do not count", Scene::new(HOURLY), "00:30", "wake 01:00"),
        ("clock set back: counts from now", Scene::new(HOURLY).last_due("10:00"), "08:30", "restart"),
    ]);
}

#[test]
fn missed_firings_follow_the_misfire_policy() {
    check([
        (
            "run_once: the newest runs for all",
            hourly(r#""misfire":"run_once""#).up_since("12:29"),
            "12:30",
            "coalesced cron 10:00 | coalesced cron 11:00 | ran cron 12:00 | wake 13:00",
        ),
        (
            "skip: none runs, and the plan waits for the next due time",
            hourly(r#""misfire":"skip""#).up_since("12:29"),
            "12:30",
            "missed cron 10:00 | missed cron 11:00 | missed cron 12:00 | wake 13:00",
        ),
        (
            "skip: a due time one second before the start of the daemon was missed",
            hourly(r#""misfire":"skip""#).up_since("11:00:01"),
            "11:00:02",
            "missed cron 10:00 | missed cron 11:00 | wake 12:00",
        ),
        (
            "skip: late is not missed",
            hourly(r#""misfire":"skip""#).up_since("10:59"),
            "11:50",
            "missed cron 10:00 | ran cron 11:00 | wake 12:00",
        ),
        (
            "run_all: each, oldest first, beyond the capacity of 1",
            hourly(r#""misfire":"run_all""#).up_since("12:29"),
            "12:30",
            "ran cron 10:00 | ran cron 11:00 | ran cron 12:00 | wake 13:00",
        ),
        (
            "run_all: also while the first of them runs",
            hourly(r#""misfire":"run_all""#).up_since("12:29").last_due("10:00").job("clock", RUNNING),
            "12:30",
            "ran cron 11:00 | ran cron 12:00 | wake 13:00",
        ),
        (
            "run_all within max_lateness",
            hourly(r#""misfire":"run_all","max_lateness":"2h""#).up_since("12:29"),
            "12:30",
            "missed cron 10:00 | ran cron 11:00 | ran cron 12:00 | wake 13:00",
        ),
        (
            "run_once too late",
            hourly(r#""max_lateness":"10m""#).up_since("10:29"),
            "10:30",
            "missed cron 10:00 | wake 11:00",
        ),
    ]);
    let week = hourly(r#""misfire":"run_all","max_lateness":"30d""#).up_since("2026-01-12T10:29");
    let week = week.plan("2026-01-12T10:30");
    assert_eq!(week.matches("ran cron").count(), crate::policy::MAX_MISFIRES);
}

#[test]
fn overlap_policies_and_capacity_decide_due_firings() {
    check([
        (
            "skip: the due time is recorded as skipped, and the plan waits for the next one",
            hourly(r#""overlap":"skip""#).job("clock", RUNNING),
            "10:00",
            "skipped already_running cron 10:00 | wake 11:00",
        ),
        (
            "queue",
            hourly(r#""overlap":"queue""#).job("clock", RUNNING),
            "10:00",
            "ran cron 10:00 | wake 11:00",
        ),
        (
            "cancel_previous",
            hourly(r#""overlap":"cancel_previous""#).job("clock", RUNNING),
            "10:00",
            "cancel 1 | ran cron 10:00 | wake 11:00",
        ),
        (
            "allow, with a free place",
            hourly(r#""overlap":"allow""#).max(2).job("clock", RUNNING),
            "10:00",
            "ran cron 10:00 | wake 11:00",
        ),
        (
            "allow, without a free place",
            hourly(r#""overlap":"allow""#).job("clock", RUNNING),
            "10:00",
            "Skipping a/s: at max capacity (1/1), due 10:00",
        ),
        (
            "two of two places taken",
            Scene::new(EVERY).max(2).job("agent", RUNNING).job("agent", RUNNING),
            "10:00",
            "Skipping a/s: at max capacity (2/2), due 00:00",
        ),
        (
            "the wait is recorded once",
            Scene::new(EVERY).job("agent", RUNNING).waiting("00:00", SkipReason::AtCapacity),
            "10:00",
            "",
        ),
        (
            "a waiting job takes its place before a new firing",
            Scene::new(EVERY).job("agent", PENDING),
            "10:00",
            "Skipping a/s: at max capacity (1/1), due 00:00 | start 1",
        ),
        (
            "a due time that had to wait was not missed",
            hourly(r#""misfire":"skip""#).waiting("10:00", SkipReason::AtCapacity),
            "10:45",
            "ran cron 10:00 | wake 11:00",
        ),
        (
            "a due time that waited until after the next one: one run for both",
            hourly(r#""misfire":"skip""#).waiting("10:00", SkipReason::AtCapacity),
            "11:45",
            "coalesced cron 10:00 | ran cron 11:00 | wake 12:00",
        ),
    ]);
}

#[test]
fn every_schedule_of_every_agent_is_planned() {
    let mut scene = Scene::new(EVERY).max(2);
    scene.add("t", r#"{"type":"delay","run_at":"2026-01-05T10:00:00Z"}"#);
    let mut other = Agent::new("b".parse().unwrap());
    let trigger = serde_json::from_str(EVERY).unwrap();
    let schedule = Schedule::new(&other.name, "s".parse().unwrap(), trigger);
    let record = ScheduleRecord::new(&other.name, &schedule, at("00:00"));
    scene.snapshot.schedules.insert(schedule.id, record);
    other.schedules.push(schedule);
    scene.roster.agents.push(other);
    let all: Vec<ScheduleId> =
        scene.roster.agents.iter().flat_map(|agent| &agent.schedules).map(|schedule| schedule.id).collect();
    let fired: Vec<ScheduleId> = plan(at("10:00"), &scene.roster, &scene.snapshot)
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Fire { schedule, outcome: FiringOutcome::Ran, .. } => Some(*schedule),
            _ => None,
        })
        .collect();
    assert_eq!((all.len(), &fired), (3, &all));
}

#[test]
fn two_due_schedules_share_the_places() {
    let mut scene = Scene::new(EVERY);
    scene.add("t", HOURLY);
    scene.record().record_run_or_poll(at("09:00").into());
    assert_eq!(
        scene.plan("10:00"),
        "ran interval:1 09:05 | coalesced cron 01:00 | coalesced cron 02:00 | coalesced cron 03:00 | coalesced cron 04:00 | coalesced cron 05:00 | coalesced cron 06:00 | coalesced cron 07:00 | coalesced cron 08:00 | coalesced cron 09:00 | Skipping a/t: at max capacity (1/1), due 10:00"
    );
}

#[test]
fn the_calendar_closes_schedules() {
    let night = r#""active_hours":{"start":"22:00","end":"06:00"}"#;
    let interval =
        |policies: &str| Scene::new(&format!(r#"{{"type":"interval","interval":"5m",{policies}}}"#));
    check([
        (
            "cron: a row for each due time",
            hourly(night),
            "11:00",
            "skipped outside_hours cron 10:00 | skipped outside_hours cron 11:00 | wake 12:00",
        ),
        (
            "interval: waits for its active hours",
            interval(night),
            "10:00",
            "Skipping a/s: its calendar allows no firing until 2026-01-05T22:00:00Z, due 00:00 | wake 22:00",
        ),
        ("interval: due after its active hours", interval(night).last_run("05:58"), "05:59", "wake 22:00"),
        ("in its active hours", interval(night), "23:00", "ran interval:1 00:00"),
        (
            "excluded date",
            hourly(r#""exclude_dates":["2026-01-05"]"#),
            "10:00",
            "skipped outside_hours cron 10:00 | wake 11:00",
        ),
        ("not started", interval(r#""start_at":"2026-01-05T12:00:00Z""#), "10:00", "wake 12:00"),
        ("over", interval(r#""end_at":"2026-01-05T09:00:00Z""#), "10:00", "finish"),
    ]);
}

#[test]
fn delays_keep_to_their_calendar() {
    let delay = |policies: &str| {
        Scene::new(&format!(r#"{{"type":"delay","run_at":"2026-01-05T10:00:00Z",{policies}}}"#))
    };
    let hours = r#""active_hours":{"start":"12:00","end":"13:00"}"#;
    let (today, end) = (r#""exclude_dates":["2026-01-05"]"#, r#""end_at":"2026-01-05T11:00:00Z""#);
    let early = r#""active_hours":{"start":"09:00","end":"10:30"}"#;
    let armed = |since: &str, mut scene: Scene| {
        scene.record().armed_at = at(since);
        scene
    };
    let ran = "ran delay:2026-01-05T10:00:00Z 10:00";
    check(vec![
        ("not due", delay(hours), "09:00", "wake 10:00"),
        (
            "due before its hours",
            delay(hours),
            "10:00",
            "Skipping a/s: its calendar allows no firing until 2026-01-05T12:00:00Z, due 10:00 | wake 12:00",
        ),
        ("in its hours", delay(hours), "12:00", ran),
        (
            "on an excluded day",
            delay(today),
            "10:00",
            "Skipping a/s: its calendar allows no firing until 2026-01-06T00:00:00Z, due 10:00 | wake 01-06 00:00",
        ),
        ("before its start", delay(r#""start_at":"2026-01-05T11:00:00Z""#), "10:00", "wake 11:00"),
        ("before its end", delay(end), "10:30", "ran delay:2026-01-05T10:00:00Z 10:00 | wake 11:00"),
        ("its end has passed, and it did not fire", delay(end), "11:00", ran),
        ("it was loaded after its end", armed("11:00", delay(end)), "11:00", "finish"),
        (
            "it was turned on after its hours",
            armed("10:30", delay(&format!("{early},{end}"))),
            "12:00",
            "finish",
        ),
        ("its hours and its end have passed", delay(&format!("{early},{end}")), "12:00", ran),
        ("its end has passed before its hours", delay(&format!("{hours},{end}")), "11:00", "finish"),
        ("its end comes before its hours", delay(&format!("{hours},{end}")), "10:00", "wake 11:00"),
        ("it ends before it is due", delay(r#""end_at":"2026-01-05T09:30:00Z""#), "09:00", "wake 09:30"),
    ]);
}

#[test]
fn disabled_and_external_schedules_do_not_fire() {
    for state in
        [ScheduleState::Disabled { why: DisabledBy::Person }, ScheduleState::Error { reason: "gone".into() }]
    {
        let mut scene = Scene::new(EVERY);
        scene.record().state = state;
        assert_eq!(scene.plan("10:00"), "");
    }
    let mut scene = Scene::new(EVERY);
    scene.roster.agents[0].schedules[0].enabled = false;
    assert_eq!(scene.plan("10:00"), "");
    let is_by_clock =
        |line: &str| serde_json::from_str::<TriggerConfig>(line).unwrap().driver() == Driver::Clock;
    for (_, trigger) in GOLDEN.iter().filter(|(_, line)| !is_by_clock(line)) {
        assert_eq!(Scene::new(trigger).plan("10:00"), "", "{trigger}");
    }
}

#[test]
fn jobs_start_oldest_first_while_there_are_places() {
    let manual = || Scene::new(r#"{"type":"manual"}"#);
    let backing_off = |until: &str| LiveState::Pending { not_before: Some(at(until)) };
    check([
        ("one place", manual().job("agent", PENDING).job("agent", PENDING), "10:00", "start 1"),
        (
            "two of three",
            manual().max(2).job("hand", PENDING).job("hand", PENDING).job("hand", PENDING),
            "10:00",
            "start 1 | start 2",
        ),
        ("full", manual().job("agent", RUNNING).job("agent", PENDING), "10:00", ""),
        ("in its backoff", manual().job("agent", backing_off("10:05")), "10:00", "wake 10:05"),
        ("after its backoff", manual().job("agent", backing_off("10:05")), "10:05", "start 1"),
        (
            "a job in its backoff does not delay others",
            manual().job("agent", backing_off("10:05")).job("agent", PENDING),
            "10:00",
            "start 2 | wake 10:05",
        ),
    ]);
}

#[test]
fn equal_intervals_are_spread_by_default_and_cron_is_not() {
    let mut scene = Scene::new(r#"{"type":"interval","interval":"1h"}"#);
    for number in 0..9 {
        scene.add(&format!("s{number}"), r#"{"type":"interval","interval":"1h"}"#);
    }
    for record in scene.snapshot.schedules.values_mut() {
        record.record_run_or_poll(at("09:00").into());
    }
    let due: std::collections::BTreeSet<Timestamp> = scene.roster.agents[0]
        .schedules
        .iter()
        .map(|schedule| {
            let mut alone = scene.roster.clone();
            alone.agents[0].schedules.retain(|other| other.id == schedule.id || other.name.as_str() == "s");
            plan(at("09:30"), &alone, &scene.snapshot).wake_at.unwrap()
        })
        .collect();
    assert!(due.len() > 5, "{due:?}");
    assert!(due.iter().all(|due| (at("10:00")..=at("10:00:36")).contains(due)), "{due:?}");
    assert_eq!(
        Scene::new(r#"{"type":"interval","interval":"1h"}"#).last_run("09:00").plan("09:30"),
        "wake 10:00"
    );
    let spread = hourly(r#""jitter":10"#);
    let wake = plan(at("09:30"), &spread.roster, &spread.snapshot).wake_at.unwrap();
    assert!(wake > at("10:00") && wake <= at("10:06"), "{wake}");
    assert_eq!(plan(at("10:00"), &spread.roster, &spread.snapshot).wake_at, Some(wake), "not fired yet");
    assert!(plan(wake, &spread.roster, &spread.snapshot).actions.len() == 1, "it fires then");
}

#[test]
fn planning_is_deterministic() {
    let scene = hourly(r#""misfire":"run_all""#).job("clock", RUNNING).job("agent", PENDING);
    assert_eq!(scene.plan("12:30"), scene.plan("12:30"));
}

//! Simulated time on both databases: the firings and their times, with suspension, clock changes and restarts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod cost;
mod steps;

use std::sync::Mutex;

use cowhand_core::budget::SpendLimits;
use cowhand_core::job::{Job, NewJob, Outcome, TriggerType};
use cowhand_core::lease::OnLostLease;
use cowhand_core::plan::PlanningNode;
use cowhand_core::policy::Retry;
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::uptime::Uptime;
use cowhand_engine::daemon::tick::{ImmediateStarter, Tick, tick};
use cowhand_engine::schedule_view::{schedules_of, why_of};
use cowhand_store::{Claim, LedgerRow, SharedLimits, Starter, Store};
use cowhand_system::clock::Clock;
use cowhand_testing::on_both;
use cowhand_testing::postgres::Postgres;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

/// A fleet of one agent in simulated time: jobs start when they have a place and take as long as the test sets.
struct Story {
    store: Store,
    roster: Roster,
    url: String,
    now: Timestamp,
    clock: Clock,
    uptime: Uptime,
    job_takes: SignedDuration,
    retry: Retry,
    lease: SignedDuration,
    /// Outcome of the jobs.
    outcome: Outcome,
    running: Vec<(cowhand_core::id::JobId, i64, Timestamp)>,
    /// `HH:MM schedule` of each start.
    started: Vec<String>,
    _keep: Box<dyn std::any::Any + Send>,
}

impl Story {
    async fn begin(database: &str, start: &str, schedules: &[(&str, &str)]) -> Self {
        let (url, keep): (String, Box<dyn std::any::Any + Send>) = if database == "postgres" {
            let server = Postgres::start();
            (server.url(), Box::new(server))
        } else {
            let folder = tempfile::tempdir().unwrap();
            (folder.path().join("store.db").display().to_string(), Box::new(folder))
        };
        let now: Timestamp = start.parse().unwrap();
        let roster = roster(schedules);
        let clock = Clock::test(now);
        let store = Store::open(&url).await.unwrap().with_clock(clock.clone());
        store.load_schedules(roster.clone(), now).await.unwrap();
        let (running, started) = (Vec::new(), Vec::new());
        Self {
            store,
            roster,
            url,
            now,
            uptime: Uptime::since(clock.moment()),
            clock,
            job_takes: SignedDuration::from_mins(2),
            retry: Retry::default(),
            lease: SignedDuration::from_hours(1_000_000),
            outcome: Outcome::Completed { summary: None },
            running,
            started,
            _keep: keep,
        }
    }

    fn job_takes(mut self, minutes: i64) -> Self {
        self.job_takes = SignedDuration::from_mins(minutes);
        self
    }

    fn places(mut self, max_concurrent: u32) -> Self {
        self.roster.agents[0].max_concurrent = max_concurrent;
        self
    }

    /// Advances the time as a daemon would see it: to the next wake or the next end of a job.
    async fn until(&mut self, end: &str) {
        let end: Timestamp = end.parse().unwrap();
        loop {
            let next = self.tick().await;
            let next_end = self.running.iter().map(|(.., end)| *end).min();
            let next = [next, next_end].into_iter().flatten().min().unwrap_or(Timestamp::MAX);
            if next > end {
                self.clock.set(end);
                self.tick().await;
                return;
            }
            self.clock.set(next.max(self.now.checked_add(1.microsecond()).unwrap()));
        }
    }

    /// Suspends the machine: there is no tick in between.
    async fn sleep_until(&mut self, time: &str) {
        self.clock.suspend(time.parse().unwrap());
        self.tick().await;
    }

    /// Delays the daemon, as on a busy machine: there is no tick in between.
    async fn hang_until(&mut self, time: &str) {
        self.clock.set(time.parse().unwrap());
        self.tick().await;
    }

    /// Sets the clock while jobs run.
    async fn set_clock(&mut self, time: &str) {
        let time: Timestamp = time.parse().unwrap();
        let step = time.duration_since(self.now);
        for (.., end) in &mut self.running {
            *end = end.checked_add(step).unwrap();
        }
        self.clock.step(time);
        self.tick().await;
    }

    async fn tick(&mut self) -> Option<Timestamp> {
        self.now = self.clock.now();
        self.uptime.observe(self.clock.reading());
        self.finish_jobs().await;
        let started = Mutex::new(Vec::new());
        let begin = |job, epoch| started.lock().unwrap().push((job, epoch));
        let lease = self.lease;
        let at_once = ImmediateStarter {
            node: "node",
            lease,
            shared: SharedLimits::default(),
            here: PlanningNode::default(),
            supervises: &|_| false,
            leaves: &|_| false,
            begin: &begin,
        };
        let tick = tick(&self.store, &self.roster, self.now, &self.uptime, Some(&at_once)).await.unwrap();
        let wake_at = tick.wake_at();
        let mut started = started.into_inner().unwrap();
        for start in tick.start {
            let claim = self.store.claim(start.job, start.max_concurrent, "node".into(), lease, self.now);
            if let Claim::Claimed { job, epoch } = claim.await.unwrap() {
                started.push((job, epoch));
            }
        }
        for (job, epoch) in started {
            self.record_start(&job, epoch);
        }
        let max_concurrent = self.roster.agents[0].max_concurrent as usize;
        assert!(self.running.len() <= max_concurrent, "{} at once", self.running.len());
        wake_at
    }

    fn record_start(&mut self, job: &Job, epoch: i64) {
        let name = job.schedule().map(ToString::to_string).unwrap_or_default();
        let clock = TimeZone::UTC.to_datetime(self.now).strftime("%d %H:%M").to_string();
        self.started.push(format!("{clock} {name}"));
        self.running.push((job.id().clone(), epoch, self.now.checked_add(self.job_takes).unwrap()));
    }

    async fn finish_jobs(&mut self) {
        let (ended, running) =
            std::mem::take(&mut self.running).into_iter().partition(|(.., end)| *end <= self.now);
        self.running = running;
        let ended: Vec<(cowhand_core::id::JobId, i64, Timestamp)> = ended;
        for (job, epoch, end) in ended {
            let (outcome, retry) = (self.outcome.clone(), self.retry.clone());
            self.store.settle(job, epoch, outcome, retry, end).await.unwrap();
        }
    }

    /// Kills the daemon and starts it again at a later time.
    async fn restart_at(&mut self, time: &str) {
        self.clock.set(time.parse().unwrap());
        self.start_daemon().await;
    }

    /// Boots the machine and starts a daemon.
    async fn reboot_at(&mut self, time: &str) {
        self.clock.reboot(time.parse().unwrap());
        self.start_daemon().await;
    }

    async fn start_daemon(&mut self) {
        self.now = self.clock.now();
        self.store = Store::open(&self.url).await.unwrap().with_clock(self.clock.clone());
        self.uptime = Uptime::since(self.clock.moment());
        self.store.load_schedules(self.roster.clone(), self.now).await.unwrap();
        self.tick().await;
    }

    fn started(&mut self) -> Vec<String> {
        std::mem::take(&mut self.started)
    }

    async fn ledger(&self) -> Vec<String> {
        let rows = self.store.ledger(self.roster.agents[0].schedules[0].id, 100).await.unwrap();
        rows.iter()
            .rev()
            .map(|row| format!("{} {}", row.due.strftime("%H:%M"), row.outcome.as_str()))
            .collect()
    }
}

fn roster(schedules: &[(&str, &str)]) -> Roster {
    const TIMING: [&str; 5] = ["misfire", "overlap", "max_lateness", "active_hours", "end_at"];
    let mut agent = Agent::new("a".parse().unwrap());
    for (name, json) in schedules {
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        let (timing, trigger): (serde_json::Map<_, _>, serde_json::Map<_, _>) = json
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .partition(|(key, _)| TIMING.contains(&key.as_str()));
        let trigger: cowhand_core::trigger::TriggerConfig = serde_json::from_value(trigger.into()).unwrap();
        let zone = match &trigger {
            cowhand_core::trigger::TriggerConfig::Cron { timezone: Some(zone), .. } => zone.clone(),
            _ => cowhand_core::policy::Zone::UTC,
        };
        let timing = serde_json::from_value(timing.into()).unwrap();
        let schedule = Schedule::new(&agent.name, name.parse().unwrap(), trigger);
        agent.schedules.push(Schedule { timing, zone, ..schedule });
    }
    Roster::of(vec![agent])
}

on_both! {
    intervals_count_from_completion,
    the_documented_timeline,
    a_place_that_frees_is_used,
    a_queue_takes_turns_with_others,
    a_firing_that_waited_for_its_hours_says_so,
    a_night_with_a_gap_and_a_night_with_an_overlap,
    sleep_is_made_up_once,
    often_daily_and_weekly_side_by_side,
    the_documented_agent_with_five_schedules,
    each_misfire_policy_after_a_restart,
    a_missed_firing_keeps_its_reason,
    a_delay_is_made_up_after_its_end,
    a_wait_counts_from_the_first_due_time,
    a_clock_set_back_fires_nothing_twice,
    a_restart_in_the_middle_of_a_firing,
    ticking_twice_changes_nothing,
    a_lost_fallback_counts_its_whole_reservation,
}

const EVERY: &str = r#"{"type":"interval","interval":"5m"}"#;

async fn intervals_count_from_completion(database: &str) {
    let mut story = Story::begin(database, "2026-01-05T10:00:00Z", &[("poll", EVERY)]).await.job_takes(3);
    story.until("2026-01-05T10:20:00Z").await;
    assert_eq!(story.started(), ["05 10:00 poll", "05 10:08 poll", "05 10:16 poll"]);
}

/// The jobs run 10:00 to 10:03, 10:08 to 10:15, and from 10:20.
async fn the_documented_timeline(database: &str) {
    let mut story = Story::begin(database, "2026-01-05T10:00:00Z", &[("poll", EVERY)]).await.job_takes(3);
    story.until("2026-01-05T10:05:00Z").await;
    story = story.job_takes(7);
    story.until("2026-01-05T10:21:00Z").await;
    assert_eq!(story.started(), ["05 10:00 poll", "05 10:08 poll", "05 10:20 poll"]);
}

async fn a_place_that_frees_is_used(database: &str) {
    let hourly = r#"{"type":"cron","expression":"0 * * * *"}"#;
    let start = "2026-01-05T09:59:00Z";
    let mut story = Story::begin(database, start, &[("a", hourly), ("b", hourly), ("c", hourly)]).await;
    story = story.places(2).job_takes(7);
    story.until("2026-01-05T10:30:00Z").await;
    assert_eq!(story.started(), ["05 10:00 a", "05 10:00 b", "05 10:07 c"]);
}

/// The jobs of `queue` take twice as long as the time between them.
async fn a_queue_takes_turns_with_others(database: &str) {
    let queue = r#"{"type":"cron","expression":"*/5 * * * *","overlap":"queue"}"#;
    let schedules = [("queue", queue), ("poll", EVERY), ("hourly", r#"{"type":"cron","cron":"30 * * * *"}"#)];
    let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &schedules).await.job_takes(10);
    story.until("2026-01-05T11:00:00Z").await;
    let expected = [
        "05 09:59 poll",
        "05 10:09 queue",
        "05 10:19 poll",
        "05 10:29 queue",
        "05 10:39 hourly",
        "05 10:49 poll",
        "05 10:59 queue",
    ];
    assert_eq!(story.started(), expected);
}

async fn a_firing_that_waited_for_its_hours_says_so(database: &str) {
    const HOURS: &str = "it waited for its calendar (`active_hours`, `exclude_dates`)";
    let poll = r#"{"type":"interval","interval":"5m","active_hours":{"start":"12:00","end":"13:00"}}"#;
    for (changed, expected) in [
        (false, format!("{HOURS} to open")),
        (true, format!("{HOURS}, which was changed and no longer excludes this time")),
    ] {
        let mut story = Story::begin(database, "2026-01-05T10:00:00Z", &[("poll", poll)]).await;
        story.until("2026-01-05T11:00:00Z").await;
        if changed {
            story.roster.agents[0].schedules[0].timing.active_hours = None;
            let snapshot = story.store.snapshot_of(&story.roster, story.now).await.unwrap();
            let view = schedules_of(&story.roster, &snapshot, story.now).remove(0);
            let note = view.skip_note.unwrap_or_default();
            assert!(note.starts_with("its calendar was closed and is open now; it fires "), "{note}");
        }
        story.until("2026-01-05T12:01:00Z").await;
        let at = if changed { "11:00" } else { "12:00" };
        assert_eq!(story.started()[0], format!("05 {at} poll"));
        let rows = story.store.ledger(story.roster.agents[0].schedules[0].id, 10).await.unwrap();
        assert_eq!(why_of(rows.last().unwrap(), None, None, true), expected);
    }
}

async fn a_night_with_a_gap_and_a_night_with_an_overlap(database: &str) {
    let nightly = r#"{"type":"cron","expression":"30 2 * * *","timezone":"Europe/Berlin"}"#;
    let steps = r#"{"type":"cron","expression":"*/30 2 * * *","timezone":"Europe/Berlin"}"#;
    let schedules = [("nightly", nightly), ("steps", steps)];
    let mut spring = Story::begin(database, "2026-03-28T22:00:00Z", &schedules).await.places(2);
    spring.until("2026-03-29T22:00:00Z").await;
    assert_eq!(
        spring.started(),
        ["29 01:00 nightly"],
        "02:30 runs right after the gap; steps have no 02 o'clock"
    );
    let mut autumn = Story::begin(database, "2026-10-24T22:00:00Z", &schedules).await.places(2);
    autumn.until("2026-10-25T22:00:00Z").await;
    let expected =
        ["25 00:00 steps", "25 00:30 nightly", "25 00:30 steps", "25 01:00 steps", "25 01:30 steps"];
    assert_eq!(autumn.started(), expected, "02:30 runs once; steps follow elapsed time");
}

async fn sleep_is_made_up_once(database: &str) {
    let hourly = r#"{"type":"cron","expression":"0 * * * *"}"#;
    let schedules = [("hourly", hourly), ("poll", EVERY)];
    let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &schedules).await.places(2);
    story.until("2026-01-05T10:01:30Z").await;
    story.started();
    story.sleep_until("2026-01-05T14:20:00Z").await;
    assert_eq!(story.started(), ["05 14:20 hourly", "05 14:20 poll"]);
    assert_eq!(
        story.ledger().await,
        ["10:00 ran", "11:00 coalesced", "12:00 coalesced", "13:00 coalesced", "14:00 ran"]
    );
}

async fn often_daily_and_weekly_side_by_side(database: &str) {
    let schedules = [
        ("often", r#"{"type":"interval","interval":"6h"}"#),
        ("daily", r#"{"type":"cron","cron":"0 9 * * *"}"#),
        ("weekly", r#"{"type":"cron","cron":"0 10 * * 1"}"#),
    ];
    // A Saturday.
    let mut story = Story::begin(database, "2026-01-03T00:00:00Z", &schedules).await.places(3).job_takes(60);
    story.until("2026-01-06T00:00:00Z").await;
    let started = story.started();
    let of = |name: &str| -> Vec<&str> {
        started.iter().filter_map(|start| start.strip_suffix(name)).map(str::trim_end).collect()
    };
    assert_eq!(of("daily"), ["03 09:00", "04 09:00", "05 09:00"]);
    assert_eq!(of("weekly"), ["05 10:00"]);
    assert_eq!(of("often")[..4], ["03 00:00", "03 07:00", "03 14:00", "03 21:00"], "from end to start");
    assert_eq!(of("often").len(), 11);
}

/// On a Monday morning with two places: a job without a place waits for a place, and the clock never fires the webhook.
async fn the_documented_agent_with_five_schedules(database: &str) {
    let schedules = [
        ("health-check", EVERY),
        ("security-scan", r#"{"type":"cron","cron":"0 * * * *"}"#),
        ("daily-capacity", r#"{"type":"cron","cron":"0 8 * * *"}"#),
        ("weekly-review", r#"{"type":"cron","cron":"0 10 * * 1"}"#),
        ("deploy", r#"{"type":"webhook","allow_unsigned":true}"#),
    ];
    let mut story = Story::begin(database, "2026-01-05T07:56:00Z", &schedules).await.places(2).job_takes(6);
    story.until("2026-01-05T10:15:00Z").await;
    let started = story.started();
    let of = |name: &str| -> Vec<&str> {
        started.iter().filter_map(|start| start.strip_suffix(name)).map(str::trim_end).collect()
    };
    assert_eq!(of("security-scan"), ["05 08:00", "05 09:00", "05 10:00"], "{started:?}");
    assert_eq!(of("daily-capacity"), ["05 08:02"], "the first check ran until then: {started:?}");
    assert_eq!(of("weekly-review"), ["05 10:03"], "after another check: {started:?}");
    assert_eq!(of("health-check")[..3], ["05 07:56", "05 08:07", "05 08:18"], "{started:?}");
    assert_eq!(of("deploy"), [] as [&str; 0]);
}

/// Later due times coalesce earlier due times, and the wait still counts from the first due time.
async fn a_wait_counts_from_the_first_due_time(database: &str) {
    let schedules = [
        ("s", r#"{"type":"cron","cron":"1-59 10 * * *"}"#),
        ("long", r#"{"type":"cron","cron":"0 10 * * *"}"#),
    ];
    let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &schedules).await.job_takes(100);
    story.until("2026-01-05T10:04:30Z").await;
    assert_eq!(story.ledger().await, ["10:01 coalesced", "10:02 coalesced", "10:03 coalesced"]);
    let views = schedules_of(&story.roster, &story.store.snapshot().await.unwrap(), story.now);
    let due: Timestamp = "2026-01-05T10:01:00Z".parse().unwrap();
    assert_eq!((views[0].due_since, views[0].due_again), (Some(due), 3));
    assert!(views[0].is_starved(story.now) && !views[1].is_starved(story.now));
}

async fn each_misfire_policy_after_a_restart(database: &str) {
    for (policy, starts, rows) in [
        (
            "run_once",
            vec!["05 13:10 s"],
            vec!["10:00 ran", "11:00 coalesced", "12:00 coalesced", "13:00 ran"],
        ),
        ("skip", vec![], vec!["10:00 ran", "11:00 missed", "12:00 missed", "13:00 missed"]),
        (
            "run_all",
            vec!["05 13:10 s", "05 13:12 s", "05 13:14 s"],
            vec!["10:00 ran", "11:00 ran", "12:00 ran", "13:00 ran"],
        ),
    ] {
        let hourly = format!(r#"{{"type":"cron","expression":"0 * * * *","misfire":"{policy}"}}"#);
        let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &[("s", &hourly)]).await;
        story.until("2026-01-05T10:30:00Z").await;
        story.started();
        story.restart_at("2026-01-05T13:10:00Z").await;
        story.until("2026-01-05T13:30:00Z").await;
        assert_eq!(story.started(), starts, "{policy}");
        assert_eq!(story.ledger().await, rows, "{policy}");
    }
}

/// A cron schedule with the same times is made up, too.
async fn a_delay_is_made_up_after_its_end(database: &str) {
    let end = r#""end_at":"2026-01-05T12:00:00Z""#;
    for trigger in
        [r#""type":"delay","run_at":"2026-01-05T11:00:00Z""#, r#""type":"cron","expression":"0 11 * * *""#]
    {
        let schedule = format!("{{{trigger},{end}}}");
        let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &[("s", &schedule)]).await;
        story.until("2026-01-05T10:30:00Z").await;
        assert_eq!(story.started(), [""; 0], "{trigger}");
        story.restart_at("2026-01-05T13:10:00Z").await;
        story.until("2026-01-05T14:30:00Z").await;
        assert_eq!(story.started(), ["05 13:10 s"], "{trigger}");
        assert_eq!(story.ledger().await, ["11:00 ran"], "{trigger}");
    }
}

/// The reason names the policy that decided, even if the config is changed later.
async fn a_missed_firing_keeps_its_reason(database: &str) {
    for (policy, reason) in [
        (r#""misfire":"run_all","max_lateness":"90s""#, "; it was late by more than `max_lateness` (1m 30s)"),
        (r#""misfire":"skip","max_lateness":"90s""#, "; `misfire: skip` drops missed firings"),
    ] {
        let hourly = format!(r#"{{"type":"cron","expression":"0 * * * *",{policy}}}"#);
        let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &[("s", &hourly)]).await;
        story.until("2026-01-05T10:30:00Z").await;
        story.restart_at("2026-01-05T11:10:00Z").await;
        story.until("2026-01-05T11:12:00Z").await;
        let rows = story.store.ledger(story.roster.agents[0].schedules[0].id, 1).await.unwrap();
        let why = why_of(&rows[0], None, None, true);
        assert_eq!(why, format!("its time passed while nothing could fire it{reason}"));
        let unnoted = LedgerRow { note: None, ..rows[0].clone() };
        assert_eq!(why_of(&unnoted, None, None, true), "its time passed while nothing could fire it");
    }
}

async fn a_clock_set_back_fires_nothing_twice(database: &str) {
    let hourly = r#"{"type":"cron","expression":"0 * * * *"}"#;
    let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &[("s", hourly)]).await;
    story.until("2026-01-05T12:30:00Z").await;
    assert_eq!(story.started().len(), 3);
    story.set_clock("2026-01-05T09:30:00Z").await;
    story.until("2026-01-05T12:59:00Z").await;
    assert_eq!(story.started(), [] as [&str; 0]);
    story.until("2026-01-05T13:01:00Z").await;
    assert_eq!(story.started(), ["05 13:00 s"]);
}

async fn a_restart_in_the_middle_of_a_firing(database: &str) {
    let hourly = r#"{"type":"cron","expression":"0 * * * *"}"#;
    let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &[("s", hourly)]).await;
    story.tick().await;
    story.clock.set("2026-01-05T10:00:00Z".parse().unwrap());
    // The firing and its job are recorded; the daemon dies before it starts anything.
    let now = story.clock.now();
    let recorded = tick(&story.store, &story.roster, now, &story.uptime, None).await.unwrap();
    assert_eq!(recorded.start.len(), 1);
    story.restart_at("2026-01-05T10:20:00Z").await;
    assert_eq!(story.started(), ["05 10:20 s"], "once, as soon as it is back");
    assert_eq!(story.ledger().await, ["10:00 ran"]);
}

async fn ticking_twice_changes_nothing(database: &str) {
    let schedules = [("poll", EVERY), ("hourly", r#"{"type":"cron","expression":"0 * * * *"}"#)];
    let story = Story::begin(database, "2026-01-05T10:00:00Z", &schedules).await;
    let now: Timestamp = "2026-01-05T12:00:00Z".parse().unwrap();
    story.clock.set(now);
    let first = tick(&story.store, &story.roster, now, &story.uptime, None).await.unwrap();
    let events = story.store.last_event().await.unwrap();
    assert!(first.fired > 0);
    for _ in 0..3 {
        let repeated = tick(&story.store, &story.roster, now, &story.uptime, None).await.unwrap();
        assert_eq!(repeated, Tick { fired: 0, ..first.clone() });
    }
    assert_eq!(story.store.last_event().await.unwrap(), events);
}

/// The agent itself reports its spending while it runs; its fallback reports it only at the end. So when its node is
/// lost, the whole reservation counts.
async fn a_lost_fallback_counts_its_whole_reservation(database: &str) {
    for (provider, assumed) in [("claude", None), ("spare", Some(2.0))] {
        let mut story = Story::begin(database, "2026-01-05T10:00:00Z", &[]).await;
        // Without a boot clock, leases use the time that is passed in.
        story.store = Store::open(&story.url).await.unwrap();
        let config = serde_json::from_str(
            r#"{"budget":{"per_job_usd":2},"fallback":[{"runtime":"acp","provider":"spare","command":["x"]}]}"#,
        )
        .unwrap();
        let Agent { budget, fallbacks, .. } = Agent::from_config("a".parse().unwrap(), config);
        (story.roster.agents[0].budget, story.roster.agents[0].fallbacks) = (budget, fallbacks);
        let new = NewJob {
            agent: "a".parse().unwrap(),
            trigger_type: TriggerType::Manual,
            schedule: None,
            prompt: None,
            origin: None,
            work_item: None,
            chat: None,
            message: None,
            confined: None,
            not_before: None,
        };
        let job = story.store.add_job(new, story.now).await.unwrap().id().clone();
        let starter = Starter {
            node: "node".into(),
            lease: SignedDuration::from_mins(1),
            on_lost: OnLostLease::Pause,
            max_concurrent: 1,
            shared: SharedLimits::default(),
            session_key: None,
            limits: SpendLimits::of(&story.roster, &story.roster.agents[0], story.now),
            slot: Some(story.roster.slot_at(provider)),
        };
        let claim = story.store.claim_with_limits(job.clone(), starter, story.now).await.unwrap();
        assert!(matches!(claim, Claim::Claimed { .. }), "{claim:?}");
        let later = story.now + SignedDuration::from_mins(2);
        tick(&story.store, &story.roster, later, &story.uptime, None).await.unwrap();
        let lost = story.store.job(job).await.unwrap().unwrap();
        assert_eq!(lost.usage().and_then(|usage| usage.assumed_usd), assumed, "{provider}: {lost:?}");
    }
}

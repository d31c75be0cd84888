//! Counts and durations since this daemon started, from the event log, for `/metrics`. Each request to `/metrics` reads
//! the events since the previous request, so metrics cost nothing if nobody requests them.

use std::collections::{BTreeMap, HashMap};

use cowhand_core::event::{Event, Fact};
use cowhand_core::hook::HookKind;
use cowhand_core::id::{AgentName, JobId};
use jiff::{SignedDuration, Timestamp};

use super::text::{MetricKind, MetricsText};
use cowhand_store::histogram::Histogram;
use cowhand_store::{Store, StoreError};

#[derive(Debug)]
pub(super) struct Tally {
    /// `seq` of the last event that is counted. At first, it is the last event before the start of the daemon.
    seq: i64,
    firings: BTreeMap<Firing, u64>,
    jobs: BTreeMap<Ended, u64>,
    attempts: BTreeMap<AgentName, u64>,
    hooks: BTreeMap<Hook, u64>,
    asks: BTreeMap<(AgentName, &'static str), u64>,
    /// Agent and provider.
    parks: BTreeMap<(AgentName, String), u64>,
    /// Agent and schedule.
    pauses: BTreeMap<(AgentName, String), u64>,
    lateness: Histogram,
    wait: Histogram,
    durations: BTreeMap<AgentName, Histogram>,
    /// Jobs created since the daemon started that have not begun their first attempt, with the time of their creation.
    waiting: HashMap<JobId, Timestamp>,
}

/// Agent, schedule, outcome and reason.
type Firing = (AgentName, String, &'static str, &'static str);
/// Agent, kind and outcome.
type Hook = (AgentName, &'static str, &'static str);
/// Agent, status and exit reason.
type Ended = (AgentName, &'static str, &'static str);

const SHORT_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0];
const LONG_BUCKETS: &[f64] =
    &[1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 86_400.0];

const EVENTS_PER_READ: u32 = 1000;

impl Tally {
    pub(super) fn from(seq: i64) -> Self {
        Self {
            seq,
            firings: BTreeMap::new(),
            jobs: BTreeMap::new(),
            attempts: BTreeMap::new(),
            hooks: BTreeMap::new(),
            asks: BTreeMap::new(),
            parks: BTreeMap::new(),
            pauses: BTreeMap::new(),
            lateness: Histogram::new(SHORT_BUCKETS),
            wait: Histogram::new(SHORT_BUCKETS),
            durations: BTreeMap::new(),
            waiting: HashMap::new(),
        }
    }

    pub(super) async fn catch_up(&mut self, store: &Store) -> Result<(), StoreError> {
        loop {
            let events = store.events_after(self.seq, EVENTS_PER_READ).await?;
            let is_full = events.len() == EVENTS_PER_READ as usize;
            for event in events {
                self.seq = event.seq;
                self.count(event);
            }
            if !is_full {
                return Ok(());
            }
        }
    }

    fn count(&mut self, event: Event) {
        let Event { at, agent: Some(agent), schedule, job, fact, .. } = event else { return };
        let schedule = schedule.map(|name| name.to_string()).unwrap_or_default();
        let mut firing = |outcome, reason| {
            *self.firings.entry((agent.clone(), schedule.clone(), outcome, reason)).or_default() += 1;
        };
        let mut hook = |kind: HookKind, outcome| {
            *self.hooks.entry((agent.clone(), kind.as_str(), outcome)).or_default() += 1;
        };
        let mut ended = |status, reason, seconds: u64| {
            *self.jobs.entry((agent.clone(), status, reason)).or_default() += 1;
            let durations =
                self.durations.entry(agent.clone()).or_insert_with(|| Histogram::new(LONG_BUCKETS));
            durations.observe(SignedDuration::from_secs(seconds.cast_signed()).as_secs_f64());
        };
        match fact {
            Fact::ScheduleFired { due, .. } => {
                firing("ran", "");
                self.lateness.observe(seconds(due, at));
            }
            Fact::ScheduleSkipped { reason, .. } => firing("skipped", reason.as_str()),
            Fact::ScheduleMissed { .. } => firing("missed", ""),
            Fact::ScheduleCoalesced { .. } => firing("coalesced", ""),
            Fact::HookCompleted { kind, .. } => hook(kind, "completed"),
            Fact::HookFailed { kind, .. } => hook(kind, "failed"),
            Fact::HookSkipped { kind, .. } => hook(kind, "skipped"),
            Fact::AskAnswered { status, .. } | Fact::AskExpired { status, .. } => {
                *self.asks.entry((agent, status.as_str())).or_default() += 1;
            }
            Fact::JobParked { provider, .. } => *self.parks.entry((agent, provider)).or_default() += 1,
            Fact::SchedulePaused { .. } => *self.pauses.entry((agent, schedule)).or_default() += 1,
            Fact::JobCreated => self.waiting.extend(job.map(|job| (job, at))),
            Fact::JobStarted { .. } => {
                *self.attempts.entry(agent).or_default() += 1;
                if let Some(since) = job.and_then(|job| self.waiting.remove(&job)) {
                    self.wait.observe(seconds(since, at));
                }
            }
            Fact::JobCompleted { exit_reason, duration_seconds } => {
                ended("completed", exit_reason.as_str(), duration_seconds);
            }
            Fact::JobFailed { exit_reason, duration_seconds, .. } => {
                ended("failed", exit_reason.as_str(), duration_seconds);
                // A job can fail without an attempt.
                if let Some(job) = job {
                    self.waiting.remove(&job);
                }
            }
            Fact::JobCancelled { duration_seconds, .. } => {
                ended("cancelled", "cancelled", duration_seconds);
                if let Some(job) = job {
                    self.waiting.remove(&job);
                }
            }
            _ => {}
        }
    }

    pub(super) fn write(&self, page: &mut MetricsText) {
        let firings = self.firings.iter().map(|((agent, schedule, outcome, reason), count)| {
            let labels = [
                ("agent", agent.to_string()),
                ("schedule", schedule.clone()),
                ("outcome", (*outcome).to_owned()),
                ("reason", (*reason).to_owned()),
            ];
            (labels, *count)
        });
        page.family(
            MetricKind::Counter,
            "cowhand_firings_total",
            "Firings since the daemon started, by outcome.",
            firings,
        );
        let lateness = [(vec![], &self.lateness)];
        page.histograms(
            "cowhand_firing_lateness_seconds",
            "From the due time of a firing to its record.",
            lateness,
        );
        let jobs = self.jobs.iter().map(|((agent, status, reason), count)| {
            let labels = [
                ("agent", agent.to_string()),
                ("status", (*status).to_owned()),
                ("exit_reason", (*reason).to_owned()),
            ];
            (labels, *count)
        });
        page.family(
            MetricKind::Counter,
            "cowhand_jobs_total",
            "Jobs that ended since the daemon started.",
            jobs,
        );
        let attempts = self.attempts.iter().map(|(agent, count)| ([("agent", agent.to_string())], *count));
        let help = "Attempts that began since the daemon started.";
        page.family(MetricKind::Counter, "cowhand_attempts_total", help, attempts);
        let hooks = self.hooks.iter().map(|((agent, kind, outcome), count)| {
            let labels = [
                ("agent", agent.to_string()),
                ("kind", (*kind).to_owned()),
                ("outcome", (*outcome).to_owned()),
            ];
            (labels, *count)
        });
        let help = "Hooks that ended since the daemon started, by outcome.";
        page.family(MetricKind::Counter, "cowhand_hooks_total", help, hooks);
        self.write_delays(page);
        let durations =
            self.durations.iter().map(|(agent, histogram)| (vec![("agent", agent.as_str())], histogram));
        page.histograms("cowhand_job_duration_seconds", "From the start of a job to its end.", durations);
        let wait = [(vec![], &self.wait)];
        page.histograms("cowhand_job_wait_seconds", "From the creation of a job to its first attempt.", wait);
    }

    /// Writes the counts of ended asks, of attempts that a usage limit ended, and of pauses.
    fn write_delays(&self, page: &mut MetricsText) {
        let labels = |agent: &AgentName, name: &'static str, value: &str| {
            [("agent", agent.to_string()), (name, value.to_owned())]
        };
        let asks =
            self.asks.iter().map(|((agent, status), count)| (labels(agent, "outcome", status), *count));
        let help = "Asks that ended since the daemon started, by outcome.";
        page.family(MetricKind::Counter, "cowhand_asks_total", help, asks);
        let parks = self.parks.iter();
        let parks = parks.map(|((agent, provider), count)| (labels(agent, "provider", provider), *count));
        let help = "Attempts that ended since the daemon started because of the usage limit of a provider.";
        page.family(MetricKind::Counter, "cowhand_job_parks_total", help, parks);
        let pauses = self.pauses.iter();
        let pauses = pauses.map(|((agent, schedule), count)| (labels(agent, "schedule", schedule), *count));
        let help = "Pauses of schedules since the daemon started.";
        page.family(MetricKind::Counter, "cowhand_schedule_pauses_total", help, pauses);
    }
}

/// Returns the seconds from `from` to `to`, or 0 if `to` is earlier, for example because a clock was set back.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

//! `cowhand jobs`: what was done, the newest first.

use std::path::Path;
use std::str::FromStr;

use clap::Args;
use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::interval::Interval;
use cowhand_core::job::{JobRecord, JobStatus, TriggerType};
use jiff::Timestamp;

use super::print::{self, Table};
use super::{Failure, ago, job, place};
use crate::api::{Page, segment};

#[derive(Debug, Args)]
pub(super) struct Jobs {
    /// Only of this agent
    #[arg(long)]
    agent: Option<AgentName>,
    /// Only of schedules with this name
    #[arg(long)]
    schedule: Option<ScheduleName>,
    /// Only pending, running, completed, failed or cancelled ones
    #[arg(long)]
    status: Option<JobStatus>,
    /// Only those that came about so: manual, schedule, webhook, chat, discord, slack, web or fork
    #[arg(long, value_name = "TYPE")]
    trigger_type: Option<TriggerType>,
    /// Only those made since then: an RFC 3339 time, or how long ago (2h)
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
    /// Only those made until then
    #[arg(long, value_name = "TIME")]
    until: Option<When>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// A time, or a while before now.
#[derive(Debug, Clone, Copy)]
struct When(Timestamp);

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(at) = text.parse() {
            return Ok(Self(at));
        }
        let ago: Interval = text.parse().map_err(|_| {
            "expected an RFC 3339 time (2026-01-31T09:00:00Z) or how long ago (30m, 2h, 7d)".to_owned()
        })?;
        Timestamp::now().checked_sub(ago.duration()).map(Self).map_err(|error| error.to_string())
    }
}

impl Jobs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let jobs = place::ask(config, async |client| {
            Ok(client.get::<Page<JobRecord>>(&self.address()).await?.items)
        })?;
        if self.json {
            print::json(&jobs);
        } else if jobs.is_empty() {
            print::line("no jobs");
        } else {
            table(&jobs, Timestamp::now()).print();
        }
        Ok(())
    }

    fn address(&self) -> String {
        let filters = [
            ("agent", self.agent.as_ref().map(ToString::to_string)),
            ("schedule", self.schedule.as_ref().map(ToString::to_string)),
            ("status", self.status.map(|status| status.to_string())),
            ("trigger_type", self.trigger_type.map(|kind| kind.to_string())),
            ("since", self.since.map(|When(at)| at.to_string())),
            ("until", self.until.map(|When(at)| at.to_string())),
        ];
        let filters = filters.into_iter().filter_map(|(name, value)| Some((name, value?)));
        filters.fold(format!("jobs?limit={}", self.limit), |address, (name, value)| {
            format!("{address}&{name}={}", segment(&value))
        })
    }
}

fn table(jobs: &[JobRecord], now: Timestamp) -> Table {
    let mut table = Table::new(&["JOB", "AGENT", "SCHEDULE", "STATUS", "MADE", "TOOK", "OUTCOME"]);
    for job in jobs {
        table.row([
            job.id.to_string(),
            job.agent.to_string(),
            job.schedule.as_ref().map(ToString::to_string).unwrap_or_default(),
            job.status.to_string(),
            ago::from_now(now, job.started_at),
            job.duration_seconds.map(ago::seconds).unwrap_or_default(),
            print::one_line(&job::outcome(job), 60),
        ]);
    }
    table
}

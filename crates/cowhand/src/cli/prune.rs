//! `cowhand prune`: removes the jobs that `retention` does not keep.

use std::path::Path;

use clap::Args;
use cowhand_core::duration;
use cowhand_core::id::AgentName;
use cowhand_core::interval::Interval;
use cowhand_core::retention::Retention;
use cowhand_core::size::{Size, in_words};
use jiff::Timestamp;

use super::location::FleetLocation;
use super::print::{self, Table};
use super::{Exit, Failure, complete, number};
use cowhand_engine::config;
use cowhand_engine::fleet::{PruneRequest, PruneView};

#[derive(Debug, Args)]
pub(super) struct PruneArgs {
    /// Only jobs of this agent
    #[arg(add = complete::agents())]
    agent: Option<AgentName>,
    /// Only list the jobs that would be removed
    #[arg(long)]
    dry_run: bool,
    /// Keep this many jobs of each agent, overrides the config for this run
    #[arg(long, value_name = "N", value_parser = number::between(1, u32::MAX))]
    max_jobs: Option<u32>,
    /// Keep jobs that ended within this time (30d), for this run
    #[arg(long, value_name = "TIME")]
    max_age: Option<Interval>,
    /// Keep as many of each agent's newest jobs as fit into this size (500MB), for this run
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<Size>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const NO_LIMIT_SET: &str = "everything is kept, because no limit is set: give --max-jobs, --max-age or --max-bytes, or \
                    set `retention` in the config, for example\n\n  retention: {max_age: 30d}";

impl PruneArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let retention =
            Retention { max_jobs_per_agent: self.max_jobs, max_age: self.max_age, max_bytes: self.max_bytes };
        let request = PruneRequest { dry_run: self.dry_run, agent: self.agent, retention };
        let location = FleetLocation::find(config)?;
        let pruned: PruneView = location.ask(async |client| {
            if client.is_alone() {
                refuse_config_with_errors(&location)?;
            }
            Ok(client.post("prune", &request).await?)
        })?;
        if !pruned.dry_run {
            print::remember_done(removed_line(&pruned));
        }
        if self.json {
            print::json(&pruned);
        } else {
            show(&pruned, Timestamp::now());
        }
        Ok(())
    }
}

/// Fails if the config has errors, because an agent that cannot be read would count as removed, and its own limits
/// would be ignored.
fn refuse_config_with_errors(location: &FleetLocation) -> Result<(), Failure> {
    if config::load(&location.config).loaded.errors() == 0 {
        return Ok(());
    }
    let message = "cannot prune while the config has errors; `cowhand config check` shows them";
    Err(Failure::new(Exit::Config, message))
}

fn show(pruned: &PruneView, now: Timestamp) {
    if pruned.unlimited {
        return print::line(NO_LIMIT_SET);
    }
    if pruned.jobs.is_empty() {
        return print::line("nothing to remove");
    }
    let mut table =
        Table::new(&["JOB", "AGENT", "ENDED", "SIZE", "WHY"]).optional_columns(&["SIZE", "ENDED", "AGENT"]);
    for job in &pruned.jobs {
        table.row([
            job.id.to_string(),
            job.agent.to_string(),
            duration::relative_to_now(now, job.finished_at),
            in_words(job.bytes),
            job.why.to_string(),
        ]);
    }
    table.print();
    print::line(format!("\n{}", removed_line(pruned)));
}

/// Formats `3 jobs removed, 1.2 MB`.
fn removed_line(pruned: &PruneView) -> String {
    let count = pruned.jobs.len();
    let jobs = if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") };
    let what = if pruned.dry_run { "would be removed" } else { "removed" };
    format!("{jobs} {what}, {}", in_words(pruned.bytes))
}

//! `cowhand agents`: lists the agents of the fleet.

use std::path::Path;

use clap::Args;
use cowhand_core::duration;
use jiff::Timestamp;

use super::jobs::status_word;
use super::print::{self, Table};
use super::{Failure, location, status};
use cowhand_web::api::{AgentView, Page, ProviderUsage};

#[derive(Debug, Args)]
pub(super) struct AgentsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl AgentsArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let agents =
            location::ask(config, async |client| Ok(client.get::<Page<AgentView>>("agents").await?.items))?;
        if self.json {
            print::json(&agents);
            return Ok(());
        }
        let mut usages: Vec<ProviderUsage> = Vec::new();
        for usage in agents.iter().filter_map(|agent| agent.provider_usage.as_ref()) {
            if !usages.iter().any(|known| known.provider == usage.provider) {
                usages.push(usage.clone());
            }
        }
        let mut table = Table::new(&["AGENT", "RUNTIME", "PLACES", "SCHEDULES", "DESCRIPTION"])
            .optional_columns(&["PLACES", "SCHEDULES", "RUNTIME", "DESCRIPTION"]);
        for agent in agents {
            table.row([
                agent.name.to_string(),
                agent.runtime,
                agent.max_concurrent.to_string(),
                agent.schedules.len().to_string(),
                print::cell(&agent.description.unwrap_or_default()),
            ]);
        }
        table.print();
        if !usages.is_empty() {
            print::line("");
        }
        let now = Timestamp::now();
        for line in usages.iter().flat_map(|usage| status::usage_lines(usage, now)) {
            print::prose(&line, 2);
        }
        Ok(())
    }
}

/// Builds the table of the current state of agents.
pub(super) fn table(agents: &[AgentView], now: Timestamp) -> Table {
    let mut table = Table::new(&["AGENT", "RUNNING", "QUEUED", "LAST JOB", "STATUS", "WHEN", "NEXT"])
        .optional_columns(&["WHEN", "NEXT", "QUEUED", "LAST JOB", "STATUS"]);
    for agent in agents {
        let last = agent.last_job.as_ref();
        table.row([
            agent.name.to_string(),
            format!("{}/{}", agent.running, agent.max_concurrent),
            agent.queued.to_string(),
            last.map(|job| job.id.to_string()).unwrap_or_default(),
            last.map(|job| status_word(job.status, job.unsettled)).unwrap_or_default(),
            last.map(|job| duration::relative_to_now(now, job.finished_at.unwrap_or(job.started_at)))
                .unwrap_or_default(),
            agent
                .next
                .as_ref()
                .map(|next| format!("{} {}", next.schedule, duration::until(now, next.at)))
                .unwrap_or_default(),
        ]);
    }
    table
}

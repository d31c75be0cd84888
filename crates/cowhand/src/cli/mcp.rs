//! `cowhand mcp`: serves the fleet as an MCP server on standard input and output.

use std::path::Path;

use clap::Args;
use cowhand_core::mcp::JobToolSet;
use cowhand_core::server::Scope;

use super::advice::with_config_option;
use super::location::{self, FleetLocation};
use super::{Exit, Failure};
use cowhand_web::mcp::{self, JobTools, PersonTools};

#[derive(Debug, Args)]
pub(super) struct McpArgs {
    /// Rights of the assistant: read, or operate (also trigger agents, cancel jobs, change schedules)
    #[arg(long, value_name = "SCOPE", default_value = "read")]
    scope: Scope,
    /// Serve the agent of a job, with that job's rights
    #[arg(long, hide = true, conflicts_with = "scope")]
    job: bool,
    /// Tools of the job: fleet, chat or all
    #[arg(long, value_name = "TOOLS", hide = true, requires = "job", default_value = "fleet")]
    tools: JobToolSet,
}

impl McpArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let cannot = |why: String| Failure::new(Exit::CannotRunHere, why);
        if self.job {
            let tools = JobTools::from_environment().map_err(cannot)?;
            return location::wait(async {
                mcp::serve_job(tools, self.tools).await.map_err(|error| cannot(format!("{error:#}")))
            });
        }
        if self.scope > Scope::Operate {
            return Err(Failure::usage("`--scope` has to be `read` or `operate`"));
        }
        // A process inside a job has only the rights of that job.
        if std::env::var_os("COWHAND_JOB_ID").is_some() {
            return Err(Failure::new(Exit::Refused, "inside a job, use `cowhand mcp --job`"));
        }
        let location = FleetLocation::find(config)?;
        let tools = PersonTools::of(location.state.clone(), move || {
            with_config_option(&location.how_to_start()).into_owned()
        });
        location::wait(async {
            mcp::serve_person(tools, self.scope).await.map_err(|error| cannot(format!("{error:#}")))
        })
    }
}

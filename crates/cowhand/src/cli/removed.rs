//! Shows an agent or schedule that is no longer in the config and still has jobs or firings.

use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::job::JobRecord;
use jiff::Timestamp;
use serde_json::json;

use super::location::Connection;
use super::{Exit, Failure, jobs, print, style};
use cowhand_engine::error::schedule_left;
use cowhand_web::api::{ApiProblem, Code, ListedJob, Page, StatusView, removed_agent_sentence, segment};

/// Largest number of jobs shown, the newest first.
const MAX_JOBS_SHOWN: u32 = 10;

/// Shows the jobs, and the number of accepted firings without a job, of an agent or a schedule that is no longer in the
/// config. `problem` is the answer of the API to a request for the agent or schedule. Fails with `problem` if there are
/// no such jobs and firings, or if `problem` is not `NotFound`.
pub(super) async fn show(
    client: &Connection<'_>,
    agent: &AgentName,
    schedule: Option<&ScheduleName>,
    problem: ApiProblem,
    json: bool,
) -> Result<(), Failure> {
    if problem.code != Code::NotFound {
        return Err(problem.into());
    }
    let of_schedule = schedule.map(|name| format!("&schedule={}", segment(name.as_str())));
    let (name, of_schedule) = (segment(agent.as_str()), of_schedule.unwrap_or_default());
    let address = format!("jobs?agent={name}&limit={MAX_JOBS_SHOWN}{of_schedule}");
    let jobs: Vec<ListedJob> = match client.get::<Page<ListedJob>>(&address).await {
        Ok(page) => page.items,
        Err(other) if other.code != Code::NotFound => return Err(other.into()),
        Err(_) => Vec::new(),
    };
    let status: StatusView = client.get("status").await?;
    let gone = status.gone.iter().find(|gone| gone.agent == *agent);
    let gone_schedule =
        status.gone_schedules.iter().find(|gone| gone.agent == *agent && Some(&gone.schedule) == schedule);
    if jobs.is_empty() && gone.is_none() && gone_schedule.is_none() {
        return Err(missing(client, agent, schedule, problem));
    }
    let is_known = !client.has_config_errors();
    if json {
        let records: Vec<&JobRecord> = jobs.iter().map(|listed| &listed.job).collect();
        print::json(&json!({
            "agent": agent, "schedule": schedule, "in_config": is_known.then_some(false), "daemon_running": !client.is_alone(),
            "gone": gone, "gone_schedule": gone_schedule, "jobs": records,
        }));
        return Ok(());
    }
    if !is_known {
        print::prose(&format!("{}.", unreadable(client, agent, schedule)), 2);
        print_jobs(&jobs);
        return Ok(());
    }
    let is_in_config = status.agents.iter().any(|view| view.name == *agent);
    let sentence = match (gone_schedule, schedule) {
        (Some(gone), _) => gone.sentence(),
        (None, Some(schedule)) if is_in_config => schedule_left(agent, schedule.as_str()),
        _ => removed_agent_sentence(agent, gone),
    };
    print::prose(&format!("{}: {sentence}.", style::styled("not in the config", style::ODD)), 2);
    print_jobs(&jobs);
    Ok(())
}

/// Returns the failure of a request for an agent or schedule that does not exist. `problem` is the answer of the API.
/// If the config has errors, it is not known whether the agent or schedule exists.
pub(super) fn missing(
    client: &Connection<'_>,
    agent: &AgentName,
    schedule: Option<&ScheduleName>,
    problem: ApiProblem,
) -> Failure {
    let is_unknown = problem.code == Code::NotFound && client.has_config_errors();
    if is_unknown {
        return Failure::new(Exit::Config, unreadable(client, agent, schedule));
    }
    problem.into()
}

fn unreadable(client: &Connection<'_>, agent: &AgentName, schedule: Option<&ScheduleName>) -> String {
    let name = schedule.map_or_else(|| agent.to_string(), |schedule| format!("{agent}/{schedule}"));
    format!("{name} cannot be read, because {}", client.location().config_error_note())
}

fn print_jobs(jobs: &[ListedJob]) {
    if !jobs.is_empty() {
        print::line("");
        jobs::table(jobs, Timestamp::now()).print();
    }
}

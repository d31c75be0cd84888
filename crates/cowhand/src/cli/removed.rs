//! Agents and schedules that are no longer in the config and still have jobs.

use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::job::JobRecord;
use jiff::Timestamp;
use serde_json::json;

use super::location::Connection;
use super::{Failure, jobs, print};
use cowhand_web::api::{ApiProblem, Code, Page, StatusView, left_schedule_sentence, left_sentence, segment};

/// Largest number of jobs shown, the newest first.
const MAX_JOBS_SHOWN: u32 = 10;

/// Shows the jobs of an agent, or of one of its schedules, that is no longer in the config. Returns the
/// problem as a failure if there are no such jobs.
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
    let jobs: Vec<JobRecord> = match client.get::<Page<JobRecord>>(&address).await {
        Ok(page) if !page.items.is_empty() => page.items,
        Err(other) if other.code != Code::NotFound => return Err(other.into()),
        _ => return Err(problem.into()),
    };
    let status: StatusView = client.get("status").await?;
    let gone = status.gone.iter().find(|gone| gone.agent == *agent);
    if json {
        print::json(&json!({
            "agent": agent, "schedule": schedule, "in_config": false, "daemon_running": !client.is_alone(),
            "gone": gone, "jobs": jobs,
        }));
        return Ok(());
    }
    let is_here = status.agents.iter().any(|view| view.name == *agent);
    let sentence = match schedule {
        Some(schedule) if is_here => left_schedule_sentence(agent, schedule.as_str()),
        _ => left_sentence(agent, gone),
    };
    print::prose(&format!("{}: {sentence}.", print::styled("not in the config", print::ODD)), 2);
    print::line("");
    jobs::table(&jobs, Timestamp::now()).print();
    Ok(())
}

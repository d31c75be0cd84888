//! The page of an agent or a schedule that was removed from the config: its jobs, and how a person can handle them.

use cowhand_core::id::AgentName;
use cowhand_core::job::JobRecord;
use maud::html;

use super::layout::{Frame, Tab, part};
use super::text::{ShownMessage, Text};
use super::{PageAnswer, Pages, jobs, now, query};
use cowhand_engine::error::schedule_left;
use cowhand_web::api::{ApiProblem, Code, Page, RemovedSchedule, StatusView, removed_agent_sentence};

/// Builds the page. `problem` is the API's answer to the request for the agent or schedule. Returns `problem` if it is
/// not `NotFound`, or if the agent or schedule has neither jobs nor firings.
pub(super) async fn page(
    pages: &Pages,
    agent: &str,
    schedule: Option<&str>,
    problem: ApiProblem,
) -> PageAnswer {
    let Some(name) = agent.parse::<AgentName>().ok().filter(|_| problem.code == Code::NotFound) else {
        return Err(problem.into());
    };
    let filter = query(&[("agent", agent), ("schedule", schedule.unwrap_or_default())]);
    let latest: Vec<JobRecord> =
        match pages.client.get::<Page<JobRecord>>(&format!("jobs?{filter}limit=20")).await {
            Err(problem) if problem.code != Code::NotFound => return Err(problem.into()),
            Err(_) => Vec::new(),
            Ok(latest) => latest.items,
        };
    let status: StatusView = pages.client.get("status").await?;
    let Some(sentence) = sentence(&status, &name, schedule, !latest.is_empty()) else {
        return Err(problem.into());
    };
    let title = schedule.map_or_else(|| agent.to_owned(), |schedule| format!("{agent}/{schedule}"));
    let jobs_address = format!("/jobs?{filter}");
    let main = html! {
        div.page-head { h1.any { (Text(&title)) } }
        div #left data-live { p.alert { b { "Not in the config" } ": " (ShownMessage(&sentence)) "." } }
        (part("latest", "Latest jobs", &html! { a href=(jobs_address) { "All its jobs" } }, &jobs::table(&latest, now(), &html! {})))
    };
    let follow = format!("agent={name}");
    pages.page(Frame { title: &title, tab: Tab::Fleet, follow: Some(&follow) }, main).await
}

/// Describes the remaining jobs and firings of the schedule, or of the agent if the config does not have the agent.
/// Returns none if no jobs or firings remain.
fn sentence(
    status: &StatusView,
    agent: &AgentName,
    schedule: Option<&str>,
    has_jobs: bool,
) -> Option<String> {
    let is_configured = status.agents.iter().any(|view| view.name == *agent);
    let Some(schedule) = schedule.filter(|_| is_configured) else {
        let gone = status.gone.iter().find(|gone| gone.agent == *agent);
        return (has_jobs || gone.is_some()).then(|| removed_agent_sentence(agent, gone));
    };
    let mut gone = status.gone_schedules.iter();
    let gone = gone.find(|gone| gone.agent == *agent && gone.schedule.as_str() == schedule);
    gone.map(RemovedSchedule::sentence).or_else(|| has_jobs.then(|| schedule_left(agent, schedule)))
}

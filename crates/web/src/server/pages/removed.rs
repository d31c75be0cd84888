//! The page of an agent or a schedule that left the config: its jobs, and how a person can handle them.

use cowhand_core::id::AgentName;
use cowhand_core::job::JobRecord;
use maud::html;

use super::layout::{Frame, Tab, part};
use super::text::Text;
use super::{PageAnswer, Pages, jobs, now, query};
use crate::api::{ApiProblem, Code, Page, StatusView, left_schedule_sentence, left_sentence};

/// Builds the page. Returns the problem if there are no such jobs.
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
    let latest: Page<JobRecord> = match pages.client.get(&format!("jobs?{filter}limit=20")).await {
        Err(other) if other.code != Code::NotFound => return Err(other.into()),
        Err(_) => return Err(problem.into()),
        Ok(latest) => latest,
    };
    if latest.items.is_empty() {
        return Err(problem.into());
    }
    let status: StatusView = pages.client.get("status").await?;
    let is_here = status.agents.iter().any(|view| view.name == name);
    let sentence = match schedule {
        Some(schedule) if is_here => left_schedule_sentence(&name, schedule),
        _ => left_sentence(&name, status.gone.iter().find(|gone| gone.agent == name)),
    };
    let title = schedule.map_or_else(|| agent.to_owned(), |schedule| format!("{agent}/{schedule}"));
    let all = format!("/jobs?{filter}");
    let main = html! {
        div.page-head { h1.any { (Text(&title)) } }
        div #left data-live { p.alert { b { "Not in the config" } ": " (Text(&sentence)) "." } }
        (part("latest", "Latest jobs", &html! { a href=(all) { "All its jobs" } }, &jobs::table(&latest.items, now(), &html! {})))
    };
    let follow = format!("agent={name}");
    pages.page(Frame { title: &title, tab: Tab::Fleet, follow: Some(&follow) }, main).await
}

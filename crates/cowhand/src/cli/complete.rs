//! Shell completion of the names of agents, schedules, jobs and asks, which are read from the config and the
//! fleet.
//!
//! The shell waits for the answer, and the user did not ask for messages. So completion returns nothing if it cannot
//! read the names.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap_complete::{ArgValueCompleter, CompletionCandidate};
use cowhand_core::ask::Ask;
use cowhand_core::job::{JobRecord, JobStatus};
use cowhand_core::roster::Roster;

use super::Failure;
use super::location::{Connection, FleetLocation};
use cowhand_engine::config;
use cowhand_engine::state::StateFolder;
use cowhand_web::api::Page;

/// Environment variable with which a shell requests completions.
pub(super) const COMPLETE_VARIABLE: &str = "COWHAND_COMPLETE";

/// Longest wait for an answer. A person does not wait longer for a completion.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest number of jobs that are offered. It is more than a person reads.
const MAX_JOBS_OFFERED: usize = 50;

pub(super) fn agents() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| names(current, agent_names))
}

/// Completes `AGENT/SCHEDULE`.
pub(super) fn schedules() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| names(current, schedule_names))
}

/// Completes an agent, or `AGENT/SCHEDULE`.
pub(super) fn agents_and_schedules() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        names(current, |roster| [agent_names(roster), schedule_names(roster)].concat())
    })
}

/// Completes the schedules of the agent that is already on the line.
pub(super) fn schedules_of_agent() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        names(current, |roster| {
            let words = words();
            let is_named = |name: &str| words.iter().any(|word| word.to_str() == Some(name));
            let agent = roster.agents.iter().find(|agent| is_named(agent.name.as_str()));
            let schedules = agent.iter().flat_map(|agent| &agent.schedules);
            schedules.map(|schedule| schedule.name.to_string()).collect()
        })
    })
}

pub(super) fn jobs() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| jobs_that(current, |_| true))
}

pub(super) fn live_jobs() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| jobs_that(current, is_live))
}

pub(super) fn ended_jobs() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| jobs_that(current, |status| !is_live(status)))
}

pub(super) fn jobs_and_agents() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        names(current, agent_names).into_iter().chain(jobs_that(current, |_| true)).collect()
    })
}

/// Completes the open asks.
pub(super) fn asks() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let Some(current) = current.to_str() else { return Vec::new() };
        let asks = ask(&async |client| Ok(client.get::<Page<Ask>>("asks").await?.items));
        let asks =
            asks.unwrap_or_default().into_iter().map(|ask| (ask.id.to_string(), ask.agent.to_string()));
        asks.filter(|(id, _)| id.starts_with(current)).map(|(id, agent)| candidate(id, agent)).collect()
    })
}

fn agent_names(roster: &Roster) -> Vec<String> {
    roster.agents.iter().map(|agent| agent.name.to_string()).collect()
}

fn schedule_names(roster: &Roster) -> Vec<String> {
    let all =
        roster.agents.iter().flat_map(|agent| agent.schedules.iter().map(move |schedule| (agent, schedule)));
    all.map(|(agent, schedule)| format!("{}/{}", agent.name, schedule.name)).collect()
}

fn is_live(status: JobStatus) -> bool {
    matches!(status, JobStatus::Pending | JobStatus::Running)
}

/// Returns the names from the config that begin with the typed text.
fn names(current: &OsStr, of: impl Fn(&Roster) -> Vec<String>) -> Vec<CompletionCandidate> {
    let (Some(current), Some(file)) = (current.to_str(), config_file()) else { return Vec::new() };
    let names = of(&config::load(&file).loaded.roster);
    names.into_iter().filter(|name| name.starts_with(current)).map(CompletionCandidate::new).collect()
}

/// Returns the newest jobs with an offered status. A job is offered by its full id if the id begins with the typed
/// text, and by the last characters of its id if these begin with the typed text.
fn jobs_that(current: &OsStr, is_offered: impl Fn(JobStatus) -> bool) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let jobs = ask(&async |client| {
        let page: Page<JobRecord> = client.get("jobs?limit=1000").await?;
        Ok(page.items)
    });
    let jobs = jobs.unwrap_or_default().into_iter().filter(|job| is_offered(job.status));
    let offered = jobs.filter_map(|job| {
        let is_suffix = !current.is_empty() && job.id.suffix().starts_with(current);
        let id = if is_suffix { job.id.suffix().to_owned() } else { job.id.to_string() };
        id.starts_with(current).then(|| candidate(id, format!("{} {}", job.agent, job.status)))
    });
    offered.take(MAX_JOBS_OFFERED).collect()
}

fn candidate(value: String, help: String) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(help.into()))
}

/// Sends a request to the fleet. Returns none if the config has errors, the request fails or no answer comes in time.
fn ask<T>(request: &impl AsyncFn(&Connection<'_>) -> Result<T, Failure>) -> Option<T> {
    let file = config_file()?;
    if config::load(&file).loaded.errors() > 0 {
        return None;
    }
    let location = FleetLocation { state: StateFolder::beside(&file), config: file };
    FleetLocation::without_refusal_note();
    let answer = location.ask(async |client| {
        tokio::time::timeout(COMPLETION_TIMEOUT, request(client))
            .await
            .unwrap_or_else(|_| Err(Failure::usage("")))
    });
    answer.ok()
}

/// Returns the config that `-c` names on the typed line, or the one found from the current directory.
fn config_file() -> Option<PathBuf> {
    let words = words();
    let config_option = words.iter().enumerate().find_map(|(index, word)| {
        let word = word.to_str()?;
        match word.strip_prefix("--config=") {
            Some(path) => Some(OsString::from(path)),
            None if matches!(word, "-c" | "--config") => words.get(index + 1).cloned(),
            None => None,
        }
    });
    let current_dir = std::env::current_dir().ok()?;
    Some(config::find(config_option.as_deref().map(Path::new), &current_dir).ok()?.file)
}

/// Returns the words of the typed line after the name of the program. The shell passes the typed line after `--`.
fn words() -> Vec<OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(2).collect()
}

//! Finds the agent, the schedule or the job that a person names in a command.

use cowhand_core::chat::{ChatPlatform, texts};
use cowhand_core::id::{JobId, JobName};
use cowhand_core::job::Job;
use cowhand_core::roster::{Agent, Schedule};

use super::super::intake::Addressee;
use cowhand_store::{Store, StoreError};

/// Returns the schedule of an agent with this name, which may begin with the name of the agent and a slash.
pub(super) fn schedule<'a>(agent: &'a Agent, name: &str) -> Option<&'a Schedule> {
    let named = |name: &str| agent.schedules.iter().find(|schedule| schedule.name.as_str() == name);
    named(name).or_else(|| named(name.strip_prefix(agent.name.as_str())?.strip_prefix('/')?))
}

/// Returns the only agent that has a schedule with this name.
pub(super) fn only_owner<'a>(candidates: &'a [Addressee], name: &str) -> Option<&'a Addressee> {
    let mut owners = candidates.iter().filter(|one| schedule(&one.agent, name).is_some());
    owners.next().filter(|_| owners.next().is_none())
}

/// Returns the jobs of the agents that a name can mean. A short id can mean several.
pub(super) async fn jobs_named(
    store: &Store,
    candidates: &[Addressee],
    name: &JobName,
) -> Result<Vec<Job>, StoreError> {
    let ids = match name {
        JobName::Id(id) => vec![id.clone()],
        JobName::Suffix(suffix) => store.jobs_by_suffix(suffix).await?,
    };
    let mut jobs = Vec::new();
    for id in ids {
        let job = store.job(id).await?;
        jobs.extend(job.filter(|job| candidates.iter().any(|one| one.agent.name == *job.agent())));
    }
    Ok(jobs)
}

/// Finds a job of one of the agents. A job of another agent counts as a job that does not exist. Returns a text for the
/// sender if there is no such job, or if there are several.
pub(super) async fn find_job(
    store: &Store,
    candidates: &[Addressee],
    name: &JobName,
    platform: ChatPlatform,
) -> Result<Result<Job, String>, StoreError> {
    let mut jobs = jobs_named(store, candidates, name).await?;
    let name = name.to_string();
    if jobs.len() > 1 {
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id().clone()).collect();
        return Ok(Err(texts::several_jobs(&name, &ids, platform)));
    }
    Ok(jobs.pop().ok_or_else(|| texts::no_such_job(&name, platform)))
}

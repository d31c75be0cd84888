//! Jobs: listed, looked at, listened to, cancelled, and made anew from an earlier one.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{Job, JobStatus, TriggerType};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::follow::{self, Growing};
use super::given::{Given, Params, named};
use super::{Api, Page, Problem};
use crate::fleet::{self, Changes, Listening};
use crate::store::{Cancel, JobFilter};

#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    agent: Option<AgentName>,
    schedule: Option<ScheduleName>,
    status: Option<JobStatus>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    trigger_type: Option<TriggerType>,
    after: Option<JobId>,
    #[serde(default = "usual")]
    limit: u32,
}

fn usual() -> u32 {
    50
}

/// The most of one part of a list.
const MOST: u32 = 1000;

pub(super) async fn list(
    State(api): State<Api>,
    Params(listed): Params<Listed>,
) -> Result<Json<Page<Job>>, Problem> {
    let Listed { agent, schedule, status, since, until, trigger_type, after, limit } = listed;
    let limit = limit.min(MOST);
    let filter = JobFilter { agent, schedule, status, since, until, trigger_type, after };
    let items = api.store.jobs(filter, limit).await?;
    let full = items.len() == limit as usize;
    let next_cursor = items.last().filter(|_| full).map(|job| job.id().to_string());
    Ok(Json(Page { items, next_cursor }))
}

pub(super) async fn one(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Job>, Problem> {
    find(&api, &named(&id)?).await.map(Json)
}

/// A waiting job is cancelled at once; a running one is on its way to be.
pub(super) async fn cancel(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Job>, Problem> {
    match api.daemon()?.cancel(named(&id)?).await? {
        Cancel::Done(job) | Cancel::Asked(job) => Ok(Json(job)),
        Cancel::AlreadyStopped(job) => Err(Problem::already_stopped(&job)),
    }
}

pub(super) async fn retry(
    State(api): State<Api>,
    Path(id): Path<String>,
    Given(changes): Given<Changes>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    Ok((StatusCode::CREATED, Json(api.daemon()?.retry(&named(&id)?, changes).await?)))
}

pub(super) async fn fork(
    State(api): State<Api>,
    Path(id): Path<String>,
    Given(changes): Given<Changes>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    Ok((StatusCode::CREATED, Json(api.daemon()?.fork(&named(&id)?, changes).await?)))
}

async fn find(api: &Api, id: &JobId) -> Result<Job, Problem> {
    match api.store.job(id.clone()).await? {
        Some(job) => Ok(job),
        None => Err(api.no_job(id).await?),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Heard {
    /// How many lines the caller has already.
    #[serde(default)]
    after: u64,
    /// 1 means: until the job has ended.
    #[serde(default)]
    follow: u8,
}

/// The job's JSONL.
pub(super) async fn output(
    State(api): State<Api>,
    Path(id): Path<String>,
    Params(heard): Params<Heard>,
) -> Result<Response, Problem> {
    let job = find(&api, &named(&id)?).await?.id().clone();
    // Without a daemon nobody writes any more.
    let fleet = api.daemon().ok().filter(|_| heard.follow == 1);
    Ok(follow::answer(Listening::new(&api.store, &api.state, &job, heard.after, fleet)))
}

impl Growing for Listening {
    async fn more(&mut self) -> Result<Option<Bytes>, Problem> {
        Ok(Self::more(self).await?.map(Bytes::from))
    }

    async fn grown(&mut self) {
        Self::grown(self).await;
    }
}

/// What a job came to in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    pub job: JobId,
    pub status: JobStatus,
    /// So far, if it has not ended. None if it said nothing, or ran on another machine.
    pub result: Option<String>,
}

pub(super) async fn result(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<JobResult>, Problem> {
    let job = find(&api, &named(&id)?).await?;
    let result = fleet::result(&api.state, job.id().clone()).await?;
    Ok(Json(JobResult { job: job.id().clone(), status: job.status(), result }))
}

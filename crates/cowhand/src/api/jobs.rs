//! Jobs: listed, looked at, listened to, cancelled, and made anew from an earlier one.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{Job, JobStatus, TriggerType};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::watch;

use super::follow::{self, Growing};
use super::given::{Given, Params, named};
use super::{Api, Page, Problem};
use crate::fleet::Changes;
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
    let growth = api.daemon().ok().filter(|_| heard.follow == 1).map(|daemon| daemon.growth().of(&job));
    let seen = api.store.committed();
    Ok(follow::answer(Output { api, job, growth, seen, offset: 0, skip: heard.after }))
}

/// The file of a job's output, as far as it was sent.
struct Output {
    api: Api,
    job: JobId,
    /// None if the answer ends with what there is.
    growth: Option<watch::Receiver<()>>,
    /// The newest event when it was last looked at: the job's end is one.
    seen: i64,
    offset: u64,
    /// So many lines more are not sent.
    skip: u64,
}

impl Growing for Output {
    async fn more(&mut self) -> Result<Option<Bytes>, Problem> {
        // First whether it has ended, then what it wrote: so nothing that was written before is missed.
        self.seen = self.api.store.committed();
        let status = match &mut self.growth {
            Some(growth) => {
                growth.mark_unchanged();
                Some(find(&self.api, &self.job).await?.status())
            }
            None => None,
        };
        let mut part = self.read().map_err(|error| Problem::unavailable(error.to_string()))?;
        while self.skip > 0 && !part.is_empty() {
            self.pass_over(&mut part);
            if part.is_empty() {
                part = self.read().map_err(|error| Problem::unavailable(error.to_string()))?;
            }
        }
        let over = part.is_empty() && !matches!(status, Some(JobStatus::Pending | JobStatus::Running));
        Ok((!over).then(|| part.into()))
    }

    async fn grown(&mut self) {
        let Some(growth) = &mut self.growth else { return };
        tokio::select! {
            _ = growth.changed() => {}
            () = self.api.store.changed(self.seen) => {}
        }
    }
}

impl Output {
    fn pass_over(&mut self, part: &mut Vec<u8>) {
        while self.skip > 0 {
            let Some(end) = memchr::memchr(b'\n', part) else { return part.clear() };
            part.drain(..=end);
            self.skip -= 1;
        }
    }

    /// Whole lines only, unless one is longer than a part.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        const PART: u64 = 256 * 1024;
        let mut file = match File::open(self.api.state.output(&self.job)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut part = Vec::new();
        let read = file.take(PART).read_to_end(&mut part)?;
        match memchr::memrchr(b'\n', &part) {
            Some(end) => part.truncate(end + 1),
            None if (read as u64) < PART => part.clear(),
            None => {}
        }
        self.offset += part.len() as u64;
        Ok(part)
    }
}

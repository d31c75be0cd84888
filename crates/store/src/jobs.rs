//! Jobs: creating, reading and listing.

use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId, ScheduleId, ScheduleName};
use cowhand_core::job::{
    ErrorKind, ExitReason, Job, JobError, JobRecord, JobState, JobStatus, NewJob, Origin, Termination,
    TriggerType,
};
use cowhand_core::roster::Roster;
use cowhand_core::trigger::FiringKey;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::database::db::{Arg, Row, Tx, args, json_list};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::{Store, StoreError};

/// Query that lists jobs. `$by` has the conditions on agent and status. The form of these conditions decides which
/// index the database uses, so that a few jobs among a million are found without reading all of them.
macro_rules! list_query {
    ($by:literal) => {
        concat!(
            "select * from jobs where ",
            $by,
            " and (schedule = $2 or $2 is null) and (started_at >= $4 or $4 is null) \
             and (started_at <= $5 or $5 is null) and (trigger_type = $6 or $6 is null) \
             and (number < (select number from jobs where id = $7) or $7 is null) \
             and (lower(id) like $9 escape '!' or lower(prompt) like $9 escape '!' \
             or lower(summary) like $9 escape '!' or lower(error_message) like $9 escape '!' or $9 is null) \
             and (work_item is not null or $10 = 0) order by number desc limit $8"
        )
    };
}

statements! {
    ADD_JOB = same "insert into jobs (id, agent, schedule, schedule_id, by_trigger, trigger_type, forked_from, retry_of, \
        started_at, prompt, work_item, status, exit_reason, session_id, finished_at, summary, attempt, run_started_at, \
        attempt_started_at, not_before, error_kind, error_message, termination, usage, parks, requeued, chat, confined, firing_key, \
        message) \
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30) \
        on conflict (id) do nothing";
    SAVE_JOB = same "update jobs set status = $2, exit_reason = $3, session_id = $4, finished_at = $5, summary = $6, \
        attempt = $7, run_started_at = $8, attempt_started_at = $9, not_before = $10, error_kind = $11, \
        error_message = $12, termination = $13, usage = $14, parks = $15, requeued = $16 where id = $1";
    GET_JOB = same "select * from jobs where id = $1";
    LOCK_JOB = locked "select * from jobs where id = $1";
    JOB_FACTS = same "select epoch, schedule_id, by_trigger, cancel_asked_at, acted, not_before, backoff_from, backoff_boot \
        from jobs where id = $1";
    LAST_ENDED =
        sqlite "select jobs.* from json_each($1) as named join jobs on jobs.number = (select number from jobs \
            where agent = named.value and status in ('completed', 'failed', 'cancelled') order by number desc limit 1)"
        postgres "select jobs.* from json_array_elements_text(($1::text)::json) as named (value) join jobs \
            on jobs.number = (select number from jobs where agent = named.value \
            and status in ('completed', 'failed', 'cancelled') order by number desc limit 1)";
    LIST_JOBS = same (list_query!("(agent = $1 or $1 is null) and (status = $3 or $3 is null)"));
    LIST_JOBS_OF_AGENT = same (list_query!("agent = $1 and (status = $3 or $3 is null)"));
    LIST_JOBS_OF_STATUS = same (list_query!("(agent = $1 or $1 is null) and status = $3"));
    NEWEST_JOBS =
        sqlite "select jobs.* from json_each($1) as named join jobs on jobs.number = \
            (select max(number) from jobs where agent = named.value)"
        postgres "select jobs.* from json_array_elements_text(($1::text)::json) as named (value) join jobs \
            on jobs.number = (select max(number) from jobs where agent = named.value)";
    JOBS_BY_IDS =
        sqlite "select * from jobs where id in (select value from json_each($1))"
        postgres "select * from jobs where id = any (array(select json_array_elements_text(($1::text)::json)))";
    // Retries and requeued jobs have an earliest start too, which does not come from the calendar.
    WAIT_FOR_CALENDAR = same "select id, schedule_id from jobs where status = 'pending' and schedule_id is not null \
        and by_trigger = 1 and not_before > $1 and run_started_at is null and requeued is null and backoff_from is null \
        order by number";
    // Goes from each agent to the next by index: `distinct` would read all jobs.
    AGENTS_WITH_JOBS = same "with recursive names (agent) as (select min(agent) from jobs \
        union all select (select min(agent) from jobs where jobs.agent > names.agent) from names where names.agent is not null) \
        select agent from names where agent is not null order by agent";
    SCHEDULES_WITH_JOBS = same "select distinct schedule from jobs where schedule is not null and (agent = $1 or $1 is null) \
        order by schedule";
    JOBS_BY_SUFFIX = same "select id from jobs where substr(id, 16) = $1 order by number desc limit 5";
}

/// Filter of a list of jobs; an unset field matches all jobs.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    pub agent: Option<AgentName>,
    pub schedule: Option<ScheduleName>,
    pub status: Option<JobStatus>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub trigger_type: Option<TriggerType>,
    /// Text in the id, prompt, summary or error, ignoring case.
    pub search: Option<String>,
    /// Only jobs that work on an item of a queue.
    pub with_item: bool,
    /// Only jobs that come after this job in the list.
    pub after: Option<JobId>,
}

/// Returns the newest job of each of these agents that has jobs.
pub(super) async fn newest(tx: &mut Tx<'_>, agents: &[AgentName]) -> Result<Vec<Job>, StoreError> {
    tx.all(NEWEST_JOBS, args![json_list(agents)?]).await?.iter().map(read).collect()
}

impl Store {
    /// Adds a job without a schedule.
    pub async fn add_job(&self, new: NewJob, now: Timestamp) -> Result<Job, StoreError> {
        self.add_job_of(None, new, now).await
    }

    /// Adds a job that no firing created: a fork or a retry, or a job without a schedule. A fork or a retry with a
    /// schedule counts as a live job of that schedule, as a job by hand does.
    pub async fn add_job_of(
        &self,
        schedule: Option<ScheduleId>,
        new: NewJob,
        now: Timestamp,
    ) -> Result<Job, StoreError> {
        let random = self.random;
        let origin = JobOrigin { schedule, ..JobOrigin::default() };
        self.write(move |tx| {
            Box::pin(async move {
                let job = add(tx, new, &origin, now, random).await?;
                record_created(tx, &job, now);
                Ok(job)
            })
        })
        .await
    }

    pub async fn job(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.read(move |tx| Box::pin(async move { get(tx, &id).await })).await
    }

    /// Lists jobs, the newest first. It is an error if the job `after` of the filter does not exist.
    pub async fn jobs(&self, filter: JobFilter, limit: u32) -> Result<Vec<Job>, StoreError> {
        let JobFilter { agent, schedule, status, since, until, trigger_type, search, with_item, after } =
            filter;
        let list = match (&agent, status) {
            // Most jobs are completed, so this status is less selective than the agent.
            (_, Some(status)) if status != JobStatus::Completed => LIST_JOBS_OF_STATUS,
            (Some(_), _) => LIST_JOBS_OF_AGENT,
            (None, _) => LIST_JOBS,
        };
        let args = args![
            agent.as_ref().map(AgentName::as_str),
            schedule.as_ref().map(ScheduleName::as_str),
            status.map(JobStatus::as_str),
            since,
            until,
            trigger_type.map(TriggerType::as_str),
            after.as_ref().map(JobId::as_str),
            limit,
            search.as_deref().map(like_pattern),
            i64::from(with_item),
        ];
        self.read(move |tx| {
            Box::pin(async move {
                if let Some(after) = after
                    && tx.one(GET_JOB, args![after.as_str()]).await?.is_none()
                {
                    return Err(StoreError::NoJob(after));
                }
                tx.all(list, args).await?.iter().map(read).collect()
            })
        })
        .await
    }

    /// Returns the names of all agents that have jobs, including agents that are no longer in the config.
    pub async fn agents_with_jobs(&self) -> Result<Vec<AgentName>, StoreError> {
        self.read(|tx| {
            Box::pin(async move {
                tx.all(AGENTS_WITH_JOBS, args![]).await?.iter().map(|row| row.parse("agent")).collect()
            })
        })
        .await
    }

    /// Returns the names of all schedules that have jobs, of this agent or of all agents.
    pub async fn schedules_with_jobs(
        &self,
        agent: Option<&AgentName>,
    ) -> Result<Vec<ScheduleName>, StoreError> {
        let agent = agent.cloned();
        self.read(move |tx| {
            Box::pin(async move {
                let rows = tx.all(SCHEDULES_WITH_JOBS, args![agent.as_ref().map(AgentName::as_str)]).await?;
                rows.iter().map(|row| row.parse("schedule")).collect()
            })
        })
        .await
    }

    /// Finds the jobs whose ids end in these six characters, the newest first, at most five.
    pub async fn jobs_by_suffix(&self, suffix: &str) -> Result<Vec<JobId>, StoreError> {
        let suffix = suffix.to_owned();
        self.read(move |tx| {
            Box::pin(async move {
                tx.all(JOBS_BY_SUFFIX, args![suffix]).await?.iter().map(|row| row.parse("id")).collect()
            })
        })
        .await
    }

    /// Returns the newest ended job of each of these agents.
    pub async fn last_ended(&self, agents: &[AgentName]) -> Result<Vec<Job>, StoreError> {
        let agents = json_list(agents)?;
        let rows = self.read(move |tx| Box::pin(async move { tx.all(LAST_ENDED, args![agents]).await }));
        rows.await?.iter().map(read).collect()
    }
}

/// Origin of a job, in addition to the fields of the job itself.
#[derive(Debug, Clone, Default)]
pub(super) struct JobOrigin {
    pub(super) schedule: Option<ScheduleId>,
    /// Key of the firing that created the job.
    pub(super) firing: Option<FiringKey>,
    pub(super) by_trigger: bool,
    /// True if the first attempt of the job begins at once.
    pub(super) is_running: bool,
}

/// Adds a job. Draws another id if the drawn id is taken.
pub(super) async fn add(
    tx: &mut Tx<'_>,
    new: NewJob,
    origin: &JobOrigin,
    now: Timestamp,
    random: fn() -> u64,
) -> Result<Job, StoreError> {
    const MAX_ID_TRIES: usize = 20;
    let today = TimeZone::UTC.to_datetime(now).date();
    for _ in 0..MAX_ID_TRIES {
        let mut job = Job::new(JobId::new(today, random()), new.clone(), now);
        if origin.is_running {
            job.start(now)?;
        }
        if insert(tx, &job, origin).await? {
            return Ok(job);
        }
    }
    Err(StoreError::NoFreeId(MAX_ID_TRIES))
}

/// Inserts a job. Returns false if its id is taken.
pub(super) async fn insert(tx: &mut Tx<'_>, job: &Job, origin: &JobOrigin) -> Result<bool, StoreError> {
    let record = JobRecord::from(job.clone());
    let work_item = record.work_item.as_ref().map(to_json).transpose()?;
    let message = record.message.as_ref().map(to_json).transpose()?;
    let (chat, confined) = (record.chat.clone(), record.confined.clone());
    let mut columns = args![
        record.id.as_str(),
        record.agent.as_str(),
        record.schedule.as_ref().map(ScheduleName::as_str),
        origin.schedule.map(|id| id.to_string()),
        i64::from(origin.by_trigger),
        record.trigger_type.as_str(),
        record.forked_from.as_ref().map(JobId::as_str),
        record.retry_of.as_ref().map(JobId::as_str),
        record.started_at,
        record.prompt.clone(),
        work_item,
    ];
    columns.extend(changing_columns(record)?);
    columns.extend(args![chat, confined, origin.firing.as_ref().map(FiringKey::as_str), message]);
    Ok(tx.execute(ADD_JOB, columns).await? == 1)
}

/// Returns a pattern for `like` that matches a text in lower case if the text contains `search` in lower case.
fn like_pattern(search: &str) -> String {
    let mut pattern = String::from("%");
    for letter in search.to_lowercase().chars() {
        if matches!(letter, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(letter);
    }
    pattern.push('%');
    pattern
}

/// Serialises a value as JSON.
pub(super) fn to_json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Unreadable { what: error.to_string() })
}

pub(super) fn record_created(tx: &mut Tx<'_>, job: &Job, now: Timestamp) {
    record(tx, job, Fact::JobCreated, now);
    if let Some(Origin::ForkOf(parent)) = job.origin() {
        record(tx, job, Fact::JobForked { forked_from: parent.clone() }, now);
    }
}

pub(super) fn record(tx: &mut Tx<'_>, job: &Job, fact: Fact, now: Timestamp) {
    let (agent, schedule) = (job.agent().clone(), job.schedule().cloned());
    tx.record(NewEvent { at: now, agent: Some(agent), schedule, job: Some(job.id().clone()), fact });
}

/// Reads the jobs with these ids that still exist, in any order.
pub(super) async fn by_ids(tx: &mut Tx<'_>, ids: &[JobId]) -> Result<Vec<Job>, StoreError> {
    tx.all(JOBS_BY_IDS, args![to_json(&ids)?]).await?.iter().map(read).collect()
}

/// Updates the earliest start of each job that waits for the calendar of its schedule, because the config may have
/// changed the calendar.
pub(super) async fn follow_calendars(
    tx: &mut Tx<'_>,
    roster: &Roster,
    now: Timestamp,
) -> Result<(), StoreError> {
    for row in tx.all(WAIT_FOR_CALENDAR, args![now]).await? {
        let Some((_, schedule)) = roster.schedule(row.parse("schedule_id")?) else { continue };
        let mut job = lock(tx, &row.parse("id")?).await?;
        let not_before = schedule.next_opening(now);
        if job.reschedule(not_before) {
            save(tx, &job).await?;
            record(tx, &job, Fact::JobRescheduled { not_before }, now);
        }
    }
    Ok(())
}

pub(super) async fn get(tx: &mut Tx<'_>, id: &JobId) -> Result<Option<Job>, StoreError> {
    tx.one(GET_JOB, args![id.as_str()]).await?.as_ref().map(read).transpose()
}

/// Returns the job and locks it until the end of the transaction.
pub(super) async fn lock(tx: &mut Tx<'_>, id: &JobId) -> Result<Job, StoreError> {
    let row = tx.one(LOCK_JOB, args![id.as_str()]).await?;
    read(&row.ok_or_else(|| StoreError::NoJob(id.clone()))?)
}

/// Reads the columns that verbs need in addition to [`Job`]: its epoch, the id of its schedule, whether a trigger fired
/// it, a request to cancel it, whether an attempt may have used a tool, and its backoff.
pub(super) async fn stored_columns(tx: &mut Tx<'_>, id: &JobId) -> Result<Option<Row>, StoreError> {
    tx.one(JOB_FACTS, args![id.as_str()]).await
}

/// Returns whether somebody has requested that the running job is cancelled.
pub(super) async fn is_cancel_requested(tx: &mut Tx<'_>, job: &Job) -> Result<bool, StoreError> {
    let row = stored_columns(tx, job.id()).await?;
    let row = row.ok_or_else(|| StoreError::NoJob(job.id().clone()))?;
    Ok(row.time_opt("cancel_asked_at")?.is_some())
}

/// Returns true if the job runs and this is its current epoch. A node that lost its lease has an old epoch and may not
/// write.
pub(super) async fn is_current_epoch(tx: &mut Tx<'_>, job: &Job, epoch: i64) -> Result<bool, StoreError> {
    let row = stored_columns(tx, job.id()).await?;
    let current: i64 = row.ok_or_else(|| StoreError::NoJob(job.id().clone()))?.get("epoch")?;
    Ok(current == epoch && matches!(job.state(), JobState::Running { .. }))
}

pub(super) async fn save(tx: &mut Tx<'_>, job: &Job) -> Result<(), StoreError> {
    let mut columns = args![job.id().as_str()];
    columns.extend(changing_columns(JobRecord::from(job.clone()))?);
    tx.execute(SAVE_JOB, columns).await?;
    Ok(())
}

/// Returns the columns that can change after a job was added, in the order in which `ADD_JOB` and `SAVE_JOB` name them.
fn changing_columns(record: JobRecord) -> Result<Vec<Arg>, StoreError> {
    let usage = record.usage.as_ref().map(to_json).transpose()?;
    let requeued = record.requeued.as_ref().map(to_json).transpose()?;
    let (kind, message) = record.error.map(|error| (error.kind.as_str(), error.message)).unzip();
    Ok(args![
        record.status.as_str(),
        record.exit_reason.map(ExitReason::as_str),
        record.session_id,
        record.finished_at,
        record.summary,
        record.attempt,
        record.run_started_at,
        record.attempt_started_at,
        record.not_before,
        kind,
        message,
        record.termination.map(Termination::as_str),
        usage,
        record.parks,
        requeued,
    ])
}

fn read(row: &Row) -> Result<Job, StoreError> {
    let kind: Option<ErrorKind> = row.parse_opt("error_kind")?;
    let message: Option<String> = row.get("error_message")?;
    let id: JobId = row.parse("id")?;
    let record = JobRecord {
        output_file: None,
        duration_seconds: None,
        agent: row.parse("agent")?,
        schedule: row.parse_opt("schedule")?,
        trigger_type: row.parse("trigger_type")?,
        status: row.parse("status")?,
        exit_reason: row.parse_opt("exit_reason")?,
        session_id: row.get("session_id")?,
        forked_from: row.parse_opt("forked_from")?,
        started_at: row.time("started_at")?,
        finished_at: row.time_opt("finished_at")?,
        prompt: row.get("prompt")?,
        summary: row.get("summary")?,
        work_item: row.json_opt("work_item")?,
        usage: row.json_opt("usage")?,
        retry_of: row.parse_opt("retry_of")?,
        attempt: row.count("attempt")?,
        parks: row.count("parks")?,
        requeued: row.json_opt("requeued")?,
        run_started_at: row.time_opt("run_started_at")?,
        attempt_started_at: row.time_opt("attempt_started_at")?,
        not_before: row.time_opt("not_before")?,
        error: kind.zip(message).map(|(kind, message)| JobError { kind, message }),
        termination: row.parse_opt("termination")?,
        chat: row.get("chat")?,
        message: row.json_opt("message")?,
        confined: row.get("confined")?,
        id,
    };
    Job::try_from(record).map_err(|error| StoreError::Unreadable { what: error.to_string() })
}

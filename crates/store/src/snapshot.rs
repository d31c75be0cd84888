//! The input of the planner: every schedule, every job that has not ended, every firing that is being prepared, every
//! work item that is being claimed, and every provider, at one moment.

use std::collections::BTreeSet;

use cowhand_core::budget::{Amount, SpendingLedger};
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::{Job, JobUsage, Outcome};
use cowhand_core::lease::Contact;
use cowhand_core::moment::Moment;
use cowhand_core::plan::{LiveJob, LiveState, PlanningNode, Preparing, Snapshot, UnfinishedClaim};
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::schedule::ScheduleRecord;
use cowhand_core::trigger::{Driver, FiringKey};
use cowhand_core::uptime::Uptime;
use cowhand_core::work::WorkItemId;
use jiff::Timestamp;
use serde::Deserialize;

use super::database::db::{Row, Tx, args, json_list};
use super::database::dialect::statements;
use super::{Store, StoreError, jobs, leases, node_reports, providers, schedules};

/// Query for live jobs that fulfil a condition.
macro_rules! live_jobs {
    ($condition:literal) => {
        concat!(
            "select jobs.id, jobs.agent, jobs.schedule_id, jobs.schedule, jobs.by_trigger, jobs.automatic, jobs.status, jobs.not_before, \
            jobs.cancel_asked_at, jobs.epoch, jobs.work_item, jobs.run_started_at, jobs.provider, jobs.chat, jobs.confined, jobs.session_key, \
            jobs.session_id, jobs.parks, jobs.requeued, jobs.acted, jobs.usage, jobs.backoff_from, jobs.backoff_boot, \
            leases.expires_at, leases.boot, leases.length, leases.on_lost, \
            current.reserved_microdollars, current.reserved_tokens, \
            current.microdollars as spent_microdollars, current.tokens as spent_tokens, \
            (select runtime from attempts where job_id = jobs.id and runtime is not null order by number desc limit 1) as runtime, \
            (select outcome from attempts where job_id = jobs.id and runtime is not null order by number desc limit 1) as outcome \
            from jobs left join leases on leases.job_id = jobs.id \
            left join attempts as current on current.job_id = jobs.id and current.number = jobs.attempt \
                and jobs.status = 'running' where ",
            $condition,
            " order by jobs.number"
        )
    };
}

statements! {
    LIVE_JOBS = same (live_jobs!("jobs.status in ('pending', 'running')"));
    // The numbers of the jobs are found by index, once for the agents and once for the schedules.
    LIVE_JOBS_OF_AGENTS =
        sqlite (live_jobs!("jobs.number in (\
            select number from jobs indexed by jobs_live_of_agent \
                where status in ('pending', 'running') and agent in (select value from json_each($1)) \
            union select number from jobs indexed by jobs_live_of_schedule \
                where status in ('pending', 'running') and schedule_id in (select value from json_each($2)))"))
        postgres (live_jobs!("jobs.number = any (array(\
            select number from jobs where status in ('pending', 'running') \
                and agent = any (array(select json_array_elements_text(($1::text)::json))) \
            union select number from jobs where status in ('pending', 'running') \
                and schedule_id = any (array(select json_array_elements_text(($2::text)::json)))))"));
    // $1: the agents, $2: their schedules that the clock fires, $3: their other schedules, $4: the number of oldest
    // jobs. The first part of the union contains the oldest live jobs of each agent; the other parts contain the later
    // jobs that a plan needs.
    OLDEST_LIVE_JOBS_OF_AGENTS =
        // SQLite has no statistics, so it would read all live jobs of the fleet by their status.
        sqlite (live_jobs!("jobs.number in (\
            select oldest.number from json_each($1) as agents cross join jobs as oldest indexed by jobs_live_of_agent \
                where oldest.agent = agents.value and oldest.status in ('pending', 'running') \
                and oldest.number < coalesce((select number from jobs indexed by jobs_live_of_agent where agent = agents.value \
                and status in ('pending', 'running') order by number limit 1 offset $4), 9223372036854775807) \
            union select number from jobs indexed by jobs_running_of_agent \
                where status = 'running' and agent in (select value from json_each($1)) \
            union select number from jobs indexed by jobs_running_of_schedule \
                where status = 'running' and schedule_id in (select value from json_each($3)) \
            union select number from jobs indexed by jobs_later_of_agent \
                where status = 'pending' and (not_before is not null or run_started_at is not null) \
                and agent in (select value from json_each($1)) \
            union select number from jobs indexed by jobs_live_of_schedule \
                where status in ('pending', 'running') and schedule_id in (select value from json_each($2)) \
            union select (select min(number) from jobs indexed by jobs_live_of_schedule \
                where status in ('pending', 'running') and schedule_id = schedules.value) \
                from json_each($3) as schedules)"))
        postgres (live_jobs!("jobs.number = any (array(\
            select oldest.number from json_array_elements_text(($1::text)::json) as agents (value) join jobs as oldest \
                on oldest.agent = agents.value and oldest.status in ('pending', 'running') \
                where oldest.number < coalesce((select number from jobs where agent = agents.value \
                and status in ('pending', 'running') order by number limit 1 offset $4), 9223372036854775807) \
            union select number from jobs where status = 'running' \
                and agent = any (array(select json_array_elements_text(($1::text)::json))) \
            union select number from jobs where status = 'running' \
                and schedule_id = any (array(select json_array_elements_text(($3::text)::json))) \
            union select number from jobs where status = 'pending' and (not_before is not null or run_started_at is not null) \
                and agent = any (array(select json_array_elements_text(($1::text)::json))) \
            union select number from jobs where status in ('pending', 'running') \
                and schedule_id = any (array(select json_array_elements_text(($2::text)::json))) \
            union select (select min(number) from jobs where status in ('pending', 'running') and schedule_id = schedules.value) \
                from json_array_elements_text(($3::text)::json) as schedules (value)))"));
    LIVE_AGENTS = same "select distinct agent from jobs where status in ('pending', 'running')";
    PREPARING_OF_SCHEDULES =
        sqlite "select schedule_id, key, decided_at, prepare_tries from firings where outcome = 'preparing' \
            and schedule_id in (select value from json_each($1)) order by prepare_number, due_at, key"
        postgres "select schedule_id, key, decided_at, prepare_tries from firings where outcome = 'preparing' \
            and schedule_id = any (array(select json_array_elements_text(($1::text)::json))) order by prepare_number, due_at, key";
    CLAIMS_OF_AGENTS =
        sqlite "select holder, agent, schedule, until from items where state = 'claiming' \
            and agent in (select value from json_each($1))"
        postgres "select holder, agent, schedule, until from items where state = 'claiming' \
            and agent = any (array(select json_array_elements_text(($1::text)::json)))";
    PREPARING_OF = same "select schedule_id, key, decided_at, prepare_tries from firings where schedule_id = $1 and outcome = 'preparing' \
        order by prepare_number, due_at, key";
    PREPARING = same "select schedule_id, key, decided_at, prepare_tries from firings where outcome = 'preparing' \
        order by prepare_number, due_at, key";
    CLAIMS = same "select holder, agent, schedule, until from items where state = 'claiming'";
}

/// Fields of a work item that the planner needs.
#[derive(Deserialize)]
struct WorkItemKey {
    id: WorkItemId,
}

impl Store {
    /// Reads a snapshot. If the fleet or an agent has a daily or monthly budget, the snapshot has the spent amounts.
    pub async fn snapshot_of(&self, roster: &Roster, now: Timestamp) -> Result<Snapshot, StoreError> {
        // Spending is read before the snapshot, so it may be too low when a job starts. The claim of the job reads the
        // spending again.
        let ledger = self.spending(roster, now).await?;
        Ok(Snapshot { ledger, ..self.take_snapshot(Some(now)).await? })
    }

    /// Reads a snapshot and the newest job of each agent at one moment, so that they do not contradict each other. Only
    /// the spent amounts are read earlier.
    pub async fn snapshot_and_newest_jobs(
        &self,
        roster: &Roster,
        now: Timestamp,
    ) -> Result<(Snapshot, Vec<Job>), StoreError> {
        let ledger = self.spending(roster, now).await?;
        let agents: Vec<AgentName> = roster.agents.iter().map(|agent| agent.name.clone()).collect();
        let read = self.read(move |tx| {
            Box::pin(async move { Ok((all(tx, Some(now)).await?, jobs::newest(tx, &agents).await?)) })
        });
        let (snapshot, newest) = read.await?;
        Ok((Snapshot { ledger, ..snapshot }, newest))
    }

    /// Returns the firings of a schedule that have to be prepared now, in their order.
    pub async fn to_prepare(&self, schedule: ScheduleId) -> Result<Vec<FiringKey>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let record = schedules::get(tx, schedule).await?;
                let rows = tx.all(PREPARING_OF, args![schedule]).await?;
                let preparing = rows.iter().map(read_preparing).collect::<Result<_, _>>()?;
                let schedules = record.into_iter().map(|record| (schedule, record)).collect();
                let snapshot = Snapshot { schedules, preparing, ..Snapshot::default() };
                Ok(snapshot.to_prepare(schedule).map(|firing| firing.key.clone()).collect())
            })
        })
        .await
    }

    /// Reads a snapshot without spent amounts. The times of jobs are returned as they were written, without corrections
    /// for steps of the clock.
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.take_snapshot(None).await
    }

    /// Reads the part of a snapshot that concerns these agents: their schedules in the config, the jobs of the agents
    /// and of these schedules, and their firings and claims. If one of the agents or the fleet has a daily or monthly
    /// budget, the snapshot has the spent amounts.
    pub async fn snapshot_of_agents(
        &self,
        roster: &Roster,
        agents: &[AgentName],
        waiting: WaitingJobs,
        now: Timestamp,
    ) -> Result<Snapshot, StoreError> {
        let configured = || agents.iter().filter_map(|name| roster.agent(name));
        let has_budget = |agent: &Agent| agent.budget.has_windows() || agent.has_person_budget();
        let ledger = if configured().any(has_budget) || roster.budget.has_windows() {
            self.spending(roster, now).await?
        } else {
            SpendingLedger::default()
        };
        let schedules = || configured().flat_map(Agent::all_schedules);
        let ids = |by_clock: bool| {
            let schedules = schedules().filter(|own| (own.trigger.driver() == Driver::Clock) == by_clock);
            schedules.map(|schedule| schedule.id).collect::<Vec<ScheduleId>>()
        };
        let all: Vec<ScheduleId> = schedules().map(|schedule| schedule.id).collect();
        let lists = AgentLists {
            agents: json_list(agents)?,
            schedules: json_list(&all)?,
            by_clock: json_list(&ids(true))?,
            by_tasks: json_list(&ids(false))?,
        };
        let snapshot = self.read(move |tx| Box::pin(of_agents(tx, lists, waiting, now))).await?;
        Ok(Snapshot { ledger, ..snapshot })
    }

    /// Returns the agents that have live jobs, in the config or not.
    pub async fn live_agents(&self) -> Result<Vec<AgentName>, StoreError> {
        let rows = self.read(|tx| Box::pin(async move { tx.all(LIVE_AGENTS, args![]).await }));
        rows.await?.iter().map(|row| row.parse("agent")).collect()
    }

    async fn take_snapshot(&self, now: Option<Timestamp>) -> Result<Snapshot, StoreError> {
        self.read(move |tx| Box::pin(all(tx, now))).await
    }
}

/// Reads a snapshot without spent amounts. Without `now`, the times of jobs are returned as they were written.
pub(super) async fn all(tx: &mut Tx<'_>, now: Option<Timestamp>) -> Result<Snapshot, StoreError> {
    let schedules = schedules::all(tx).await?;
    let jobs = tx.all(LIVE_JOBS, args![]).await?;
    let preparing = tx.all(PREPARING, args![]).await?;
    let claims = tx.all(CLAIMS, args![]).await?;
    let snapshot = assemble(tx, now, schedules, [jobs, preparing, claims]).await?;
    Ok(Snapshot { nodes: node_reports::all(tx).await?, ..snapshot })
}

/// Selection of the waiting jobs of an agent that a snapshot contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingJobs {
    All,
    /// The oldest `count` live jobs of each agent, and those later jobs that can change a plan although an older job
    /// waits for the same place: running jobs, jobs that wait for a time or for another attempt, jobs of schedules that
    /// the clock fires, and the oldest job of every other schedule. So the cost of a plan does not depend on the length
    /// of a queue.
    Oldest {
        count: u32,
    },
}

impl WaitingJobs {
    /// Selects enough of the oldest jobs to fill the places of each of these agents, even if some of the jobs have to
    /// wait for something else. Any number of jobs can wait for the budget of their sender, so all jobs are selected if
    /// there is such a budget.
    pub fn to_fill_places(roster: &Roster, agents: &[AgentName]) -> Self {
        let agents = agents.iter().filter_map(|name| roster.agent(name));
        if agents.clone().any(Agent::has_person_budget) {
            return Self::All;
        }
        let places = agents.map(|agent| agent.max_concurrent);
        Self::Oldest { count: places.max().unwrap_or_default().saturating_mul(2).saturating_add(SPARE_JOBS) }
    }
}

/// Number of jobs that [`WaitingJobs::to_fill_places`] selects for each agent, in addition to twice the places of the
/// agent that has the most places.
const SPARE_JOBS: u32 = 16;

/// Agents and their schedules, as lists in JSON.
struct AgentLists {
    agents: String,
    schedules: String,
    by_clock: String,
    by_tasks: String,
}

/// Reads the part of a snapshot that concerns some agents.
async fn of_agents(
    tx: &mut Tx<'_>,
    lists: AgentLists,
    waiting: WaitingJobs,
    now: Timestamp,
) -> Result<Snapshot, StoreError> {
    let AgentLists { agents, schedules, by_clock, by_tasks } = lists;
    let records = schedules::of_ids(tx, schedules.clone()).await?;
    let jobs = match waiting {
        WaitingJobs::All => tx.all(LIVE_JOBS_OF_AGENTS, args![agents.clone(), schedules.clone()]).await?,
        WaitingJobs::Oldest { count } => {
            let arguments = args![agents.clone(), by_clock, by_tasks, i64::from(count)];
            tx.all(OLDEST_LIVE_JOBS_OF_AGENTS, arguments).await?
        }
    };
    let preparing = tx.all(PREPARING_OF_SCHEDULES, args![schedules]).await?;
    let claims = tx.all(CLAIMS_OF_AGENTS, args![agents]).await?;
    assemble(tx, Some(now), records, [jobs, preparing, claims]).await
}

/// Makes a snapshot of rows that were read in this transaction.
async fn assemble(
    tx: &mut Tx<'_>,
    now: Option<Timestamp>,
    schedules: Vec<ScheduleRecord>,
    [jobs, preparing, claims]: [Vec<Row>; 3],
) -> Result<Snapshot, StoreError> {
    let clocks = match now {
        Some(now) => Some(Clocks {
            now: tx.moment(now),
            leases: tx.lease_clock(now).await?,
            contacts: leases::contacts(tx).await?,
        }),
        None => None,
    };
    let read = |row: &Row| read(row, clocks.as_ref());
    let schedules = schedules.into_iter().map(|schedule| (schedule.id, schedule)).collect();
    let jobs = jobs.iter().map(read).collect::<Result<_, _>>()?;
    let preparing = preparing.iter().map(read_preparing).collect::<Result<_, _>>()?;
    // A claim of a person leads to no job.
    let claims = claims.iter().filter(|row| row.parse::<JobId>("holder").is_ok()).map(read_claim);
    let claims = claims.collect::<Result<_, _>>()?;
    Ok(Snapshot {
        schedules,
        jobs,
        preparing,
        claims,
        ledger: SpendingLedger::default(),
        providers: providers::all(tx).await?,
        boot: tx.moment(Timestamp::UNIX_EPOCH).boot,
        uptime: Uptime::default(),
        unsettled: BTreeSet::new(),
        nodes: Vec::new(),
        here: PlanningNode::default(),
    })
}

fn read_preparing(row: &Row) -> Result<Preparing, StoreError> {
    let tries: i64 = row.get("prepare_tries")?;
    Ok(Preparing {
        schedule: row.parse("schedule_id")?,
        key: FiringKey::stored(row.get("key")?),
        since: row.time("decided_at")?,
        has_failed: tries > 1,
    })
}

fn read_claim(row: &Row) -> Result<UnfinishedClaim, StoreError> {
    let (agent, schedule) = (row.parse("agent")?, row.parse_opt("schedule")?);
    Ok(UnfinishedClaim { agent, schedule, until: row.time("until")? })
}

/// The current time by two clocks.
struct Clocks {
    /// Time of this node.
    now: Moment,
    /// Time for leases, see [`Tx::lease_clock`].
    leases: Moment,
    contacts: Vec<Contact>,
}

/// Returns the earliest start of a job, by the wall clock as it is set now. Without `now`, returns the time as it was
/// written. Returns `None` if the job has no earliest start.
pub(super) fn not_before(row: &Row, now: Option<Moment>) -> Result<Option<Timestamp>, StoreError> {
    let not_before = row.time_opt("not_before")?;
    let backoff = row.moment_opt("backoff_from", "backoff_boot")?;
    Ok(match (not_before, backoff, now) {
        (Some(end), Some(from), Some(now)) => Some(from.end_of(end.duration_since(from.wall), now)),
        (not_before, ..) => not_before,
    })
}

/// Returns the time from which any node may settle the attempt, by the wall clock as it is set now; without `clocks`, the
/// expiry of the lease as it was written. The lease of a running job without a lease row counts as expired.
fn lease_until(row: &Row, clocks: Option<&Clocks>) -> Result<Timestamp, StoreError> {
    let Some(clocks) = clocks else { return Ok(row.time_opt("expires_at")?.unwrap_or(Timestamp::MIN)) };
    let is_cancelled = row.time_opt("cancel_asked_at")?.is_some();
    let from = leases::settled_from(row, is_cancelled, &clocks.contacts, clocks.leases)?;
    Ok(match from {
        Some(from) if from.wall == Timestamp::MIN => Timestamp::MIN,
        Some(from) => clocks.now.plus(from.since(clocks.leases)).wall,
        None => Timestamp::MAX,
    })
}

fn read(row: &Row, clocks: Option<&Clocks>) -> Result<LiveJob, StoreError> {
    let status: String = row.get("status")?;
    let state = match status.as_str() {
        "pending" => LiveState::Pending { not_before: not_before(row, clocks.map(|clocks| clocks.now))? },
        _ => LiveState::Running {
            epoch: row.get("epoch")?,
            lease_until: lease_until(row, clocks)?,
            cancel: row.time_opt("cancel_asked_at")?.is_some(),
        },
    };
    Ok(LiveJob {
        id: row.parse("id")?,
        agent: row.parse("agent")?,
        schedule: row.parse_opt("schedule_id")?,
        schedule_name: row.parse_opt("schedule")?,
        by_trigger: row.get::<i64>("by_trigger")? == 1,
        automatic: row.get::<i64>("automatic")? == 1,
        item: row.json_opt::<WorkItemKey>("work_item")?.map(|item| item.id),
        began_at: row.time_opt("run_started_at")?,
        resumes: resumed_runtime(row)?,
        provider: row.get("provider")?,
        chat: row.get("chat")?,
        confined: row.get::<Option<String>>("confined")?.is_some(),
        session_key: row.get("session_key")?,
        requeued: row.json_opt("requeued")?.unwrap_or_default(),
        reserved: reserved(row)?,
        state,
    })
}

/// Returns the part of the job's reservation that it has not spent. The columns are null if the job does not run.
fn reserved(row: &Row) -> Result<Amount, StoreError> {
    let left = |reserved, spent| {
        let count = |column| Ok::<_, StoreError>(row.get::<Option<i64>>(column)?.unwrap_or_default());
        Ok::<_, StoreError>(count(reserved)?.saturating_sub(count(spent)?).max(0).cast_unsigned())
    };
    Ok(Amount {
        microdollars: left("reserved_microdollars", "spent_microdollars")?,
        tokens: left("reserved_tokens", "spent_tokens")?,
    })
}

/// Returns the runtime of the session that the job continues after a usage limit. Returns `None` if the job continues
/// no session after a usage limit. Also returns `None` if the job has used neither tokens nor tools: it may then start
/// with another runtime.
fn resumed_runtime(row: &Row) -> Result<Option<String>, StoreError> {
    let is_limited = row.json_opt::<Outcome>("outcome")?.is_some_and(|outcome| outcome.is_limit());
    if !is_limited || row.get::<i64>("parks")? == 0 || row.get::<Option<String>>("session_id")?.is_none() {
        return Ok(None);
    }
    let has_used_tokens =
        row.json_opt::<JobUsage>("usage")?.is_some_and(|usage| Amount::of(&usage).tokens > 0);
    let has_acted = row.get::<i64>("acted")? == 1;
    Ok(row.get::<Option<String>>("runtime")?.filter(|_| has_used_tokens || has_acted))
}

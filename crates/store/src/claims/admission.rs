//! Whether a job may start now: reads the facts in the transaction of a claim, and lets core decide.

use cowhand_core::budget::Reservation;
use cowhand_core::id::AgentName;
use cowhand_core::job::Requeued;
use cowhand_core::plan::{Admission, PlaceCount, StartFacts, admit};
use jiff::Timestamp;

use super::{Claim, Starter};
use crate::agent_lock::lock_agent;
use crate::database::db::{Row, Tx, args};
use crate::database::dialect::statements;
use crate::providers::StartCandidate;
use crate::shared_places::{self, NodeAdmission};
use crate::{StoreError, budgets, providers, sessions};

statements! {
    // These statements repeat rules of `plan::admit` in core, because only the transaction sees the jobs of all nodes.
    // `RUNNING_OF_AGENT` counts running jobs (`PlaceCount`). `IN_FRONT` and `REQUEUED_AND_WAITING` count the jobs that
    // come before a new job (`ReadyJobs`). They also count jobs with a hold on their schedule, which the planner does
    // not count. If such jobs take the last free place, the new job stays pending until the next plan.
    // The first two statements also count a job of another agent, if a schedule of this agent adopted the job's
    // schedule while the job ran.
    // The jobs are found by index, in two searches: one for the agent, and one for its schedules. $3 is the number of
    // the agent's places. `IN_FRONT` need not count further jobs: on SQLite each search stops at $3 jobs, and on
    // PostgreSQL the result is at most $3. The statements for SQLite name the index: SQLite has no statistics, and
    // would otherwise find the jobs by their status and read all live jobs of the fleet.
    RUNNING_OF_AGENT =
        sqlite "select count(*) as taken from (\
            select number from jobs indexed by jobs_running_of_agent where status = 'running' and agent = $1 \
            union select jobs.number from schedules cross join jobs indexed by jobs_running_of_schedule \
                where schedules.agent = $1 and jobs.schedule_id = schedules.id and jobs.status = 'running')"
        postgres "select count(*) as taken from (\
            select number from jobs where status = 'running' and agent = $1 \
            union select number from jobs where status = 'running' \
                and schedule_id = any (array(select id from schedules where agent = $1))) as running";
    IN_FRONT =
        sqlite "select count(*) as taken from (\
            select number from (select number from jobs indexed by jobs_live_of_agent \
                where agent = $1 and status in ('pending', 'running') and (not_before is null or not_before <= $2) limit $3) \
            union select number from (select jobs.number from schedules cross join jobs indexed by jobs_live_of_schedule \
                where schedules.agent = $1 and jobs.schedule_id = schedules.id and jobs.status in ('pending', 'running') \
                and (jobs.not_before is null or jobs.not_before <= $2) limit $3))"
        // With a limit, PostgreSQL would read all live jobs in their order.
        postgres "select least(count(*), $3) as taken from (\
            select number from jobs \
                where agent = $1 and status in ('pending', 'running') and (not_before is null or not_before <= $2) \
            union select number from jobs \
                where schedule_id = any (array(select id from schedules where agent = $1)) \
                and status in ('pending', 'running') and (not_before is null or not_before <= $2)) as in_front";
    REQUEUED_AND_WAITING = same "select requeued from jobs where agent = $1 and status = 'pending' and not_before > $2 \
        and requeued is not null";
}

/// Reads the facts that decide whether a job may start, lets `admit` of core decide, and returns the job's reservation
/// or the refusal. The running jobs of all nodes count, so claims of one agent are serialised. Call this function before
/// anything else is locked.
pub(super) async fn admission(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    starter: &Starter,
    candidate: StartCandidate<'_>,
    now: Timestamp,
) -> Result<Result<Reservation, Claim>, StoreError> {
    let provider = providers::wait(tx, starter.slot.as_ref(), candidate, now).await?;
    let shared = match shared_places::admission(tx, &starter.node, starter.shared).await? {
        NodeAdmission::Places(shared) => shared,
        NodeAdmission::Drained => return Ok(Err(Claim::Drained)),
    };
    lock_agent(tx, agent).await?;
    let taken = match candidate.job() {
        Some(_) => read_taken(tx.one(RUNNING_OF_AGENT, args![agent.as_str()]).await?)?,
        None => count_jobs_ahead(tx, agent, starter.max_concurrent, now).await?,
    };
    let session_busy = match &starter.session_key {
        Some(key) => sessions::is_busy(tx, agent, key, candidate.job()).await?,
        None => false,
    };
    let reservation = budgets::reserve(tx, agent, candidate.spent(), starter.limits.as_ref()).await?;
    let start_facts = StartFacts {
        over: reservation.as_ref().err().copied(),
        // `Job::start` checks the earliest start of the job, and the planner checks the hold of its schedule.
        not_before: None,
        hold: None,
        places: PlaceCount { max: starter.max_concurrent, taken },
        shared,
        session_busy,
        provider,
    };
    Ok(match admit(&start_facts, now) {
        Admission::Admitted => reservation.map_err(Claim::OverBudget),
        Admission::OverBudget(over) => Err(Claim::OverBudget(over)),
        Admission::AtCapacity | Admission::FleetFull | Admission::NodeFull => Err(Claim::AtCapacity),
        Admission::SessionBusy => Err(Claim::SessionBusy),
        Admission::Provider(_) => Err(Claim::NoProviderSlot),
        Admission::NotBefore(_) | Admission::Held(_) => Err(Claim::Taken),
    })
}

/// Counts the jobs that come before a new job: the jobs that run or are ready, and the requeued jobs that keep their
/// place while they wait. If there are more than `places` such jobs, the result may be too low, but it
/// is at least `places`.
async fn count_jobs_ahead(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    places: u32,
    now: Timestamp,
) -> Result<u32, StoreError> {
    let mut taken = read_taken(tx.one(IN_FRONT, args![agent.as_str(), now, i64::from(places)]).await?)?;
    for row in tx.all(REQUEUED_AND_WAITING, args![agent.as_str(), now]).await? {
        let requeued: Option<Requeued> = row.json_opt("requeued")?;
        taken = taken.saturating_add(u32::from(requeued.is_some_and(|requeued| requeued.keeps_place())));
    }
    Ok(taken)
}

fn read_taken(row: Option<Row>) -> Result<u32, StoreError> {
    row.map_or(Ok(0), |row| row.count("taken"))
}

/// Returns the reservation of a job that is not created yet, if the job could start now: the agent has places for the
/// job and for all jobs that come before it, the session is free, the provider takes the job, and the budget has room.
/// Call this function before the job is created.
pub(crate) async fn admit_new(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    starter: &Starter,
    automatic: bool,
    now: Timestamp,
) -> Result<Option<Reservation>, StoreError> {
    Ok(admission(tx, agent, starter, StartCandidate::New { automatic }, now).await?.ok())
}

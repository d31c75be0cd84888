//! Hook runs after the end of a job. They are recorded in the transaction that ends the job, and one node at a time
//! takes them in their order.

use std::collections::HashMap;

use cowhand_core::event::Fact;
use cowhand_core::hook::{HookEvent, HookKind, HookOutline, HookRun, HookState};
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{Job, Outcome};
use cowhand_core::roster::Roster;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::agent_lock::lock_agent;
use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::{Store, StoreError, jobs};

statements! {
    ALL_HOOKS = same "select * from hooks order by agent, number";
    HOOKS_OF = same "select * from hooks where agent = $1 order by number";
    FORGET_HOOKS = same "delete from hooks where agent = $1";
    ADD_HOOK = same "insert into hooks (agent, number, list, kind, name, events) values ($1, $2, $3, $4, $5, $6)";
    NODE_OF_JOB = same "select node from attempts where job_id = $1 order by number desc limit 1";
    ADD_HOOK_RUN = same "insert into hook_runs (job_id, number, agent, schedule, list, kind, name, event, state, node, not_before) \
        values ($1, $2, $3, $4, $5, $6, $7, $8, 'waiting', $9, $10)";
    KEEP_METADATA = same "insert into hook_metadata (job_id, metadata) values ($1, $2) \
        on conflict (job_id) do update set metadata = excluded.metadata";
    GET_METADATA = same "select metadata from hook_metadata where job_id = $1";
    HOOK_RUNS = same "select * from hook_runs where job_id = $1 order by number";
    DUE_HOOK = same "select job_id, number from hook_runs as due where state in ('waiting', 'running') and not_before <= $1 \
        and (node = $2 or node is null or not_before <= $3) and not exists (select 1 from hook_runs as earlier \
        where earlier.job_id = due.job_id and earlier.number < due.number and earlier.state in ('waiting', 'running')) \
        order by not_before, job_id, number limit 1";
    LOCK_HOOK = locked "select * from hook_runs where job_id = $1 and number = $2";
    TAKE_HOOK = same "update hook_runs set state = 'running', node = $3, not_before = $4, tries = tries + 1, \
        started_at = coalesce(started_at, $5) where job_id = $1 and number = $2";
    RENEW_HOOK = same "update hook_runs set not_before = $4 where job_id = $1 and number = $2 and state = 'running' and tries = $3";
    POSTPONE_HOOK = same "update hook_runs set state = 'waiting', not_before = $4, reason = $5 \
        where job_id = $1 and number = $2 and state = 'running' and tries = $3";
    END_HOOK = same "update hook_runs set state = $4, ended_at = $5, reason = $6, said = $7 \
        where job_id = $1 and number = $2 and state = 'running' and tries = $3";
    REST_OF_HOOKS = locked "select * from hook_runs where job_id = $1 and state = 'waiting' order by number";
    SKIP_HOOK = same "update hook_runs set state = 'skipped', ended_at = $3, reason = $4 where job_id = $1 and number = $2";
    // SQLite uses the index of unfinished runs only if a statement contains the condition of that index.
    RESUME_HOOKS = same "update hook_runs set not_before = $2 where state in ('waiting', 'running') and state = 'running' and node = $1";
    CAP_HOOKS = same "update hook_runs set not_before = $2 where state in ('waiting', 'running') and state = 'waiting' \
        and (node = $1 or node is null) and not_before > $2";
    NEXT_HOOK = same "select min(not_before) as next from hook_runs as due where state in ('waiting', 'running') \
        and not exists (select 1 from hook_runs as earlier where earlier.job_id = due.job_id \
        and earlier.number < due.number and earlier.state in ('waiting', 'running'))";
    HOOK_IN_HAND = same "select job_id from hook_runs where state in ('waiting', 'running') and (node = $1 or node is null) \
        and (state = 'running' or (state = 'waiting' and not_before <= $2)) limit 1";
}

/// A hook that the caller has to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenHook {
    pub job: JobId,
    pub agent: AgentName,
    pub schedule: Option<ScheduleName>,
    /// Current state of the run.
    pub run: HookRun,
    /// Node that began the run before and did not finish it.
    pub begun_by: Option<String>,
}

/// Result of a hook run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookEnd {
    Completed { note: Option<String> },
    Failed { reason: String },
    Skipped { reason: String },
}

/// Time that a due hook waits for its node, before another node takes the hook. Its node is the node that ran the job,
/// or that took the hook last.
const HOOK_TAKEOVER_DELAY: SignedDuration = SignedDuration::from_mins(1);

impl Store {
    /// Stores the hooks of every agent; writes nothing if they are unchanged.
    pub(super) async fn load_hooks(&self, roster: &Roster) -> Result<(), StoreError> {
        let mut stored = self.read(|tx| Box::pin(all_outlines(tx))).await?;
        for agent in &roster.agents {
            let (agent, hooks) = (agent.name.clone(), HookOutline::all_of(&agent.hooks));
            if stored.remove(&agent).unwrap_or_default() != hooks {
                self.write(move |tx| Box::pin(async move { replace(tx, &agent, hooks).await })).await?;
            }
        }
        Ok(())
    }

    /// Returns the hook runs of a job in their order.
    pub async fn hook_runs(&self, job: JobId) -> Result<Vec<HookRun>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let runs = tx.all(HOOK_RUNS, args![job.as_str()]).await?;
                runs.iter().map(|row| read(row).map(with_start_count)).collect()
            })
        })
        .await
    }

    /// Returns the metadata that the agent left when the job ended.
    pub async fn hook_metadata(&self, job: JobId) -> Result<Option<Value>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let row = tx.one(GET_METADATA, args![job.as_str()]).await?;
                row.map_or(Ok(None), |row| row.json_opt("metadata"))
            })
        })
        .await
    }

    /// Takes a hook that is due; no other node gets it before `lease_until`. The hooks of a job run one after another.
    pub async fn take_hook(
        &self,
        node: String,
        lease_until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<TakenHook>, StoreError> {
        let takeover_limit = now.checked_sub(HOOK_TAKEOVER_DELAY).unwrap_or(Timestamp::MIN);
        let args = args![now, node.as_str(), takeover_limit];
        let due = self.read(move |tx| Box::pin(async move { tx.one(DUE_HOOK, args).await })).await?;
        let Some(due) = due else { return Ok(None) };
        let (job, number): (JobId, u32) = (due.parse("job_id")?, due.count("number")?);
        self.write(move |tx| {
            Box::pin(async move {
                let Some(row) = tx.one(LOCK_HOOK, args![job.as_str(), number]).await? else {
                    return Ok(None);
                };
                let mut run = read(&row)?;
                let is_open = matches!(run.state, HookState::Waiting | HookState::Running);
                if !is_open || row.time("not_before")? > now {
                    return Ok(None);
                }
                let last_node: Option<String> = row.get("node")?;
                let begun_by = last_node.filter(|_| run.state == HookState::Running);
                tx.execute(TAKE_HOOK, args![job.as_str(), number, node, lease_until, now]).await?;
                run.state = HookState::Running;
                run.tries += 1;
                run.started_at.get_or_insert(now);
                let (agent, schedule) = (row.parse("agent")?, row.parse_opt("schedule")?);
                Ok(Some(TakenHook { job, agent, schedule, run, begun_by }))
            })
        })
        .await
    }

    /// Extends the lease of a hook run. Returns false if the hook was taken again or has ended.
    pub async fn renew_hook(&self, taken: &TakenHook, until: Timestamp) -> Result<bool, StoreError> {
        let row = args![taken.job.as_str(), taken.run.number, taken.run.tries, until];
        self.write(move |tx| Box::pin(async move { Ok(tx.execute(RENEW_HOOK, row).await? == 1) })).await
    }

    /// Schedules another try of a hook run.
    pub async fn postpone_hook(
        &self,
        taken: &TakenHook,
        reason: String,
        not_before: Timestamp,
    ) -> Result<(), StoreError> {
        let row = args![taken.job.as_str(), taken.run.number, taken.run.tries, not_before, reason];
        self.write(move |tx| Box::pin(async move { tx.execute(POSTPONE_HOOK, row).await.map(drop) })).await
    }

    /// Ends a hook run. With `stops_later_hooks`, the later hooks of the job are skipped after a failure. Nothing is
    /// written if the hook was taken again or has ended.
    pub async fn end_hook(
        &self,
        taken: TakenHook,
        end: HookEnd,
        output: Option<String>,
        stops_later_hooks: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| Box::pin(end_hook(tx, taken, end, output, stops_later_hooks, now))).await
    }

    /// Makes the running hooks of a node due now. The node has just started, so its former process has ended.
    pub async fn take_up_hooks(&self, node: String, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move { tx.execute(RESUME_HOOKS, args![node, now]).await.map(drop) })
        })
        .await
    }

    /// Returns the time at which the next hook is due.
    pub async fn next_hook_time(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read(|tx| {
            Box::pin(async move {
                let row = tx.one(NEXT_HOOK, args![]).await?;
                row.map_or(Ok(None), |row| row.time_opt("next"))
            })
        })
        .await
    }

    /// Returns true if a hook of this node, or a hook without a node, runs or is due.
    pub async fn has_open_hook(&self, node: String, now: Timestamp) -> Result<bool, StoreError> {
        self.read(move |tx| {
            Box::pin(async move { Ok(tx.one(HOOK_IN_HAND, args![node, now]).await?.is_some()) })
        })
        .await
    }
}

/// Makes waiting hooks of this node, and waiting hooks without a node, due now, because the clock was set back.
pub(super) async fn clock_set_back(tx: &mut Tx<'_>, node: &str, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(CAP_HOOKS, args![node, now]).await.map(drop)
}

/// Records the hook runs of a job, in the transaction that ends the job.
pub(super) async fn job_ended(
    tx: &mut Tx<'_>,
    job: &Job,
    outcome: &Outcome,
    metadata: Option<&Value>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let event = HookEvent::of(outcome);
    let mut hooks = outlines(tx, job.agent()).await?;
    hooks.retain(|hook| hook.applies(event));
    if hooks.is_empty() {
        return Ok(());
    }
    let id = job.id().as_str();
    let row = tx.one(NODE_OF_JOB, args![id]).await?;
    let node: Option<String> = row.map_or(Ok(None), |row| row.get("node"))?;
    for hook in hooks {
        let row = args![
            id,
            hook.number,
            job.agent().as_str(),
            job.schedule().map(ScheduleName::as_str),
            hook.list.as_str(),
            hook.kind.as_str(),
            hook.name,
            event.as_str(),
            node.clone(),
            now,
        ];
        tx.execute(ADD_HOOK_RUN, row).await?;
    }
    if let Some(metadata) = metadata {
        tx.execute(KEEP_METADATA, args![id, jobs::to_json(metadata)?]).await?;
    }
    Ok(())
}

async fn end_hook(
    tx: &mut Tx<'_>,
    taken: TakenHook,
    end: HookEnd,
    output: Option<String>,
    stops_later_hooks: bool,
    now: Timestamp,
) -> Result<(), StoreError> {
    let TakenHook { job, agent, schedule, run, .. } = taken;
    let label = run.label();
    let (state, reason) = match end {
        HookEnd::Completed { note } => (HookState::Completed, note),
        HookEnd::Failed { reason } => (HookState::Failed, Some(reason)),
        HookEnd::Skipped { reason } => (HookState::Skipped, Some(reason)),
    };
    let row = args![job.as_str(), run.number, run.tries, state.as_str(), now, reason.clone(), output];
    if tx.execute(END_HOOK, row).await? == 0 {
        return Ok(());
    }
    let record = |tx: &mut Tx<'_>, fact| {
        let (agent, schedule, job) = (agent.clone(), schedule.clone(), Some(job.clone()));
        tx.record(NewEvent { at: now, agent: Some(agent), schedule, job, fact });
    };
    record(tx, fact(run, state, reason));
    if state != HookState::Failed || !stops_later_hooks {
        return Ok(());
    }
    for row in tx.all(REST_OF_HOOKS, args![job.as_str()]).await? {
        let rest = read(&row)?;
        let reason = format!("the {label} failed");
        tx.execute(SKIP_HOOK, args![job.as_str(), rest.number, now, reason.as_str()]).await?;
        record(tx, fact(rest, HookState::Skipped, Some(reason)));
    }
    Ok(())
}

fn fact(run: HookRun, state: HookState, reason: Option<String>) -> Fact {
    let HookRun { number, kind, name, .. } = run;
    let message = reason.unwrap_or_default();
    match state {
        HookState::Failed => Fact::HookFailed { number, kind, name, message },
        HookState::Skipped => Fact::HookSkipped { number, kind, name, message },
        HookState::Completed | HookState::Waiting | HookState::Running => {
            Fact::HookCompleted { number, kind, name }
        }
    }
}

async fn outlines(tx: &mut Tx<'_>, agent: &AgentName) -> Result<Vec<HookOutline>, StoreError> {
    tx.all(HOOKS_OF, args![agent.as_str()]).await?.iter().map(read_outline).collect()
}

/// Returns the hooks of all agents that have hooks.
async fn all_outlines(tx: &mut Tx<'_>) -> Result<HashMap<AgentName, Vec<HookOutline>>, StoreError> {
    let mut all: HashMap<AgentName, Vec<HookOutline>> = HashMap::new();
    for row in tx.all(ALL_HOOKS, args![]).await? {
        all.entry(row.parse("agent")?).or_default().push(read_outline(&row)?);
    }
    Ok(all)
}

fn read_outline(row: &Row) -> Result<HookOutline, StoreError> {
    let events: String = row.get("events")?;
    let event = |event_name: &str| event_name.parse().map_err(|_| row.unreadable("events", &events));
    Ok(HookOutline {
        number: row.count("number")?,
        list: row.parse("list")?,
        kind: row.parse("kind")?,
        name: row.get("name")?,
        events: events.split_whitespace().map(event).collect::<Result<_, _>>()?,
    })
}

async fn replace(tx: &mut Tx<'_>, agent: &AgentName, hooks: Vec<HookOutline>) -> Result<(), StoreError> {
    lock_agent(tx, agent).await?;
    tx.execute(FORGET_HOOKS, args![agent.as_str()]).await?;
    for hook in hooks {
        let events: Vec<&str> = hook.events.iter().map(|event| event.as_str()).collect();
        let (list, kind) = (hook.list.as_str(), hook.kind.as_str());
        let row = args![agent.as_str(), hook.number, list, kind, hook.name, events.join(" ")];
        tx.execute(ADD_HOOK, row).await?;
    }
    Ok(())
}

/// Replaces the number of tries by the number of starts. A shell command is started once; later tries only follow its
/// process.
fn with_start_count(run: HookRun) -> HookRun {
    let tries = if run.kind == HookKind::Shell { run.tries.min(1) } else { run.tries };
    HookRun { tries, ..run }
}

fn read(row: &Row) -> Result<HookRun, StoreError> {
    Ok(HookRun {
        number: row.count("number")?,
        list: row.parse("list")?,
        kind: row.parse("kind")?,
        name: row.get("name")?,
        event: row.parse("event")?,
        state: row.parse("state")?,
        tries: row.count("tries")?,
        started_at: row.time_opt("started_at")?,
        ended_at: row.time_opt("ended_at")?,
        reason: row.get("reason")?,
        output: row.get("said")?,
    })
}

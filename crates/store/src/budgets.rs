//! Budgets: spent and reserved amounts, reservations of new attempts, and usage of running ones.

use std::collections::HashMap;

use cowhand_core::budget::{
    self, Amount, HighestCost, OverBudget, Reservation, SpendLimits, Spending, SpendingLedger,
};
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::{Job, JobUsage, Outcome};
use cowhand_core::roster::Roster;
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError, jobs};

statements! {
    LOCK_FLEET_BUDGET = sqlite "select 1 as locked" postgres "select 1 as locked, pg_advisory_xact_lock(4921190715)";
    UNDER_WAY = same "select jobs.agent, attempts.reserved_microdollars, attempts.reserved_tokens, \
        coalesce(attempts.microdollars, 0) as microdollars, coalesce(attempts.tokens, 0) as tokens \
        from jobs join attempts on attempts.job_id = jobs.id and attempts.number = jobs.attempt \
        where jobs.status = 'running'";
    SETTLED = same "select agent, \
        cast(sum(case when slot >= $1 then cost_microdollars else 0 end) as bigint) as day_microdollars, \
        cast(sum(case when slot >= $1 then input_tokens + output_tokens + cache_creation_tokens + cache_read_tokens \
            else 0 end) as bigint) as day_tokens, \
        cast(sum(cost_microdollars) as bigint) as month_microdollars, \
        cast(sum(input_tokens + output_tokens + cache_creation_tokens + cache_read_tokens) as bigint) as month_tokens \
        from usage where slot >= $2 group by agent";
    DEAREST = same "select max(microdollars) as microdollars, max(tokens) as tokens from (select attempts.microdollars, \
        attempts.tokens from attempts join jobs on jobs.id = attempts.job_id where jobs.agent = $1 \
        and attempts.ended_at is not null and attempts.tokens is not null order by jobs.number desc limit 20) as latest";
    USAGE_OF_ATTEMPT = same "select usage, reserved_microdollars, reserved_tokens from attempts where job_id = $1 and number = $2";
    HEAR = same "update attempts set usage = $3, microdollars = $4, tokens = $5, assumed_microdollars = $6 \
        where job_id = $1 and number = $2";
    USED_NOTHING = same "update attempts set microdollars = 0, tokens = 0 where job_id = $1 and number = $2";
}

/// Result of recording the usage of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Hearing {
    /// Written, with the budget that is now exceeded, if any.
    Noted(Option<OverBudget>),
    /// The attempt belongs to another epoch; nothing was written.
    Fenced,
}

impl Store {
    /// Returns the spending of all agents in the day and month of `now`, or nothing if no budget needs it.
    pub async fn spending(&self, roster: &Roster, now: Timestamp) -> Result<SpendingLedger, StoreError> {
        if !roster.has_budgets() {
            return Ok(SpendingLedger::default());
        }
        let limits_of_agents =
            roster.agents.iter().filter_map(|agent| Some((agent, SpendLimits::of(roster, agent, now)?)));
        let limits_of_agents: Vec<_> =
            limits_of_agents.map(|(agent, limits)| (agent.name.clone(), limits)).collect();
        self.read(|tx| {
            Box::pin(async move {
                let mut ledger = SpendingLedger::default();
                let Some((_, first)) = limits_of_agents.first() else { return Ok(ledger) };
                let everybody = everybody(tx, first).await?;
                ledger.fleet = total(&everybody);
                for (agent, _) in limits_of_agents {
                    let own = everybody.get(&agent).copied().unwrap_or_default();
                    let highest_cost = highest_cost(tx, &agent).await?;
                    ledger.agents.insert(agent, (own, highest_cost));
                }
                Ok(ledger)
            })
        })
        .await
    }

    /// Records the total usage of a running attempt so far.
    pub async fn hear(
        &self,
        id: JobId,
        epoch: i64,
        usage: JobUsage,
        limits: Option<SpendLimits>,
    ) -> Result<Hearing, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let job = jobs::lock(tx, &id).await?;
                if !jobs::is_ours(tx, &job, epoch).await? {
                    return Ok(Hearing::Fenced);
                }
                note(tx, &job, &usage).await?;
                let Some(limits) = limits else { return Ok(Hearing::Noted(None)) };
                let everybody =
                    if limits.has_windows() { everybody(tx, &limits).await? } else { HashMap::new() };
                let own = everybody.get(job.agent()).copied().unwrap_or_default();
                let spent = job.usage().map(Amount::of).unwrap_or_default().plus(Amount::of(&usage));
                Ok(Hearing::Noted(limits.used_up(spent, &own, &total(&everybody))))
            })
        })
        .await
    }
}

/// Returns the reservation of an attempt of this job, or the budget that has no room for it. Runs under the agent's
/// lock, so that no two of its claims count the same amount, and under a lock of all claims if the fleet has a budget.
pub(super) async fn reserve(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    spent: Amount,
    limits: Option<&SpendLimits>,
) -> Result<Result<Reservation, OverBudget>, StoreError> {
    let Some(limits) = limits else { return Ok(Ok(Reservation::default())) };
    if limits.fleet.has_windows() {
        tx.one(LOCK_FLEET_BUDGET, args![]).await?;
    }
    let everybody = if limits.has_windows() { everybody(tx, limits).await? } else { HashMap::new() };
    let own = everybody.get(agent).copied().unwrap_or_default();
    let highest_cost =
        if limits.has_windows() { highest_cost(tx, agent).await? } else { HighestCost::default() };
    Ok(limits.reserve(spent, &own, highest_cost, &total(&everybody)))
}

/// Ends the reservation of an attempt and returns its usage: as reported at the end, else as recorded while it ran,
/// with an assumed cost if none is known.
pub(super) async fn end(
    tx: &mut Tx<'_>,
    job: &Job,
    told: Option<JobUsage>,
    silent: bool,
    outcome: &Outcome,
) -> Result<Option<JobUsage>, StoreError> {
    let Some(row) = tx.one(USAGE_OF_ATTEMPT, args![job.id().as_str(), job.attempts()]).await? else {
        return Ok(told);
    };
    let used = told.map_or_else(|| row.json_opt("usage"), |told| Ok(Some(told)))?;
    let reserved = Reservation { amount: amount(&row, "reserved_microdollars", "reserved_tokens")? };
    let used = budget::assume(used, silent, reserved);
    match (&used, outcome) {
        (Some(used), _) => note(tx, job, used).await?,
        // A command that uses no model does not block others with a reservation the next time.
        (None, Outcome::Completed { .. }) => {
            tx.execute(USED_NOTHING, args![job.id().as_str(), job.attempts()]).await?;
        }
        (None, Outcome::Failed { .. } | Outcome::Cancelled { .. }) => {}
    }
    Ok(used)
}

async fn note(tx: &mut Tx<'_>, job: &Job, usage: &JobUsage) -> Result<(), StoreError> {
    let assumed = usage.assumed_usd.map_or(0, budget::microdollars);
    let amount = Amount::of(usage);
    let tells_dollars =
        usage.total_cost_usd.is_some() || usage.per_model.values().any(|model| model.cost_usd.is_some());
    let row = args![
        job.id().as_str(),
        job.attempts(),
        jobs::written(usage)?,
        tells_dollars.then(|| stored(amount.microdollars.saturating_sub(assumed))),
        stored(amount.tokens),
        stored(assumed),
    ];
    tx.execute(HEAR, row).await?;
    Ok(())
}

pub(super) fn stored(value: u64) -> i64 {
    // The sum of many amounts must not overflow.
    i64::try_from(value).unwrap_or(i64::MAX).min(1 << 53)
}

/// Reads running attempts before ended ones: an attempt that ends in between is counted twice, and never missed.
async fn everybody(
    tx: &mut Tx<'_>,
    limits: &SpendLimits,
) -> Result<HashMap<AgentName, Spending>, StoreError> {
    let mut everybody: HashMap<AgentName, Spending> = HashMap::new();
    for row in tx.all(UNDER_WAY, args![]).await? {
        let reported = amount(&row, "microdollars", "tokens")?;
        let committed = reported.at_least(amount(&row, "reserved_microdollars", "reserved_tokens")?);
        let under_way = Spending { reported, committed, ..Spending::default() };
        let spending = everybody.entry(row.parse("agent")?).or_default();
        *spending = spending.plus(under_way);
    }
    for row in tx.all(SETTLED, args![limits.day.start, limits.month.start]).await? {
        let spending = everybody.entry(row.parse("agent")?).or_default();
        spending.day = amount(&row, "day_microdollars", "day_tokens")?;
        spending.month = amount(&row, "month_microdollars", "month_tokens")?;
    }
    Ok(everybody)
}

async fn highest_cost(tx: &mut Tx<'_>, agent: &AgentName) -> Result<HighestCost, StoreError> {
    let Some(row) = tx.one(DEAREST, args![agent.as_str()]).await? else { return Ok(HighestCost::default()) };
    let most =
        |column| Ok::<_, StoreError>(row.get::<Option<i64>>(column)?.map(|most| most.max(0).cast_unsigned()));
    Ok(HighestCost { microdollars: most("microdollars")?, tokens: most("tokens")? })
}

fn total(everybody: &HashMap<AgentName, Spending>) -> Spending {
    everybody.values().fold(Spending::default(), |total, spending| total.plus(*spending))
}

fn amount(row: &Row, microdollars: &'static str, tokens: &'static str) -> Result<Amount, StoreError> {
    Ok(Amount { microdollars: row.count(microdollars)?, tokens: row.count(tokens)? })
}

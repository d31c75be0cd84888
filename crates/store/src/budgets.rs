//! Budgets: spent and reserved amounts, reservations of new attempts, and usage of running attempts.

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
use super::highest_cost::highest_cost;
use super::{Store, StoreError, chat_spending, jobs};

statements! {
    LOCK_FLEET_BUDGET = sqlite "select 1 as locked" postgres "select 1 as locked, pg_advisory_xact_lock(4921190715)";
    RUNNING_ATTEMPTS = same "select jobs.agent, attempts.reserved_microdollars, attempts.reserved_tokens, \
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
    USAGE_OF_ATTEMPT = same "select usage, reserved_microdollars, reserved_tokens from attempts where job_id = $1 and number = $2";
    SAVE_USAGE = same "update attempts set usage = $3, microdollars = $4, tokens = $5, assumed_microdollars = $6 \
        where job_id = $1 and number = $2";
    SET_NO_USAGE = same "update attempts set microdollars = 0, tokens = 0 where job_id = $1 and number = $2";
}

/// Result of recording the usage of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum UsageRecorded {
    /// The usage was written. The value is the budget that is now exceeded, if there is one.
    Recorded(Option<OverBudget>),
    /// The epoch is no longer the epoch of a running attempt; nothing was written.
    Fenced,
}

impl Store {
    /// Returns the spending of the fleet, and of each agent to which a budget applies, in the day and month of `now`.
    /// The result is empty if the config has no daily or monthly budget. It contains the pending jobs for which their
    /// senders have no budget left.
    pub async fn spending(&self, roster: &Roster, now: Timestamp) -> Result<SpendingLedger, StoreError> {
        if !roster.has_budgets() {
            return Ok(SpendingLedger::default());
        }
        let limits_of_agents =
            roster.agents.iter().filter_map(|agent| Some((agent, SpendLimits::of(roster, agent, now)?)));
        let limits_of_agents: Vec<_> =
            limits_of_agents.map(|(agent, limits)| (agent.name.clone(), limits)).collect();
        let budgets_of_people = chat_spending::budgets_of_people(roster, now);
        self.read(|tx| {
            Box::pin(async move {
                let mut ledger = SpendingLedger::default();
                let mut spending_by_agent = HashMap::new();
                if let Some((_, first)) = limits_of_agents.first() {
                    spending_by_agent = self::spending_by_agent(tx, first).await?;
                }
                ledger.fleet = total(&spending_by_agent);
                for (agent, _) in limits_of_agents {
                    let agent_spending = spending_by_agent.get(&agent).copied().unwrap_or_default();
                    let highest_cost = highest_cost(tx, &agent).await?;
                    ledger.agents.insert(agent, (agent_spending, highest_cost));
                }
                ledger.over_person = chat_spending::over_person(tx, &budgets_of_people).await?;
                Ok(ledger)
            })
        })
        .await
    }

    /// Records the total usage of a running attempt so far, and checks whether `limits` are exceeded.
    pub async fn record_usage(
        &self,
        id: JobId,
        epoch: i64,
        usage: JobUsage,
        limits: Option<SpendLimits>,
    ) -> Result<UsageRecorded, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let job = jobs::lock(tx, &id).await?;
                if !jobs::is_current_epoch(tx, &job, epoch).await? {
                    return Ok(UsageRecorded::Fenced);
                }
                save_usage(tx, job.id(), job.attempts(), &usage).await?;
                let Some(mut limits) = limits else { return Ok(UsageRecorded::Recorded(None)) };
                let spending_by_agent =
                    if limits.has_windows() { spending_by_agent(tx, &limits).await? } else { HashMap::new() };
                let agent_spending = spending_by_agent.get(job.agent()).copied().unwrap_or_default();
                chat_spending::read_spending(tx, job.agent(), &mut limits).await?;
                let spent = job.usage().map(Amount::of).unwrap_or_default().plus(Amount::of(&usage));
                Ok(UsageRecorded::Recorded(limits.used_up(
                    spent,
                    &agent_spending,
                    &total(&spending_by_agent),
                )))
            })
        })
        .await
    }
}

/// Returns the reservation of a job's next attempt, or the budget that has no room for it. `spent` is the spending of
/// the job's earlier attempts. The caller holds the agent's lock, so that no two claims of the agent reserve the
/// same amount. If the fleet has a daily or monthly budget, this function also takes a lock that all claims share.
pub(super) async fn reserve(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    spent: Amount,
    limits: Option<&SpendLimits>,
) -> Result<Result<Reservation, OverBudget>, StoreError> {
    let Some(mut limits) = limits.cloned() else { return Ok(Ok(Reservation::default())) };
    if limits.fleet.has_windows() {
        tx.one(LOCK_FLEET_BUDGET, args![]).await?;
    }
    let spending_by_agent =
        if limits.has_windows() { spending_by_agent(tx, &limits).await? } else { HashMap::new() };
    chat_spending::read_spending(tx, agent, &mut limits).await?;
    let agent_spending = spending_by_agent.get(agent).copied().unwrap_or_default();
    let highest_cost =
        if limits.has_windows() { highest_cost(tx, agent).await? } else { HighestCost::default() };
    Ok(limits.reserve(spent, &agent_spending, highest_cost, &total(&spending_by_agent)))
}

/// Saves and returns the usage of an attempt that has ended: the usage that was reported at the end, or else the usage
/// that was recorded while the attempt ran. Adds an assumed cost if no cost is known (see [`budget::assume`]).
pub(super) async fn end(
    tx: &mut Tx<'_>,
    job: &Job,
    reported: Option<JobUsage>,
    silent: bool,
    outcome: &Outcome,
) -> Result<Option<JobUsage>, StoreError> {
    let Some(row) = tx.one(USAGE_OF_ATTEMPT, args![job.id().as_str(), job.attempts()]).await? else {
        return Ok(reported);
    };
    let usage = reported.map_or_else(|| row.json_opt("usage"), |reported| Ok(Some(reported)))?;
    let reserved = Reservation { amount: amount(&row, "reserved_microdollars", "reserved_tokens")? };
    let usage = budget::assume(usage, silent, reserved);
    match (&usage, outcome) {
        (Some(usage), _) => save_usage(tx, job.id(), job.attempts(), usage).await?,
        // The attempt counts with a cost of 0, so that a command that uses no model gets no reservation the next time.
        (None, Outcome::Completed { .. }) => {
            tx.execute(SET_NO_USAGE, args![job.id().as_str(), job.attempts()]).await?;
        }
        (None, Outcome::Failed { .. } | Outcome::Cancelled { .. }) => {}
    }
    Ok(usage)
}

pub(super) async fn save_usage(
    tx: &mut Tx<'_>,
    job: &JobId,
    attempt: u32,
    usage: &JobUsage,
) -> Result<(), StoreError> {
    let assumed = usage.assumed_usd.map_or(0, budget::microdollars);
    let amount = Amount::of(usage);
    let row = args![
        job.as_str(),
        attempt,
        jobs::to_json(usage)?,
        usage.has_reported_cost().then(|| to_column(amount.microdollars.saturating_sub(assumed))),
        to_column(amount.tokens),
        to_column(assumed),
    ];
    tx.execute(SAVE_USAGE, row).await?;
    Ok(())
}

/// Converts an amount to a column value, which is at most 2^53.
pub(super) fn to_column(value: u64) -> i64 {
    // The sum of many amounts must not overflow.
    i64::try_from(value).unwrap_or(i64::MAX).min(1 << 53)
}

/// Returns the spending of each agent. Running attempts are read before ended attempts. So an attempt that ends between
/// the two reads is counted twice and is never missed.
pub(super) async fn spending_by_agent(
    tx: &mut Tx<'_>,
    limits: &SpendLimits,
) -> Result<HashMap<AgentName, Spending>, StoreError> {
    let mut spending_by_agent: HashMap<AgentName, Spending> = HashMap::new();
    for row in tx.all(RUNNING_ATTEMPTS, args![]).await? {
        let reported = amount(&row, "microdollars", "tokens")?;
        let committed = reported.at_least(amount(&row, "reserved_microdollars", "reserved_tokens")?);
        let running = Spending { reported, committed, ..Spending::default() };
        let spending = spending_by_agent.entry(row.parse("agent")?).or_default();
        *spending = spending.plus(running);
    }
    for row in tx.all(SETTLED, args![limits.day.start, limits.month.start]).await? {
        let spending = spending_by_agent.entry(row.parse("agent")?).or_default();
        spending.day = amount(&row, "day_microdollars", "day_tokens")?;
        spending.month = amount(&row, "month_microdollars", "month_tokens")?;
    }
    Ok(spending_by_agent)
}

pub(super) fn total(spending_by_agent: &HashMap<AgentName, Spending>) -> Spending {
    spending_by_agent.values().fold(Spending::default(), |total, spending| total.plus(*spending))
}

fn amount(row: &Row, microdollars: &'static str, tokens: &'static str) -> Result<Amount, StoreError> {
    Ok(Amount { microdollars: row.count(microdollars)?, tokens: row.count(tokens)? })
}

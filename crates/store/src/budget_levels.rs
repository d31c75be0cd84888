//! Levels of budgets: each daily and monthly budget that is spent to 80 or 100 percent is recorded once in its period.

use std::collections::HashMap;
use std::sync::Arc;

use cowhand_core::budget::{Budget, BudgetLevel, BudgetOwner, Period, SpendLimits};
use cowhand_core::event::Fact;
use cowhand_core::id::AgentName;
use cowhand_core::roster::Roster;
use jiff::Timestamp;

use super::budgets::{spending_by_agent, total};
use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::{Store, StoreError};

statements! {
    BUDGET_LEVELS = same "select * from budget_levels";
    LOCK_BUDGET_LEVEL = locked "select * from budget_levels where agent = $1 and period = $2 and unit = $3";
    SET_BUDGET_LEVEL = same "insert into budget_levels (agent, period, unit, percent, until) values ($1, $2, $3, $4, $5) \
        on conflict (agent, period, unit) do update set percent = excluded.percent, until = excluded.until";
    FORGET_BUDGET_LEVEL = same "delete from budget_levels where agent = $1 and period = $2 and unit = $3";
}

/// Budget of an agent, or of the fleet: agent (empty for the fleet), window and unit.
type BudgetKey = (String, String, String);

impl Store {
    /// Records an event for each daily or monthly budget whose level has changed in its current period.
    pub async fn record_budget_levels(&self, roster: Arc<Roster>, now: Timestamp) -> Result<(), StoreError> {
        let owners = limited_owners(&roster);
        if owners.is_empty() {
            return Ok(());
        }
        let (day, month) = (Period::day(now, roster.zone()), Period::month(now, roster.zone()));
        let limits = SpendLimits { own: Budget::default(), fleet: roster.budget, person: None, day, month };
        let (spent, known) = self
            .read(|tx| {
                Box::pin(async move {
                    let spent = spending_by_agent(tx, &limits).await?;
                    Ok((spent, known_levels(tx).await?))
                })
            })
            .await?;
        for (agent, budget) in owners {
            let spending = match &agent {
                Some(agent) => spent.get(agent).copied().unwrap_or_default(),
                None => total(&spent),
            };
            for level in budget.levels(&spending, day, month) {
                let stored = known.get(&key(agent.as_ref(), &level)).copied();
                if has_changed(stored, &level) {
                    let agent = agent.clone();
                    self.write(move |tx| Box::pin(async move { change(tx, agent, level, now).await }))
                        .await?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the fleet (`None`) and the agents that have a daily or monthly budget.
fn limited_owners(roster: &Roster) -> Vec<(Option<AgentName>, Budget)> {
    let of_agents = roster.agents.iter().map(|agent| (Some(agent.name.clone()), agent.budget));
    [(None, roster.budget)].into_iter().chain(of_agents).filter(|(_, budget)| budget.has_windows()).collect()
}

fn key(agent: Option<&AgentName>, level: &BudgetLevel) -> BudgetKey {
    let agent = agent.map(ToString::to_string).unwrap_or_default();
    (agent, level.window.to_string(), level.unit.to_string())
}

/// Compares the level with the stored percent and the end of its period.
fn has_changed(stored: Option<(u32, Timestamp)>, level: &BudgetLevel) -> bool {
    let percent = stored.filter(|(_, until)| *until == level.until).map_or(0, |(percent, _)| percent);
    percent != level.percent
}

async fn change(
    tx: &mut Tx<'_>,
    agent: Option<AgentName>,
    level: BudgetLevel,
    now: Timestamp,
) -> Result<(), StoreError> {
    let (name, period, unit) = key(agent.as_ref(), &level);
    let place = || args![name.as_str(), period.as_str(), unit.as_str()];
    let row = tx.one(LOCK_BUDGET_LEVEL, place()).await?;
    let stored = row.as_ref().map(percent_and_end).transpose()?;
    // Another node may have recorded the change.
    if !has_changed(stored, &level) {
        return Ok(());
    }
    let BudgetLevel { window, unit: spent_unit, percent, limit, spent, until } = level;
    let scope = if agent.is_some() { BudgetOwner::Agent } else { BudgetOwner::Fleet };
    let stored = stored.filter(|(_, stored_until)| *stored_until == until).map_or(0, |(percent, _)| percent);
    let fact = if percent > stored {
        Fact::BudgetReached { scope, window, unit: spent_unit, percent, limit, spent, until }
    } else {
        Fact::BudgetRelieved { scope, window, unit: spent_unit, limit, spent }
    };
    if percent == 0 {
        tx.execute(FORGET_BUDGET_LEVEL, place()).await?;
    } else {
        let mut row = place();
        row.extend(args![percent, until]);
        tx.execute(SET_BUDGET_LEVEL, row).await?;
    }
    tx.record(NewEvent { agent: agent.clone(), ..NewEvent::of_fleet(fact, now) });
    // A budget that was spent and now has room again can still be spent to 80 percent.
    if percent > 0 && percent < stored {
        let fact = Fact::BudgetReached { scope, window, unit: spent_unit, percent, limit, spent, until };
        tx.record(NewEvent { agent, ..NewEvent::of_fleet(fact, now) });
    }
    Ok(())
}

async fn known_levels(tx: &mut Tx<'_>) -> Result<HashMap<BudgetKey, (u32, Timestamp)>, StoreError> {
    let mut known = HashMap::new();
    for row in tx.all(BUDGET_LEVELS, args![]).await? {
        known.insert((row.get("agent")?, row.get("period")?, row.get("unit")?), percent_and_end(&row)?);
    }
    Ok(known)
}

fn percent_and_end(row: &Row) -> Result<(u32, Timestamp), StoreError> {
    Ok((row.count("percent")?, row.time("until")?))
}

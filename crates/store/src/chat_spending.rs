//! What the messages of a person have cost, and which jobs wait for the daily budget of their sender.

use std::collections::HashMap;

use cowhand_core::budget::{Amount, OverBudget, PersonBudget, SpendLimits, Spending};
use cowhand_core::chat::ChatPlatform;
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::roster::{Agent, Roster};
use jiff::{SignedDuration, Timestamp};

use super::database::db::{Tx, args};
use super::database::dialect::statements;
use super::highest_cost::highest_cost;
use super::{Store, StoreError};

statements! {
    SPENDING_OF_PERSON = same "select \
        cast(coalesce(sum(case when attempts.ended_at >= $4 then coalesce(attempts.microdollars, 0) \
            + coalesce(attempts.assumed_microdollars, 0) else 0 end), 0) as bigint) as settled, \
        cast(coalesce(sum(case when attempts.ended_at is null then coalesce(attempts.microdollars, 0) else 0 end), 0) \
            as bigint) as reported, \
        cast(coalesce(sum(case when attempts.ended_at is not null then 0 \
            when attempts.reserved_microdollars > coalesce(attempts.microdollars, 0) then attempts.reserved_microdollars \
            else coalesce(attempts.microdollars, 0) end), 0) as bigint) as committed \
        from chat_answers join jobs on jobs.schedule_id = chat_answers.schedule_id \
        and jobs.firing_key = chat_answers.key join attempts on attempts.job_id = jobs.id \
        where chat_answers.author = $1 and chat_answers.agent = $2 and chat_answers.created_at >= $3";
    WAITING_OF_PERSON = same "select count(*) as waiting from chat_answers \
        left join firings on firings.schedule_id = chat_answers.schedule_id and firings.key = chat_answers.key \
        left join jobs on jobs.schedule_id = chat_answers.schedule_id and jobs.firing_key = chat_answers.key \
        where chat_answers.author = $1 and chat_answers.agent = $2 and chat_answers.created_at >= $3 \
        and chat_answers.state = 'open' \
        and (firings.key is null or firings.outcome = 'preparing' or jobs.status = 'pending')";
    SENDERS_OF_PENDING = same "select jobs.id, chat_answers.author, chat_answers.platform from jobs join chat_answers \
        on chat_answers.schedule_id = jobs.schedule_id and chat_answers.key = jobs.firing_key \
        where jobs.agent = $1 and jobs.status in ('pending', 'running') and jobs.status = 'pending'";
}

/// Age up to which messages count, because their jobs can run later than they were sent.
const MESSAGES_COUNTED_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);

impl Store {
    /// Returns the spending of the person whose budget these limits contain.
    pub async fn spending_of_person(
        &self,
        agent: AgentName,
        mut limits: SpendLimits,
    ) -> Result<SpendLimits, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                read_spending(tx, &agent, &mut limits).await?;
                Ok(limits)
            })
        })
        .await
    }
}

/// Reads the spending of the person whose budget these limits contain.
pub(super) async fn read_spending(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    limits: &mut SpendLimits,
) -> Result<(), StoreError> {
    let today = limits.day.start;
    let Some(PersonBudget { person, spending, .. }) = &mut limits.person else { return Ok(()) };
    let row = args![person.as_str(), agent.as_str(), counted_since(today), today];
    let Some(row) = tx.one(SPENDING_OF_PERSON, row).await? else { return Ok(()) };
    let amount = |column| Ok::<_, StoreError>(Amount { microdollars: row.count(column)?, tokens: 0 });
    let (day, reported, committed) = (amount("settled")?, amount("reported")?, amount("committed")?);
    *spending = Spending { day, month: day, reported, committed };
    Ok(())
}

/// Returns the daily budget of a person if it has no room for one more message.
pub(super) async fn over_with_message(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    mut limits: SpendLimits,
) -> Result<Option<OverBudget>, StoreError> {
    read_spending(tx, agent, &mut limits).await?;
    let Some(budget) = &limits.person else { return Ok(None) };
    let row = args![budget.person.as_str(), agent.as_str(), counted_since(limits.day.start)];
    let waiting = tx.one(WAITING_OF_PERSON, row).await?.map_or(Ok(0), |row| row.count("waiting"))?;
    let highest_cost = highest_cost(tx, agent).await?;
    Ok(limits.room_for_message(waiting, highest_cost).err())
}

/// The daily budgets of people for the jobs of an agent: one for each platform.
pub(super) struct BudgetsOfPeople {
    agent: AgentName,
    /// The name of the person is empty.
    limits: HashMap<ChatPlatform, SpendLimits>,
}

/// Returns the daily budgets of people in a config.
pub(super) fn budgets_of_people(roster: &Roster, now: Timestamp) -> Vec<BudgetsOfPeople> {
    let of_agent = |agent: &Agent| {
        let of_platform =
            |platform| Some((platform, SpendLimits::of_person(roster, agent, (platform, ""), now)?));
        let limits = ChatPlatform::ALL.iter().copied().filter_map(of_platform).collect();
        BudgetsOfPeople { agent: agent.name.clone(), limits }
    };
    roster.agents.iter().filter(|agent| agent.has_person_budget()).map(of_agent).collect()
}

/// Returns the pending jobs that have no room in the daily budget of their sender.
pub(super) async fn over_person(
    tx: &mut Tx<'_>,
    budgets: &[BudgetsOfPeople],
) -> Result<HashMap<JobId, OverBudget>, StoreError> {
    let mut over_by_job = HashMap::new();
    for BudgetsOfPeople { agent, limits } in budgets {
        let pending = tx.all(SENDERS_OF_PENDING, args![agent.as_str()]).await?;
        let mut over_by_person: HashMap<String, Option<OverBudget>> = HashMap::new();
        for row in pending {
            let person: String = row.get("author")?;
            let over = if let Some(known) = over_by_person.get(&person) {
                *known
            } else {
                let over = match limits.get(&row.parse("platform")?) {
                    Some(limits) => over_of(tx, agent, limits.clone(), &person).await?,
                    None => None,
                };
                over_by_person.insert(person, over);
                over
            };
            if let Some(over) = over {
                over_by_job.insert(row.parse("id")?, over);
            }
        }
    }
    Ok(over_by_job)
}

/// Returns the daily budget of a person if it has no room for another attempt.
async fn over_of(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    mut limits: SpendLimits,
    person: &str,
) -> Result<Option<OverBudget>, StoreError> {
    if let Some(budget) = &mut limits.person {
        person.clone_into(&mut budget.person);
    }
    read_spending(tx, agent, &mut limits).await?;
    let (nobody, highest_cost) = (Spending::default(), highest_cost(tx, agent).await?);
    Ok(limits.reserve(Amount::default(), &nobody, highest_cost, &nobody).err())
}

fn counted_since(today: Timestamp) -> Timestamp {
    today.checked_sub(MESSAGES_COUNTED_FOR).unwrap_or(Timestamp::MIN)
}

//! The daily budget of a person on a chat platform, for the jobs that the messages of this person cause.

use super::{Amount, BudgetOwner, HighestCost, OverBudget, SpendLimits, Spending, Unit};

/// Daily budget of a person for the jobs of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonBudget {
    /// Id of the person on the platform.
    pub person: String,
    /// The limit in millionths of a dollar.
    pub microdollars: u64,
    /// Spending of the person. The store reads it in the transaction that compares it.
    pub spending: Spending,
}

impl SpendLimits {
    /// Checks whether the budget of the person has room for one more message, if `waiting` earlier messages wait. They are
    /// expected to cost as much as the next attempt. Without an expected cost, only used-up budgets are returned: the
    /// message waits until the first costs are known.
    pub fn room_for_message(&self, waiting: u32, highest_cost: HighestCost) -> Result<(), OverBudget> {
        let nobody = Spending::default();
        let expected = self.left_for_job(Unit::Usd, Amount::default()).or(highest_cost.microdollars);
        let mut windows = self.windows(Unit::Usd, &nobody, &nobody);
        let Some(window) = windows.find(|window| window.scope == BudgetOwner::Person) else { return Ok(()) };
        let expected = expected.map(|expected| expected.min(window.limit));
        let reserved = expected.map_or(0, |expected| {
            window.reserved.saturating_add(expected.saturating_mul(u64::from(waiting)))
        });
        let needed = expected.unwrap_or_default();
        let total = window.spent.saturating_add(reserved).saturating_add(needed);
        let has_room = window.spent < window.limit && total <= window.limit;
        if has_room { Ok(()) } else { Err(OverBudget { reserved, needed, ..window }) }
    }
}

#[cfg(test)]
mod tests {
    use jiff::{Timestamp, tz::TimeZone};

    use super::*;
    use crate::budget::{Budget, Period};

    /// Limits of an agent for a person with a budget of 10 dollars. Amounts are in dollars.
    fn limits(per_job: Option<f64>, spent: u64, committed: u64) -> SpendLimits {
        let dollars = |amount: u64| Amount { microdollars: amount * 1_000_000, tokens: 0 };
        let spending = Spending { day: dollars(spent), committed: dollars(committed), ..Spending::default() };
        let person = PersonBudget { person: "U1".into(), microdollars: 10_000_000, spending };
        let now = Timestamp::UNIX_EPOCH;
        SpendLimits {
            own: Budget { per_job_usd: per_job, ..Budget::default() },
            fleet: Budget::default(),
            person: Some(person),
            day: Period::day(now, &TimeZone::UTC),
            month: Period::month(now, &TimeZone::UTC),
        }
    }

    #[test]
    fn a_message_needs_room_for_itself_and_for_all_that_wait() {
        for (case, per_job, highest, spent, committed, waiting, fits) in [
            ("nothing is spent", None, Some(3), 0, 0, 0, true),
            ("all waiting messages fit", None, Some(3), 1, 3, 1, true),
            ("one waiting message too many", None, Some(3), 1, 3, 2, false),
            ("the budget of a job comes first", Some(1.0), Some(9), 0, 0, 9, true),
            ("it is counted for each waiting message", Some(1.0), Some(9), 0, 0, 10, false),
            ("no cost is known", None, None, 9, 1, 500, true),
            ("nothing is left", None, None, 10, 0, 0, false),
            ("a job that costs more than the budget", None, Some(99), 0, 0, 0, true),
            ("jobs that cost nothing", None, Some(0), 9, 0, 500, true),
            ("jobs that cost nothing, and nothing is left", None, Some(0), 10, 0, 0, false),
        ] {
            let highest =
                HighestCost { microdollars: highest.map(|dollars| dollars * 1_000_000), tokens: None };
            let found = limits(per_job, spent, committed).room_for_message(waiting, highest);
            assert_eq!(found.is_ok(), fits, "{case}: {found:?}");
        }
    }

    #[test]
    fn attempts_of_a_person_start_only_within_the_budget() {
        let nobody = Spending::default();
        let reserve = |limits: SpendLimits, highest: Option<u64>| {
            let highest =
                HighestCost { microdollars: highest.map(|dollars| dollars * 1_000_000), tokens: None };
            limits.reserve(Amount::default(), &nobody, highest, &nobody)
        };
        let reserved =
            |limits, highest| reserve(limits, highest).map(|one| one.amount.microdollars / 1_000_000);
        assert_eq!(reserved(limits(None, 0, 0), None), Ok(10));
        assert_eq!(reserved(limits(None, 4, 0), Some(3)), Ok(3));
        let over = reserve(limits(None, 4, 4), Some(3)).unwrap_err();
        assert_eq!(
            (over.scope, over.reserved, over.fits_after_running()),
            (BudgetOwner::Person, 4_000_000, true)
        );
        let sentence = over.sentence(&"a".parse().unwrap(), &TimeZone::UTC);
        assert!(
            sentence.starts_with(
                "the daily budget of $10.00 of the person who sent the message has no room: $4.00 spent"
            ),
            "{sentence}"
        );
        let over = reserve(limits(None, 10, 0), Some(0)).unwrap_err();
        assert!(
            over.sentence(&"a".parse().unwrap(), &TimeZone::UTC)
                .contains("raise `budget.per_user_per_day_usd`")
        );
    }
}

//! How far daily and monthly budgets are spent.

use jiff::Timestamp;

use super::{Budget, BudgetWindow, Period, Spending, Unit};

/// Parts of a budget, in percent, whose spending is recorded as an event, the highest first.
const LEVELS: [u32; 2] = [100, 80];

/// A daily or monthly budget with its spending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLevel {
    pub window: BudgetWindow,
    pub unit: Unit,
    /// The highest of the recorded parts that is spent: 100 or 80; 0 if less is spent.
    pub percent: u32,
    pub limit: u64,
    /// Spending of ended attempts, plus the reported spending of running attempts.
    pub spent: u64,
    /// Start of the next day or month.
    pub until: Timestamp,
}

impl Budget {
    /// Returns the level of each daily and monthly limit.
    pub fn levels(&self, spending: &Spending, day: Period, month: Period) -> Vec<BudgetLevel> {
        let windows = [(BudgetWindow::Day, day.end), (BudgetWindow::Month, month.end)];
        let level = |(window, until): (BudgetWindow, Timestamp), unit: Unit| {
            let limit = self.limit(window, unit)?;
            let spent = spending.settled(window).plus(spending.reported).get(unit);
            let reached =
                |percent: &&u32| u128::from(spent) * 100 >= u128::from(limit) * u128::from(**percent);
            let percent = LEVELS.iter().find(reached).copied().unwrap_or(0);
            Some(BudgetLevel { window, unit, percent, limit, spent, until })
        };
        let all = windows.into_iter().flat_map(|window| [(window, Unit::Usd), (window, Unit::Tokens)]);
        all.filter_map(|(window, unit)| level(window, unit)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Amount;
    use super::*;

    #[test]
    fn the_level_is_the_highest_part_that_is_spent() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (day, month) = (Period { start: at(0), end: at(10) }, Period { start: at(0), end: at(100) });
        let budget = Budget { per_day_usd: Some(10.0), per_month_tokens: Some(1_000), ..Budget::default() };
        for (settled, reported, tokens, expected) in [
            (0, 0, 0, [0, 0]),
            (7_999_999, 0, 799, [0, 0]),
            (8_000_000, 0, 800, [80, 80]),
            (5_000_000, 3_000_000, 999, [80, 80]),
            (10_000_000, 0, 1_000, [100, 100]),
            (u64::MAX, 5, u64::MAX, [100, 100]),
        ] {
            let spending = Spending {
                day: Amount { microdollars: settled, tokens: 0 },
                month: Amount { microdollars: 0, tokens },
                reported: Amount { microdollars: reported, tokens: 0 },
                committed: Amount::default(),
            };
            let levels = budget.levels(&spending, day, month);
            let percents: Vec<u32> = levels.iter().map(|level| level.percent).collect();
            assert_eq!(percents, expected, "{settled} {reported} {tokens}");
            assert_eq!((levels[0].until, levels[1].until), (at(10), at(100)));
        }
    }
}

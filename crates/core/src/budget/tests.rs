use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::*;

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

#[test]
fn days_and_months_begin_at_midnight_of_the_time_zone() {
    // time zone, now, start of the day, its number of hours, start of the month, start of the next month
    let table = [
        (
            "UTC",
            "2026-03-10T12:00:00Z",
            "2026-03-10T00:00:00Z",
            24,
            "2026-03-01T00:00:00Z",
            "2026-04-01T00:00:00Z",
        ),
        (
            "UTC",
            "2026-03-10T00:00:00Z",
            "2026-03-10T00:00:00Z",
            24,
            "2026-03-01T00:00:00Z",
            "2026-04-01T00:00:00Z",
        ),
        (
            "UTC",
            "2026-02-28T23:59:59Z",
            "2026-02-28T00:00:00Z",
            24,
            "2026-02-01T00:00:00Z",
            "2026-03-01T00:00:00Z",
        ),
        // The clock goes forward: the day has 23 hours. The month begins in winter time and ends in summer time.
        (
            "Europe/Berlin",
            "2026-03-29T12:00:00Z",
            "2026-03-28T23:00:00Z",
            23,
            "2026-02-28T23:00:00Z",
            "2026-03-31T22:00:00Z",
        ),
        // The clock goes back: the day has 25 hours.
        (
            "Europe/Berlin",
            "2026-10-25T00:30:00Z",
            "2026-10-24T22:00:00Z",
            25,
            "2026-09-30T22:00:00Z",
            "2026-10-31T23:00:00Z",
        ),
        (
            "Europe/Berlin",
            "2026-10-25T22:59:59Z",
            "2026-10-24T22:00:00Z",
            25,
            "2026-09-30T22:00:00Z",
            "2026-10-31T23:00:00Z",
        ),
        // The day and the month differ from those in UTC.
        (
            "America/New_York",
            "2026-01-01T03:00:00Z",
            "2025-12-31T05:00:00Z",
            24,
            "2025-12-01T05:00:00Z",
            "2026-01-01T05:00:00Z",
        ),
        (
            "Pacific/Kiritimati",
            "2026-12-31T11:00:00Z",
            "2026-12-31T10:00:00Z",
            24,
            "2026-12-31T10:00:00Z",
            "2027-01-31T10:00:00Z",
        ),
        // The offset includes a quarter of an hour.
        (
            "Asia/Kathmandu",
            "2026-06-15T18:20:00Z",
            "2026-06-15T18:15:00Z",
            24,
            "2026-05-31T18:15:00Z",
            "2026-06-30T18:15:00Z",
        ),
        // The clock goes forward at midnight here, so the day begins at one.
        (
            "America/Santiago",
            "2026-09-06T12:00:00Z",
            "2026-09-06T04:00:00Z",
            23,
            "2026-09-01T04:00:00Z",
            "2026-10-01T03:00:00Z",
        ),
    ];
    for (zone, now, day, hours, month, next) in table {
        let (zone, now) = (TimeZone::get(zone).unwrap(), at(now));
        let (today, this) = (Period::day(now, &zone), Period::month(now, &zone));
        assert_eq!(
            (today.start, today.end.duration_since(today.start).as_hours()),
            (at(day), hours),
            "{now}"
        );
        assert_eq!((this.start, this.end), (at(month), at(next)), "{now}");
        assert!(this.start <= today.start && today.end <= this.end && today.start <= now && now < today.end);
        // Spending is stored by the quarter of an hour.
        assert!([today.start, today.end, this.start].iter().all(|time| time.as_second() % 900 == 0), "{now}");
    }
}

#[test]
fn now_is_within_its_day_and_month_in_every_time_zone() {
    for now in
        ["1970-01-01T00:00:00Z", "2011-12-30T12:00:00Z", "2026-03-29T01:00:00Z", "9999-12-30T00:00:00Z"]
    {
        for zone in jiff::tz::db().available().filter_map(|name| TimeZone::get(name.as_str()).ok()) {
            let now = at(now);
            for period in [Period::day(now, &zone), Period::month(now, &zone)] {
                assert!(period.start <= now && now < period.end, "{zone:?} {now} {period:?}");
            }
        }
    }
}

fn limits(own: Budget, fleet: Budget) -> SpendLimits {
    let now = at("2026-03-10T12:00:00Z");
    SpendLimits {
        own,
        fleet,
        person: None,
        day: Period::day(now, &TimeZone::UTC),
        month: Period::month(now, &TimeZone::UTC),
    }
}

fn usd(dollars: f64) -> Amount {
    Amount { microdollars: microdollars(dollars), tokens: 0 }
}

/// Returns a spending from dollars: of ended attempts today and this month, and the reported and the committed amount
/// of running attempts.
fn spending(day: f64, month: f64, reported: f64, committed: f64) -> Spending {
    Spending { day: usd(day), month: usd(month), reported: usd(reported), committed: usd(committed) }
}

fn highest_cost(dollars: Option<f64>) -> HighestCost {
    HighestCost { microdollars: dollars.map(microdollars), tokens: None }
}

/// Returns the reserved amount, or the budget without room.
fn reserved(own: Budget, fleet: Budget, spent: Spending, by_all: Spending, most: Option<f64>) -> String {
    match limits(own, fleet).reserve(Amount::default(), &spent, highest_cost(most), &by_all) {
        Ok(reserved) => money(reserved.amount.microdollars),
        Err(over) => format!("{}, {}", over.scope, over.window),
    }
}

#[test]
fn an_attempt_reserves_its_expected_cost() {
    let none = Budget::default();
    let day = |dollars| Budget { per_day_usd: Some(dollars), ..none };
    let job = |dollars, rest: Budget| Budget { per_job_usd: Some(dollars), ..rest };
    let nothing = Spending::default();
    let spent = |day, committed| spending(day, 9.0, 0.0, committed);
    let table = [
        ("without a budget, nothing is reserved", none, none, nothing, nothing, None, "$0.00"),
        ("only a job budget: all of it", job(2.0, none), none, nothing, nothing, Some(9.0), "$2.00"),
        ("the smaller of two job budgets", job(2.0, none), job(1.0, none), nothing, nothing, None, "$1.00"),
        ("cost not known: all that is left", day(5.0), none, spent(1.5, 0.0), nothing, None, "$3.50"),
        ("no room for a second attempt", day(5.0), none, spent(1.5, 3.5), nothing, None, "agent, day"),
        ("the highest earlier cost", day(5.0), none, spent(1.5, 0.0), nothing, Some(0.7), "$0.70"),
        ("the reservation fits exactly", day(5.0), none, spent(3.0, 1.3), nothing, Some(0.7), "$0.70"),
        ("the reservation does not fit", day(5.0), none, spent(3.0, 1.4), nothing, Some(0.7), "agent, day"),
        ("the job budget comes first", job(1.0, day(5.0)), none, nothing, nothing, Some(4.0), "$1.00"),
        ("never more than the daily budget", day(5.0), none, nothing, nothing, Some(7.0), "$5.00"),
        ("no room beside a reservation", day(5.0), none, spent(0.0, 0.1), nothing, Some(7.0), "agent, day"),
        ("the daily budget is used up", day(5.0), none, spent(5.0, 0.0), nothing, Some(0.0), "agent, day"),
        ("no cost beside a reservation of all", day(5.0), none, spent(0.0, 5.0), nothing, Some(0.0), "$0.00"),
        ("no cost, and nothing is spent yet", day(5.0), none, nothing, nothing, Some(0.0), "$0.00"),
        ("no cost, too large reservations", none, day(5.0), nothing, spent(4.0, 2.0), Some(0.0), "$0.00"),
        ("no cost, but all is spent", none, day(5.0), nothing, spent(5.5, 0.0), Some(0.0), "fleet, day"),
        ("a budget below the smallest amount", day(1e-11), none, nothing, nothing, Some(1.0), "agent, day"),
        ("the fleet's budget has no room", none, day(5.0), nothing, spent(4.5, 0.0), Some(1.0), "fleet, day"),
        ("other agents do not count", day(5.0), none, nothing, spent(99.0, 0.0), Some(1.0), "$1.00"),
    ];
    for (name, own, fleet, spent, by_all, most, expected) in table {
        assert_eq!(reserved(own, fleet, spent, by_all, most), expected, "{name}");
    }
    // The budget whose period ends last is reported.
    let both = Budget { per_day_usd: Some(1.0), per_month_usd: Some(2.0), ..none };
    assert_eq!(reserved(both, none, spending(1.0, 2.0, 0.0, 0.0), nothing, None), "agent, month");
}

#[test]
fn the_budget_that_blocks_longest_is_reported() {
    let none = Budget::default();
    let day = |dollars| Budget { per_day_usd: Some(dollars), ..none };
    let month = |dollars| Budget { per_month_usd: Some(dollars), ..none };
    let (used, running) = (spending(0.7, 0.7, 0.0, 0.0), spending(0.7, 0.7, 0.0, 19.3));
    let table = [
        ("the fleet waits for running jobs", day(1.0), day(20.0), used, running, "agent, day"),
        ("its period ends later", day(1.0), month(20.0), used, running, "agent, day"),
        ("the agent waits for running jobs", day(20.0), day(1.0), running, used, "fleet, day"),
        ("both wait for running jobs", day(20.0), day(20.0), running, running, "fleet, day"),
        ("both are used up", day(0.7), month(0.7), used, used, "fleet, month"),
    ];
    for (name, own, fleet, spent, by_all, expected) in table {
        assert_eq!(reserved(own, fleet, spent, by_all, Some(0.7)), expected, "{name}");
    }
    let own = Budget { per_day_tokens: Some(100), ..none };
    let spent = Spending { day: Amount { microdollars: 0, tokens: 100 }, ..Spending::default() };
    let over = limits(own, day(20.0)).reserve(Amount::default(), &spent, highest_cost(Some(0.7)), &running);
    assert_eq!(over.unwrap_err().unit, Unit::Tokens, "dollars wait only for running jobs");
}

#[test]
fn a_second_attempt_reserves_what_is_left_of_the_job_budget() {
    let limits = limits(Budget { per_job_usd: Some(1.0), ..Budget::default() }, Budget::default());
    let nothing = Spending::default();
    for (spent, expected) in [(0.0, 1_000_000), (0.75, 250_000), (1.0, 1), (7.0, 1)] {
        let reserved = limits.reserve(usd(spent), &nothing, HighestCost::default(), &nothing).unwrap();
        assert_eq!(reserved.amount.microdollars, expected, "{spent}");
    }
}

#[test]
fn unreported_cost_is_assumed() {
    let used = |input_tokens, cost_usd| ModelUsage { input_tokens, cost_usd, ..ModelUsage::default() };
    let usage = |models: &[(&str, ModelUsage)], total_cost_usd| {
        let per_model = models.iter().map(|(model, used)| ((*model).to_owned(), *used)).collect();
        Some(JobUsage { per_model, total_cost_usd, ..JobUsage::default() })
    };
    let (priced, unpriced) = (used(5_000, Some(0.25)), used(5_000, None));
    let table = [
        ("the total cost is reported", usage(&[("m", unpriced)], Some(0.5)), false, 2.0, None),
        ("the cost of each model is reported", usage(&[("m", priced)], None), false, 2.0, None),
        ("each token costs 0.01 cents", usage(&[("m", unpriced)], None), false, 2.0, Some(0.5)),
        ("plus the reported cost", usage(&[("m", unpriced), ("n", priced)], None), false, 2.0, Some(0.5)),
        ("never more than the reservation", usage(&[("m", unpriced)], None), false, 0.3, Some(0.3)),
        (
            "together with the reported cost, never more than the reservation",
            usage(&[("m", unpriced), ("n", priced)], None),
            false,
            0.3,
            Some(0.05),
        ),
        ("no dollars are reserved", usage(&[("m", unpriced)], None), false, 0.0, None),
        ("the model used no tokens", usage(&[("m", used(0, None))], None), false, 2.0, None),
        (
            "the number of tokens is at its maximum",
            usage(&[("m", used(u64::MAX, None))], None),
            false,
            2.0,
            Some(2.0),
        ),
        ("a silent attempt costs the whole reservation", None, true, 2.0, Some(2.0)),
        ("no usage, and the attempt is not silent", None, false, 2.0, None),
        ("a silent attempt with a reported cost", usage(&[("m", priced)], None), true, 2.0, None),
    ];
    for (name, usage, silent, reserved, expected) in table {
        let before = usage.as_ref().map(Amount::of).unwrap_or_default();
        let after = assume(usage, silent, Reservation { amount: usd(reserved) });
        assert_eq!(after.as_ref().and_then(|usage| usage.assumed_usd), expected, "{name}");
        let counts = after.as_ref().map(Amount::of).unwrap_or_default();
        assert_eq!(counts.microdollars - before.microdollars, expected.map_or(0, microdollars), "{name}");
    }
}

#[test]
fn token_budgets_limit_attempts() {
    let own = Budget { per_day_tokens: Some(1_000), per_job_tokens: Some(400), ..Budget::default() };
    let limits = limits(own, Budget::default());
    let spent = |tokens| Spending { day: Amount { tokens, microdollars: 0 }, ..Spending::default() };
    let nothing = Spending::default();
    let reserve =
        |tokens| limits.reserve(Amount::default(), &spent(tokens), HighestCost::default(), &nothing);
    assert_eq!(reserve(600).unwrap().amount, Amount { tokens: 400, microdollars: 0 });
    let over = reserve(601).unwrap_err();
    assert_eq!((over.unit, over.limit, over.spent, over.needed), (Unit::Tokens, 1_000, 601, 400));
    let job = |tokens| limits.used_up(Amount { tokens, microdollars: 0 }, &nothing, &nothing);
    assert_eq!(job(399), None);
    assert_eq!(job(400).map(|over| over.window), Some(BudgetWindow::Job));
}

#[test]
fn a_used_up_budget_stops_a_running_attempt() {
    let none = Budget::default();
    let own = Budget { per_job_usd: Some(1.0), per_day_usd: Some(5.0), ..none };
    let fleet = Budget { per_month_usd: Some(50.0), ..none };
    let nothing = Spending::default();
    let table = [
        ("less than the job budget is spent", 0.99, nothing, nothing, None),
        ("the job budget is used up", 1.0, nothing, nothing, Some((BudgetOwner::Agent, BudgetWindow::Job))),
        ("reservations of other attempts are not spent", 0.5, spending(4.0, 4.0, 0.5, 9.0), nothing, None),
        (
            "reported amounts of running attempts are spent",
            0.5,
            spending(4.0, 4.0, 1.0, 1.0),
            nothing,
            Some((BudgetOwner::Agent, BudgetWindow::Day)),
        ),
        (
            "the monthly budget of the fleet is used up",
            0.5,
            nothing,
            spending(0.0, 49.0, 1.2, 2.0),
            Some((BudgetOwner::Fleet, BudgetWindow::Month)),
        ),
    ];
    for (name, job, own_spent, by_all, expected) in table {
        let over = limits(own, fleet).used_up(usd(job), &own_spent, &by_all);
        assert_eq!(over.map(|over| (over.scope, over.window)), expected, "{name}");
    }
}

#[test]
fn a_reservation_may_fit_after_running_attempts_end() {
    let limits = limits(Budget { per_day_usd: Some(5.0), ..Budget::default() }, Budget::default());
    let nothing = Spending::default();
    let over = |own: Spending| {
        limits
            .reserve(Amount::default(), &own, highest_cost(Some(1.0)), &nothing)
            .unwrap_err()
            .fits_after_running()
    };
    assert!(over(spending(1.0, 1.0, 0.0, 3.5)), "running attempts have reserved more than they have spent");
    assert!(!over(spending(4.5, 4.5, 0.0, 0.0)), "ended attempts have spent too much");
    assert!(!over(spending(1.0, 1.0, 4.0, 4.0)), "running attempts have spent too much");
}

#[test]
fn sentences() {
    let agent = "coder".parse().unwrap();
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    let until = Some(at("2026-03-10T23:00:00Z"));
    let day = OverBudget {
        scope: BudgetOwner::Agent,
        window: BudgetWindow::Day,
        unit: Unit::Usd,
        limit: 5_000_000,
        spent: 5_020_000,
        reserved: 0,
        needed: 1,
        until,
    };
    let job = OverBudget { window: BudgetWindow::Job, limit: 50_000, spent: 61_000, until: None, ..day };
    let tight = OverBudget {
        scope: BudgetOwner::Fleet,
        spent: 3_000_000,
        reserved: 1_500_000,
        needed: 700_000,
        ..day
    };
    let reserved = OverBudget { spent: 3_000_000, reserved: 2_000_000, ..day };
    let tokens = OverBudget {
        window: BudgetWindow::Month,
        unit: Unit::Tokens,
        limit: 1_000_000,
        spent: 1_000_001,
        ..day
    };
    let text: Vec<String> =
        [day, job, tight, reserved, tokens].iter().map(|over| over.sentence(&agent, &zone)).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn invalid_and_huge_amounts_are_bounded() {
    for (dollars, expected) in [
        (f64::NAN, 0),
        (f64::NEG_INFINITY, 0),
        (-5.0, 0),
        (0.0, 0),
        (0.07, 70_000),
        (0.000_000_4, 1),
        (f64::INFINITY, 1_000_000_000_000_000),
        (1e300, 1_000_000_000_000_000),
    ] {
        assert_eq!(microdollars(dollars), expected, "{dollars}");
    }
    let huge = ModelUsage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..ModelUsage::default() };
    assert_eq!(tokens(&huge), u64::MAX);
    let most = Amount { microdollars: u64::MAX, tokens: u64::MAX };
    assert_eq!(most.plus(most), most);
}

//! The limits of a person in a chat: the rate of messages, and the daily budget.

use cowhand_core::attempt::Settlement;
use cowhand_core::budget::{Budget, BudgetOwner, Period, PersonBudget, SpendLimits, Spending};
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::JobId;
use cowhand_core::job::{JobUsage, ModelUsage, Outcome};
use cowhand_core::lease::OnLostLease;
use cowhand_core::policy::Retry;
use cowhand_store::{Claim, CountedMessage, Fired, LimitReached, MessageLimits, Starter, UsageRecorded};
use jiff::SignedDuration;
use jiff::tz::TimeZone;

use crate::chat::answer;
use crate::{TestDb, at, new_job, on_both, with_schedule};

on_both! {
    messages_at_the_same_time_do_not_exceed_the_rate,
    a_message_counts_for_the_rate_before_it_has_an_answer,
    the_jobs_of_a_person_share_a_daily_budget,
}

async fn messages_at_the_same_time_do_not_exceed_the_rate(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let limits = MessageLimits { rate: Some((3, at(0))), budget: None };
    let open = |number: i64| {
        let answer = answer(schedule, &format!("C1:{number}"), "slack C1", number);
        store.open_chat_answer(answer, None, limits.clone())
    };
    let reached = futures_util::future::join_all((1..=10).map(open)).await;
    let refused = reached.iter().filter(|reached| reached.as_ref().unwrap().is_some()).count();
    assert_eq!(refused, 7, "{reached:?}");
    let opened = store.open_chat_answers("coder".parse().unwrap(), "slack C1".into(), 99).await.unwrap();
    assert_eq!(opened.len(), 3);
    // An answer that exists already was counted.
    let again = store.open_chat_answer(opened[0].clone(), None, limits).await.unwrap();
    assert_eq!(again, None);
}

async fn a_message_counts_for_the_rate_before_it_has_an_answer(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let limits = || MessageLimits { rate: Some((2, at(0))), budget: None };
    let begin = async |number: i64| {
        let (message, author) = (format!("C1:{number}"), "U1".to_owned());
        let counted = CountedMessage { message, agent: "coder".parse().unwrap(), author };
        store.count_chat_message(counted, limits(), at(number)).await.unwrap()
    };
    let open = async |number: i64| {
        let answer = answer(schedule, &format!("C1:{number}"), "slack C1", number);
        store.open_chat_answer(answer, None, limits()).await.unwrap()
    };
    let reached = Some(LimitReached::Rate { first_at: at(1) });
    assert_eq!((begin(1).await, begin(1).await, begin(2).await, begin(3).await), (None, None, None, reached));
    // The message that was counted gets its answer, and counts once.
    assert_eq!((open(2).await, open(4).await, begin(5).await), (None, reached, reached));
    let later = MessageLimits { rate: Some((2, at(2))), budget: None };
    let coder = "coder".parse().unwrap();
    assert_eq!(store.chat_limit_reached(coder, "U1".into(), later).await.unwrap(), None);
}

/// Limits with a daily budget of the author of ten dollars.
fn ten_dollars() -> SpendLimits {
    let person =
        PersonBudget { person: "U1".into(), microdollars: 10_000_000, spending: Spending::default() };
    SpendLimits {
        own: Budget::default(),
        fleet: Budget::default(),
        person: Some(person),
        day: Period::day(at(0), &TimeZone::UTC),
        month: Period::month(at(0), &TimeZone::UTC),
    }
}

/// The reservation of a running attempt, assumed costs and the costs of single models count.
async fn the_jobs_of_a_person_share_a_daily_budget(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let fire = async |number: i64| {
        let answer = answer(schedule, &format!("C1:{number}"), "slack C1", number);
        let key = answer.key.clone();
        store.open_chat_answer(answer, None, MessageLimits::default()).await.unwrap();
        let decision = Decision::Run(new_job());
        let firing = NewFiring { schedule, key, due: at(number), decision, note: None };
        let Fired::Recorded(Some(job)) = store.fire_once(firing, at(number)).await.unwrap() else { panic!() };
        job.id().clone()
    };
    let claim = async |job: &JobId| {
        let starter = Starter {
            node: "n".into(),
            lease: SignedDuration::from_hours(1),
            on_lost: OnLostLease::Pause,
            max_concurrent: 9,
            shared: cowhand_store::SharedLimits::default(),
            session_key: None,
            limits: Some(ten_dollars()),
            slot: None,
        };
        store.claim_with_limits(job.clone(), starter, at(4)).await.unwrap()
    };
    let (first, second, third) = (fire(1).await, fire(2).await, fire(3).await);
    let Claim::Claimed { epoch, .. } = claim(&first).await else { panic!() };
    let Claim::OverBudget(over) = claim(&second).await else {
        panic!("the first job has reserved everything")
    };
    assert_eq!((over.scope, over.reserved), (BudgetOwner::Person, 10_000_000));
    let assumed = JobUsage { assumed_usd: Some(4.0), ..JobUsage::default() };
    let settlement = Settlement { usage: Some(assumed), ..Outcome::Completed { summary: None }.into() };
    store.settle(first, epoch, settlement, Retry::default(), at(5)).await.unwrap();
    let Claim::Claimed { epoch, .. } = claim(&second).await else { panic!() };
    let spends = async |dollars: f64| {
        let used = ModelUsage { input_tokens: 1, cost_usd: Some(dollars), ..ModelUsage::default() };
        let usage = JobUsage { per_model: [("m".to_owned(), used)].into(), ..JobUsage::default() };
        store.record_usage(second.clone(), epoch, usage, Some(ten_dollars())).await.unwrap()
    };
    assert_eq!(spends(5.0).await, UsageRecorded::Recorded(None));
    let UsageRecorded::Recorded(Some(over)) = spends(6.0).await else { panic!() };
    assert_eq!((over.scope, over.spent), (BudgetOwner::Person, 10_000_000));
    let limits = MessageLimits { rate: None, budget: Some(ten_dollars()) };
    let coder = "coder".parse().unwrap();
    let reached = store.chat_limit_reached(coder, "U1".into(), limits).await.unwrap();
    assert!(matches!(reached, Some(LimitReached::Budget(_))), "{reached:?}");
    assert!(matches!(claim(&third).await, Claim::OverBudget(_)));
}

//! The spending of attempts is summed by slot and model, and is kept after their jobs are removed.

use std::collections::BTreeMap;

use cowhand_core::attempt::Settlement;
use cowhand_core::job::{JobUsage, ModelUsage, Outcome};
use cowhand_core::policy::Retry;
use jiff::{SignedDuration, Timestamp};

use crate::{TestDb, at, hand_job, on_both};
use cowhand_store::{Claim, Store};

on_both! {
    attempts_add_up_by_day_and_model,
    absurd_costs_are_stored_as_finite_amounts,
}

fn usage(models: &[(&str, u64, Option<f64>)], total_cost_usd: Option<f64>) -> JobUsage {
    let model = |&(name, input_tokens, cost_usd): &(&str, u64, Option<f64>)| {
        (name.to_owned(), ModelUsage { input_tokens, cost_usd, ..ModelUsage::default() })
    };
    let per_model: BTreeMap<_, _> = models.iter().map(model).collect();
    JobUsage { per_model, total_cost_usd, ..JobUsage::default() }
}

/// Returns the start of the first slot of the tests plus this number of days.
fn day(number: i64) -> Timestamp {
    at(number * 86_400 - at(0).as_second() % 900)
}

async fn spend(store: &Store, usage: Option<JobUsage>, second: i64) {
    let id = store.add_job(hand_job(), at(second)).await.unwrap().id().clone();
    let claim = store.claim(id.clone(), 1, "node".into(), SignedDuration::from_secs(30), at(second)).await;
    let Claim::Claimed { epoch, .. } = claim.unwrap() else { panic!("{id} is not ours") };
    let done = Outcome::Completed { summary: None };
    let settlement = Settlement { usage, ..done.into() };
    store.settle(id, epoch, settlement, Retry::default(), at(second)).await.unwrap();
}

async fn attempts_add_up_by_day_and_model(db: TestDb) {
    let store = db.open().await;
    let first = day(0);
    spend(&store, Some(usage(&[("big", 10, Some(0.5)), ("small", 5, Some(0.25))], Some(1.0))), 0).await;
    spend(&store, Some(usage(&[("big", 1, Some(0.125))], Some(0.125))), 1).await;
    spend(&store, None, 2).await;
    spend(&store, Some(usage(&[], Some(2.0))), 86_400).await;
    let rows = store.spent(first, day(2)).await.unwrap();
    let seen: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row.slot < day(1),
                row.model.as_deref(),
                row.attempts,
                row.usage.input_tokens,
                row.usage.cost_usd,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (true, None, 3, 0, Some(0.25)),
            (true, Some("big"), 0, 11, Some(0.625)),
            (true, Some("small"), 0, 5, Some(0.25)),
            (false, None, 1, 0, Some(2.0)),
        ]
    );
    assert_eq!(store.spent(day(-2), day(0)).await.unwrap(), []);
}

/// Agents report these numbers.
async fn absurd_costs_are_stored_as_finite_amounts(db: TestDb) {
    let store = db.open().await;
    for cost in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -5.0, 1e300] {
        spend(&store, Some(usage(&[("m", u64::MAX, Some(cost))], Some(cost))), 0).await;
    }
    let rows = store.spent(day(0), day(1)).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.attempts).sum::<u64>(), 5);
    assert!(
        rows.iter().all(|row| row.usage.cost_usd.is_none_or(|cost| (0.0..1e7).contains(&cost))),
        "{rows:?}"
    );
}

//! The spending of attempts is summed by slot and model, and is kept after their jobs are removed.

use std::collections::BTreeMap;

use cowhand_core::attempt::Settlement;
use cowhand_core::job::{JobUsage, ModelUsage, NewJob, Outcome};
use cowhand_core::policy::Retry;
use cowhand_core::work::WorkItem;
use jiff::{SignedDuration, Timestamp};

use crate::{TestDb, at, hand_job, on_both};
use cowhand_store::{Claim, Store};

on_both! {
    attempts_add_up_by_day_and_model,
    absurd_costs_are_stored_as_finite_amounts,
    running_attempts_count_with_what_they_have_reported,
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
    let rows = store.spent(first, day(2), day(1)).await.unwrap();
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
    assert_eq!(store.spent(day(-2), day(0), day(-1)).await.unwrap(), []);
}

/// Agents report these numbers.
async fn absurd_costs_are_stored_as_finite_amounts(db: TestDb) {
    let store = db.open().await;
    for cost in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -5.0, 1e300] {
        spend(&store, Some(usage(&[("m", u64::MAX, Some(cost))], Some(cost))), 0).await;
    }
    let rows = store.spent(day(0), day(1), at(0)).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.attempts).sum::<u64>(), 5);
    assert!(
        rows.iter().all(|row| row.usage.cost_usd.is_none_or(|cost| (0.0..1e7).contains(&cost))),
        "{rows:?}"
    );
}

/// The sums of a running attempt are the same as after its end.
async fn running_attempts_count_with_what_they_have_reported(db: TestDb) {
    let store = db.open().await;
    let item: WorkItem = serde_json::from_value(serde_json::json!({
        "id": "files-7", "source": "files", "external_id": "7", "title": "Mend the roof", "description": "",
        "priority": "medium", "labels": [], "metadata": {}, "url": "", "created_at": at(0), "updated_at": at(0),
    }))
    .unwrap();
    let begin = async |item: Option<&WorkItem>| {
        let new = NewJob { work_item: item.cloned(), ..hand_job() };
        let id = store.add_job(new, at(0)).await.unwrap().id().clone();
        let claim = store.claim(id.clone(), 9, "node".into(), SignedDuration::from_secs(30), at(0)).await;
        let Claim::Claimed { epoch, .. } = claim.unwrap() else { panic!("{id} is not ours") };
        (id, epoch)
    };
    let done = |usage| Settlement { usage, ..Outcome::Completed { summary: None }.into() };
    // An earlier attempt for the same item.
    let (id, epoch) = begin(Some(&item)).await;
    let before = usage(&[("big", 4, Some(0.25))], Some(0.25));
    store.settle(id, epoch, done(Some(before)), Retry::default(), at(1)).await.unwrap();
    let ((silent, _), (id, epoch)) = (begin(None).await, begin(Some(&item)).await);
    let so_far = usage(&[("big", 10, Some(0.5)), ("small", 5, None)], Some(0.75));
    store.record_usage(id.clone(), epoch, so_far.clone(), None).await.unwrap();
    let sums = async |from, until| {
        let mut slots: BTreeMap<Option<String>, (u64, u64, f64)> = BTreeMap::new();
        for row in store.spent(from, until, at(2)).await.unwrap() {
            let (attempts, tokens, cost) = slots.entry(row.model).or_default();
            *attempts += row.attempts;
            *tokens += row.usage.input_tokens;
            *cost += row.usage.cost_usd.unwrap_or_default();
        }
        let items = store.spent_on_items(from, until, at(2), 9).await.unwrap();
        let items: Vec<_> = items
            .into_iter()
            .map(|row| {
                (row.item, row.title, row.attempts, row.usage.input_tokens, row.usage.cost_usd, row.last_at)
            })
            .collect();
        let jobs = store.spent_on_jobs(None, from, until, at(2), 9).await.unwrap();
        let jobs: Vec<_> = jobs
            .into_iter()
            .map(|row| (row.job, row.attempts, row.amount.tokens, row.amount.microdollars))
            .collect();
        (slots, items, jobs)
    };
    let running = sums(day(0), day(1)).await;
    let expected =
        [(None, (2, 0, 0.25)), (Some("big".into()), (0, 14, 0.75)), (Some("small".into()), (0, 5, 0.0))];
    assert_eq!(running.0, BTreeMap::from(expected));
    assert_eq!(running.1, [("files-7".into(), "Mend the roof".into(), 2, 19, Some(1.0), at(2))]);
    assert_eq!(running.2.iter().map(|row| (&row.0, row.1, row.3)).next(), Some((&id, 1, 750_000)));
    assert!(!running.2.iter().any(|row| row.0 == silent), "it has reported nothing");
    // Days without now.
    let past = sums(day(-2), day(0)).await;
    assert_eq!((past.0.len(), past.1.len(), past.2.len()), (0, 0, 0));
    assert_eq!(store.spent(day(1), day(2), at(2)).await.unwrap(), []);
    store.settle(id, epoch, done(Some(so_far)), Retry::default(), at(2)).await.unwrap();
    assert_eq!(sums(day(0), day(1)).await, running);
}

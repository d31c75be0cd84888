//! Incidents and notifications: each event is followed once, each notification is sent by one node, and messages that
//! quiet hours hold back are joined.

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::budget::Budget;
use cowhand_core::event::Fact;
use cowhand_core::job::JobUsage;
use cowhand_core::notification::{
    NotificationKind, NotificationMessage, NotificationSettings, NotificationState, NotificationTarget,
    TargetAction,
};
use cowhand_core::policy::Retry;
use cowhand_core::roster::{Agent, Roster};
use cowhand_store::{
    FollowReason, Followed, NotificationEnd, NotificationFilter, NotificationRecord, Store, UsageRecorded,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::budgets::completed;
use crate::conformance::{claim, event_types};
use crate::{TestDb, at, hand_job, on_both};

on_both! {
    each_event_is_followed_once_by_any_node,
    events_before_the_first_start_do_not_count,
    a_message_that_was_never_tried_tells_the_newest_count,
    messages_of_quiet_hours_are_joined_at_their_end,
    an_incident_that_ends_in_quiet_hours_is_one_message,
    one_node_sends_a_notification_and_another_takes_over_after_its_lease,
    the_end_is_sent_after_the_beginning,
    a_target_that_answers_again_gets_what_failed_before,
    reminders_do_not_pile_up,
    a_budget_level_is_recorded_once_in_its_period,
    a_disk_and_a_node_are_reported_once,
    old_records_are_forgotten,
}

fn fleet(settings: &serde_json::Value) -> Arc<Roster> {
    let action = TargetAction::Command { command: vec!["x".to_owned()], directory: ".".into() };
    let target = NotificationTarget { action, timeout: Duration::from_secs(1) };
    let quiet_hours = serde_json::from_value(settings["quiet_hours"].clone()).unwrap();
    let notifications = NotificationSettings {
        targets: [("ops".to_owned(), target)].into_iter().collect(),
        rules: serde_json::from_value(settings["rules"].clone()).unwrap(),
        quiet_hours,
        disk_low: 10,
    };
    Arc::new(Roster { notifications, ..Roster::of(vec![Agent::new("coder".parse().unwrap())]) })
}

fn simple() -> Arc<Roster> {
    fleet(&json!({"rules": [{"to": ["ops"]}]}))
}

async fn follow(store: &Store, roster: &Arc<Roster>, now: Timestamp) -> Followed {
    store.follow_incidents(Arc::clone(roster), FollowReason::Events, now).await.unwrap()
}

/// Opens a store whose log is followed from now on.
async fn followed(db: &TestDb, roster: &Arc<Roster>) -> Store {
    let store = db.open().await;
    follow(&store, roster, at(0)).await;
    store
}

async fn lose(store: &Store, node: &str, second: i64) {
    store.record_fact(Fact::NodeLost { node: node.into() }, at(second)).await.unwrap();
}

async fn find(store: &Store, node: &str, second: i64) {
    store.record_fact(Fact::NodeReturned { node: node.into() }, at(second)).await.unwrap();
}

/// Returns all notifications, the oldest first, as `STATE KIND TITLE`.
async fn all(store: &Store) -> Vec<String> {
    let mut records = store.notifications(NotificationFilter::All, 100).await.unwrap();
    records.reverse();
    records.iter().map(|one| format!("{} {} {}", one.state, one.kind, one.message.title)).collect()
}

async fn take(store: &Store, node: &str, second: i64) -> Option<NotificationRecord> {
    store.take_notification(node.into(), at(second)).await.unwrap()
}

async fn each_event_is_followed_once_by_any_node(db: TestDb) {
    let roster = simple();
    let store = followed(&db, &roster).await;
    let other = db.open().await;
    for second in 1..=20 {
        lose(&store, &format!("n{second}"), second).await;
    }
    let nodes = [&store, &other, &store, &other];
    let calls = nodes.map(|node| follow(node, &roster, at(30)));
    for followed in futures_util::future::join_all(calls).await {
        assert!(!followed.has_more);
    }
    assert_eq!(all(&store).await.len(), 20);
    assert!(!follow(&store, &roster, at(31)).await.has_notifications);
    find(&store, "n7", 40).await;
    assert!(follow(&other, &roster, at(41)).await.has_notifications);
    assert_eq!(all(&store).await[20], "waiting ended The node n7 runs again");
}

async fn events_before_the_first_start_do_not_count(db: TestDb) {
    let (store, roster) = (db.open().await, simple());
    lose(&store, "n1", 1).await;
    assert!(follow(&store, &roster, at(2)).await.has_more);
    follow(&store, &roster, at(2)).await;
    assert_eq!(all(&store).await, Vec::<String>::new());
    lose(&store, "n2", 3).await;
    follow(&store, &roster, at(3)).await;
    assert_eq!(all(&store).await, ["waiting opened The node n2 is lost"]);
    store.stop_following(at(4)).await.unwrap();
    find(&store, "n2", 5).await;
    follow(&store, &roster, at(6)).await;
    follow(&store, &roster, at(6)).await;
    assert_eq!(all(&store).await.len(), 1, "the incident ended without a message");
}

async fn a_message_that_was_never_tried_tells_the_newest_count(db: TestDb) {
    let roster = simple();
    let store = followed(&db, &roster).await;
    for second in 1..=3 {
        lose(&store, "n1", second).await;
        follow(&store, &roster, at(second)).await;
    }
    assert_eq!(all(&store).await, ["waiting opened The node n1 is lost (3 times)"]);
    take(&store, "a", 4).await.unwrap();
    lose(&store, "n1", 5).await;
    follow(&store, &roster, at(5)).await;
    assert_eq!(all(&store).await, ["sending opened The node n1 is lost (3 times)"], "it may have arrived");
}

/// 08:00 to 08:10 UTC; `at(0)` is 08:00 UTC on 2026-01-05.
fn quiet() -> Arc<Roster> {
    assert_eq!(at(0).to_string(), "2026-01-05T08:00:00Z");
    fleet(&json!({"rules": [{"to": ["ops"]}], "quiet_hours": {"start": "08:00", "end": "08:10"}}))
}

async fn messages_of_quiet_hours_are_joined_at_their_end(db: TestDb) {
    let roster = quiet();
    let store = followed(&db, &roster).await;
    for node in ["n1", "n2"] {
        lose(&store, node, 1).await;
    }
    follow(&store, &roster, at(2)).await;
    store.group_notifications(at(3)).await.unwrap();
    assert_eq!(take(&store, "a", 3).await, None);
    assert_eq!(store.next_notification_time().await.unwrap(), Some(at(600)));
    store.group_notifications(at(600)).await.unwrap();
    store.group_notifications(at(600)).await.unwrap();
    let digest = take(&store, "a", 600).await.unwrap();
    assert_eq!(digest.kind, NotificationKind::Digest);
    assert_eq!(
        digest.message.text,
        "2026-01-05T08:00:02Z  The node n1 is lost\n2026-01-05T08:00:02Z  The node n2 is lost"
    );
    assert_eq!(take(&store, "b", 600).await, None);
    assert_eq!(
        all(&store).await,
        [
            "grouped opened The node n1 is lost",
            "grouped opened The node n2 is lost",
            "sending digest 2 notifications from the quiet hours",
        ]
    );
}

async fn an_incident_that_ends_in_quiet_hours_is_one_message(db: TestDb) {
    let roster = quiet();
    let store = followed(&db, &roster).await;
    lose(&store, "n1", 1).await;
    follow(&store, &roster, at(2)).await;
    find(&store, "n1", 3).await;
    follow(&store, &roster, at(4)).await;
    assert_eq!(all(&store).await, ["waiting ended The node n1 runs again"]);
    store.group_notifications(at(600)).await.unwrap();
    assert_eq!(take(&store, "a", 600).await.unwrap().kind, NotificationKind::Ended);
}

async fn one_node_sends_a_notification_and_another_takes_over_after_its_lease(db: TestDb) {
    let roster = simple();
    let store = followed(&db, &roster).await;
    lose(&store, "n1", 1).await;
    follow(&store, &roster, at(1)).await;
    let (one, two) = tokio::join!(take(&store, "a", 2), take(&store, "b", 2));
    assert!(one.is_some() != two.is_some());
    let first = one.or(two).unwrap();
    assert_eq!((first.tries, first.tried_at), (1, Some(at(2))));
    assert_eq!(take(&store, "b", 121).await, None, "the lease of two minutes holds");
    let second = take(&store, "b", 122).await.unwrap();
    assert_eq!((second.id, second.tries, second.tried_at), (first.id, 2, Some(at(2))));
    store.postpone_notification(&first, "late".into(), at(900)).await.unwrap();
    store.end_notification(&first, NotificationEnd::Failed { reason: "late".into() }, at(123)).await.unwrap();
    assert_eq!(
        all(&store).await,
        ["sending opened The node n1 is lost"],
        "the first node has lost its lease"
    );
    store.take_up_notifications("b".into(), at(124)).await.unwrap();
    let third = take(&store, "b", 124).await.unwrap();
    store.end_notification(&third, NotificationEnd::Sent, at(125)).await.unwrap();
    assert_eq!(all(&store).await, ["sent opened The node n1 is lost"]);
    assert_eq!(take(&store, "b", 9_000).await, None);
}

async fn the_end_is_sent_after_the_beginning(db: TestDb) {
    let roster = simple();
    let store = followed(&db, &roster).await;
    lose(&store, "n1", 1).await;
    find(&store, "n1", 2).await;
    follow(&store, &roster, at(3)).await;
    let first = take(&store, "a", 3).await.unwrap();
    assert_eq!((first.kind, take(&store, "b", 3).await), (NotificationKind::Opened, None));
    store.postpone_notification(&first, "down".into(), at(60)).await.unwrap();
    assert_eq!(take(&store, "a", 4).await, None);
    assert_eq!(store.next_notification_time().await.unwrap(), Some(at(60)));
    let first = take(&store, "a", 60).await.unwrap();
    store.end_notification(&first, NotificationEnd::Sent, at(61)).await.unwrap();
    assert_eq!(take(&store, "a", 61).await.unwrap().kind, NotificationKind::Ended);
}

async fn a_target_that_answers_again_gets_what_failed_before(db: TestDb) {
    let roster = simple();
    let store = followed(&db, &roster).await;
    lose(&store, "n1", 1).await;
    lose(&store, "n2", 1).await;
    follow(&store, &roster, at(1)).await;
    let taken = [take(&store, "a", 2).await.unwrap(), take(&store, "a", 2).await.unwrap()];
    for taken in &taken {
        store.postpone_notification(taken, "down".into(), at(600)).await.unwrap();
    }
    assert_eq!(store.undelivered_notifications().await.unwrap().len(), 2);
    let test = NotificationMessage::test(None, at(10));
    let id = store.add_test_notification("ops".into(), test, at(10)).await.unwrap();
    let test = take(&store, "a", 10).await.unwrap();
    assert_eq!((test.id, test.kind), (id, NotificationKind::Test));
    assert_eq!(take(&store, "a", 10).await, None);
    store.end_notification(&test, NotificationEnd::Sent, at(11)).await.unwrap();
    for _ in 0..2 {
        let taken = take(&store, "a", 11).await.unwrap();
        store.end_notification(&taken, NotificationEnd::Sent, at(11)).await.unwrap();
    }
    assert!(store.undelivered_notifications().await.unwrap().is_empty());
}

async fn reminders_do_not_pile_up(db: TestDb) {
    let roster = fleet(&json!({"rules": [{"to": ["ops"], "remind": "1m"}]}));
    let store = followed(&db, &roster).await;
    lose(&store, "n1", 1).await;
    assert_eq!(follow(&store, &roster, at(1)).await.next_at, Some(at(61)));
    let first = take(&store, "a", 1).await.unwrap();
    store.postpone_notification(&first, "down".into(), at(1_000)).await.unwrap();
    for minute in 1..=5 {
        follow(&store, &roster, at(minute * 60 + 1)).await;
    }
    assert_eq!(all(&store).await.len(), 1, "the first message still waits");
    let first = take(&store, "a", 1_000).await.unwrap();
    store.end_notification(&first, NotificationEnd::Sent, at(1_000)).await.unwrap();
    follow(&store, &roster, at(1_000)).await;
    follow(&store, &roster, at(1_001)).await;
    assert_eq!(
        all(&store).await,
        ["sent opened The node n1 is lost", "waiting reminder Still open: The node n1 is lost"]
    );
    let retried = store.notification(first.id).await.unwrap().unwrap();
    assert_eq!((retried.state, retried.last_error), (NotificationState::Sent, None));
}

async fn a_budget_level_is_recorded_once_in_its_period(db: TestDb) {
    let store = db.open().await;
    let with_limit = |dollars: f64| {
        let budget = Budget { per_day_usd: Some(dollars), ..Budget::default() };
        let agent = Agent { budget, ..Agent::new("coder".parse().unwrap()) };
        Arc::new(Roster { budget, ..Roster::of(vec![agent]) })
    };
    let spend = async |dollars: f64, second: i64| {
        let job = store.add_job(hand_job(), at(second)).await.unwrap();
        let (job, epoch) = claim(&store, &job, second).await;
        let usage = JobUsage { total_cost_usd: Some(dollars), ..JobUsage::default() };
        let recorded = store.record_usage(job.id().clone(), epoch, usage.clone(), None).await.unwrap();
        assert_eq!(recorded, UsageRecorded::Recorded(None));
        let ended = completed(Some(usage));
        store.settle(job.id().clone(), epoch, ended, Retry::default(), at(second)).await.unwrap();
    };
    let levels = async || {
        let types = event_types(&store).await;
        types.into_iter().filter(|kind| kind.starts_with("budget:")).collect::<Vec<_>>()
    };
    let record = async |dollars: f64, second: i64| {
        store.record_budget_levels(with_limit(dollars), at(second)).await.unwrap();
    };
    spend(7.0, 10).await;
    record(10.0, 11).await;
    assert_eq!(levels().await, Vec::<String>::new());
    spend(1.0, 20).await;
    for second in 21..24 {
        record(10.0, second).await;
    }
    assert_eq!(levels().await, ["budget:reached", "budget:reached"], "the fleet and the agent");
    spend(3.0, 30).await;
    record(10.0, 31).await;
    record(10.0, 32).await;
    assert_eq!(levels().await.len(), 4);
    record(13.0, 40).await;
    assert_eq!(
        levels().await[4..],
        ["budget:relieved", "budget:reached", "budget:relieved", "budget:reached"]
    );
    record(100.0, 50).await;
    assert_eq!(levels().await[8..], ["budget:relieved", "budget:relieved"]);
    let tomorrow = 86_400;
    record(10.0, tomorrow).await;
    assert_eq!(levels().await.len(), 10, "a new day");
    spend(9.0, tomorrow + 10).await;
    record(10.0, tomorrow + 20).await;
    assert_eq!(levels().await.len(), 12);
}

async fn a_disk_and_a_node_are_reported_once(db: TestDb) {
    let store = db.open().await;
    store.join("a".into(), at(0)).await.unwrap();
    for (free, second) in [(20, 1), (9, 2), (8, 3), (10, 4), (20, 5)] {
        store.record_free_space("a".into(), free, 10, at(second)).await.unwrap();
    }
    assert_eq!(event_types(&store).await, ["disk:low", "disk:freed"]);
    for is_lost in [true, true, false, false] {
        store.record_node_lost("a".into(), is_lost, at(6)).await.unwrap();
    }
    store.node_stopped("a".into(), at(7)).await.unwrap();
    store.record_node_lost("a".into(), true, at(8)).await.unwrap();
    assert_eq!(event_types(&store).await[2..], ["node:lost", "node:returned"], "a stopped node is not lost");
    store.join("a".into(), at(9)).await.unwrap();
    store.record_node_lost("a".into(), true, at(10)).await.unwrap();
    assert_eq!(event_types(&store).await[4..], ["node:lost"]);
    let watched = store.watched_nodes("a".into()).await.unwrap();
    assert!(watched.len() == 1 && watched[0].is_running && watched[0].is_lost, "{watched:?}");
}

async fn old_records_are_forgotten(db: TestDb) {
    let roster = simple();
    let store = followed(&db, &roster).await;
    for node in ["n1", "n2"] {
        lose(&store, node, 1).await;
        follow(&store, &roster, at(1)).await;
        let taken = take(&store, "a", 1).await.unwrap();
        store.end_notification(&taken, NotificationEnd::Sent, at(1)).await.unwrap();
    }
    find(&store, "n1", 2).await;
    follow(&store, &roster, at(2)).await;
    let later = at(0).checked_add(SignedDuration::from_hours(1)).unwrap();
    store.forget_notifications(later).await.unwrap();
    assert_eq!(all(&store).await, ["waiting ended The node n1 runs again"]);
    find(&store, "n2", 4_000).await;
    assert!(follow(&store, &roster, at(4_000)).await.has_notifications, "open incidents stay");
}

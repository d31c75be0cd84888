//! An item whose claim is in progress: its job does not exist yet.

use cowhand::queues::{self, ItemRows, ItemScope, ItemStatus};
use cowhand::store::{NewItemClaim, TakeConditions, TakeResult};
use cowhand_core::work::{ReleaseOptions, WorkItemId};

use crate::{Scene, stop};

#[tokio::test]
async fn claim_in_progress_is_not_shown_as_a_job() {
    let scene = Scene::new("true", "", "type: manual");
    scene.task("one", "");
    let fleet = scene.started().await;
    let one: WorkItemId = "files-one".parse().unwrap();
    let mut queues = queues::queues(&fleet.sources(), &fleet.roster(), None);
    let queue = queues.pop().unwrap();
    let item = queue.source.get_work(&one).await.unwrap().unwrap();
    let now = fleet.clock().now();
    let claim = NewItemClaim {
        queue: queue.name.clone(),
        item: item.clone(),
        source: queue.config.clone(),
        node: fleet.node().to_owned(),
        agent: "worker".parse().unwrap(),
        schedule: None,
        until: now.checked_add(jiff::SignedDuration::from_hours(1)).unwrap(),
        unless: TakeConditions::default(),
    };
    let TakeResult::Ours(job) = fleet.store().take_item(claim, None, now).await.unwrap() else {
        panic!("held")
    };
    let rows = ItemRows::read(fleet.store()).await.unwrap();
    let view = queue.view(item, ItemStatus::Available, &rows);
    assert_eq!((view.status, &view.held_by), (ItemStatus::Claimed, &None), "{job} does not exist");
    let shown = serde_json::to_value(&view).unwrap();
    assert_eq!(shown["claiming_on"], fleet.node(), "{shown:#}");
    let scope = ItemScope::default;
    let released = fleet.release_item(&one, scope(), ReleaseOptions::default()).await.unwrap_err();
    let claimed = fleet.claim_item(&one, scope(), "ann").await.unwrap_err();
    let retried = fleet.retry_item(&one, scope()).await.unwrap_err();
    for refused in [released, claimed, retried] {
        let refused = refused.to_string();
        assert!(!refused.contains(job.as_str()) && refused.contains("is being claimed"), "{refused}");
        assert!(refused.contains(fleet.node()), "{refused}");
    }
    stop(fleet).await;
}

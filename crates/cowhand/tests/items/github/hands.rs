//! Several fleets on one repository: the names of fleets in comments, and items of another fleet.

use cowhand::fleet::FleetError;
use cowhand::queues::ItemScope;
use cowhand_core::event::Fact;
use cowhand_core::work::{ReleaseOptions, WorkItemId, WorkOutcome, WorkResult};
use jiff::Timestamp;

use super::{BY_HAND, Hub, OFTEN, minutes, said};
use crate::{stop, until};

fn issue() -> WorkItemId {
    "github-7".parse().unwrap()
}

/// A comment names its fleet by the name in the config.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comments_name_the_fleet() {
    for (config, name) in [("fleet: {name: web-shop}\n", Some("web-shop")), ("", None)] {
        let hub = Hub::new("cat", "", OFTEN).await;
        let file = hub.scene.path("cowhand.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{config}{text}")).unwrap();
        hub.fake.add(7, &["ready"]);
        let fleet = hub.started().await;
        let mut events = fleet.subscribe_after(0);
        until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
        let issue = hub.fake.issue(7);
        // Without a name in the config, the name of the config's folder is used.
        let folder = file.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let words = format!("**cowhand: done** (fleet ` {} `, ` job-", name.unwrap_or(folder));
        assert_eq!(said(&issue, &words).len(), 1, "{words}: {:?}", issue.comments);
        stop(fleet).await;
    }
}

/// A person here cannot release or complete an item of another fleet; the issue does not change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_of_another_fleet_are_left_alone() {
    let hub = Hub::new("cat", "", BY_HAND).await;
    hub.fake.add(7, &["agent-working"]);
    let until = Timestamp::now() + minutes(30);
    let json =
        serde_json::json!({ "fleet": "0197", "fleet_name": "others", "holder": "job-x", "until": until });
    let claim = format!("<!-- cowhand:claim {json} -->\ncowhand is working on this");
    hub.fake.state().comment(7, "somebody", &claim);
    let before = hub.fake.issue(7);
    let fleet = hub.started().await;
    let released = fleet.release_item(&issue(), ItemScope::default(), ReleaseOptions::default()).await;
    let done = WorkResult {
        outcome: WorkOutcome::Success,
        summary: "Done.".into(),
        details: None,
        artifacts: Vec::new(),
        error: None,
    };
    let completed = fleet.complete_item(&issue(), ItemScope::default(), done).await;
    for refused in [released, completed] {
        let error = refused.unwrap_err();
        assert!(matches!(error, FleetError::ItemLeftAlone { .. }), "{error:?}");
        assert!(error.to_string().contains("job-x of fleet others"), "{error}");
    }
    let after = hub.fake.issue(7);
    assert_eq!((after.labels, after.is_closed), (before.labels, false));
    assert_eq!(after.comments.len(), before.comments.len());
    stop(fleet).await;
}

//! Webhooks and chat messages: each once, filtered, and on disk before it is answered.

use cowhand::fleet::{Delivered, Fleet, FleetError, Stop};
use cowhand::trigger::Registry;
use cowhand_core::chat::posting::MessageDetails;
use cowhand_core::delivery::{Delivery, Message, Webhook};
use cowhand_core::job::TriggerType;
use cowhand_core::schedule::{FiringOutcome, SkipReason};
use cowhand_core::trigger::ChatPlatform;
use serde_json::{Value, json};

use crate::{FleetFolder, id, ledger, name, with_schedule};

fn webhook(id: &str, event: &str, payload: &Value) -> Delivery {
    Delivery::Webhook(Webhook::of_body(id, event, payload.to_string().as_bytes()).unwrap())
}

fn message(id: &str, text: &str) -> Delivery {
    Delivery::Chat(Message {
        platform: ChatPlatform::Slack,
        id: id.to_owned(),
        channel: "C1".to_owned(),
        thread: None,
        author: "ann".to_owned(),
        text: text.to_owned(),
        url: String::new(),
        details: MessageDetails::default(),
    })
}

async fn deliver(fleet: &Fleet, schedule: &str, delivery: Delivery) -> Result<Delivered, FleetError> {
    fleet.deliver(&name("a"), &schedule.parse().unwrap(), delivery).await
}

#[tokio::test]
async fn each_delivery_fires_once_if_filter_allows_it() {
    let home = FleetFolder::sqlite();
    let hook = r#"{"type":"webhook","secret":"x","events":["issues"]}"#;
    let mut agent =
        with_schedule(home.idle_agent("a"), "hook", hook, "{{action}} {{payload.issue.number}}: {{title}}");
    agent.schedules[0].filter =
        serde_json::from_value(json!({"actions": ["opened"], "payload": {"/sender/type": "User"}})).unwrap();
    let agent = with_schedule(
        agent,
        "chat",
        r#"{"type":"chat","pattern":"^!go"}"#,
        "{{author}}{{metadata.author}}: {{body}}",
    );
    let agent = with_schedule(agent, "hand", r#"{"type":"manual"}"#, "x");
    let fleet = home.start(vec![agent], Registry::default()).await;
    let payload = |action: &str, sender: &str| json!({"action": action, "issue": {"number": 7, "title": "{{payload}}"}, "sender": {"type": sender}});
    let opened = || webhook("d1", "issues", &payload("opened", "User"));
    let Delivered::New(job) = deliver(&fleet, "hook", opened()).await.unwrap() else { panic!("new") };
    assert_eq!((job.prompt(), job.trigger_type()), (Some("opened 7: `{{payload}}`"), TriggerType::Webhook));
    assert_eq!(deliver(&fleet, "hook", opened()).await.unwrap(), Delivered::Duplicate);
    for (id, event, payload) in [
        ("d2", "push", payload("opened", "User")),
        ("d3", "issues", payload("closed", "User")),
        ("d4", "issues", payload("opened", "Bot")),
    ] {
        let delivery = || webhook(id, event, &payload);
        assert_eq!(deliver(&fleet, "hook", delivery()).await.unwrap(), Delivered::Filtered, "{id}");
        assert_eq!(deliver(&fleet, "hook", delivery()).await.unwrap(), Delivered::Duplicate, "{id}, again");
    }
    assert_eq!(deliver(&fleet, "hook", webhook("d5", "ping", &json!({}))).await.unwrap(), Delivered::Ping);
    let rows = ledger(&fleet, id("a", "hook")).await;
    let skipped =
        rows.iter().filter(|row| row.outcome == FiringOutcome::Skipped(SkipReason::Filtered)).count();
    assert_eq!((rows.len(), skipped), (4, 3));

    let Delivered::New(job) = deliver(&fleet, "chat", message("1", "!go on")).await.unwrap() else {
        panic!("new")
    };
    assert_eq!(job.trigger_type(), TriggerType::Slack);
    assert!(job.prompt().unwrap().contains("ann:"), "{:?}", job.prompt());
    assert_eq!(deliver(&fleet, "chat", message("2", "hello")).await.unwrap(), Delivered::Filtered);

    let wrong = deliver(&fleet, "hand", opened()).await.unwrap_err().to_string();
    assert_eq!(wrong, "a/hand is of type manual, which does not accept such deliveries");
    assert!(matches!(deliver(&fleet, "none", opened()).await, Err(FleetError::NoSchedule { .. })));
    fleet.disable(&name("a"), &"hook".parse().unwrap()).await.unwrap();
    let off = deliver(&fleet, "hook", webhook("d9", "issues", &json!({}))).await.unwrap_err().to_string();
    assert_eq!(off, "a/hook is turned off; `cowhand schedule enable a/hook` turns it on");
    fleet.stop(Stop::KeepAgents).await.unwrap();
    assert!(matches!(deliver(&fleet, "chat", message("3", "!go")).await, Err(FleetError::Stopping)));
}

/// Many deliveries at once, each several times, give one job for each id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn burst_of_repeated_deliveries_makes_one_job_each() {
    let home = FleetFolder::sqlite();
    let agent =
        with_schedule(home.idle_agent("a"), "hook", r#"{"type":"webhook","allow_unsigned":true}"#, "x");
    let fleet = std::sync::Arc::new(home.start(vec![agent], Registry::default()).await);
    let senders = (0..4).map(|_| {
        let fleet = std::sync::Arc::clone(&fleet);
        tokio::spawn(async move {
            let mut new = 0;
            for number in 0..250 {
                let delivery = webhook(&format!("d{number}"), "push", &json!({}));
                new += usize::from(matches!(
                    deliver(&fleet, "hook", delivery).await.unwrap(),
                    Delivered::New(_)
                ));
            }
            new
        })
    });
    let mut new = 0;
    for sender in senders.collect::<Vec<_>>() {
        new += sender.await.unwrap();
    }
    assert_eq!(new, 250);
    assert_eq!(crate::jobs(&fleet).await.len(), 250);
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

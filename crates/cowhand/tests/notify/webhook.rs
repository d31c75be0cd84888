//! Webhook targets: signed requests, retries, and messages without secrets.

use std::fs;

use crate::receiver::Receiver;
use crate::{Scene, wait_until};

#[test]
fn failures_of_a_schedule_are_one_message_until_it_recovers() {
    let receiver = Receiver::start();
    let mut scene = Scene::with_receiver(&receiver, "");
    scene.start();
    scene.job("flaky/s");
    receiver.wait_for(1);
    scene.job("flaky/s");
    scene.job("flaky/s");
    fs::write(scene.path("good"), "").unwrap();
    scene.job("flaky/s");
    scene.job("flaky/s");
    let expected = ["opened flaky/s failed", "ended flaky/s recovered after 3 failures"];
    assert_eq!(receiver.wait_for(2), expected);
    let all = receiver.all();
    let first = &all[0].body;
    assert_eq!(
        (first["fleet"].as_str(), first["target"].as_str(), first["severity"].as_str()),
        (Some("herd"), Some("hook"), Some("warning"))
    );
    assert_eq!(first["delivery"].as_str(), Some(all[0].id.as_str()));
    let incident = &first["incident"];
    assert_eq!(
        (incident["kind"].as_str(), incident["subject"].as_str(), incident["count"].as_u64()),
        (Some("job_failed"), Some("flaky/s"), Some(1))
    );
    assert!(incident["job"].as_str().unwrap().starts_with("job-"), "{incident}");
    assert_eq!(all[1].body["incident"]["end"], "recovered");
    assert!(!format!("{all:?}").contains("canary"), "{all:?}");
    scene.wait_for_states(&["sent opened", "sent ended"]);
    // A restart sends nothing again.
    scene.run(&["restart"]);
    scene.run(&["notify", "test", "hook"]);
    assert_eq!(receiver.wait_for(3)[2], "test Test of the notifications of the fleet herd");
    scene.run(&["stop"]);
}

#[test]
fn a_refused_request_is_repeated_with_the_same_id_after_the_pause_that_the_receiver_asks_for() {
    let receiver = Receiver::start();
    let mut scene = Scene::with_receiver(&receiver, "");
    receiver.answer(&[(429, Some(1)), (503, Some(1))]);
    scene.start();
    scene.job("flaky/s");
    receiver.wait_for(1);
    let all = receiver.all();
    let statuses: Vec<u16> = all.iter().map(|delivery| delivery.status).collect();
    assert_eq!(statuses, [429, 503, 200]);
    assert!(all.iter().all(|delivery| delivery.id == all[0].id && delivery.body == all[0].body));
    wait_until("the end", || (scene.states() == ["sent opened"]).then_some(()));
    assert_eq!(scene.notifications()[0]["tries"], 3);
}

#[test]
fn a_private_address_is_refused_and_a_redirect_to_one_too() {
    let receiver = Receiver::start();
    let config = crate::notify(&receiver, "").replace(", allow_private: true", "");
    let scene = Scene::new(&format!("{config}{}", crate::FLAKY));
    let (code, report) = scene.output(&["config", "check"]);
    assert_eq!(code, Some(3), "{report}");
    assert!(report.contains("this target cannot be reached: 127.0.0.1 is not a public address"), "{report}");
    assert!(report.contains("cowhand.yaml:5:"), "{report}");
    // The name is resolved only when the notification is sent.
    let mut scene =
        Scene::new(&format!("{}{}", config.replace("127.0.0.1", "localhost.localdomain"), crate::FLAKY));
    scene.start();
    let (code, report) = scene.output(&["notify", "test"]);
    assert_eq!(code, Some(5), "{report}");
    assert!(report.starts_with("hook: not sent: localhost.localdomain "), "{report}");
    assert!(receiver.all().is_empty());
}

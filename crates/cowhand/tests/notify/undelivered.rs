//! A target that is away: every surface reports it, and the notifications arrive when it is back.

use std::fs;

use crate::receiver::Receiver;
use crate::{FLAKY, Scene, notify, wait_until};

#[test]
fn an_undelivered_notification_is_visible_everywhere_until_the_target_is_back() {
    let receiver = Receiver::start();
    let mut scene = Scene::with_receiver(&receiver, "");
    receiver.answer(&[(500, None); 50]);
    scene.start();
    scene.job("flaky/s");
    scene.job("flaky");
    let list = wait_until("two failed tries", || {
        let all = scene.notifications();
        (all.len() == 2 && all.iter().all(|view| view["last_error"].is_string())).then_some(all)
    });
    for view in &list {
        assert_eq!((view["target"].as_str(), view["title"].as_str().is_some()), (Some("hook"), true));
        assert_eq!(view["last_error"], "it answered 500 Internal Server Error");
    }
    let shown = scene.run(&["notifications", "--open"]);
    assert!(shown.contains("hook") && shown.contains("it answered 500"), "{shown}");
    let what = "2 notifications to `hook` could not be delivered";
    let status = scene.run(&["status"]);
    let line = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(line.contains(&format!("not delivered: {what}")), "{status}");
    let of_status = &scene.json(&["status"])["undelivered_notifications"];
    assert_eq!((of_status[0]["target"].as_str(), of_status[0]["waiting"].as_u64()), (Some("hook"), Some(2)));
    let (code, doctor) = scene.output(&["doctor"]);
    let doctor = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(code, Some(6), "{doctor}");
    assert!(doctor.contains(&format!("FAIL notifications to hook: {what}")), "{doctor}");
    let api = scene.request(None, "GET", "notifications?state=open", "");
    assert_eq!(api["items"].as_array().unwrap().len(), 2);
    let (metrics, page) = served(&scene);
    assert!(metrics.contains("cowhand_notifications_undelivered{target=\"hook\"} 2"), "{metrics}");
    assert!(page.contains("tried again") && page.contains("2 notifications to"), "{page}");
    // The test itself fails, and is not tried again.
    let (code, report) = scene.output(&["notify", "test", "hook"]);
    assert_eq!((code, report.as_str()), (Some(5), "hook: not sent: it answered 500 Internal Server Error\n"));
    receiver.answer(&[]);
    assert_eq!(scene.run(&["notify", "test", "hook"]), "hook: sent\n");
    scene.wait_for_states(&["sent opened", "sent opened", "failed test", "sent test"]);
    assert!(!scene.run(&["status"]).contains("not delivered"));
    assert_eq!(scene.json(&["status"])["undelivered_notifications"].as_array().unwrap().len(), 0);
    assert!(served(&scene).0.contains("cowhand_notifications_undelivered{target=\"hook\"} 0"));
}

/// Returns the metrics and the page of notifications.
fn served(scene: &Scene) -> (String, String) {
    let url = scene.json(&["status"])["daemon"]["url"].as_str().unwrap().to_owned();
    let address = url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
    let name = format!("t{}", jiff::Timestamp::now().as_nanosecond());
    let token =
        scene.json(&["token", "create", &name, "--scope", "read"])["token"].as_str().unwrap().to_owned();
    let get = |path: &str| cowhand_testing::http::get_with_token(&address, path, &token).unwrap();
    (get("/metrics").body, get("/notifications").body)
}

#[test]
fn a_target_that_the_config_no_longer_has_gets_nothing() {
    let receiver = Receiver::start();
    let mut scene = Scene::with_receiver(&receiver, "");
    receiver.answer(&[(500, None); 50]);
    scene.start();
    scene.job("flaky/s");
    wait_until("a failed try", || scene.notifications()[..].iter().find(|view| view["tries"] == 1).cloned());
    let other = Receiver::start();
    let config = notify(&other, "").replace("hook:", "other:").replace("[hook]", "[other]");
    scene.configure(&format!("{config}{FLAKY}"));
    scene.wait_for_states(&["dropped opened"]);
    assert_eq!(scene.notifications()[0]["last_error"], "the config no longer has the target `hook`");
    assert!(!scene.run(&["status"]).contains("not delivered"));
    // The incident is still open, so the new target is told about its end only if a rule sends it there.
    fs::write(scene.path("good"), "").unwrap();
    scene.job("flaky/s");
    scene.job("flaky/s");
    scene.wait_for_states(&["dropped opened", "dropped ended"]);
}

#[test]
fn a_test_reports_what_is_missing() {
    let receiver = Receiver::start();
    let mut scene = Scene::with_receiver(&receiver, "");
    let (code, report) = scene.output(&["notify", "test"]);
    assert_eq!(code, Some(4), "{report}");
    scene.start();
    let (code, report) = scene.output(&["notify", "test", "pager"]);
    assert_eq!(code, Some(5), "{report}");
    assert!(report.contains("there is no notification target \"pager\"; the targets are hook"), "{report}");
    assert!(scene.run(&["notifications"]).contains("no notifications"));
    let mut unset = Scene::with_receiver(&receiver, "");
    unset.variables.clear();
    let checked = unset.run(&["config", "check"]);
    let (_, checked) = (checked.clone(), unset.output(&["config", "check"]).1);
    assert!(checked.contains("the environment variable HOOK_SECRET of this target is not set"), "{checked}");
    unset.start();
    let (code, report) = unset.output(&["notify", "test"]);
    let expected = "hook: not sent: the environment variable HOOK_SECRET is not set\n";
    assert_eq!((code, report.as_str()), (Some(5), expected));
}

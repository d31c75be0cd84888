//! `work release` while the work source cannot be written.

use std::fs;

use super::wait_until;
use super::work::{read, scene};

/// The source can be read but not written: a release or a completion is not done yet, and every verb says so.
#[test]
fn undelivered_release_is_not_reported_as_done() {
    let scene = scene();
    scene.start();
    let job = scene.json(&["trigger", "worker", "poll"]);
    let id = job["id"].as_str().unwrap();
    let blocked = scene.root.join("tasks/.cowhand.new");
    assert_eq!(scene.run(&["work", "claim", "files-one"]).code, Some(0));
    fs::create_dir(&blocked).unwrap();
    scene.write("go", "");
    wait_until("the end of the job", || (scene.job(id)["status"] == "completed").then_some(()));
    let released = scene.run(&["work", "release", "files-two"]);
    assert_eq!(released.code, Some(0), "{}", released.stderr);
    let expected = "files-two will be released when its source accepts it: Do two\n";
    assert_eq!(released.stdout, expected, "{}", released.stderr);
    assert!(released.stderr.contains("cowhand tries again: "), "{}", released.stderr);
    assert!(!released.stderr.contains("cowhand trigger"), "{}", released.stderr);
    let completed = scene.run(&["work", "complete", "files-one"]);
    let expected = "files-one will be completed when its source accepts it: Do one\n";
    assert_eq!((completed.code, completed.stdout.as_str()), (Some(0), expected), "{}", completed.stderr);
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let status = words(scene.run(&["status"]).stdout);
    assert!(status.contains("has not received that files-two is released"), "{status}");
    assert!(!status.contains(&format!("the result of {id}")), "{status}");
    let listed = scene.run(&["work", "list", "--all"]).stdout;
    assert!(listed.contains("closing, not released yet"), "{listed}");
    assert!(listed.contains("closing, not reported yet"), "the completed one: {listed}");
    let shown = scene.run(&["work", "show", "files-two"]).stdout;
    assert!(shown.contains("not released yet: "), "{shown}");
    let refused = scene.run(&["work", "complete", "files-two"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stdout);
    assert!(refused.stderr.contains("has not received that the item is released"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("cowhand work release"), "{}", refused.stderr);
    fs::remove_dir(&blocked).unwrap();
    wait_until("the release", || read(&scene, "two").contains("status: available").then_some(()));
    wait_until("the result", || read(&scene, "one").contains("status: completed").then_some(()));
    // The store records the release after the file has changed.
    wait_until("the end of the release", || {
        (scene.json(&["work", "show", "files-two"])["status"] == "available").then_some(())
    });
    let released = scene.run(&["work", "release", "files-two"]);
    assert!(released.stdout.starts_with("files-two is available already"), "{}", released.stdout);
}

/// The reason of a release is in the file and in the events, also if the item was given up.
#[test]
fn release_of_given_up_item_notes_its_reason() {
    let scene = scene();
    scene.start();
    assert_eq!(scene.run(&["work", "complete", "files-one", "--outcome", "failure"]).code, Some(0));
    assert_eq!(scene.json(&["work", "show", "files-one"])["status"], "given_up");
    let released = scene.run(&["work", "release", "files-one", "--reason", "The server is back."]);
    assert_eq!(released.code, Some(0), "{}", released.stderr);
    let file = read(&scene, "one");
    assert!(file.contains("status: available\n") && file.contains("## Released by "), "{file}");
    assert!(file.ends_with("\n\nThe server is back.\n"), "{file}");
    let events = scene.run(&["events", "--audit"]).stdout;
    assert!(events.contains("The server is back."), "{events}");
}

/// The reason is not lost if the item is available already.
#[test]
fn release_of_available_item_notes_its_reason() {
    let scene = scene();
    scene.start();
    let before = read(&scene, "one");
    let released = scene.run(&["work", "release", "files-one", "--reason", "Look at the log first."]);
    assert_eq!(released.code, Some(0), "{}", released.stderr);
    let file = read(&scene, "one");
    assert!(file.ends_with("\n\nLook at the log first.\n"), "{file}");
    assert!(file.contains("## Released by "), "{file}");
    let events = scene.run(&["events", "--audit"]).stdout;
    assert!(events.contains("Look at the log first."), "{events}");
    let before_two = read(&scene, "two");
    assert_eq!(scene.run(&["work", "release", "files-two"]).code, Some(0));
    assert_eq!(read(&scene, "two"), before_two, "without a reason, nothing is written");
    assert_ne!(before, file);
}

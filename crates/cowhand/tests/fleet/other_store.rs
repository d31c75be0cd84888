//! A daemon does not start with a store that does not know the running agents of its state folder, nor beside a daemon
//! with the same node name.

use std::fs;

use cowhand_testing::postgres::Postgres;
use cowhand_testing::wait_until;

use super::{FLEET, RunResult, Scene, has_ended};

fn with_store(store: &str) -> String {
    format!("{FLEET}store: {store}\n")
}

#[track_caller]
fn assert_refused(said: &RunResult, words: &[&str]) {
    assert_eq!(said.code, Some(6), "{}{}", said.stdout, said.stderr);
    let text = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in words {
        assert!(text.contains(word), "{word:?} in: {text}");
    }
}

#[test]
fn another_store_does_not_end_running_agents() {
    let (former, other) = (Postgres::start(), Postgres::start());
    let scene = Scene::with(&with_store(&former.url()));
    scene.start();
    let (job, agent) = scene.waiting_job();
    let daemon = scene.daemon().unwrap();
    let reason = ["names another store", "cowhand stop", job.as_str()];
    for config in [with_store(&other.url()), FLEET.to_owned(), with_store("")] {
        scene.write("cowhand.yaml", &config);
        let said = scene.run(&["restart"]);
        assert_refused(&said, &reason);
        assert!(said.stderr.contains("Nothing was stopped"), "{}", said.stderr);
        assert_eq!(scene.daemon(), Some(daemon));
        assert!(!has_ended(agent));
    }
    let reloaded = scene.run(&["reload"]);
    let note = "`store` has changed; the change takes effect at the next start";
    assert!(reloaded.stderr.contains(note), "{}", reloaded.stderr);
    assert_eq!(scene.run(&["stop", "--keep-agents"]).code, Some(0));
    for config in [with_store(&other.url()), FLEET.to_owned()] {
        scene.write("cowhand.yaml", &config);
        assert_refused(&scene.run(&["start", "-d"]), &reason);
        assert!(!has_ended(agent));
    }
    assert!(!scene.root.join(".cowhand/store.db").exists());
    scene.write("cowhand.yaml", &with_store(&former.url()));
    scene.start();
    assert_eq!(scene.job(&job)["status"], "running");
    scene.go();
    wait_until("the job to end", || (scene.job(&job)["status"] == "completed").then_some(()));
    // Without running agents, the store can be changed.
    scene.write("cowhand.yaml", FLEET);
    assert_eq!(scene.run(&["restart"]).code, Some(0));
}

#[test]
fn copied_state_folder_does_not_start_as_the_same_node() {
    let server = Postgres::start();
    let (scene, copy) = (Scene::with(&with_store(&server.url())), Scene::with(&with_store(&server.url())));
    scene.start();
    let (job, agent) = scene.waiting_job();
    let folder = copy.root.join(".cowhand");
    fs::create_dir(&folder).unwrap();
    fs::copy(scene.root.join(".cowhand/node"), folder.join("node")).unwrap();
    assert_refused(&copy.run(&["start", "-d"]), &["another daemon runs with the node name", "remove `node`"]);
    assert_eq!(scene.job(&job)["status"], "running");
    assert!(!has_ended(agent));
    fs::remove_file(folder.join("node")).unwrap();
    copy.start();
    // The previous daemon of the same folder does not count.
    scene.kill_daemon();
    scene.start();
    assert_eq!(scene.job(&job)["status"], "running");
}

fn in_one_line(said: &RunResult) -> String {
    format!("{} {}", said.stdout, said.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn verbs_without_daemon_create_no_tables() {
    let server = Postgres::start();
    let scene = Scene::with(&with_store(&server.url()));
    for (verb, code) in [("status", 0), ("jobs", 0), ("doctor", 0), ("usage", 0)] {
        let said = scene.run(&[verb]);
        assert_eq!(said.code, Some(code), "{verb}: {}{}", said.stdout, said.stderr);
        assert_eq!(server.ask("select count(*) from pg_tables where schemaname = 'public'"), "0", "{verb}");
    }
    let said = in_one_line(&scene.run(&["doctor"]));
    assert!(said.contains("store: does not exist yet; the first start creates it"), "{said}");
    scene.start();
}

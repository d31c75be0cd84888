//! The store's file, removed while a daemon runs, damaged or empty.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::http::{deliver, get, get_with_token};
use super::{Fleet, refused, start, wait_for};

fn said(fleet: &Fleet, arguments: &[&str]) -> String {
    let output = fleet.run(arguments);
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn store_of(fleet: &Fleet) -> std::path::PathBuf {
    fleet.path().join(".cowhand/store.db")
}

/// Returns a command that a message advises, with the `-c` of the command that printed it.
fn advised(fleet: &Fleet, verb: &str) -> String {
    format!("`cowhand -c {} {verb} FILE`", fleet.path().display())
}

/// Removes the database and its log, as `rm .cowhand/store.db*` does.
fn unlink(fleet: &Fleet) {
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        fs::remove_file(fleet.path().join(".cowhand").join(name)).unwrap();
    }
}

/// Checks that deliveries are refused, the fleet is not ready, and `status` and `doctor` give the reason and
/// the remedy.
fn refuses_and_says_why(fleet: &Fleet, why: &str) {
    let answer = deliver(fleet.place(), "a/hook", "after").unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body.contains("store_unavailable") && answer.body.contains(why), "{answer:?}");
    let ready = get(fleet.place(), "/readyz").unwrap();
    assert_eq!(ready.status, 503, "{ready:?}");
    assert!(!ready.body.contains(".cowhand"), "nobody without a token learns of paths: {ready:?}");
    assert_eq!(get(fleet.place(), "/healthz").unwrap().status, 200);
    let status = said(fleet, &["status"]);
    let status = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(status.contains(why) && status.contains(&advised(fleet, "backup")), "{status}");
    let doctor = fleet.run(&["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert_eq!(doctor.status.code(), Some(6), "{text}");
    assert!(text.contains("FAIL  store:") && text.contains(why), "{text}");
    let trigger = fleet.run(&["trigger", "a", "-p", "x"]);
    refused(&trigger, 6, &[why]);
}

#[test]
fn deleted_store_refuses_deliveries_and_can_be_backed_up() {
    let mut fleet = Fleet::started();
    assert_eq!(deliver(fleet.place(), "a/hook", "before").unwrap().status, 202);
    wait_for("the first job to end", || ended(&fleet) == 1);
    unlink(&fleet);
    refuses_and_says_why(&fleet, "was removed");
    // The daemon still has the file open, so nothing is lost yet; the advised command works unchanged.
    let saved = fleet.path().join("saved.db");
    let backup = fleet.run(&["backup", saved.to_str().unwrap()]);
    assert!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
    assert_eq!(fleet.run(&["stop", "--keep-agents"]).status.code(), Some(0));
    fleet.ended();
    let restore = fleet.run(&["restore", saved.to_str().unwrap()]);
    assert!(restore.status.success(), "{}", String::from_utf8_lossy(&restore.stderr));
    fleet.start();
    let again = deliver(fleet.place(), "a/hook", "before").unwrap();
    assert_eq!(again.status, 200, "it is known: {again:?}");
    assert_eq!(deliver(fleet.place(), "a/hook", "after").unwrap().status, 202, "this one was never accepted");
    wait_for("the second job to end", || ended(&fleet) == 2);
}

#[test]
fn replaced_store_refuses_deliveries() {
    let fleet = Fleet::started();
    assert_eq!(deliver(fleet.place(), "a/hook", "before").unwrap().status, 202);
    let (file, copy) = (store_of(&fleet), fleet.path().join("copy"));
    fs::copy(&file, &copy).unwrap();
    fs::rename(&copy, &file).unwrap();
    refuses_and_says_why(&fleet, "was replaced");
}

#[test]
fn store_without_its_wal_file_refuses_deliveries() {
    let fleet = Fleet::started();
    assert_eq!(deliver(fleet.place(), "a/hook", "before").unwrap().status, 202);
    fs::remove_file(fleet.path().join(".cowhand/store.db-wal")).unwrap();
    // The file was removed, and is replaced as soon as another connection is opened.
    refuses_and_says_why(&fleet, "store.db-wal, but this file was re");
}

/// A token that was revoked after the backup does not become valid again.
#[test]
fn revoked_token_stays_revoked_after_restore() {
    let mut fleet = Fleet::started();
    let create = |name: &str| {
        let output = fleet.run(&["token", "create", name, "--scope", "admin"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find(|line| line.starts_with("cow_")).unwrap().to_owned()
    };
    let (leaked, kept) = (create("leaked"), create("kept"));
    let saved = fleet.path().join("saved.db");
    assert_eq!(fleet.run(&["backup", saved.to_str().unwrap()]).status.code(), Some(0));
    assert_eq!(fleet.run(&["token", "revoke", "leaked"]).status.code(), Some(0));
    assert_eq!(fleet.run(&["stop"]).status.code(), Some(0));
    fleet.ended();
    let restore = fleet.run(&["restore", saved.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&restore.stdout);
    assert!(text.contains("tokens that were revoked after the backup stay revoked: leaked"), "{text}");
    fleet.start();
    let answers =
        [&leaked, &kept].map(|token| get_with_token(fleet.place(), "/api/v1/status", token).unwrap().status);
    assert_eq!(answers, [401, 200]);
}

/// A store that lost its newest data does not know the agent that runs. No verb calls this in order, and no daemon starts
/// and ends the agent.
#[test]
fn store_that_lost_its_wal_file_does_not_end_agents() {
    let mut fleet = Fleet::started();
    assert_eq!(deliver(fleet.place(), "a/hook", "before").unwrap().status, 202);
    wait_for("the first job to end", || ended(&fleet) == 1);
    assert_eq!(fleet.run(&["stop"]).status.code(), Some(0));
    fleet.ended();
    fleet.start();
    assert_eq!(fleet.run(&["trigger", "waiter", "-p", "x"]).status.code(), Some(0));
    wait_for("the job to run", || statuses(&fleet).contains(&"running".to_owned()));
    fs::remove_file(fleet.path().join(".cowhand/store.db-wal")).unwrap();
    let saved = fleet.path().join("saved.db");
    assert_eq!(fleet.run(&["backup", saved.to_str().unwrap()]).status.code(), Some(0));
    let stop = fleet.run(&["stop", "--keep-agents", "--json"]);
    let stopped: serde_json::Value = serde_json::from_slice(&stop.stdout).unwrap();
    assert_eq!(stopped["running"], 1, "{stopped}");
    fleet.ended();
    for verb in [&["status"][..], &["doctor"], &["start", "-d"]] {
        let output = fleet.run(verb);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("store.db has lost its newest data"), "{verb:?}: {text}");
    }
    assert_eq!(fleet.run(&["restore", saved.to_str().unwrap()]).status.code(), Some(0));
    fleet.start();
    wait_for("the agent to be known", || statuses(&fleet).contains(&"running".to_owned()));
}

#[test]
fn returned_store_accepts_deliveries_again() {
    let fleet = Fleet::started();
    assert_eq!(deliver(fleet.place(), "a/hook", "before").unwrap().status, 202);
    let (file, away) = (store_of(&fleet), fleet.path().join("away"));
    fs::rename(&file, &away).unwrap();
    assert_eq!(deliver(fleet.place(), "a/hook", "1").unwrap().status, 503);
    fs::rename(&away, &file).unwrap();
    assert_eq!(deliver(fleet.place(), "a/hook", "2").unwrap().status, 202);
    assert_eq!(get(fleet.place(), "/readyz").unwrap().status, 200);
}

/// `stop` ends the daemon although the end of a job cannot be written; the next start writes it.
#[test]
fn a_daemon_without_its_store_can_be_stopped() {
    let mut fleet = Fleet::started();
    assert_eq!(fleet.run(&["trigger", "waiter", "-p", "x"]).status.code(), Some(0));
    wait_for("the job to run", || statuses(&fleet) == ["running"]);
    let (file, away) = (store_of(&fleet), fleet.path().join("away"));
    fs::rename(&file, &away).unwrap();
    assert_eq!(fleet.run(&["stop", "--timeout", "0"]).status.code(), Some(0));
    fleet.ended();
    fs::rename(&away, &file).unwrap();
    fleet.start();
    wait_for("the job to be settled", || statuses(&fleet) == ["cancelled"]);
}

#[test]
fn empty_store_file_is_refused() {
    let fleet = Fleet::prepared();
    fs::create_dir(fleet.path().join(".cowhand")).unwrap();
    fs::write(store_of(&fleet), "").unwrap();
    refused(&start(&fleet.path()), 6, &["store.db", "is an empty file", &advised(&fleet, "restore")]);
    let doctor = fleet.run(&["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert_eq!(doctor.status.code(), Some(6), "{text}");
    assert!(text.contains("FAIL  store:") && text.contains("is an empty file"), "{text}");
    refused(&fleet.run(&["jobs"]), 6, &["is an empty file"]);
    assert_eq!(fs::metadata(store_of(&fleet)).unwrap().len(), 0, "it is left as it is");
}

/// `doctor` reports everything for which `start` fails, and both name the remedy.
#[test]
fn doctor_reports_damaged_store_that_start_refuses() {
    let mut fleet = Fleet::started();
    for number in 0..3 {
        assert_eq!(deliver(fleet.place(), "a/hook", &number.to_string()).unwrap().status, 202);
    }
    wait_for("the jobs to end", || ended(&fleet) == 3);
    assert_eq!(fleet.run(&["stop"]).status.code(), Some(0));
    fleet.ended();
    let whole = fs::read(store_of(&fleet)).unwrap();
    let doctor = || (fleet.run(&["doctor"]).status.code(), said(&fleet, &["doctor"]));
    assert_eq!(doctor().0, Some(0), "{}", doctor().1);
    // Pages that `start` reads, and pages that it may not reach.
    for (from, to) in [(1, whole.len() / 4096), (whole.len() / 8192, whole.len() / 4096)] {
        let mut broken = whole.clone();
        broken[from * 4096..to * 4096].fill(0x55);
        fs::write(store_of(&fleet), &broken).unwrap();
        let (code, text) = doctor();
        assert_eq!(code, Some(6), "{text}");
        assert!(text.contains("FAIL  store:") && text.contains(&advised(&fleet, "restore")), "{text}");
        if from == 1 {
            refused(&start(&fleet.path()), 6, &["damaged", &advised(&fleet, "restore")]);
        }
    }
    // An invalid row is not damage to the file.
    fs::write(store_of(&fleet), &whole).unwrap();
    sql(&store_of(&fleet), "update jobs set status = 'done'");
    let (code, text) = doctor();
    assert_eq!(code, Some(6), "{text}");
    assert!(text.contains("FAIL  store:") && text.contains(&advised(&fleet, "restore")), "{text}");
}

pub(crate) fn sql(file: &Path, text: &'static str) {
    rusqlite::Connection::open(file).unwrap().execute_batch(text).unwrap();
}

pub(crate) fn statuses(fleet: &Fleet) -> Vec<String> {
    let jobs = fleet.run(&["jobs", "--json"]);
    let jobs: Vec<Value> = serde_json::from_slice(&jobs.stdout).unwrap_or_default();
    jobs.iter().map(|job| job["status"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn ended(fleet: &Fleet) -> usize {
    statuses(fleet).iter().filter(|status| *status == "completed").count()
}

//! A process is killed while it writes: the file is complete, either the old or the new one.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use cowhand::clock::Clock;
use cowhand::work::WorkSource;
use cowhand::work::files::FilesWorkSource;
use cowhand_core::work::{ClaimResult, ReleaseOptions};

use crate::{Tasks, at, claimant, id};

/// Variable with the folder for the child; without it the child's test does nothing.
const FOLDER: &str = "COWHAND_TEST_CRASH_FOLDER";
const ROUNDS: usize = 8;

fn child(tasks: &Tasks) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "crash::the_process_that_gets_killed", "--nocapture"]);
    child.env(FOLDER, tasks.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    child
}

fn large() -> String {
    format!("---\ntitle: Large\nmine: yes\n---\n{}the end\n", "A line of the body.\n".repeat(40_000))
}

/// Checks that the file is complete, with its body, and can be claimed by a second process.
async fn is_whole(tasks: &Tasks, statuses: &[&str]) {
    let (text, whole) = (tasks.read("large.md"), large());
    let body = whole.split_once("yes\n---\n").unwrap().1;
    assert!(text.starts_with("---\ntitle: Large\nmine: yes\n") && text.ends_with(body), "{text:.200}");
    let item = tasks.source().get_work(&id("files-large")).await.unwrap().unwrap();
    let status = item.metadata["status"].as_str().unwrap();
    assert!(statuses.contains(&status), "{status}");
    tasks.clock.set(at(4_000));
    let claim = tasks.source().claim_work(&id("files-large"), &claimant("next")).await.unwrap();
    assert!(matches!(claim, ClaimResult::Claimed(_)));
    let left: Vec<_> = tasks.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["large.md"], "nothing of the dead writer stays");
}

#[tokio::test]
async fn killed_writer_leaves_complete_file() {
    for round in 0..ROUNDS {
        let tasks = Tasks::new(&[("large.md", &large())]);
        let mut child = child(&tasks).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let written = lines.filter(|line| line == "written").take(round + 1).count();
        assert_eq!(written, round + 1, "the child writes until it is killed");
        child.kill().unwrap();
        child.wait().unwrap();
        is_whole(&tasks, &["available", "claimed"]).await;
    }
}

#[tokio::test]
async fn writer_that_dies_around_rename_leaves_complete_file() {
    for (place, status) in [("work_file_written", "available"), ("work_file_replaced", "claimed")] {
        let tasks = Tasks::new(&[("large.md", &large())]);
        assert!(!child(&tasks).env("COWHAND_FAULT", place).output().unwrap().status.success());
        is_whole(&tasks, &[status]).await;
    }
}

/// The writer that the tests above kill; not a test of its own.
#[tokio::test]
async fn the_process_that_gets_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let source = FilesWorkSource::new(folder, Clock::test(at(0)));
    let (item, by) = (id("files-large"), claimant("victim"));
    println!();
    loop {
        source.claim_work(&item, &by).await.unwrap();
        println!("written");
        source.release_work(&item, &ReleaseOptions::default(), &by).await.unwrap();
        println!("written");
    }
}

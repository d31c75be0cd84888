//! Separate processes that claim the same items.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use cowhand::clock::Clock;
use cowhand::work::WorkSource;
use cowhand::work::files::FilesWorkSource;
use cowhand_core::work::{ClaimFailureReason, ClaimResult};

use crate::{Tasks, at, claimant, id, refusal};

const PROCESSES: usize = 8;
const FILES: usize = 20;
/// Variable with the folder for the child; without it the child's test does nothing.
const FOLDER: &str = "COWHAND_TEST_RACE_FOLDER";

#[test]
fn each_item_is_claimed_by_one_of_eight_processes() {
    let files: Vec<(String, String)> =
        (0..FILES).map(|n| (format!("t{n}.md"), format!("# Task {n}\n"))).collect();
    let tasks =
        Tasks::new(&files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>());
    let mut children: Vec<Child> = (0..PROCESSES)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "races::the_process_that_claims", "--nocapture"])
                .env(FOLDER, tasks.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    // All processes are ready before any of them may start.
    let mut outputs: Vec<_> =
        children.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap())).collect();
    for output in &mut outputs {
        let ready = output.lines().map_while(Result::ok).any(|line| line.contains("ready"));
        assert!(ready, "a claimer did not start");
    }
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let mut winners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (child, mut output) in children.iter_mut().zip(outputs) {
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success(), "{said}");
        for won in said.lines().filter_map(|line| line.strip_prefix("won ")) {
            let (item, holder) = won.split_once(' ').unwrap();
            winners.entry(item.to_owned()).or_default().push(holder.to_owned());
        }
    }
    assert_eq!(winners.len(), FILES, "{winners:?}");
    for (item, holders) in winners {
        assert_eq!(holders.len(), 1, "{item}: {holders:?}");
        let text = tasks.read(&format!("{}.md", item.strip_prefix("files-").unwrap()));
        assert!(text.contains(&format!("claimed_by: home/{}\n", holders[0])), "{text}");
    }
}

/// One of the claimants above; not a test of its own.
#[tokio::test]
async fn the_process_that_claims() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let source = FilesWorkSource::new(folder, Clock::test(at(0)));
    let holder = format!("process-{}", std::process::id());
    println!("\nready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    for n in 0..FILES {
        let item = id(&format!("files-t{n}"));
        match source.claim_work(&item, &claimant(&holder)).await.unwrap() {
            ClaimResult::Claimed(item) => println!("won {} {holder}", item.id),
            lost @ ClaimResult::Refused { .. } => {
                assert_eq!(refusal(&lost).0, ClaimFailureReason::AlreadyClaimed);
            }
        }
    }
}

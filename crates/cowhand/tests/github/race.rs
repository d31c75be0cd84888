//! The race: 32 claimants in 4 processes, each process its own fleet, claim the same 20 issues on `emulate`.
//!
//! `COWHAND_LONG=1` runs 50 rounds. Each round has its own tokens, because `emulate` allows 5,000 requests for each
//! token.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use cowhand::work::WorkSource;
use cowhand::work::github::{ClaimMethod, GitHubSettings, GitHubWorkSource};
use cowhand_core::work::{ClaimFailureReason, ClaimResult};
use serde::{Deserialize, Serialize};

use crate::emulate::{Emulate, source};
use crate::{claim, claimant, id, settings};

const PROCESSES: usize = 4;
const CLAIMERS: usize = 8;
const ISSUES: usize = 20;
const TASK: &str = "COWHAND_TEST_RACE";

#[derive(Serialize, Deserialize)]
struct Task {
    url: String,
    token: String,
    fleet: String,
    issues: Vec<u64>,
    by_label_alone: bool,
    /// Number of issues that a claimant claims together.
    at_once: usize,
}

/// Runs in one of the four processes: the test starts itself again with a task. Without a task it does
/// nothing.
#[test]
fn claimers_of_one_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let task: Task = serde_json::from_str(&task).unwrap();
    let mut settings = settings(&task.url);
    if task.by_label_alone {
        settings = GitHubSettings { claim_method: ClaimMethod::LabelOnly, ..settings };
    }
    let claimers = async || {
        // All slow steps come before the start.
        let sources: Vec<_> = (0..CLAIMERS).map(|_| source(settings.clone(), &task.token)).collect();
        println!("\nup");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let claimer = async |place: usize| {
            let holder = format!("{}-job-{place}", task.fleet);
            for issues in task.issues.chunks(task.at_once) {
                for (issue, claimed) in claim_all(&sources[place], issues, &holder).await {
                    match claimed {
                        Ok(()) => println!("\nwon {issue} {holder}"),
                        Err(reason) => println!("\nlost {issue} {reason:?}"),
                    }
                }
            }
        };
        futures_util::future::join_all((0..CLAIMERS).map(claimer)).await;
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(claimers());
}

async fn claim_all(
    source: &GitHubWorkSource,
    issues: &[u64],
    holder: &str,
) -> Vec<(u64, Result<(), ClaimFailureReason>)> {
    if let &[issue] = issues {
        return vec![(issue, claim(source, issue, holder).await)];
    }
    let claims: Vec<_> = issues.iter().map(|&issue| (id(issue), claimant(holder))).collect();
    let claimed = source.claim_all(&claims).await.into_iter().map(|result| match result.unwrap() {
        ClaimResult::Claimed(_) => Ok(()),
        ClaimResult::Refused { reason, .. } => Err(reason),
    });
    issues.iter().copied().zip(claimed).collect()
}

struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(task: &Task) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "race::claimers_of_one_process", "--nocapture"])
            .env(TASK, serde_json::to_string(task).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self { child, lines };
        assert!(process.lines.any(|line| line.unwrap() == "up"));
        process
    }
}

/// Runs a round; returns the winners of each issue, and the number of answered claims.
async fn round(
    emulate: &Emulate,
    tokens: &[String],
    by_label_alone: bool,
    at_once: usize,
) -> (BTreeMap<u64, Vec<String>>, usize) {
    let mut issues = Vec::new();
    for _ in 0..ISSUES {
        issues.push(emulate.add(&tokens[0], "Take me").await);
    }
    let task = |(place, token): (usize, &String)| Task {
        url: emulate.url().to_owned(),
        token: token.clone(),
        fleet: format!("fleet-{place}"),
        issues: issues.clone(),
        by_label_alone,
        at_once,
    };
    let mut processes: Vec<Process> =
        tokens.iter().enumerate().map(|token| Process::start(&task(token))).collect();
    for process in &mut processes {
        process.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let mut winners: BTreeMap<u64, Vec<String>> = issues.iter().map(|&issue| (issue, Vec::new())).collect();
    let mut answers = 0;
    for mut process in processes {
        for line in process.lines.by_ref() {
            let line = line.unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["won", issue, holder] => {
                    winners.get_mut(&issue.parse().unwrap()).unwrap().push(holder.to_owned());
                    answers += 1;
                }
                ["lost", _, "AlreadyClaimed"] => answers += 1,
                ["lost", ..] => panic!("{line}"),
                _ => {}
            }
        }
        assert!(process.child.wait().unwrap().success());
    }
    (winners, answers)
}

fn tokens(rounds: usize) -> Vec<Vec<String>> {
    let of_round = |round| (0..PROCESSES).map(|fleet| format!("fleet-{fleet}-{round}")).collect();
    (0..rounds).map(of_round).collect()
}

#[tokio::test]
async fn every_issue_has_one_winner() {
    let long = std::env::var_os("COWHAND_LONG").is_some_and(|value| value == "1");
    have_one_winner(if long { 50 } else { 5 }, 1).await;
}

/// Each claimant claims eight issues together.
#[tokio::test]
async fn every_issue_has_one_winner_when_several_are_claimed_together() {
    have_one_winner(2, 8).await;
}

async fn have_one_winner(rounds: usize, at_once: usize) {
    let tokens = tokens(rounds);
    let emulate = Emulate::start(&tokens.concat());
    let mut fleets = BTreeMap::<String, usize>::new();
    for tokens in &tokens {
        let (winners, answers) = round(&emulate, tokens, false, at_once).await;
        assert_eq!(answers, PROCESSES * CLAIMERS * ISSUES);
        for (issue, winners) in winners {
            let [winner] = &winners[..] else { panic!("issue {issue} has {winners:?}") };
            let (labels, _, comments) = emulate.look(&tokens[0], issue).await;
            assert_eq!(labels, ["agent-working"], "issue {issue}");
            assert!(
                comments.len() == 1 && comments[0].contains(winner),
                "issue {issue}: {winner}: {comments:?}"
            );
            *fleets.entry(winner[..7].to_owned()).or_default() += 1;
        }
    }
    println!("{} rounds, {} issues, one winner each: {fleets:?}", tokens.len(), tokens.len() * ISSUES);
}

/// Shows why markers are needed: with labels alone, several win.
#[tokio::test]
async fn without_markers_several_win() {
    let tokens = tokens(1);
    let emulate = Emulate::start(&tokens.concat());
    let (winners, answers) = round(&emulate, &tokens[0], true, 1).await;
    assert_eq!(answers, PROCESSES * CLAIMERS * ISSUES);
    let shared = winners.values().filter(|winners| winners.len() > 1).count();
    println!("labels alone: {shared} of {ISSUES} issues have several winners");
    assert!(shared > 0);
}

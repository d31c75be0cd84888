//! Fault campaigns: a fleet works while a fault is injected again and again, and a checker compares the
//! accepted work with the work that ran. `scripts/faults` runs them and prints the table; `--long` runs more
//! rounds, and `--postgres` uses a PostgreSQL server for the store. Requires root.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a campaign that cannot go on fails")]

mod campaigns;
mod check;
mod fleet;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use check::Counts;
use cowhand_testing::{disk, http, tmpfs};

/// Fault campaign with its name, its description and its function.
struct Campaign {
    name: &'static str,
    about: &'static str,
    /// The only kind of store for which the fault exists; `None` if it exists for both.
    store: Option<StoreKind>,
    run: fn(Setting) -> Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Sqlite,
    Postgres,
}

/// How the campaigns run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// Whether the campaigns have many rounds.
    is_long: bool,
    pub(crate) store: StoreKind,
}

impl Setting {
    /// Returns the number of rounds.
    pub(crate) const fn of(self, few: u32, many: u32) -> u32 {
        if self.is_long { many } else { few }
    }
}

/// Number of campaigns that run at the same time. Campaigns mostly wait.
const AT_ONCE: usize = 3;

/// Result of a campaign.
struct Ran {
    campaign: &'static Campaign,
    counts: Option<Counts>,
    took: Duration,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    // cargo-nextest queries a test binary with these options.
    if has("--list") {
        if !has("--ignored") {
            for campaign in campaigns::ALL {
                println!("{}: test", campaign.name);
            }
        }
        return ExitCode::SUCCESS;
    }
    let is_long = has("--long") || std::env::var_os("COWHAND_LONG").is_some();
    let store = if has("--postgres") { StoreKind::Postgres } else { StoreKind::Sqlite };
    let setting = Setting { is_long, store };
    let names: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let chosen = |campaign: &&Campaign| {
        let is_for_store = campaign.store.is_none_or(|only| only == store);
        if names.is_empty() { is_for_store } else { names.contains(&&campaign.name.to_owned()) }
    };
    let waiting: Vec<&'static Campaign> = campaigns::ALL.iter().filter(chosen).collect();
    assert!(!waiting.is_empty(), "there is no such campaign; `--list` names them");
    let begin = Instant::now();
    let ran = run_all(waiting, setting);
    print_table(&ran);
    println!("{} s", begin.elapsed().as_secs());
    if ran.iter().all(|ran| ran.counts.is_some()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_all(mut waiting: Vec<&'static Campaign>, setting: Setting) -> Vec<Ran> {
    waiting.reverse();
    let (waiting, ran) = (Mutex::new(waiting), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(campaign) = waiting.lock().unwrap().pop() else { return };
                    let begin = Instant::now();
                    let setting = Setting { store: campaign.store.unwrap_or(setting.store), ..setting };
                    // The message of the panic is on standard error; the name of the campaign follows.
                    let counts = catch_unwind(AssertUnwindSafe(|| (campaign.run)(setting))).ok();
                    if counts.is_none() {
                        eprintln!("campaign {} failed", campaign.name);
                    }
                    ran.lock().unwrap().push(Ran { campaign, counts, took: begin.elapsed() });
                }
            });
        }
    });
    let mut ran = ran.into_inner().unwrap();
    ran.sort_by_key(|ran| campaigns::ALL.iter().position(|campaign| campaign.name == ran.campaign.name));
    ran
}

fn print_table(ran: &[Ran]) {
    println!(
        "| campaign | faults | accepted | refused meanwhile | jobs | completed | ended otherwise | deliveries lost \
         | run twice | unsettled | processes left | seconds |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for Ran { campaign, counts, took } in ran {
        let (name, seconds) = (campaign.about, took.as_secs());
        match counts {
            // The check fails at the first delivery that is lost, run twice, unsettled or left, so these
            // counts are 0.
            Some(Counts { faults, accepted, refused, jobs, completed, otherwise }) => println!(
                "| {name} | {faults} | {accepted} | {refused} | {jobs} | {completed} | {otherwise} | 0 | 0 | 0 | 0 | {seconds} |"
            ),
            None => println!("| {name} | FAILED | | | | | | | | | | {seconds} |"),
        }
    }
}

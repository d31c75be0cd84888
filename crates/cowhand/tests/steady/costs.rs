//! What a firing and its job cost the whole program: syncs, files, processes and statements. 10,000 schedules
//! cost no more than 10. No time is measured.
//!
//! One schedule fires again and again; all others wait for New Year. The costs of one job are counted from the start of
//! its attempt to the start of the next attempt. The median of some jobs is compared, because now and then the daemon
//! also does something that belongs to no job: it writes its clock, or SQLite copies its log into the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cowhand::clock::Clock;
use cowhand::fleet::{AgentSource, Fleet, Options, Stop};
use cowhand::state::StateFolder;
use cowhand::work::SourceRegistry;
use cowhand_testing::wait_or_report;
use tempfile::TempDir;

use super::Scene;

/// Numbers of schedules, ten for each agent.
const FLEETS: [usize; 2] = [10, 10_000];
/// Number of jobs whose costs are counted, after the first job.
const JOBS: usize = 7;

/// Programs that a job executes: its agent. Its keeper is a copy of the spawner.
const PROGRAMS_PER_JOB: usize = 1;
/// Processes that a job starts: its keeper and its agent.
const PROCESSES_PER_JOB: usize = 2;
/// Three commits of the store (firing with claim; directory and runtime; end). Three syncs of the keeper: the folder of
/// the attempt and its parent before the agent starts, and the outcome.
const SYNCS_PER_JOB: usize = 6;
/// Files that are opened to be created. In the folder of the attempt: `lock` (twice), `prompt`, `stdout`, `stderr`,
/// `start.json`, `keeper.log`, `keeper.json`, `index`, `cgroup`, `agent.json` and `ending.reserved`. Outside of it: the
/// output of the job and `outcomes.jsonl`.
const FILES_PER_JOB: usize = 14;
/// The folder of the attempt and its control group; `talk` and `jobs`, which exist.
const FOLDERS_PER_JOB: usize = 4;
/// The record of the job, `state.yaml` and `views`: once for the start and once for the end, and once more if the start
/// takes long.
const VIEWS_PER_JOB: usize = 9;
/// Statements of the store, and rows that they return or change: 57 statements are counted in
/// `engine/tests/ticks/cost.rs`, and the others prepare the attempt, follow events and read the views. Now and then the
/// views are written once more, with 12 statements.
const STATEMENTS_PER_JOB: u64 = 100;
const ROWS_PER_JOB: u64 = 130;

/// System calls that sync a file, start a process or create a file.
const TRACED: &str = "trace=fsync,fdatasync,sync_file_range,syncfs,sync,execve,execveat,clone,clone3,fork,vfork,\
                      open,openat,openat2,creat,mkdir,mkdirat";

/// Returns a config in which one schedule fires a second after the end of its previous job.
fn config(schedules: usize) -> String {
    let mut config = "agents:\n".to_owned();
    for agent in 0..schedules / 10 {
        write!(config, "- {{name: a{agent}, runtime: command, command: [/bin/true], schedules: {{").unwrap();
        for schedule in 0..10 {
            let trigger = match (agent, schedule) {
                (0, 0) => "type: interval, interval: 1s, jitter: 0",
                _ => "type: cron, expression: '0 0 1 1 *'",
            };
            write!(config, "s{schedule}: {{{trigger}, prompt: Work.}}, ").unwrap();
        }
        config += "}}\n";
    }
    config
}

/// Kinds of system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CallKind {
    Sync,
    Program,
    Process,
    File,
    Folder,
    View,
}

/// Kind of the call in a line of strace; `None` if the call does not count.
fn kind_of(line: &str) -> Option<CallKind> {
    // `PID CALL(ARGUMENTS) = RESULT`. The second half of an interrupted call does not begin with its name.
    let (name, arguments) = line.split_once(' ')?.1.trim_start().split_once('(')?;
    match name {
        "fsync" | "fdatasync" | "sync_file_range" | "syncfs" | "sync" => Some(CallKind::Sync),
        "execve" | "execveat" => Some(CallKind::Program),
        "clone" | "clone3" | "fork" | "vfork" => {
            (!arguments.contains("CLONE_THREAD")).then_some(CallKind::Process)
        }
        "mkdir" | "mkdirat" => Some(CallKind::Folder),
        "open" | "openat" | "openat2" | "creat" => {
            let path = arguments.split('"').nth(1)?;
            let (folder, file) = path.rsplit_once('/')?;
            let is_created = name == "creat" || arguments.contains("O_CREAT");
            let is_view = file.starts_with(".tmp") && !folder.contains("/attempts/");
            // SQLite creates its log when it needs it.
            let counts = is_created && !file.starts_with("store.db");
            counts.then_some(if is_view { CallKind::View } else { CallKind::File })
        }
        _ => None,
    }
}

/// Counts the calls of each job in the output of strace.
fn calls_of_jobs(trace: &str) -> Vec<BTreeMap<CallKind, usize>> {
    let mut jobs: Vec<BTreeMap<CallKind, usize>> = Vec::new();
    for line in trace.lines() {
        if line.contains("mkdir(") && line.contains("/attempts/job-") {
            jobs.push(BTreeMap::new());
        }
        if let (Some(job), Some(kind)) = (jobs.last_mut(), kind_of(line)) {
            *job.entry(kind).or_default() += 1;
        }
    }
    jobs
}

fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Runs the daemon under strace until some jobs have ended, and returns the median of each kind of call for each job.
fn calls_per_job(schedules: usize) -> BTreeMap<CallKind, usize> {
    let mut scene = Scene { folder: TempDir::new().unwrap(), daemon: None };
    fs::write(scene.path("cowhand.yaml"), config(schedules)).unwrap();
    let log = fs::File::create(scene.path("log")).unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "--seccomp-bpf", "-e", TRACED, "-o"]).arg(scene.path("trace"));
    strace.arg(env!("CARGO_BIN_EXE_cowhand")).args(["start", "--no-server", "-c"]).arg(scene.folder.path());
    let daemon = strace.stdout(Stdio::null()).stderr(log).spawn();
    scene.daemon =
        Some(daemon.unwrap_or_else(|error| panic!("strace: {error}; scripts/test installs strace")));
    let report = || scene.read("log");
    // The last job is not counted, because its counts are not complete.
    wait_or_report(Duration::from_mins(2), "the jobs", report, || {
        (calls_of_jobs(&scene.read("trace")).len() > JOBS + 1).then_some(())
    });
    let trace = scene.read("trace");
    // The first line is the start of the daemon. strace ends with it.
    Command::new("kill").args(trace.split_whitespace().take(1)).status().unwrap();
    let status = scene.daemon.take().unwrap().wait().unwrap();
    assert!(status.success(), "{status}:\n{}", scene.read("log"));
    let jobs = calls_of_jobs(&trace);
    let jobs = &jobs[1..=JOBS];
    let kinds = [
        CallKind::Sync,
        CallKind::Program,
        CallKind::Process,
        CallKind::File,
        CallKind::Folder,
        CallKind::View,
    ];
    let count = |kind| median(jobs.iter().map(|job| job.get(&kind).copied().unwrap_or_default()).collect());
    kinds.into_iter().map(|kind| (kind, count(kind))).collect()
}

#[test]
fn each_job_costs_the_same_syncs_files_and_processes() {
    let runs = FLEETS.map(|schedules| std::thread::spawn(move || calls_per_job(schedules)));
    let [small, large] = runs.map(|run| run.join().unwrap());
    println!("with {FLEETS:?} schedules: {small:?} {large:?}");
    let limits = [
        (CallKind::Sync, SYNCS_PER_JOB),
        (CallKind::Program, PROGRAMS_PER_JOB),
        (CallKind::Process, PROCESSES_PER_JOB),
        (CallKind::File, FILES_PER_JOB),
        (CallKind::Folder, FOLDERS_PER_JOB),
        (CallKind::View, VIEWS_PER_JOB),
    ];
    for (kind, limit) in limits {
        assert!(small[&kind] <= limit, "{kind:?}: {} for each job, at most {limit} expected", small[&kind]);
        // A large `state.yaml` is written less often.
        let is_equal = kind == CallKind::View && large[&kind] <= limit || large[&kind] == small[&kind];
        assert!(
            is_equal,
            "{kind:?}: {} in a small fleet and {} in a large fleet",
            small[&kind], large[&kind]
        );
    }
}

/// Returns the median of the statements and of the rows of each job, in a fleet that runs in this process.
async fn statements_per_job(schedules: usize) -> (u64, u64) {
    /// Time without a statement, after which everything that belongs to a job is written.
    const QUIET: Duration = Duration::from_millis(400);
    let folder = TempDir::new().unwrap();
    let config_file = folder.path().join("cowhand.yaml");
    fs::write(&config_file, config(schedules)).unwrap();
    let state = folder.path().join("state");
    let options = Options {
        node: cowhand::fleet::NodeOptions::default(),
        agents: AgentSource::Config(config_file),
        state: StateFolder::at(state.clone()),
        clock: Clock::System,
        program: env!("CARGO_BIN_EXE_cowhand").into(),
        work_sources: SourceRegistry::default(),
        triggers: cowhand::trigger::Registry::default(),
        fresh: false,
    };
    let fleet = Fleet::start(options).await.unwrap();
    let ended = || fs::read_to_string(state.join("outcomes.jsonl")).unwrap_or_default().lines().count();
    let deadline = Instant::now() + Duration::from_mins(2);
    let (mut costs, mut last) = (Vec::new(), None);
    while costs.len() < JOBS {
        let (jobs, counts) = (ended(), fleet.store().statement_counts());
        let since = Instant::now();
        while since.elapsed() < QUIET && (ended(), fleet.store().statement_counts()) == (jobs, counts) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(Instant::now() < deadline, "{jobs} jobs, {costs:?}");
        if since.elapsed() < QUIET {
            continue;
        }
        match last {
            Some((before, _)) if before == jobs => continue,
            Some((before, old)) if before + 1 == jobs && before > 0 => {
                let old: cowhand::store::StatementCounts = old;
                costs.push((counts.statements - old.statements, counts.rows - old.rows));
            }
            _ => {}
        }
        last = Some((jobs, counts));
    }
    fleet.stop(Stop::Cancel).await.unwrap();
    println!("with {schedules} schedules: statements and rows of each job: {costs:?}");
    let median_of = |count: fn(&(u64, u64)) -> u64| median(costs.iter().map(count).collect());
    (median_of(|cost| cost.0), median_of(|cost| cost.1))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_costs_no_more_statements_in_a_large_fleet() {
    let [small, large] = FLEETS.map(statements_per_job);
    let (small, large) = tokio::join!(small, large);
    // The counts are not equal, because the views of a large fleet are written less often.
    for (statements, rows) in [small, large] {
        let is_within = statements <= STATEMENTS_PER_JOB && rows <= ROWS_PER_JOB;
        assert!(is_within, "with {FLEETS:?} schedules: {small:?} and {large:?}");
    }
}

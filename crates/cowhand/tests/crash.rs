//! The whole program, killed again and again: no firing is lost or run twice, no process is left, every job
//! is settled.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cowhand::store::{JobFilter, Store};
use cowhand_core::budget::{Amount, Budget, microdollars};
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::schedule::FiringOutcome;
use cowhand_testing::postgres::Postgres;
use cowhand_testing::process::processes;
use cowhand_testing::{on_both, wait_or_report};
use jiff::Timestamp;
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

/// Fleet in its own folder. Its agents record their starts.
struct Fleet {
    folder: TempDir,
    daemon: Option<Child>,
    server: Option<Postgres>,
}

impl Fleet {
    fn on(database: &str) -> Self {
        let server = (database == "postgres").then(Postgres::start);
        Self { folder: tempfile::tempdir().unwrap(), daemon: None, server }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn starts(&self) -> PathBuf {
        self.path().join("starts")
    }

    /// Writes a config with `agents` agents. Each runs every `interval`, for a moment or as long as a file `hold`
    /// exists. `env` is the environment of their keepers.
    fn write_config(&self, agents: usize, interval: &str, enabled: bool, env: &str) {
        let store =
            self.server.as_ref().map(|server| format!("store: {}\n", server.url())).unwrap_or_default();
        let mut text = format!("{store}agents:\n");
        let script = format!(
            "echo $COWHAND_JOB_ID >> '{}'; echo working; sleep 0.2; while [ -e hold ]; do sleep 0.05; done; echo done",
            self.starts().display()
        );
        for number in 0..agents {
            write!(
                text,
                "  - name: a{number}\n    runtime: command\n    command: [sh, -c, \"{script}\"]\n    env: {{{env}}}\n    \
                 schedules:\n      s: {{type: interval, interval: {interval}, enabled: {enabled}, jitter: 0}}\n"
            )
            .unwrap();
        }
        std::fs::write(self.path().join("cowhand.yaml"), text).unwrap();
    }

    /// Writes a config with agents that spend and report one cent at a time; each job has a budget of five cents, and
    /// spends more if nobody stops it.
    fn write_spenders(&self, agents: usize, enabled: bool) {
        let store =
            self.server.as_ref().map(|server| format!("store: {}\n", server.url())).unwrap_or_default();
        let mut text = format!("{store}budget: {{per_month_usd: 100000, per_job_usd: 0.05}}\nagents:\n");
        let line = r#"{"type":"assistant","content":"x","usage":{"input_tokens":7,"cost_usd":0.01}}"#;
        let script = format!("for i in 1 2 3 4 5 6 7 8; do echo '{line}'; echo . >> spent; sleep 0.05; done");
        for number in 0..agents {
            write!(
                text,
                "  - name: a{number}\n    runtime: command\n    command: [sh, -c, {script:?}]\n    \
                 breaker: {{failures: 0}}\n    \
                 schedules:\n      s: {{type: interval, interval: 1s, enabled: {enabled}, jitter: 0}}\n"
            )
            .unwrap();
        }
        std::fs::write(self.path().join("cowhand.yaml"), text).unwrap();
    }

    /// Returns the spending that all agents have reported, in cents.
    fn cents_said(&self) -> usize {
        let files = std::fs::read_dir(self.path().join(".cowhand/jobs")).into_iter().flatten().flatten();
        let jsonl = files.map(|file| file.path()).filter(|path| path.extension() == Some("jsonl".as_ref()));
        let said = jsonl.filter_map(|path| std::fs::read_to_string(path).ok());
        said.map(|text| text.matches("\"cost_usd\":0.01").count()).sum()
    }

    /// Returns the spending that the agents have recorded in the file `spent`, in cents. They record each cent after
    /// reporting it.
    fn cents_spent(&self) -> usize {
        std::fs::read_to_string(self.path().join("spent")).unwrap_or_default().lines().count()
    }

    /// Starts the daemon, and returns whether it became ready before it died.
    fn start(&mut self, fault: Option<&str>) -> bool {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command.args(["start", "--no-server", "-c"]).arg(self.path()).args(["--stop-timeout", "30"]);
        command.stdout(Stdio::piped()).stderr(std::fs::File::create(self.path().join("log")).unwrap());
        if let Some(fault) = fault {
            command.env("COWHAND_FAULT", fault);
        }
        let mut daemon = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.daemon = Some(daemon);
        line.starts_with("ready")
    }

    fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    fn wait_for(&self, what: &str, mut look: impl FnMut(&Self) -> bool) {
        wait_or_report(Duration::from_mins(1), what, || self.log(), || look(self).then_some(()));
    }

    /// Returns the folders of all attempts so far.
    fn attempts(&self) -> Vec<PathBuf> {
        let folders =
            std::fs::read_dir(self.path().join(".cowhand/attempts")).into_iter().flatten().flatten();
        folders.map(|folder| folder.path()).collect()
    }

    fn events(&self) -> String {
        let mut events = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        let events =
            events.args(["events", "--json", "--limit", "1000", "-c"]).arg(self.path()).output().unwrap();
        String::from_utf8(events.stdout).unwrap()
    }

    /// Waits until the daemon dies at its planned fault.
    fn wait_for_death(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        wait_or_report(
            Duration::from_mins(1),
            "the planned fault",
            || self.log(),
            || daemon.try_wait().unwrap(),
        );
    }

    fn kill_a_keeper(&self) {
        let keepers = processes(|cmdline, _| cmdline.contains(&format!("keeper {}", self.path().display())));
        if let Some(pid) = fastrand::choice(keepers) {
            kill_process(pid, Signal::KILL).ok();
        }
    }

    fn store_url(&self) -> String {
        let file = || self.path().join(".cowhand/store.db").display().to_string();
        self.server.as_ref().map_or_else(file, Postgres::url)
    }

    /// Turns off the schedules, and runs the daemon until everything is settled.
    async fn settle_everything(&mut self, agents: usize) -> Vec<Job> {
        self.write_config(agents, "2s", false, "");
        self.settle().await
    }

    async fn settle(&mut self) -> Vec<Job> {
        assert!(self.start(None), "{}", self.log());
        let store = Store::open(&self.store_url()).await.unwrap();
        // Wait as long as the number of open jobs decreases.
        let (mut fewest, mut patience) = (usize::MAX, Instant::now());
        loop {
            let open = store.snapshot().await.unwrap().jobs.len();
            if open == 0 {
                break;
            }
            if open < fewest {
                (fewest, patience) = (open, Instant::now() + Duration::from_mins(1));
            }
            assert!(Instant::now() < patience, "{open} jobs were not settled:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut daemon = self.daemon.take().unwrap();
        Command::new("kill").arg(daemon.id().to_string()).status().unwrap();
        assert!(daemon.wait().unwrap().success(), "{}", self.log());
        let jobs = store.jobs(JobFilter::default(), 1_000_000).await.unwrap();
        store.close().await;
        jobs
    }

    /// Checks the conditions that hold after every fault.
    async fn check(&mut self, agents: usize) -> Vec<Job> {
        let jobs = self.settle_everything(agents).await;
        let mut starts: HashMap<String, u32> = HashMap::new();
        for line in std::fs::read_to_string(self.starts()).unwrap_or_default().lines() {
            *starts.entry(line.to_owned()).or_default() += 1;
        }
        for job in &jobs {
            let started = starts.remove(job.id().as_str()).unwrap_or_default();
            assert!(started <= 1, "{} ran {started} times", job.id());
            if job.status() == JobStatus::Completed {
                assert_eq!(started, 1, "{} completed without having run", job.id());
            }
        }
        assert!(starts.is_empty(), "started but not known: {starts:?}");
        let store = Store::open(&self.store_url()).await.unwrap();
        for schedule in store.schedules().await.unwrap() {
            for row in store.ledger(schedule.id, 1_000_000).await.unwrap() {
                assert_eq!(row.outcome, FiringOutcome::Ran);
                assert!(jobs.iter().any(|job| Some(job.id()) == row.job.as_ref()), "{} has no job", row.key);
            }
        }
        for job in &jobs {
            let view = self.path().join(".cowhand/jobs").join(format!("{}.yaml", job.id()));
            let view =
                std::fs::read_to_string(&view).unwrap_or_else(|error| panic!("{}: {error}", view.display()));
            let status = format!("\nstatus: {}\n", job.status());
            assert!(view.contains(&status), "the view of {} says otherwise:\n{view}", job.id());
        }
        let of_ours = |_: &str, environment: &str| {
            environment.contains("COWHAND_ATTEMPT_ID=")
                && jobs.iter().any(|job| environment.contains(job.id().as_str()))
        };
        // A keeper ends a moment after it has written the end of its attempt.
        self.wait_for("nothing to be left behind", |_| processes(of_ours).is_empty());
        jobs
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().ok();
            daemon.wait().ok();
        }
        let ours = self.path().display().to_string();
        for pid in processes(|cmdline, _| cmdline.contains(&ours)) {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

on_both! {
    the_daemon_dies_while_it_recovers,
    random_kills_while_fifty_schedules_fire,
    twenty_kills_never_forget_a_cent,
}

/// Declares a test for each place of a fault.
macro_rules! dies_at {
    ($dies:ident($database:literal): $($place:ident)+) => {
        $(#[tokio::test] async fn $place() { crate::$dies($database, stringify!($place)).await; })+
    };
}

/// The daemon dies at each of its durable transitions, the first or the fourth time that it reaches the transition.
mod the_daemon_dies_at {
    mod sqlite {
        dies_at! { the_daemon_dies("sqlite"): fired claimed launched ended read settled viewed }
    }
    mod postgres {
        dies_at! { the_daemon_dies("postgres"): fired claimed launched ended read settled viewed }
    }
}

async fn the_daemon_dies(database: &str, place: &str) {
    for turn in [1, 4] {
        let mut fleet = Fleet::on(database);
        fleet.write_config(3, "1s", true, "");
        fleet.start(Some(&format!("{place}:{turn}")));
        fleet.wait_for_death();
        let jobs = fleet.check(3).await;
        let failed: Vec<_> = jobs.iter().filter(|job| job.status() != JobStatus::Completed).collect();
        assert!(failed.is_empty(), "turn {turn}: agents outlive the daemon, so all complete: {failed:?}");
        assert!(!jobs.is_empty());
    }
}

/// Views are rewritten and never read back.
#[tokio::test]
async fn deleted_or_damaged_views_are_rewritten() {
    let mut fleet = Fleet::on("sqlite");
    fleet.write_config(2, "1s", true, "");
    assert!(fleet.start(None));
    let jobs = fleet.path().join(".cowhand/jobs");
    let ended = |view: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(view.unwrap().path()).is_ok_and(|text| text.contains("status: completed"))
    };
    fleet.wait_for("two jobs to be done", |_| {
        std::fs::read_dir(&jobs).unwrap().filter_map(|view| ended(view).then_some(())).count() >= 2
    });
    fleet.kill();
    for view in std::fs::read_dir(&jobs)
        .unwrap()
        .flatten()
        .filter(|view| view.path().extension() == Some("yaml".as_ref()))
    {
        std::fs::remove_file(view.path()).unwrap();
    }
    std::fs::write(
        fleet.path().join(".cowhand/state.yaml"),
        "agents: {a0: {schedules: {s: {status: disabled}}}}",
    )
    .unwrap();
    std::fs::write(fleet.path().join(".cowhand/views"), "not a number").unwrap();
    fleet.check(2).await;
    let state = std::fs::read_to_string(fleet.path().join(".cowhand/state.yaml")).unwrap();
    assert!(state.starts_with("# A view of the store: editing it changes nothing."), "{state}");
    assert!(state.contains("last_run_at: \""), "{state}");
}

/// The daemon dies while it recovers the attempts of an earlier one.
async fn the_daemon_dies_while_it_recovers(database: &str) {
    let mut fleet = Fleet::on(database);
    fleet.write_config(3, "1s", true, "");
    let hold = fleet.path().join("hold");
    std::fs::write(&hold, "").unwrap();
    assert!(fleet.start(None));
    fleet.wait_for("an attempt to begin", |fleet| !fleet.attempts().is_empty());
    fleet.kill();
    fleet.start(Some("adopted:1"));
    fleet.wait_for_death();
    std::fs::remove_file(hold).unwrap();
    fleet.check(3).await;
}

/// A keeper dies at each of its steps; no agent runs twice, and an attempt with an unknown end is lost.
mod a_keeper_dies_when {
    dies_at! { a_keeper_dies("sqlite"): waiting ready spawned watching ended done }
}

async fn a_keeper_dies(database: &str, place: &str) {
    let mut fleet = Fleet::on(database);
    fleet.write_config(2, "3s", true, &format!("COWHAND_FAULT: keeper-{place}"));
    assert!(fleet.start(None));
    // A keeper writes this file before it reaches any of the places except the first.
    let dead = |folder: &PathBuf| {
        let keeper = format!("keeper {}", folder.display());
        folder.join("keeper.json").exists() && processes(|line, _| line.contains(&keeper)).is_empty()
    };
    fleet.wait_for("two keepers to die", |fleet| match place {
        "waiting" => fleet.events().matches("\"job:requeued\"").count() >= 2,
        // After the end of the attempt, its folder is removed.
        "done" => fleet.events().matches("\"job:completed\"").count() >= 2,
        _ => fleet.attempts().iter().filter(|folder| dead(folder)).count() >= 2,
    });
    let told = |folder: &PathBuf| folder.join("ending.json").exists();
    for folder in fleet.attempts().into_iter().filter(|folder| place != "done" && dead(folder)) {
        assert!(!told(&folder), "it died where it was to");
    }
    fleet.kill();
    let jobs = fleet.check(2).await;
    for job in &jobs {
        let status = job.status();
        let expected = match place {
            // An attempt that never began runs again, in the last start without the fault.
            "waiting" | "done" => status == JobStatus::Completed,
            _ => status == JobStatus::Failed || status == JobStatus::Completed,
        };
        assert!(expected, "{job:?}");
    }
    assert!(!jobs.is_empty());
}

/// Fifty schedules fire while daemon and keepers are killed at random: 20 kills, 200 with `scripts/test --long`.
async fn random_kills_while_fifty_schedules_fire(database: &str) {
    let kills = if std::env::var_os("COWHAND_LONG").is_some() { 200 } else { 20 };
    let mut fleet = Fleet::on(database);
    fleet.write_config(50, "3s", true, "");
    for round in 0..kills {
        assert!(fleet.start(None), "round {round}: {}", fleet.log());
        std::thread::sleep(Duration::from_millis(fastrand::u64(50..1_200)));
        if round % 3 == 0 {
            fleet.kill_a_keeper();
            std::thread::sleep(Duration::from_millis(fastrand::u64(0..100)));
        }
        fleet.kill();
    }
    let jobs = fleet.check(50).await;
    let lost = jobs.iter().filter(|job| job.status() != JobStatus::Completed).count();
    println!("{kills} kills, {} jobs, {lost} not completed", jobs.len());
    assert!(lost <= kills, "at most one for each keeper that was killed");
}

/// Daemon and keepers are killed while agents spend. Every reported cent is counted once in each sum: of the
/// store, of the jobs, and of the budgets.
async fn twenty_kills_never_forget_a_cent(database: &str) {
    let mut fleet = Fleet::on(database);
    fleet.write_spenders(6, true);
    for round in 0..20 {
        assert!(fleet.start(None), "round {round}: {}", fleet.log());
        let before = fleet.cents_spent();
        let some = fastrand::usize(1..25);
        fleet.wait_for("some money to be spent", |fleet| fleet.cents_spent() >= before + some);
        if round % 2 == 0 {
            fleet.kill_a_keeper();
        }
        fleet.kill();
    }
    fleet.write_spenders(6, false);
    let jobs = fleet.settle().await;
    let (said, spent) = (fleet.cents_said(), fleet.cents_spent());
    assert!((spent..=spent + jobs.len()).contains(&said), "{said} cents were heard, {spent} spent");
    let said = u64::try_from(said).unwrap() * 10_000;
    let of_jobs: u64 =
        jobs.iter().filter_map(|job| job.usage().map(|usage| Amount::of(usage).microdollars)).sum();
    let store = Store::open(&fleet.store_url()).await.unwrap();
    let in_all = store.total_usage().await.unwrap();
    let by_agent: u64 =
        in_all.iter().map(|(_, _, usage)| microdollars(usage.cost_usd.unwrap_or_default())).sum();
    let budget = Budget { per_month_usd: Some(1.0), ..Budget::default() };
    // Use a zone in which it is about noon, so that the month does not end during the test.
    let offset = 12 - Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).hour();
    let zone = format!("Etc/GMT{}{}", if offset > 0 { '-' } else { '+' }, offset.abs()).parse().unwrap();
    let roster = Roster { budget, zone, ..Roster::of(vec![Agent::new("a0".parse().unwrap())]) };
    let counted = store.spending(&roster, Timestamp::now()).await.unwrap().fleet;
    assert!(said > 0);
    assert_eq!((of_jobs, by_agent), (said, said));
    assert_eq!(
        (counted.month.microdollars, counted.committed.microdollars),
        (said, 0),
        "and nothing is reserved"
    );
    println!("{} jobs, {} cents", jobs.len(), said / 10_000);
    let most = |job: &Job| job.usage().map_or(0, |usage| Amount::of(usage).microdollars);
    assert!(jobs.iter().all(|job| most(job) <= 80_000), "nobody can say more than that");
}

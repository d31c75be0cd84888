//! Checks after a campaign: every accepted delivery ran once, everything is settled, and nothing is left.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use cowhand::store::{JobFilter, Store};
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::schedule::FiringOutcome;
use cowhand_testing::postgres::Postgres;

use crate::fleet::Fleet;

/// Result of a campaign.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) faults: u32,
    pub(crate) accepted: usize,
    pub(crate) refused: u64,
    pub(crate) jobs: usize,
    pub(crate) completed: usize,
    /// Jobs that failed or were cancelled because of the fault.
    pub(crate) otherwise: usize,
}

/// Ends the load, lets the fleet finish, and compares the accepted work with the work that ran. At most `excused` jobs
/// may have failed, because the fault killed them.
pub(crate) fn check(mut fleet: Fleet, faults: u32, excused: usize) -> Counts {
    fleet.sender.stop();
    std::fs::write(fleet.outside("go"), "").unwrap();
    fleet.write_config(false);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (mut fewest, mut patience) = (usize::MAX, Instant::now());
    // Wait as long as the number of open jobs decreases.
    while fewest > 0 {
        let open = open_jobs(&fleet);
        if open < fewest {
            (fewest, patience) = (open, Instant::now() + Duration::from_mins(2));
        }
        assert!(Instant::now() < patience, "{open} jobs are not settled:\n{}", fleet.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    fleet.stop(&[]);
    let store = fleet.server.as_ref().map_or_else(|| copy_of_file(&fleet), Postgres::url);
    let (jobs, deliveries) = runtime.block_on(read(&store));
    let counts = compare(&fleet, &jobs, &deliveries, faults, excused);
    nothing_left(&fleet);
    counts
}

/// Copies the store, because SQLite cannot open a file through another mount namespace. Returns the path of the copy.
fn copy_of_file(fleet: &Fleet) -> String {
    let copy = fleet.outside("checked.db");
    std::fs::copy(fleet.seen(".cowhand/store.db"), &copy).unwrap();
    let log = fleet.seen(".cowhand/store.db-wal");
    if log.exists() {
        std::fs::copy(log, fleet.outside("checked.db-wal")).unwrap();
    }
    copy.display().to_string()
}

fn open_jobs(fleet: &Fleet) -> usize {
    let in_status = |status: &str| {
        let output = fleet.run(&["jobs", "--json", "--limit", "1000", "--status", status]);
        let jobs: Result<Vec<serde_json::Value>, _> = serde_json::from_slice(&output.stdout);
        jobs.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))).len()
    };
    in_status("pending") + in_status("running")
}

/// Reads all jobs, and the job of each delivery.
async fn read(url: &str) -> (Vec<Job>, HashMap<String, String>) {
    let store = Store::open(url).await.unwrap();
    store.check_integrity().await.unwrap();
    let jobs = store.jobs(JobFilter::default(), 1_000_000).await.unwrap();
    let mut deliveries = HashMap::new();
    for schedule in store.schedules().await.unwrap() {
        for row in store.ledger(schedule.id, 1_000_000).await.unwrap() {
            let Some(id) = row.key.as_str().strip_prefix("webhook:") else { continue };
            assert_eq!(row.outcome, FiringOutcome::Ran, "{row:?}");
            let job = row.job.unwrap_or_else(|| panic!("{id} has no job")).to_string();
            assert!(deliveries.insert(id.to_owned(), job).is_none(), "{id} has two firings");
        }
    }
    store.close().await;
    (jobs, deliveries)
}

fn compare(
    fleet: &Fleet,
    jobs: &[Job],
    deliveries: &HashMap<String, String>,
    faults: u32,
    excused: usize,
) -> Counts {
    let accepted = fleet.sender.accepted();
    let by_id: HashMap<&str, &Job> = jobs.iter().map(|job| (job.id().as_str(), job)).collect();
    for id in &accepted {
        let job =
            deliveries.get(id).unwrap_or_else(|| panic!("{id} was accepted and is lost\n{}", fleet.log()));
        assert!(by_id.contains_key(job.as_str()), "{id} was accepted and its job {job} is lost");
    }
    let used: HashSet<&String> = deliveries.values().collect();
    assert_eq!(used.len(), deliveries.len(), "two deliveries share a job");
    let mut times: HashMap<String, u32> = HashMap::new();
    for (job, _) in fleet.ran() {
        *times.entry(job).or_default() += 1;
    }
    for (job, times) in &times {
        assert!(by_id.contains_key(job.as_str()), "{job} ran and is not known");
        assert_eq!(*times, 1, "{job} ran {times} times\n{}", fleet.log());
    }
    let completed = jobs.iter().filter(|job| job.status() == JobStatus::Completed).count();
    for job in jobs {
        let ran = times.contains_key(job.id().as_str());
        assert!(job.status() != JobStatus::Completed || ran, "{} completed and never ran", job.id());
    }
    let otherwise: Vec<&Job> = jobs.iter().filter(|job| job.status() != JobStatus::Completed).collect();
    assert!(otherwise.len() <= excused, "{excused} are excused, not these: {otherwise:#?}\n{}", fleet.log());
    let (accepted, refused, jobs) = (accepted.len(), fleet.sender.refused(), jobs.len());
    Counts { faults, accepted, refused, jobs, completed, otherwise: otherwise.len() }
}

/// Waits until no process is left. A keeper ends a moment after it has written the end of its attempt.
fn nothing_left(fleet: &Fleet) {
    fleet.wait_for("nothing to be left behind", || fleet.processes().is_empty());
}

//! Agents that misbehave, run by the whole program: each ends with the right status, reason and message, and
//! the memory of the daemon stays small.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cowhand::store::{JobFilter, Settled, Store};
use cowhand_core::job::JobRecord;
use cowhand_core::policy::Retry;
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

struct Fleet {
    folder: TempDir,
    daemon: Child,
}

impl Fleet {
    /// Starts a fleet of agents: name, script, and further lines of config.
    fn start(agents: &[(&str, &str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = "agents:\n".to_owned();
        for (name, script, more) in agents {
            std::fs::write(folder.path().join(format!("{name}.sh")), script).unwrap();
            write!(
                config,
                "  - name: {name}\n    runtime: command\n    command: [sh, {name}.sh]\n    {more}\n    \
                 schedules: {{once: {{type: interval, interval: 1d, prompt: 'Say hello on {{{{date}}}}'}}}}\n"
            )
            .unwrap();
        }
        std::fs::write(folder.path().join("cowhand.yaml"), config).unwrap();
        Self::start_in(folder)
    }

    fn start_in(folder: tempfile::TempDir) -> Self {
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_cowhand"))
            .args(["start", "--no-server", "-c"])
            .arg(folder.path())
            .args(["--stop-timeout", "1"])
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let fleet = Self { folder, daemon };
        assert!(line.starts_with("ready"), "{}", fleet.log());
        fleet
    }

    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        let output = command.args(arguments).arg("-c").arg(self.folder.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    async fn settled(&self, count: usize, seconds: u64) -> Vec<JobRecord> {
        let store =
            Store::open(&self.folder.path().join(".cowhand/store.db").display().to_string()).await.unwrap();
        let patience = Instant::now() + Duration::from_secs(seconds);
        loop {
            let jobs = store.jobs(JobFilter::default(), 100).await.unwrap();
            let jobs: Vec<JobRecord> = jobs.into_iter().map(JobRecord::from).collect();
            if jobs.iter().filter(|job| job.finished_at.is_some()).count() == count {
                return jobs;
            }
            assert!(Instant::now() < patience, "not settled: {jobs:#?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn wait_for(&self, what: &str, look: impl Fn() -> bool) {
        let patience = Instant::now() + Duration::from_mins(1);
        while !look() {
            assert!(Instant::now() < patience, "timed out while waiting for {what}:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn output(&self, job: &JobRecord) -> String {
        std::fs::read_to_string(self.folder.path().join(".cowhand/jobs").join(format!("{}.jsonl", job.id)))
            .unwrap()
    }

    /// Returns the peak memory of the daemon.
    fn peak_megabytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if !matches!(self.daemon.try_wait(), Ok(None)) {
            return;
        }
        Command::new("kill").arg(self.daemon.id().to_string()).status().ok();
        self.daemon.wait().ok();
    }
}

/// Formats a job as `status/exit_reason kind: message`.
fn told(job: &JobRecord) -> String {
    let reason = job.exit_reason.map(cowhand_core::job::ExitReason::as_str).unwrap_or_default();
    let error =
        job.error.as_ref().map(|error| format!(" {}: {}", error.kind, error.message)).unwrap_or_default();
    format!("{}/{reason}{error}", job.status)
}

#[tokio::test]
async fn each_job_end_has_its_status_and_message() {
    let agents = [
        ("good", "read prompt; echo \"got: $prompt\"; echo all done", ""),
        ("fails", "echo trying; echo no luck >&2; exit 3", ""),
        ("dies", "exit 1", ""),
        ("killed", "kill -9 $$", ""),
        ("liar", "echo '{\"type\":\"result\",\"is_error\":true,\"result\":\"tests are red\"}'; exit 0", ""),
        ("silent", "sleep 100", "idle_timeout: 1s"),
        ("endless", "while :; do echo tick; sleep 0.1; done", "timeout: 1s"),
        ("lingers", "setsid sh -c 'trap \"\" TERM; sleep 100' & echo gone; exit 0", ""),
        ("closed", "exec >&- 2>&-; sleep 0.5; exit 7", ""),
        ("bytes", "printf 'caf\\351 \\377\\376\\n'; printf 'no end'", ""),
        (
            "retried",
            "[ \"$COWHAND_ATTEMPT\" = 2 ] && echo second time lucky || exit 1",
            "retry: {max_attempts: 3, backoff: 1s}",
        ),
    ];
    let fleet = Fleet::start(&agents);
    let jobs = fleet.settled(agents.len(), 60).await;
    let of = |agent: &str| jobs.iter().find(|job| job.agent.as_str() == agent).unwrap();
    for (agent, expected) in [
        ("good", "completed/success"),
        ("fails", "failed/error exit: exit code 3; last line on stderr: no luck"),
        ("dies", "failed/error exit: exit code 1"),
        ("killed", "failed/error signal: ended by SIGKILL (out of memory?), which was not sent by cowhand"),
        ("liar", "failed/error reported: tests are red"),
        ("silent", "failed/timeout idle: it was silent for 1s"),
        ("endless", "failed/timeout timeout: it ran longer than 1s"),
        ("lingers", "completed/success"),
        ("closed", "failed/error exit: exit code 7"),
        ("bytes", "completed/success"),
        ("retried", "completed/success"),
    ] {
        assert_eq!(told(of(agent)), expected, "{agent}");
    }
    let good = fleet.output(of("good"));
    assert!(good.contains("got: Say hello on 20") && good.contains("all done"), "{good}");
    assert_eq!(of("good").summary.as_deref(), Some("all done"));
    assert!(fleet.output(of("bytes")).contains("caf\u{fffd}"), "{}", fleet.output(of("bytes")));
    assert!(fleet.output(of("bytes")).contains("no end"));
    assert_eq!((of("retried").attempt, of("retried").summary.as_deref()), (2, Some("second time lucky")));
    let jobs_of_this_fleet: Vec<String> = jobs.iter().map(|job| job.id.to_string()).collect();
    let of_this_fleet = |entry: &std::fs::DirEntry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        jobs_of_this_fleet.iter().any(|job| environment.contains(&format!("COWHAND_ATTEMPT_ID={job}")))
    };
    // A keeper ends a moment after it has written the end of its attempt.
    let gone = || !std::fs::read_dir("/proc").unwrap().flatten().any(|entry| of_this_fleet(&entry));
    fleet.wait_for("nothing to be left behind", gone).await;
}

/// One agent writes 48 MB, another agent writes one line of 48 MB. With `scripts/test --long`, the sizes are 500 MB and
/// 100 MB. The memory of the daemon grows by less than either size.
#[tokio::test]
async fn large_output_needs_little_daemon_memory() {
    let long = std::env::var_os("COWHAND_LONG").is_some();
    let (flood, line) = if long { (500, 100) } else { (48, 48) };
    let wait = "until [ -e begin ]; do sleep 0.05; done; ";
    let flood =
        format!("yes 'a line of output that says nothing much' | head -c {flood}000000; echo; echo end");
    let line = format!("head -c {line}000000 /dev/zero | tr '\\0' x; echo; echo end");
    let [flood, line] =
        [("flood", flood), ("line", line)].map(|(name, script)| format!("echo > {name}; {wait}{script}"));
    let fleet = Fleet::start(&[("flood", &flood, ""), ("line", &line, "")]);
    let path = |name: &str| fleet.folder.path().join(name);
    fleet.wait_for("both agents to run", || path("flood").exists() && path("line").exists()).await;
    let before = fleet.peak_megabytes();
    std::fs::write(path("begin"), "").unwrap();
    let jobs = fleet.settled(2, 240).await;
    for job in &jobs {
        assert_eq!(told(job), "completed/success", "{}", job.agent);
        assert_eq!(job.summary.as_deref(), Some("end"));
    }
    let peak = fleet.peak_megabytes();
    println!("the daemon's peak: {peak} MB, {before} MB before the output");
    assert!(peak - before < 40, "{peak} MB, {before} MB before the output");
}

const BACKLOG_LINE: &str = "a line of output that says nothing much";
const BACKLOG_LINES: usize = 1_000_000;

/// Starts an agent that writes faster than the daemon reads, and returns when it has written everything.
async fn agent_with_backlog() -> Fleet {
    let script = format!("yes '{BACKLOG_LINE}' | head -n {BACKLOG_LINES}; echo > written; sleep 600");
    let fleet = Fleet::start(&[("flood", &script, "")]);
    let written = fleet.folder.path().join("written");
    fleet.wait_for("the agent to have written", || written.exists()).await;
    fleet
}

/// Returns how many lines of the agent are in the output, and the content of the lines about output that was not read.
fn lines_and_unread(output: &str) -> (usize, Vec<String>) {
    let lines = output.lines().filter(|line| line.contains(BACKLOG_LINE)).count();
    let unread = output.lines().filter(|line| line.contains("\"unread\"")).map(str::to_owned).collect();
    (lines, unread)
}

/// A cancelled job ends although its output has not been read, and its output states how much was not read.
#[tokio::test]
async fn cancelled_job_ends_without_reading_remaining_output() {
    let fleet = agent_with_backlog().await;
    fleet.run(&["cancel", "--agent", "flood", "--yes"]);
    let jobs = fleet.settled(1, 1).await;
    assert!(told(&jobs[0]).starts_with("cancelled"), "{}", told(&jobs[0]));
    let (lines, unread) = lines_and_unread(&fleet.output(&jobs[0]));
    let [unread] = unread.as_slice() else { panic!("{lines} lines, {unread:?}") };
    let (_, bytes) = unread.split_once("\"content\":\"").unwrap();
    let (bytes, rest) = bytes.split_once(' ').unwrap();
    assert!(
        rest.starts_with("more bytes of stdout were not read, because the job was cancelled"),
        "{unread}"
    );
    // The last line that was read may have been cut.
    let (total, size) = (BACKLOG_LINES * (BACKLOG_LINE.len() + 1), BACKLOG_LINE.len() + 1);
    let read = total - bytes.parse::<usize>().unwrap();
    assert_eq!(lines, read / size, "{unread}");
}

/// A daemon that is stopped leaves unread output to the next start, which reads all of it.
#[tokio::test]
async fn stop_leaves_unread_output_to_next_start() {
    let mut fleet = agent_with_backlog().await;
    let stopped = fleet.run(&["stop", "--timeout", "0"]);
    let words = "stopped; the outcome of 1 job is not written, and the next start settles it";
    assert_eq!(stopped.trim(), words, "{}", fleet.log());
    fleet.daemon.wait().unwrap();
    // A node that shares the store leaves the job alone for longer than an ordinary lease.
    let store = Store::open(fleet.folder.path().join(".cowhand/store.db").to_str().unwrap()).await.unwrap();
    let [job] = store.jobs(JobFilter::default(), 10).await.unwrap().try_into().unwrap();
    let later = Timestamp::now() + SignedDuration::from_mins(5);
    let settled = store.settle_expired(job.id().clone(), 1, false, Retry::default(), later).await.unwrap();
    assert_eq!(settled, Settled::Fenced);
    store.close().await;
    let folder = std::mem::replace(&mut fleet.folder, tempfile::tempdir().unwrap());
    let fleet = Fleet::start_in(folder);
    let jobs = fleet.settled(1, 240).await;
    assert!(told(&jobs[0]).starts_with("cancelled"), "{}", told(&jobs[0]));
    assert_eq!(lines_and_unread(&fleet.output(&jobs[0])), (BACKLOG_LINES, Vec::new()));
}

/// The folder of an attempt is deleted: the job is not forgotten, and its processes are ended.
#[tokio::test]
async fn an_attempt_whose_folder_is_removed_is_lost_and_ended() {
    let fleet = Fleet::start(&[("slow", "echo $$ > pid; sleep 100", "")]);
    let pid_file = fleet.folder.path().join("pid");
    // The shell creates the file before it writes into it.
    let pid = || std::fs::read_to_string(&pid_file).ok().filter(|text| text.ends_with('\n'));
    fleet.wait_for("the agent to be up", || pid().is_some()).await;
    let attempts = fleet.folder.path().join(".cowhand/attempts");
    let followed = || {
        std::fs::read_dir(&attempts).unwrap().flatten().all(|attempt| attempt.path().join("index").exists())
    };
    fleet.wait_for("it to be followed", followed).await;
    let pid = pid().unwrap();
    // The daemon reads the folder regularly, and may create a file in it.
    while std::fs::remove_dir_all(&attempts).is_err() {}
    let jobs = fleet.settled(1, 60).await;
    assert!(told(&jobs[0]).starts_with("failed/error lost: lost: its folder is gone"), "{}", told(&jobs[0]));
    let process = std::path::Path::new("/proc").join(pid.trim());
    fleet.wait_for("its process to be gone", || !process.exists()).await;
}

/// Agents print what they find, including secrets of other agents and tokens that are not in the config.
#[tokio::test]
async fn secrets_of_the_whole_fleet_are_masked() {
    let token = format!("cow_{}", "aB3_-xY9Z".repeat(5));
    let job_token = format!("cowjob_job-2026-01-05-aaaaaa.1.{}", "aB3_-xY9Z".repeat(5));
    let found = format!(
        "echo env canary-in-env; echo mcp canary-in-mcp; echo header canary-in-header; echo hook canary-in-hook; \
         echo container canary-in-container; echo made {token} {job_token} >&2; printf '{{\"type\":\"x\",\"text\":\"%s\"}}\\n' {token}; \
         echo moo cow_file_range_inline; exit 3"
    );
    let owner = "env: {SERVICE_TOKEN: canary-in-env}\n    mcp_servers: {a: {command: x, env: {A_KEY: canary-in-mcp}}, b: {url: \
                 'http://127.0.0.1:9/', headers: {Authorization: Bearer canary-in-header}}}\n    hooks: {on_error: [{type: webhook, \
                 url: 'http://127.0.0.1:9/', allow_private: true, secret: canary-in-hook}]}\n    docker: {enabled: false, env: {B_PASSWORD: canary-in-container}}";
    let fleet = Fleet::start(&[("owner", "echo mine", owner), ("gossip", &found, "")]);
    let jobs = fleet.settled(2, 60).await;
    let gossip = jobs.iter().find(|job| job.agent.to_string() == "gossip").unwrap();
    let said = fleet.output(gossip) + &told(gossip);
    for word in [
        "env ***",
        "mcp ***",
        "header ***",
        "hook ***",
        "container ***",
        "made *** ***",
        "moo cow_file_range_inline",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!said.contains("canary") && !said.contains("aB3_-"), "{said}");
}

/// One agent enlarges its stdout file without writing. Another agent ends after its keeper was killed, and leaves a
/// process.
#[tokio::test]
async fn sparse_output_and_left_process_do_not_delay_job_end() {
    let left = "(setsid sh -c 'echo $$ > left; exec sleep 1000' >/dev/null 2>&1 &)\n\
                while [ ! -s left ]; do sleep 0.05; done; kill -9 $PPID; echo over";
    let fleet = Fleet::start(&[
        ("sparse", "echo one; truncate -s 20G /proc/$$/fd/1; echo two", ""),
        ("left", left, ""),
    ]);
    let jobs = fleet.settled(2, 60).await;
    let job = |agent: &str| jobs.iter().find(|job| job.agent.as_str() == agent).unwrap();
    let said = fleet.output(job("sparse"));
    assert_eq!(told(job("sparse")), "completed/success", "{said}");
    assert!(said.contains("bytes without data") && said.contains("two"), "{said}");
    assert!(fleet.output(job("left")).contains("over"));
    assert_eq!(job("left").status, cowhand_core::job::JobStatus::Failed);
    let pid = std::fs::read_to_string(fleet.folder.path().join("left")).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z"));
    fleet.wait_for("the end of what was left", is_gone).await;
}

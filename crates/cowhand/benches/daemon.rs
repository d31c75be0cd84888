//! Measures CPU time and memory of an idle daemon, with schedules and with clients that follow its events, and the time
//! from a due time to a running process, with few and with many other schedules.
//!
//! `cargo bench -p cowhand --bench daemon`. The baseline for the time to a running process, measured in the same run,
//! is a loop that waits for the next whole second and spawns the same program.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails panics")]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small counts"
)]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

const IDLE_SECONDS: u64 = 20;
const FOLLOWERS: usize = 50;
const FOLLOWED_SECONDS: u64 = 10;
const FIRINGS: usize = 30;

fn main() {
    idle();
    memory();
    followers();
    let bare = bare_spawns();
    println!(
        "due to running, bare spawn         p50 {:>6.1} ms  p99 {:>6.1} ms  (limit)",
        bare.p50, bare.p99
    );
    let few = firings(10);
    few.print(10, &bare, None);
    for schedules in [1_000, 10_000] {
        firings(schedules).print(schedules, &bare, Some(&few));
    }
}

struct Daemon {
    child: Child,
    folder: TempDir,
}

impl Daemon {
    fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cowhand.yaml"), config).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_cowhand"))
            .args(["start", "--no-server"])
            .arg("-c")
            .arg(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "{line}");
        Self { child, folder }
    }

    fn number(&self, file: &str, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn cpu_ticks(&self) -> u64 {
        cpu_ticks(&self.child)
    }
}

/// Returns the CPU time of a process without its children, in hundredths of a second.
fn cpu_ticks(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        Command::new("kill").arg(self.child.id().to_string()).status().ok();
        self.child.wait().ok();
    }
}

/// Returns a config with ten schedules for each agent, none of them due for a long time.
fn fleet(agents: usize) -> String {
    let mut config = "agents:\n".to_owned();
    for agent in 0..agents {
        write!(config, "  - {{name: a{agent}, runtime: command, command: ['true'], schedules: {{").unwrap();
        for schedule in 0..10 {
            write!(config, "s{schedule}: {{type: cron, cron: '0 0 1 1 *'}}, ").unwrap();
        }
        config.push_str("}}\n");
    }
    config
}

fn idle() {
    let daemon = Daemon::start(&fleet(100));
    std::thread::sleep(Duration::from_secs(2));
    let (ticks, written) = (daemon.cpu_ticks(), daemon.number("io", "write_bytes"));
    std::thread::sleep(Duration::from_secs(IDLE_SECONDS));
    let ticks = daemon.cpu_ticks() - ticks;
    let written = daemon.number("io", "write_bytes") - written;
    let memory = daemon.number("status", "VmRSS") / 1024;
    println!(
        "idle, 1,000 schedules, {IDLE_SECONDS} s     {:.2} s of CPU, {written} bytes written, {memory} MB resident",
        ticks as f64 / 100.0
    );
}

/// Measures the memory of idle schedules: a daemon with ten schedules is the baseline for daemons with many.
fn memory() {
    let resident = |agents| {
        let daemon = Daemon::start(&fleet(agents));
        std::thread::sleep(Duration::from_secs(2));
        daemon.number("status", "VmRSS") * 1024
    };
    let few = resident(1);
    println!("resident, 10 schedules         {:.1} MB", few as f64 / 1e6);
    for agents in [100, 1_000] {
        let all = resident(agents);
        let each = all.saturating_sub(few) / (agents as u64 * 10 - 10);
        println!(
            "resident, {:>6} schedules     {:.1} MB, {each} bytes for each schedule",
            agents * 10,
            all as f64 / 1e6
        );
    }
}

/// Measures many clients that wait for events that do not come.
fn followers() {
    let daemon = Daemon::start(&fleet(1));
    let follow = |_| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command.args(["events", "-f", "-c"]).arg(daemon.folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut followers: Vec<Child> = (0..FOLLOWERS).map(follow).collect();
    std::thread::sleep(Duration::from_secs(3));
    let spent = || (daemon.cpu_ticks(), followers.iter().map(cpu_ticks).sum::<u64>());
    let before = spent();
    std::thread::sleep(Duration::from_secs(FOLLOWED_SECONDS));
    let after = spent();
    println!(
        "idle, {FOLLOWERS} followers, {FOLLOWED_SECONDS} s        {:.2} s of CPU in the daemon, {:.2} s in all of them together",
        (after.0 - before.0) as f64 / 100.0,
        (after.1 - before.1) as f64 / 100.0
    );
    for follower in &mut followers {
        follower.kill().unwrap();
        follower.wait().unwrap();
    }
}

struct Late {
    p50: f64,
    p99: f64,
}

impl Late {
    fn of(mut milliseconds: Vec<f64>) -> Self {
        milliseconds.sort_by(f64::total_cmp);
        let at = |share: f64| milliseconds[((milliseconds.len() - 1) as f64 * share).round() as usize];
        Self { p50: at(0.5), p99: at(0.99) }
    }
}

fn bare_spawns() -> Late {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out");
    for _ in 0..FIRINGS {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        std::thread::sleep(Duration::from_secs(now.as_secs() + 1).saturating_sub(now));
        let out = std::fs::OpenOptions::new().create(true).append(true).open(&file).unwrap();
        Command::new("date").arg("+%s %N").stdout(out).status().unwrap();
    }
    Late::of(lateness(&std::fs::read_to_string(&file).unwrap()))
}

/// Firings of one schedule, with the CPU time of the daemon for each of them.
struct Firings {
    late: Late,
    cpu_milliseconds: f64,
}

impl Firings {
    fn print(&self, schedules: usize, bare: &Late, few: Option<&Self>) {
        let Late { p50, p99 } = self.late;
        let growth = few.map_or(1.0, |few| self.cpu_milliseconds / few.cpu_milliseconds);
        println!(
            "due to running, {schedules:>6} schedules  p50 {p50:>6.1} ms  p99 {p99:>6.1} ms  ({:.1} and {:.1} times the limit), \
             {:.1} ms of CPU ({growth:.2} times that of 10 schedules)",
            p50 / bare.p50,
            p99 / bare.p99,
            self.cpu_milliseconds
        );
    }
}

/// Measures a schedule that fires every second beside others that are not due.
fn firings(schedules: usize) -> Firings {
    let due = "  - {name: due, runtime: command, command: [date, '+%s %N'], schedules: {s: {type: cron, cron: '* * * * * *'}}}\n";
    let daemon = Daemon::start(&format!("{}{due}", fleet(schedules / 10)));
    // The start itself does not count.
    std::thread::sleep(Duration::from_secs(2));
    let ticks = daemon.cpu_ticks();
    std::thread::sleep(Duration::from_secs(FIRINGS as u64));
    let cpu_milliseconds = (daemon.cpu_ticks() - ticks) as f64 * 10.0 / FIRINGS as f64;
    let attempts = daemon.folder.path().join(".cowhand/attempts");
    let read =
        |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("stdout")).unwrap_or_default();
    let all: String = std::fs::read_dir(attempts).unwrap().flatten().map(read).collect();
    // The slow first firing counts, because the slow first spawn counts in the baseline too.
    assert!(all.lines().count() >= FIRINGS - 2, "{} of {FIRINGS} fired", all.lines().count());
    Firings { late: Late::of(lateness(&all)), cpu_milliseconds }
}

/// Returns the milliseconds after the whole second, for each `seconds nanoseconds` line.
fn lateness(lines: &str) -> Vec<f64> {
    let late = |line: &str| Some(line.split_once(' ')?.1.trim().parse::<f64>().ok()? / 1e6);
    lines.lines().filter_map(late).collect()
}

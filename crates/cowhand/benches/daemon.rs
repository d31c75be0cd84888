//! What an idle daemon costs, and how soon a due firing is a running process.
//!
//! `cargo bench -p cowhand --bench daemon`. The limit for the second, measured in the same run, is a bare spawn of the
//! same program by a loop that does nothing but wait for the same whole second.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so by panicking")]
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
const FIRINGS: usize = 30;

fn main() {
    idle();
    let bare = bare_spawns();
    let ours = firings();
    println!("due to running, bare spawn     p50 {:>6.1} ms  p99 {:>6.1} ms  (limit)", bare.p50, bare.p99);
    println!(
        "due to running, cron firing    p50 {:>6.1} ms  p99 {:>6.1} ms  ({:.1} and {:.1} times the limit)",
        ours.p50,
        ours.p99,
        ours.p50 / bare.p50,
        ours.p99 / bare.p99
    );
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

    /// In hundredths of a second, of the daemon alone.
    fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        Command::new("kill").arg(self.child.id().to_string()).status().ok();
        self.child.wait().ok();
    }
}

fn idle() {
    let mut config = "agents:\n".to_owned();
    for agent in 0..100 {
        write!(config, "  - {{name: a{agent}, runtime: command, command: ['true'], schedules: {{").unwrap();
        for schedule in 0..10 {
            write!(config, "s{schedule}: {{type: cron, cron: '0 0 1 1 *'}}, ").unwrap();
        }
        config.push_str("}}\n");
    }
    let daemon = Daemon::start(&config);
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

fn firings() -> Late {
    let daemon = Daemon::start(
        "agents:\n  - {name: a, runtime: command, command: [date, '+%s %N'], schedules: {s: {type: cron, cron: '* * * * * *'}}}\n",
    );
    std::thread::sleep(Duration::from_secs(FIRINGS as u64 + 2));
    let attempts = daemon.folder.path().join(".cowhand/attempts");
    let read =
        |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("stdout")).unwrap_or_default();
    let all: String = std::fs::read_dir(attempts).unwrap().flatten().map(read).collect();
    // The very first has to warm up; so did the bare ones.
    assert!(all.lines().count() >= FIRINGS - 2, "{} of {FIRINGS} fired", all.lines().count());
    Late::of(lateness(&all))
}

/// Milliseconds after the whole second, of each `seconds nanoseconds` line.
fn lateness(lines: &str) -> Vec<f64> {
    let late = |line: &str| Some(line.split_once(' ')?.1.trim().parse::<f64>().ok()? / 1e6);
    lines.lines().filter_map(late).collect()
}

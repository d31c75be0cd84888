//! One schedule that fires every second beside others that are not due.

use std::time::Duration;

use super::Bench;
use super::agent::{Program, Stamp, stamps};
use super::clock::{after_second, next_half_second, next_second};
use super::config::Config;
use super::daemon::Daemon;
use super::figure::{Figure, thousands};
use super::process::CpuClock;
use super::samples::Samples;

const FILE: &str = "stamps";
/// Growth that still counts as flat.
pub(crate) const FLAT: f64 = 1.2;
const MOST_CPU_MS: f64 = 3.0;

/// Firings beside a number of schedules.
struct Firings {
    schedules: usize,
    late: Samples,
    cpu: f64,
    fired: usize,
    expected: usize,
}

pub(crate) fn measure(bench: &Bench) -> Vec<Figure> {
    let seconds = bench.size(8, 60);
    let limit = spawns(seconds);
    let mut few: Option<Firings> = None;
    let mut figures = Vec::new();
    for &schedules in bench.size(&[10, 1_000, 10_000][..], &[10, 1_000, 10_000, 100_000]) {
        match firings(bench, schedules, seconds) {
            Ok(firings) => {
                figures.extend(firings.figures(&limit, few.as_ref()));
                few.get_or_insert(firings);
            }
            Err(refusal) => {
                figures.push(Figure::refused(cpu_name(schedules), "ms", &refusal).at_most(MOST_CPU_MS));
            }
        }
    }
    figures
}

/// Spawns the same program at whole seconds.
fn spawns(seconds: u64) -> Samples {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::stamp(FILE);
    for _ in 0..seconds {
        next_second();
        assert!(program.command(folder.path()).status().unwrap().success(), "the spawn failed");
    }
    let stamps = stamps(&folder.path().join(FILE));
    assert_eq!(stamps.len() as u64, seconds, "spawns");
    lateness(&stamps)
}

fn lateness(stamps: &[Stamp]) -> Samples {
    Samples::of(stamps.iter().map(|stamp| after_second(stamp.nanoseconds)).collect())
}

fn firings(bench: &Bench, schedules: usize, seconds: u64) -> Result<Firings, String> {
    let every_second = "type: cron, cron: '* * * * * *'";
    let config = Config::new().armed(schedules).agent("due", 1, &Program::stamp(FILE), every_second);
    let daemon = Daemon::try_start(bench, &config)?;
    // The start itself, and the first firing, do not count.
    std::thread::sleep(Duration::from_secs(2));
    let begin = next_half_second();
    let mut clock = CpuClock::start(daemon.pid());
    clock.wait(Duration::from_secs(seconds));
    let cpu = clock.milliseconds();
    let end = begin + seconds * 1_000_000_000;
    let mut stamps = stamps(&daemon.path(FILE));
    stamps.retain(|stamp| (begin..end).contains(&stamp.nanoseconds));
    let fired = stamps.len();
    assert!(fired > 0, "the schedule fires beside {schedules} others");
    let late = lateness(&stamps);
    Ok(Firings { schedules, late, cpu: cpu / fired as f64, fired, expected: seconds as usize })
}

fn cpu_name(schedules: usize) -> String {
    format!("daemon CPU of one firing, {} schedules", thousands(schedules))
}

impl Firings {
    /// Returns the figures. `few` are the firings beside few schedules.
    fn figures(&self, limit: &Samples, few: Option<&Self>) -> Vec<Figure> {
        let armed = thousands(self.schedules);
        let mut cpu = Figure::new(cpu_name(self.schedules), self.cpu, "ms").at_most(MOST_CPU_MS);
        if self.fired < self.expected {
            cpu = cpu.note(format!("{} of {} fired", self.fired, self.expected));
        }
        let due = |percentile: &str, value: f64, limit: f64| {
            Figure::new(format!("due to first instruction, {armed} schedules, {percentile}"), value, "ms")
                .limit(limit)
        };
        let p50 = due("p50", self.late.p50(), limit.p50());
        let p99 = due("p99", self.late.p99(), limit.p99());
        match few {
            None => vec![cpu, p50.times_limit(5.0), p99.times_limit(6.0)],
            Some(few) => {
                let growth =
                    Figure::new(format!("growth of this CPU, 10 to {armed}"), self.cpu / few.cpu, "×");
                // The figure of few schedules is the target of many.
                vec![
                    cpu,
                    growth.at_most(FLAT),
                    p50.at_most(few.late.p50() * FLAT),
                    p99.at_most(few.late.p99() * FLAT),
                ]
            }
        }
    }
}

//! Start, memory and reload of a daemon with many schedules.

use std::time::{Duration, Instant};

use granit_parser::Parser;

use super::Bench;
use super::config::{CHANGED_AGENT, Config, described};
use super::daemon::{Daemon, timed};
use super::figure::{Figure, thousands};
use super::process::{megabytes, reset_peak};
use super::samples::Samples;

/// Number of schedules, with the targets: seconds until ready, and milliseconds of a reload.
const SIZES: [(usize, f64, Option<f64>); 3] =
    [(1_000, 0.15, Some(30.0)), (10_000, 1.0, Some(200.0)), (100_000, 10.0, None)];
const FEW: usize = 10;
const RELOADS: usize = 5;
/// Time after which memory of the start has been returned.
const REST: Duration = Duration::from_secs(2);

pub(crate) fn measure(bench: &Bench) -> Vec<Figure> {
    let base = {
        let daemon = Daemon::start(bench, &Config::new().armed(FEW));
        std::thread::sleep(REST);
        megabytes(daemon.pid(), "VmRSS")
    };
    let mut figures = vec![Figure::new("memory of a daemon with 10 schedules", base, "MB").at_most(25.0)];
    for (schedules, ready, reload) in &SIZES[..bench.size(2, 3)] {
        let config = Config::new().armed(*schedules);
        let name = thousands(*schedules);
        let parser = parse(&config);
        let ready_name = format!("ready with {name} schedules");
        match Daemon::try_start(bench, &config) {
            Ok(daemon) => {
                let time = daemon.ready.as_secs_f64();
                figures.push(Figure::new(ready_name, time, "s").limit(parser).at_most(*ready));
                figures.extend(of_running(bench, &daemon, &config, *schedules, base, *reload));
            }
            Err(refusal) => {
                figures.push(Figure::refused(ready_name, "s", &refusal).limit(parser).at_most(*ready));
            }
        }
    }
    figures
}

/// Returns the seconds in which the parser alone reads the files.
fn parse(config: &Config) -> f64 {
    let texts = config.texts();
    let begin = Instant::now();
    let count = |text: &String| Parser::new_from_str(text).filter(|event| event.as_ref().is_ok()).count();
    let events: usize = texts.iter().map(count).sum();
    let seconds = begin.elapsed().as_secs_f64();
    assert!(events > config.bytes() / 100, "the parser read the files");
    seconds
}

fn of_running(
    bench: &Bench,
    daemon: &Daemon,
    config: &Config,
    schedules: usize,
    base: f64,
    most_reload: Option<f64>,
) -> Vec<Figure> {
    let name = thousands(schedules);
    std::thread::sleep(REST);
    let resident = megabytes(daemon.pid(), "VmRSS");
    let text = config.bytes() as f64 / schedules as f64;
    let each = ((resident - base) * 1e6 / (schedules - FEW) as f64 - text) / 1e3;
    reset_peak(daemon.pid());
    let reload = Figure::new(
        format!("reload, one agent changed of {name} schedules"),
        reload(bench, daemon, config),
        "ms",
    );
    let peak = megabytes(daemon.pid(), "VmHWM");
    let all = Figure::new(format!("memory of a daemon with {name} schedules"), resident, "MB");
    vec![
        Figure::new(
            format!("memory of a schedule without the bytes of its YAML, {name}"),
            each.max(0.0),
            "KB",
        )
        .at_most(2.0),
        if schedules == 100_000 { all.at_most(300.0) } else { all },
        Figure::new(format!("peak memory during a reload, {name}"), peak, "MB"),
        match most_reload {
            Some(most) => reload.at_most(most),
            None => reload,
        },
    ]
}

/// Changes one agent and reloads; in a full run several times. Returns the median time in milliseconds.
fn reload(bench: &Bench, daemon: &Daemon, config: &Config) -> f64 {
    let times = (1..=bench.size(1, RELOADS)).map(|round| {
        // The daemon also notices the change itself. This work is part of the reload.
        config.change_one_agent(&daemon.path("."), round);
        let (time, _) = timed(&mut daemon.command(&["reload"]));
        let agent = daemon.api().get(&format!("/api/v1/agents/{CHANGED_AGENT}"));
        assert_eq!(agent["description"], described(round), "the change was loaded");
        std::thread::sleep(Duration::from_millis(500));
        time
    });
    Samples::of(times.collect()).p50()
}

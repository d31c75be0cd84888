//! An idle daemon, alone and with clients that follow its events.

use std::process::{Child, Stdio};
use std::time::Duration;

use super::Bench;
use super::config::Config;
use super::daemon::Daemon;
use super::figure::{Figure, thousands};
use super::process::{CpuClock, number, own_cpu};

const FOLLOWERS: usize = 50;
const REST: Duration = Duration::from_secs(2);
const MOST_RESTS: usize = 8;

pub(crate) fn measure(bench: &Bench) -> Vec<Figure> {
    let time = Duration::from_secs(bench.size(5, 20));
    let mut figures = alone(bench, bench.size(1_000, 10_000), time);
    figures.extend(followed(bench, time));
    figures
}

fn alone(bench: &Bench, schedules: usize, time: Duration) -> Vec<Figure> {
    let daemon = Daemon::start(bench, &Config::new().armed(schedules));
    wait_until_at_rest(&daemon);
    let written = written_by(&daemon);
    let mut clock = CpuClock::start(daemon.pid());
    clock.wait(time);
    let cpu = clock.milliseconds() / time.as_secs_f64();
    let written = written_by(&daemon) - written;
    assert!(daemon.api().get("/api/v1/health").is_object(), "the daemon still answers");
    let name = thousands(schedules);
    vec![
        Figure::new(format!("idle, {name} schedules: CPU in a second"), cpu, "ms").at_most(1.0),
        Figure::new(format!("idle, {name} schedules: written"), written as f64, "bytes").at_most(0.0),
    ]
}

fn written_by(daemon: &Daemon) -> u64 {
    number(daemon.pid(), "io", "write_bytes")
}

/// Waits until the daemon has written what a start writes, but not for ever: a daemon that never rests is a finding.
fn wait_until_at_rest(daemon: &Daemon) {
    let mut written = 0;
    for _ in 0..MOST_RESTS {
        std::thread::sleep(REST);
        if written_by(daemon) == written {
            return;
        }
        written = written_by(daemon);
    }
}

/// Measures clients that wait for events that do not come.
fn followed(bench: &Bench, time: Duration) -> Vec<Figure> {
    let daemon = Daemon::start(bench, &Config::new().armed(10));
    let follow = |_| {
        let mut command = daemon.command(&["events", "-f"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut followers: Vec<Child> = (0..FOLLOWERS).map(follow).collect();
    std::thread::sleep(REST);
    let spent = |followers: &[Child]| followers.iter().map(|follower| own_cpu(follower.id())).sum::<f64>();
    let before = spent(&followers);
    let mut clock = CpuClock::start(daemon.pid());
    clock.wait(time);
    let cpu = clock.milliseconds() / time.as_secs_f64();
    let all = (spent(&followers) - before) / time.as_secs_f64();
    for follower in &mut followers {
        assert!(follower.try_wait().unwrap().is_none(), "the follower still runs");
        follower.kill().unwrap();
        follower.wait().unwrap();
    }
    vec![
        Figure::new(format!("{FOLLOWERS} followers: CPU of the daemon in a second"), cpu, "ms").at_most(1.0),
        Figure::new(format!("{FOLLOWERS} followers: their CPU in a second"), all, "ms").at_most(1.0),
    ]
}

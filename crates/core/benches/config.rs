//! Measures the time to load a config, compared with a bare pass of the YAML parser over the same text in the same run:
//! `cargo bench -p cowhand-core --bench config`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use cowhand_core::config::{ConfigEnvironment, load};
use cowhand_core::policy::Zone;
use jiff::Timestamp;

fn main() {
    for agents in [50, 500] {
        let text = fleet(agents);
        let bare = best(|| granit_parser::Parser::new_from_str(&text).flatten().count());
        let checked = best(|| check(&text));
        #[expect(clippy::print_stdout, reason = "the measurement is the output")]
        {
            println!(
                "config check, {agents} agents: {:.1} ms ({:.1}x a bare YAML event parse of the same text)",
                checked.as_secs_f64() * 1e3,
                checked.as_secs_f64() / bare.as_secs_f64()
            );
        }
    }
}

/// Returns the shortest time of 30 runs, because other processes disturb that run least.
fn best<T>(mut run: impl FnMut() -> T) -> Duration {
    let times = (0..30).map(|_| {
        let start = Instant::now();
        std::hint::black_box(run());
        start.elapsed()
    });
    times.min().unwrap_or_default()
}

fn check(text: &str) -> usize {
    let mut read = |_: &Path| Ok(text.to_owned());
    let loaded = load(
        Path::new("cowhand.yaml"),
        ConfigEnvironment {
            read: &mut read,
            env: &|_| None,
            is_folder: &|_| true,
            zone: Zone::UTC,
            now: Timestamp::UNIX_EPOCH,
        },
    );
    assert_eq!(loaded.errors(), 0);
    loaded.roster.agents.len()
}

fn fleet(agents: usize) -> String {
    let mut text =
        String::from("defaults: {model: opus, work_source: {type: github, labels: {ready: go}}}\nagents:\n");
    for number in 0..agents {
        let _ = write!(
            text,
            "  - name: agent-{number}
    description: Looks after part {number}
    system_prompt: |
      You are careful. You read before you write.
      You leave things better than you found them.
    work_source: {{type: github, repo: org/repo-{number}}}
    instances: {{max_concurrent: 2}}
    allowed_tools: [Read, Edit, Bash]
    schedules:
      check: {{type: interval, interval: 5m, prompt: Check.}}
      report:
        type: cron
        cron: {} 9 * * 1-5
        timezone: Europe/Berlin
        prompt: Report.
",
            number % 60
        );
    }
    text
}

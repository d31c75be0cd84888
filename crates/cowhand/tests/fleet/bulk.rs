//! Many jobs at once: listed, cancelled and retried by a filter; prompts from a file; and the jobs that a
//! stop cancels.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use super::{Scene, wait_until};

const FLEET: &str = "agents:
  - {name: good, runtime: command, command: [cat], default_prompt: Work., schedules: {tidy: {type: manual}}}
  - {name: bad, runtime: command, command: [sh, -c, '[ -e mended ]'], schedules: {tidy: {type: manual}}}
  - name: slow
    runtime: command
    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']
    instances: {max_concurrent: 2}
";

fn count(jobs: &Value) -> usize {
    jobs.as_array().unwrap().len()
}

#[test]
fn jobs_verb_lists_by_limit_cursor_and_date() {
    let scene = Scene::with(FLEET);
    scene.start();
    for _ in 0..3 {
        scene.run(&["trigger", "good", "--wait"]);
    }
    let all = scene.json(&["jobs", "--all"]);
    assert_eq!(count(&all), 3);
    let first = scene.run(&["jobs", "--limit", "2"]);
    let last = all[1]["id"].as_str().unwrap();
    assert!(
        first.stderr.contains(&format!("`cowhand jobs --after {last}` shows the next ones")),
        "{}",
        first.stderr
    );
    let rest = scene.json(&["jobs", "--after", last]);
    assert_eq!((count(&rest), &rest[0]["id"]), (1, &all[2]["id"]));
    assert_eq!(scene.run(&["jobs", "--limit", "3"]).stderr, "", "that was all");
    assert_eq!(scene.run(&["jobs", "--all", "--limit", "2"]).code, Some(2));
    let today = jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::get("Europe/Berlin").unwrap());
    let date = |days: i64| (today.date() + jiff::SignedDuration::from_hours(24 * days)).to_string();
    // A test that runs over midnight includes both days.
    assert_eq!(count(&scene.json(&["jobs", "--since", &date(-1)])), 3);
    assert_eq!(count(&scene.json(&["jobs", "--since", &date(2)])), 0);
    assert_eq!(count(&scene.json(&["jobs", "--until", &date(1)])), 3, "that whole day");
    assert_eq!(count(&scene.json(&["jobs", "--until", &date(-2)])), 0);
    let wrong = scene.run(&["jobs", "--since", "2026-13-01"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("a date (2026-01-31)"), "{}", wrong.stderr);
}

#[test]
fn jobs_are_cancelled_by_a_filter() {
    let scene = Scene::with(FLEET);
    scene.start();
    for _ in 0..4 {
        scene.json(&["trigger", "slow"]);
    }
    wait_until("two to run", || (count(&scene.json(&["jobs", "--status", "running"])) == 2).then_some(()));
    let other = scene.json(&["trigger", "good", "--wait"]);
    assert_eq!(scene.run(&["cancel"]).code, Some(2), "a job or a filter");
    let asked = scene.run(&["cancel", "--agent", "slow"]);
    assert_eq!(asked.code, Some(2), "nobody can confirm it: {}", asked.stdout);
    assert!(asked.stderr.contains("4 jobs match") && asked.stderr.contains("--yes"), "{}", asked.stderr);
    assert_eq!(count(&scene.json(&["jobs", "--status", "cancelled"])), 0, "nothing was done");
    let waiting = scene.run(&["cancel", "--agent", "slow", "--status", "pending", "--yes"]);
    assert_eq!(waiting.code, Some(0), "{}", waiting.stderr);
    assert!(waiting.stdout.ends_with("2 jobs cancelled\n"), "{}", waiting.stdout);
    let rest = scene.json(&["cancel", "--agent", "slow", "--yes"]);
    assert_eq!(count(&rest), 2);
    assert!(rest.as_array().unwrap().iter().all(|job| job["termination"] == "graceful"), "{rest:#}");
    assert_eq!(scene.job(other["id"].as_str().unwrap())["status"], "completed");
    let none = scene.run(&["cancel", "--all", "--yes"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), "no job matches\n"));
    assert_eq!(scene.run(&["cancel", "--status", "failed", "--yes"]).code, Some(2), "that has ended");
    assert_eq!(scene.run(&["cancel", "--agent", "slow", "g63t34"]).code, Some(2), "one or the other");
}

#[test]
fn filter_retries_each_failed_job_once() {
    let scene = Scene::with(FLEET);
    scene.start();
    let failed = [(); 3].map(|()| {
        let job = scene.run(&["trigger", "bad", "tidy", "--wait", "--json"]).stdout;
        serde_json::from_str::<Value>(&job).unwrap()["id"].clone()
    });
    scene.run(&["trigger", "good", "--wait"]);
    assert_eq!(scene.run(&["retry"]).code, Some(2), "a job or a filter");
    scene.write("mended", "");
    // One job was already retried, and is not retried again.
    let by_hand = scene.json(&["retry", failed[1].as_str().unwrap(), "--wait"]);
    assert_eq!(by_hand["status"], "completed");
    let asked = scene.run(&["retry", "--agent", "bad"]);
    assert!(asked.code == Some(2) && asked.stderr.contains("2 jobs match"), "{}", asked.stderr);
    let retried = scene.json(&["retry", "--agent", "bad", "--since", "1h", "--wait", "--yes"]);
    let mut of: Vec<&Value> = retried.as_array().unwrap().iter().map(|job| &job["retry_of"]).collect();
    of.sort_by_key(|id| failed.iter().position(|failed| failed == *id));
    assert_eq!(of, [&failed[0], &failed[2]]);
    assert!(retried.as_array().unwrap().iter().all(|job| job["status"] == "completed"), "{retried:#}");
    let none = scene.run(&["retry", "--status", "failed", "--yes"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), "no job matches\n"));
    assert_eq!(scene.run(&["retry", "--status", "running", "--yes"]).code, Some(2));
}

#[test]
fn a_prompt_may_come_from_a_file_or_standard_input() {
    let scene = Scene::with(FLEET);
    scene.start();
    scene.write("task.md", "From a file.\nTwo lines.\n");
    let job = scene.json(&["trigger", "good", "--prompt-file", "task.md", "--wait"]);
    assert_eq!(job["prompt"], "From a file.\nTwo lines.\n");
    let by_stdin = |arguments: &[&str]| {
        let mut command = scene.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"From standard input.").unwrap();
        child.wait_with_output().unwrap()
    };
    for (arguments, id) in [
        (vec!["trigger", "good", "-p", "-", "--wait", "--json"], None),
        (vec!["trigger", "good", "--prompt-file", "-", "--wait", "--json"], None),
        (vec!["fork", job["id"].as_str().unwrap(), "-p", "-", "--wait", "--json"], Some(&job["id"])),
    ] {
        let output = by_stdin(&arguments);
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(made["prompt"], "From standard input.", "{arguments:?}");
        assert_eq!(made["forked_from"], *id.unwrap_or(&Value::Null));
    }
    let missing = scene.run(&["trigger", "good", "--prompt-file", "nowhere.md"]);
    assert!(missing.code == Some(2) && missing.stderr.contains("nowhere.md"), "{}", missing.stderr);
    scene.write("empty.md", " \n");
    let empty = scene.run(&["trigger", "good", "-p", " "]);
    assert_eq!(empty.code, Some(2));
    assert!(empty.stderr.contains("`--prompt` is empty; write a prompt"), "{}", empty.stderr);
    let empty = scene.run(&["trigger", "good", "--prompt-file", "empty.md"]);
    assert!(empty.code == Some(2) && empty.stderr.contains("empty.md is empty"), "{}", empty.stderr);
    assert_eq!(scene.run(&["trigger", "good", "-p", "x", "--prompt-file", "task.md"]).code, Some(2));
    fs::write(scene.root.join("binary"), [0xff, 0xfe]).unwrap();
    assert_eq!(scene.run(&["trigger", "good", "--prompt-file", "binary"]).code, Some(2));
}

#[test]
fn stop_lists_cancelled_jobs() {
    let scene = Scene::with(FLEET);
    scene.start();
    let jobs = [(); 2].map(|()| scene.json(&["trigger", "slow"])["id"].as_str().unwrap().to_owned());
    wait_until("two to run", || (count(&scene.json(&["jobs", "--status", "running"])) == 2).then_some(()));
    let kept = scene.run(&["stop", "--keep-agents"]);
    assert_eq!(
        (kept.code, kept.stdout.as_str()),
        (Some(0), "stopped; 2 jobs still run\n"),
        "{}",
        kept.stderr
    );
    scene.start();
    let stopped = scene.run(&["stop", "--timeout", "0"]);
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    assert!(stopped.stdout.starts_with("stopped; 2 jobs cancelled:\n"), "{}", stopped.stdout);
    for job in &jobs {
        let line = stopped.stdout.lines().find(|line| line.contains(job.as_str()));
        let line = line.unwrap_or_else(|| panic!("{}", stopped.stdout));
        assert!(line.contains("slow") && line.contains("it ended after the stop signal"), "{line}");
    }
    scene.start();
    assert_eq!(scene.run(&["stop"]).stdout, "stopped\n");
}

#[test]
fn a_prompt_that_is_too_long_is_refused_with_the_limit() {
    let scene = Scene::with(FLEET);
    scene.start();
    fs::write(scene.root.join("long.md"), "word ".repeat(500_000)).unwrap();
    let said = scene.run(&["trigger", "good", "--prompt-file", "long.md"]);
    assert_eq!(said.code, Some(5), "{}", said.stderr);
    for words in ["a request has at most 2097152 bytes", "put a longer text into a file"] {
        assert!(said.stderr.contains(words), "{words} in {}", said.stderr);
    }
}

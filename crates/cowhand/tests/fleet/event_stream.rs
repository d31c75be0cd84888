//! Events of jobs contain the record of the job, and the output of jobs can be followed with them.

use std::fs;

use serde_json::Value;

use super::{Scene, wait_until};

fn events(scene: &Scene) -> Vec<Value> {
    let events = scene.run(&["events", "--json", "--limit", "1000"]).stdout;
    events.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn job_events_contain_job_record_of_that_time() {
    let scene = Scene::started();
    let done = scene.json(&["trigger", "worker", "tidy", "-p", "Tidy up.", "--wait"]);
    let failed = scene.run(&["trigger", "broken", "--wait", "--json"]).stdout;
    let failed: Value = serde_json::from_str(&failed).unwrap();
    let (waiting, _) = scene.waiting_job();
    let cancelled = scene.json(&["cancel", &waiting]);
    let fork = scene.json(&["fork", done["id"].as_str().unwrap(), "--wait"]);
    let events = events(&scene);
    let record = |kind: &str, job: &Value| {
        let found = events.iter().find(|event| event["type"] == kind && event["job"] == job["id"]);
        found.unwrap_or_else(|| panic!("no {kind} of {}", job["id"]))["job_record"].clone()
    };
    let created = record("job:created", &done);
    assert_eq!((&created["id"], &created["status"]), (&done["id"], &"pending".into()), "{created:#}");
    for key in ["agent", "schedule", "trigger_type", "started_at", "prompt", "output_file"] {
        assert_eq!(created[key], done[key], "{key}: {created:#}");
    }
    for key in ["exit_reason", "finished_at", "duration_seconds", "summary", "run_started_at"] {
        assert!(created[key].is_null(), "{key} was not known then: {created:#}");
    }
    let started = record("job:started", &done);
    assert_eq!((&started["status"], &started["attempt"]), (&"running".into(), &1.into()), "{started:#}");
    assert_eq!(started["run_started_at"], done["run_started_at"]);
    assert_eq!(record("job:completed", &done), done, "a job that has ended never changes");
    assert_eq!(record("job:failed", &failed), failed);
    assert_eq!(record("job:cancelled", &cancelled), cancelled);
    let forked = events.iter().find(|event| event["type"] == "job:forked").unwrap();
    assert_eq!(
        (&forked["job_record"]["id"], &forked["job_record"]["forked_from"]),
        (&fork["id"], &done["id"])
    );
    assert_eq!(forked["original_job_record"], done);

    // Events keep no record of a removed job, and so no copy of its prompt.
    let id = done["id"].as_str().unwrap();
    assert_eq!(scene.run(&["job", "delete", id]).code, Some(0));
    let events = self::events(&scene);
    let of_job = events.iter().filter(|event| event["job"] == done["id"]);
    assert!(of_job.clone().count() > 3 && of_job.into_iter().all(|event| event["job_record"].is_null()));
}

/// `events -f --output` prints each line of the output once, between `job:started` and `job:completed`.
#[test]
fn events_follow_includes_job_output() {
    let scene = Scene::with(
        r#"agents:
  - name: talker
    runtime: command
    command: [sh, -c, 'echo one; echo "{\"type\":\"assistant\",\"content\":\"two\"}"; while [ ! -e go ]; do sleep 0.05; done; echo three']
"#,
    );
    scene.start();
    let mut follower = scene.spawn(&["events", "-f", "--output", "--json", "--after", "0"]);
    let job = scene.json(&["trigger", "talker"]);
    let mut read = |last: Value| {
        let mut seen: Vec<Value> = Vec::new();
        loop {
            let event: Value = serde_json::from_str(&follower.line()).unwrap();
            let is_last = event["type"] == last || event["line"] == last;
            seen.push(event);
            if is_last {
                return seen;
            }
        }
    };
    let mut seen = read(2.into());
    fs::write(scene.root.join("go"), "").unwrap();
    seen.extend(read("job:completed".into()));
    let kinds: Vec<&str> = seen.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = ["job:created", "job:started", "job:output", "job:output", "job:output", "job:completed"];
    assert_eq!(kinds, expected, "{seen:#?}");
    let said: Vec<&Value> = seen.iter().filter(|event| event["type"] == "job:output").collect();
    for (number, output) in said.iter().enumerate() {
        assert_eq!((&output["job"], &output["agent"]), (&job["id"], &"talker".into()));
        assert_eq!(output["line"], number + 1);
        assert!(output["seq"].is_null() && output["at"].is_string(), "{output:#}");
    }
    let told = said.iter().map(|said| (said["output_type"].as_str(), said["output"]["content"].as_str()));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [(Some("system"), Some("one")), (Some("assistant"), Some("two")), (Some("system"), Some("three"))]
    );
}

#[test]
fn events_follow_shows_only_new_output() {
    let scene = Scene::started();
    let (job, _) = scene.waiting_job();
    wait_until("its first line", || scene.run(&["logs", &job]).stdout.starts_with("up").then_some(()));
    let mut follower = scene.spawn(&["events", "-f", "--output", "--limit", "1"]);
    assert!(follower.line().contains("job:started"), "the newest event");
    // New events in the follower show that its stream is connected.
    let other = scene.json(&["trigger", "worker", "-p", "Hello.", "--wait"]);
    let mut heard = Vec::new();
    while !heard.iter().any(|line: &String| line.contains("job:completed")) {
        heard.push(follower.line());
    }
    let said: Vec<_> = heard.iter().filter(|line| line.contains("job:output")).collect();
    assert!(said.len() == 1 && said[0].contains("Hello."), "nothing that was said before: {heard:?}");
    assert!(said[0].contains(other["id"].as_str().unwrap()), "{said:?}");
    scene.go();
    let line = follower.line();
    assert!(line.contains("job:output") && line.contains(&job) && line.contains("went"), "{line}");
    assert!(follower.line().contains("job:completed"));
    let usage = scene.run(&["events", "--output"]);
    assert_eq!(usage.code, Some(2), "output is live only: {}", usage.stderr);
}

/// A follower gets each line of output once, even if the daemon restarts. This includes jobs of which it has no line
/// yet, and jobs that run or end while no daemon answers.
#[test]
fn followed_output_continues_after_restart() {
    let scene = Scene::with(
        r"agents:
  - name: counter
    runtime: command
    command: [sh, -c, 'i=0; while [ ! -e go ]; do i=$((i+1)); echo $i; sleep 0.02; done; echo end']
  - name: signal
    runtime: command
    command: [echo, here]
  - name: quiet
    runtime: command
    command: [sh, -c, 'echo up > quiet; echo 1; while [ ! -e speak ]; do sleep 0.02; done; echo 2; while [ ! -e go ]; do sleep 0.02; done']
",
    );
    scene.start();
    let quiet = scene.json(&["trigger", "quiet"])["id"].clone();
    let output_of = |job: &Value| scene.run(&["logs", job.as_str().unwrap(), "--json"]).stdout;
    wait_until("its first line", || (output_of(&quiet).lines().count() == 1).then_some(()));
    let mut follower = scene.spawn(&["events", "-f", "--output", "--json"]);
    let mut seen: Vec<Value> = Vec::new();
    let mut read_until = |is_last: &dyn Fn(&Value) -> bool| {
        while !seen.last().is_some_and(is_last) {
            seen.push(serde_json::from_str(&follower.line()).unwrap());
        }
        seen.clone()
    };
    let has_ended = |job: &Value| {
        let job = job.clone();
        move |event: &Value| event["job"] == job && event["type"] == "job:completed"
    };
    // Output is live only, so a line of output shows that the follower is connected.
    loop {
        let signal = scene.json(&["trigger", "signal", "--wait"])["id"].clone();
        let seen = read_until(&has_ended(&signal));
        if seen.iter().any(|event| event["job"] == signal && event["type"] == "job:output") {
            break;
        }
    }
    let counter = scene.json(&["trigger", "counter"])["id"].clone();
    let lines_of_counter = |count: u64| {
        let counter = counter.clone();
        move |event: &Value| event["job"] == counter && event["line"].as_u64() >= Some(count)
    };
    read_until(&lines_of_counter(5));
    assert_eq!(scene.run(&["restart"]).code, Some(0));
    read_until(&lines_of_counter(60));
    scene.kill_daemon();
    // `quiet` writes, and both jobs end, while no daemon runs.
    fs::write(scene.root.join("speak"), "").unwrap();
    scene.go();
    scene.start();
    let later = scene.json(&["trigger", "counter", "--wait"])["id"].clone();
    let seen = read_until(&has_ended(&later));
    for job in [&counter, &quiet, &later] {
        let lines = seen.iter().filter(|event| event["type"] == "job:output" && event["job"] == *job);
        let numbers: Vec<u64> = lines.map(|line| line["line"].as_u64().unwrap()).collect();
        let first = if *job == quiet { 2 } else { 1 };
        let last = output_of(job).lines().count() as u64;
        assert_eq!(numbers, (first..=last).collect::<Vec<_>>(), "{job}");
        assert!(last > 1 || *job == later, "{job}: {last}");
    }
}

#[test]
fn audit_shows_job_of_prepared_firing_by_hand() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      gated: {type: manual, prompt: Go., when_command: ['true']}
      items: {type: manual, prompt: Go., work_source: {type: files, path: items}}
",
    );
    fs::create_dir(scene.root.join("items")).unwrap();
    scene.write("items/one.md", "One.");
    scene.start();
    for schedule in ["gated", "items"] {
        let ran = scene.run(&["trigger", "a", schedule, "--wait"]);
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
        let audit = scene.run(&["events", "--audit", "--json", "--limit", "1000"]).stdout;
        let events = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let events: Vec<Value> = events.filter(|event| event["schedule"] == schedule).collect();
        for kind in ["schedule:preparing", "schedule:fired", "job:created"] {
            assert!(events.iter().any(|event| event["type"] == kind), "{schedule} {kind}: {events:#?}");
        }
        assert!(!events.iter().any(|event| event["type"] == "job:started"), "{events:#?}");
    }
}

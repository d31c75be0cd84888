//! Views, and other readable data of a job, also read with other programs.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Scene, wait_until};

const FLEET: &str = r#"
agents:
  - name: waiter
    runtime: command
    command: [sh, -c, "echo $$ > pid; echo up; while [ ! -e go ]; do sleep 0.05; done; echo went"]
    schedules:
      long: {type: manual, prompt: Wait., outputToFile: true}
      plain: {type: manual}
      nightly: {type: cron, cron: 0 3 * * *, timezone: UTC}
  - name: broken
    runtime: command
    command: [sh, -c, "exit 7"]
  - name: clockwork
    runtime: command
    command: [echo, tick]
    schedules: {often: {type: interval, interval: 1d}}
"#;

impl Scene {
    /// Waits until an agent has this status in `state.yaml`.
    fn shows(&self, agent: &str, status: &str) -> Value {
        wait_until(&format!("{agent} to be {status} in state.yaml"), || {
            let agent = self.yaml("state.yaml")["agents"][agent].clone();
            (agent["status"] == status).then_some(agent)
        })
    }

    /// Reads a view. It is written a moment after the change that it shows.
    fn yaml(&self, name: &str) -> Value {
        let path = self.root.join(".cowhand").join(name);
        yaml(&wait_until(name, || fs::read_to_string(&path).ok()))
    }

    fn in_jobs(&self, name: &str) -> PathBuf {
        self.root.join(".cowhand/jobs").join(name)
    }
}

/// Parses nested maps with one key per line, which is all that these views contain.
fn yaml(text: &str) -> Value {
    let mut all = Value::Object(serde_json::Map::new());
    let mut above: Vec<(usize, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.split_once(':') else { continue };
        let depth = key.len() - key.trim_start().len();
        above.retain(|(other, _)| *other < depth);
        let place = above.iter().fold(&mut all, |place, (_, key)| &mut place[key]);
        place[key.trim()] = match value.trim() {
            "null" => Value::Null,
            "" => Value::Object(serde_json::Map::new()),
            text => text.trim_matches('"').into(),
        };
        above.push((depth, key.trim().to_owned()));
    }
    all
}

#[test]
fn state_file_shows_status_and_jobs_of_agents() {
    let scene = Scene::with(FLEET);
    scene.start();
    let idle = scene.shows("waiter", "idle");
    assert_eq!((&idle["current_job"], &idle["last_job"]), (&Value::Null, &Value::Null));
    let next = scene.json(&["schedule", "show", "waiter/nightly"])["next_run_at"].clone();
    assert_eq!(idle["schedules"]["nightly"]["next_run_at"], next);
    assert_eq!((&idle["next_schedule"], &idle["next_trigger_at"]), (&"nightly".into(), &next));

    let job = scene.json(&["trigger", "waiter", "long"])["id"].clone();
    let id = job.as_str().unwrap();
    let running = scene.shows("waiter", "running");
    assert_eq!((&running["current_job"], &running["last_job"]), (&job, &Value::Null));
    assert_eq!(running["schedules"]["long"]["status"], "running");
    assert_eq!(running["schedules"]["plain"]["status"], "idle");
    assert_eq!(scene.json(&["schedule", "show", "waiter/long"])["status"], "running");
    for shown in [scene.job(id), scene.yaml(&format!("jobs/{id}.yaml"))] {
        assert_eq!(shown["status"], "running");
        for field in ["exit_reason", "finished_at", "duration_seconds"] {
            assert_eq!(shown.get(field), Some(&Value::Null), "{field}");
        }
    }

    scene.go();
    let after = scene.shows("waiter", "idle");
    assert_eq!((&after["current_job"], &after["last_job"]), (&Value::Null, &job));
    assert_eq!(after["schedules"]["long"]["status"], "idle");
    let failed = scene.run(&["trigger", "broken", "--wait", "--json"]).stdout;
    let failed = serde_json::from_str::<Value>(&failed).unwrap()["id"].clone();
    let error = scene.shows("broken", "error");
    assert_eq!((&error["current_job"], &error["last_job"]), (&Value::Null, &failed));

    let agents = scene.yaml("state.yaml")["agents"].clone();
    let names: Vec<&String> = agents.as_object().unwrap().keys().collect();
    assert_eq!(names, ["waiter", "broken", "clockwork"], "all of them, those that do nothing as well");
}

#[test]
fn status_of_agent_shows_only_its_schedules() {
    let scene = Scene::with(FLEET);
    scene.start();
    let said = scene.run(&["status", "waiter"]).stdout;
    for schedule in ["waiter/long", "waiter/plain", "waiter/nightly"] {
        assert!(said.contains(schedule), "{said}");
    }
    assert!(!said.contains("broken") && !said.contains("often"), "{said}");
}

#[test]
fn jobs_are_filtered_by_trigger_type() {
    let scene = Scene::with(FLEET);
    scene.start();
    let of = |kind: &str| scene.json(&["jobs", "--trigger-type", kind]);
    let by_clock = wait_until("the clock's job", || {
        Some(of("schedule")).filter(|jobs| jobs[0]["status"] == "completed")
    });
    assert_eq!((&by_clock[0]["agent"], &by_clock[0]["schedule"]), (&"clockwork".into(), &"often".into()));
    assert_eq!(by_clock[0]["trigger_type"], "schedule");
    scene.json(&["fork", by_clock[0]["id"].as_str().unwrap(), "--wait"]);
    scene.json(&["trigger", "clockwork", "often", "--wait"]);
    for kind in ["schedule", "fork", "manual"] {
        let jobs = of(kind);
        assert_eq!((jobs.as_array().unwrap().len(), &jobs[0]["trigger_type"]), (1, &kind.into()));
    }
    assert_eq!(of("webhook").as_array().unwrap().len(), 0);
    let wrong = scene.run(&["jobs", "--trigger-type", "magic"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("manual, schedule, webhook"), "{}", wrong.stderr);
}

#[test]
fn output_to_file_writes_text_log() {
    let scene = Scene::with(FLEET);
    scene.start();
    let job = scene.json(&["trigger", "waiter", "long"])["id"].as_str().unwrap().to_owned();
    let log = scene.in_jobs(&job).join("output.log");
    let holds = |text: &str| {
        wait_until(text, || (fs::read_to_string(&log).unwrap_or_default() == text).then_some(()));
    };
    holds("up\n");
    // The folder is moved in one step, because the daemon may write into it meanwhile.
    fs::rename(scene.in_jobs(&job), scene.root.join("away")).unwrap();
    holds("up\n");
    scene.go();
    holds("up\nwent\n");
    wait_until("its end", || (scene.job(&job)["status"] == "completed").then_some(()));
    let said = scene.run(&["logs", &job]).stdout;
    assert!(said.starts_with("up\nwent\n── "), "{said}");
    fs::remove_file(&log).unwrap();
    assert_eq!(scene.run(&["restart"]).code, Some(0));
    holds("up\nwent\n");
    let other = scene.json(&["trigger", "waiter", "plain", "--wait"])["id"].as_str().unwrap().to_owned();
    assert!(scene.in_jobs(&format!("{other}.jsonl")).exists() && !scene.in_jobs(&other).exists());
}

#[test]
fn other_programs_read_the_output_as_it_grows() {
    let scene = Scene::started();
    let (job, _) = scene.waiting_job();
    let jsonl = scene.in_jobs(&format!("{job}.jsonl"));
    wait_until("the first line", || {
        fs::read_to_string(&jsonl).is_ok_and(|text| text.ends_with('\n')).then_some(())
    });
    let mut tail =
        Command::new("tail").args(["-n", "+1", "-f"]).arg(&jsonl).stdout(Stdio::piped()).spawn().unwrap();
    let mut jq = Command::new("jq")
        .args(["--unbuffered", "-r", ".content"])
        .stdin(tail.stdout.take().unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = BufReader::new(jq.stdout.take().unwrap()).lines();
    assert_eq!(seen.next().unwrap().unwrap(), "up");
    scene.go();
    assert_eq!(seen.next().unwrap().unwrap(), "went");
    for program in [&mut tail, &mut jq] {
        program.kill().unwrap();
        program.wait().unwrap();
    }
    let list = Command::new("jq").args(["-s", "-c", "map(.type)"]).arg(&jsonl).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&list.stdout), "[\"system\",\"system\"]\n");
}

#[test]
fn job_without_output_has_no_output_file() {
    let scene = Scene::started();
    scene.waiting_job();
    let behind = scene.json(&["trigger", "waiter"])["id"].as_str().unwrap().to_owned();
    assert!(!scene.in_jobs(&format!("{behind}.jsonl")).exists());
    let said = scene.run(&["logs", &behind, "--json"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn logs_show_lines_that_are_not_messages() {
    let scene = Scene::started();
    let job = scene.json(&["trigger", "worker", "-p", "first", "--wait"])["id"].as_str().unwrap().to_owned();
    let mut jsonl = fs::OpenOptions::new().append(true).open(scene.in_jobs(&format!("{job}.jsonl"))).unwrap();
    jsonl.write_all(b"no JSON\n\n{\"type\":\"assistant\",\"content\":\"last\"}\n").unwrap();
    let said = scene.run(&["logs", &job]).stdout;
    assert!(said.starts_with("first\nno JSON\nlast\n── "), "{said}");
    assert_eq!(scene.run(&["logs", &job, "--json"]).stdout.lines().count(), 4, "as they are stored");
}

#[test]
fn large_output_is_read_with_little_memory() {
    const LINES: usize = 20_000;
    let scene = Scene::started();
    let job = scene.json(&["trigger", "worker", "-p", "first", "--wait"])["id"].as_str().unwrap().to_owned();
    let path = scene.in_jobs(&format!("{job}.jsonl"));
    let mut jsonl = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let line = format!("{{\"type\":\"assistant\",\"content\":\"{}\"}}\n", "x".repeat(2_000));
    jsonl.write_all(line.repeat(LINES).as_bytes()).unwrap();
    let daemon = scene.daemon().unwrap().as_raw_nonzero();
    let peak = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = peak();
    let read = scene.run(&["logs", &job, "--json"]).stdout;
    assert_eq!(read.lines().count(), LINES + 1);
    let used = peak() - before;
    assert!(used < 20 << 10, "{used} KiB for {} KiB", read.len() >> 10);
    let mut reader = scene.spawn(&["logs", &job, "--json"]);
    reader.line();
    reader.close_stdout();
    assert_eq!(reader.end().code, Some(0));
    let open = || {
        let descriptors = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().flatten();
        descriptors.filter(|entry| fs::read_link(entry.path()).is_ok_and(|file| file == path)).count()
    };
    wait_until("the file to be closed", || (open() == 0).then_some(()));
}

#[test]
fn job_events_contain_outcome_and_origin() {
    let scene = Scene::started();
    let done = scene.json(&["trigger", "worker", "tidy", "--wait"]);
    let (waiting, _) = scene.waiting_job();
    let cancelled = scene.json(&["cancel", &waiting]);
    let fork = scene.json(&["fork", done["id"].as_str().unwrap()]);
    let events = scene.run(&["events", "--json", "--limit", "100"]).stdout;
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |kind: &str, job: &Value| {
        let found = events.iter().position(|event| event["type"] == kind && event["job"] == *job);
        found.unwrap_or_else(|| panic!("no {kind} of {job}"))
    };
    let completed = &events[find("job:completed", &done["id"])];
    assert_eq!((&completed["agent"], &completed["schedule"]), (&"worker".into(), &"tidy".into()));
    assert_eq!(
        (&completed["exit_reason"], &completed["duration_seconds"]),
        (&"success".into(), &done["duration_seconds"])
    );
    let ended = &events[find("job:cancelled", &cancelled["id"])];
    assert_eq!(ended["agent"], "waiter");
    assert_eq!(
        (&ended["termination"], &ended["duration_seconds"]),
        (&"graceful".into(), &cancelled["duration_seconds"])
    );
    let forked = find("job:forked", &fork["id"]);
    assert_eq!((&events[forked]["agent"], &events[forked]["forked_from"]), (&"worker".into(), &done["id"]));
    assert_eq!(find("job:created", &fork["id"]) + 1, forked, "created, then forked");
}

#[test]
fn fork_needs_existing_job_and_agent() {
    let scene = Scene::started();
    let first = scene.json(&["trigger", "worker", "tidy", "--wait"]);
    let id = first["id"].as_str().unwrap();
    let fork = scene.json(&["fork", id]);
    assert_ne!(fork["id"], first["id"]);
    assert_eq!((&fork["agent"], &fork["schedule"]), (&first["agent"], &first["schedule"]));
    assert_eq!((&fork["status"], &fork["forked_from"]), (&"pending".into(), &first["id"]));
    let unknown = scene.run(&["fork", "job-2026-01-01-abc123"]);
    assert_eq!(unknown.code, Some(5));
    assert!(unknown.stderr.contains("there is no job job-2026-01-01-abc123"), "{}", unknown.stderr);
    scene.write("cowhand.yaml", "agents: [{name: other, runtime: command, command: [cat]}]");
    scene.json(&["reload"]);
    let homeless = scene.run(&["fork", id]);
    assert_eq!(homeless.code, Some(5));
    assert!(
        homeless.stderr.contains("the agent worker is not in the config any more"),
        "{}",
        homeless.stderr
    );
}

/// The file of a job names its schedule as the store does, for any number of jobs.
#[test]
fn an_adopted_schedule_is_renamed_in_the_files_of_its_jobs() {
    let fleet = |schedules: &str| {
        format!("agents: [{{name: a, runtime: command, command: ['true'], schedules: {{{schedules}}}}}]")
    };
    let scene = Scene::with(&fleet("old: {type: manual}"));
    scene.start();
    let jobs =
        [0; 2].map(|_| scene.json(&["trigger", "a", "old", "--wait"])["id"].as_str().unwrap().to_owned());
    let other = scene.json(&["trigger", "a", "--wait"])["id"].as_str().unwrap().to_owned();
    scene.write("cowhand.yaml", &fleet("new: {type: manual, adopt: old}"));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    for job in &jobs {
        assert_eq!(scene.job(job)["schedule"], "new");
        wait_until("its file to say so", || {
            (scene.yaml(&format!("jobs/{job}.yaml"))["schedule"] == "new").then_some(())
        });
    }
    assert_eq!(scene.yaml(&format!("jobs/{other}.yaml"))["schedule"], Value::Null);
}

/// `pg_restore` replaces the store by an earlier state, but not the position of the views and the files of later jobs.
#[test]
fn views_of_a_replaced_store_are_written_again() {
    // Only the last of these positions names an event of the store, but with another time.
    for position in ["999999", "999999 2026-01-05T10:00:00Z", "1 2026-01-05T10:00:00Z"] {
        let scene = Scene::started();
        let job = || scene.json(&["trigger", "worker", "--wait"])["id"].as_str().unwrap().to_owned();
        let old = job();
        assert_eq!(scene.run(&["stop"]).code, Some(0));
        let unknown = scene.in_jobs("job-2026-01-05-abc123.yaml");
        fs::write(&unknown, "id: job-2026-01-05-abc123\n").unwrap();
        fs::write(scene.root.join(".cowhand/views"), position).unwrap();
        scene.start();
        let new = job();
        for job in [old, new] {
            let record = scene.in_jobs(&format!("{job}.yaml"));
            wait_until(&format!("the record after {position}"), || {
                fs::read_to_string(&record).ok()?.contains("status: completed").then_some(())
            });
        }
        assert!(!unknown.exists(), "{position}");
    }
}

/// The writes of a large `state.yaml` pause. The end of the daemon does not wait for the pause.
#[test]
fn state_file_of_a_large_fleet_is_current_after_stop() {
    let agent = |number| {
        format!(
            "  - {{name: a{number}, runtime: command, command: [sleep, '1000'], schedules: {{s: {{type: interval, interval: 1s}}}}}}\n"
        )
    };
    let scene = Scene::with(&format!("agents:\n{}", (0..20).map(agent).collect::<String>()));
    scene.start();
    wait_until("all agents run", || {
        let running = scene.run(&["jobs", "--status", "running", "--json"]).stdout;
        let running: Vec<Value> = serde_json::from_str(&running).unwrap();
        (running.len() == 20).then_some(())
    });
    assert_eq!(scene.run(&["stop", "--timeout", "0"]).code, Some(0));
    let state = fs::read_to_string(scene.root.join(".cowhand/state.yaml")).unwrap();
    assert!(!state.contains("status: running"), "{state}");
}

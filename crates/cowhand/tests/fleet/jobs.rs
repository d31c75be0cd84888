//! Jobs by hand: created, watched, cancelled, and retried.

use std::fs;

use serde_json::Value;

use super::asks::send;
use super::{Scene, lives, wait_until};

#[test]
fn trigger_wait_reports_how_job_ended() {
    let scene = Scene::started();
    let good = scene.run(&["trigger", "worker", "-p", "All is well.", "--wait"]);
    assert_eq!(good.code, Some(0), "{}", good.stderr);
    assert!(
        good.stdout.contains("completed after") && good.stdout.contains("All is well."),
        "{}",
        good.stdout
    );
    let bad = scene.run(&["trigger", "broken", "--wait"]);
    assert_eq!(bad.code, Some(1));
    assert!(bad.stdout.contains("failed after"), "{}", bad.stdout);
    let json = scene.run(&["trigger", "broken", "--wait", "--json"]);
    assert_eq!(json.code, Some(1));
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["status"], &json["exit_reason"]), (&"failed".into(), &"error".into()));
    assert_eq!(scene.run(&["trigger", "broken"]).code, Some(0), "nobody waited");
}

#[test]
fn prompt_of_caller_overrides_schedule_and_agent() {
    let scene = Scene::started();
    let prompt = |arguments: &[&str]| {
        scene.json(&[&["trigger", "worker"], arguments].concat())["prompt"].as_str().unwrap().to_owned()
    };
    assert_eq!(prompt(&[]), "Work.");
    assert_eq!(prompt(&["tidy"]), "Tidy up.");
    assert_eq!(prompt(&["tidy", "-p", "Tidy {{date}}"]), "Tidy {{date}}");
}

/// The prompt and the arguments of the command may contain secrets. A retry reads the prompt from the store.
#[test]
fn folders_of_settled_attempts_are_removed() {
    let scene = Scene::started();
    let made = |verb: &[&str]| {
        let job = scene.json(verb);
        assert_eq!(job["status"], "completed", "{job:#}");
        job["id"].as_str().unwrap().to_owned()
    };
    let first = made(&["trigger", "worker", "-p", "The password is 12345.", "--wait"]);
    let again = made(&["retry", &first, "--wait"]);
    assert!(scene.run(&["logs", &again]).stdout.contains("The password is 12345."));
    for id in [first, again] {
        let folder = scene.root.join(format!(".cowhand/attempts/{id}.1"));
        wait_until("the folder to be removed", || (!folder.exists()).then_some(()));
    }
}

#[test]
fn job_verbs_print_text() {
    let scene = Scene::started();
    let tidy = scene.json(&["trigger", "worker", "tidy", "--wait"]);
    scene.run(&["trigger", "broken", "--wait"]);
    let id = tidy["id"].as_str().unwrap();
    let verbs: [&[&str]; 8] = [
        &["jobs"],
        &["jobs", "--status", "running"],
        &["job", id],
        &["logs", id],
        &["logs", "broken"],
        &["status"],
        &["agents"],
        &["events"],
    ];
    scene.snapshot("job_verbs_print_text", &verbs.map(|verb| scene.shown(verb)));
}

#[test]
fn job_verbs_print_json() {
    let scene = Scene::started();
    let tidy = scene.json(&["trigger", "worker", "tidy", "--wait"]);
    scene.run(&["trigger", "broken", "--wait"]);
    let id = tidy["id"].as_str().unwrap();
    let verbs: [&[&str]; 5] = [
        &["jobs", "--json"],
        &["job", id, "--json"],
        &["logs", id, "--json"],
        &["status", "worker", "--json"],
        &["events", "--json", "--limit", "3"],
    ];
    scene.snapshot("job_verbs_print_json", &verbs.map(|verb| scene.shown(verb)));
}

#[test]
fn logs_result_prints_last_message() {
    let scene = Scene::with(
        r#"
agents:
  - name: talker
    runtime: command
    command:
      - sh
      - -c
      - |
        cat <<'END'
        {"type":"assistant","content":"I look."}
        {"type":"tool_result","result":"raw"}
        {"type":"assistant","content":"It is done.\nAll of it."}
        {"type":"tool_result","result":"more of it"}
        END
        echo noise >&2
  - {name: silent, runtime: command, command: ['true']}
"#,
    );
    scene.start();
    let job = scene.json(&["trigger", "talker", "--wait"]);
    let said = scene.run(&["logs", "talker", "--result"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "It is done.\nAll of it.\n"), "{}", said.stderr);
    let json = scene.json(&["logs", "talker", "--result"]);
    assert_eq!((&json["job"], &json["status"]), (&job["id"], &"completed".into()));
    assert_eq!(json["result"], "It is done.\nAll of it.");
    scene.run(&["trigger", "silent", "--wait"]);
    let said = scene.run(&["logs", "silent", "--result"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""));
    assert!(said.stderr.contains("is completed and has no output"), "{}", said.stderr);
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    let said = scene.run(&["logs", "talker", "--result"]);
    assert_eq!(said.stdout, "It is done.\nAll of it.\n", "no daemon is needed for that");
}

#[test]
fn result_excludes_output_of_failed_attempts() {
    let scene = Scene::with(
        r#"
agents:
  - name: second
    runtime: command
    command: [sh, -c, 'echo "said by attempt $COWHAND_ATTEMPT"; [ "$COWHAND_ATTEMPT" = 2 ]']
    retry: {max_attempts: 2, backoff: 1s}
    schedules:
      go: {type: manual, prompt: x}
    hooks:
      after_run:
        - {type: shell, command: 'cat > told.json; echo first; echo second'}
  - name: after
    runtime: command
    command: [sh, -c, cat]
    schedules:
      listen: {type: dispatch_result, schedule: second/go, prompt: '{{upstream.result}}'}
"#,
    );
    scene.start();
    let job = scene.json(&["trigger", "second", "go", "--wait"]);
    let id = job["id"].as_str().unwrap();
    assert_eq!((&job["status"], &job["attempt"]), (&"completed".into(), &2.into()));
    assert_eq!(scene.run(&["logs", id, "--result"]).stdout, "said by attempt 2\n");
    let logs = scene.run(&["logs", id]).stdout;
    let why = "attempt 1 failed: exit code 1; last line on stdout: said by attempt 1 (exit)";
    let expected = format!("said by attempt 1\n── attempt 2 ({why})\nsaid by attempt 2\n── job-");
    assert!(logs.starts_with(&expected), "{logs}");
    let told: Value = wait_until("the hook to be told", || {
        serde_json::from_str(&fs::read_to_string(scene.root.join("told.json")).ok()?).ok()
    });
    assert_eq!(told["result"]["output"], "said by attempt 2");
    wait_until("all that the hook said", || {
        let shown = scene.run(&["job", id]).stdout;
        let lines: Vec<&str> = shown.lines().map(str::trim).collect();
        lines.windows(2).any(|pair| pair == ["first", "second"]).then_some(())
    });
    let prompt = wait_until("the job that follows", || {
        let jobs = scene.json(&["jobs", "--agent", "after"]);
        jobs[0]["prompt"].as_str().map(ToOwned::to_owned)
    });
    assert!(prompt.contains("\nsaid by attempt 2\n") && !prompt.contains("attempt 1"), "{prompt}");
}

#[test]
fn jobs_can_be_filtered() {
    let scene = Scene::started();
    scene.run(&["trigger", "worker", "tidy", "--wait"]);
    scene.run(&["trigger", "worker", "--wait"]);
    scene.run(&["trigger", "broken", "--wait"]);
    let count = |filter: &[&str]| scene.json(&[&["jobs"], filter].concat()).as_array().unwrap().len();
    assert_eq!(count(&[]), 3);
    assert_eq!(count(&["--limit", "2"]), 2);
    assert_eq!(count(&["--agent", "worker"]), 2);
    assert_eq!(count(&["--schedule", "tidy"]), 1);
    assert_eq!(count(&["--schedule", "worker/tidy"]), 1);
    let refused = scene.run(&["jobs", "--schedule", "broken/tidy"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    let said = scene.run(&["jobs", "--agent", "worker", "--limit", "1"]).stderr;
    assert!(said.contains("`cowhand jobs --agent worker --after job-"), "{said}");
    assert_eq!(count(&["--status", "failed"]), 1);
    assert_eq!(count(&["--since", "1h"]), 3);
    assert_eq!(count(&["--until", "2026-01-01T00:00:00Z"]), 0);
    assert_eq!(scene.run(&["jobs", "--since", "soon"]).code, Some(2));
}

#[test]
fn cancelling_ends_the_processes() {
    let scene = Scene::started();
    let (job, pid) = scene.waiting_job();
    let behind = scene.json(&["trigger", "waiter"]);
    let made_at = behind["started_at"].as_str().unwrap();
    assert!(behind["id"].as_str().unwrap().contains(&made_at[..10]), "it has started, as a job: {behind}");
    assert!(behind["run_started_at"].is_null(), "its agent has not: {behind}");
    let how = |job: &Value| {
        ["status", "exit_reason", "termination"].map(|key| job[key].as_str().unwrap().to_owned())
    };
    let cancelled = scene.json(&["cancel", behind["id"].as_str().unwrap()]);
    assert_eq!(how(&cancelled), ["cancelled", "cancelled", "not_started"], "it waited for a place");
    assert_eq!(cancelled["started_at"], made_at);
    let cancelled = scene.json(&["cancel", &job]);
    assert_eq!(how(&cancelled), ["cancelled", "cancelled", "graceful"]);
    assert_eq!(how(&scene.job(&job)), how(&cancelled), "and so it stays");
    wait_until("the process to be gone", || (!lives(pid)).then_some(()));
    let again = scene.run(&["cancel", &job]);
    assert_eq!(again.code, Some(5));
    assert!(again.stderr.contains("has already ended (cancelled)"), "{}", again.stderr);
}

#[test]
fn a_retry_and_a_fork_are_new_jobs_that_run() {
    let scene = Scene::started();
    let first = scene.json(&["trigger", "worker", "tidy", "--wait"]);
    let id = first["id"].as_str().unwrap();
    let retry = scene.json(&["retry", id, "--wait"]);
    assert_eq!((&retry["retry_of"], &retry["status"]), (&first["id"], &"completed".into()));
    assert_eq!((&retry["prompt"], &retry["schedule"]), (&first["prompt"], &"tidy".into()));
    let fork = scene.json(&["fork", id, "-p", "Otherwise.", "--wait"]);
    assert_eq!((&fork["forked_from"], &fork["status"]), (&first["id"], &"completed".into()));
    assert_eq!((&fork["prompt"], &fork["trigger_type"]), (&"Otherwise.".into(), &"fork".into()));
    scene.assert_shows(&first, "a finished job never changes");
    let (running, _) = scene.waiting_job();
    assert_eq!(scene.run(&["retry", &running]).code, Some(5), "it has not ended");
}

#[test]
fn same_idempotency_key_gives_same_job() {
    let scene = Scene::started();
    let trigger = |key| scene.json(&["trigger", "worker", "tidy", "--idempotency-key", key]);
    let first = trigger("a");
    assert_eq!(trigger("a")["id"], first["id"]);
    scene.json(&["schedule", "disable", "worker/tidy"]);
    scene.json(&["schedule", "enable", "worker/tidy"]);
    assert_eq!(trigger("a")["id"], first["id"], "whatever happened in between");
    assert_ne!(trigger("b")["id"], first["id"]);
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 2);
}

/// PostgreSQL cannot have long keys in an index, so both databases have the same limit.
#[test]
fn long_or_empty_idempotency_key_is_refused() {
    let scene = Scene::started();
    let longest = "k".repeat(200);
    scene.json(&["trigger", "worker", "tidy", "--idempotency-key", &longest]);
    for key in [String::new(), "k".repeat(201), "ü".repeat(101), "k".repeat(100_000)] {
        let refused = scene.run(&["trigger", "worker", "tidy", "--idempotency-key", &key]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        let expected = format!("has 1 to 200 bytes, and this one has {}; use for example a UUID", key.len());
        assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
        let given = serde_json::json!({"schedule": "tidy", "idempotency_key": key});
        let (status, answer) = send(&scene, None, "POST", "agents/worker/trigger", &given);
        assert_eq!((status, &answer["code"]), (400, &"bad_request".into()), "{answer}");
    }
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 1);
}

#[test]
fn trigger_accepts_agent_and_schedule_in_one_word() {
    let scene = Scene::started();
    let job = scene.json(&["trigger", "worker/tidy", "--idempotency-key", "a"]);
    assert_eq!((&job["agent"], &job["schedule"]), (&"worker".into(), &"tidy".into()));
    assert_eq!(scene.json(&["trigger", "worker", "tidy", "--idempotency-key", "a"])["id"], job["id"]);
    for (arguments, message) in [
        (&["trigger", "worker/tidy", "tidy"][..], "name one schedule"),
        (&["trigger", "worker", "--idempotency-key", "a"], "--idempotency-key needs a schedule"),
    ] {
        let refused = scene.run(arguments);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(message), "{}", refused.stderr);
    }
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 1);
}

#[test]
fn logs_follow_ends_with_job() {
    let scene = Scene::started();
    let (job, _) = scene.waiting_job();
    let mut follower = scene.spawn(&["logs", "waiter", "-f"]);
    assert_eq!(follower.line(), "up");
    scene.go();
    let said = follower.end();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.starts_with(&format!("went\n── {job} completed")), "{}", said.stdout);
}

#[test]
fn logs_follow_continues_over_restart() {
    let scene = Scene::started();
    scene.waiting_job();
    let mut follower = scene.spawn(&["logs", "waiter", "-f", "--json"]);
    assert!(follower.line().contains("up"));
    assert_eq!(scene.run(&["restart"]).code, Some(0));
    scene.go();
    let said = follower.end();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(said.stdout.lines().count(), 1, "each line comes once: {}", said.stdout);
    assert!(said.stdout.contains("went"), "{}", said.stdout);
}

#[test]
fn events_can_be_followed() {
    let scene = Scene::started();
    let mut follower = scene.spawn(&["events", "-f", "--json"]);
    scene.run(&["trigger", "worker"]);
    for kind in ["schedule:armed", "schedule:armed", "job:created", "job:started", "job:completed"] {
        let line = follower.line();
        assert!(line.contains(kind), "{line}");
    }
}

#[test]
fn events_follow_exits_cleanly_when_output_is_closed() {
    let scene = Scene::started();
    scene.run(&["trigger", "worker", "--wait"]);
    let mut events = scene.spawn(&["events", "-f"]);
    events.line();
    events.close_stdout();
    scene.run(&["trigger", "worker"]);
    let said = events.end();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
}

#[test]
fn unknown_agents_schedules_and_jobs_are_reported() {
    let scene = Scene::started();
    let verbs: [&[&str]; 8] = [
        &["trigger", "nobody"],
        &["trigger", "worker", "never"],
        &["job", "job-2026-01-01-abc123"],
        &["job", "../../etc/passwd"],
        &["cancel", "job-2026-01-01-abc123"],
        &["logs", "nobody"],
        &["logs"],
        &["status", "nobody"],
    ];
    scene.snapshot("unknown_agents_schedules_and_jobs_are_reported", &verbs.map(|verb| scene.shown(verb)));
    assert!(!fs::exists(scene.root.join(".cowhand/jobs/passwd")).unwrap());
}

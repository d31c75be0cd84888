//! Jobs that end between two attempts or before the first one, and agents without jobs.

use std::fs;

use cowhand_testing::wait_until;

use super::Scene;

const FLEET: &str = r#"
agents:
  - name: retried
    runtime: command
    command: [sh, -c, "exit 1"]
    retry: {max_attempts: 2, backoff: 1h}
  - name: waiter
    runtime: command
    command: [sh, -c, "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done"]
    schedules:
      asks: {type: manual, prompt: Go., when_command: [sh, -c, "echo not today; exit 1"]}
"#;

#[test]
fn job_cancelled_between_attempts_shows_last_failure() {
    let scene = Scene::with(FLEET);
    scene.start();
    let id = scene.json(&["trigger", "retried"])["id"].as_str().unwrap().to_owned();
    wait_until("the first attempt to fail", || {
        let job = scene.job(&id);
        (job["status"] == "pending" && job["attempt"] == 1).then_some(())
    });
    assert_eq!(scene.run(&["cancel", &id]).code, Some(0));
    let job = scene.job(&id);
    assert_eq!(job["termination"], "between_attempts", "{job}");
    let sentence = "it waited for attempt 2; attempt 1 failed: exit code 1";
    assert_eq!(job["error"]["message"], sentence, "{job}");
    let logs = scene.run(&["logs", &id]);
    assert!(logs.stdout.contains(sentence), "{}", logs.stdout);
    wait_until("the file of the job", || {
        let text = fs::read_to_string(scene.root.join(format!(".cowhand/jobs/{id}.yaml"))).ok()?;
        (text.contains("between_attempts") && text.contains(sentence)).then_some(())
    });
}

#[test]
fn a_job_that_never_ran_has_no_duration() {
    let scene = Scene::with(FLEET);
    scene.start();
    scene.waiting_job();
    let id = scene.json(&["trigger", "waiter"])["id"].as_str().unwrap().to_owned();
    let said = scene.run(&["cancel", &id]);
    assert!(!said.stdout.contains(" after "), "{}", said.stdout);
    assert!(scene.job(&id)["duration_seconds"].is_null());
}

#[test]
fn logs_of_agent_without_jobs_name_the_agent() {
    let scene = Scene::with(FLEET);
    scene.start();
    scene.waiting_job();
    let said = scene.run(&["logs", "retried"]);
    assert_eq!(said.stderr, "error: retried has no jobs yet; `cowhand trigger retried` creates one\n");
}

#[test]
fn trigger_without_job_shows_reason() {
    let scene = Scene::with(FLEET);
    scene.start();
    let said = scene.run(&["trigger", "waiter", "asks"]);
    assert_eq!(said.code, Some(5), "{}", said.stderr);
    assert!(said.stderr.contains("when_command") && !said.stderr.contains("trusted"), "{}", said.stderr);
    assert!(said.stderr.contains("`cowhand why waiter/asks`"), "{}", said.stderr);
}

#[test]
fn trigger_wait_names_job_when_daemon_is_gone() {
    let scene = Scene::with(FLEET);
    scene.start();
    let waits = scene.spawn(&["trigger", "waiter", "--wait"]);
    wait_until("the agent to be up", || scene.root.join("pid").exists().then_some(()));
    scene.kill_daemon();
    let said = waits.end();
    assert_eq!(said.code, Some(4), "{}", said.stderr);
    let id = scene.json(&["jobs"])[0]["id"].as_str().unwrap().to_owned();
    assert!(
        said.stderr.contains("the daemon does not run, and no daemon answered for 10s"),
        "{}",
        said.stderr
    );
    assert!(said.stderr.contains(&format!("`cowhand logs -f {id}` follows it")), "{}", said.stderr);
    scene.start();
}

#[test]
fn work_source_without_schedule_is_reported() {
    let agent = "{name: idle, runtime: command, command: [cat], work_source: {type: files, path: tasks}}";
    let scene = Scene::with(&format!("agents: [{agent}]"));
    fs::create_dir(scene.root.join("tasks")).unwrap();
    fs::write(scene.root.join("tasks/one.md"), "Do it.").unwrap();
    for (verb, expected) in [
        (&["config", "check"][..], "nothing takes items from this `work_source`"),
        (&["doctor"], "no schedule takes its items"),
        (&["why", "idle"], "No schedule of idle takes items from its work source files "),
        (&["work", "list"], "no schedule takes items from"),
    ] {
        let said = scene.run(verb);
        assert!(
            format!("{}{}", said.stdout, said.stderr).contains(expected),
            "{verb:?}: {}{}",
            said.stdout,
            said.stderr
        );
    }
}

#[test]
fn work_source_with_schedule_is_not_reported() {
    let agent = "{name: busy, runtime: command, command: [cat], work_source: {type: files, path: tasks}, schedules: {poll: {type: manual}}}";
    let scene = Scene::with(&format!("agents: [{agent}]"));
    fs::create_dir(scene.root.join("tasks")).unwrap();
    for verb in [&["config", "check"][..], &["doctor"], &["why", "busy"], &["work", "list"]] {
        let said = scene.run(verb);
        let all = format!("{}{}", said.stdout, said.stderr);
        assert!(!all.contains("takes items") && !all.contains("takes its items"), "{verb:?}: {all}");
    }
}

//! A daemon does not start with a store that does not know the running agents of its state folder, nor beside a daemon
//! with the same node name.

use std::fs;

use cowhand_testing::postgres::Postgres;
use cowhand_testing::wait_until;
use rustix::process::Pid;
use serde_json::{Value, json};

use super::{FLEET, RunResult, Scene, has_ended};

fn with_store(store: &str) -> String {
    format!("{FLEET}store: {store}\n")
}

#[track_caller]
fn assert_refused(said: &RunResult, words: &[&str]) {
    assert_eq!(said.code, Some(6), "{}{}", said.stdout, said.stderr);
    let text = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in words {
        assert!(text.contains(word), "{word:?} in: {text}");
    }
}

#[test]
fn another_store_does_not_end_running_agents() {
    let (former, other) = (Postgres::start(), Postgres::start());
    let scene = Scene::with(&with_store(&former.url()));
    scene.start();
    let (job, agent) = scene.waiting_job();
    let daemon = scene.daemon().unwrap();
    let reason = ["names another store", "Name the former store in `store`", "cowhand stop", job.as_str()];
    for config in [with_store(&other.url()), FLEET.to_owned(), with_store("")] {
        scene.write("cowhand.yaml", &config);
        let said = scene.run(&["restart"]);
        assert_refused(&said, &reason);
        assert!(said.stderr.contains("Nothing was stopped"), "{}", said.stderr);
        assert_eq!(scene.daemon(), Some(daemon));
        assert!(!has_ended(agent));
    }
    let reloaded = scene.run(&["reload"]);
    let note = "`store` has changed; the change takes effect at the next start";
    assert!(reloaded.stderr.contains(note), "{}", reloaded.stderr);
    assert_eq!(scene.run(&["stop", "--keep-agents"]).code, Some(0));
    for config in [with_store(&other.url()), FLEET.to_owned()] {
        scene.write("cowhand.yaml", &config);
        assert_refused(&scene.run(&["start", "-d"]), &reason);
        assert!(!has_ended(agent));
    }
    assert!(!scene.root.join(".cowhand/store.db").exists());
    scene.write("cowhand.yaml", &with_store(&former.url()));
    scene.start();
    assert_eq!(scene.job(&job)["status"], "running");
    scene.go();
    wait_until("the job to end", || (scene.job(&job)["status"] == "completed").then_some(()));
    // Without running agents, the store can be changed.
    scene.write("cowhand.yaml", FLEET);
    assert_eq!(scene.run(&["restart"]).code, Some(0));
}

#[test]
fn copied_state_folder_does_not_start_as_the_same_node() {
    let server = Postgres::start();
    let (scene, copy) = (Scene::with(&with_store(&server.url())), Scene::with(&with_store(&server.url())));
    scene.start();
    let (job, agent) = scene.waiting_job();
    let folder = copy.root.join(".cowhand");
    fs::create_dir(&folder).unwrap();
    fs::copy(scene.root.join(".cowhand/node"), folder.join("node")).unwrap();
    assert_refused(&copy.run(&["start", "-d"]), &["another daemon runs with the node name", "remove `node`"]);
    let doctor = in_one_line(&copy.run(&["doctor"]));
    assert!(doctor.contains("another daemon runs with the node name"), "{doctor}");
    assert_eq!(scene.job(&job)["status"], "running");
    assert!(!has_ended(agent));
    fs::remove_file(folder.join("node")).unwrap();
    copy.start();
    // The previous daemon of the same folder does not count.
    scene.kill_daemon();
    scene.start();
    assert_eq!(scene.job(&job)["status"], "running");
}

/// The agent of the job ends while no daemon runs.
fn job_that_ended_without_daemon(scene: &Scene) -> String {
    scene.start();
    let (job, agent) = scene.waiting_job();
    scene.kill_daemon();
    scene.go();
    wait_until("the agent to end", || has_ended(agent).then_some(()));
    job
}

fn in_one_line(said: &RunResult) -> String {
    format!("{} {}", said.stdout, said.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn another_store_does_not_lose_results_of_ended_agents() {
    let other = Postgres::start();
    let scene = Scene::new();
    let job = job_that_ended_without_daemon(&scene);
    scene.write("cowhand.yaml", &with_store(&other.url()));
    let reason = ["remove `store` from the config", "`cowhand start -d`", "`cowhand stop`", job.as_str()];
    assert_refused(&scene.run(&["start", "-d"]), &reason);
    for verb in ["status", "doctor"] {
        let said = in_one_line(&scene.run(&[verb]));
        for word in reason {
            assert!(said.contains(word), "{verb}: {word:?} in: {said}");
        }
    }
    let status: Value = serde_json::from_str(&scene.run(&["status", "--json"]).stdout).unwrap();
    let problem = status["daemon"]["store_problem"].as_str().unwrap_or_default();
    assert!(problem.contains("remove `store` from the config"), "{status}");
    // No verb advises only a start, which is refused.
    for arguments in
        [&["jobs"][..], &["jobs", "--json"], &["logs"], &["why", "worker/tidy"], &["trigger", "worker"]]
    {
        let said = in_one_line(&scene.run(arguments));
        assert!(said.contains("remove `store` from the config"), "{arguments:?}: {said}");
        assert_eq!(said.matches("names another store").count(), 1, "{arguments:?}: {said}");
    }
    // The advice works.
    scene.write("cowhand.yaml", FLEET);
    scene.start();
    wait_until("the job to end", || (scene.job(&job)["status"] == "completed").then_some(()));
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    scene.write("cowhand.yaml", &with_store(&other.url()));
    scene.start();
}

const WITH_HOOK: &str = "
agents:
  - name: worker
    runtime: command
    command: [echo, done]
    hooks:
      after_run:
        - {type: shell, command: 'echo $$ >> hook-pid; while [ ! -e go ]; do sleep 0.05; done'}
";

/// A shell hook begins at most once, also if the store is changed and changed back.
#[test]
fn another_store_does_not_end_or_repeat_hooks() {
    let other = Postgres::start();
    let scene = Scene::with(WITH_HOOK);
    let other_config = format!("{WITH_HOOK}store: {}\n", other.url());
    scene.start();
    assert_eq!(scene.run(&["trigger", "worker"]).code, Some(0));
    let pids = || fs::read_to_string(scene.root.join("hook-pid")).unwrap_or_default();
    let hook = wait_until("the hook to run", || Pid::from_raw(pids().trim().parse().ok()?));
    scene.write("cowhand.yaml", &other_config);
    assert_refused(&scene.run(&["restart"]), &["hooks of jobs still run (", "the hooks would be ended"]);
    scene.kill_daemon();
    let refused = |reason: &str| {
        assert_refused(&scene.run(&["start", "-d"]), &[reason]);
        for verb in ["status", "doctor"] {
            let said = in_one_line(&scene.run(&[verb]));
            assert!(said.contains(reason), "{verb}: {reason:?} in: {said}");
        }
    };
    refused("hooks of jobs still run (");
    assert!(!has_ended(hook));
    scene.go();
    wait_until("the hook to end", || has_ended(hook).then_some(()));
    wait_until("its keeper to record the end", || {
        let mut folders = fs::read_dir(scene.root.join(".cowhand/attempts")).unwrap();
        folders.any(|folder| folder.unwrap().path().join("ending.json").exists()).then_some(())
    });
    refused("the results of ended hooks of jobs are not in the store yet (");
    scene.write("cowhand.yaml", WITH_HOOK);
    scene.start();
    wait_until("the result of the hook", || {
        let mut folders = fs::read_dir(scene.root.join(".cowhand/attempts")).unwrap();
        folders.all(|folder| !folder.unwrap().path().to_string_lossy().contains(".hook")).then_some(())
    });
    assert_eq!(pids().lines().count(), 1, "it was begun once");
    scene.write("cowhand.yaml", &other_config);
    assert_eq!(scene.run(&["restart"]).code, Some(0));
}

#[test]
fn former_store_that_does_not_exist_any_more_can_be_given_up() {
    let other = Postgres::start();
    let scene = Scene::new();
    job_that_ended_without_daemon(&scene);
    scene.write("cowhand.yaml", &with_store(&other.url()));
    let record = scene.root.join(".cowhand/store.json");
    assert_refused(&scene.run(&["start", "-d"]), &[&format!("remove {}", record.display())]);
    fs::remove_file(record).unwrap();
    scene.start();
}

#[test]
fn damaged_record_of_the_store_is_reported() {
    let scene = Scene::new();
    let job = job_that_ended_without_daemon(&scene);
    let record = scene.root.join(".cowhand/store.json");
    fs::write(&record, "{").unwrap();
    let remedy = format!("remove {}", record.display());
    let reason = ["is damaged", remedy.as_str(), job.as_str()];
    assert_refused(&scene.run(&["start", "-d"]), &reason);
    for verb in ["status", "doctor"] {
        let said = in_one_line(&scene.run(&[verb]));
        for word in reason {
            assert!(said.contains(word), "{verb}: {word:?} in: {said}");
        }
    }
    fs::remove_file(&record).unwrap();
    scene.start();
    wait_until("the job to end", || (scene.job(&job)["status"] == "completed").then_some(()));
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    // Without unsettled attempts, the file is written again.
    fs::write(&record, "{").unwrap();
    scene.start();
    assert!(scene.log().contains("store.json is damaged"), "{}", scene.log());
    serde_json::from_slice::<Value>(&fs::read(&record).unwrap()).unwrap();
}

#[test]
fn stop_reports_the_jobs_of_the_daemon_after_a_change_of_the_store() {
    let other = Postgres::start();
    // A store without tables, a server that does not answer, and an address that is not valid.
    for store in [other.url().as_str(), "postgres://127.0.0.1:1/x", "notaurl"] {
        for arguments in [&["stop", "--keep-agents", "--json"][..], &["stop", "--timeout", "0", "--json"]] {
            let scene = Scene::new();
            scene.start();
            let (job, agent) = scene.waiting_job();
            scene.write("cowhand.yaml", &with_store(store));
            let stopped = scene.run(arguments);
            let stopped: Value = serde_json::from_str(&stopped.stdout).unwrap();
            if has_ended(agent) {
                assert_eq!(stopped["cancelled"][0]["job"], job.as_str(), "{store}: {stopped}");
                assert_eq!(stopped["cancelled"][0]["agent"], "waiter", "{store}: {stopped}");
                assert_eq!(stopped["running"], 0, "{store}: {stopped}");
            } else {
                assert_eq!(stopped["cancelled"], json!([]), "{store}: {stopped}");
                assert_eq!(stopped["running"], 1, "{store}: {stopped}");
            }
        }
    }
}

/// While the daemon runs, verbs show its jobs, and `doctor` names its store.
#[test]
fn verbs_show_the_store_of_the_running_daemon() {
    let other = Postgres::start();
    let scene = Scene::new();
    scene.start();
    let (job, _) = scene.waiting_job();
    scene.write("cowhand.yaml", &with_store(&other.url()));
    for arguments in [&["jobs"][..], &["job", &job], &["logs", &job]] {
        let said = scene.run(arguments);
        let expected = if arguments[0] == "logs" { "up" } else { &job };
        assert!(said.stdout.contains(expected), "{arguments:?}: {}{}", said.stdout, said.stderr);
    }
    let said = in_one_line(&scene.run(&["doctor"]));
    assert!(said.contains("FAIL store: agents still run") && said.contains(&job), "{said}");
    assert!(!said.contains("start the daemon with"), "{said}");
    wait_until("the daemon to read the config", || {
        scene.json(&["status"])["daemon"]["store_changed"].as_bool().filter(|changed| *changed)
    });
    for arguments in [&["status"][..], &["status", "--json"]] {
        let said = in_one_line(&scene.run(arguments));
        assert!(said.contains("agents still run") && said.contains(&job), "{said}");
        assert!(!said.contains("start the daemon with"), "{said}");
    }
    scene.go();
    wait_until("the job to end", || (scene.job(&job)["status"] == "completed").then_some(()));
    let database = scene.root.join(".cowhand/store.db");
    let words = format!("the running daemon uses another store, {}", database.display());
    wait_until("doctor to name the store", || {
        in_one_line(&scene.run(&["doctor"])).contains(&words).then_some(())
    });
    for arguments in [&["status"][..], &["status", "--json"]] {
        let said = in_one_line(&scene.run(arguments));
        assert!(said.contains(&words), "{said}");
    }
}

#[test]
fn verbs_without_daemon_create_no_tables() {
    let server = Postgres::start();
    let scene = Scene::with(&with_store(&server.url()));
    for (verb, code) in [("status", 0), ("jobs", 0), ("doctor", 0), ("usage", 0)] {
        let said = scene.run(&[verb]);
        assert_eq!(said.code, Some(code), "{verb}: {}{}", said.stdout, said.stderr);
        assert_eq!(server.ask("select count(*) from pg_tables where schemaname = 'public'"), "0", "{verb}");
    }
    let said = in_one_line(&scene.run(&["doctor"]));
    assert!(said.contains("store: does not exist yet; the first start creates it"), "{said}");
    scene.start();
}

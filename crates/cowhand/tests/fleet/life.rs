//! The lifecycle of the daemon: started, stopped, killed, reloaded, and verbs without it.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use cowhand::store::Store;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::ScheduleId;
use cowhand_core::schedule::SkipReason;
use cowhand_core::trigger::Occurrence;
use cowhand_testing::postgres::Postgres;
use rustix::process::{Signal, kill_process};

use super::{FLEET, Scene, lives, wait_until};

#[test]
fn reading_verbs_work_without_daemon_and_writing_verbs_fail() {
    let scene = Scene::new();
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 0);
    assert_eq!(scene.json(&["status"])["daemon"]["running"], false);
    assert!(!scene.root.join(".cowhand").exists(), "looking leaves nothing behind");
    scene.start();
    let job = scene.json(&["trigger", "worker", "tidy", "--wait"]);
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    let id = job["id"].as_str().unwrap();
    scene.assert_shows(&job, "with no daemon");
    assert_eq!(scene.run(&["logs", id, "-f"]).stdout.lines().next(), Some("Tidy up."));
    assert_eq!(scene.json(&["schedule", "list"]).as_array().unwrap().len(), 2);
    assert!(scene.run(&["why", "worker/tidy"]).stdout.contains("No daemon runs"));
    assert_eq!(scene.run(&["events", "-f"]).code, Some(0), "nothing more can happen");
    let writes: [&[&str]; 8] = [
        &["trigger", "worker"],
        &["cancel", id],
        &["retry", id],
        &["fork", id],
        &["schedule", "enable", "worker/tidy"],
        &["schedule", "disable", "worker/tidy"],
        &["reload"],
        &["stop"],
    ];
    for write in writes {
        let said = scene.run(write);
        assert_eq!(said.code, Some(4), "{write:?}: {}", said.stderr);
        let advice = if *write == ["stop"] { "there is nothing to stop" } else { "cowhand start -d" };
        assert!(said.stderr.contains(advice), "{write:?}: {}", said.stderr);
    }
}

#[test]
fn verbs_use_postgres_store_of_config() {
    let server = Postgres::start();
    let scene = Scene::with(&format!("store: {}\n{FLEET}", server.url()));
    scene.start();
    let job = scene.json(&["trigger", "worker", "tidy", "--wait"]);
    assert_eq!(job["status"], "completed");
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    scene.assert_shows(&job, "with no daemon, too");
    assert!(!scene.root.join(".cowhand/store.db").exists());
    let doctor = scene.run(&["doctor"]).stdout;
    assert!(doctor.contains("store: the configured server: all "), "{doctor}");
    assert!(!doctor.contains(&server.url()), "an address may hold a password");
}

#[test]
fn second_daemon_of_fleet_is_refused() {
    let scene = Scene::started();
    for again in [&["start"][..], &["start", "-d"]] {
        let said = scene.run(again);
        assert_eq!(said.code, Some(5), "{}", said.stderr);
        assert!(said.stderr.starts_with("error: a daemon is running in "), "{}", said.stderr);
    }
    assert!(scene.daemon().is_some());
}

#[test]
fn start_refuses_invalid_config() {
    let scene = Scene::with("agents: [{name: a, runtime: comand}]");
    for start in [&["start"][..], &["start", "-d"]] {
        let said = scene.run(start);
        assert_eq!(said.code, Some(3), "{}", said.stderr);
        assert!(
            said.stderr.starts_with("error: ") && !said.stderr.contains("error: error"),
            "{}",
            said.stderr
        );
        assert!(said.stderr.contains("cowhand.yaml:1:"), "{}", said.stderr);
    }
}

/// Records a firing, as if the list had shown an issue that the filter excludes.
fn has_fired(scene: &Scene, agent: &str, schedule: &str) {
    let schedule = ScheduleId::of(&agent.parse().unwrap(), &schedule.parse().unwrap());
    let (key, due) = (Occurrence::Github { number: 7, head: None }.key(0), jiff::Timestamp::now());
    let firing = NewFiring { schedule, key, due, decision: Decision::Skip(SkipReason::Filtered), note: None };
    let url = scene.root.join(".cowhand/store.db").display().to_string();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        Store::open(&url).await.unwrap().fire_once(firing, due).await.unwrap();
    });
}

/// A schedule that polls a list does not start over under a new name, and all verbs name the remedy.
#[test]
fn renamed_polling_schedule_needs_adopt() {
    let fleet = |name: &str, more: &str| {
        let list =
            "type: github_issues, owner: o, repo: r, api_url: 'http://127.0.0.1:1', auth: {token_env: PATH}";
        format!(
            "agents:\n  - name: a\n    runtime: command\n    command: [cat]\n    schedules:\n      {name}: {{{list}, prompt: x{more}}}\n"
        )
    };
    let scene = Scene::with(&fleet("started", ""));
    scene.start();
    // A schedule that has never fired can be renamed freely.
    scene.write("cowhand.yaml", &fleet("issues", ""));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    assert!(!scene.run(&["status"]).stdout.contains("stopped by an error"));
    has_fired(&scene, "a", "issues");
    scene.write("cowhand.yaml", &fleet("triage", ""));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    let remedy = "to continue the history, write `adopt: issues`; to start without it, run `cowhand schedule enable a/triage`";
    for (asked, what) in [
        (["status"].as_slice(), "stopped by an error"),
        (&["why", "a/triage"], "`adopt` gives it the history"),
    ] {
        let said = scene.run(asked).stdout;
        assert!(said.contains(what) && said.contains(remedy), "{said}");
    }
    scene.write("cowhand.yaml", &fleet("triage", ", adopt: issues"));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    assert!(!scene.run(&["status"]).stdout.contains("stopped by an error"));
    let events = scene.run(&["events"]).stdout;
    let words = events.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("schedule:adopted a/triage a/issues"), "{events}");
}

#[test]
fn reload_of_invalid_config_keeps_old_config() {
    let scene = Scene::started();
    scene.write("cowhand.yaml", "agents: [{name: 7 of 9}]");
    let said = scene.run(&["reload"]);
    assert_eq!(said.code, Some(3));
    assert!(said.stderr.contains("cowhand.yaml:1:"), "{}", said.stderr);
    let status = || scene.run(&["status"]).stdout;
    assert!(status().contains("the config on disk was refused"), "{}", status());
    let refused_at = || scene.json(&["status"])["daemon"]["config_refused_at"].clone();
    let first_refused_at = refused_at();
    fs::write(scene.root.join("cowhand.yaml"), " \n").unwrap();
    let said = scene.run(&["reload"]);
    assert_eq!(said.code, Some(3));
    assert_eq!(refused_at(), first_refused_at, "the config is refused since the first error");
    assert!(
        said.stderr.contains("cowhand.yaml is empty; perhaps a program is writing it at the moment"),
        "{}",
        said.stderr
    );
    assert_eq!(scene.json(&["trigger", "worker", "--wait"])["status"], "completed");
    let more = format!("{FLEET}  - {{name: newcomer, runtime: command, command: [cat]}}\n");
    scene.write("cowhand.yaml", &more);
    assert_eq!(scene.json(&["reload"])["agents"], 4);
    assert!(!status().contains("refused"), "{}", status());
    assert_eq!(scene.json(&["trigger", "newcomer", "--wait"])["status"], "completed");
}

#[test]
fn reload_without_config_file_keeps_old_config() {
    let scene = Scene::started();
    std::fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
    let said = scene.run(&["reload", "-c", scene.root.to_str().unwrap()]);
    assert_ne!(said.code, Some(0), "there is nothing to load");
    scene.write("cowhand.yaml", super::FLEET);
    assert_eq!(scene.run(&["trigger", "worker", "--wait"]).code, Some(0), "and nothing was stopped");
}

#[test]
fn sighup_reloads_config() {
    let scene = Scene::started();
    kill_process(scene.daemon().unwrap(), Signal::HUP).unwrap();
    wait_until("it to be said", || scene.log().contains("config loaded again").then_some(()));
}

#[test]
fn changed_config_files_are_reloaded() {
    let scene = Scene::with("agents: [{path: one.yaml}]");
    let agent = |name: &str| format!("name: {name}\nruntime: command\ncommand: [cat]\n");
    scene.write("one.yaml", &agent("early"));
    scene.start();
    let named = |name: &str| {
        let agents = scene.json(&["agents"]);
        agents.as_array().unwrap().iter().any(|agent| agent["name"] == name).then_some(())
    };
    scene.write("one.yaml", &agent("later"));
    wait_until("the agent's own file", || named("later"));
    scene.write("cowhand.yaml", "agents: [{path: one.yaml}, {path: two.yaml}]");
    wait_until("a file that is missing", || {
        scene.log().contains("the previous config stays in use").then_some(())
    });
    // Replace the file, as editors do.
    scene.write("two.yaml.new", &agent("other"));
    fs::rename(scene.root.join("two.yaml.new"), scene.root.join("two.yaml")).unwrap();
    wait_until("a file that is there now", || named("other"));
    fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
    wait_until("the gone file", || {
        (scene.log().matches("the previous config stays in use").count() > 1).then_some(())
    });
    let job = scene.json(&["-c", "cowhand.yaml", "trigger", "other", "--wait"]);
    assert_eq!(job["status"], "completed", "the old fleet goes on");
}

#[test]
fn kept_agents_are_adopted_after_start() {
    let scene = Scene::started();
    let (job, pid) = scene.waiting_job();
    assert_eq!(scene.run(&["stop", "--keep-agents"]).code, Some(0));
    assert!(lives(pid));
    assert_eq!(scene.job(&job)["status"], "running");
    scene.start();
    assert!(lives(pid), "nobody started it anew");
    scene.go();
    wait_until("its end", || (scene.job(&job)["status"] == "completed").then_some(()));
    assert_eq!(scene.job(&job)["attempt"], 1);
    assert!(scene.run(&["logs", &job]).stdout.starts_with("up\nwent\n"));
}

#[test]
fn agent_that_ended_without_daemon_is_settled_at_start() {
    let scene = Scene::started();
    let (job, pid) = scene.waiting_job();
    assert_eq!(scene.run(&["stop", "--keep-agents"]).code, Some(0));
    scene.go();
    wait_until("the agent to end", || (!lives(pid)).then_some(()));
    let ending = scene.root.join(format!(".cowhand/attempts/{job}.1/ending.json"));
    let ending = wait_until("its keeper to say so", || fs::read_to_string(&ending).ok());
    let ending: serde_json::Value = serde_json::from_str(&ending).unwrap();
    let time = |value: &serde_json::Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    // Wait at least until the next millisecond, so that the two times differ.
    wait_until("time to pass", || {
        (jiff::Timestamp::now().as_millisecond() > time(&ending["at"]).as_millisecond() + 1).then_some(())
    });
    scene.start();
    wait_until("its end", || (scene.job(&job)["status"] == "completed").then_some(()));
    let finished = time(&scene.job(&job)["finished_at"]);
    assert_eq!(finished.as_millisecond(), time(&ending["at"]).as_millisecond(), "when its agent ended");
}

#[test]
fn interval_counts_from_the_end_of_a_job_that_ended_without_daemon() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done']
    schedules: {s: {type: interval, interval: 1h}}
",
    );
    scene.start();
    wait_until("its job to be up", || scene.root.join("pid").exists().then_some(()));
    let job = scene.json(&["jobs"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(scene.run(&["stop", "--keep-agents"]).code, Some(0));
    scene.go();
    let ending = scene.root.join(format!(".cowhand/attempts/{job}.1/ending.json"));
    wait_until("its keeper to record the end", || ending.exists().then_some(()));
    scene.start();
    wait_until("its end", || (scene.job(&job)["status"] == "completed").then_some(()));
    let time = |value: &serde_json::Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let finished = time(&scene.job(&job)["finished_at"]);
    let shown = scene.json(&["schedule", "show", "a/s"]);
    assert_eq!(time(&shown["last_run_at"]), finished);
    assert_eq!(time(&shown["next_run_at"]), finished + jiff::SignedDuration::from_hours(1));
}

#[test]
fn stop_waits_for_jobs_or_cancels_them() {
    let scene = Scene::started();
    let (first, _) = scene.waiting_job();
    let stopping = scene.spawn(&["stop"]);
    wait_until("the daemon to drain", || {
        (scene.json(&["status"])["daemon"]["stopping"] == true).then_some(())
    });
    let late = scene.run(&["trigger", "worker"]);
    assert_eq!(late.code, Some(5), "{}", late.stderr);
    scene.go();
    assert_eq!(stopping.end().code, Some(0));
    assert_eq!(scene.job(&first)["status"], "completed");
    fs::remove_file(scene.root.join("go")).unwrap();
    fs::remove_file(scene.root.join("pid")).unwrap();
    scene.start();
    let (second, pid) = scene.waiting_job();
    assert_eq!(scene.run(&["stop", "--timeout", "0"]).code, Some(0));
    assert!(!lives(pid));
    assert_eq!(scene.job(&second)["status"], "cancelled");
}

#[test]
fn socket_is_private_and_removed_at_stop() {
    let scene = Scene::started();
    let socket = scene.root.join(".cowhand/sock");
    let found = fs::symlink_metadata(&socket).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    kill_process(scene.daemon().unwrap(), Signal::KILL).unwrap();
    wait_until("it to be dead", || scene.run(&["status"]).stdout.contains("not running").then_some(()));
    assert!(socket.exists(), "a killed daemon cannot clear up");
    scene.start();
    assert!(scene.daemon().is_some(), "the next one takes its place");
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    assert!(fs::symlink_metadata(&socket).is_err());
}

#[test]
fn socket_in_long_path_links_to_short_path() {
    let scene = Scene::beneath(&"deep/".repeat(40), FLEET);
    scene.start();
    let link = fs::read_link(scene.root.join(".cowhand/sock")).unwrap();
    assert!(link.as_os_str().len() <= 100 && link.starts_with(scene.folder.path()), "{}", link.display());
    assert_eq!(scene.json(&["trigger", "worker", "--wait"])["status"], "completed");
    let elsewhere = scene.command(&["status", "--json"]).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    assert!(String::from_utf8_lossy(&elsewhere.stdout).contains(r#""running": true"#));
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    assert!(!link.exists());
}

#[test]
fn config_of_init_works_unchanged() {
    let scene = Scene::new();
    fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
    let said = scene.shown(&["init"]);
    let refused = scene.shown(&["init"]);
    scene.start();
    let job = scene.json(&["trigger", "helper", "--wait"]);
    assert_eq!((&job["status"], &job["prompt"]), (&"completed".into(), &"Say hello.".into()));
    scene.snapshot("a_first_fleet", &[said, refused, scene.shown(&["config", "check"])]);
}

#[test]
fn doctor_reports_missing_programs_and_directories() {
    let scene = Scene::with(
        "agents:
  - {name: well, runtime: command, command: [/bin/sh]}
  - {name: lost, runtime: command, command: [no-such-program]}
  - {name: homeless, runtime: command, command: [sh], working_directory: nowhere}
",
    );
    scene.start();
    scene.snapshot(
        "doctor_reports_missing_programs_and_directories",
        &[scene.shown(&["doctor"]), scene.shown(&["doctor", "--json"])],
    );
}

#[test]
fn pipe_as_config_file_is_refused() {
    let scene = Scene::started();
    let pipe = |name: &str| {
        fs::remove_file(scene.root.join(name)).ok();
        let made = std::process::Command::new("mkfifo").arg(scene.root.join(name)).status();
        assert!(made.unwrap().success());
    };
    pipe(".env");
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    assert!(scene.log().contains(".env cannot be read: it is a pipe, not a regular file"), "{}", scene.log());
    pipe("cowhand.yaml");
    let said = scene.run(&["-c", "cowhand.yaml", "reload"]);
    assert!(said.code == Some(3) && said.stderr.contains("it is a pipe"), "{:?} {}", said.code, said.stderr);
    assert_eq!(scene.run(&["-c", "cowhand.yaml", "stop"]).code, Some(0));
}

#[test]
fn pipe_as_lock_file_is_refused() {
    let scene = Scene::new();
    let state = scene.root.join(".cowhand");
    let lock = state.join("daemon.lock");
    fs::create_dir(&state).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&lock).status().unwrap().success());
    let reason = "daemon.lock is damaged: it is a pipe, not a regular file; remove it if no agent runs";
    let refused = scene.run(&["start", "-d", "--no-server"]);
    assert!(refused.code != Some(0) && refused.stderr.contains(reason), "{}", refused.stderr);
    let found = scene.run(&["doctor"]);
    assert!(found.stdout.contains(reason), "{}", found.stdout);
    assert_eq!(scene.run(&["status"]).code, Some(0));
    fs::remove_file(&lock).unwrap();
    scene.start();
    // The running daemon holds another file now, and the commands do not wait for the pipe.
    fs::remove_file(&lock).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&lock).status().unwrap().success());
    assert_eq!(scene.run(&["status"]).code, Some(0));
}

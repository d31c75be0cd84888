//! `restart` stops the old daemon only if a new one can start, and starts the new one with the same options.

use std::fs;
use std::net::TcpListener;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{FLEET, Scene, has_ended};

/// Checks that the daemon and its job continue.
#[track_caller]
fn goes_on(scene: &Scene, daemon: rustix::process::Pid, job: &str) {
    assert_eq!(scene.daemon(), Some(daemon));
    assert_eq!(scene.job(job)["status"], "running");
}

#[test]
fn restart_keeps_daemon_if_new_one_cannot_start() {
    let scene = Scene::started();
    let (job, agent) = scene.waiting_job();
    let daemon = scene.daemon().unwrap();
    let refused = |code: i32, arguments: &[&str], words: &[&str]| {
        let said = scene.run(arguments);
        assert_eq!(said.code, Some(code), "{}{}", said.stdout, said.stderr);
        for word in words.iter().chain(&["Nothing was stopped"]) {
            assert!(said.stderr.contains(word), "{word:?} in: {}", said.stderr);
        }
        assert_eq!(said.stderr.matches("error: ").count(), 1, "{}", said.stderr);
        goes_on(&scene, daemon, &job);
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = taken.local_addr().unwrap().to_string();
    refused(6, &["restart", "--listen", &place], &[&place, "--listen"]);
    scene.write("cowhand.yaml", &format!("{FLEET}agentz: 5\n"));
    refused(3, &["restart"], &["unknown key `agentz`"]);
    scene.write("cowhand.yaml", &format!("{FLEET}store: postgres://127.0.0.1:1/none\n"));
    refused(6, &["restart"], &["postgres://127.0.0.1:1/none"]);
    scene.write("cowhand.yaml", FLEET);
    // Nothing can be bound at the path of the job socket.
    let folder = scene.root.join(".cowhand/talk");
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    refused(6, &["restart"], &[".cowhand/talk is in the place of a socket of cowhand; remove it"]);
    let doctor = scene.run(&["doctor"]).stdout;
    assert!(doctor.contains("talk is in the place of a socket"), "{doctor}");
    fs::remove_file(&folder).unwrap();
    let restarted = scene.run(&["restart"]);
    assert_eq!(restarted.code, Some(0), "{}", restarted.stderr);
    assert!(has_ended(daemon) && !has_ended(agent));
    assert_eq!(scene.job(&job)["status"], "running");
}

/// A restart would lose the history and the agents. `status` advises a backup instead.
#[test]
fn restart_is_refused_if_store_was_removed() {
    let scene = Scene::started();
    let (_, agent) = scene.waiting_job();
    let daemon = scene.daemon().unwrap();
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        fs::remove_file(scene.root.join(".cowhand").join(name)).unwrap();
    }
    let said = scene.run(&["restart"]);
    assert_eq!(said.code, Some(6), "{}{}", said.stdout, said.stderr);
    assert!(
        said.stderr.contains("was removed") && said.stderr.contains("cowhand backup FILE"),
        "{}",
        said.stderr
    );
    assert!(!has_ended(daemon) && !has_ended(agent));
    assert!(!scene.root.join(".cowhand/store.db").exists());
    let started = scene.run(&["start", "-d"]);
    assert_eq!(started.code, Some(5), "{}", started.stderr);
    // The advised command works unchanged.
    let saved = scene.run(&["backup", "saved.db"]);
    assert_eq!(saved.code, Some(0), "{}{}", saved.stdout, saved.stderr);
    let stopped = scene.run(&["stop", "--keep-agents"]);
    assert_eq!((stopped.code, stopped.stdout.as_str()), (Some(0), "stopped; 1 job still runs\n"));
    for verb in ["status", "doctor"] {
        let said = scene.run(&[verb]).stdout;
        assert!(said.contains("cowhand restore FILE") && !said.contains("starts it"), "{said}");
    }
    let started = scene.run(&["start", "-d"]);
    assert_eq!(started.code, Some(6), "its agent runs: {}{}", started.stdout, started.stderr);
    assert!(started.stderr.contains("cowhand restore FILE"), "{}", started.stderr);
    assert!(!has_ended(agent) && !scene.root.join(".cowhand/store.db").exists());
    assert_eq!(scene.run(&["restore", "saved.db"]).code, Some(0));
    assert_eq!(scene.run(&["start", "-d"]).code, Some(0));
    assert!(!has_ended(agent));
}

/// Verbs of other terminals wait for the new daemon. A request to change something is not sent again after the daemon may
/// have carried it out.
#[test]
fn verbs_succeed_during_restarts() {
    let scene = Scene::started();
    let has_ended = AtomicBool::new(false);
    let repeat = |arguments: &[&str]| {
        let mut runs = (0, 0);
        while !has_ended.load(Ordering::Relaxed) {
            let said = scene.run(arguments);
            let is_unclear = arguments[0] == "trigger"
                && said.stderr.contains("the daemon ended the connection before it had answered");
            let code = if is_unclear { 4 } else { 0 };
            assert_eq!(said.code, Some(code), "{arguments:?}: {}{}", said.stdout, said.stderr);
            if is_unclear { runs.1 += 1 } else { runs.0 += 1 }
        }
        runs
    };
    let (triggered, unclear) = std::thread::scope(|scope| {
        let readers = [&["status"][..], &["schedule", "list"], &["jobs", "--limit", "3"]];
        let readers = readers.map(|arguments| scope.spawn(|| repeat(arguments)));
        let triggers = scope.spawn(|| repeat(&["trigger", "worker", "-p", "again"]));
        for _ in 0..4 {
            let restarted = scene.run(&["restart"]);
            assert_eq!(restarted.code, Some(0), "{}", restarted.stderr);
        }
        has_ended.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap().0 > 0);
        }
        triggers.join().unwrap()
    });
    let jobs = scene.json(&["jobs", "--all", "--agent", "worker"]);
    let jobs = jobs.as_array().unwrap().len();
    assert!(
        (triggered..=triggered + unclear).contains(&jobs),
        "{jobs} jobs of {triggered} and {unclear} requests"
    );
}

#[test]
fn restart_keeps_start_options() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let scene = Scene::new();
    fs::write(scene.root.join("cowhand.yaml"), format!("{FLEET}server: {{listen: \"{}\"}}\n", free()))
        .unwrap();
    let command_line = || {
        let pid = scene.daemon().unwrap().as_raw_nonzero();
        let told = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        String::from_utf8(told).unwrap().replace('\0', " ")
    };
    assert_eq!(
        scene.run(&["start", "-d", "--no-server", "--stop-timeout", "7", "--log-format", "json"]).code,
        Some(0)
    );
    let restarted = scene.run(&["restart"]);
    assert_eq!((restarted.code, restarted.stdout.as_str()), (Some(0), "ready\n"), "{}", restarted.stderr);
    for word in ["--no-server", "--stop-timeout 7", "--log-format json"] {
        assert!(command_line().contains(word), "{word} in {}", command_line());
    }
    let other = free().to_string();
    let restarted = scene.run(&["restart", "--listen", &other, "--stop-timeout", "8"]);
    let ready = format!("ready http://{other}\n");
    assert_eq!(
        (restarted.code, restarted.stdout.as_str()),
        (Some(0), ready.as_str()),
        "{}",
        restarted.stderr
    );
    assert!(command_line().contains("--log-format json") && command_line().contains("--stop-timeout 8"));
    // `restart` also works on the port that the old daemon still uses, and after a daemon was killed.
    let restarted = scene.run(&["restart"]);
    assert_eq!(
        (restarted.code, restarted.stdout.as_str()),
        (Some(0), ready.as_str()),
        "{}",
        restarted.stderr
    );
    scene.kill_daemon();
    let restarted = scene.run(&["restart"]);
    assert_eq!(
        (restarted.code, restarted.stdout.as_str()),
        (Some(0), ready.as_str()),
        "{}",
        restarted.stderr
    );
}

/// The restart fails in a way that it does not check before: the new daemon is killed while it starts.
#[test]
fn failed_restart_reports_that_no_daemon_runs() {
    let scene = Scene::started();
    let (_, agent) = scene.waiting_job();
    let Output { status, stderr, .. } =
        scene.command(&["restart"]).env("COWHAND_FAULT", "adopted").output().unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(6), "{stderr}");
    assert!(stderr.contains("no daemon runs now") && stderr.contains("cowhand start -d"), "{stderr}");
    assert!(!has_ended(agent));
    assert_eq!(scene.run(&["restart"]).code, Some(0));
}

/// If the stored options cannot be read, `restart` is refused, because it could open a server that was turned off.
#[test]
fn restart_refuses_unreadable_start_options() {
    let scene = Scene::started();
    let daemon = scene.daemon().unwrap();
    let file = scene.root.join(".cowhand/start.json");
    for text in ["{\"listen\": 7}", "", "no json"] {
        fs::write(&file, text).unwrap();
        let said = scene.run(&["restart"]);
        assert_eq!(said.code, Some(6), "{text:?}: {}{}", said.stdout, said.stderr);
        for word in ["start.json", "cowhand stop --keep-agents", "cowhand start -d", "--no-server"] {
            assert!(said.stderr.contains(word), "{word} in {}", said.stderr);
        }
        assert_eq!(scene.daemon(), Some(daemon), "{text:?}");
    }
    // The advised commands work.
    assert_eq!(scene.run(&["stop", "--keep-agents"]).code, Some(0));
    let said = scene.run(&["restart"]);
    assert!(said.code == Some(6) && said.stderr.contains("cowhand start -d"), "{}", said.stderr);
    assert!(!said.stderr.contains("cowhand stop"), "no daemon runs: {}", said.stderr);
    scene.start();
    let restarted = scene.run(&["restart"]);
    assert_eq!(restarted.code, Some(0), "{}", restarted.stderr);
    assert!(scene.json(&["status"])["daemon"]["url"].is_null());
}

/// A file of the state folder that a start would refuse is found before the old daemon is stopped.
#[test]
fn restart_is_refused_if_a_file_of_the_state_folder_is_damaged() {
    for (name, problem) in [("job-key", "is damaged"), ("node", "is empty")] {
        let scene = Scene::started();
        scene.write(&format!(".cowhand/{name}"), "");
        let said = scene.run(&["restart"]);
        assert_eq!(said.code, Some(6), "{}", said.stderr);
        assert!(
            said.stderr.contains(problem) && said.stderr.contains("Nothing was stopped"),
            "{}",
            said.stderr
        );
        let doctor = scene.run(&["doctor"]);
        assert!(
            doctor.stdout.contains("FAIL  state folder") && doctor.stdout.contains(problem),
            "{}",
            doctor.stdout
        );
        assert_eq!(scene.run(&["stop"]).code, Some(0));
        let status = scene.run(&["status"]).stdout;
        assert!(status.contains(problem) && !status.contains("starts it"), "{status}");
        std::fs::remove_file(scene.root.join(".cowhand").join(name)).unwrap();
        scene.start();
    }
}

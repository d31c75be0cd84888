//! The daemon's folder, config or server is removed while it runs; and invalid folders, configs and stores.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;

use cowhand_testing::postgres::Postgres;
use rustix::process::{Signal, kill_process};

use super::{FLEET, Running, Scene, has_ended, wait_until};

/// The daemon ends its agents and then itself, because another daemon could start in its place.
#[test]
fn daemon_without_state_folder_ends() {
    for moved in [false, true] {
        let scene = Scene::new();
        let mut daemon = Running::of(scene.command(&["start", "--no-server"]).stderr(Stdio::piped()));
        assert_eq!(daemon.line(), "ready");
        let (_, agent) = scene.waiting_job();
        let state = scene.root.join(".cowhand");
        fs::rename(&state, scene.root.join("elsewhere")).unwrap();
        if !moved {
            fs::remove_dir_all(scene.root.join("elsewhere")).unwrap();
        }
        scene.start();
        let second = scene.daemon();
        let said = daemon.end();
        assert_eq!(said.code, Some(6), "{}", said.stderr);
        assert!(said.stderr.contains("was removed, moved or replaced"), "{}", said.stderr);
        wait_until("the end of its agent", || has_ended(agent).then_some(()));
        assert_eq!(scene.daemon(), second, "the other one is left alone, and so is its socket");
        assert_eq!(scene.json(&["trigger", "worker", "--wait"])["status"], "completed");
    }
}

/// The daemon makes its sockets again. Until then, verbs wait for it.
#[test]
fn removed_sockets_are_made_again() {
    // The second path is too long for a socket, so the sockets are elsewhere, with links to them.
    for path in ["", &"long/".repeat(20)] {
        let scene = Scene::beneath(path, FLEET);
        scene.start();
        let state = scene.root.join(".cowhand");
        let daemon = scene.daemon().unwrap();
        let real = fs::read_link(state.join("sock")).unwrap_or_else(|_| state.join("sock"));
        let talk = fs::read_link(state.join("talk")).unwrap_or_else(|_| state.join("talk"));
        let removals: [&dyn Fn(); 4] = [
            &|| fs::remove_file(state.join("sock")).unwrap(),
            &|| fs::remove_file(&real).unwrap(),
            &|| fs::write(fs::remove_file(&real).map(|()| &real).unwrap(), "").unwrap(),
            &|| fs::remove_file(talk.join("job.sock")).unwrap(),
        ];
        for (number, remove) in removals.iter().enumerate() {
            remove();
            assert_eq!(scene.daemon(), Some(daemon), "{number}: {}", scene.log());
            wait_until("the socket of jobs", || UnixStream::connect(talk.join("job.sock")).ok());
        }
        fs::remove_dir_all(&talk).unwrap();
        wait_until("the socket of jobs", || UnixStream::connect(talk.join("job.sock")).ok());
        assert!(
            scene.log().contains("was removed or replaced; cowhand has made it again"),
            "{}",
            scene.log()
        );
        assert_eq!(scene.json(&["trigger", "worker", "--wait"])["status"], "completed");
        assert_eq!(scene.run(&["stop"]).code, Some(0));
        assert!(!state.join("sock").exists());
    }
}

/// All verbs name the process that holds the folder, and none advises a verb that cannot work.
#[test]
fn all_verbs_name_daemon_that_cannot_be_reached() {
    let scene = Scene::started();
    let daemon = scene.daemon().unwrap();
    // A suspended daemon does not make its socket again.
    kill_process(daemon, Signal::STOP).unwrap();
    fs::remove_file(scene.root.join(".cowhand/sock")).unwrap();
    let pid = daemon.as_raw_nonzero();
    let verbs = [
        &["status"][..],
        &["why", "worker"],
        &["stop"],
        &["trigger", "worker"],
        &["start", "-d"],
        &["start"],
        &["restart"],
        &["restore", "cowhand.yaml"],
        &["doctor"],
    ];
    let said: Vec<_> = verbs.map(|verb| scene.spawn(verb)).into_iter().map(Running::end).collect();
    kill_process(daemon, Signal::CONT).unwrap();
    for (verb, said) in verbs.iter().zip(said) {
        let code = if *verb == ["doctor"] { 6 } else { 4 };
        let text = said.stdout + &said.stderr;
        assert_eq!(said.code, Some(code), "{verb:?}: {text}");
        for words in [format!("a daemon (pid {pid}) holds"), format!("`kill {pid}`")] {
            assert!(text.contains(&words), "{verb:?}: {words} in {text}");
        }
        assert!(!text.contains("starts it") && !text.contains("cowhand stop"), "{verb:?}: {text}");
    }
    assert_eq!(scene.daemon(), Some(daemon));
}

/// The folder stays locked, so no second daemon starts, and the job goes on.
#[test]
fn removed_lock_file_is_made_again() {
    let scene = Scene::started();
    let (job, agent) = scene.waiting_job();
    let daemon = scene.daemon().unwrap();
    let lock = scene.root.join(".cowhand/daemon.lock");
    let holder = || fs::read_to_string(&lock).ok()?.trim().parse::<i32>().ok();
    for starts in [true, false] {
        fs::remove_file(&lock).unwrap();
        if starts {
            let said = scene.run(&["start", "-d", "--no-server"]);
            assert_eq!(said.code, Some(5), "{}{}", said.stdout, said.stderr);
        }
        wait_until("the lock file", || holder().filter(|pid| *pid == daemon.as_raw_nonzero().get()));
    }
    assert!(
        scene.log().contains("daemon.lock or `attempts` was removed or replaced; cowhand has made it again"),
        "{}",
        scene.log()
    );
    assert!(scene.daemon() == Some(daemon) && !has_ended(agent));
    scene.go();
    wait_until("the end of the job", || (scene.job(&job)["status"] == "completed").then_some(()));
}

/// The daemon makes the socket and the lock file again. Until then, verbs wait and do not say that no daemon runs.
#[test]
fn verbs_wait_for_removed_socket_and_lock_file() {
    let scene = Scene::started();
    let daemon = scene.daemon();
    for arguments in [&["status"][..], &["trigger", "worker"]] {
        for file in ["sock", "daemon.lock"] {
            fs::remove_file(scene.root.join(".cowhand").join(file)).unwrap();
        }
        let said = scene.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}{}", said.stdout, said.stderr);
        assert!(!said.stdout.contains("not running"), "{arguments:?}: {}", said.stdout);
        wait_until("the lock file", || scene.root.join(".cowhand/daemon.lock").exists().then_some(()));
    }
    assert_eq!(scene.daemon(), daemon);
}

/// An older version locks only the file, so its daemon can start after the file was removed. The first daemon then
/// leaves its agents to the second daemon.
#[test]
fn daemon_leaves_agents_to_daemon_that_took_lock_file() {
    let scene = Scene::new();
    let mut daemon = Running::of(scene.command(&["start", "--no-server"]).stderr(Stdio::piped()));
    assert_eq!(daemon.line(), "ready");
    let (job, agent) = scene.waiting_job();
    let path = scene.root.join(".cowhand/daemon.lock");
    let lock = fs::File::create(path.with_extension("other")).unwrap();
    lock.lock().unwrap();
    fs::rename(path.with_extension("other"), &path).unwrap();
    let said = daemon.end();
    assert_eq!(said.code, Some(6), "{}", said.stderr);
    assert!(said.stderr.contains("another daemon uses the folder now"), "{}", said.stderr);
    assert!(!said.stderr.contains("was removed, moved or replaced"), "{}", said.stderr);
    assert!(!has_ended(agent));
    drop(lock);
    scene.start();
    assert_eq!(scene.job(&job)["status"], "running");
}

/// The first daemon locks only the file, as older versions do, and its file was removed.
#[test]
fn daemon_that_answers_prevents_second_daemon() {
    let scene = Scene::new();
    let state = scene.root.join(".cowhand");
    fs::create_dir(&state).unwrap();
    let socket = UnixListener::bind(state.join("sock")).unwrap();
    let said = scene.run(&["start", "--internal-detached-daemon", "--no-server"]);
    assert_eq!(said.code, Some(5), "{}{}", said.stdout, said.stderr);
    assert!(said.stderr.contains("a daemon is running in"), "{}", said.stderr);
    drop(socket);
    scene.start();
}

#[test]
fn daemon_without_config_file_answers_and_stops() {
    let scene = Scene::started();
    let (job, _) = scene.waiting_job();
    fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
    let status = scene.run(&["status"]);
    assert_eq!(status.code, Some(0), "{}", status.stderr);
    assert!(status.stderr.contains("there is no config in"), "{}", status.stderr);
    wait_until("the daemon to notice it", || {
        scene.json(&["status"])["daemon"]["config_missing"].as_bool().filter(|missing| *missing)
    });
    let status = scene.run(&["status"]).stdout;
    assert!(status.contains("the config file does not exist (noticed "), "{status}");
    assert!(!status.contains("config check"), "{status}");
    let doctor = scene.run(&["doctor"]).stdout;
    assert!(doctor.contains("cowhand.yaml does not exist; put it back"), "{doctor}");
    assert_eq!(scene.json(&["jobs"])[0]["id"], job.as_str());
    assert_eq!(scene.run(&["restart"]).code, Some(3));
    assert_eq!(scene.job(&job)["status"], "running");
    let stopped = scene.run(&["stop", "--timeout", "0"]);
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    assert!(!stopped.stderr.contains("has errors"), "{}", stopped.stderr);
    let nothing = scene.run(&["status"]);
    assert_eq!(nothing.code, Some(3), "{}", nothing.stderr);
}

#[test]
fn all_verbs_refuse_empty_config() {
    let scene = Scene::new();
    fs::write(scene.root.join("cowhand.yaml"), "\n").unwrap();
    for verb in [&["config", "check"][..], &["start", "-d"], &["start"]] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(3), "{verb:?}: {}{}", said.stdout, said.stderr);
        assert!(said.stderr.contains("is empty"), "{verb:?}: {}", said.stderr);
    }
    scene.write("cowhand.yaml", FLEET);
    scene.start();
    let daemon = scene.daemon();
    fs::write(scene.root.join("cowhand.yaml"), "").unwrap();
    assert_eq!(scene.run(&["restart"]).code, Some(3));
    assert_eq!(scene.run(&["reload"]).code, Some(3));
    assert_eq!(scene.daemon(), daemon);
}

/// No verb uses the value as the name of a file.
#[test]
fn all_verbs_refuse_invalid_store_address() {
    let scene = Scene::with(&format!("store: notaurl\n{FLEET}"));
    for (verb, code) in [
        (&["jobs"][..], 3),
        (&["status"], 3),
        (&["doctor"], 3),
        (&["restore", "cowhand.yaml"], 3),
        (&["start", "-d"], 3),
        (&["config", "check"], 3),
    ] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(code), "{verb:?}: {}{}", said.stdout, said.stderr);
        let text = said.stdout + &said.stderr;
        assert!(!text.contains("statements work"), "{verb:?}: {text}");
        assert!(!scene.root.join("notaurl").exists(), "{verb:?} made a file");
    }
}

#[test]
fn error_names_state_folder_that_is_a_file() {
    let scene = Scene::new();
    let state = scene.root.join(".cowhand");
    fs::write(&state, "").unwrap();
    for verb in [&["start"][..], &["start", "-d"], &["status"]] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(6), "{verb:?}: {}", said.stderr);
        let named = said.stderr.contains(state.to_str().unwrap()) && said.stderr.contains("move");
        assert!(named, "{verb:?}: {}", said.stderr);
    }
}

/// Warnings of `config check` are shown once, and the error without the surrounding log.
#[test]
fn failed_start_prints_its_error_once() {
    let scene = Scene::with("agents:\n  - {name: a, runtime: command, command: ['true'], model: opus}\n");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = taken.local_addr().unwrap().to_string();
    for format in ["text", "json"] {
        let said = scene.run(&["start", "-d", "--listen", &place, "--log-format", format]);
        assert_eq!(said.code, Some(6), "{}", said.stderr);
        assert_eq!(said.stderr.matches("`model`").count(), 1, "{}", said.stderr);
        assert!(said.stderr.contains(&format!("error: cannot listen on {place}")), "{}", said.stderr);
        assert!(!said.stderr.contains("WARN"), "{}", said.stderr);
    }
}

/// The server is not available for a time: errors name it, and say that the daemon continues.
#[test]
fn error_names_unreachable_postgres_server() {
    let server = Postgres::start();
    let url = server.url();
    let scene = Scene::with(&format!("store: {url}\n{FLEET}"));
    scene.start();
    let daemon = scene.daemon().unwrap();
    drop(server);
    for verb in [&["status"][..], &["trigger", "worker"], &["why", "worker/tidy"]] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(6), "{verb:?}: {}{}", said.stdout, said.stderr);
        for word in
            ["the PostgreSQL server of the store, postgres://", "does not answer", "continues by itself"]
        {
            assert!(said.stderr.contains(word), "{verb:?}: {word} in {}", said.stderr);
        }
    }
    let doctor = scene.run(&["doctor"]);
    assert_eq!(doctor.code, Some(6), "{}", doctor.stdout);
    assert!(doctor.stdout.contains("daemon: running"), "{}", doctor.stdout);
    assert!(doctor.stdout.contains("does not answer"), "{}", doctor.stdout);
    kill_process(daemon, Signal::KILL).unwrap();
}

/// Standard output cannot be written.
#[test]
fn full_standard_output_is_reported() {
    let scene = Scene::new();
    for verb in [&["config", "check"][..], &["config", "show"], &["config", "schema"], &["jobs", "--json"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = scene.command(verb).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(6), "{verb:?}: {said}");
        assert!(said.contains("cannot write to standard output: No space left"), "{verb:?}: {said}");
        assert!(!said.contains("panicked"), "{verb:?}: {said}");
    }
}

#[test]
fn advice_of_init_names_config_path() {
    let scene = Scene::new();
    let said = scene.run(&["-c", "other.yaml", "init"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("cowhand -c other.yaml start -d"), "{}", said.stdout);
}

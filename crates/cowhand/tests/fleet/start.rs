//! The warnings of `start` about the config, and the file descriptors of a daemon in the background.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Running, Scene, wait_until};

/// Config with a key without effect, which is a warning and not an error.
const WARNED: &str = "agents:
  - {name: a, runtime: command, command: ['true'], model: opus}
";

#[test]
fn warnings_of_the_config_are_shown_and_logged() {
    let scene = Scene::with(WARNED);
    let checked = scene.run(&["config", "check"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let warning = checked.stderr.lines().find(|line| line.starts_with("warning")).unwrap();
    let text = warning.split_once(": ").unwrap().1;
    let started = scene.run(&["start", "-d", "--no-server"]);
    assert_eq!((started.code, started.stdout.as_str()), (Some(0), "ready\n"));
    assert!(started.stderr.contains(warning), "{}", started.stderr);
    assert_eq!(scene.log().matches(text).count(), 1, "{}", scene.log());
    assert!(
        scene.log().lines().any(|line| line.contains("WARN") && line.contains("cowhand.yaml:2:")),
        "{}",
        scene.log()
    );
    let restarted = scene.run(&["restart", "--no-server"]);
    assert!(restarted.stderr.contains(warning), "{}", restarted.stderr);
}

/// A script that waits for the end of its pipe does not wait for the daemon.
#[test]
fn background_daemon_keeps_no_descriptor_of_its_caller() {
    let scene = Scene::with("agents: []\n");
    for verb in ["start -d --no-server", "restart --no-server"] {
        let script = format!("exec '{}' {verb} 9>&1 >/dev/null", env!("CARGO_BIN_EXE_cowhand"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(&scene.root).stdin(Stdio::null()).stdout(Stdio::piped());
        shell.env("XDG_RUNTIME_DIR", scene.folder.path());
        let mut caller = shell.spawn().unwrap();
        let mut pipe = caller.stdout.take().unwrap();
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            std::io::copy(&mut pipe, &mut std::io::sink()).unwrap();
            sender.send(()).ok();
        });
        assert!(caller.wait().unwrap().success(), "{verb}");
        let pid = scene.json(&["status"])["daemon"]["pid"].to_string();
        let open: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().collect();
        assert!(ended.recv_timeout(Duration::from_mins(1)).is_ok(), "{verb}: the pipe is open: {open:?}");
    }
}

/// Each refused start prints its own reason, and not the reasons of other starts, which write to the same log.
#[test]
fn of_several_starts_at_once_one_succeeds_and_the_others_say_why() {
    let scene = Scene::with("agents: []\n");
    let starts: Vec<_> = (0..4)
        .map(|_| {
            let mut start = scene.command(&["start", "-d", "--no-server"]);
            start.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let ended: Vec<_> = starts.into_iter().map(|start| start.wait_with_output().unwrap()).collect();
    let (ready, refused): (Vec<_>, Vec<_>) = ended.into_iter().partition(|output| output.status.success());
    assert_eq!(ready.len(), 1);
    for output in refused {
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.lines().count() == 1 && stderr.contains("is running"), "{stderr}");
    }
}

/// A misspelt name of the config is refused even if a daemon runs in its folder.
#[test]
fn a_config_that_does_not_exist_is_refused_while_a_daemon_runs() {
    let scene = Scene::with("agents: []\n");
    scene.start();
    for arguments in [["-c", "nope.yaml", "status"], ["-c", "nope.yaml", "stop"]] {
        let said = scene.run(&arguments);
        assert_eq!(said.code, Some(3), "{}{}", said.stdout, said.stderr);
        assert!(said.stderr.contains("nope.yaml does not exist"), "{}", said.stderr);
    }
    // The daemon continues without its own config file, and can be stopped by the name of that file.
    fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
    assert_eq!(scene.run(&["-c", "cowhand.yaml", "stop"]).code, Some(0));
}

/// The store of this daemon does not answer, so the daemon has the lock and no socket yet.
#[test]
fn daemon_that_is_starting_is_not_shown_as_not_running() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("postgres://nobody@127.0.0.1:{}/none", silent.local_addr().unwrap().port());
    let scene = Scene::with(&format!("agents: []\nstore: {store}\n"));
    let daemon = Running::of(scene.command(&["start", "--no-server"]).stderr(Stdio::null()));
    let (lock, pid) = (scene.root.join(".cowhand/daemon.lock"), daemon.child.id());
    wait_until("the lock of the daemon", || {
        fs::read_to_string(&lock).is_ok_and(|text| text == format!("starting {pid}\n")).then_some(())
    });
    // The daemon stays suspended until the end of the test.
    kill_process(Pid::from_child(&daemon.child), Signal::STOP).unwrap();
    let verbs = ["status", "jobs", "reload", "stop"];
    let asked = verbs.map(|verb| {
        let mut command = scene.command(&[verb]);
        (verb, command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    });
    for (verb, asked) in asked {
        let said = asked.wait_with_output().unwrap();
        let text = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("the daemon (pid {pid}) of the state folder ")), "{verb}: {text}");
        assert!(text.contains("is starting, and does not answer yet"), "{verb}: {text}");
        assert_eq!(said.status.code(), Some(4), "{verb}: {text}");
    }
}

/// `--background` means `--detach`: the command returns when the daemon is ready.
#[test]
fn background_is_another_name_of_detach() {
    let scene = Scene::new();
    let said = scene.run(&["start", "--background", "--no-server"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "ready\n"), "{}", said.stderr);
    assert_eq!(scene.json(&["status"])["daemon"]["running"], true);
}

/// A config whose first problem is a warning, and whose second problem is an error.
const WARNED_AND_WRONG: &str = "agents:
  - {name: a, runtime: command, command: ['true'], model: opus}
  - {name: b, runtime: command, command: ['true'], unknown_key: 1}
";

#[test]
fn a_refused_start_does_not_call_a_warning_an_error() {
    let scene = Scene::with(WARNED_AND_WRONG);
    for verb in [&["start", "-d"][..], &["start"]] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(3), "{}", said.stderr);
        assert!(said.stderr.contains("warning") && said.stderr.contains("unknown_key"), "{}", said.stderr);
        assert!(!said.stderr.contains("error: warning"), "{verb:?}: {}", said.stderr);
    }
}

#[test]
fn a_start_is_not_advised_for_a_config_with_errors() {
    let scene = Scene::new();
    scene.start();
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    scene.write("cowhand.yaml", WARNED_AND_WRONG);
    for verb in [&["status"][..], &["trigger", "worker"], &["reload"]] {
        let said = scene.run(verb);
        let text = super::left::words(&format!("{}{}", said.stdout, said.stderr));
        assert!(
            text.contains("the config has errors; `cowhand config check` lists them"),
            "{verb:?}: {text}"
        );
        assert!(!text.contains("`cowhand start -d` starts it"), "{verb:?}: {text}");
        assert!(!text.contains("start one with"), "{verb:?}: {text}");
    }
}

//! The daemon dies between the end of a job and its hooks, and during a hook.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::server::Server;
use crate::{Scene, states, text, wait_until};

/// Every durable step, in order.
const STEPS: [&str; 9] = [
    "settled",
    "hook_taken",
    "hook_launched",
    "hook_ended",
    "hook_settled",
    "hook_taken:2",
    "hook_ended:2",
    "hook_settled:2",
    "hook_taken:3",
];

fn dies_at_every_step(database: &str) {
    let server = Server::start();
    for step in STEPS {
        let mut scene = Scene::on(
            database,
            &format!(
                "
agents:
  - name: worker
    runtime: command
    command: [echo, done]
    hooks:
      after_run:
        - {{type: shell, command: 'echo one >> runs'}}
        - {{type: webhook, url: '{}/ok', allow_private: true}}
        - {{type: shell, command: 'echo three >> runs'}}
",
                server.url
            ),
        );
        scene.start_and_die(step);
        let before = server.asked("/ok").len();
        let job = scene.trigger("worker");
        assert!(!scene.ended().success(), "{step}: it should have died there");
        scene.start();
        let hooks = scene.hooks(&job);
        assert_eq!(states(&hooks), ["completed"; 3], "{step}: {hooks:?}");
        assert_eq!(scene.read("runs"), "one\nthree\n", "{step}: a shell hook is begun once");
        let asked = server.asked("/ok").len() - before;
        let expected = if step == "hook_ended:2" { 2 } else { 1 };
        assert_eq!(asked, expected, "{step}: a webhook is sent at least once");
        assert_eq!(scene.events(&job), ["hook:completed"; 3], "{step}");
        wait_until("folders to go", || {
            let names = fs::read_dir(scene.path(".cowhand/attempts")).unwrap().flatten();
            (names.count() == 0).then_some(())
        });
    }
}

#[test]
fn on_sqlite_the_daemon_dies_at_every_step() {
    dies_at_every_step("sqlite");
}

#[test]
fn on_postgres_the_daemon_dies_at_every_step() {
    dies_at_every_step("postgres");
}

/// The panic is in the loop that takes hooks, or in the task of one hook.
#[test]
fn hooks_continue_after_panic() {
    for place in ["hook_taken", "hook_launched", "hook_ended", "hook_settled"] {
        let mut scene = Scene::new(
            "
agents:
  - name: worker
    runtime: command
    command: [echo, done]
    hooks:
      after_run:
        - {type: shell, command: 'echo one >> runs'}
        - {type: shell, command: 'echo two >> runs'}
",
        );
        scene.start_and_die(&format!("panic:{place}"));
        let hooks = scene.hooks_after_run("worker");
        assert_eq!(states(&hooks), ["completed"; 2], "{place}: {hooks:?}");
        assert_eq!(scene.read("runs"), "one\ntwo\n", "{place}: each is begun once");
        let log = scene.read("log");
        assert!(log.contains(&format!("panicked: injected fault at {place:?}")), "{place}:\n{log}");
    }
}

/// A hook that panics each time fails, and does not block the others for ever.
#[test]
fn a_hook_that_panics_each_time_fails() {
    let mut scene = Scene::new(
        "
agents:
  - name: worker
    runtime: command
    command: [echo, done]
    hooks:
      after_run:
        - {type: shell, command: 'echo one >> runs'}
",
    );
    scene.start_and_die("panic:hook_ended:100");
    let hooks = scene.hooks_after_run("worker");
    assert_eq!(states(&hooks), ["failed"], "{hooks:?}");
    assert_eq!(scene.read("runs"), "one\n", "it is begun once");
}

const WAITS: &str = "
agents:
  - name: worker
    runtime: command
    command: [echo, done]
    hooks:
      after_run:
        - {type: shell, timeout: 60000, command: 'echo $$ >> pid; while [ ! -e go ]; do sleep 0.05; done; echo went'}
        - {type: shell, command: 'echo next'}
";

fn pid(scene: &Scene) -> Pid {
    let pid = wait_until("the hook to run", || scene.read("pid").trim().parse().ok());
    Pid::from_raw(pid).unwrap()
}

#[test]
fn running_hook_survives_kill_of_daemon() {
    let mut scene = Scene::new(WAITS);
    scene.start();
    let job = scene.trigger("worker");
    let running = pid(&scene);
    scene.kill();
    rustix::process::test_kill_process(running).expect("the hook lives on");
    scene.start();
    fs::write(scene.path("go"), "").unwrap();
    let hooks = scene.hooks(&job);
    assert_eq!(states(&hooks), ["completed", "completed"]);
    assert_eq!((text(&hooks[0], "said"), hooks[0]["tries"].as_u64()), ("went", Some(1)));
    assert_eq!(scene.read("pid").lines().count(), 1, "it was begun once");
}

/// The hook still runs, so it is neither lost nor begun again.
#[test]
fn a_hook_whose_state_cannot_be_read_for_a_while_is_followed() {
    let mut scene = Scene::new(WAITS);
    scene.start();
    let job = scene.trigger("worker");
    pid(&scene);
    // A folder in place of this file makes every read of the state fail.
    let record = scene.path(&format!(".cowhand/attempts/{job}.hook1/ending.json"));
    fs::create_dir(&record).unwrap();
    wait_until("the error", || scene.read("log").contains("cannot read the state of its hook").then_some(()));
    fs::remove_dir(&record).unwrap();
    fs::write(scene.path("go"), "").unwrap();
    let hooks = scene.hooks(&job);
    assert_eq!(states(&hooks), ["completed"; 2], "{hooks:?}");
    assert_eq!(text(&hooks[0], "said"), "went");
    assert_eq!(scene.read("pid").lines().count(), 1, "it is begun once");
}

#[test]
fn hook_times_out_while_no_daemon_runs() {
    let mut scene = Scene::new(&WAITS.replace("60000", "8000"));
    scene.start();
    let job = scene.trigger("worker");
    let running = pid(&scene);
    scene.kill();
    wait_until("the keeper to end it", || rustix::process::test_kill_process(running).is_err().then_some(()));
    scene.start();
    let hooks = scene.hooks(&job);
    assert_eq!(states(&hooks), ["failed", "completed"]);
    assert!(text(&hooks[0], "reason").contains("longer than"), "{hooks:?}");
}

/// The hook is not started again, because its progress is unknown.
#[test]
fn hook_killed_with_its_keeper_is_lost() {
    let mut scene = Scene::new(WAITS);
    scene.start();
    let job = scene.trigger("worker");
    let running = pid(&scene);
    scene.kill();
    let folder = scene.path(&format!(".cowhand/attempts/{job}.hook1"));
    let keeper: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.join("keeper.json")).unwrap()).unwrap();
    let keeper = Pid::from_raw(keeper["pid"].as_i64().unwrap().try_into().unwrap()).unwrap();
    for pid in [keeper, running] {
        kill_process(pid, Signal::KILL).unwrap();
    }
    scene.start();
    let hooks = scene.hooks(&job);
    assert_eq!(states(&hooks), ["failed", "completed"]);
    assert_eq!(text(&hooks[0], "reason"), "lost: its exit status is not known");
    assert_eq!(scene.read("pid").lines().count(), 1, "it was begun once");
}

#[test]
fn stop_waits_for_short_hooks() {
    let mut scene = Scene::new(
        "
agents:
  - name: worker
    runtime: command
    command: [sleep, '600']
    hooks: {after_run: [{type: shell, command: 'sleep 0.3; cat > told'}]}
",
    );
    scene.start();
    let job = scene.trigger("worker");
    wait_until("the agent to run", || (scene.json(&["job", &job])["status"] == "running").then_some(()));
    scene.run(&["stop", "--timeout", "0"]);
    scene.ended();
    let told: serde_json::Value = serde_json::from_str(&scene.read("told")).unwrap();
    assert_eq!(told["event"], "cancelled", "its end has hooks as well");
    assert_eq!(states(&scene.hooks(&job)), ["completed"]);
}

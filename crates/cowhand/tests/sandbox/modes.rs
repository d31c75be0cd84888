//! Landlock does not restrict the modes of files: attacks by a process of the same owner, and their effects.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use serde_json::{Value, json};

use super::{Scene, User, wait_until};

/// Script that creates `ready`, and waits for `go`.
const WAITS: &str = "touch ready; while [ ! -e go ]; do sleep 0.05; done; echo over";

/// User who is neither root nor the owner of the fleet.
const STRANGER: u32 = 33;

fn mode(scene: &Scene, name: &str) -> u32 {
    fs::metadata(scene.path(name)).unwrap().mode() & 0o777
}

fn set_mode(scene: &Scene, name: &str, mode: u32) {
    fs::set_permissions(scene.path(name), Permissions::from_mode(mode)).unwrap();
}

fn log(scene: &Scene) -> String {
    fs::read_to_string(scene.path("log")).unwrap()
}

/// Starts a fleet with an agent that waits.
fn waiting(user: User, sandbox: &Value) -> (Scene, String) {
    let mut scene = Scene::new(user, WAITS, &json!({ "sandbox": sandbox }));
    scene.start();
    let job = scene.trigger();
    wait_until("the agent to be up", || scene.path("desk/ready").exists().then_some(()));
    (scene, job)
}

fn ends_well(scene: &Scene, job: &str) {
    fs::write(scene.path("desk/go"), "").unwrap();
    let (job, said) = scene.ended(job);
    assert_eq!(
        (&job["status"], said.lines().next()),
        (&json!("completed"), Some("over")),
        "{job:#}\n{}",
        log(scene)
    );
}

/// Returns the status and text of the answer. The daemon restores the modes, so they are set again for each
/// try.
fn asked_by_stranger(scene: &Scene, method: &str, path: &str) -> (String, String) {
    wait_until("an answer", || {
        set_mode(scene, "fleet/.cowhand", 0o755);
        set_mode(scene, "fleet/.cowhand/sock", 0o666);
        let ids = [format!("--reuid={STRANGER}"), format!("--regid={STRANGER}"), "--clear-groups".to_owned()];
        let answer = Command::new("setpriv")
            .args(ids)
            .args([
                "curl",
                "-s",
                "-w",
                "\n%{http_code}",
                "-X",
                method,
                "-H",
                "content-type: application/json",
            ])
            .args(["-d", r#"{"name":"mine","scope":"admin"}"#, "--unix-socket"])
            .arg(scene.path("fleet/.cowhand/sock"))
            .arg(format!("http://x/api/v1/{path}"))
            .output()
            .unwrap();
        let answer = String::from_utf8(answer.stdout).unwrap();
        let (text, code) = answer.rsplit_once('\n').unwrap();
        (code != "000").then(|| (code.to_owned(), text.to_owned()))
    })
}

fn other_users_are_refused(user: User) {
    let mut scene = Scene::new(user, WAITS, &json!({}));
    scene.start();
    for (method, path) in [("POST", "tokens"), ("POST", "tokens"), ("GET", "jobs"), ("POST", "login")] {
        let (code, text) = asked_by_stranger(&scene, method, path);
        assert_eq!(code, "403", "{path}: {text}");
        assert!(text.contains("not for user 33"), "{text}");
    }
    assert_eq!(scene.json(&["token", "list"]), json!([]));
    let events = scene.command(&["events", "--json", "--audit"]).output().unwrap().stdout;
    let events = String::from_utf8(events).unwrap();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let refused: Vec<_> = events.filter(|event| event["type"] == "access:refused").collect();
    let endpoints: Vec<_> = refused.iter().map(|event| event["endpoint"].as_str().unwrap()).collect();
    assert_eq!(endpoints, ["/api/v1/tokens", "/api/v1/jobs", "/api/v1/login"], "{refused:#?}");
    assert!(refused.iter().all(|event| event["by"]["uid"] == STRANGER), "{refused:#?}");
    wait_until("the modes to be restored", || {
        let modes = ["fleet/.cowhand", "fleet/.cowhand/sock"].map(|name| mode(&scene, name));
        (modes == [0o700, 0o600]).then_some(())
    });
}

#[test]
fn fleet_of_root_refuses_other_users() {
    other_users_are_refused(User::Root);
}

#[test]
fn fleet_of_nobody_refuses_other_users() {
    other_users_are_refused(User::Nobody);
}

/// The mode may have been changed by a mistake of an operator, or by an agent.
#[test]
fn daemon_restores_mode_of_state_folder() {
    let (scene, job) = waiting(User::Nobody, &json!("none"));
    for closed in ["fleet/.cowhand", "fleet/.cowhand/attempts", "fleet/.cowhand/jobs"] {
        set_mode(&scene, closed, 0);
        wait_until("the mode to be restored", || (mode(&scene, closed) == 0o700).then_some(()));
    }
    set_mode(&scene, "fleet/.cowhand", 0);
    wait_until("the mode to be restored", || (mode(&scene, "fleet/.cowhand") == 0o700).then_some(()));
    // The folder of the attempt, with the log of its keeper, is removed after the end of the job.
    let keepers = scene.path("fleet/.cowhand/attempts").join(format!("{job}.1/keeper.log"));
    wait_until("the message of the daemon or of the keeper", || {
        let told = [log(&scene), fs::read_to_string(&keepers).unwrap()];
        let counts = told.each_ref().map(|told| told.matches(".cowhand to 000").count());
        assert!(counts.iter().all(|count| *count <= 1), "{told:#?}");
        counts.contains(&1).then_some(())
    });
    ends_well(&scene, &job);
    assert!(!log(&scene).contains("--keep-agents"), "{}", log(&scene));
}

/// A mode that the daemon cannot restore is reported, and the daemon waits.
#[test]
fn closed_parent_folder_is_reported_and_waited_for() {
    let (scene, job) = waiting(User::Nobody, &json!("none"));
    set_mode(&scene, "fleet", 0);
    let advice = format!("restore the mode: `chmod 700 {}`", scene.path("fleet").display());
    let closed = format!("cannot open the state folder {}", scene.path("fleet").display());
    for line in [advice.as_str(), closed.as_str(), "cannot follow the attempt now"] {
        wait_until(line, || log(&scene).contains(line).then_some(()));
    }
    fs::write(scene.path("desk/go"), "").unwrap();
    set_mode(&scene, "fleet", 0o755);
    ends_well(&scene, &job);
    let log = log(&scene);
    assert_eq!(log.matches(&closed).count(), 1, "{log}");
    assert!(!log.contains("--keep-agents") && !log.contains("is gone"), "{log}");
}

/// The keeper writes the end into a folder that somebody closed while no daemon ran.
#[test]
fn keeper_restores_mode_of_state_folder() {
    let (mut scene, job) = waiting(User::Nobody, &json!("none"));
    assert!(scene.command(&["stop", "--keep-agents"]).status().unwrap().success());
    scene.daemon.take().unwrap().wait().unwrap();
    set_mode(&scene, "fleet/.cowhand", 0);
    fs::write(scene.path("desk/go"), "").unwrap();
    let ending = scene.path("fleet/.cowhand/attempts").join(format!("{job}.1/ending.json"));
    wait_until("the keeper's word", || ending.exists().then_some(()));
    assert_eq!(mode(&scene, "fleet/.cowhand"), 0o700);
    scene.start();
    ends_well(&scene, &job);
}

fn an_agent_that_changes_modes(user: User) {
    let script = "chmod 000 \"$FLEET/.cowhand/attempts\" \"$FLEET/.cowhand\"; touch closed\n\
        while [ ! -e go ]; do sleep 0.05; done; echo over";
    let mut scene = Scene::new(user, script, &json!({"sandbox": "landlock"}));
    let fleet = scene.path("fleet").display().to_string();
    scene.set(&json!({"env": {"FLEET": fleet}}));
    scene.start();
    let job = scene.trigger();
    wait_until("the agent to have done it", || scene.path("desk/closed").exists().then_some(()));
    wait_until("the mode to be restored", || (mode(&scene, "fleet/.cowhand") == 0o700).then_some(()));
    ends_well(&scene, &job);
}

#[test]
fn modes_changed_by_landlock_agent_are_restored_as_root() {
    an_agent_that_changes_modes(User::Root);
}

#[test]
fn modes_changed_by_landlock_agent_are_restored_as_nobody() {
    an_agent_that_changes_modes(User::Nobody);
}

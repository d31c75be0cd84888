//! What cannot be enforced is not pretended: the job fails before anything runs, and says why.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::{Scene, User};

/// The reason; nothing has run.
pub(super) fn refused(scene: &mut Scene) -> String {
    scene.start();
    let (job, _) = scene.run();
    assert_eq!(job["status"], "failed", "{job:#}");
    assert_eq!(job["error"]["kind"], "start_failed", "{job:#}");
    assert!(!scene.path("desk/ran").exists(), "something ran: {job:#}");
    job["error"]["message"].as_str().unwrap().to_owned()
}

/// `doctor` knows it beforehand, in the same words.
fn foreseen(scene: &Scene, why: &str) {
    let doctor = scene.command(&["doctor"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains(&format!("FAIL  start of wild: {why}")), "{why}\n{said}");
    assert_eq!(doctor.status.code(), Some(6), "{said}");
}

fn agent(more: &Value) -> Scene {
    Scene::new(User::Root, "touch ran", more)
}

#[test]
fn without_the_program_there_is_no_bubblewrap() {
    let mut scene = agent(&json!({"sandbox": "bubblewrap"}));
    // Everything but it.
    let folder = scene.path("programs");
    fs::create_dir(&folder).unwrap();
    for program in ["sh", "touch"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{program}"), folder.join(program)).unwrap();
    }
    scene = scene.with("PATH", folder.display().to_string());
    let why = refused(&mut scene);
    assert!(
        why.contains("`sandbox: bubblewrap` cannot be enforced: the program bwrap was not found"),
        "{why}"
    );
    let doctor = scene.command(&["doctor"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("FAIL  sandbox, bubblewrap: the program bwrap was not found"), "{said}");
    assert!(said.contains("these agents are not started: wild"), "{said}");
    assert!(!doctor.status.success());
}

/// Whoever waits for an answer that cannot reach it would wait for ever.
#[test]
fn nobody_asks_from_inside_of_landlock() {
    let words = "lets no agent have one; `sandbox: bubblewrap` does";
    for more in [json!({"followups": {"max": 1}}), json!({"fleet_tools": true})] {
        let mut asked = json!({"sandbox": "landlock"});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let check = agent(&asked).command(&["config", "check"]).output().unwrap();
        let said = String::from_utf8_lossy(&check.stderr).into_owned();
        assert!(!check.status.success() && said.contains(words), "{said}");
    }
}

/// Landlock takes nothing back of a folder that it gives.
#[test]
fn landlock_cannot_keep_what_lies_in_the_workspace() {
    let mut scene = agent(&json!({"sandbox": "landlock", "working_directory": "."}));
    scene.write("fleet/agent.sh", "touch ../desk/ran");
    let why = refused(&mut scene);
    assert!(why.contains("Landlock cannot keep it from the agent"), "{why}");
    assert!(why.contains("cowhand.yaml") || why.contains(".cowhand"), "{why}");
    foreseen(&scene, &why);
    // A workspace of its own is elsewhere.
    let worktree = agent(&json!({"sandbox": "landlock", "working_directory": ".", "isolation": "worktree"}));
    worktree.write("fleet/agent.sh", "touch ran");
    let doctor = worktree.command(&["doctor"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(!said.contains("FAIL"), "{said}");
}

/// Namespaces can: the config is there to be read, the state and `.env` are not there.
#[test]
fn bubblewrap_keeps_what_lies_in_the_workspace() {
    let script = "echo x >>cowhand.yaml || echo config-held; cat cowhand.yaml >/dev/null && echo config-read; ls \
                  .cowhand/store.db || echo state-held; grep -q canary .env || echo env-held; echo x >new && echo new";
    let mut scene = agent(&json!({"sandbox": "bubblewrap", "working_directory": "."}));
    scene.write("fleet/agent.sh", script);
    scene.write("fleet/.env", "TOKEN=canary\n");
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    for word in ["config-held", "config-read", "state-held", "env-held", "new"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(scene.path("fleet/new").exists());
}

#[test]
fn no_agent_is_given_keys_or_a_home() {
    for (write, word) in [
        ("~/.ssh", "which no agent is given"),
        ("../home", "the home of this user"),
        ("~/..", "the home of this user"),
        ("../fleet/.cowhand", "which no agent is given"),
        ("../nowhere", "cannot be used"),
    ] {
        for kind in ["landlock", "bubblewrap"] {
            let mut scene = agent(&json!({"sandbox": {"kind": kind, "write": [write]}}));
            let why = refused(&mut scene);
            assert!(why.contains(word), "{write}: {why}");
            foreseen(&scene, &why);
        }
    }
}

/// A key that is to stay outside has to be there, and what a schedule asks for is tried, too.
#[test]
fn doctor_tries_what_a_start_tries() {
    let schedules = json!({
        "well": {"type": "manual"},
        "wrong": {"type": "manual", "sandbox": {"kind": "bubblewrap", "read": ["~/.ssh"]}},
    });
    let scene = agent(&json!({"sandbox": {"kind": "bubblewrap", "network": "off"}, "schedules": schedules}));
    let said = |scene: &Scene| {
        let doctor = scene.command(&["doctor"]).output().unwrap();
        (doctor.status.code(), String::from_utf8_lossy(&doctor.stdout).into_owned())
    };
    let (code, all) = said(&scene);
    let refused = "FAIL  start of wild/wrong: `sandbox: bubblewrap` cannot be enforced: ~/.ssh lies in ";
    assert!(code == Some(6) && all.contains(refused), "{all}");
    assert_eq!(all.matches("FAIL").count(), 1, "{all}");
    // A program that is asked only for its version.
    let outside = json!({
        "runtime": "claude", "command": null, "sandbox": {"kind": "bubblewrap", "credentials": "outside"},
    });
    let scene = agent(&outside);
    scene.write("programs/claude", "#!/bin/sh\necho 2.1.325\n");
    fs::set_permissions(scene.path("programs/claude"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", scene.path("programs").display());
    let scene = scene.with("PATH", path);
    let (code, all) = said(&scene);
    let needs = "FAIL  start of wild: `credentials: outside` needs ANTHROPIC_API_KEY or ";
    assert!(code == Some(6) && all.contains(needs), "{all}");
    assert!(!scene.path("home/.claude").exists(), "trying a start leaves nothing behind");
    let (code, all) = said(&scene.with("ANTHROPIC_API_KEY", "canary"));
    assert!(code == Some(0) && !all.contains("FAIL") && !all.contains("canary"), "{all}");
}

/// The schedule's and the agent's: the stricter holds.
#[test]
fn a_schedule_can_only_tighten() {
    let schedules = json!({
        "tight": {"type": "interval", "interval": "1h", "enabled": false, "sandbox": "bubblewrap"},
        "loose": {"type": "interval", "interval": "1h", "enabled": false, "sandbox": "none"},
    });
    let script = "cat /proc/1/cmdline | tr '\\0' ' ' | grep -q bwrap && echo wrapped; cat ../home/.ssh/id || echo held";
    let agent = json!({"sandbox": "landlock", "schedules": schedules});
    let mut scene = Scene::new(User::Root, script, &agent);
    scene.start();
    for (schedule, wrapped) in [("tight", true), ("loose", false)] {
        let id = scene.json(&["trigger", "wild", schedule])["id"].as_str().unwrap().to_owned();
        let (_, said) = scene.ended(&id);
        assert_eq!(said.contains("wrapped"), wrapped, "{schedule}: {said}");
        assert!(said.contains("held"), "{schedule}: {said}");
    }
}

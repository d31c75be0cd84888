//! Sandboxes that cannot be enforced: the job fails before anything runs, with the reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use super::{Scene, User};

/// Runs a job, and returns the reason for its failure; checks that nothing has run.
pub(super) fn refused(scene: &mut Scene) -> String {
    scene.start();
    let (job, _) = scene.run();
    assert_eq!(job["status"], "failed", "{job:#}");
    assert_eq!(job["error"]["kind"], "start_failed", "{job:#}");
    assert!(!scene.path("desk/ran").exists(), "something ran: {job:#}");
    job["error"]["message"].as_str().unwrap().to_owned()
}

/// Checks that `doctor` reports the same reason beforehand.
pub(super) fn foreseen(scene: &Scene, why: &str) {
    let doctor = scene.command(&["doctor"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains(&format!("FAIL  start of wild: {why}")), "{why}\n{said}");
    assert_eq!(doctor.status.code(), Some(6), "{said}");
}

fn agent(more: &Value) -> Scene {
    Scene::new(User::Root, "touch ran", more)
}

#[test]
fn bubblewrap_without_bwrap_program_is_refused() {
    let mut scene = agent(&json!({"sandbox": "bubblewrap"}));
    // The folder contains the needed programs, except bwrap.
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
    assert!(said.contains("these agents cannot start: wild"), "{said}");
    assert!(!doctor.status.success());
}

/// An agent that waits for an answer that cannot reach it would wait for ever.
#[test]
fn landlock_with_job_channel_is_refused() {
    let words = "does not give to agents; use `sandbox: bubblewrap`";
    for more in [json!({"followups": {"max": 1}}), json!({"fleet_tools": true})] {
        let mut asked = json!({"sandbox": "landlock"});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let check = agent(&asked).command(&["config", "check"]).output().unwrap();
        let said = String::from_utf8_lossy(&check.stderr).into_owned();
        assert!(!check.status.success() && said.contains(words), "{said}");
    }
}

/// Landlock cannot exclude a part of a folder that it allows.
#[test]
fn landlock_refuses_workspace_that_contains_config() {
    let mut scene = agent(&json!({"sandbox": "landlock", "working_directory": "."}));
    scene.write("fleet/agent.sh", "touch ../desk/ran");
    let why = refused(&mut scene);
    assert!(why.contains("Landlock cannot protect it from the agent"), "{why}");
    assert!(why.contains("cowhand.yaml") || why.contains(".cowhand"), "{why}");
    foreseen(&scene, &why);
    // A separate workspace is elsewhere.
    let worktree = agent(&json!({"sandbox": "landlock", "working_directory": ".", "isolation": "worktree"}));
    worktree.write("fleet/agent.sh", "touch ran");
    for arguments in [&["init", "-q"][..], &["commit", "-q", "--allow-empty", "-m", "first"]] {
        let mut git = Command::new("git");
        git.current_dir(worktree.path("fleet")).env("HOME", worktree.path("home"));
        git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
        assert!(git.status().unwrap().success(), "{arguments:?}");
    }
    let doctor = worktree.command(&["doctor"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(!said.contains("FAIL"), "{said}");
}

/// Namespaces can exclude a part of a folder: the config is readable, the state and `.env` are not there.
#[test]
fn bubblewrap_protects_config_and_state_in_workspace() {
    let script = "echo x >>cowhand.yaml || echo config-held; cat cowhand.yaml >/dev/null && echo config-read; ls \
                  .cowhand/store.db || echo state-held; grep -q canary .env || echo env-held; echo 1 >.herdctl/herdctl.pid || echo herdctl-held; echo x >new && echo new";
    let mut scene = agent(&json!({"sandbox": "bubblewrap", "working_directory": "."}));
    scene.write("fleet/agent.sh", script);
    scene.write("fleet/.env", "TOKEN=canary\n");
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    for word in ["config-held", "config-read", "state-held", "env-held", "herdctl-held", "new"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(scene.path("fleet/new").exists() && !scene.path("fleet/.herdctl/herdctl.pid").exists());
}

/// The agent's own files in the state folder are visible, wherever that is: the client of an ACP agent finds
/// its private files.
#[test]
fn bubblewrap_shows_agent_its_own_attempt_files() {
    let script = r#"
        hear() { IFS= read -r heard || exit 9; }
        say() { printf '%s\n' "$1"; }
        hear; say '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
        hear; say '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s-1"}}'
        hear; word=$(ls .cowhand/attempts .cowhand | tr '\n' ' ')
        say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$word"'"}}}}'
        say '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}'; cat >/dev/null"#;
    let mut scene = agent(&json!({"runtime": "acp", "sandbox": "bubblewrap", "working_directory": "."}));
    scene.write("fleet/agent.sh", script);
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    let seen = format!(".cowhand: attempts .cowhand/attempts: {}.1", job["id"].as_str().unwrap());
    let words = job["summary"].as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words, seen, "and nothing else of the state");
}

/// Checks that the agent cannot create files that cowhand would read: variables for all agents, and configs that take
/// precedence.
fn no_name_of_the_config(kind: &str) {
    let script = "for name in .env cowhand.yaml cowhand.yml; do echo \"LD_PRELOAD=/x\" >$name && echo made $name; rm -rf \
                  $name && echo removed $name; mv $name else && echo moved $name; echo x >x; mv x $name && echo replaced \
                  $name; ln -sf agent.sh $name && echo linked $name; done; echo x >new && echo end";
    let mut scene = agent(&json!({"sandbox": kind, "working_directory": "."}));
    let config = fs::read_to_string(scene.path("fleet/cowhand.yaml")).unwrap();
    fs::remove_file(scene.path("fleet/cowhand.yaml")).unwrap();
    scene.write("fleet/herdctl.yaml", &config);
    scene.write("fleet/agent.sh", script);
    scene.start();
    // The placeholders of the first run do not disturb the next.
    for _ in 0..2 {
        let (job, said) = scene.run();
        assert_eq!(job["status"], "completed", "{job:#}\n{said}");
        assert!(said.lines().any(|line| line == "end"), "{said}");
        for word in ["made cowhand", "removed", "moved", "replaced", "linked"] {
            assert!(!said.lines().any(|line| line.starts_with(word)), "{word}: {said}");
        }
        assert_eq!(fs::read(scene.path("fleet/.env")).unwrap(), b"");
        for name in ["cowhand.yaml", "cowhand.yml"] {
            assert_eq!(fs::read_dir(scene.path(&format!("fleet/{name}"))).unwrap().count(), 0, "{name}");
        }
        assert!(scene.path("fleet/new").is_file());
    }
    // Later reads find the old config.
    let shown = scene.command(&["config", "check"]).output().unwrap();
    let shown = String::from_utf8_lossy(&[shown.stdout, shown.stderr].concat()).into_owned();
    assert!(shown.contains("ok: 1 agent"), "{shown}");
}

#[test]
fn agent_cannot_create_config_files_in_bubblewrap() {
    no_name_of_the_config("bubblewrap");
}

#[test]
fn agent_cannot_create_config_files_in_container() {
    no_name_of_the_config("docker");
}

/// A folder that contains a protected file cannot be moved.
fn no_folder_of_the_config(kind: &str) {
    let script = "mv ops else && mkdir ops && echo x >ops/wild.yaml && echo carried off; echo x >ops/wild.yaml && echo \
                  written; echo x >ops/new && echo end";
    let mut scene = agent(&json!({"sandbox": kind, "working_directory": ".."}));
    let config = fs::read_to_string(scene.path("fleet/cowhand.yaml")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    let fleet = json!({"agents": [{"path": "ops/wild.yaml"}], "server": {"enabled": false}});
    scene.write("fleet/cowhand.yaml", &fleet.to_string());
    scene.write("fleet/ops/wild.yaml", &config["agents"][0].to_string());
    scene.write("fleet/agent.sh", script);
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    assert!(said.lines().any(|line| line == "end"), "{said}");
    assert!(!said.contains("carried off") && !said.contains("written"), "{said}");
    assert!(scene.path("fleet/ops/new").exists() && !scene.path("fleet/else").exists());
}

#[test]
fn agent_cannot_move_config_folder_in_bubblewrap() {
    no_folder_of_the_config("bubblewrap");
}

#[test]
fn agent_cannot_move_config_folder_in_container() {
    no_folder_of_the_config("docker");
}

/// An agent can redirect a link in a folder that it may write, and no mount can protect a link.
#[test]
fn config_behind_link_is_refused() {
    for kind in ["bubblewrap", "landlock"] {
        let mut scene = agent(&json!({"sandbox": kind, "working_directory": "."}));
        fs::rename(scene.path("fleet/cowhand.yaml"), scene.path("outside/real.yaml")).unwrap();
        std::os::unix::fs::symlink("../outside/real.yaml", scene.path("fleet/cowhand.yaml")).unwrap();
        scene.write("fleet/agent.sh", "touch ../desk/ran");
        let why = refused(&mut scene);
        assert!(why.contains("fleet/cowhand.yaml is a link"), "{why}");
    }
}

/// A link that one job redirects would affect the next.
#[test]
fn path_behind_link_in_workspace_is_refused() {
    for kind in ["bubblewrap", "landlock"] {
        for key in ["write", "read"] {
            let mut scene = agent(&json!({"sandbox": {"kind": kind, key: ["data"]}}));
            std::os::unix::fs::symlink("../outside", scene.path("desk/data")).unwrap();
            let why = refused(&mut scene);
            assert!(why.contains("desk/data is a link"), "{why}");
        }
    }
}

/// The sockets of container engines, also of rootless ones, give the rights of their user.
#[test]
fn socket_of_container_engine_is_refused() {
    for place in ["docker.sock", "podman/podman.sock"] {
        for kind in ["landlock", "bubblewrap"] {
            // In these tests, the runtime folder of the user is the folder of the scene.
            let mut scene = agent(&json!({"sandbox": {"kind": kind, "write": [format!("../{place}")]}}));
            // Both sockets exist, so the refusal does not depend on which socket is in use.
            scene.write("docker.sock", "");
            scene.write("podman/podman.sock", "");
            let why = refused(&mut scene);
            assert!(why.contains("which is always hidden from agents"), "{place}: {why}");
        }
    }
}

#[test]
fn keys_and_home_are_refused() {
    for (write, word) in [
        ("~/.ssh", "which is always hidden from agents"),
        ("../home", "the home of this user"),
        ("~/..", "the home of this user"),
        ("../fleet/.cowhand", "which is always hidden from agents"),
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

/// A key that stays outside has to exist, and the settings of a schedule are checked too.
#[test]
fn doctor_checks_start_of_each_schedule() {
    let schedules = json!({
        "well": {"type": "manual"},
        "wrong": {"type": "manual", "sandbox": {"kind": "bubblewrap", "read": ["~/.ssh"]}},
    });
    let scene = agent(&json!({"schedules": schedules}));
    let said = |scene: &Scene| {
        let doctor = scene.command(&["doctor"]).output().unwrap();
        (doctor.status.code(), String::from_utf8_lossy(&doctor.stdout).into_owned())
    };
    let (code, all) = said(&scene);
    let refused = "FAIL  start of wild/wrong: `sandbox: bubblewrap` cannot be enforced: ~/.ssh is in ";
    assert!(code == Some(6) && all.contains(refused), "{all}");
    assert_eq!(all.matches("FAIL").count(), 1, "{all}");
    // A fake program that is only asked for its version.
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

/// The stricter sandbox of agent and schedule applies.
#[test]
fn schedule_can_only_tighten_sandbox() {
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

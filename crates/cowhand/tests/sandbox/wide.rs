//! bubblewrap with many readable paths: its mounts, and its messages on failure.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::{Scene, User, refusals};

/// Script that checks what can be read, what is protected, and what is private.
const SCRIPT: &str = r#"
[ -d /run ] && echo "run: $(ls -A /run | wc -l)"
cat "$HOME/.ssh/id" && echo "key: read"
[ -n "$(ls -A "$FLEET/.cowhand")" ] && echo "state: read"
grep -q . /etc/shadow && echo "shadow: read"
echo x > /tmp/own && echo "tmp: own"
echo x > /run/x 2> why || echo "run: held"
kill -0 "$WATCHER" 2> why || echo "others: held"
ls /dev/cowhand; ls -l /proc/self/fd
echo x > made && echo "desk: own"
"#;

fn reads(read: &str, user: User) {
    let sandbox = json!({"kind": "bubblewrap", "read": [read]});
    let mut scene = Scene::new(user, SCRIPT, &json!({ "sandbox": sandbox }));
    let fleet = scene.path("fleet").display().to_string();
    scene.start();
    let watcher = scene.daemon.as_ref().unwrap().id().to_string();
    scene.set(&json!({"env": {"FLEET": fleet, "WATCHER": watcher}}));
    assert!(scene.command(&["reload"]).status().unwrap().success());
    let doctor = scene.command(&["doctor"]).output().unwrap();
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(!told.contains("FAIL  start of wild"), "{told}");
    let (job, said) = scene.run();
    assert_eq!(job["status"], "completed", "{read}: {job:#}\n{said}");
    for expected in ["tmp: own", "run: held", "others: held", "desk: own"] {
        assert!(said.lines().any(|line| line == expected), "{expected}\n{said}");
    }
    for kept in ["key: read", "state: read", "shadow: read", "a-private-key", "pipe:["] {
        assert!(!said.contains(kept), "{kept}\n{said}");
    }
    let outside = fs::read_dir("/run").unwrap().count();
    assert!(said.contains(&format!("run: {outside}")), "{outside}\n{said}");
}

#[test]
fn run_folder_is_readable_in_bubblewrap_as_root() {
    reads("/run", User::Root);
}

#[test]
fn run_folder_is_readable_in_bubblewrap_as_nobody() {
    reads("/run", User::Nobody);
}

#[test]
fn root_folder_is_readable_in_bubblewrap_as_root() {
    reads("/", User::Root);
}

#[test]
fn root_folder_is_readable_in_bubblewrap_as_nobody() {
    reads("/", User::Nobody);
}

/// Fake `bwrap` that can make namespaces, but not this sandbox.
const BROKEN: &str = "#!/bin/sh\ncase \"$*\" in *enclosed*) echo \"bwrap: Can't mkdir /x: Read-only file system\" >&2; exit 1;; esac\n\
    exec /usr/bin/bwrap \"$@\"\n";

#[test]
fn failure_of_bwrap_is_a_start_failure() {
    let mut scene = Scene::new(User::Root, "touch ran", &json!({"sandbox": "bubblewrap"}));
    scene.write("programs/bwrap", BROKEN);
    fs::set_permissions(scene.path("programs/bwrap"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", scene.path("programs").display());
    scene = scene.with("PATH", path);
    let why = refusals::refused(&mut scene);
    let expected = "`sandbox: bubblewrap` cannot be enforced: bwrap: Can't mkdir /x: Read-only file system";
    assert_eq!(why, format!("could not be started: {expected}"));
    refusals::foreseen(&scene, expected);
}

/// The agent's own output and exit code are not taken for those of bwrap.
#[test]
fn agent_output_like_that_of_bwrap_is_no_start_failure() {
    let script = "echo \"bwrap: Can't mkdir /x\" >&2; exit 1";
    let mut scene = Scene::new(User::Root, script, &json!({"sandbox": "bubblewrap"}));
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(
        (&job["status"], &job["error"]["kind"]),
        (&json!("failed"), &json!("exit")),
        "{job:#}\n{said}"
    );
}

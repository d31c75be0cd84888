//! Agents in containers, of a real engine.

use serde_json::json;

use super::{Scene, User};

/// The same agent, whoever runs the fleet: what it is given, what it finds, how it ends.
fn what_it_finds(user: User) {
    let script = "cat; echo wrong >&2; cat /etc/made-for; pwd; echo $PATH $TMPDIR $MODE; id -u; ls $HOME/.ssh || echo no-key; \
                  touch /etc/x || echo no-root; touch /tmp/x $HOME/x && echo places; echo made >made; exit 7";
    let agent = json!({"sandbox": "docker", "env": {"MODE": "night"}});
    let mut scene = Scene::new(user, script, &agent);
    scene.start();
    let (job, said) = scene.run();
    assert!(job["error"]["message"].as_str().unwrap().contains("exit code 7"), "{job:#}\n{said}");
    let id = if user == User::Root { "\n0\n" } else { "\n65534\n" };
    let desk = scene.path("desk").display().to_string();
    for word in ["wrong", "a test\n", &desk, "/usr/bin:", "/tmp night", id, "no-key", "no-root", "places"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(scene.path("desk/made").exists());
    assert_eq!(scene.podman.as_ref().unwrap().containers(), [""; 0]);
}

#[test]
fn as_root() {
    what_it_finds(User::Root);
}

#[test]
fn as_nobody() {
    what_it_finds(User::Nobody);
}

//! A hostile agent that tries everything. It also runs without a sandbox, to show that its attacks work.

use std::fs;

use serde_json::json;

use super::{Scene, User, for_each_sandbox, in_a_container};

const SCRIPT: &str = include_str!("hostile.sh");

for_each_sandbox!(a_hostile_agent);
in_a_container!(a_hostile_agent);

/// Network namespace that ends with the daemon, with a metadata service and a service on loopback.
const NAMESPACE: &str = "ip link set lo up && ip addr add 169.254.169.254/32 dev lo && \
    { perl -MIO::Socket::INET -e 'my @s = map { IO::Socket::INET->new(LocalAddr => $_, Listen => 9, ReuseAddr => 1) \
        or die } @ARGV; print \"listening\\n\"; STDOUT->flush; close STDOUT; for my $s (@s) { fork or do { while (my $c = \
        $s->accept) { print $c \"HTTP/1.0 200 OK\\r\\n\\r\\nmetadata-token\n\"; close $c } exit } } wait; wait' \
        169.254.169.254:80 127.0.0.1:8099 < /dev/null 2>&1 & } | head -n 1 >/dev/null; exec \"$@\"";

fn scene(user: User, sandbox: &serde_json::Value, tame: &str) -> Scene {
    let mut scene = Scene::new(user, SCRIPT, &json!({"sandbox": sandbox}));
    let path = |name: &str| scene.path(name).display().to_string();
    let env = json!({"OUTSIDE": path("outside"), "FLEET": path("fleet"), "TAME": tame});
    scene.set(&json!({ "env": env }));
    scene.wrapper_command = ["unshare", "--net", "--", "sh", "-c", NAMESPACE, "sh"].map(str::to_owned).into();
    scene = scene.with("CANARY", "a-token-of-the-daemon");
    scene.start();
    scene
}

fn came_to<'a>(said: &'a str, attempt: &str) -> &'a str {
    let line = said.lines().find_map(|line| line.strip_prefix(&format!("{attempt}: ")));
    line.unwrap_or_else(|| panic!("it did not try {attempt}:\n{said}"))
}

const ATTEMPTS: [&str; 18] = [
    "write", "link", "remove", "config", "key", "new-key", "cloud", "shadow", "state", "kernel", "keyring",
    "metadata", "socket", "udp", "daemon", "starve", "token", "kill",
];

fn a_hostile_agent(kind: &str, user: User) {
    let scene = scene(user, &json!(kind), "");
    let config = fs::read_to_string(scene.path("fleet/cowhand.yaml")).unwrap();
    let (job, said) = scene.run();
    // All its output arrived, so its keeper and the daemon are alive.
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    assert_eq!(came_to(&said, "inside"), "out", "{said}");
    for attempt in ATTEMPTS {
        // In its own namespaces it may write to empty places, which affects nobody.
        if kind == "bubblewrap" && matches!(attempt, "write" | "link" | "config" | "new-key") {
            continue;
        }
        assert_eq!(came_to(&said, attempt), "held", "{attempt}:\n{said}");
    }
    assert!(said.contains("over\n"), "{said}");
    for secret in ["a-private-key", "a-cloud-key", "metadata-token", "a-token-of-the-daemon"] {
        assert!(!said.contains(secret), "{secret}:\n{said}");
    }
    assert!(scene.path("outside/.keep").exists());
    assert!(!scene.path("outside/escaped").exists());
    assert!(!scene.path("home/.ssh/authorized_keys").exists());
    assert_eq!(fs::read_to_string(scene.path("fleet/cowhand.yaml")).unwrap(), config);
    // Each failure is visible in the job.
    let told = if kind == "landlock" { "Permission denied" } else { "No such file or directory" };
    assert!(said.matches(told).count() >= 4, "{said}");
    assert_eq!(scene.json(&["status"])["daemon"]["running"], true);
}

/// Without a sandbox, every attack of the same agent that does no lasting harm succeeds.
#[test]
fn attacks_succeed_without_sandbox() {
    let scene = scene(User::Root, &json!("none"), "yes");
    let (_, said) = scene.run();
    for attempt in ATTEMPTS.iter().filter(|attempt| !matches!(**attempt, "config" | "starve" | "kill")) {
        assert_eq!(came_to(&said, attempt), "out", "{attempt}:\n{said}");
    }
    for secret in ["a-private-key", "a-cloud-key", "metadata-token", "a-token-of-the-daemon"] {
        assert!(said.contains(secret), "{secret}:\n{said}");
    }
}

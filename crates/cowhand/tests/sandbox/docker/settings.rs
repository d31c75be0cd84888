//! Settings of containers: by herdctl's key, and by a schedule.

use serde_json::{Value, json};

use super::super::refusals::refused;
use super::super::{Podman, Scene, User, wait_until};
use cowhand_testing::podman::IMAGE;

/// Creates a scene with herdctl's key `docker`, which has the most settings.
fn herdctl(script: &str, docker: &Value) -> Scene {
    herdctl_at(Podman::start(), script, docker)
}

fn herdctl_at(podman: Podman, script: &str, docker: &Value) -> Scene {
    let mut all = json!({"enabled": true, "image": IMAGE});
    for (key, value) in docker.as_object().unwrap() {
        all[key] = value.clone();
    }
    let host = format!("unix://{}", podman.socket().display());
    let mut scene = Scene::new(User::Root, script, &json!({ "docker": all })).with("DOCKER_HOST", host);
    scene.podman = Some(podman);
    scene
}

#[test]
fn docker_keys_of_herdctl_are_applied() {
    let script = "id -u; id -g; cat /data/b; echo x >/data/x || echo data-held; echo x >x || echo desk-held; echo y \
                  >/more/y && echo more; mount | grep ' /cache '; echo $MODE; echo $A_TOKEN; touch /more/up; while [ ! -e \
                  /more/go ]; do sleep 0.05; done";
    let docker = json!({
        "user": "1234:77", "network": "none", "memory": "200m", "pids_limit": 64, "cpu_quota": 50_000, "cpu_shares": 512,
        "volumes": ["../books:/data:ro", "../more:/more"], "workspace_mode": "ro", "tmpfs": ["/cache:size=1m"],
        "labels": {"team": "night"}, "env": {"MODE": "by-night", "A_TOKEN": "canary-of-the-container"},
        "ephemeral": true, "max_containers": 3,
    });
    let mut scene = herdctl(script, &docker);
    scene.write("books/b", "a-book\n");
    scene.write("more/m", "");
    for folder in ["desk", "more"] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(scene.path(folder), open).unwrap();
    }
    scene.start();
    let id = scene.trigger();
    wait_until("the agent", || {
        let job = scene.json(&["job", &id]);
        assert!(matches!(job["status"].as_str(), Some("pending" | "running")), "{job:#}");
        scene.path("more/up").exists().then_some(())
    });
    let names = scene.engine().containers();
    let found: Value = serde_json::from_str(&scene.engine().podman(&["inspect", &names[0]])).unwrap();
    let host = &found[0]["HostConfig"];
    assert_eq!((&host["Memory"], &host["PidsLimit"]), (&json!(200 << 20), &json!(64)), "{host:#}");
    assert_eq!((&host["CpuQuota"], &host["CpuShares"]), (&json!(50_000), &json!(512)), "{host:#}");
    assert_eq!((&host["NetworkMode"], &host["ReadonlyRootfs"]), (&json!("none"), &json!(true)), "{host:#}");
    assert_eq!(found[0]["Config"]["Labels"]["team"], "night");
    scene.write("more/go", "");
    let (job, said) = scene.ended(&id);
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    for word in ["1234\n77\n", "a-book", "data-held", "desk-held", "more\n", "size=1024k", "by-night"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!said.contains("canary") && scene.path("more/y").exists() && !scene.path("desk/x").exists());
    scene.nothing_is_left();
}

/// Settings that are not supported are refused, and not replaced by others.
#[test]
fn unsupported_docker_keys_of_herdctl_are_refused() {
    for (docker, word) in [
        (json!({"ports": ["80:80"]}), "`docker.ports`"),
        (json!({"host_config": {"Privileged": true}}), "`docker.host_config`"),
        (json!({"ephemeral": false}), "`docker.ephemeral: false`"),
        (json!({"volumes": ["cache:/cache"]}), "volumes with a name"),
        (json!({"volumes": ["~/.ssh:/keys:ro"]}), "which is always hidden from agents"),
        (json!({"volumes": ["..:/all"]}), "which is always hidden from agents"),
        (json!({"image": null}), "the default image herdctl/runtime:latest does not exist on this machine"),
    ] {
        let mut scene = herdctl("touch ran", &docker);
        let why = refused(&mut scene);
        assert!(why.contains(word), "{docker}: {why}");
    }
}

/// A service on the loopback of this machine is reachable only in the network of the machine.
#[test]
fn container_network_setting_is_applied() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::io::Write::write_all(&mut &stream, b"somebody\n").ok();
        }
    });
    let script = format!("ls /sys/class/net; nc -w 5 127.0.0.1 {port} </dev/null && echo reached");
    for (network, apart, devices, reached) in
        [("host", false, "", true), ("none", false, "lo\n", false), ("bridge", true, "eth0\nlo\n", false)]
    {
        let podman = if apart { Podman::apart() } else { Podman::start() };
        let mut scene = herdctl_at(podman, &script, &json!({ "network": network }));
        scene.start();
        let (_, said) = scene.run();
        let heard = (said.contains("somebody\n"), said.contains("reached\n"));
        assert_eq!(heard, (reached, reached), "{network}: {said}");
        assert!(said.starts_with(devices), "{network}: {said}");
        scene.nothing_is_left();
    }
}

/// The stricter sandbox of agent and schedule applies, and a container is stricter than namespaces.
#[test]
fn schedule_can_only_tighten_sandbox() {
    let podman = Podman::start();
    let docker = json!({"kind": "docker", "image": IMAGE, "socket": podman.socket()});
    let schedules = json!({
        "tight": {"type": "interval", "interval": "1h", "enabled": false, "sandbox": docker},
        "loose": {"type": "interval", "interval": "1h", "enabled": false, "sandbox": "none"},
    });
    let script = "cat /etc/made-for || echo no-image; cat ../home/.ssh/id || echo held";
    let agent = json!({"sandbox": "bubblewrap", "schedules": schedules});
    let mut scene = Scene::new(User::Root, script, &agent);
    scene.start();
    for (schedule, word) in [("tight", "a test\n"), ("loose", "no-image\n")] {
        let id = scene.json(&["trigger", "wild", schedule])["id"].as_str().unwrap().to_owned();
        let (_, said) = scene.ended(&id);
        assert!(said.contains(word) && said.contains("held\n"), "{schedule}: {said}");
    }
}

//! Agents in containers of a real engine.

mod killed;
mod paused;
mod refusals;
mod settings;

use std::fs;

use serde_json::{Value, json};

use super::{Podman, Scene, User, wait_until};
use cowhand_testing::podman::IMAGE;

/// Creates a scene with only the content of the image.
fn plain(user: User, script: &str, more: &Value) -> Scene {
    let podman = user.podman();
    let mut sandbox = json!({"kind": "docker", "image": IMAGE, "socket": podman.socket()});
    let mut agent = more.clone();
    for (key, value) in more["sandbox"].as_object().into_iter().flatten() {
        sandbox[key] = value.clone();
    }
    agent["sandbox"] = sandbox;
    let mut scene = Scene::new(user, script, &agent);
    scene.podman = Some(podman);
    scene
}

impl Scene {
    fn engine(&self) -> &Podman {
        self.podman.as_ref().unwrap()
    }

    fn kill_daemon(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    fn nothing_is_left(&self) {
        wait_until("no container to be left", || self.engine().containers().is_empty().then_some(()));
        wait_until("no process to be left", || {
            super::processes_naming(&self.path("desk")).is_empty().then_some(())
        });
    }
}

/// Checks the same agent for each user of the fleet: its input, its environment, its end.
fn what_it_finds(user: User) {
    let script = "cat; echo wrong >&2; cat /etc/made-for; pwd; echo $PATH $TMPDIR $MODE; id -u; ls $HOME/.ssh || echo no-key; \
                  touch /etc/x || echo no-root; touch /tmp/x $HOME/x && echo places; echo made >made; exit 7";
    let mut scene = plain(user, script, &json!({"env": {"MODE": "night"}}));
    scene.start();
    let id = scene.json(&["trigger", "wild", "--prompt", "do what is to be done"])["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let (job, said) = scene.ended(&id);
    assert!(job["error"]["message"].as_str().unwrap().contains("exit code 7"), "{job:#}\n{said}");
    let user = if user == User::Root { "\n0\n" } else { "\n65534\n" };
    let desk = scene.path("desk").display().to_string();
    for word in [
        "do what is to be done",
        "wrong",
        "a test\n",
        &desk,
        "/usr/bin:",
        "/tmp night",
        user,
        "no-key",
        "no-root",
        "places",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(scene.path("desk/made").exists());
    assert_eq!(scene.engine().containers(), [""; 0]);
}

#[test]
fn agent_works_in_container_as_root() {
    what_it_finds(User::Root);
}

#[test]
fn agent_works_in_container_as_nobody() {
    what_it_finds(User::Nobody);
}

/// All output of both streams is kept in order, although the agent does not read its prompt, which is longer than a
/// pipe.
#[test]
fn ten_megabytes_of_output_are_kept_in_order() {
    const LINES: usize = 100_000;
    let script = format!(
        "i=0; for i in $(seq {LINES}); do echo \"$i of the output, with words that make this line one hundred signs long, or about \
         as much\"; done; for i in $(seq 1000); do echo \"$i wrong\" >&2; done"
    );
    let mut scene = plain(User::Root, &script, &json!({}));
    scene.start();
    let prompt = "never read\n".repeat(10_000);
    let id = scene.json(&["trigger", "wild", "--prompt", &prompt])["id"].as_str().unwrap().to_owned();
    let (job, said) = scene.ended(&id);
    assert_eq!(job["status"], "completed", "{job:#}");
    assert!(said.len() > 9_000_000, "{}", said.len());
    let numbers = |word: &str| -> Vec<usize> {
        // The last line is written by cowhand, and repeats the line before it.
        let lines = said.lines().filter(|line| line.contains(word) && !line.starts_with("──"));
        lines.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
    };
    assert_eq!(numbers(" of the output"), (1..=LINES).collect::<Vec<_>>());
    assert_eq!(numbers(" wrong"), (1..=1000).collect::<Vec<_>>());
    scene.nothing_is_left();
}

/// The last output is not lost, even if the prompt is not read.
#[test]
fn last_output_is_kept() {
    let mut scene = plain(User::Root, "echo first; echo last >&2; echo the end", &json!({}));
    scene.start();
    for prompt in ["", "a prompt"] {
        for round in 0..5 {
            let mut words = vec!["trigger", "wild"];
            words.extend(["--prompt", prompt].iter().filter(|_| !prompt.is_empty()));
            let id = scene.json(&words)["id"].as_str().unwrap().to_owned();
            let (job, said) = scene.ended(&id);
            assert_eq!(job["status"], "completed", "{job:#}\n{said}");
            for word in ["first\n", "last\n", "the end\n"] {
                assert!(said.contains(word), "{round}: {word}: {said}");
            }
            assert!(!said.contains("Error"), "{round}: {said}");
        }
    }
}

/// An agent that ignores SIGTERM is killed.
#[test]
fn agent_that_ignores_signals_is_killed() {
    let script = "trap '' TERM INT; touch up; while :; do sleep 0.05; done";
    let mut scene = plain(User::Root, script, &json!({}));
    scene.start();
    let id = scene.trigger();
    wait_until("the agent", || scene.path("desk/up").exists().then_some(()));
    let said = scene.command(&["cancel", &id]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let (job, said) = scene.ended(&id);
    assert_eq!(job["status"], "cancelled", "{job:#}\n{said}");
    scene.nothing_is_left();
}

/// The timeout counts from the start, and the start of a container takes time. So the test sets the timeout only when
/// the agent is up.
#[test]
fn agent_in_container_times_out() {
    let script = "trap 'echo heard; exit 0' TERM; touch up; while :; do sleep 0.05; done";
    let mut scene = plain(User::Root, script, &json!({}));
    scene.start();
    let id = scene.trigger();
    wait_until("the agent", || scene.path("desk/up").exists().then_some(()));
    scene.kill_daemon();
    scene.set(&json!({"timeout": "1s"}));
    scene.start();
    let (job, said) = scene.ended(&id);
    assert_eq!(
        (&job["status"], &job["error"]["kind"]),
        (&"failed".into(), &"timeout".into()),
        "{job:#}\n{said}"
    );
    assert!(said.contains("heard"), "{said}");
    scene.nothing_is_left();
}

/// The agent can print its secret, which is masked in the output.
#[test]
fn a_token_is_masked() {
    let agent = json!({"env": {"AGENT_TOKEN": "canary-of-the-agent"}});
    let mut scene = plain(User::Root, "echo $AGENT_TOKEN | cat; env | grep TOKEN >&2; echo said", &agent);
    scene.start();
    let (job, said) = scene.run();
    assert!(said.contains("said\n") && said.contains("AGENT_TOKEN="), "{said}");
    assert!(!said.contains("canary") && !job.to_string().contains("canary"), "{job:#}\n{said}");
    // The secret is also not in the attempt's folder.
    for file in ["start.json", "container", "refusal"] {
        let path = scene.path(&format!("fleet/.cowhand/attempts/{}.1/{file}", job["id"].as_str().unwrap()));
        assert!(!fs::read_to_string(path).unwrap_or_default().contains("canary"), "{file}");
    }
}

/// The config is in the agent's directory: it can be read, but the state and `.env` cannot.
#[test]
fn config_and_state_in_workspace_are_protected() {
    let script = "echo x >>cowhand.yaml || echo config-held; cat cowhand.yaml >/dev/null && echo config-read; ls \
                  .cowhand/store.db || echo state-held; grep -q canary .env || echo env-held; echo 1 >.herdctl/herdctl.pid || echo herdctl-held; echo x >new && echo new";
    let mut scene = plain(User::Root, "true", &json!({"working_directory": "."}));
    scene.write("fleet/agent.sh", script);
    scene.write("fleet/.env", "TOKEN=canary\n");
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    for word in ["config-held", "config-read", "state-held", "env-held", "herdctl-held", "new\n"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(scene.path("fleet/new").exists() && !scene.path("fleet/.herdctl/herdctl.pid").exists());
}

//! Agents and schedules that left the config: their jobs are still shown, with a note that they left.

use super::api::ask;
use super::{FLEET, Scene, wait_until};

const OTHER: &str = "agents: [{name: other, runtime: command, command: ['true']}]";

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One agent has a running job, the other only ended jobs.
#[test]
fn an_agent_that_left_is_shown_with_its_jobs() {
    let scene = Scene::started();
    let ended = scene.json(&["trigger", "worker", "tidy", "--wait"])["id"].as_str().unwrap().to_owned();
    let (running, _) = scene.waiting_job();
    scene.write("cowhand.yaml", OTHER);
    scene.run(&["reload"]);
    let verbs: [(&[&str], &str); 6] = [
        (&["status", "waiter"], &running),
        (&["why", "waiter"], &running),
        (&["status", "worker"], &ended),
        (&["why", "worker"], &ended),
        (&["why", "worker/tidy"], &ended),
        (&["schedule", "show", "worker/tidy"], &ended),
    ];
    for (verb, job) in verbs {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(0), "{verb:?}: {}{}", said.stdout, said.stderr);
        let text = words(&said.stdout);
        assert!(text.contains("is not in the config any more"), "{verb:?}: {text}");
        assert!(text.contains(job), "{verb:?}: {text}");
        let json = scene.json(verb);
        assert_eq!((&json["in_config"], &json["jobs"][0]["id"]), (&false.into(), &job.into()), "{verb:?}");
    }
    for verb in [["status", "waiter"], ["why", "waiter"]] {
        let said = words(&scene.run(&verb).stdout);
        assert!(said.contains("`cowhand cancel --agent waiter`"), "{verb:?}: {said}");
    }
    // Refused verbs give the reason, and do not refer to a list without the agent.
    for verb in [&["trigger", "worker"][..], &["schedule", "enable", "worker/tidy"], &["retry", &ended]] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(5), "{verb:?}: {}{}", said.stdout, said.stderr);
        let text = words(&said.stderr);
        assert!(text.contains("worker is not in the config any more"), "{verb:?}: {text}");
        assert!(text.contains("`cowhand jobs --agent worker`"), "{verb:?}: {text}");
    }
    let answer = ask(&scene, "GET", "agents/worker", "");
    assert!(answer.contains("404 Not Found") && answer.contains("not in the config any more"), "{answer}");
    // An agent that never existed is still an error.
    for verb in [&["status", "nobody"][..], &["schedule", "show", "nobody/tidy"], &["why", "worker/never"]] {
        assert_eq!(scene.run(verb).code, Some(5), "{verb:?}");
    }
    // The advised command works.
    assert_eq!(scene.run(&["cancel", "--agent", "waiter", "--yes"]).code, Some(0));
    wait_until("its end", || (!scene.job(&running)["finished_at"].is_null()).then_some(()));
}

#[test]
fn a_schedule_that_left_is_shown_with_its_jobs() {
    let scene = Scene::started();
    let id = scene.json(&["trigger", "worker", "tidy", "--wait"])["id"].as_str().unwrap().to_owned();
    scene.write("cowhand.yaml", &FLEET.replace("      tidy: {type: manual, prompt: Tidy up.}\n", ""));
    scene.run(&["reload"]);
    for verb in [&["why", "worker/tidy"][..], &["schedule", "show", "worker/tidy"]] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(0), "{verb:?}: {}", said.stderr);
        let text = words(&said.stdout);
        assert!(text.contains("worker/tidy is not in the config any more"), "{verb:?}: {text}");
        assert!(text.contains(&id), "{verb:?}: {text}");
    }
}

/// Commands in messages of the daemon and in those of verbs have the same `-c`.
#[test]
fn advice_names_the_config_that_was_asked_for() {
    let scene = Scene::new();
    std::fs::create_dir(scene.root.join("my fleet")).unwrap();
    scene.write("my fleet/cowhand.yaml", &format!("{FLEET}\nserver: {{enabled: false}}\n"));
    let run = |verb: &[&str]| scene.run(&[&["-c", "my fleet/cowhand.yaml"], verb].concat());
    assert_eq!(run(&["start", "-d", "--no-server"]).code, Some(0));
    assert_eq!(run(&["schedule", "disable", "worker/nightly"]).code, Some(0));
    let verbs: [&[&str]; 11] = [
        &["job", "job-2026-01-01-nosuch"],
        &["status", "nobody"],
        &["schedule", "show", "worker/nothing"],
        &["why", "worker/nightly"],
        &["why", "waiter"],
        &["token", "list"],
        &["logs"],
        &["start", "-d"],
        &["trigger", "worker", "nothing"],
        &["schedule", "next", "worker/nightly"],
        &["asks", "job-2026-01-01-nosuch.1"],
    ];
    for verb in verbs {
        let said = run(verb);
        let text = words(&format!("{}{}", said.stdout, said.stderr));
        assert!(text.contains("`cowhand -c 'my fleet/cowhand.yaml' "), "{verb:?}: {text}");
        for (at, _) in text.match_indices("`cowhand ") {
            assert!(text[at..].starts_with("`cowhand -c 'my fleet/cowhand.yaml' "), "{verb:?}: {text}");
        }
    }
    assert_eq!(run(&["stop"]).code, Some(0));
    for verb in [&["status"][..], &["trigger", "worker"], &["why", "worker/tidy"]] {
        let said = run(verb);
        let text = words(&format!("{}{}", said.stdout, said.stderr));
        assert!(text.contains("`cowhand -c 'my fleet/cowhand.yaml' start -d`"), "{verb:?}: {text}");
    }
    // Text of an agent stays unchanged.
    assert_eq!(run(&["start", "-d", "--no-server"]).code, Some(0));
    let said = run(&["trigger", "worker", "-p", "run `cowhand jobs` now", "--wait"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let said = run(&["logs", "worker"]).stdout;
    assert!(said.contains("run `cowhand jobs` now"), "{said}");
    let said = words(&run(&["job", &said_job(&scene)]).stdout);
    assert!(said.contains("run `cowhand jobs` now"), "{said}");
    assert_eq!(run(&["stop"]).code, Some(0));
}

fn said_job(scene: &Scene) -> String {
    scene.json(&["-c", "my fleet/cowhand.yaml", "jobs"])[0]["id"].as_str().unwrap().to_owned()
}

//! Agents that were renamed: another agent adopts their schedules, with running jobs and firings.

use super::left::{OTHER, STUCK, words};
use super::{Scene, wait_until};

#[test]
fn running_job_of_adopted_schedule_takes_a_place_of_new_agent() {
    let config = |agent: &str, adopt: &str| {
        format!(
            "agents:\n  - name: {agent}\n    runtime: command\n    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; \
             done']\n    schedules:\n      m: {{type: manual{adopt}}}\n      other: {{type: manual}}\n"
        )
    };
    let scene = Scene::with(&config("old", ""));
    scene.start();
    let job = scene.json(&["trigger", "old", "m"]);
    let id = job["id"].as_str().unwrap();
    wait_until("its start", || (scene.job(id)["status"] == "running").then_some(()));
    scene.write("cowhand.yaml", &config("new", ", adopt: old/m"));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    for verb in [&["status"][..], &["status", "old"], &["why", "old"]] {
        let said = words(&scene.run(verb).stdout);
        assert!(said.contains("1 running") && said.contains("takes a place of new"), "{verb:?}: {said}");
        assert!(!said.contains("all ended"), "{verb:?}: {said}");
        assert!(!said.contains("cowhand cancel"), "nobody is told to cancel it: {verb:?}: {said}");
    }
    for verb in [&["jobs", "--agent", "new"][..], &["cancel", "--agent", "new", "-y"], &["logs", "-f", "new"]]
    {
        let said = scene.run(verb);
        let said = words(&format!("{}{}", said.stdout, said.stderr));
        let expected = format!("{id} has the name of its former agent, old, and takes a place of new");
        assert!(said.contains(&expected), "{verb:?}: {said}");
    }
    scene.json(&["trigger", "new", "other"]);
    let status = scene.json(&["status"]);
    let agent = &status["agents"][0];
    assert_eq!((&agent["name"], &agent["running"], &agent["queued"]), (&"new".into(), &1.into(), &1.into()));
    assert_eq!(agent["adopted"], serde_json::json!([{"id": id, "agent": "old"}]));
    let gone = serde_json::json!([{"agent": "old", "running": 1, "adopted": 1, "adopted_by": ["new"], "queued": 0,
        "firings": 0, "firing_schedules": []}]);
    assert_eq!(status["gone"], gone);
    wait_until("the view", || {
        let state = std::fs::read_to_string(scene.root.join(".cowhand/state.yaml")).unwrap();
        state.contains(&format!("current_job: {id}")).then_some(())
    });
    scene.write("go", "");
    wait_until("its end", || (scene.job(id)["status"] == "completed").then_some(()));
}

/// A waiting job of an adopted schedule waits for its own schedule, also if its agent is in the config again.
#[test]
fn waiting_job_of_adopted_schedule_waits_for_its_own_schedule() {
    let agent = |name: &str, schedules: &str| {
        format!(
            "  - name: {name}\n    runtime: command\n    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']\n    \
             schedules: {{{schedules}}}\n"
        )
    };
    let scene = Scene::with(&format!("agents:\n{}", agent("old", "m: {type: manual}")));
    scene.start();
    let trigger = || scene.json(&["trigger", "old", "m"])["id"].as_str().unwrap().to_owned();
    let (first, second) = (trigger(), trigger());
    wait_until("the first to start", || (scene.job(&first)["status"] == "running").then_some(()));
    let adopting = agent("new", "n: {type: manual, adopt: old/m}");
    let load = |agents: &str| {
        scene.write("cowhand.yaml", &format!("agents:\n{agents}"));
        assert_eq!(scene.run(&["reload"]).code, Some(0));
    };
    load(&adopting);
    scene.go();
    wait_until("the first to end", || (scene.job(&first)["status"] == "completed").then_some(()));
    load(&format!("{adopting}{}", agent("old", "other: {type: manual}")));
    for verb in [&["job", &second][..], &["why", "old"], &["status", "old"]] {
        let said = words(&scene.run(verb).stdout);
        assert!(
            said.contains("not in the config") || said.contains("no longer in the config"),
            "{verb:?}: {said}"
        );
    }
    assert_eq!(scene.job(&second)["status"], "pending");
    load(&format!("{}{}", agent("new", "n: {type: manual}"), agent("old", "m: {type: manual}")));
    wait_until("the second to end", || (scene.job(&second)["status"] == "completed").then_some(()));
}

/// The advice about firings of a removed agent works.
#[test]
fn firing_of_removed_agent_continues_in_another_agent() {
    let scene = Scene::with(STUCK);
    scene.start();
    assert_eq!(scene.run(&["trigger", "a", "checked"]).code, Some(0));
    scene.write("cowhand.yaml", OTHER);
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    let advice = "its firings continue in a schedule of another agent that has `adopt: a/checked`";
    for verb in [&["status"][..], &["why", "a"]] {
        let said = words(&scene.run(verb).stdout);
        assert!(said.contains(advice), "{verb:?}: {said}");
    }
    let adopted = OTHER.replace("['true']", "['true'], schedules: {mine: {type: manual, adopt: a/checked}}");
    scene.write("cowhand.yaml", &adopted);
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    wait_until("the firing to run", || {
        (scene.json(&["jobs", "--schedule", "mine"])[0]["status"] == "completed").then_some(())
    });
    assert!(!words(&scene.run(&["status"]).stdout).contains("not in the config"));
}

/// `slow` exceeds its `timeout`, `silent` its `idle_timeout`. The others wait for a file: then `failing` fails and may be
/// retried, and `spender` spends more than a job may.
const LIMITED: &str = r#"
agents:
  - {name: slow, runtime: command, command: [sh, -c, 'while :; do echo on; sleep 0.1; done'], timeout: 4s, schedules: {i: {type: manual}}}
  - {name: silent, runtime: command, command: [sh, -c, 'echo hi; sleep 50'], schedules: {i: {type: manual, idle_timeout: 4s}}}
  - name: failing
    runtime: command
    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done; exit 3']
    schedules: {i: {type: manual, retry: {max_attempts: 2, backoff: 2s}}}
  - name: spender
    runtime: command
    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done; echo "{\"type\":\"assistant\",\"content\":\"call\",\"usage\":{\"input_tokens\":100,\"cost_usd\":2}}"; sleep 50']
    budget: {per_job_usd: 1}
    schedules: {i: {type: manual}}
"#;
const LIMITED_AGENTS: [&str; 4] = ["slow", "silent", "failing", "spender"];

/// Returns the config with each agent renamed to `new-…`, whose schedule adopts the schedule of the agent.
fn renamed() -> String {
    LIMITED_AGENTS.iter().fold(LIMITED.to_owned(), |config, name| {
        config.replacen(&format!("name: {name}"), &format!("name: new-{name}"), 1).replacen(
            "{i: {type: manual",
            &format!("{{i: {{adopt: {name}/i, type: manual"),
            1,
        )
    })
}

#[test]
fn attempt_keeps_its_limits_and_retries_without_its_agent_or_schedule_in_the_config() {
    let removed = "agents:\n  - {name: other, runtime: command, command: ['true']}\n";
    for (case, config, restarts) in [
        ("renamed", renamed(), true),
        ("removed", removed.to_owned(), true),
        ("removed and reloaded", removed.to_owned(), false),
        ("schedules removed", LIMITED.replace("schedules: {i: ", "schedules: {j: "), true),
    ] {
        let scene = Scene::with(LIMITED);
        scene.start();
        let jobs = LIMITED_AGENTS
            .map(|agent| scene.json(&["trigger", agent, "i"])["id"].as_str().unwrap().to_owned());
        for job in &jobs {
            wait_until("its start", || (scene.job(job)["status"] != "pending").then_some(()));
        }
        scene.write("cowhand.yaml", &config);
        let said = scene.run(&[if restarts { "restart" } else { "reload" }]);
        assert_eq!(said.code, Some(0), "{case}: {}", said.stderr);
        scene.write("go", "");
        let [slow, silent, failing, spender] = &jobs;
        for (job, kind) in [(slow, "timeout"), (silent, "idle"), (spender, "budget")] {
            let ended = wait_until(&format!("{case}: the end because of {kind}"), || {
                Some(scene.job(job)).filter(|job| job["status"] != "running")
            });
            assert_eq!(
                (&ended["status"], &ended["error"]["kind"]),
                (&"failed".into(), &kind.into()),
                "{case}: {ended}"
            );
        }
        let ended = wait_until("the end of the attempt", || {
            Some(scene.job(failing)).filter(|job| job["status"] != "running")
        });
        assert_eq!(ended["status"], "pending", "{case}: the retry waits for its agent: {ended}");
        assert_eq!(ended["waits"]["reason"], "removed", "{case}: {ended}");
    }
}

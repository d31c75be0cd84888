//! Shell hooks: their conditions, their order and their input.

use std::fs;

use serde_json::{Value, json};

use crate::{Scene, states, text, wait_until};

/// `waiter` waits for ever, `slow` for longer than its timeout.
const FLEET: &str = r#"
agents:
  - name: worker
    identity: {name: Wendy}
    runtime: command
    command: [sh, -c, "echo '{\"notify\": true}' > metadata.json; echo all is well"]
    schedules: {soon: {type: delay, in: 1s}}
    hooks: &hooks
      after_run: [{type: shell, command: "cat > told-$COWHAND_JOB_ID.json; echo $COWHAND_AGENT"}]
      on_error: [{type: shell, name: alarm, command: "cat > alarm-$COWHAND_JOB_ID.json"}]
  - {name: broken, runtime: command, command: [sh, -c, "echo oh no >&2; exit 7"], hooks: *hooks}
  - {name: slow, runtime: command, command: [sleep, "600"], timeout: 1s, hooks: *hooks}
  - {name: waiter, runtime: command, command: [sleep, "600"], hooks: *hooks}
"#;

fn told(scene: &Scene, what: &str, job: &str) -> Value {
    serde_json::from_str(&scene.read(&format!("{what}-{job}.json"))).unwrap_or_default()
}

#[test]
fn hooks_get_context_of_all_four_events() {
    let mut scene = Scene::new(FLEET);
    scene.start();
    // Start the slow jobs first.
    let (slow, waiter) = (scene.trigger("slow"), scene.trigger("waiter"));
    let (done, broken) = (scene.trigger("worker"), scene.trigger("broken"));
    wait_until("the waiter to run", || (scene.json(&["job", &waiter])["status"] == "running").then_some(()));
    scene.run(&["cancel", &waiter]);

    assert_eq!(states(&scene.hooks(&done)), ["completed"]);
    assert_eq!(text(&scene.hooks(&done)[0], "said"), "worker");
    let context = told(&scene, "told", &done);
    let job = scene.json(&["job", &done]);
    assert_eq!(context["event"], "completed");
    assert_eq!(context["result"], json!({"success": true, "output": "all is well"}));
    assert_eq!(context["agent"], json!({"id": "worker", "name": "Wendy"}));
    assert_eq!(context["metadata"], json!({"notify": true}));
    assert_eq!((&context["job"]["id"], &context["job"]["agentId"]), (&json!(done), &json!("worker")));
    assert!(context["job"]["durationMs"].is_u64() && context["job"].get("scheduleName").is_none());
    let at = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    assert_eq!(at(&context["job"]["completedAt"]), at(&job["finished_at"]));
    assert_eq!(scene.events(&done), ["hook:completed"]);

    for (job, event, error) in [(&broken, "failed", "exit"), (&slow, "timeout", "longer than")] {
        assert_eq!(states(&scene.hooks(job)), ["completed", "completed"], "{event}");
        for what in ["told", "alarm"] {
            let context = told(&scene, what, job);
            assert_eq!((&context["event"], &context["result"]["success"]), (&json!(event), &json!(false)));
            assert!(text(&context["result"], "error").contains(error), "{context}");
        }
    }
    assert_eq!(states(&scene.hooks(&waiter)), ["completed"], "nobody raises the alarm about a cancelled job");
    assert_eq!(told(&scene, "told", &waiter)["event"], "cancelled");
    assert!(!scene.path(&format!("alarm-{waiter}.json")).exists());
}

#[test]
fn hook_of_scheduled_job_gets_metadata_and_output() {
    let mut scene = Scene::new(FLEET);
    scene.start();
    let job = wait_until("the schedule", || {
        let jobs = scene.json(&["jobs", "--agent", "worker"]);
        Some(jobs.get(0)?["id"].as_str()?.to_owned())
    });
    assert_eq!(states(&scene.hooks(&job)), ["completed"]);
    let context = told(&scene, "told", &job);
    assert_eq!(
        (&context["job"]["scheduleName"], &context["result"]["output"]),
        (&json!("soon"), &json!("all is well"))
    );
    assert_eq!(context["metadata"]["notify"], true);
}

#[test]
fn hooks_run_in_order_until_one_stops_the_rest() {
    let mut scene = Scene::new(
        r#"
agents:
  - name: worker
    runtime: command
    command: [sh, -c, "mkdir -p left; echo '{\"deep\": {\"yes\": 1, \"no\": 0}}' > left/facts.json; exit $CODE"]
    env: {CODE: "3"}
    metadata_file: left/facts.json
    hooks:
      after_run:
        - {type: shell, command: "sleep 0.3; echo 1 >> order"}
        - {type: shell, command: "echo 2 >> order", when: metadata.deep.yes}
        - {type: shell, command: "echo never >> order", when: metadata.deep.no}
        - {type: shell, command: "echo never >> order", on_events: [completed, cancelled]}
        - {type: shell, command: "echo 5 >> order; exit 1"}
        - {type: shell, command: "echo 6 >> order; exit 2", name: last word, continue_on_error: false}
        - {type: shell, command: "echo never >> order"}
      on_error:
        - {type: shell, command: "echo never >> order"}
"#,
    );
    scene.start();
    let job = scene.trigger("worker");
    let hooks = scene.hooks(&job);
    let numbers: Vec<_> = hooks.iter().map(|hook| hook["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 5, 6, 7, 8], "the fourth is for other ends");
    let expected = ["completed", "completed", "skipped", "failed", "failed", "skipped", "skipped"];
    assert_eq!(states(&hooks), expected);
    assert_eq!(text(&hooks[2], "reason"), "`when: metadata.deep.no` is not true");
    assert_eq!(text(&hooks[3], "reason"), "exit code 1");
    assert_eq!(text(&hooks[6], "reason"), "the after_run hook 6 (last word) failed");
    assert_eq!(scene.read("order"), "1\n2\n5\n6\n");
    let types = expected.map(|state| format!("hook:{state}"));
    assert_eq!(scene.events(&job), types);
    let shown = scene.run(&["job", &job]);
    assert!(shown.contains("hook 6") && shown.contains("after_run, shell (last word)"), "{shown}");
    assert!(shown.contains("exit code 2"), "{shown}");
    // Only the store keeps the data of the ended attempt and its hooks.
    wait_until("their folders to go", || {
        let folders = fs::read_dir(scene.path(".cowhand/attempts")).unwrap();
        (folders.count() == 0).then_some(())
    });
}

#[test]
fn cancelled_pending_job_runs_hooks() {
    let mut scene = Scene::new(
        "
agents:
  - name: worker
    runtime: command
    command: [sleep, '600']
    hooks: {after_run: [{type: shell, command: 'cat > told-$COWHAND_JOB_ID.json', on_events: [cancelled]}]}
",
    );
    scene.start();
    let (_, second) = (scene.trigger("worker"), scene.trigger("worker"));
    scene.run(&["cancel", &second]);
    assert_eq!(states(&scene.hooks(&second)), ["completed"]);
    assert_eq!(told(&scene, "told", &second)["event"], "cancelled");
}

#[test]
fn hook_removed_from_config_is_skipped() {
    let fleet = |hooks: &str| {
        format!(
            "agents:\n  - name: worker\n    runtime: command\n    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']\n    \
             hooks: {{after_run: [{hooks}]}}\n"
        )
    };
    let first = "{type: shell, command: 'while [ ! -e on ]; do sleep 0.05; done; echo first'}";
    let second = "{type: shell, name: gone, command: 'echo second'}";
    let mut scene = Scene::new(&fleet(&format!("{first}, {second}")));
    scene.start();
    let job = scene.trigger("worker");
    fs::write(scene.path("go"), "").unwrap();
    wait_until("the first hook", || {
        (scene.json(&["job", &job])["hooks"][0]["state"] == "running").then_some(())
    });
    fs::write(scene.path("cowhand.yaml"), fleet(first)).unwrap();
    scene.run(&["reload"]);
    fs::write(scene.path("on"), "").unwrap();
    let hooks = scene.hooks(&job);
    assert_eq!(states(&hooks), ["completed", "skipped"]);
    assert_eq!(text(&hooks[1], "reason"), "it is no longer in the config");
    assert_eq!(scene.hooks_after_run("worker").len(), 1);
}

/// The directory contains the metadata file of an earlier job. A job whose agent was not launched has no metadata. A
/// job whose keeper could not start the agent has the metadata of the earlier job.
#[test]
fn job_without_launched_agent_has_no_metadata() {
    let mut scene = Scene::new(
        r#"
agents:
  - &agent
    name: waits
    runtime: command
    command: [sleep, "600"]
    hooks: {after_run: [{type: shell, command: "cat > told-$COWHAND_JOB_ID.json"}]}
  - {<<: *agent, name: unset, isolation: worktree}
  - {<<: *agent, name: missing, command: [/no/such/program]}
"#,
    );
    std::fs::write(scene.path("metadata.json"), r#"{"left": true}"#).unwrap();
    scene.start();
    let (running, pending) = (scene.trigger("waits"), scene.trigger("waits"));
    scene.run(&["cancel", &pending]);
    scene.run(&["cancel", &running]);
    for (job, expected) in [
        (pending, Value::Null),
        (running, json!({"left": true})),
        (scene.trigger("unset"), Value::Null),
        (scene.trigger("missing"), json!({"left": true})),
    ] {
        assert_eq!(states(&scene.hooks(&job)), ["completed"]);
        let context = told(&scene, "told", &job);
        assert_eq!(context["metadata"], expected, "{context:#}");
        assert_eq!(context.get("metadata").is_some(), !expected.is_null(), "{context:#}");
    }
}

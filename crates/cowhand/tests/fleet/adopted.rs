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
    scene.json(&["trigger", "new", "other"]);
    let status = scene.json(&["status"]);
    let agent = &status["agents"][0];
    assert_eq!((&agent["name"], &agent["running"], &agent["queued"]), (&"new".into(), &1.into(), &1.into()));
    assert_eq!(status["gone"].as_array().map(Vec::len), Some(0), "nobody is told to cancel it: {status}");
    wait_until("the view", || {
        let state = std::fs::read_to_string(scene.root.join(".cowhand/state.yaml")).unwrap();
        state.contains(&format!("current_job: {id}")).then_some(())
    });
    scene.write("go", "");
    wait_until("its end", || (scene.job(id)["status"] == "completed").then_some(()));
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

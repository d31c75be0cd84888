//! The ledger of firings: how all jobs of each firing ended.

use std::fs;

use serde_json::Value;

use super::{Scene, wait_until};

fn statuses(firing: &Value) -> Vec<&str> {
    firing["jobs"].as_array().unwrap().iter().map(|job| job["status"].as_str().unwrap()).collect()
}

#[test]
fn a_failed_job_is_shown_as_failed() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'cat; exit 3']
    schedules: {asked: {type: manual, prompt: Try.}}
",
    );
    scene.start();
    let job = scene.run(&["trigger", "a", "asked", "--wait", "--json"]).stdout;
    let job: Value = serde_json::from_str(&job).unwrap();
    let id = job["id"].as_str().unwrap();
    let said = scene.run(&["why", "a/asked"]).stdout;
    let row = said.lines().find(|line| line.contains(id)).unwrap();
    assert!(row.contains("failed") && !row.contains("ran"), "{said}");
    let firing = &scene.json(&["why", "a/asked"])["firings"][0];
    assert_eq!((firing["outcome"].as_str(), firing["job"].as_str()), (Some("ran"), Some(id)));
    assert_eq!(statuses(firing), ["failed"], "{firing:#}");
    assert_eq!(firing["jobs"][0]["exit_reason"], "error");
    // The firing of a removed job stays in the ledger, and shows only that it ran. The audit names who removed the job,
    // even if no daemon ran.
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    assert_eq!(scene.run(&["job", "delete", id]).code, Some(0));
    let audit = scene.run(&["events", "--audit", "--json"]).stdout;
    let deleted = audit.lines().find(|line| line.contains("job:deleted")).unwrap_or_default();
    assert!(deleted.contains("\"by\":"), "{audit}");
    let firing = &scene.json(&["why", "a/asked"])["firings"][0];
    assert_eq!((firing["job"].as_str(), statuses(firing)), (Some(id), vec![]), "{firing:#}");
    let said = scene.run(&["why", "a/asked"]).stdout;
    assert!(said.lines().any(|line| line.contains("ran") && line.contains(id)), "{said}");
}

#[test]
fn a_firing_with_several_jobs_lists_all_of_them() {
    let scene = Scene::with(
        "agents:
  - name: worker
    runtime: command
    command: [sh, -c, 'cat | grep -q bad && exit 3; exit 0']
    instances: {max_concurrent: 3}
    work_source: {type: files, path: tasks}
    schedules: {poll: {type: interval, interval: 1h, prompt: Work on this.}}
",
    );
    fs::create_dir(scene.root.join("tasks")).unwrap();
    for name in ["good", "bad", "fine"] {
        fs::write(
            scene.root.join(format!("tasks/{name}.md")),
            format!("---\ntitle: Do {name}\n---\nDo it.\n"),
        )
        .unwrap();
    }
    scene.start();
    let firing = wait_until("three jobs to end", || {
        // Later firings look for more work for the free places.
        let firings = scene.json(&["why", "worker/poll"])["firings"].clone();
        let all_ended = |firing: &&Value| {
            let ended = |status: &&str| matches!(*status, "completed" | "failed");
            statuses(firing).iter().filter(|status| ended(status)).count() == 3
        };
        firings.as_array()?.iter().find(all_ended).cloned()
    });
    let mut ended = statuses(&firing);
    ended.sort_unstable();
    assert_eq!(ended, ["completed", "completed", "failed"]);
    let said = scene.run(&["why", "worker/poll"]).stdout;
    for job in firing["jobs"].as_array().unwrap() {
        let (id, status) = (job["id"].as_str().unwrap(), job["status"].as_str().unwrap());
        assert!(said.lines().any(|line| line.contains(id) && line.contains(status)), "{id}: {said}");
    }
    let timeline = super::api::ask(&scene, "GET", "timeline", "");
    let timeline: Value = serde_json::from_str(timeline.lines().nth(2).unwrap()).unwrap();
    let past = timeline["schedules"][0]["firings"].as_array().unwrap();
    let past = past.iter().find(|past| past["outcome"] == "ran").unwrap();
    assert_eq!((statuses(past).len(), &past["job_status"]), (3, &"failed".into()), "{past:#}");
}

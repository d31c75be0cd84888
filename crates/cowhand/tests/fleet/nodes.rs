//! Two nodes on one database: each says which node ran a job and has its output.

use std::fs;

use cowhand_testing::postgres::Postgres;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::api::ask;
use super::{Scene, wait_until};

/// An agent that writes one line, and ends when there is a file `go`.
const AGENT: &str = "agents:\n  - name: speaker\n    runtime: command\n    \
                     command: [sh, -c, 'echo spoken; while [ ! -e go ]; do sleep 0.05; done']\n";

/// Creates two folders, each with its own node, on one database.
fn two_nodes(server: &Postgres) -> [Scene; 2] {
    [(), ()].map(|()| Scene::with(&format!("store: {}\n{AGENT}", server.url())))
}

/// Returns the name of the node.
fn name_of(scene: &Scene) -> String {
    fs::read_to_string(scene.root.join(".cowhand/node")).unwrap().trim().to_owned()
}

/// Runs a verb that has to succeed, and returns its output.
fn text(scene: &Scene, arguments: &[&str]) -> String {
    let ran = scene.run(arguments);
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
    ran.stdout
}

#[test]
fn output_of_another_node_is_not_claimed_to_be_missing() {
    let server = Postgres::start();
    let [here, there] = two_nodes(&server);
    there.start();
    let job = there.json(&["trigger", "speaker"])["id"].as_str().unwrap().to_owned();
    wait_until("the output", || text(&there, &["logs", &job]).contains("spoken").then_some(()));
    let node = name_of(&there);
    here.start();
    // The job runs on the other node, so `logs -f` is refused instead of waiting for output that never arrives.
    for arguments in [&["logs", &job][..], &["logs", "-f", &job]] {
        let refused = here.run(arguments);
        assert_eq!(refused.code, Some(5), "{}", refused.stderr);
        assert!(refused.stderr.contains(&node), "{}", refused.stderr);
    }
    for path in [format!("jobs/{job}/output"), format!("jobs/{job}/output?follow=1")] {
        let answer = ask(&here, "GET", &path, "");
        assert!(answer.contains("409 Conflict") && answer.contains(&node), "{answer}");
        assert!(answer.contains(&format!("cowhand logs {job}")), "{answer}");
    }
    there.write("go", "");
    wait_until("the end", || (there.job(&job)["status"] == "completed").then_some(()));
    for alone in [false, true] {
        if alone {
            text(&here, &["stop"]);
        }
        for arguments in
            [&["logs", &job][..], &["logs", "--result", &job], &["logs", "--result", "--json", &job]]
        {
            let refused = here.run(arguments);
            let said = &refused.stderr;
            assert_eq!(refused.code, Some(5), "{arguments:?} {said}");
            let advice = format!("cowhand logs {job}");
            assert!(said.contains(&node) && said.contains(&advice), "{arguments:?} {said}");
        }
        let shown = text(&here, &["job", &job]);
        assert!(shown.contains(&format!("node         {node}")), "{shown}");
        assert!(!shown.contains("shows its output") && shown.contains("its output is on"), "{shown}");
        let view = here.job(&job);
        assert_eq!(view["node"], Value::from(node.as_str()), "{view:#}");
        assert_eq!(view["output_elsewhere"][0]["node"], Value::from(node.as_str()), "{view:#}");
    }
    let view = there.job(&job);
    assert_eq!(
        (&view["node"], view.get("output_elsewhere")),
        (&Value::from(node.as_str()), None),
        "{view:#}"
    );
    assert!(text(&there, &["logs", "--result", &job]).contains("spoken"));
}

/// The node of the job is suspended, so nobody can end its processes.
#[test]
fn cancel_reports_a_job_that_was_lost_on_another_node() {
    let server = Postgres::start();
    let [here, there] = two_nodes(&server);
    there.start();
    let job = there.json(&["trigger", "speaker"])["id"].as_str().unwrap().to_owned();
    wait_until("the output", || text(&there, &["logs", &job]).contains("spoken").then_some(()));
    let (node, daemon) = (name_of(&there), there.daemon().unwrap());
    here.start();
    kill_process(daemon, Signal::STOP).unwrap();
    // The lease has to expire first.
    let cancelled = here.run(&["cancel", &job]);
    kill_process(daemon, Signal::CONT).unwrap();
    assert_eq!(cancelled.code, Some(1), "{} {}", cancelled.stdout, cancelled.stderr);
    assert!(cancelled.stdout.contains("lost"), "{}", cancelled.stdout);
    let said = &cancelled.stderr;
    assert!(said.contains("was not cancelled") && said.contains(&node), "{said}");
}

/// The node of the job is suspended until the job has ended by itself.
#[test]
fn cancel_does_not_count_a_job_that_completed_on_another_node() {
    let server = Postgres::start();
    let [here, there] = two_nodes(&server);
    there.start();
    here.start();
    for (arguments, code) in [(&["cancel"][..], 5), (&["cancel", "--all", "--yes"], 0)] {
        let _ = fs::remove_file(there.root.join("go"));
        let job = there.json(&["trigger", "speaker"])["id"].as_str().unwrap().to_owned();
        wait_until("the output", || text(&there, &["logs", &job]).contains("spoken").then_some(()));
        let daemon = there.daemon().unwrap();
        kill_process(daemon, Signal::STOP).unwrap();
        let one = [job.as_str()];
        let named = if arguments.len() == 1 { &one[..] } else { &[] };
        let cancel = here.spawn(&[arguments, named].concat());
        wait_until("the request", || here.job(&job)["cancellation"].is_object().then_some(()));
        there.write("go", "");
        let ending = there.root.join(format!(".cowhand/attempts/{job}.1/ending.json"));
        wait_until("the end of the agent", || ending.exists().then_some(()));
        kill_process(daemon, Signal::CONT).unwrap();
        let cancel = cancel.end();
        assert_eq!(here.job(&job)["status"], "completed");
        let said = format!("{}{}", cancel.stdout, cancel.stderr);
        assert_eq!(cancel.code, Some(code), "{said}");
        assert!(said.contains(&format!("{job} was not cancelled: it completed before")), "{said}");
        assert!(!said.contains("1 job cancelled"), "{said}");
    }
}

//! The names of jobs, agents and schedules on the command line.

use super::api::ask;
use super::left::words;
use super::{Scene, wait_until};

#[test]
fn verbs_accept_short_job_ids() {
    let scene = Scene::started();
    let job = scene.json(&["trigger", "worker", "tidy", "--wait"]);
    let id = job["id"].as_str().unwrap();
    let (short, dated) = (&id[15..], &id[4..]);
    for name in [short, dated] {
        assert_eq!(scene.job(name)["id"], *id, "{name}");
        assert!(scene.run(&["logs", name]).stdout.starts_with("Tidy up.\n"), "{name}");
        assert_eq!(scene.json(&["logs", name, "--result"])["job"], *id);
        assert_eq!(scene.json(&["retry", name, "--wait"])["retry_of"], *id);
        assert_eq!(scene.json(&["fork", name, "--wait"])["forked_from"], *id);
        let again = scene.run(&["cancel", name]);
        assert!(
            again.code == Some(5) && again.stderr.contains(&format!("{id} has already ended (completed)"))
        );
        for path in ["", "/output", "/result", "/attempts"] {
            let answer = ask(&scene, "GET", &format!("jobs/{name}{path}"), "");
            assert!(answer.contains("200 OK"), "{answer}");
        }
        let after = scene.run(&["jobs", "--after", name]);
        assert_eq!(after.stdout, "no jobs\n", "it was the first");
    }
    let none = scene.run(&["job", "zzzzzz"]);
    assert_eq!(none.code, Some(5));
    assert!(none.stderr.contains("there is no job zzzzzz; `cowhand jobs` lists them"), "{}", none.stderr);
    assert_eq!(scene.run(&["job", "not an id"]).code, Some(2));
    assert_eq!(scene.run(&["job", "delete", short]).code, Some(0));
    for verb in [
        &["job", dated][..],
        &["job", short],
        &["job", id],
        &["retry", id],
        &["fork", short],
        &["logs", short],
    ] {
        let gone = scene.run(verb);
        assert_eq!(gone.code, Some(5), "{verb:?}: {}", gone.stderr);
        let said = format!("{id} does not exist any more: it was deleted at ");
        assert!(gone.stderr.contains(&said) && gone.stderr.contains(" by "), "{verb:?}: {}", gone.stderr);
    }
    // A list cannot continue after the job, so the message says how to read the list.
    let advice = "; without `after`, the list starts with the newest job";
    for name in [id, dated, short, "job-2026-01-01-nosuch"] {
        let gone = scene.run(&["jobs", "--after", name]);
        assert_eq!(gone.code, Some(5), "{name}: {}", gone.stderr);
        let said = gone.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_known = said.contains(&format!("{id} does not exist any more: it was deleted at "));
        assert_eq!(is_known, name != "job-2026-01-01-nosuch", "{name}: {said}");
        assert!(said.ends_with(advice), "{name}: {said}");
    }
}

#[test]
fn ask_ids_accept_short_job_ids() {
    let scene = Scene::started();
    let job = scene.json(&["trigger", "worker", "--wait"]);
    let id = job["id"].as_str().unwrap();
    for verb in [&["asks"][..], &["approve"], &["deny"]] {
        let said = scene.run(&[verb, &[format!("{}.1", &id[15..]).as_str()]].concat());
        assert_eq!(said.code, Some(5), "{}", said.stderr);
        assert!(said.stderr.contains(&format!("there is no ask {id}.1")), "{}", said.stderr);
    }
}

#[test]
fn unknown_name_suggests_nearest_name() {
    let scene = Scene::with(
        "agents:
  - {name: reviewer, runtime: command, command: ['true'], schedules: {nightly: {type: manual}}}
  - {name: b, runtime: command, command: ['true']}
",
    );
    scene.start();
    let agent: &[&[&str]] = &[
        &["trigger", "reviwer"],
        &["status", "reviwer"],
        &["why", "reviwer"],
        &["why", "reviwer/nightly"],
        &["schedule", "show", "reviwer/nightly"],
        &["schedule", "enable", "reviwer/nightly"],
        &["schedule", "next", "reviwer/nightly"],
        &["logs", "reviwer"],
        &["clear", "reviwer"],
        &["prune", "reviwer", "--max-jobs", "1"],
        &["work", "list", "--agent", "reviwer"],
        &["jobs", "--agent", "reviwer"],
        &["jobs", "--agent", "reviwer", "--json"],
        &["retry", "--agent", "reviwer", "--yes"],
        &["cancel", "--agent", "reviwer", "--yes"],
        &["usage", "--agent", "reviwer"],
    ];
    for verb in agent {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(5), "{verb:?}: {}{}", said.stdout, said.stderr);
        assert!(said.stderr.contains("did you mean reviewer?"), "{verb:?}: {}", said.stderr);
    }
    let schedule: &[&[&str]] = &[
        &["trigger", "reviewer", "nigthly"],
        &["why", "reviewer/nigthly"],
        &["schedule", "show", "reviewer/nigthly"],
        &["schedule", "disable", "reviewer/nigthly"],
        &["schedule", "next", "reviewer/nigthly"],
        &["jobs", "--schedule", "nigthly"],
        &["jobs", "--agent", "reviewer", "--schedule", "nigthly"],
        &["retry", "--schedule", "nigthly", "--yes"],
    ];
    for verb in schedule {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(5), "{verb:?}: {}{}", said.stdout, said.stderr);
        assert!(said.stderr.contains("did you mean nightly?"), "{verb:?}: {}", said.stderr);
    }
    let parameters =
        ["jobs?agent=reviwer", "jobs?schedule=nigthly", "usage?agent=reviwer", "timeline?agent=reviwer"];
    for address in parameters {
        let answer = ask(&scene, "GET", address, "");
        assert!(answer.contains("404 Not Found") && answer.contains("did you mean"), "{address}: {answer}");
    }
    assert_eq!(scene.run(&["jobs", "--agent", "b"]).stdout, "no jobs\n");
    let said = scene.run(&["trigger", "quite-another"]);
    assert!(said.code == Some(5) && !said.stderr.contains("did you mean"), "{}", said.stderr);
}

#[test]
fn removed_agent_is_accepted_in_filters() {
    let scene = Scene::started();
    let id = scene.json(&["trigger", "worker", "tidy", "--wait"])["id"].as_str().unwrap().to_owned();
    scene.write("cowhand.yaml", "agents: [{name: other, runtime: command, command: ['true']}]");
    scene.run(&["reload"]);
    for filter in [["--agent", "worker"], ["--schedule", "tidy"]] {
        assert_eq!(scene.json(&[&["jobs"], &filter[..]].concat())[0]["id"], *id, "{filter:?}");
    }
    for verb in
        [&["usage", "--agent", "worker"][..], &["retry", "--agent", "worker", "--yes"], &["logs", "worker"]]
    {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(0), "{verb:?}: {}", said.stderr);
    }
    let mistyped: [(&[&str], &str); 5] = [
        (&["jobs", "--agent", "wroker"], "did you mean worker?"),
        (&["why", "wroker"], "did you mean worker?"),
        (&["logs", "wroker"], "did you mean worker?"),
        (&["jobs", "--schedule", "tiddy"], "did you mean tidy?"),
        (&["jobs", "--agent", "worker", "--schedule", "tiddy"], "did you mean tidy?"),
    ];
    for (verb, words) in mistyped {
        let said = scene.run(verb);
        assert!(said.code == Some(5) && said.stderr.contains(words), "{verb:?}: {}", said.stderr);
    }
}

#[test]
fn why_of_agent_shows_all_its_schedules() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [cat]
    schedules:
      first: {type: manual, prompt: One.}
      second: {type: cron, cron: '0 0 1 1 *', timezone: UTC, enabled: false}
  - {name: b, runtime: command, command: ['true']}
",
    );
    scene.start();
    let job = scene.json(&["trigger", "a", "first", "--wait"]);
    let said = scene.run(&["why", "a"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    for words in
        ["a/first is on, and not running now.", "a/second is turned off", job["id"].as_str().unwrap()]
    {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    let json = scene.json(&["why", "a"]);
    assert_eq!(json["agent"], "a");
    let names: Vec<_> = json["schedules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["schedule"]["schedule"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(json["schedules"][0]["firings"][0]["job"], job["id"]);
    let said = scene.run(&["why", "b"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("b has no schedules; `cowhand trigger b` makes a job"), "{}", said.stdout);
}

#[test]
fn missing_config_file_is_an_error() {
    let scene = Scene::new();
    for verb in [
        &["status"][..],
        &["jobs"],
        &["agents"],
        &["start"],
        &["start", "-d"],
        &["stop"],
        &["doctor"],
        &["config", "check"],
    ] {
        let said = scene.run(&[&["-c", "nowhere/cowhand.yaml"], verb].concat());
        assert_eq!(said.code, Some(3), "{verb:?}: {}{}", said.stdout, said.stderr);
        assert!(said.stderr.contains("nowhere/cowhand.yaml does not exist"), "{verb:?}: {}", said.stderr);
    }
    assert!(!scene.root.join("nowhere").exists());
    // A daemon whose config file is missing can still be reached.
    scene.start();
    std::fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
    assert_eq!(scene.json(&["-c", "cowhand.yaml", "status"])["daemon"]["running"], true);
    assert_eq!(scene.run(&["-c", "cowhand.yaml", "stop"]).code, Some(0));
    assert_eq!(scene.run(&["-c", "cowhand.yaml", "status"]).code, Some(3));
}

#[test]
fn job_delete_removes_ended_job() {
    let scene = Scene::started();
    let job = scene.json(&["trigger", "worker", "--wait"]);
    let id = job["id"].as_str().unwrap();
    let (running, _) = scene.waiting_job();
    let refused = scene.run(&["job", "delete", &running]);
    assert_eq!(refused.code, Some(5), "{}", refused.stdout);
    assert!(refused.stderr.contains("has not ended; cancel it first"), "{}", refused.stderr);
    let deleted = scene.run(&["job", "delete", id]);
    assert_eq!((deleted.code, deleted.stdout), (Some(0), format!("{id} is deleted\n")), "{}", deleted.stderr);
    wait_until("its files to go", || {
        (!scene.root.join(format!(".cowhand/jobs/{id}.jsonl")).exists()).then_some(())
    });
    let event = scene.json(&["events", "--limit", "1"]);
    assert_eq!((&event["type"], &event["job"]), (&"job:deleted".into(), &id.into()), "{event}");
    assert_eq!(event["by"]["who"], "person", "{event}");
    let events = scene.run(&["events"]).stdout;
    let line = events.lines().last().unwrap();
    assert!(line.contains("job:deleted") && line.contains(" by "), "{events}");
    let again = scene.run(&["job", "delete", id]);
    assert!(again.code == Some(5) && again.stderr.contains("it was deleted at"), "{}", again.stderr);
    // Deleting a job needs no daemon, like pruning.
    scene.go();
    let job = scene.json(&["trigger", "worker", "--wait"]);
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    let deleted = scene.json(&["job", "delete", job["id"].as_str().unwrap()]);
    assert_eq!(deleted["id"], job["id"]);
    assert!(!scene.root.join(format!(".cowhand/jobs/{}.yaml", job["id"].as_str().unwrap())).exists());
    let never = scene.run(&["job", "delete", "job-2026-01-01-nosuch"]);
    assert!(never.code == Some(5) && never.stderr.contains("there is no job"), "{}", never.stderr);
}

/// Errors in the config do not make its agents removed ones, whose jobs somebody should cancel.
#[test]
fn agents_of_a_config_with_errors_are_not_called_removed() {
    let config = "agents:\n  - name: a\n    runtime: command\n    command: [sleep, '50']\n    schedules:\n      m: {type: manual}\n      c: {type: cron, cron: '@yearly', prompt: Go.}\n";
    let scene = Scene::with(config);
    scene.start();
    let first = scene.json(&["trigger", "a", "m"])["id"].as_str().unwrap().to_owned();
    let second = scene.json(&["trigger", "a", "m"])["id"].as_str().unwrap().to_owned();
    wait_until("its start", || (scene.job(&first)["status"] == "running").then_some(()));
    assert_eq!(scene.run(&["stop", "--keep-agents"]).code, Some(0));
    for broken in [config.replace("runtime:", "runtme:"), format!("{config}: [")] {
        scene.write("cowhand.yaml", &broken);
        for verb in [
            &["status"][..],
            &["status", "a"],
            &["why", "a"],
            &["why", "a/m"],
            &["job", &second],
            &["schedule", "next"],
            &["schedule", "next", "a/c"],
            &["schedule", "show", "a/c"],
        ] {
            let said = scene.run(verb);
            let said = words(&format!("{}{}", said.stdout, said.stderr));
            assert!(said.contains("config has errors"), "{verb:?}: {said}");
            if !verb.contains(&"job") {
                assert!(said.contains("cannot be read, because the config has errors"), "{verb:?}: {said}");
            }
            assert!(!said.contains("nothing fires by the clock"), "{verb:?}: {said}");
            assert!(
                !said.contains("not in the config") && !said.contains("cowhand cancel"),
                "{verb:?}: {said}"
            );
        }
    }
    // The jobs that have not ended are shown without their agents.
    let status = scene.run(&["status"]).stdout;
    for (job, state) in [(&first, "running"), (&second, "pending")] {
        let row = status.lines().find(|line| line.starts_with(job.as_str()));
        assert!(row.is_some_and(|row| row.contains(state)), "{status}");
    }
    assert_eq!(scene.json(&["status"])["running"], 1);
    scene.write("cowhand.yaml", config);
    scene.start();
    assert_eq!(scene.job(&second)["status"], "pending");
}

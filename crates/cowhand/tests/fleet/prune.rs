//! Pruning, by hand and by the daemon, removes old jobs and nothing else.

use std::fs::{self, File};

use serde_json::Value;

use super::api::ask;
use super::{FLEET, Scene, wait_until};

/// Returns the names of the files and folders of the job.
fn files(scene: &Scene, job: &str) -> Vec<String> {
    let state = scene.root.join(".cowhand");
    let both = ["jobs", "attempts"].map(|folder| fs::read_dir(state.join(folder)).unwrap());
    let names = both.into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut ours: Vec<_> = names.filter(|name| name.starts_with(job)).collect();
    ours.sort();
    ours
}

/// Waits until the job has its two files, output and view, and no others.
fn has_its_files(scene: &Scene, job: &str) {
    wait_until("the files of the job", || {
        (files(scene, job) == ["jsonl", "yaml"].map(|kind| format!("{job}.{kind}"))).then_some(())
    });
}

/// Runs a job to its end, whatever its outcome.
fn ran(scene: &Scene, agent: &str) -> String {
    let said = scene.run(&["trigger", agent, "--wait", "--json"]);
    let job: Value = serde_json::from_str(&said.stdout).unwrap();
    job["id"].as_str().unwrap().to_owned()
}

fn listed(pruned: &Value) -> Vec<&str> {
    pruned["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect()
}

#[test]
fn dry_run_lists_jobs_and_prune_removes_them() {
    let scene = Scene::started();
    let jobs: Vec<String> = (0..4).map(|_| ran(&scene, "worker")).collect();
    let other = ran(&scene, "broken");
    let kept = scene.shown(&["prune"]);
    let dry = scene.shown(&["prune", "--dry-run", "--max-jobs", "2"]);
    let dry_json = scene.shown(&["prune", "--dry-run", "--max-jobs", "2", "--json"]);
    has_its_files(&scene, &jobs[0]);
    let view = scene.root.join(format!(".cowhand/jobs/{}.yaml", jobs[0]));
    wait_until("its view", || fs::read_to_string(&view).ok().filter(|text| text.contains("completed")));
    let real = scene.shown(&["prune", "--max-jobs", "2"]);
    let again = scene.shown(&["prune", "--max-jobs", "2"]);
    let gone = [
        scene.shown(&["job", &jobs[0]]),
        scene.shown(&["logs", &jobs[0]]),
        scene.shown(&["job", "job-2026-01-01-nosuch"]),
        scene.shown(&["prune", "nobody"]),
        scene.shown(&["prune", "--max-bytes", "10 apples"]),
    ];
    scene.snapshot("what_is_pruned", &[vec![kept, dry, dry_json, real, again], gone.to_vec()].concat());
    for job in &jobs[..2] {
        assert_eq!(files(&scene, job), Vec::<String>::new());
    }
    for job in [&jobs[2], &jobs[3], &other] {
        has_its_files(&scene, job);
        assert_eq!(&scene.job(job)["id"], job);
    }
    let state = || fs::read_to_string(scene.root.join(".cowhand/state.yaml")).unwrap();
    wait_until("the view of the fleet", || state().contains(&jobs[3]).then_some(()));
    scene.run(&["restart"]);
    assert_eq!(files(&scene, &jobs[0]), Vec::<String>::new(), "nothing comes back");
}

#[test]
fn idempotency_key_of_pruned_job_stays_used() {
    let scene = Scene::started();
    let trigger = &["trigger", "worker", "tidy", "--idempotency-key", "delivery-1"];
    let first = scene.json(&[trigger as &[&str], &["--wait"]].concat());
    ran(&scene, "worker");
    assert_eq!(listed(&scene.json(&["prune", "worker", "--max-jobs", "1"])), [first["id"].as_str().unwrap()]);
    let again = scene.run(trigger);
    assert_eq!(again.code, Some(5), "{}", again.stdout);
    assert!(
        again.stderr.contains("the key was used before for worker/tidy, and its job no longer exists"),
        "{}",
        again.stderr
    );
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 1, "no second run");
    let firings = &scene.json(&["why", "worker/tidy"])["firings"];
    assert_eq!(firings[0]["job"], first["id"], "the ledger remembers");
}

#[test]
fn running_and_pending_jobs_are_not_pruned() {
    let scene = Scene::started();
    let (running, _) = scene.waiting_job();
    let waiting = scene.json(&["trigger", "waiter"])["id"].as_str().unwrap().to_owned();
    let pruned = scene.json(&["prune", "--max-jobs", "1", "--max-age", "1s", "--max-bytes", "1"]);
    assert_eq!(listed(&pruned), Vec::<&str>::new());
    for job in [&running, &waiting] {
        let answer = ask(&scene, "DELETE", &format!("jobs/{job}"), "");
        assert!(answer.contains("409 Conflict") && answer.contains("cancel it first"), "{answer}");
    }
    scene.go();
    wait_until("both to end", || (scene.job(&waiting)["status"] == "completed").then_some(()));
    assert_eq!(scene.job(&running)["status"], "completed");
}

#[test]
fn api_deletes_ended_job() {
    let scene = Scene::started();
    let job = ran(&scene, "worker");
    let delete = || ask(&scene, "DELETE", &format!("jobs/{job}"), "");
    let answer = delete();
    assert!(answer.contains("200 OK") && answer.contains(&job), "{answer}");
    // A view that was being written during the deletion is removed when the daemon reads the next events.
    wait_until("its files to go", || files(&scene, &job).is_empty().then_some(()));
    let again = delete();
    assert!(again.contains("404 Not Found") && again.contains("it was deleted at"), "{again}");
    let never = ask(&scene, "DELETE", "jobs/job-2026-01-01-nosuch", "");
    assert!(never.contains("404 Not Found") && never.contains("there is no job"), "{never}");
    let events = scene.run(&["events", "--json"]).stdout;
    assert!(events.lines().last().unwrap().contains("job:deleted"), "{events}");
}

#[test]
fn prune_needs_valid_config_but_no_daemon() {
    let scene = Scene::new();
    assert_eq!(listed(&scene.json(&["prune", "--max-jobs", "1"])), Vec::<&str>::new());
    assert!(!scene.root.join(".cowhand").exists(), "looking leaves nothing behind");
    scene.start();
    let jobs = [(); 2].map(|()| ran(&scene, "worker"));
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    scene.write("cowhand.yaml", "retention: {max_jobs_per_agent: 1}\nagents: [{nam: worker}]");
    for dry in [&["prune"][..], &["prune", "--dry-run"]] {
        let said = scene.run(dry);
        assert_eq!(said.code, Some(3), "{}", said.stdout);
        assert!(said.stderr.contains("cannot prune while the config has errors"), "{}", said.stderr);
    }
    scene.write("cowhand.yaml", &format!("retention: {{max_jobs_per_agent: 1}}\n{FLEET}"));
    assert_eq!(listed(&scene.json(&["prune", "--dry-run"])), [jobs[0].as_str()]);
    let lock = File::open(scene.root.join(".cowhand/daemon.lock")).unwrap();
    lock.lock().unwrap();
    let said = scene.run(&["prune"]);
    assert_eq!(said.code, Some(5), "a daemon is about to start: {}", said.stderr);
    drop(lock);
    assert_eq!(listed(&scene.json(&["prune"])), [jobs[0].as_str()]);
    assert_eq!(files(&scene, &jobs[0]), Vec::<String>::new());
    has_its_files(&scene, &jobs[1]);
}

#[test]
fn daemon_prunes_by_retention_of_config() {
    let scene = Scene::started();
    let jobs = [(); 3].map(|()| ran(&scene, "worker"));
    let others = [(); 2].map(|()| ran(&scene, "broken"));
    scene.run(&["restart"]);
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 5, "everything is kept by default");
    for job in &jobs {
        has_its_files(&scene, job);
    }
    let keeps_two = FLEET.replacen("    runtime", "    retention: {max_jobs_per_agent: 2}\n    runtime", 1);
    scene.write("cowhand.yaml", &keeps_two);
    wait_until("the oldest to go", || files(&scene, &jobs[0]).is_empty().then_some(()));
    has_its_files(&scene, &jobs[1]);
    // Jobs of removed agents follow the root file.
    let alone = "retention: {max_jobs_per_agent: 1}\nagents: [{name: a, runtime: command, command: [cat]}]";
    scene.write("cowhand.yaml", alone);
    scene.run(&["restart"]);
    wait_until("the others to go", || {
        [&jobs[1], &others[0]].iter().all(|job| files(&scene, job).is_empty()).then_some(())
    });
    let left = scene.json(&["jobs"]);
    let left: Vec<&str> = left.as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(left, [others[1].as_str(), jobs[2].as_str()], "an agent's newest job stays");
}

/// The prune is killed after it has deleted the rows and before it has deleted all files. The next start deletes the
/// rest, and no view comes back.
#[test]
fn next_start_finishes_killed_prune() {
    for place in ["pruned", "removing"] {
        let scene = Scene::started();
        let jobs = [(); 3].map(|()| ran(&scene, "worker"));
        assert_eq!(scene.run(&["stop"]).code, Some(0));
        let killed =
            scene.command(&["prune", "--max-jobs", "1"]).env("COWHAND_FAULT", place).output().unwrap();
        assert_eq!(killed.status.code(), None, "it dies at {place}");
        assert!(!files(&scene, &jobs[0]).is_empty(), "{place}: half done");
        assert_eq!(scene.run(&["job", &jobs[0]]).code, Some(5), "{place}: but gone");
        scene.start();
        for job in &jobs[..2] {
            assert_eq!(files(&scene, job), Vec::<String>::new(), "{place}");
        }
        has_its_files(&scene, &jobs[2]);
    }
}

/// A file of a deleted job cannot be removed while the daemon runs. The next daemon removes it.
#[test]
fn next_start_removes_file_that_could_not_be_removed() {
    let scene = Scene::started();
    let jobs = [(); 2].map(|()| ran(&scene, "worker"));
    let obstacle = scene.root.join(format!(".cowhand/jobs/{}.diff", jobs[0]));
    fs::create_dir_all(obstacle.join("inner")).unwrap();
    assert_ne!(scene.run(&["job", "delete", &jobs[0]]).code, Some(0));
    let log = || fs::read_to_string(scene.root.join(".cowhand/daemon.log")).unwrap();
    wait_until("the warning", || log().contains("its files are not up to date").then_some(()));
    for _ in 0..2 {
        assert_eq!(scene.run(&["stop"]).code, Some(0));
        assert_eq!(files(&scene, &jobs[0]), [format!("{}.diff", jobs[0])]);
        scene.start();
    }
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    fs::remove_dir_all(&obstacle).unwrap();
    fs::write(&obstacle, "text").unwrap();
    scene.start();
    wait_until("the file to go", || files(&scene, &jobs[0]).is_empty().then_some(()));
    has_its_files(&scene, &jobs[1]);
}

#[test]
fn doctor_warns_about_large_state_folder() {
    let scene = Scene::with("agents: [{name: a, runtime: command, command: [/bin/sh]}]");
    scene.start();
    let disk_use = || {
        let said = scene.run(&["doctor"]);
        assert_eq!(said.code, Some(0), "it works all the same");
        said.stdout.lines().find(|line| line.contains("disk use")).unwrap().to_owned()
    };
    let small = disk_use();
    assert!(small.starts_with("ok"), "{small}");
    // The file is sparse, so it takes no space.
    let file = scene.root.join(".cowhand/jobs/job-2026-01-01-aaaaaa.jsonl");
    File::create(&file).unwrap().set_len(2_000_000_000).unwrap();
    let large = disk_use();
    assert!(large.starts_with("warn  disk use: 2.0 GB in the state folder"), "{large}");
    assert!(large.contains("`retention`") && large.contains("`cowhand prune --dry-run`"), "{large}");
}

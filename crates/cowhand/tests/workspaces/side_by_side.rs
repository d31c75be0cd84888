//! Jobs of one repository that never touch each other's files, and the end of their workspaces.

use std::fs;

use serde_json::json;

use super::{Scene, status_and_error, wait_until};

/// Script in which each job waits for all others, so that all have their workspaces at the same time.
const COMMIT: &str = "echo $COWHAND_JOB_ID > $COWHAND_JOB_ID.txt; touch $SCENE/up.$COWHAND_JOB_ID; \
    while [ $(ls $SCENE | grep -c '^up\\.') -lt 10 ]; do sleep 0.05; done; \
    git add -A && git commit --quiet -m \"$COWHAND_JOB_ID\"";

#[test]
fn ten_jobs_each_commit_only_their_own_file() {
    let scene = Scene::started(COMMIT, &json!({"instances": {"max_concurrent": 10}}));
    let before = scene.git(&["rev-parse", "HEAD"]);
    let jobs: Vec<String> = (0..10).map(|_| scene.trigger()).collect();
    for job in &jobs {
        assert_eq!(status_and_error(&scene.finished(job)), ["completed", "", ""]);
    }
    wait_until("the worktrees to be removed", || (scene.workspaces().is_empty()).then_some(()));
    wait_until("git to forget the worktrees", || (scene.worktrees() == 1).then_some(()));
    assert_eq!(scene.git(&["rev-parse", "HEAD"]), before);
    assert_eq!(scene.git(&["status", "--porcelain"]), "");
    for job in &jobs {
        let branch = format!("cowhand/coder/{job}");
        let commits = scene.git(&["rev-list", "--count", &format!("main..{branch}")]);
        assert_eq!(commits, "1", "{job}");
        let changed = scene.git(&["diff", "--name-status", "main", &branch]);
        assert_eq!(changed, format!("A\t{job}.txt"));
        assert!(scene.diff(job).contains(&format!("+++ b/{job}.txt\n@@ -0,0 +1 @@\n+{job}\n")), "{job}");
    }

    // A branch with commits that are nowhere else stays; after it is merged, nothing is left.
    scene.restart();
    assert_eq!(scene.branches().len(), 10);
    for job in &jobs {
        scene.git(&["merge", "--quiet", "-m", "m", &format!("cowhand/coder/{job}")]);
    }
    scene.restart();
    scene.assert_clean();
    assert_eq!(scene.git(&["ls-files"]).lines().filter(|file| file.starts_with("job-")).count(), 10);
}

#[test]
fn uncommitted_changes_are_in_diff_and_removed_with_workspace() {
    let script = "echo changed > README; git add README; echo again >> README; echo new > 'new file'; rm deep/file; \
        pwd; git rev-parse --abbrev-ref HEAD";
    let scene = Scene::started(script, &json!({}));
    let job = scene.run();
    let id = job["id"].as_str().unwrap();
    assert_eq!(status_and_error(&job), ["completed", "", ""]);
    let diff = scene.diff(id);
    for line in ["-first", "+changed", "+again", "+new", "-deep", "+++ b/new file"] {
        assert!(diff.lines().any(|had| had.trim_end() == line), "{line} in\n{diff}");
    }
    scene.assert_clean();
    let said = fs::read_to_string(scene.root.join(format!(".cowhand/jobs/{id}.jsonl"))).unwrap();
    assert!(said.contains(&format!(".cowhand/workspaces/{id}")), "{said}");
    assert!(said.contains(&format!("cowhand/coder/{id}")), "{said}");

    // The diff is removed with its job.
    scene.command(&["prune", "--max-jobs", "1"]).output().unwrap();
    let file = scene.root.join(format!(".cowhand/jobs/{id}.diff"));
    assert!(file.exists());
    let other = scene.run();
    assert_eq!(status_and_error(&other), ["completed", "", ""]);
    let said = scene.command(&["prune", "--max-jobs", "1"]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(!file.exists());
}

#[test]
fn long_diff_is_cut_with_a_note() {
    let script = "i=0; while [ $i -lt 30000 ]; do echo \"line $i of a file that is far too long to be kept\"; \
        i=$((i+1)); done > long";
    let scene = Scene::started(script, &json!({}));
    let diff = scene.diff(scene.run()["id"].as_str().unwrap());
    assert!(diff.len() < 1_100_000, "{}", diff.len());
    let last = diff.lines().next_back().unwrap();
    assert_eq!(last, "# cowhand: the diff is longer than 1048576 bytes and was cut here");
}

#[test]
fn a_job_without_a_workspace_has_no_diff() {
    let scene = Scene::started("echo hi > made", &json!({"isolation": "shared"}));
    let job = scene.run();
    assert!(scene.repository().join("made").exists());
    let said = scene.command(&["job", job["id"].as_str().unwrap(), "--diff"]).output().unwrap();
    assert_eq!(said.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&said.stderr).contains("it had no workspace of its own"));
    assert!(scene.workspaces().is_empty());
}

#[test]
fn cleanup_policy_decides_which_workspaces_are_kept() {
    for (cleanup, exit, kept) in [
        ("always", 0, false),
        ("always", 1, false),
        ("keep_on_failure", 0, false),
        ("keep_on_failure", 1, true),
        ("never", 0, true),
    ] {
        let script = format!("echo x > made; exit {exit}");
        let scene = Scene::started(&script, &json!({"isolation": {"kind": "worktree", "cleanup": cleanup}}));
        let job = scene.run();
        let made = scene.root.join(format!(".cowhand/workspaces/{}/made", job["id"].as_str().unwrap()));
        if kept {
            scene.restart();
            assert!(made.exists(), "{cleanup} {exit}");
            assert_eq!((scene.worktrees(), scene.branches().len()), (2, 1));
        } else {
            scene.assert_clean();
        }
    }
}

#[test]
fn kept_workspaces_are_limited_in_size() {
    let script = "head -c 300000 /dev/zero > big; exit 1";
    let rules = json!({"isolation": {"kind": "worktree", "max_kept": "700KB"}});
    let scene = Scene::started(script, &rules);
    let jobs: Vec<String> = (0..3).map(|_| scene.run()["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(scene.workspaces().len(), 3);
    scene.restart();
    let there = |job: &str| scene.root.join(format!(".cowhand/workspaces/{job}")).exists();
    wait_until("the oldest to go", || (!there(&jobs[0]) && scene.branches().len() == 2).then_some(()));
    assert!(there(&jobs[1]) && there(&jobs[2]));
    assert_eq!(scene.worktrees(), 3);
    let said = scene.command(&["prune", "--max-jobs", "1"]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    wait_until("the workspace of a pruned job to go", || (!there(&jobs[1])).then_some(()));
    assert!(there(&jobs[2]));
}

#[test]
fn workspace_is_removed_with_its_job() {
    let scene = Scene::started("head -c 300000 /dev/zero > big; exit 3", &json!({}));
    let jobs: Vec<String> = (0..4).map(|_| scene.run()["id"].as_str().unwrap().to_owned()).collect();
    let run = |arguments: &[&str]| {
        let said = scene.command(arguments).output().unwrap();
        assert!(said.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap()
    };
    wait_until("the workspaces to be kept", || (scene.branches().len() == 4).then_some(()));
    run(&["job", "delete", &jobs[0]]);
    let left = |count| {
        wait_until("a workspace to go", || {
            let found = (scene.workspaces().len(), scene.worktrees(), scene.branches().len());
            (found == (count, count + 1, count)).then_some(())
        });
    };
    left(3);
    let pruned = scene.json(&["prune", "--max-jobs", "2"]);
    assert!(pruned["bytes"].as_u64().unwrap() > 300_000, "{pruned}");
    left(2);
    // Without a daemon, the verb itself removes the workspace.
    run(&["stop"]);
    run(&["job", "delete", &jobs[2]]);
    assert_eq!((scene.workspaces().len(), scene.worktrees(), scene.branches().len()), (1, 2, 1));
    scene.start();
    run(&["stop"]);
    let last = scene.root.join(format!(".cowhand/workspaces/{}/big", jobs[3]));
    assert!(last.exists());
    scene.write_fleet("true", &json!({}));
    scene.start();
    scene.run();
    run(&["stop"]);
    run(&["prune", "--max-jobs", "1"]);
    assert_eq!((scene.workspaces().len(), scene.worktrees(), scene.branches().len()), (0, 1, 0));
}

#[test]
fn commits_of_clone_are_fetched_into_repository() {
    let script = "git add -A; echo own > own; git add own; git commit --quiet -m own; \
        git tag only-in-clone; git config user.mark clone; git rev-parse --git-dir";
    let scene = Scene::started(script, &json!({"isolation": "clone"}));
    let job = scene.run();
    let id = job["id"].as_str().unwrap();
    assert_eq!(status_and_error(&job), ["completed", "", ""]);
    wait_until("the clone to go", || scene.workspaces().is_empty().then_some(()));
    let branch = format!("cowhand/coder/{id}");
    wait_until("the branch to come", || (scene.branches() == [branch.clone()]).then_some(()));
    assert_eq!(scene.git(&["diff", "--name-status", "main", &branch]), "A\town");
    assert!(!fs::read_to_string(scene.repository().join(".git/config")).unwrap().contains("mark"));
    scene.git(&["merge", "--quiet", &branch]);
    scene.restart();
    scene.assert_clean();
}

#[test]
fn job_starts_at_base_and_in_same_subdirectory() {
    let scene = Scene::new("pwd > where; git log --format=%s -1 > last; cat where last", &json!({}));
    scene.git(&["checkout", "--quiet", "-b", "other"]);
    fs::write(scene.repository().join("README"), "second\n").unwrap();
    scene.git(&["commit", "--quiet", "-am", "second"]);
    let settings = json!({
        "working_directory": scene.repository().join("deep"),
        "isolation": {"kind": "worktree", "base": "main", "branch": "bots/{{job}}", "cleanup": "never"},
    });
    scene.write_fleet("pwd > where; git log --format=%s -1 > last", &settings);
    scene.start();
    let job = scene.run();
    let deep = scene.root.join(format!(".cowhand/workspaces/{}/deep", job["id"].as_str().unwrap()));
    assert_eq!(fs::read_to_string(deep.join("where")).unwrap().trim(), deep.to_str().unwrap());
    assert_eq!(fs::read_to_string(deep.join("last")).unwrap().trim(), "first");
    assert!(scene.branches().contains(&format!("bots/{}", job["id"].as_str().unwrap())));
}

#[test]
fn schedule_overrides_isolation_of_agent() {
    let settings = json!({
        "isolation": {"kind": "worktree", "cleanup": "never"},
        "schedules": {
            "as-agent": {"type": "manual", "prompt": "x"},
            "beside": {"type": "manual", "prompt": "x", "isolation": "shared"},
            "leaves-nothing": {"type": "manual", "prompt": "x", "isolation": {"cleanup": "always", "setup": ["touch", "set-up"]}},
            "copy": {"type": "manual", "prompt": "x", "isolation": {"kind": "clone"}},
        },
    });
    let scene = Scene::started("pwd; ls; git rev-parse --git-common-dir", &settings);
    let run = |schedule: Option<&str>| {
        let words: Vec<&str> = ["trigger", "coder"].into_iter().chain(schedule).collect();
        let id = scene.json(&words)["id"].as_str().unwrap().to_owned();
        assert_eq!(status_and_error(&scene.finished(&id)), ["completed", "", ""], "{schedule:?}");
        let said = fs::read_to_string(scene.root.join(format!(".cowhand/jobs/{id}.jsonl"))).unwrap();
        (id, said)
    };
    let own = |id: &str, said: &str| said.contains(&format!(".cowhand/workspaces/{id}"));
    let (id, said) = run(Some("beside"));
    assert!(!own(&id, &said) && scene.workspaces().is_empty(), "{said}");
    let mut kept = 0;
    for schedule in [None, Some("as-agent"), Some("copy")] {
        let (id, said) = run(schedule);
        assert!(own(&id, &said) && !said.contains("set-up"), "{schedule:?} {said}");
        assert_eq!(said.contains("my repository"), schedule != Some("copy"), "a clone has its own {said}");
        kept += 1;
        assert_eq!(scene.workspaces().len(), kept, "{schedule:?}");
    }
    let (id, said) = run(Some("leaves-nothing"));
    assert!(own(&id, &said) && said.contains("set-up"), "{said}");
    wait_until("the one workspace to be removed", || (scene.workspaces().len() == kept).then_some(()));
    // The sweep at a start applies the same rules.
    scene.restart();
    assert_eq!(scene.workspaces().len(), kept);
}

//! Missing repositories, failing `setup` commands, and agents that damage their workspace.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;

use rustix::process::kill_process;
use serde_json::json;

use super::{Scene, git, left_over, status_and_error, wait_until};

#[test]
fn job_fails_with_reason_if_workspace_cannot_be_created() {
    let nowhere = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    assert!(git(empty.path(), &["init", "--quiet"]).status().unwrap().success());
    let worktree = |rules: serde_json::Value| {
        let mut all = json!({"kind": "worktree"});
        for (key, value) in rules.as_object().unwrap() {
            all[key] = value.clone();
        }
        json!({ "isolation": all })
    };
    for (settings, says) in [
        (json!({"working_directory": nowhere.path()}), "git rev-parse: fatal: not a git repository"),
        (json!({"working_directory": empty.path()}), "it has no commits yet"),
        (json!({"working_directory": empty.path().join("gone")}), "cannot run git in"),
        (worktree(json!({"base": "nowhere"})), "it has no branch or commit \"nowhere\""),
        (worktree(json!({"branch": "main/{{job}}"})), "'refs/heads/main' exists; cannot create"),
        (
            worktree(json!({"setup": ["sh", "-c", "echo no such luck >&2; exit 3"]})),
            "exit status: 3: no such luck",
        ),
        (
            worktree(json!({"setup": ["sh", "-c", "echo the lock file is old; exit 3"]})),
            "exit status: 3: the lock file is old",
        ),
        (worktree(json!({"setup": ["no-such-program"]})), "`setup` (no-such-program) cannot be started"),
        (
            worktree(json!({"setup": ["sh", "-c", "setsid sleep 300 & sleep 300"], "setup_timeout": "1s"})),
            "`setup` (sh) took longer than 1s",
        ),
    ] {
        let scene = Scene::started("echo ran", &settings);
        let job = scene.run();
        let [status, kind, message] = status_and_error(&job);
        assert_eq!([status, kind], ["failed", "start_failed"], "{settings}");
        assert!(message.contains(says), "{message}");
        let daemon = scene.daemon().unwrap();
        wait_until("what set-up left to be gone", || {
            left_over(scene.folder.path()).iter().all(|pid| *pid == daemon).then_some(())
        });
    }
}

/// An attempt whose `setup` fails has no output of its own, and is separated from the previous attempt.
#[test]
fn logs_separate_attempts_whose_setup_failed() {
    let failing = json!({
        "isolation": {"kind": "worktree", "setup": ["sh", "-c", "echo no such luck >&2; exit 3"]},
        "retry": {"max_attempts": 2, "backoff": "1s"},
    });
    let scene = Scene::started("echo ran", &failing);
    let job = scene.run();
    let logs = scene.command(&["logs", job["id"].as_str().unwrap()]).output().unwrap();
    let said = String::from_utf8(logs.stdout).unwrap();
    assert_eq!(said.matches("── attempt 2 (attempt 1 failed: ").count(), 1, "{said}");
    assert!(said.contains("no such luck"), "{said}");
}

#[test]
fn setup_runs_before_agent_and_can_be_cancelled() {
    let setup = "echo ready > setup-was-here; echo $COWHAND_JOB_ID >> setup-was-here";
    let isolation = json!({"isolation": {"kind": "worktree", "setup": ["sh", "-c", setup]}});
    let scene = Scene::started("cat setup-was-here", &isolation);
    let job = scene.run();
    assert_eq!(status_and_error(&job), ["completed", "", ""]);
    assert!(scene.diff(job["id"].as_str().unwrap()).contains("+ready"));
    scene.assert_clean();

    let slow =
        json!({"isolation": {"kind": "worktree", "setup": ["sh", "-c", "touch $SCENE/up; sleep 300"]}});
    scene.write_fleet("echo ran", &slow);
    scene.restart();
    let id = scene.trigger();
    wait_until("the set-up to begin", || scene.root.join("up").exists().then_some(()));
    assert!(scene.command(&["cancel", &id]).output().unwrap().status.success());
    let job = scene.finished(&id);
    assert_eq!(
        (job["status"].as_str(), job["termination"].as_str()),
        (Some("cancelled"), Some("not_started"))
    );
    let daemon = scene.daemon().unwrap();
    wait_until("the set-up to be gone", || {
        left_over(scene.folder.path()).iter().all(|pid| *pid == daemon).then_some(())
    });
}

#[test]
fn cowhand_does_not_run_hooks_of_repository() {
    let scene =
        Scene::new("echo x > made; git add made; git -c core.hooksPath=/dev/null commit -qm x", &json!({}));
    for hook in ["post-checkout", "reference-transaction", "pre-commit", "post-index-change"] {
        let path = scene.repository().join(".git/hooks").join(hook);
        fs::write(&path, format!("#!/bin/sh\necho {hook} >> '{}/hooked'\n", scene.root.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let watcher = scene.root.join("fsmonitor");
    fs::write(&watcher, format!("#!/bin/sh\necho monitor >> '{}/hooked'\n", scene.root.display())).unwrap();
    fs::set_permissions(&watcher, fs::Permissions::from_mode(0o755)).unwrap();
    // The agent's own git would run the hooks, so this script runs no git.
    scene.write_fleet("echo x > made", &json!({}));
    git(&scene.repository(), &["config", "core.fsmonitor", watcher.to_str().unwrap()]).status().unwrap();
    scene.start();
    let job = scene.run();
    assert_eq!(status_and_error(&job), ["completed", "", ""]);
    assert!(scene.diff(job["id"].as_str().unwrap()).contains("+x"));
    wait_until("the workspace to go", || scene.workspaces().is_empty().then_some(()));
    let hooked = fs::read_to_string(scene.root.join("hooked")).unwrap_or_default();
    assert_eq!(hooked, "");
}

#[test]
fn submodules_do_not_prevent_removal_of_workspace() {
    let script = "git -c protocol.file.allow=always submodule update --init --quiet && cat sub/README";
    let scene = Scene::new(script, &json!({}));
    let other = scene.root.join("other");
    assert!(git(&scene.root, &["clone", "--quiet", "my repository", "other"]).status().unwrap().success());
    scene.git(&["submodule", "--quiet", "add", other.to_str().unwrap(), "sub"]);
    scene.git(&["commit", "--quiet", "-m", "sub"]);
    scene.start();
    assert_eq!(status_and_error(&scene.run()), ["completed", "", ""]);
    scene.assert_clean();
}

#[test]
fn damaged_or_locked_workspace_is_removed() {
    for script in [
        "rm -rf \"$PWD\"",
        "rm .git; ln -s / root",
        "git worktree lock . --reason mine",
        "mkdir a; echo x > a/b; chmod 500 a; chmod 500 .",
        "d=$PWD; cd /; rm -rf \"$d\"; ln -s /etc \"$d\"",
        "echo garbage > .git; mkdir x",
        "git checkout --quiet --detach; git branch --quiet -D cowhand/coder/$COWHAND_JOB_ID",
    ] {
        let scene = Scene::started(script, &json!({}));
        let job = scene.run();
        assert_eq!(status_and_error(&job), ["completed", "", ""], "{script}");
        scene.assert_clean();
    }
}

#[test]
fn commits_survive_removal_of_workspace_by_agent() {
    let script = "echo x > made; git add made; git commit -qm made; rm -rf \"$PWD\"";
    let scene = Scene::started(script, &json!({}));
    let job = scene.run();
    let id = job["id"].as_str().unwrap();
    assert!(scene.diff(id).contains("+++ b/made"));
    wait_until("git to forget the worktree", || (scene.worktrees() == 1).then_some(()));
    assert_eq!(scene.branches(), [format!("cowhand/coder/{id}")]);
}

#[test]
fn retried_attempt_uses_same_workspace() {
    let script = "if [ -e once ]; then echo twice; else echo x > once; exit 1; fi";
    let scene = Scene::started(script, &json!({"retry": {"max_attempts": 2, "backoff": "1s"}}));
    let job = scene.run();
    assert_eq!((job["status"].as_str(), job["attempt"].as_i64()), (Some("completed"), Some(2)));
    assert!(scene.diff(job["id"].as_str().unwrap()).contains("+++ b/once"));
    scene.assert_clean();
    // The daemon still runs.
    assert!(scene.daemon().is_some_and(|daemon| kill_process(daemon, rustix::process::Signal::CONT).is_ok()));
}

/// `doctor` reports git only if an agent needs it.
#[test]
fn doctor_reports_git_if_an_agent_needs_it() {
    let findings = |scene: &Scene, path: Option<&str>| {
        let mut command = scene.command(&["doctor", "--json"]);
        let said = command.envs(path.map(|path| ("PATH", path))).output().unwrap();
        let all: Vec<serde_json::Value> = serde_json::from_slice(&said.stdout).unwrap();
        let git = all.into_iter().find(|finding| finding["what"] == "git");
        (said.status.code(), git)
    };
    let scene = Scene::new("true", &json!({}));
    let (code, git) = findings(&scene, None);
    let git = git.unwrap();
    assert_eq!((code, &git["ok"], &git["warning"]), (Some(0), &json!(true), &json!(false)), "{git}");
    // This folder contains the agent's program, but no git.
    let empty = scene.root.join("bin");
    std::fs::create_dir(&empty).unwrap();
    std::os::unix::fs::symlink("/bin/sh", empty.join("sh")).unwrap();
    let (code, git) = findings(&scene, empty.to_str());
    let git = git.unwrap();
    let said = "it was not found on PATH, and `isolation` of coder needs it; install it";
    assert_eq!((&git["ok"], &git["detail"]), (&json!(false), &json!(said)), "{code:?}");
    assert_ne!(code, Some(0));
    let old = "#!/bin/sh\necho git version 2.25.1\n";
    std::fs::write(empty.join("git"), old).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(empty.join("git"), mode).unwrap();
    let (code, git) = findings(&scene, empty.to_str());
    let git = git.unwrap();
    assert_eq!((code, &git["ok"], &git["warning"]), (Some(0), &json!(true), &json!(true)), "{git}");
    assert!(git["detail"].as_str().unwrap().starts_with("2.25.1 is too old"), "{git}");
    // `doctor` also reports git if only a schedule needs it, but not for shared directories.
    let schedule = json!({"type": "manual", "prompt": "x", "isolation": "clone"});
    for (settings, needed) in [
        (json!({"isolation": "shared", "schedules": {"s": schedule}}), true),
        (json!({"isolation": "shared"}), false),
    ] {
        assert_eq!(findings(&Scene::new("true", &settings), None).1.is_some(), needed, "{settings}");
    }
}

#[test]
fn doctor_names_schedule_whose_workspace_cannot_be_made() {
    let schedule = |base: &str| json!({"type": "manual", "prompt": "x", "isolation": {"kind": "worktree", "base": base}});
    let no_base = "it has no branch or commit \"nowhere\"";
    for (settings, expected) in [
        (json!({"schedules": {"a": schedule("HEAD"), "b": schedule("nowhere")}}), "jobs of its schedule `b`"),
        (
            json!({"schedules": {"a": schedule("nowhere"), "b": schedule("nowhere")}}),
            "jobs of its schedules `a` and `b`",
        ),
        (json!({"isolation": {"kind": "worktree", "base": "nowhere"}}), "its jobs"),
    ] {
        let scene = Scene::new("true", &settings);
        let said = scene.command(&["doctor", "--json"]).output().unwrap();
        let all: Vec<serde_json::Value> = serde_json::from_slice(&said.stdout).unwrap();
        let found = all.iter().find(|finding| finding["what"] == "isolation of coder").unwrap();
        let detail = found["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("{expected} cannot start: ")), "{detail}");
        assert!(detail.contains(no_base), "{detail}");
    }
}

#[test]
fn diff_shows_changes_that_agent_tries_to_hide() {
    let hidden = [
        ("rm .git", true),
        ("echo 'gitdir: /nonexistent' > .git", true),
        ("rm .git; git init -q; git add -A; git commit -qm mine", true),
        ("git update-index --assume-unchanged README", false),
        ("git update-index --skip-worktree README", false),
    ];
    for kind in ["worktree", "clone"] {
        for (hide, is_told) in hidden {
            let hide = if kind == "clone" { hide.replace("rm .git", "rm -rf .git") } else { hide.to_owned() };
            let hide = if kind == "clone" { hide.replace("echo", "rm -rf .git; echo") } else { hide };
            let script = format!("echo mine >> README; echo new > made; {hide}");
            let scene = Scene::started(&script, &json!({"isolation": kind}));
            let job = scene.run();
            assert_eq!(status_and_error(&job), ["completed", "", ""], "{hide}");
            let diff = scene.diff(job["id"].as_str().unwrap());
            assert!(diff.contains("\n+mine\n") && diff.contains("\n+new\n"), "{kind} {hide}: {diff}");
            let told = diff.starts_with("# cowhand: the agent changed the `.git` of its workspace");
            // A clone has its own `.git`.
            let is_told = is_told && !(kind == "clone" && hide.contains("git init"));
            assert_eq!(told, is_told, "{kind} {hide}: {diff}");
        }
    }
}

/// With a sparse checkout, and with a filter of the repository, the index of the agent is used.
#[test]
fn diff_shows_changes_that_agent_hides_in_its_index() {
    let old = "touch -d 2020-01-01 README";
    let same_times = format!(
        "{old}; git update-index --refresh; git config core.trustctime false; git config core.checkStat minimal; \
         echo mine\\! > README; {old}"
    );
    let flags = "echo mine >> README; rm deep/file; git update-index --assume-unchanged README; \
                 git update-index --skip-worktree deep/file";
    // The names of these files are not UTF-8.
    let bytes = "changed=$(printf 'deep/caf\\351'); removed=$(printf 'deep/th\\351'); echo mine >> $changed; \
                 rm $removed; git update-index --assume-unchanged $changed; \
                 git update-index --skip-worktree $changed $removed";
    let conflict = "git checkout -qb other; echo a > README; git commit -qam a; git checkout -q -; \
                    echo b > README; git commit -qam b; git merge other || true";
    for (is_sparse, script, expected) in [
        (true, flags, ["\n+mine\n", "\n-deep\n"].as_slice()),
        (true, "rm deep/file; git update-index --skip-worktree deep/file", &["\n-deep\n"]),
        (true, "echo mine > outside/file", &["\n+mine\n"]),
        (true, &same_times, &["\n+mine!\n"]),
        (true, bytes, &["\n+mine\n", "\n-rude\n"]),
        (false, flags, &["\n+mine\n", "\n-deep\n"]),
        (false, bytes, &["\n+mine\n", "\n-rude\n"]),
        (true, conflict, &["\n+<<<<<<< HEAD\n"]),
    ] {
        let scene = Scene::new(&format!("mkdir -p outside; {script}"), &json!({}));
        fs::create_dir(scene.repository().join("outside")).unwrap();
        for name in ["file", "other"] {
            fs::write(scene.repository().join("outside").join(name), "outside\n").unwrap();
        }
        for (name, text) in [(b"deep/caf\xe9".as_slice(), "polite\n"), (b"deep/th\xe9", "rude\n")] {
            fs::write(scene.repository().join(OsStr::from_bytes(name)), text).unwrap();
        }
        scene.git(&["add", "-A"]);
        scene.git(&["commit", "--quiet", "-m", "outside"]);
        if is_sparse {
            scene.git(&["sparse-checkout", "set", "deep"]);
        } else {
            scene.git(&["config", "filter.none.clean", "cat"]);
        }
        scene.start();
        let diff = scene.diff(scene.run()["id"].as_str().unwrap());
        for text in expected {
            assert!(diff.contains(text), "{script}: {diff}");
        }
        assert!(!diff.contains("outside/other"), "{script}: {diff}");
    }
}

#[test]
fn diff_contains_new_files_beside_one_that_was_removed_again() {
    let script = "echo x > gone; git add gone; rm gone; echo new > made";
    let scene = Scene::started(script, &json!({}));
    let job = scene.run();
    let diff = scene.diff(job["id"].as_str().unwrap());
    assert!(diff.contains("\n+new\n") && !diff.contains("gone"), "{diff}");
    scene.assert_clean();
}

#[test]
fn diff_contains_forced_file_but_not_ignored_file() {
    let script = "echo '*.log' > .gitignore; echo a > a.log; echo b > b.log; git add -f a.log";
    let scene = Scene::started(script, &json!({}));
    let job = scene.run();
    let diff = scene.diff(job["id"].as_str().unwrap());
    assert!(diff.contains("+++ b/a.log") && !diff.contains("+++ b/b.log"), "{diff}");
    let told = "# cowhand: new files that are not in the diff, because of ignore rules that the base does not have: 1 \
                (\"b.log\")\n";
    assert!(diff.starts_with(told), "{diff}");
}

#[test]
fn diff_reports_files_hidden_by_ignore_rules_or_attributes() {
    let exclude = "echo '*' >> \"$(git rev-parse --git-common-dir)/info/exclude\"";
    let attributes = "echo '* -diff' > \"$(git rev-parse --git-common-dir)/info/attributes\"";
    let own =
        "printf '* -diff\\n' > .gitattributes; mkdir made; echo '*' > made/.gitignore; echo x > made/evil";
    let names = |names: &str| format!("ignore rules that the base does not have: {names}");
    for kind in ["worktree", "clone"] {
        let script =
            format!("echo mine >> README; echo new > made; mkdir -p deep/out; echo > deep/out/x; {exclude}");
        let scene = Scene::new(&script, &json!({"isolation": kind}));
        // Files that the base ignores are not in the diff.
        fs::write(scene.repository().join("deep/.gitignore"), "out/\n").unwrap();
        scene.git(&["add", "-A"]);
        scene.git(&["commit", "--quiet", "-m", "rules"]);
        scene.start();
        let diff = scene.diff(scene.run()["id"].as_str().unwrap());
        // A clone writes only its own rules, which are not read.
        let (told, seen) = (diff.contains(&names("1 (\"made\")\n")), diff.contains("\n+new\n"));
        assert!(diff.contains("\n+mine\n") && !diff.contains("deep/out"), "{kind}: {diff}");
        assert_eq!((told, seen), (kind == "worktree", kind == "clone"), "{kind}: {diff}");
    }
    let scene = Scene::started(&format!("echo mine >> README; {attributes}"), &json!({}));
    let diff = scene.diff(scene.run()["id"].as_str().unwrap());
    assert!(diff.contains("\n+mine\n") && diff.contains("all files are shown as text here"), "{diff}");
    let scene = Scene::started(&format!("echo mine >> README; {own}"), &json!({}));
    let diff = scene.diff(scene.run()["id"].as_str().unwrap());
    assert!(diff.contains("\n+mine\n"), "{diff}");
    assert!(diff.contains(&names("2 (\"made/.gitignore\", \"made/evil\")\n")), "{diff}");
}

#[test]
fn diff_reports_repository_inside_workspace() {
    let script = "git init -q lib; mkdir lib/a; echo evil > lib/a/b; echo evil > lib/c; \
                  git -C lib add .; git -C lib commit -qm x; git init -q empty; echo x > empty/x";
    for kind in ["worktree", "clone"] {
        let scene = Scene::started(script, &json!({"isolation": kind}));
        let diff = scene.diff(scene.run()["id"].as_str().unwrap());
        for (name, files) in [("lib/", 2), ("empty/", 1)] {
            let told = format!(
                "# cowhand: {name:?} is a nested repository, which is not in the diff; files in it: {files}\n"
            );
            assert!(diff.contains(&told), "{kind}: {diff}");
        }
    }
}

#[test]
fn diff_reports_changed_submodule() {
    let checkout = "git -c protocol.file.allow=always submodule update --init --quiet";
    for (script, told) in
        [(format!("{checkout}; echo mine >> sub/README"), true), ("echo mine >> README".to_owned(), false)]
    {
        let scene = Scene::new(&script, &json!({}));
        let other = scene.root.join("other");
        assert!(
            git(&scene.root, &["clone", "--quiet", "my repository", "other"]).status().unwrap().success()
        );
        scene.git(&["submodule", "--quiet", "add", other.to_str().unwrap(), "sub"]);
        scene.git(&["commit", "--quiet", "-m", "sub"]);
        scene.start();
        let diff = scene.diff(scene.run()["id"].as_str().unwrap());
        let words = "# cowhand: files in the submodule \"sub\" were written while the job ran; they are not compared\n";
        assert_eq!(diff.contains(words), told, "{diff}");
        assert_eq!(diff.contains("sub"), told, "{diff}");
    }
}

#[test]
fn broken_ref_does_not_prevent_removal_of_workspace() {
    let script =
        "echo 1111111111111111111111111111111111111111 > \"$(git rev-parse --git-common-dir)/refs/heads/zz\"";
    let scene = Scene::started(script, &json!({}));
    for _ in 0..2 {
        assert_eq!(status_and_error(&scene.run()), ["completed", "", ""]);
    }
    wait_until("everything to be removed", || scene.workspaces().is_empty().then_some(()));
    fs::remove_file(scene.repository().join(".git/refs/heads/zz")).unwrap();
    scene.assert_clean();
}

#[test]
fn diff_reports_changed_alternates_file() {
    let script = "echo /elsewhere/objects > \"$(git rev-parse --git-common-dir)/objects/info/alternates\"";
    let scene = Scene::started(script, &json!({}));
    let job = scene.run();
    let diff = scene.diff(job["id"].as_str().unwrap());
    assert!(diff.contains("objects/info/alternates was written while the job ran"), "{diff}");
    scene.write_fleet("echo x > made", &json!({}));
    scene.restart();
    let job = scene.run();
    let diff = scene.diff(job["id"].as_str().unwrap());
    assert!(diff.contains("+x") && !diff.contains("alternates"), "it was there before: {diff}");
}

//! Workspaces whose diff cannot be made or kept, or whose commits cannot be stored, when their job ends.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use cowhand_testing::postgres::Postgres;
use rustix::process::{Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use super::{Scene, status_and_error, wait_until};

/// Script that leaves a commit and an uncommitted file, and ends on request.
const WORK: &str = "echo changed >> README; git add -A; git commit -qm work; echo loose > loose; touch $SCENE/ready; \
    while [ ! -e $SCENE/go ]; do sleep 0.05; done";

impl Scene {
    /// Starts a job and waits until its agent has done its work.
    fn working(&self) -> String {
        let id = self.trigger();
        wait_until("the agent to work", || self.root.join("ready").exists().then_some(()));
        id
    }

    fn let_agent_end(&self) {
        fs::write(self.root.join("go"), "").unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.root.join(".cowhand/daemon.log")).unwrap()
    }

    /// Waits until the job has completed and its workspace is kept; returns the reason.
    fn kept_because(&self, id: &str) -> String {
        assert_eq!(status_and_error(&self.finished(id)), ["completed", "", ""]);
        let reason = wait_until("the reason why the workspace is kept", || {
            self.job(id)["workspace"]["unfinished"].as_str().map(str::to_owned)
        });
        assert!(self.root.join(".cowhand/workspaces").join(id).join("loose").exists(), "{reason}");
        let shown = self.command(&["job", id]).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown.contains("(its job has ended) it is kept, and the daemon tries again to finish it: "),
            "{shown}"
        );
        assert!(shown.contains("to end that, copy what you need from the folder and delete it"), "{shown}");
        assert!(self.log().contains("its workspace is kept, and looked at again later: "), "{}", self.log());
        let status = self.json(&["status"]);
        let expected = json!([{"job": id, "agent": "coder", "reason": reason}]);
        assert_eq!(status["unfinished_workspaces"], expected, "{status}");
        let shown = self.command(&["status"]).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        let line = format!(
            "unfinished: the workspace of {id} is kept, and the daemon tries again to finish it; to end"
        );
        assert!(shown.contains(&line), "{shown}");
        reason
    }

    /// Returns what `job --diff` prints, on stdout or stderr.
    fn said_of_diff(&self, id: &str) -> String {
        let said = self.command(&["job", id, "--diff"]).output().unwrap();
        String::from_utf8([said.stdout, said.stderr].concat()).unwrap()
    }

    /// Waits until the workspace is removed; then the diff is kept and the commit is stored.
    fn assert_finished(&self, id: &str) {
        wait_until("the workspace to be removed", || self.workspaces().is_empty().then_some(()));
        wait_until("the branch to be all that is left", || {
            (self.job(id)["workspace"]["state"] == "branch").then_some(())
        });
        assert_eq!(self.branches(), [format!("cowhand/coder/{id}")]);
        assert_eq!(self.git(&["log", "-1", "--format=%s", &format!("cowhand/coder/{id}")]), "work");
        assert_eq!(self.json(&["status"])["unfinished_workspaces"], json!([]));
        let diff = self.diff(id);
        assert!(diff.contains("\n+changed\n") && diff.contains("\n+loose\n"), "{diff}");
    }
}

#[test]
fn workspace_is_kept_while_its_repository_is_away() {
    for (kind, is_killed) in [("clone", false), ("clone", true), ("worktree", false)] {
        let scene = Scene::started(WORK, &json!({"isolation": kind}));
        let id = scene.working();
        let away = scene.root.join("away");
        if is_killed {
            let daemon = scene.daemon().unwrap();
            kill_process(daemon, Signal::KILL).unwrap();
            wait_until("the daemon to be dead", || test_kill_process(daemon).is_err().then_some(()));
        }
        fs::rename(scene.repository(), &away).unwrap();
        scene.let_agent_end();
        if is_killed {
            scene.start();
        }
        let reason = scene.kept_because(&id);
        assert!(reason.starts_with("no diff could be made: "), "{kind} {reason}");
        let diff = scene.said_of_diff(&id);
        assert!(diff.contains("the workspace is kept until one can be made"), "{kind} {diff}");
        fs::rename(&away, scene.repository()).unwrap();
        scene.assert_finished(&id);
    }
}

/// A person follows the advice of `status`: without its repository, a workspace ends when its folder is deleted.
#[test]
fn workspace_without_repository_ends_when_its_folder_is_deleted() {
    for kind in ["clone", "worktree"] {
        let scene = Scene::started(WORK, &json!({"isolation": kind}));
        let id = scene.working();
        fs::remove_dir_all(scene.repository()).unwrap();
        scene.let_agent_end();
        scene.kept_because(&id);
        fs::remove_dir_all(scene.root.join(".cowhand/workspaces").join(&id)).unwrap();
        wait_until("the workspace to leave the list", || {
            (scene.json(&["status"])["unfinished_workspaces"] == json!([])).then_some(())
        });
    }
}

/// The repository is away while the folder of a workspace is removed, and comes back later.
#[test]
fn branch_and_record_are_removed_after_the_repository_is_back() {
    let scene =
        Scene::started("touch $SCENE/ready; while [ ! -e $SCENE/go ]; do sleep 0.05; done", &json!({}));
    let id = scene.working();
    let away = scene.root.join("away");
    fs::rename(scene.repository(), &away).unwrap();
    fs::remove_dir_all(scene.root.join(".cowhand/workspaces").join(&id)).unwrap();
    scene.let_agent_end();
    assert_eq!(scene.finished(&id)["status"], "completed");
    wait_until("the workspace to be removed", || {
        (scene.job(&id)["workspace"]["state"] == "branch").then_some(())
    });
    fs::rename(&away, scene.repository()).unwrap();
    assert_eq!((scene.worktrees(), scene.branches().len()), (2, 1));
    scene.restart();
    scene.assert_clean();
    wait_until("the daemon to forget it", || scene.job(&id)["workspace"].is_null().then_some(()));
}

#[test]
fn commits_of_detached_head_stay_when_worktree_is_removed() {
    let commit = "git checkout --quiet --detach; echo x > made; git add made; git commit -qm detached";
    let own = "echo y > own; git add own; git commit -qm own; git checkout --quiet --detach HEAD~1";
    for (script, suffix) in [(commit.to_owned(), ""), (format!("{own}; {commit}"), "-detached")] {
        let scene = Scene::started(&script, &json!({}));
        let id = scene.trigger();
        assert_eq!(status_and_error(&scene.finished(&id)), ["completed", "", ""], "{suffix}");
        wait_until("the workspace to be removed", || scene.workspaces().is_empty().then_some(()));
        let branch = format!("cowhand/coder/{id}{suffix}");
        wait_until("the branch", || scene.branches().contains(&branch).then_some(()));
        assert_eq!(scene.git(&["log", "-1", "--format=%s", &branch]), "detached", "{suffix}");
    }
}

/// The daemon ends before it has made the diff of a workspace that `cleanup` keeps.
#[test]
fn missing_diff_of_kept_workspace_is_made_after_restart() {
    let scene = Scene::started(&format!("{WORK}; exit 1"), &json!({}));
    let id = scene.working();
    let away = scene.root.join("away");
    fs::rename(scene.repository(), &away).unwrap();
    scene.let_agent_end();
    scene.finished(&id);
    let is_unfinished = || scene.job(&id)["workspace"]["unfinished"].is_string().then_some(());
    wait_until("the reason why there is no diff", is_unfinished);
    assert_eq!(scene.job(&id)["workspace"]["state"], "kept");
    scene.restart();
    wait_until("the reason after the restart", is_unfinished);
    assert!(scene.command(&["stop"]).output().unwrap().status.success());
    fs::rename(&away, scene.repository()).unwrap();
    scene.start();
    wait_until("the diff", || scene.said_of_diff(&id).contains("\n+loose\n").then_some(()));
    let workspace = &scene.job(&id)["workspace"];
    assert_eq!((&workspace["state"], &workspace["unfinished"]), (&json!("kept"), &Value::Null));
}

/// The index of the repository decides which files are outside its sparse checkout. If git cannot read it, no diff is
/// made that could lack a removed file.
#[test]
fn diff_waits_for_index_of_repository() {
    let hide = "rm deep/file; git update-index --skip-worktree deep/file; i=\"$SCENE/my repository/.git/index\"; \
                mv \"$i\" $SCENE/index; echo garbage > \"$i\"";
    let scene = Scene::new(&format!("{hide}; echo loose > loose"), &json!({}));
    scene.git(&["sparse-checkout", "set", "deep"]);
    scene.start();
    let id = scene.trigger();
    let reason = scene.kept_because(&id);
    assert!(reason.starts_with("no diff could be made: git ls-files: "), "{reason}");
    fs::rename(scene.root.join("index"), scene.repository().join(".git/index")).unwrap();
    wait_until("the diff", || scene.said_of_diff(&id).contains("\n-deep\n").then_some(()));
    scene.assert_clean();
}

/// The repository is removed after the diff is kept.
#[test]
fn clone_with_commits_outlives_a_missing_repository() {
    let script = format!("{WORK}; exit 1");
    let scene = Scene::started(&script, &json!({"isolation": "clone"}));
    let id = scene.working();
    scene.let_agent_end();
    scene.finished(&id);
    wait_until("it to be kept", || (scene.job(&id)["workspace"]["state"] == "kept").then_some(()));
    let away = scene.root.join("away");
    fs::rename(scene.repository(), &away).unwrap();
    assert!(scene.command(&["job", "delete", &id]).output().unwrap().status.success());
    wait_until("the reason in the log", || {
        let log = scene.log();
        log.contains("its commits cannot be stored in ").then_some(())
    });
    assert_eq!(scene.workspaces().len(), 1);
    fs::rename(&away, scene.repository()).unwrap();
    wait_until("the workspace to be removed", || scene.workspaces().is_empty().then_some(()));
    assert_eq!(scene.branches(), [format!("cowhand/coder/{id}")]);
}

/// A folder of programs with a `git` that can be made to fail.
struct FailingGit {
    folder: PathBuf,
}

impl FailingGit {
    fn new(scene: &Scene) -> Self {
        let folder = scene.root.join("bin");
        fs::create_dir(&folder).unwrap();
        for tool in ["sh", "touch", "sleep", "env"] {
            symlink(format!("/bin/{tool}"), folder.join(tool)).unwrap();
        }
        let path = std::env::var("PATH").unwrap();
        let flag = folder.join("fails");
        let script = format!(
            "#!/bin/sh\n[ -e '{}' ] && exit 128\nexec env PATH='{path}' git \"$@\"\n",
            flag.display()
        );
        fs::write(folder.join("git"), script).unwrap();
        fs::set_permissions(folder.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    fn fail(&self, is_missing: bool) {
        if is_missing {
            fs::rename(self.folder.join("git"), self.folder.join("other")).unwrap();
        } else {
            fs::write(self.folder.join("fails"), "").unwrap();
        }
    }

    fn work_again(&self, is_missing: bool) {
        if is_missing {
            fs::rename(self.folder.join("other"), self.folder.join("git")).unwrap();
        } else {
            fs::remove_file(self.folder.join("fails")).unwrap();
        }
    }
}

#[test]
fn workspace_is_kept_while_git_fails() {
    for (kind, is_missing, says) in [
        ("clone", false, "ended with exit status: 128"),
        ("clone", true, "cannot run git"),
        ("worktree", false, "ended with exit status: 128"),
    ] {
        let scene = Scene::new(WORK, &json!({"isolation": kind}));
        let git = FailingGit::new(&scene);
        scene.start_with(&[("PATH", git.folder.to_str().unwrap())]);
        let id = scene.working();
        git.fail(is_missing);
        scene.let_agent_end();
        let reason = scene.kept_because(&id);
        assert!(reason.contains(says), "{kind} {reason}");
        let diff = scene.said_of_diff(&id);
        assert!(diff.contains(says), "{kind} {diff}");
        git.work_again(is_missing);
        scene.assert_finished(&id);
    }
}

#[test]
fn workspace_is_kept_while_its_diff_cannot_be_written() {
    let scene = Scene::started(WORK, &json!({}));
    let id = scene.working();
    let (jobs, away) = (scene.root.join(".cowhand/jobs"), scene.root.join("jobs"));
    fs::rename(&jobs, &away).unwrap();
    fs::write(&jobs, "no folder").unwrap();
    scene.let_agent_end();
    let reason = scene.kept_because(&id);
    assert!(reason.starts_with("its diff cannot be kept: Not a directory"), "{reason}");
    let diff = scene.said_of_diff(&id).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(diff.contains("it is not made yet, and the workspace is kept until then: its diff"), "{diff}");
    fs::remove_file(&jobs).unwrap();
    fs::rename(&away, &jobs).unwrap();
    scene.assert_finished(&id);
}

#[test]
fn diff_is_made_after_store_was_away() {
    for kind in ["worktree", "shared"] {
        let mut server = Postgres::start();
        let scene = Scene::new(WORK, &json!({"isolation": kind}));
        let config = scene.root.join("cowhand.yaml");
        let mut fleet: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
        fleet["store"] = server.url().into();
        fs::write(&config, fleet.to_string()).unwrap();
        scene.start();
        let id = scene.working();
        server.stop();
        scene.let_agent_end();
        wait_until("the end of the agent to be seen", || {
            scene.log().contains("its outcome is not stored yet").then_some(())
        });
        server.start_again();
        assert_eq!(status_and_error(&scene.finished(&id)), ["completed", "", ""]);
        let is_told = scene.log().contains("its diff is not kept");
        assert_eq!(is_told, kind == "worktree", "{}", scene.log());
        if kind == "worktree" {
            scene.assert_finished(&id);
        }
    }
}

/// An attempt that had not begun when the backup was made is not lost: the job runs after the restore, once.
#[test]
fn attempt_in_setup_is_made_again_after_restore() {
    let setup = "touch $SCENE/up; while [ ! -e $SCENE/go ]; do sleep 0.05; done";
    let isolation = json!({"isolation": {"kind": "clone", "setup": ["sh", "-c", setup]}});
    let scene = Scene::started("echo $COWHAND_JOB_ID >> $SCENE/runs", &isolation);
    let id = scene.trigger();
    wait_until("the set-up to begin", || scene.root.join("up").exists().then_some(()));
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        fs::remove_file(scene.root.join(".cowhand").join(name)).unwrap();
    }
    for arguments in [&["backup", "saved.db"][..], &["stop", "--keep-agents"], &["restore", "saved.db"]] {
        let said = scene.command(arguments).output().unwrap();
        assert!(said.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
    }
    fs::write(scene.root.join("go"), "").unwrap();
    scene.start();
    assert_eq!(status_and_error(&scene.finished(&id)), ["completed", "", ""]);
    assert_eq!(fs::read_to_string(scene.root.join("runs")).unwrap().trim(), id, "one run");
}

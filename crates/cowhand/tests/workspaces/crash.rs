//! After a kill of the daemon, the next start leaves no worktree and no branch.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::{Signal, kill_process, test_kill_process};
use serde_json::json;

use super::{Scene, left_over, status_and_error, wait_until};

/// Declares a test for each place, in each kind of workspace.
macro_rules! killed_anywhere_nothing_stale_is_left {
    ($($place:ident),+ $(,)?) => {
        mod worktree { $(#[test] fn $place() { super::killed_at("worktree", stringify!($place)); })+ }
        mod clone { $(#[test] fn $place() { super::killed_at("clone", stringify!($place)); })+ }
    };
}

killed_anywhere_nothing_stale_is_left!(
    workspace_noted,
    workspace_made,
    launched,
    ended,
    diffed,
    settled,
    workspace_removed,
);

fn killed_at(kind: &str, place: &str) {
    let isolation = json!({"isolation": {"kind": kind, "cleanup": "always"}});
    let scene = Scene::new("echo x > made", &isolation);
    scene.start_with(&[("COWHAND_FAULT", &place.replace('_', "-"))]);
    let daemon = scene.daemon().unwrap();
    // The daemon may die before it answers.
    let _ = scene.command(&["trigger", "coder"]).output().unwrap();
    wait_until("the planned fault", || test_kill_process(daemon).is_err().then_some(()));
    scene.start();
    let id = scene.json(&["jobs"])[0]["id"].as_str().unwrap().to_owned();
    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job), ["completed", "", ""], "{kind} {place}");
    scene.assert_clean();
    assert!(scene.diff(&id).contains("+++ b/made"), "{kind} {place}");
}

/// Creates a fleet in which git is slow: a filter in the user's git config delays each file with the command `delay`.
pub(super) fn slow_scene(kind: &str, delay: &str) -> Scene {
    let isolation = json!({"isolation": {"kind": kind, "cleanup": "always"}});
    let scene = Scene::new("echo x > made", &isolation);
    fs::write(scene.repository().join(".gitattributes"), "*.slow filter=slow\n").unwrap();
    for number in 0..20 {
        fs::write(scene.repository().join(format!("{number}.slow")), "text\n").unwrap();
    }
    scene.git(&["add", "-A"]);
    scene.git(&["commit", "--quiet", "-m", "slow"]);
    let filter = format!("cd '{}'; touch up; {delay}; cat", scene.root.display());
    fs::write(scene.root.join(".gitconfig"), format!("[filter \"slow\"]\nsmudge = \"{filter}\"\n")).unwrap();
    scene
}

/// The git that makes the workspace ends with the daemon, and a new daemon makes the workspace again.
#[test]
fn daemon_is_killed_while_git_makes_workspace() {
    for kind in ["worktree", "clone"] {
        let scene = slow_scene(kind, "[ -e fast ] || sleep 300");
        let mut id = String::new();
        for number in 0..2 {
            scene.start();
            if number == 0 {
                id = scene.trigger();
            }
            wait_until("git to write files", || scene.root.join("up").exists().then_some(()));
            let daemon = scene.daemon().unwrap();
            kill_process(daemon, Signal::KILL).unwrap();
            wait_until("the daemon to be dead", || test_kill_process(daemon).is_err().then_some(()));
            wait_until("its git to be dead", || left_over(&scene.root).is_empty().then_some(()));
            fs::remove_file(scene.root.join("up")).unwrap();
        }
        fs::write(scene.root.join("fast"), "").unwrap();
        scene.start();
        let job = scene.finished(&id);
        assert_eq!(status_and_error(&job), ["completed", "", ""], "{kind}");
        let said = scene.command(&["job", &id]).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("3 (2 never began)"), "{kind}: {said}");
        assert!(scene.diff(&id).contains("+++ b/made"), "{kind}");
        scene.assert_clean();
        assert_eq!(fs::read_dir(scene.repository().join(".git/worktrees")).into_iter().flatten().count(), 0);
    }
}

/// The new daemon starts while the git of the killed daemon may still be ending.
#[test]
fn new_daemon_waits_for_git_of_killed_daemon() {
    let scene = slow_scene("worktree", "sleep 0.1");
    scene.start();
    let id = scene.trigger();
    wait_until("git to write files", || scene.root.join("up").exists().then_some(()));
    kill_process(scene.daemon().unwrap(), Signal::KILL).unwrap();
    scene.start();
    assert_eq!(status_and_error(&scene.finished(&id)), ["completed", "", ""]);
    scene.assert_clean();
}

impl Scene {
    /// Makes a `git` whose command `verb` hangs if the file `hang` exists. Returns a `PATH` with it.
    fn path_with_hanging_git(&self, verb: &str) -> String {
        let (bin, path) = (self.root.join("bin"), std::env::var("PATH").unwrap());
        fs::create_dir(&bin).unwrap();
        let root = self.root.display();
        let wrapper = format!(
            "#!/bin/sh\ncase \" $* \" in *' {verb} '*) [ -e '{root}/hang' ] && touch '{root}/up' && exec sleep 300;; esac\n\
             PATH='{path}' exec git \"$@\"\n"
        );
        fs::write(bin.join("git"), wrapper).unwrap();
        fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
        format!("{}:{path}", bin.display())
    }
}

/// Without a daemon, `prune` and `job delete` remove the workspace themselves.
#[test]
fn git_of_killed_prune_ends() {
    for verb in ["prune", "delete"] {
        let script = "echo x > made; git add -A; git commit -qm work; exit 1";
        let scene = Scene::started(script, &json!({"isolation": "clone"}));
        let jobs = [(); 2].map(|()| scene.run()["id"].as_str().unwrap().to_owned());
        assert!(scene.command(&["stop"]).output().unwrap().status.success());
        assert_eq!(scene.workspaces().len(), 2);
        fs::write(scene.root.join("hang"), "").unwrap();
        let arguments =
            if verb == "prune" { ["prune", "--max-jobs", "1"] } else { ["job", "delete", &jobs[0]] };
        let mut command = scene.command(&arguments);
        let mut removal = command.env("PATH", scene.path_with_hanging_git("fetch")).spawn().unwrap();
        wait_until("git to hang", || scene.root.join("up").exists().then_some(()));
        removal.kill().unwrap();
        removal.wait().unwrap();
        wait_until("its git to be dead", || left_over(&scene.root).is_empty().then_some(()));
        scene.start();
        wait_until("the workspace to be removed", || (scene.workspaces().len() == 1).then_some(()));
        assert_eq!(scene.branches(), [format!("cowhand/coder/{}", jobs[0])], "{verb}");
    }
}

/// A git that makes the diff, or copies the commits of a clone, hangs. It ends with the daemon.
#[test]
fn daemon_is_killed_while_git_compares_or_removes_workspace() {
    for (kind, verb) in [("clone", "fetch"), ("worktree", "diff"), ("worktree", "config")] {
        let isolation = json!({"isolation": {"kind": kind, "cleanup": "always"}});
        let script = "echo x > made; git add -A; git commit -qm work; touch $SCENE/hang";
        let scene = Scene::new(script, &isolation);
        scene.start_with(&[("PATH", &scene.path_with_hanging_git(verb))]);
        let id = scene.trigger();
        wait_until("git to hang", || scene.root.join("up").exists().then_some(()));
        let daemon = scene.daemon().unwrap();
        kill_process(daemon, Signal::KILL).unwrap();
        wait_until("the daemon to be dead", || test_kill_process(daemon).is_err().then_some(()));
        wait_until("its git to be dead", || left_over(&scene.root).is_empty().then_some(()));
        fs::remove_file(scene.root.join("hang")).unwrap();
        scene.start();
        assert_eq!(status_and_error(&scene.finished(&id)), ["completed", "", ""], "{kind} {verb}");
        wait_until("the workspace to be removed", || scene.workspaces().is_empty().then_some(()));
        assert_eq!(scene.branches(), [format!("cowhand/coder/{id}")]);
        assert!(scene.diff(&id).contains("+++ b/made"), "{kind} {verb}");
    }
}

#[test]
fn ten_jobs_continue_after_daemon_is_killed() {
    let script = "echo x > made; touch $SCENE/up.$COWHAND_JOB_ID; \
        while [ ! -e $SCENE/go ]; do sleep 0.05; done; test -e made";
    let settings = json!({
        "instances": {"max_concurrent": 10}, "isolation": {"kind": "worktree", "cleanup": "always"},
    });
    let scene = Scene::started(script, &settings);
    let jobs: Vec<String> = (0..10).map(|_| scene.trigger()).collect();
    for job in &jobs {
        wait_until("all to be at work", || scene.root.join(format!("up.{job}")).exists().then_some(()));
    }
    assert_eq!(scene.worktrees(), 11);
    let daemon = scene.daemon().unwrap();
    kill_process(daemon, Signal::KILL).unwrap();
    wait_until("the daemon to be dead", || test_kill_process(daemon).is_err().then_some(()));
    fs::write(scene.root.join("go"), "").unwrap();
    scene.start();
    for job in &jobs {
        assert_eq!(status_and_error(&scene.finished(job)), ["completed", "", ""]);
    }
    scene.assert_clean();
}

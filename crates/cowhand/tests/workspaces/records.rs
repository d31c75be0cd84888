//! Agents that damage git's record of their worktree, which git reads for all worktrees of the repository.

use serde_json::json;

use super::{Scene, status_and_error, wait_until};

/// Sets `G` to the record of the worktree.
const RECORD: &str = "G=$(cut -d' ' -f2- .git)";

/// Creates a fleet whose agent runs its prompt as a script, two jobs at a time.
fn scene() -> Scene {
    Scene::started(
        "",
        &json!({
            "command": ["sh", "-s"], "isolation": {"kind": "worktree", "cleanup": "always"},
            "instances": {"max_concurrent": 2},
        }),
    )
}

impl Scene {
    fn trigger_script(&self, script: &str) -> String {
        let job = self.json(&["trigger", "coder", "--prompt", script]);
        job["id"].as_str().unwrap().to_owned()
    }

    fn script(&self, script: &str) -> String {
        let id = self.trigger_script(script);
        assert_eq!(status_and_error(&self.finished(&id)), ["completed", "", ""], "{script}");
        id
    }
}

#[test]
fn damaged_record_of_worktree_affects_no_other_job() {
    let scene = scene();
    let pipes = ["commondir", "gitdir", "HEAD", "locked", "index", "BISECT_START"]
        .map(|name| (format!("{RECORD}; rm -f \"$G\"/{name}; mkfifo \"$G\"/{name}"), name));
    let others = [
        ("git init -q --bare c; echo $PWD/c > \"$G\"/commondir", "commondir"),
        ("echo \"$SCENE/my repository/.git\" > \"$G\"/gitdir", "gitdir"),
        ("rm \"$G\"/commondir; mkdir -p \"$G\"/commondir/x", "commondir"),
        ("echo garbage > \"$G\"/HEAD", "HEAD"),
        ("mkdir \"$G\"/rebase-merge; mkfifo \"$G\"/rebase-merge/head-name", "rebase-merge/head-name"),
        ("rm \"$G\"/HEAD; mkfifo p; ln -s $PWD/p \"$G\"/HEAD", "HEAD"),
    ]
    .map(|(script, name)| (format!("{RECORD}; {script}"), name));
    for (script, name) in pipes.into_iter().chain(others) {
        let id = scene.script(&format!("{script}; echo x > made"));
        scene.script("git branch --list > made");
        let diff = scene.diff(&id);
        assert!(diff.contains("+++ b/made"), "{script}: {diff}");
        let note =
            format!("the agent changed git's record of the worktree ({name}); the record was restored");
        assert!(diff.contains(&note), "{script}: {diff}");
        scene.assert_clean();
    }
    scene.restart();
    scene.script("echo x > made");
    scene.assert_clean();
}

#[test]
fn damage_of_running_agent_affects_no_other_job() {
    let scene = scene();
    let branch =
        "b=$(git symbolic-ref HEAD); c=$(git rev-parse --git-common-dir); rm \"$c/$b\"; mkfifo \"$c/$b\"";
    for damage in
        ["rm \"$G\"/commondir; mkfifo \"$G\"/commondir", "rm \"$G\"/HEAD; mkfifo \"$G\"/HEAD", branch]
    {
        let wait = "touch $SCENE/up; while [ ! -e $SCENE/go ]; do sleep 0.05; done";
        let id = scene.trigger_script(&format!("{RECORD}; {damage}; {wait}"));
        wait_until("the damage", || scene.root.join("up").exists().then_some(()));
        scene.script("echo x > made");
        std::fs::write(scene.root.join("go"), "").unwrap();
        assert_eq!(status_and_error(&scene.finished(&id)), ["completed", "", ""], "{damage}");
        scene.assert_clean();
        for name in ["up", "go"] {
            std::fs::remove_file(scene.root.join(name)).unwrap();
        }
    }
}

/// A person's git that waits at a pipe of an agent continues when the agent has ended.
#[test]
fn git_that_waits_at_pipe_of_agent_continues() {
    let scene = scene();
    let wait = "touch $SCENE/up; while [ ! -e $SCENE/go ]; do sleep 0.05; done";
    let id = scene.trigger_script(&format!("{RECORD}; rm \"$G\"/commondir; mkfifo \"$G\"/commondir; {wait}"));
    wait_until("the damage", || scene.root.join("up").exists().then_some(()));
    let mut waiting = super::git(&scene.repository(), &["branch"]).spawn().unwrap();
    let state = format!("/proc/{}/stat", waiting.id());
    wait_until("git to wait", || std::fs::read_to_string(&state).unwrap().contains(") S ").then_some(()));
    std::fs::write(scene.root.join("go"), "").unwrap();
    assert_eq!(status_and_error(&scene.finished(&id)), ["completed", "", ""]);
    wait_until("git to end", || waiting.try_wait().unwrap());
    scene.assert_clean();
}

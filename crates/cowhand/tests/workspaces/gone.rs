//! Workspaces whose directories cowhand did not remove itself.

use std::fs;

use serde_json::{Value, json};

use super::{Scene, wait_until};

impl Scene {
    /// Runs a job that fails, and waits until its workspace is kept.
    fn kept(&self) -> String {
        let id = self.trigger();
        assert_eq!(self.finished(&id)["status"], "failed");
        wait_until("its workspace to be kept", || (self.phase(&id) == "kept").then_some(()));
        id
    }

    fn phase(&self, id: &str) -> Value {
        self.job(id)["workspace"]["state"].clone()
    }

    fn done(&self, arguments: &[&str]) {
        let done = self.command(arguments).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

/// A restored store has the workspace of a job that was deleted after the backup.
#[test]
fn workspace_removed_after_the_backup_is_not_shown_as_kept() {
    let scene = Scene::started("echo x > new; exit 2", &json!({}));
    let id = scene.kept();
    scene.done(&["backup", "saved.db"]);
    scene.done(&["job", "delete", &id]);
    wait_until("its workspace to be removed", || scene.workspaces().is_empty().then_some(()));
    scene.done(&["stop"]);
    scene.done(&["restore", "saved.db"]);
    assert_eq!(scene.phase(&id), "gone", "no daemon has looked at it yet");
    let said = scene.command(&["job", &id]).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("(gone)") && !said.contains("(kept)"), "{said}");
    scene.start();
    wait_until("the daemon to forget it", || scene.phase(&id).is_null().then_some(()));
    scene.assert_clean();
}

/// A person removed the directory of a kept workspace.
#[test]
fn workspace_removed_by_a_person_is_not_shown_as_kept() {
    let scene = Scene::started("echo x > new; exit 2", &json!({}));
    let id = scene.kept();
    fs::remove_dir_all(scene.root.join(".cowhand/workspaces").join(&id)).unwrap();
    assert_eq!(scene.phase(&id), "gone");
    scene.restart();
    wait_until("the daemon to forget it", || scene.phase(&id).is_null().then_some(()));
    scene.assert_clean();
}

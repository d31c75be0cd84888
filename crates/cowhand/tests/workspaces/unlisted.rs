//! Files that git does not show or cannot read: the diff contains them or names them, and the workspace is removed.

use std::fs;

use serde_json::json;

use super::{Scene, status_and_error, wait_until};

const UNLISTED: &str = "# cowhand: files that are not in the diff, because git does not accept their names or cannot reach them: ";

/// Makes folders below each other, until their path is longer than any call accepts.
const DEEP: &str = "python3 -c '
import os
os.mkdir(\"deeper\"); os.chdir(\"deeper\")
for i in range(25):
    os.mkdir(\"n\" * 200); os.chdir(\"n\" * 200)
open(\"leaf\", \"w\").write(\"evil\")
'";

impl Scene {
    fn ignore_folder_out(&self) {
        fs::write(self.repository().join(".gitignore"), "out/\n").unwrap();
        self.git(&["add", "-A"]);
        self.git(&["commit", "--quiet", "-m", "ignore"]);
    }
}

#[test]
fn diff_names_files_whose_names_git_refuses() {
    let script = "mkdir -p a/.GIT b/git~1 h/.git 'd\\.git' c g sub/.git; echo evil | tee a/.GIT/run.sh b/git~1/run.sh \
        h/.git/run.sh 'd\\.git/x' 'c/.git ' 'c/.git.' c/.Git 'c/GIT~1' g/.git sub/.git/HEAD visible > /dev/null; \
        mkfifo pipe; ln -s README link";
    for kind in ["worktree", "clone"] {
        let scene = Scene::started(script, &json!({"isolation": kind}));
        let job = scene.run();
        assert_eq!(status_and_error(&job), ["completed", "", ""], "{kind}");
        let diff = scene.diff(job["id"].as_str().unwrap());
        let names = r#"10 ("a/.GIT/run.sh", "b/git~1/run.sh", "c/.Git", "c/.git ", "c/.git.", "c/GIT~1", "d\\.git/x", "g/.git", "h/.git/run.sh", "sub/.git/HEAD")"#;
        assert!(diff.contains(&format!("{UNLISTED}{names}\n")), "{kind}: {diff}");
        assert!(diff.contains("+++ b/visible") && diff.contains("+++ b/link"), "{kind}: {diff}");
        assert_eq!(diff.matches("# cowhand:").count(), 1, "{kind}: {diff}");
        scene.assert_clean();
    }
}

/// A file below an ignored folder is ignored. Other repositories have their own line.
#[test]
fn diff_does_not_name_ignored_files_twice() {
    let script = "mkdir -p out/x; echo a > out/x/a; git init -q lib; echo b > lib/b; echo '*.log' >> .gitignore; \
        echo c > c.log";
    let scene = Scene::new(script, &json!({}));
    scene.ignore_folder_out();
    scene.start();
    let diff = scene.diff(scene.run()["id"].as_str().unwrap());
    assert!(!diff.contains(UNLISTED), "{diff}");
    assert_eq!(diff.matches("# cowhand:").count(), 2, "{diff}");
}

#[test]
fn deep_folders_are_named_measured_and_removed() {
    for kind in ["worktree", "clone"] {
        let script = format!("{DEEP}; mkdir closed; echo x > closed/x; chmod 000 closed; exit 1");
        let scene = Scene::new(&script, &json!({"isolation": kind}));
        scene.start_bound_by_modes();
        let job = scene.run();
        let id = job["id"].as_str().unwrap();
        let diff = scene.diff(id);
        let folder = "n".repeat(200);
        assert!(diff.contains(&format!("{UNLISTED}1 (\"deeper/{folder}/…\")\n")), "{kind}: {diff}");
        assert!(diff.contains("+++ b/closed/x"), "{kind}: {diff}");
        let said = scene.command(&["doctor"]).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("ok    disk use: "), "{kind}: {said}");
        assert!(scene.command(&["job", "delete", id]).output().unwrap().status.success());
        scene.assert_clean();
    }
}

#[test]
fn closed_files_and_folders_of_agent_are_in_diff() {
    let script = "mkdir hid hid0; echo evil1 > hid/f; echo evil2 > hid0/f; chmod 311 hid; chmod 000 hid0; \
        echo evil3 > deep/new; chmod 311 deep; echo evil4 > loose; chmod 000 loose; echo evil5 >> README; \
        chmod 000 README; chmod 000 .git";
    for kind in ["worktree", "clone"] {
        let scene = Scene::new(script, &json!({"isolation": {"kind": kind, "cleanup": "always"}}));
        scene.start_bound_by_modes();
        let job = scene.run();
        let diff = scene.diff(job["id"].as_str().unwrap());
        for number in 1..=5 {
            assert!(diff.contains(&format!("\n+evil{number}\n")), "{kind} {number}: {diff}");
        }
        assert!(!diff.contains("# cowhand:"), "{kind}: {diff}");
        scene.assert_clean();
    }
}

#[test]
fn unreadable_file_does_not_defeat_max_kept() {
    let script = "head -c 3000000 /dev/zero > big; echo s > closed; chmod 000 closed; exit 1";
    let scene = Scene::new(script, &json!({"isolation": {"kind": "worktree", "max_kept": "1MB"}}));
    scene.start_bound_by_modes();
    let id = scene.run()["id"].as_str().unwrap().to_owned();
    wait_until("it to be kept", || (scene.job(&id)["workspace"]["state"] == "kept").then_some(()));
    assert!(scene.diff(&id).contains("+++ b/closed"));
    assert!(scene.command(&["stop"]).output().unwrap().status.success());
    scene.start_bound_by_modes();
    scene.assert_clean();
}

#[test]
fn files_of_another_user_are_named_and_others_compared() {
    if !Scene::is_root() {
        // Only root can give a file away.
        return;
    }
    let script = "mkdir out; echo evil > out/ignored; echo evil > loose; echo evil >> README; \
        for file in out/ignored loose README; do chmod 600 $file; chown 4321 $file; done; echo mine > mine";
    let scene = Scene::new(script, &json!({"isolation": {"kind": "worktree", "cleanup": "always"}}));
    scene.ignore_folder_out();
    scene.start_bound_by_modes();
    let diff = scene.diff(scene.run()["id"].as_str().unwrap());
    let note = "# cowhand: files that belong to another user and cannot be read, so they are not compared: \
        2 (\"README\", \"loose\")\n";
    assert!(diff.contains(note) && diff.contains("\n+mine\n"), "{diff}");
    assert_eq!(diff.matches("# cowhand:").count(), 1, "{diff}");
    scene.assert_clean();
}

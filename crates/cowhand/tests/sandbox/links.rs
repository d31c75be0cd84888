//! Sandboxed agents that plant symbolic links, pipes and forged repositories where the daemon reads afterwards. The
//! daemon may read files that the agent may not read, so it must not follow such links.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::{Scene, User, for_each_sandbox, in_a_container};

for_each_sandbox!(
    metadata,
    work_items,
    an_index_that_leads_elsewhere,
    a_trap_in_a_submodule,
    commits_of_another_repository,
    a_forged_worktree,
    a_worktree_that_grows,
    a_damaged_record_of_a_worktree,
    a_directory_that_became_a_link,
);

in_a_container!(
    metadata,
    work_items,
    an_index_that_leads_elsewhere,
    a_trap_in_a_submodule,
    commits_of_another_repository,
    a_forged_worktree,
    a_worktree_that_grows,
    a_damaged_record_of_a_worktree,
    a_directory_that_became_a_link,
);

const CANARY: &str = "a-word-from-outside";

/// Creates a scene with secrets in `outside`. The prompt of a job is the script that its agent runs.
fn scene(kind: &str, user: User, agent: Value) -> Scene {
    let mut scene = Scene::new(user, "sh; exit 0", &json!({}));
    scene.write("outside/secret.json", &json!({ "word": CANARY }).to_string());
    scene.write("outside/secret.md", &format!("---\nstatus: ready\ntitle: {CANARY}\n---\n{CANARY}\n"));
    let outside = scene.path("outside").display().to_string();
    let mut agent = agent;
    agent["sandbox"] = kind.into();
    agent["env"] = json!({ "OUTSIDE": outside });
    agent["command"] = json!(["sh", "-c", "exec sh -s"]);
    scene.set(&agent);
    scene
}

impl Scene {
    /// Runs one job with this script to its end.
    fn script(&self, script: &str) -> (Value, String) {
        let id = self.json(&["trigger", "wild", "--prompt", script])["id"].as_str().unwrap().to_owned();
        self.ended(&id)
    }

    fn git(&self, folder: &str, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.current_dir(self.path(folder)).env("HOME", self.path("home"));
        git.args(["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
        let done = git.output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    /// Waits until all hooks of a job have ended, and returns them.
    fn hooks(&self, id: &str) -> Value {
        super::wait_until("the hooks", || {
            let hooks = self.json(&["job", id])["hooks"].clone();
            let states = hooks.as_array().unwrap().iter();
            states
                .clone()
                .all(|hook| !matches!(hook["state"].as_str(), Some("waiting" | "running")))
                .then_some(hooks)
        })
    }
}

/// Plants a link to a secret, a link to the folder of a secret, a pipe, a device, and a hard link.
fn metadata(kind: &str, user: User) {
    let hooks = json!({"after_run": [{"type": "shell", "command": "cat"}]});
    let mut scene = scene(kind, user, json!({"hooks": hooks, "metadata_file": "out/secret.json"}));
    scene.start();
    for (script, expected) in [
        ("mkdir out; echo '{\"word\": \"mine\"}' >out/secret.json", Some("mine")),
        ("ln -sf $OUTSIDE/secret.json out/secret.json", None),
        ("ln -sf ../../outside/secret.json out/secret.json", None),
        ("rm -rf out; ln -s $OUTSIDE out", None),
        ("rm -rf out; ln -s ../outside out", None),
        (
            "rm -rf out; mkdir out; ln $OUTSIDE/secret.json out/secret.json || ln ../outside/secret.json out/secret.json || echo held",
            None,
        ),
        ("rm -rf out; mkdir out; mkfifo out/secret.json", None),
        ("rm -rf out; mkdir -p out/secret.json", None),
        ("rm -rf out; mkdir out; ln -s /dev/zero out/secret.json", None),
        ("rm -rf out; ln -s . out; echo '{\"word\": \"led inside\"}' >secret.json", None),
        ("rm -rf out; mkdir out; echo '{\"word\": \"mine again\"}' >out/secret.json", Some("mine again")),
    ] {
        let (job, said) = scene.script(script);
        assert_eq!(job["status"], "completed", "{script}: {job:#}\n{said}");
        let told = scene.hooks(job["id"].as_str().unwrap())[0]["said"].as_str().unwrap().to_owned();
        let told: Value =
            serde_json::from_str(&told).unwrap_or_else(|error| panic!("{script}: {error}: {told}"));
        assert_eq!(told["metadata"]["word"].as_str(), expected, "{script}: {told:#}\n{said}");
    }
}

/// The folder of a work source is writable for the agent. The checks also hold after a restart, without any
/// cache.
fn work_items(kind: &str, user: User) {
    let source = json!({"type": "files", "path": "../desk/queue/tasks"});
    let mut scene = scene(kind, user, json!({ "work_source": source }));
    scene.write("desk/queue/tasks/mine.md", "---\nstatus: ready\n---\nmine\n");
    scene.hand_over();
    scene.start();
    let listed = |scene: &Scene| {
        let said = scene.command(&["work", "list", "--json"]).output().unwrap();
        String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned()
    };
    assert!(listed(&scene).contains("files-mine"), "{}", listed(&scene));
    for script in [
        "ln -s $OUTSIDE/secret.md queue/tasks/a.md; ln -s ../../../outside/secret.md queue/tasks/b.md; mkfifo queue/tasks/c.md",
        "mv queue/tasks aside; ln -s $OUTSIDE queue/tasks",
        "rm queue/tasks; ln -s ../../outside queue/tasks",
        "rm queue/tasks; rmdir queue; mkdir -p deep; ln -s $OUTSIDE/.. queue; ln -s outside deep/tasks",
    ] {
        let (job, said) = scene.script(script);
        assert_eq!(job["status"], "completed", "{script}: {job:#}\n{said}");
        for round in 0..2 {
            let list = listed(&scene);
            assert!(!list.contains(CANARY), "{script}, {round}: {list}");
            if round == 0 {
                let mut daemon = scene.daemon.take().unwrap();
                daemon.kill().unwrap();
                daemon.wait().unwrap();
                scene.start();
            }
        }
    }
    assert_eq!(fs::read_to_string(scene.path("outside/secret.md")).unwrap().matches(CANARY).count(), 2);
}

/// The diff uses the index of the workspace, which the agent may replace.
fn an_index_that_leads_elsewhere(kind: &str, user: User) {
    let mut scene = scene(kind, user, json!({"isolation": "clone"}));
    scene.repository();
    scene.start();
    for (script, noted) in [
        ("echo new >new", false),
        ("echo new >new; rm .git/index; mkfifo .git/index", true),
        ("echo new >new; rm .git/index; ln -s $OUTSIDE/secret.md .git/index", true),
        ("echo new >new; mv .git elsewhere; ln -s elsewhere .git", true),
        ("echo new >new; rm -rf .git; ln -s ../../../../desk/.git .git", true),
    ] {
        let (job, said) = scene.script(script);
        assert_eq!(job["status"], "completed", "{script}: {job:#}\n{said}");
        let diff = scene.command(&["job", job["id"].as_str().unwrap(), "--diff"]).output().unwrap();
        let diff = String::from_utf8_lossy(&diff.stdout).into_owned();
        assert_eq!((diff.contains("+new"), diff.contains(CANARY)), (true, false), "{script}: {diff}");
        assert_eq!(diff.starts_with("# cowhand: "), noted, "{script}: {diff}");
    }
}

/// Git inspects a submodule in a separate process, which obeys the config of the submodule.
fn a_trap_in_a_submodule(kind: &str, user: User) {
    let mut scene = scene(kind, user, json!({"isolation": "clone"}));
    scene.repository();
    scene.start();
    let script = "git init -q sub && cd sub && echo a >a && git add a && git -c user.name=a -c user.email=a@b commit -qm a && \
        cd .. && git add sub && git -c user.name=a -c user.email=a@b commit -qm sub && cd sub && \
        git config filter.trap.clean \"touch $OUTSIDE/sprung; cat\" && echo '* filter=trap' >.gitattributes && echo c >a && \
        echo set";
    let (job, said) = scene.script(script);
    assert!(said.contains("set\n"), "{job:#}\n{said}");
    let diff = scene.command(&["job", job["id"].as_str().unwrap(), "--diff"]).output().unwrap();
    let diff = String::from_utf8_lossy(&diff.stdout).into_owned();
    let is_told = |line: &str| line.starts_with("# cowhand: ") && line.contains("sub");
    assert!(diff.lines().any(is_told), "{diff}\n{said}");
    assert!(!scene.path("outside/sprung").exists(), "{said}");
}

/// The commits of a clone are fetched into its original repository, but not commits of a repository that it
/// only links to.
fn commits_of_another_repository(kind: &str, user: User) {
    let mut scene = scene(kind, user, json!({"isolation": {"kind": "clone", "cleanup": "always"}}));
    scene.write("outside/repo/secret", CANARY);
    for arguments in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-qm", CANARY]] {
        scene.git("outside/repo", arguments);
    }
    let secret = scene.git("outside/repo", &["rev-parse", "HEAD"]);
    scene.repository();
    scene.start();
    let led = "echo $OUTSIDE/repo/.git/objects >.git/objects/info/alternates; b=$(cat .git/HEAD); b=${b#ref: }; rm -f .git/$b;";
    for script in [
        &format!("{led} ln -s $OUTSIDE/repo/.git/refs/heads/main .git/$b"),
        &format!("{led} rm .git/HEAD; ln -s $OUTSIDE/repo/.git/refs/heads/main .git/HEAD"),
        "rm -rf .git; ln -s $OUTSIDE/repo/.git .git",
        "rm -rf .git; echo gitdir: $OUTSIDE/repo/.git >.git",
        "echo $OUTSIDE/repo/.git >.git/commondir; echo ref: refs/heads/main >.git/HEAD",
        "rm -rf .git/refs .git/objects; ln -s $OUTSIDE/repo/.git/refs .git/refs; ln -s $OUTSIDE/repo/.git/objects \
         .git/objects; echo ref: refs/heads/main >.git/HEAD",
    ] {
        let (job, said) = scene.script(script);
        assert_eq!(job["status"], "completed", "{script}: {job:#}\n{said}");
        let workspace = scene.path("fleet/.cowhand/workspaces").join(job["id"].as_str().unwrap());
        super::wait_until("the workspace to go", || (!workspace.exists()).then_some(()));
        let objects = scene.git("desk", &["cat-file", "--batch-all-objects", "--batch-check"]);
        assert!(!objects.contains(&secret), "{script}: {objects}\n{said}");
    }
    // The agent's own commits are fetched.
    let (job, said) =
        scene.script("echo a >a; git add a; git -c user.name=a -c user.email=a@b commit -qm brought-home");
    let workspace = scene.path("fleet/.cowhand/workspaces").join(job["id"].as_str().unwrap());
    super::wait_until("the workspace to go", || (!workspace.exists()).then_some(()));
    assert!(scene.git("desk", &["log", "--all", "--format=%s"]).contains("brought-home"), "{said}");
}

/// The agent may read the repository of its worktree, but can forge the file that names it.
fn a_forged_worktree(kind: &str, user: User) {
    let mut scene = scene(kind, user, json!({}));
    scene.write("outside/repo/secret", CANARY);
    for arguments in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-qm", CANARY]] {
        scene.git("outside/repo", arguments);
    }
    scene.git("outside/repo", &["worktree", "add", "-q", "-b", "other", "../other"]);
    scene.hand_over();
    scene.start();
    let forged = "rm -rf .git a; mkdir -p a/worktrees/x; echo gitdir: $PWD/a/worktrees/x >.git; echo ../.. >a/worktrees/x/commondir; \
                  echo $PWD/.git >a/worktrees/x/gitdir;";
    for script in [
        &format!("{forged} ln -s $OUTSIDE a/objects; ln -s $OUTSIDE a/refs; ln -s $OUTSIDE a/logs"),
        &format!("{forged} ln -s ../../outside a/objects"),
        "rm -rf .git a; echo gitdir: $OUTSIDE/repo/.git/worktrees/other >.git",
        "rm -rf .git a; ln -s $OUTSIDE/other/.git .git",
        "rm -rf .git a; mkfifo .git",
    ] {
        let (job, said) = scene.script(script);
        assert_eq!(job["status"], "completed", "{script}: {job:#}\n{said}");
        let (_, said) = scene.script(
            "echo x >$OUTSIDE/escaped && echo wrote-outside; cat $OUTSIDE/secret.md; cat $OUTSIDE/repo/.git/HEAD && echo \
             read-outside; echo x >$OUTSIDE/repo/.git/objects/escaped && echo wrote-objects; echo tried",
        );
        assert!(said.contains("tried"), "{script}: {said}");
        for word in [CANARY, "read-outside"] {
            assert!(!said.contains(word), "{script}: {word}: {said}");
        }
        assert!(!scene.path("outside/escaped").exists(), "{script}: {said}");
        assert!(!scene.path("outside/repo/.git/objects/escaped").exists(), "{script}: {said}");
    }
}

/// The worktree is below a folder that is itself called `worktrees`. The agent may write to its own part of the
/// repository, which contains the path of the rest.
fn a_worktree_that_grows(kind: &str, user: User) {
    let mut scene = scene(kind, user, json!({"working_directory": "../worktrees/repo-w"}));
    scene.write("worktrees/repo/file", "text");
    scene.write("objects/.keep", "");
    for arguments in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-qm", "first"]] {
        scene.git("worktrees/repo", arguments);
    }
    scene.git("worktrees/repo", &["worktree", "add", "-q", "-b", "w", "../repo-w"]);
    scene.hand_over();
    scene.start();
    let own = scene.path("worktrees/repo/.git/worktrees/repo-w").display().to_string();
    let (job, said) =
        scene.script(&format!("echo ../../../../.. >{own}/commondir && echo grown || echo held"));
    // Landlock cannot protect a file in a writable folder.
    assert!(said.contains(if kind == "landlock" { "grown" } else { "held" }), "{job:#}\n{said}");
    let (_, said) = scene.script("cat $OUTSIDE/secret.md; echo x >$OUTSIDE/../objects/escaped; echo tried");
    assert!(said.contains("tried") && !said.contains(CANARY), "{said}");
    assert!(!scene.path("objects/escaped").exists(), "{said}");
}

/// Git reads the record of a worktree also for commands in other worktrees.
fn a_damaged_record_of_a_worktree(kind: &str, user: User) {
    let mut scene = scene(kind, user, json!({"isolation": {"kind": "worktree", "cleanup": "always"}}));
    scene.repository();
    scene.start();
    let record = "cd $(cut -d' ' -f2- .git)";
    for script in [
        "rm -f commondir && mkfifo commondir && echo damaged",
        "echo x >commondir && echo damaged",
        "mv gitdir x && echo damaged",
        "echo x >gitdir && echo damaged",
    ] {
        let (job, said) = scene.script(&format!("{record}; {script}; echo tried"));
        assert_eq!(job["status"], "completed", "{script}: {job:#}\n{said}");
        assert!(said.contains("tried"), "{script}: {said}");
        assert_eq!(said.contains("damaged"), kind == "landlock", "{script}: {said}");
    }
    for script in ["rm HEAD; mkfifo HEAD", "rm index; mkfifo index"] {
        let (job, said) = scene.script(&format!("{record}; {script} && echo damaged"));
        assert!(said.contains("damaged"), "{script}: {job:#} {said}");
    }
    let (job, said) = scene.script(
        "echo a >a; git add a; git -c user.name=a -c user.email=a@b commit -qm last && git status && echo committed",
    );
    assert!(said.contains("committed"), "{job:#}\n{said}");
    super::wait_until("the records to go", || {
        let worktrees = fs::read_dir(scene.path("desk/.git/worktrees"));
        (worktrees.into_iter().flatten().count() == 0).then_some(())
    });
}

/// The agent works below the top of its workspace, and may write above it: it replaces its directory by a
/// link for the next attempt.
fn a_directory_that_became_a_link(kind: &str, user: User) {
    let agent = json!({
        "isolation": {"kind": "worktree", "setup": ["touch", "set-up"]}, "working_directory": "../desk/sub",
        "retry": {"max_attempts": 2, "backoff": "1s"},
    });
    let mut scene = scene(kind, user, agent);
    scene.write("desk/sub/file", "text");
    scene.git("desk", &["init", "-q"]);
    scene.git("desk", &["add", "."]);
    scene.git("desk", &["commit", "-qm", "first"]);
    scene.hand_over();
    scene.start();
    let script = "if cat $OUTSIDE/secret.md || echo x >escaped; then echo again; fi; cd .. && mv sub gone && ln -s $OUTSIDE sub; exit 3";
    let (job, said) = scene.script(script);
    assert_eq!((&job["status"], &job["attempt"]), (&"failed".into(), &2.into()), "{job:#}\n{said}");
    assert!(!said.contains(CANARY), "{said}");
    for name in ["escaped", "set-up"] {
        assert!(!scene.path("outside").join(name).exists(), "{name}: {said}");
    }
}

/// On many machines `/bin` is a link to `usr/bin`, and `/bin/sh` is a link in it.
#[test]
fn program_below_a_link_of_the_system_starts() {
    for program in ["/bin/sh", "/usr/bin/sh"] {
        let agent = json!({"sandbox": "bubblewrap", "command": [program, "./agent.sh"]});
        let mut scene = Scene::new(User::Root, "echo it runs", &agent);
        scene.start();
        let (job, said) = scene.run();
        assert_eq!(job["status"], "completed", "{program}: {job:#}\n{said}");
    }
}

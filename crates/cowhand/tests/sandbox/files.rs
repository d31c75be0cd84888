//! Rights and limits of an agent in its sandbox: workspaces, declared paths, its end.

use std::process::Command;

use serde_json::json;

use super::{Scene, User, for_each_sandbox, in_a_container, wait_until};

for_each_sandbox!(
    declared_paths,
    a_work_item,
    an_agent_behind_a_client,
    a_worktree,
    a_trap_for_those_who_come_after,
    asked_to_stop,
    leftovers
);

in_a_container!(
    declared_paths,
    a_work_item,
    a_worktree,
    a_trap_for_those_who_come_after,
    asked_to_stop,
    leftovers
);

fn declared_paths(kind: &str, user: User) {
    let script = "echo w >../shared/w && echo wrote; cat ../books/b; echo w >../books/w || echo no-book; cat ../more/m \
                  || echo no-more; echo t >$TMPDIR/t && echo temporary";
    let sandbox = json!({"kind": kind, "write": ["../shared"], "read": ["../books"]});
    let mut scene = Scene::new(user, script, &json!({ "sandbox": sandbox }));
    for (name, text) in [("shared/.keep", ""), ("books/b", "a-book\n"), ("more/m", "more\n")] {
        scene.write(name, text);
    }
    scene.hand_over();
    scene.start();
    let (_, said) = scene.run();
    for word in ["wrote", "a-book", "no-book", "no-more", "temporary"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(scene.path("shared/w").exists() && !scene.path("books/w").exists());
}

/// The agent can read its work item in any sandbox, and cannot change it.
fn a_work_item(kind: &str, user: User) {
    let script = "cat $COWHAND_WORK_ITEM_FILE; echo; echo \"item $COWHAND_WORK_ITEM: $COWHAND_WORK_ITEM_TITLE\"; \
                  echo \"at $COWHAND_WORK_ITEM_URL\"; echo x >>$COWHAND_WORK_ITEM_FILE || echo file-held";
    let agent = json!({
        "sandbox": kind, "work_source": {"type": "files", "path": "../tasks"}, "schedules": {"poll": {"type": "manual"}},
    });
    let mut scene = Scene::new(user, script, &agent);
    scene.write("tasks/one.md", "---\ntitle: Fix the login\nlabels: [bug]\n---\nIt fails with SSO.\n");
    scene.hand_over();
    scene.start();
    let id = scene.json(&["trigger", "wild", "poll"])["id"].as_str().unwrap().to_owned();
    let (job, said) = scene.ended(&id);
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    for word in [
        "item files-one: Fix the login",
        "\"id\": \"files-one\"",
        "\"description\": \"It fails with SSO.",
        "\"bug\"",
        "tasks/one.md",
        "file-held",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// With `runtime: acp` the sandboxed program is cowhand's client, and the agent is its child.
fn an_agent_behind_a_client(kind: &str, user: User) {
    let script = r#"
        hear() { IFS= read -r heard || exit 9; }
        say() { printf '%s\n' "$1"; }
        hear; say '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
        hear; say '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s-1"}}'
        hear; word=$(cat "$HOME/.ssh/id" 2>/dev/null || echo held)
        say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$word"'"}}}}'
        say '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}'; cat >/dev/null"#;
    let mut scene = Scene::new(user, script, &json!({"runtime": "acp", "sandbox": kind}));
    scene.start();
    let (job, said) = scene.run();
    assert_eq!((&job["status"], &job["summary"]), (&"completed".into(), &"held".into()), "{job:#}\n{said}");
}

/// Commits reach the repository of the worktree; its config and its hooks do not change.
fn a_worktree(kind: &str, user: User) {
    let script = "echo new >file && git add file && git -c user.name=a -c user.email=a@b commit -qm work && echo \
                  committed; common=$(git rev-parse --git-common-dir); echo '[x]' >>$common/config || echo config-held; \
                  echo x >$common/hooks/post-commit || echo hooks-held; echo x >$common/../desk-file || echo held";
    let agent = json!({"sandbox": kind, "isolation": "worktree"});
    let mut scene = Scene::new(user, script, &agent);
    scene.repository();
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    for word in ["committed", "config-held", "hooks-held"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!scene.path("desk/.git/hooks/post-commit").exists() && !scene.path("desk/desk-file").exists());
    let mut log = Command::new("git");
    let log =
        log.args(["-c", "safe.directory=*", "log", "--all", "--format=%s"]).current_dir(scene.path("desk"));
    let log = String::from_utf8(log.output().unwrap().stdout).unwrap();
    assert!(log.contains("work"), "{log}");
}

/// After a job cowhand runs git outside of the sandbox to find changes: config that the agent wrote into its
/// repository must not run commands there.
fn a_trap_for_those_who_come_after(kind: &str, user: User) {
    let script = "git config filter.trap.clean \"sh -c 'touch $OUTSIDE/sprung; cat'\" && git config filter.trap.required \
                  true && git config core.fsmonitor \"touch $OUTSIDE/sprung\" && echo '* filter=trap' >.gitattributes && \
                  echo changed >>agent.sh && echo new >new && git check-attr filter agent.sh && echo set; exit 0\n";
    let mut scene = Scene::new(user, script, &json!({}));
    let outside = scene.path("outside").display().to_string();
    scene.set(&json!({"sandbox": kind, "isolation": "clone", "env": {"OUTSIDE": outside}}));
    scene.repository();
    scene.start();
    let (job, said) = scene.run();
    assert!(said.contains("agent.sh: filter: trap") && said.contains("set\n"), "{said}");
    let diff = scene.command(&["job", job["id"].as_str().unwrap(), "--diff"]).output().unwrap().stdout;
    assert!(
        String::from_utf8_lossy(&diff).contains("+changed"),
        "{job:#} {}",
        String::from_utf8_lossy(&diff)
    );
    assert!(!scene.path("outside/sprung").exists(), "{said}");
}

/// The agent gets the signal, has its grace period, and its last output is kept.
fn asked_to_stop(kind: &str, user: User) {
    let script = "trap 'echo last words; exit 0' TERM; echo up; touch up; while :; do sleep 0.05; done";
    let mut scene = Scene::new(user, script, &json!({ "sandbox": kind }));
    scene.start();
    let id = scene.trigger();
    wait_until("the agent", || scene.path("desk/up").exists().then_some(()));
    let said = scene.command(&["cancel", &id]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let (job, said) = scene.ended(&id);
    assert_eq!(job["status"], "cancelled", "{job:#}");
    assert!(said.contains("last words"), "{said}");
    wait_until("nothing to be left", || {
        super::processes_naming(&scene.path("desk")).is_empty().then_some(())
    });
}

fn leftovers(kind: &str, user: User) {
    let script = "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo left; exit 3";
    let mut scene = Scene::new(user, script, &json!({ "sandbox": kind }));
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(job["status"], "failed", "{job:#}");
    assert!(job["error"]["message"].as_str().unwrap().contains("exit code 3"), "{job:#}\n{said}");
    wait_until("nothing to be left", || {
        super::processes_naming(&scene.path("desk")).is_empty().then_some(())
    });
}

//! Work items with the same id in several queues.

use std::fs;

use crate::{Scene, wait_until};

const TWO: &str = r"
agents:
  - name: a
    runtime: command
    command: [sh, -c, 'exit 3']
    work_source: {type: files, path: qa}
    schedules:
      s: {type: manual}
  - name: b
    runtime: command
    command: [sh, -c, 'exit 3']
    work_source: {type: files, path: qb}
    schedules:
      s: {type: manual}
  - name: c
    runtime: command
    command: ['true']
";

/// Creates two folders with a file of the same name each. The item of `b` was given up.
fn two_queues() -> Scene {
    let scene = Scene::with(TWO);
    for folder in ["qa", "qb"] {
        fs::create_dir(scene.root.join(folder)).unwrap();
        scene.write(&format!("{folder}/t1.md"), &format!("---\ntitle: In {folder}\n---\nText.\n"));
    }
    scene.start();
    scene.json(&["trigger", "b", "s"]);
    wait_until("it is given up", || {
        let items = scene.json(&["work", "list", "--agent", "b"]);
        (items[0]["status"] == "given_up").then_some(())
    });
    scene
}

#[test]
fn item_id_in_several_queues_needs_agent_option() {
    let scene = two_queues();
    for verb in ["show", "claim", "release", "retry", "complete"] {
        let said = scene.run(&["work", verb, "files-t1"]);
        assert_eq!(said.code, Some(5), "{verb}: {}", said.stdout);
        let words = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.ends_with("repeat the command and add `--agent a` or `--agent b`"), "{words}");
        let unknown = scene.run(&["work", verb, "files-t1", "--agent", "bb"]).stderr;
        assert!(unknown.contains("there is no agent bb"), "{unknown}");
        let elsewhere = scene.run(&["work", verb, "files-t1", "--agent", "c"]).stderr;
        let words = elsewhere.split_whitespace().collect::<Vec<_>>().join(" ");
        let advice = "in the queue of c; it is in the queue of a and in the queue of b: repeat the command with \
                      `--agent a` or `--agent b` instead of `--agent c`";
        assert!(words.ends_with(advice), "{words}");
    }
    let advice = "`cowhand work retry files-t1 --agent b` retries it";
    for verb in [&["work", "list"][..], &["status"], &["why", "b/s"]] {
        let said = scene.run(verb).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(advice), "{verb:?}: {said}");
    }
    for agent in ["a", "b"] {
        let retried = scene.run(&["work", "retry", "files-t1", "--agent", agent]);
        let done = if agent == "a" { "is available already" } else { "offered again" };
        assert_eq!(retried.stdout, format!("files-t1 {done}: In q{agent}\n"), "{}", retried.stderr);
        let claimed = scene.run(&["work", "claim", "files-t1", "--agent", agent]);
        assert_eq!(claimed.stdout, format!("files-t1 claimed: In q{agent}\n"), "{}", claimed.stderr);
    }
    let arguments = ["work", "complete", "files-t1", "--agent", "b", "--outcome", "failure"];
    assert_eq!(scene.run(&arguments).stdout, "files-t1 failed: In qb\n");
}

/// The list shows a given-up item as `work show` does.
#[test]
fn work_list_shows_given_up_item_like_work_show() {
    let scene = two_queues();
    let listed = scene.json(&["work", "list", "--agent", "b"])[0].take();
    let shown = scene.json(&["work", "show", "files-t1", "--agent", "b"]);
    assert_eq!(listed["metadata"]["status"], "failed");
    assert_eq!(listed, shown);
}

#[test]
fn work_retry_notes_that_no_schedule_takes_item() {
    let scene = two_queues();
    scene.json(&["schedule", "disable", "b/s"]);
    let said = scene.run(&["work", "retry", "files-t1", "--agent", "b"]);
    assert_eq!(said.stdout, "files-t1 offered again: In qb\n", "{}", said.stderr);
    let note = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(note.contains("b/s is turned off, and `cowhand schedule enable b/s` turns it on"), "{note}");
}

const ONE: &str = r"
agents:
  - name: a
    runtime: command
    command: [sh, -c, 'exit 3']
    work_source: {type: files, path: qa}
    schedules:
      s: {type: manual}
      t: {type: manual, work_source: {type: files, path: qt}}
";

#[test]
fn item_id_in_two_queues_of_agent_needs_queue_option() {
    let scene = Scene::with(ONE);
    for folder in ["qa", "qt"] {
        fs::create_dir(scene.root.join(folder)).unwrap();
        scene.write(&format!("{folder}/t1.md"), &format!("---\ntitle: In {folder}\n---\nText.\n"));
    }
    scene.start();
    let queue = |folder: &str| format!("files {}", scene.root.join(folder).display());
    scene.json(&["trigger", "a", "t"]);
    wait_until("it is given up", || {
        let items = scene.json(&["work", "list", "--queue", &queue("qt")]);
        assert!(items.as_array().unwrap().len() <= 1, "{items}");
        (items[0]["status"] == "given_up").then_some(())
    });
    for named in [&["--agent", "a"][..], &[]] {
        for verb in ["show", "claim", "release", "retry", "complete"] {
            let said = scene.run(&[&["work", verb, "files-t1"], named].concat());
            assert_eq!(said.code, Some(5), "{verb}: {}", said.stdout);
            let words = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            let options = format!("add `--queue '{}'` or `--queue '{}'`", queue("qa"), queue("qt"));
            assert!(words.ends_with(&options), "{words}");
        }
    }
    let listed = scene.run(&["work", "list"]).stdout;
    assert!(listed.contains("QUEUE") && listed.contains(&queue("qa")), "{listed}");
    let advice = format!("`cowhand work retry files-t1 --queue '{}'` retries it", queue("qt"));
    for verb in [&["work", "list"][..], &["status"], &["why", "a/t"]] {
        let said = scene.run(verb).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&advice), "{verb:?}: {said}");
    }
    let on = |verb: &str, folder: &str| scene.run(&["work", verb, "files-t1", "--queue", &queue(folder)]);
    for folder in ["qa", "qt"] {
        assert!(on("show", folder).stdout.contains(&format!("In {folder}")));
        let done = if folder == "qa" { "is available already" } else { "offered again" };
        let retried = on("retry", folder);
        assert_eq!(retried.stdout, format!("files-t1 {done}: In {folder}\n"), "{}", retried.stderr);
        let claimed = on("claim", folder);
        assert_eq!(claimed.stdout, format!("files-t1 claimed: In {folder}\n"), "{}", claimed.stderr);
    }
    assert_eq!(on("release", "qa").stdout, "files-t1 released: In qa\n");
    assert_eq!(on("complete", "qt").stdout, "files-t1 completed: In qt\n");
    let unknown = on("show", "other");
    let said = unknown.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("there is no queue") && said.contains(&queue("qa")), "{said}");
}

/// The job of an item whose work source was replaced in the config still holds the item.
#[test]
fn held_item_of_removed_queue_is_listed_and_shown() {
    let fleet = "
agents:
  - name: a
    runtime: command
    command: [sleep, '600']
    work_source: {type: files, path: qa}
    schedules:
      s: {type: manual}
";
    let scene = Scene::with(fleet);
    for (folder, item) in [("qa", "t1"), ("qa", "t3"), ("qb", "t2")] {
        fs::create_dir_all(scene.root.join(folder)).unwrap();
        scene.write(&format!("{folder}/{item}.md"), &format!("---\ntitle: In {folder}\n---\nText.\n"));
    }
    scene.start();
    let job = scene.json(&["trigger", "a", "s"])["id"].as_str().unwrap().to_owned();
    wait_until("it to run", || (scene.job(&job)["status"] == "running").then_some(()));
    scene.write("cowhand.yaml", &fleet.replace("path: qa", "path: qb"));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    let listed = scene.json(&["work", "list", "--all"]);
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|view| view["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["files-t2", "files-t1"], "{listed:#}");
    assert_eq!((&listed[1]["status"], &listed[1]["held_by"]), (&"claimed".into(), &job.as_str().into()));
    let shown = scene.json(&["work", "show", "files-t1"]);
    assert_eq!(shown, listed[1]);
    // The item that nobody holds is not an item of the fleet any more.
    assert_eq!(scene.run(&["work", "show", "files-t3"]).code, Some(5));
    let released = scene.run(&["work", "release", "files-t1"]);
    assert!(released.stderr.contains(&format!("files-t1 is held by {job}; ")), "{}", released.stderr);
    // Both queues have the item.
    scene.write("qb/t1.md", "---\ntitle: In qb\n---\nText.\n");
    let several = scene.run(&["work", "show", "files-t1"]).stderr;
    let several = several.split_whitespace().collect::<Vec<_>>().join(" ");
    let queue = |folder: &str| format!("files {}", scene.root.join(folder).display());
    let options = format!("add `--queue '{}'` or `--queue '{}'`", queue("qb"), queue("qa"));
    assert!(several.ends_with(&options), "{several}");
    for folder in ["qa", "qb"] {
        let shown = scene.run(&["work", "show", "files-t1", "--queue", &queue(folder)]).stdout;
        assert!(shown.contains(&format!("In {folder}")), "{shown}");
    }
}

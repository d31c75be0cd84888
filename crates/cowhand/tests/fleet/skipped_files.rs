//! Files in the folder of a work source that are not work items.

use super::Scene;

#[test]
fn status_counts_files_that_are_not_items() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    work_source: {type: files, path: q}
    schedules: {s: {type: manual}, t: {type: manual}}
  - {name: b, runtime: command, command: ['true'], schedules: {s: {type: manual}}}
",
    );
    std::fs::create_dir(scene.root.join("q")).unwrap();
    scene.write("q/fine.md", "---\ntitle: Fine\n---\nText.\n");
    let words =
        |arguments: &[&str]| scene.run(arguments).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!words(&["status"]).contains("skipped"));
    scene.write("q/bad name.md", "Text.\n");
    scene.write("q/closed.md", "---\n{status: available}\n---\nText.\n");
    let note = format!(
        "skipped: files {} has 2 files that are not work items; run `cowhand doctor` for the reasons",
        scene.root.join("q").display()
    );
    // With a daemon and without one.
    for _ in 0..2 {
        for verb in [&["status"][..], &["status", "a"], &["why", "a/t"], &["why", "a"]] {
            assert!(words(verb).contains(&note), "{verb:?}: {}", words(verb));
        }
        for verb in [&["status", "b"][..], &["why", "b/s"]] {
            assert!(!words(verb).contains("skipped"), "{verb:?}: {}", words(verb));
        }
        assert_eq!(scene.json(&["status"])["skipped_files"][0]["files"], 2);
        if scene.daemon().is_none() {
            scene.start();
        }
    }
}

/// The agent has a work source, and none of its schedules takes items from it.
#[test]
fn status_and_why_agree_about_files_that_no_schedule_takes() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    work_source: {type: files, path: q}
    schedules: {s: {type: manual, work_source: ~}}
",
    );
    std::fs::create_dir(scene.root.join("q")).unwrap();
    scene.write("q/bad name.md", "Text.\n");
    for verb in [&["status"][..], &["status", "a"], &["why", "a"]] {
        let said = scene.run(verb).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(said.matches("has 1 file that is not a work item").count(), 1, "{verb:?}: {said}");
    }
    assert_eq!(scene.json(&["why", "a"])["skipped_files"][0]["files"], 1);
}

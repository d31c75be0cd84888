//! Output of verbs about firings that are being prepared.

use super::{Scene, wait_until};

/// Returns the output of `why`.
fn why(scene: &Scene, name: &str) -> String {
    scene.run(&["why", name]).stdout
}

#[test]
fn error_of_last_job_is_not_an_error_of_preparation() {
    let scene = Scene::with(
        r"
agents:
  - name: a
    runtime: command
    command: [sh, -c, 'echo oops; exit 3']
    schedules:
      s: {type: interval, interval: 1s, when_command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done; rm go']}
",
    );
    scene.write("go", "");
    scene.start();
    let view = wait_until("the next firing", || {
        let view = scene.json(&["schedule", "show", "a/s"]);
        (view["preparing"] == true && view["last_error"].is_string()).then_some(view)
    });
    assert!(view["prepare_error"].is_null(), "{view}");
    for arguments in [&["status"][..], &["why", "a/s"], &["schedule", "list"]] {
        let shown = scene.run(arguments).stdout;
        assert!(!shown.contains("cannot be prepared") && !shown.contains("not prepared"), "{shown}");
    }
    assert!(why(&scene, "a/s").contains("Its last error: exit code 3"), "{}", why(&scene, "a/s"));
    let disabled = scene.run(&["schedule", "disable", "a/s"]).stdout;
    assert!(!disabled.contains("cannot be prepared"), "{disabled}");
}

#[test]
fn firing_in_preparation_shows_what_it_waits_for() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      slow: {type: interval, interval: 1s, when_command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done; exit 3']}
      gone: {type: interval, interval: 1s, when_command: [no-such-program]}
      away: {type: interval, interval: 1s, work_source: {type: files, path: nowhere}}
      plain: {type: interval, interval: 1s}
",
    );
    scene.start();
    wait_until("all to be prepared", || {
        let shown = ["a/slow", "a/gone", "a/away"].map(|name| scene.json(&["schedule", "show", name]));
        let trouble = |at: usize| shown[at]["last_error"].is_string();
        (shown[0]["preparing"] == true && trouble(1) && trouble(2)).then_some(())
    });
    wait_until("others to run", || {
        let jobs = scene.json(&["jobs", "--schedule", "plain"]);
        (jobs.as_array().unwrap().len() > 1).then_some(())
    });
    let slow = scene.json(&["schedule", "show", "a/slow"]);
    assert_eq!(slow["preparing_by"], "`when_command`");
    assert!(slow["preparing_since"].is_string(), "{slow}");
    let said = why(&scene, "a/slow");
    assert!(
        said.contains("ago, and is being prepared: it waits for the answer of `when_command`."),
        "{said}"
    );
    assert!(!said.contains("previous job"), "{said}");
    let firing = scene.json(&["why", "a/slow"])["firings"][0].take();
    assert_eq!(firing["why"], "it is being prepared: it waits for the answer of `when_command`");
    let said = why(&scene, "a/gone");
    assert!(
        said.contains("Its firing cannot be prepared, and is retried: ") && said.contains("no-such-program"),
        "{said}"
    );
    let said = why(&scene, "a/away");
    assert!(
        said.contains("it waits for the answer of the work source files ") && said.contains("nowhere."),
        "{said}"
    );
    let list = scene.run(&["schedule", "list"]).stdout;
    assert!(list.contains("being prepared: `when_command`"), "{list}");
    // No schedule is shown as both being prepared and running.
    let is_both = |line: &str| line.contains("being prepared") && line.contains("already_running");
    assert!(!list.lines().any(is_both), "{list}");
    scene.write("go", "");
    let firing = wait_until("the command to say no", || {
        let firings = scene.json(&["why", "a/slow", "--limit", "50"])["firings"].take();
        firings.as_array().unwrap().iter().find(|firing| firing["outcome"] == "skipped").cloned()
    });
    assert_eq!(firing["reason"], "filtered");
    assert_eq!(firing["why"], "`when_command` rejected it");
}

/// A firing of the clock that waits for another try of its preparation is skipped after its schedule is turned off.
#[test]
fn firing_of_the_clock_does_not_start_after_its_schedule_is_turned_off() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      gone: {type: interval, interval: 1s, when_command: [no-such-program]}
",
    );
    scene.start();
    wait_until("a failed preparation", || {
        scene.json(&["schedule", "show", "a/gone"])["prepare_error"].is_string().then_some(())
    });
    let said = scene.run(&["schedule", "disable", "a/gone"]).stdout;
    assert!(!said.contains("will start all the same"), "{said}");
    // The pause before the next try may be over already.
    let view = scene.json(&["schedule", "show", "a/gone"]);
    let shown =
        [&["why", "a/gone"][..], &["status"], &["schedule", "list"]].map(|verb| scene.run(verb).stdout);
    if view["preparing"] == true && scene.json(&["schedule", "show", "a/gone"])["preparing"] == true {
        for said in [said].iter().chain(&shown) {
            let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("is skipped at the next try"), "{said}");
            assert!(!words.contains("is retried"), "{said}");
        }
    }
    wait_until("the firing to be skipped", || {
        (scene.json(&["why", "a/gone"])["firings"][0]["reason"] == "disabled").then_some(())
    });
}

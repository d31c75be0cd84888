//! Output of `why` and `status` about disabled schedules, removed checks, and earlier firings.

use super::{Scene, wait_until};

/// Returns the output of `why`.
fn why(scene: &Scene, name: &str) -> String {
    scene.run(&["why", name]).stdout
}

/// Runs a command that a message advises in a shell, as a person would, and returns its exit code.
fn run_in_shell(scene: &Scene, command: &str) -> Option<i32> {
    let arguments = command.strip_prefix("cowhand ").unwrap();
    let line = format!("\"$COWHAND\" -c \"$FLEET\" {arguments}");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &line]).env("COWHAND", env!("CARGO_BIN_EXE_cowhand")).env("FLEET", &scene.root);
    shell.output().unwrap().status.code()
}

/// Returns the command between backticks that contains this text.
fn advised(message: &str, part: &str) -> String {
    let mut commands = message.split('`').filter(|text| text.starts_with("cowhand ") && text.contains(part));
    commands.next_back().unwrap_or_else(|| panic!("{part} in {message}")).to_owned()
}

#[test]
fn advised_commands_work_with_any_name_of_a_schedule() {
    let scene = Scene::with(
        r#"
agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      "x y": {type: manual}
      "it's": {type: manual}
"#,
    );
    scene.start();
    for name in ["a/x y", "a/it's"] {
        assert_eq!(scene.run(&["schedule", "disable", name]).code, Some(0));
        let message = scene.run(&["why", name]).stdout;
        assert_eq!(run_in_shell(&scene, &advised(&message, "schedule enable")), Some(0), "{message}");
        assert_eq!(scene.json(&["schedule", "show", name])["status"], "idle");
        let message = scene.run(&["schedule", "next", name]).stdout;
        assert_eq!(run_in_shell(&scene, &advised(&message, "why")), Some(0), "{message}");
    }
}

#[test]
fn schedule_turned_off_in_file_and_by_person_shows_both() {
    let config = |enabled: bool| {
        format!(
            "agents:\n  - name: a\n    runtime: command\n    command: ['true']\n    schedules:\n      s: \
             {{type: manual, enabled: {enabled}}}\n"
        )
    };
    let scene = Scene::with(&config(true));
    scene.start();
    assert_eq!(scene.run(&["schedule", "disable", "a/s"]).code, Some(0));
    scene.write("cowhand.yaml", &config(false));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    let both = "and by a person; change the file, and then run `cowhand schedule enable a/s`";
    assert!(scene.run(&["why", "a/s"]).stdout.contains(both));
    let refused = scene.run(&["schedule", "enable", "a/s"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains(both), "{}", refused.stderr);
    scene.write("cowhand.yaml", &config(true));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    assert_eq!(scene.run(&["schedule", "enable", "a/s"]).code, Some(0));
    assert_eq!(scene.json(&["schedule", "show", "a/s"])["status"], "idle");
}

/// `when_command` is removed from the config while no daemon runs that could continue the firing.
#[test]
fn firing_does_not_name_removed_when_command() {
    let fleet = "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      s: {type: interval, interval: 1s, when_command: [no-such-program]}
";
    let scene = Scene::with(fleet);
    scene.start();
    wait_until("it to be held up", || {
        scene.json(&["schedule", "show", "a/s"])["last_error"].is_string().then_some(())
    });
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    scene.write("cowhand.yaml", &fleet.replace(", when_command: [no-such-program]", ""));
    let said = why(&scene, "a/s").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(", and it is prepared when a daemon starts. "), "{said}");
    let shown = scene.json(&["schedule", "show", "a/s"]);
    assert!(shown["preparing"] == true && shown["preparing_by"].is_null(), "{shown}");
    let list = scene.run(&["schedule", "list"]).stdout;
    assert!(list.contains("it is prepared when a daemon starts; "), "{list}");
}

#[test]
fn why_explains_waiting_jobs_of_disabled_schedule() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sleep, '600']
    schedules:
      s: {type: manual}
  - name: b
    runtime: command
    command: ['true']
    schedules:
      s: {type: manual, when_command: [no-such-program]}
",
    );
    scene.start();
    let words = |verb: &[&str]| scene.run(verb).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let made = || scene.json(&["trigger", "a", "s"])["id"].as_str().unwrap().to_owned();
    let first = made();
    wait_until("the first to run", || (scene.job(&first)["status"] == "running").then_some(()));
    let second = made();
    assert_eq!(scene.run(&["schedule", "disable", "a/s"]).code, Some(0));
    let advice = "1 waiting job of it will still start; `cowhand cancel --agent a --schedule s --status pending` \
                  cancels the waiting jobs and firings";
    for verb in [&["why", "a/s"][..], &["why", "a"]] {
        let said = words(verb);
        assert!(said.contains("a/s is turned off") && said.contains(advice), "{verb:?}: {said}");
    }
    // The waiting job starts, as the output states, and the advised command cancels the next one.
    scene.run(&["cancel", &first]);
    wait_until("the second to run", || (scene.job(&second)["status"] == "running").then_some(()));
    assert!(!words(&["why", "a/s"]).contains("waiting job"));
    let third = made();
    let said = scene.run(&["cancel", "--agent", "a", "--schedule", "s", "--status", "pending", "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(
        (&scene.job(&third)["status"], &scene.job(&second)["status"]),
        (&"cancelled".into(), &"running".into())
    );
    let _trigger = scene.spawn(&["trigger", "b", "s"]);
    wait_until("its firing to be held up", || {
        words(&["status"]).contains("not prepared: b/s: ").then_some(())
    });
    assert_eq!(scene.run(&["schedule", "disable", "b/s"]).code, Some(0));
    let expected = "1 accepted firing of it will still start; `cowhand cancel --agent b --schedule s --status pending` \
                    cancels the waiting jobs and firings; it cannot be prepared, and is retried: `when_command` of s: ";
    let said = words(&["status"]);
    assert!(said.contains(&format!("turned off: b/s: {expected}")), "{said}");
    assert!(!said.contains("not prepared"), "{said}");
    let said = words(&["schedule", "list"]);
    assert!(said.contains(&format!("disabled {expected}")), "{said}");
    // The advised command works.
    let said = scene.run(&["cancel", "--agent", "b", "--schedule", "s", "--status", "pending", "--yes"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "1 firing cancelled\n"), "{}", said.stderr);
    assert!(!words(&["status"]).contains("b/s"));
}

#[test]
fn disable_counts_waiting_jobs_beside_firing_in_preparation() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sleep, '600']
    schedules:
      s: {type: manual, when_command: [sh, -c, 'while [ -e hold ]; do sleep 0.05; done']}
",
    );
    scene.start();
    let job = scene.json(&["trigger", "a", "s"])["id"].as_str().unwrap().to_owned();
    wait_until("the first to run", || (scene.job(&job)["status"] == "running").then_some(()));
    scene.json(&["trigger", "a", "s"]);
    scene.write("hold", "");
    let _trigger = scene.spawn(&["trigger", "a", "s"]);
    wait_until("its firing", || {
        (scene.json(&["schedule", "show", "a/s"])["preparing"] == true).then_some(())
    });
    let expected = "disabled: 1 waiting job and 1 accepted firing of it will still start; `cowhand cancel";
    for verb in [&["schedule", "disable", "a/s"][..], &["schedule", "show", "a/s"], &["schedule", "list"]] {
        let said = scene.run(verb).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(expected), "{verb:?}: {said}");
    }
}

/// The jobs of the schedule waited for the end of the pause. Now they wait until the schedule is enabled.
#[test]
fn schedule_disabled_during_pause_holds_its_jobs() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'sleep 1.5; exit 1']
    breaker: {failures: 2, pause: 1h}
    schedules:
      s: {type: cron, cron: '* * * * * *', overlap: queue}
",
    );
    scene.start();
    wait_until("the pause, with jobs that wait", || {
        let shown = scene.json(&["schedule", "show", "a/s"]);
        (shown["status"] == "paused" && shown["jobs_waiting"].as_u64() > Some(0)).then_some(())
    });
    assert_eq!(scene.run(&["schedule", "disable", "a/s"]).code, Some(0));
    let said = why(&scene, "a/s").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("a/s is turned off; `cowhand schedule enable a/s` turns it on."), "{said}");
    let expected = "of it will not start until it is on again: its schedule was disabled during its pause, or before its \
                    probe had completed.";
    assert!(said.contains(expected) && !said.contains("all the same"), "{said}");
}

#[test]
fn why_mentions_earlier_firings() {
    let scene = Scene::with(
        "agents: [{name: a, runtime: command, command: ['true'], schedules: {s: {type: manual}}}]",
    );
    scene.start();
    for _ in 0..4 {
        scene.json(&["trigger", "a", "s"]);
    }
    for (verb, more) in [
        (&["why", "a"][..], Some("Earlier firings: `cowhand why a/s`\n")),
        (&["why", "a", "--limit", "4"], None),
        (&["why", "a/s"], None),
        (&["why", "a/s", "--limit", "2"], Some("Earlier firings: `cowhand why a/s --limit 20`\n")),
    ] {
        let said = scene.run(verb).stdout;
        assert_eq!(said.contains("Earlier firings"), more.is_some(), "{verb:?}: {said}");
        assert!(more.is_none_or(|more| said.ends_with(more)), "{verb:?}: {said}");
    }
    let json = scene.json(&["why", "a"]);
    assert_eq!(json["schedules"][0]["firings"].as_array().unwrap().len(), 3);
    assert_eq!(json["schedules"][0]["has_more"], true, "{json}");
    assert_eq!(scene.json(&["why", "a/s", "--limit", "2"])["has_more"], true);
    assert_eq!(scene.json(&["why", "a/s"])["has_more"], false);
}

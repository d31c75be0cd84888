//! Agents and schedules that were removed from the config: their jobs are still shown, with a note about the removal.

use serde_json::{Value, json};

use super::api::ask;
use super::{FLEET, Running, Scene, wait_until};

pub(super) const OTHER: &str = "agents: [{name: other, runtime: command, command: ['true']}]";

pub(super) fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One agent has a running job, the other only ended jobs.
#[test]
fn removed_agent_is_shown_with_its_jobs() {
    let scene = Scene::started();
    let ended = scene.json(&["trigger", "worker", "tidy", "--wait"])["id"].as_str().unwrap().to_owned();
    let (running, _) = scene.waiting_job();
    scene.write("cowhand.yaml", OTHER);
    scene.run(&["reload"]);
    let verbs: [(&[&str], &str); 6] = [
        (&["status", "waiter"], &running),
        (&["why", "waiter"], &running),
        (&["status", "worker"], &ended),
        (&["why", "worker"], &ended),
        (&["why", "worker/tidy"], &ended),
        (&["schedule", "show", "worker/tidy"], &ended),
    ];
    for (verb, job) in verbs {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(0), "{verb:?}: {}{}", said.stdout, said.stderr);
        let text = words(&said.stdout);
        assert!(text.contains("is not in the config any more"), "{verb:?}: {text}");
        assert!(text.contains(job), "{verb:?}: {text}");
        let json = scene.json(verb);
        assert_eq!((&json["in_config"], &json["jobs"][0]["id"]), (&false.into(), &job.into()), "{verb:?}");
    }
    for verb in [["status", "waiter"], ["why", "waiter"]] {
        let said = words(&scene.run(&verb).stdout);
        assert!(said.contains("`cowhand cancel --agent waiter`"), "{verb:?}: {said}");
    }
    // Refused verbs give the reason, and do not refer to a list without the agent.
    for verb in [&["trigger", "worker"][..], &["schedule", "enable", "worker/tidy"], &["retry", &ended]] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(5), "{verb:?}: {}{}", said.stdout, said.stderr);
        let text = words(&said.stderr);
        assert!(text.contains("worker is not in the config any more"), "{verb:?}: {text}");
        assert!(text.contains("`cowhand why worker`"), "{verb:?}: {text}");
    }
    let answer = ask(&scene, "GET", "agents/worker", "");
    assert!(answer.contains("404 Not Found") && answer.contains("not in the config any more"), "{answer}");
    // An agent that never existed is still an error.
    for verb in [&["status", "nobody"][..], &["schedule", "show", "nobody/tidy"], &["why", "worker/never"]] {
        assert_eq!(scene.run(verb).code, Some(5), "{verb:?}");
    }
    // The advised command works.
    assert_eq!(scene.run(&["cancel", "--agent", "waiter", "--yes"]).code, Some(0));
    wait_until("its end", || (!scene.job(&running)["finished_at"].is_null()).then_some(()));
}

#[test]
fn removed_schedule_is_shown_with_its_jobs() {
    let scene = Scene::started();
    let id = scene.json(&["trigger", "worker", "tidy", "--wait"])["id"].as_str().unwrap().to_owned();
    scene.write("cowhand.yaml", &FLEET.replace("      tidy: {type: manual, prompt: Tidy up.}\n", ""));
    scene.run(&["reload"]);
    for verb in [&["why", "worker/tidy"][..], &["schedule", "show", "worker/tidy"]] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(0), "{verb:?}: {}", said.stderr);
        let text = words(&said.stdout);
        assert!(text.contains("worker/tidy is not in the config any more"), "{verb:?}: {text}");
        assert!(text.contains(&id), "{verb:?}: {text}");
    }
}

/// Every verb names the reason, and each change that it advises makes the verb work.
#[test]
fn verbs_for_a_removed_schedule_give_advice_that_works() {
    let scene = Scene::started();
    let id = scene.json(&["trigger", "worker", "tidy", "--wait"])["id"].as_str().unwrap().to_owned();
    let without = FLEET.replace("      tidy: {type: manual, prompt: Tidy up.}\n", "");
    scene.write("cowhand.yaml", &without);
    scene.run(&["reload"]);
    let verbs: [&[&str]; 7] = [
        &["retry", &id],
        &["fork", &id],
        &["fork", &id, "--schedule", "tidy"],
        &["trigger", "worker", "tidy"],
        &["schedule", "enable", "worker/tidy"],
        &["schedule", "disable", "worker/tidy"],
        &["schedule", "next", "worker/tidy"],
    ];
    for verb in verbs {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(5), "{verb:?}: {}{}", said.stdout, said.stderr);
        let expected = "the schedule worker/tidy is not in the config any more; put it back under this name, or \
                        continue its history in another schedule of worker, with `adopt: tidy`; `cowhand why worker/tidy` shows its jobs";
        let text = words(&said.stderr);
        assert!(text.contains(expected) && !text.contains("schedule list"), "{verb:?}: {text}");
    }
    assert!(scene.run(&["why", "worker/tidy"]).stdout.contains(&id));
    // A removed schedule is no suggestion for a verb that refuses it.
    let said = words(&scene.run(&["trigger", "worker", "tidi"]).stderr);
    assert!(said.contains("worker has no schedule tidi; `cowhand schedule list`"), "{said}");
    scene.write("cowhand.yaml", FLEET);
    scene.run(&["reload"]);
    assert_eq!(scene.run(&["retry", &id, "--wait"]).code, Some(0));
    scene.write("cowhand.yaml", &without.replace("{type: cron,", "{type: cron, adopt: tidy,"));
    scene.run(&["reload"]);
    let said = scene.run(&["retry", &id, "--wait"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(scene.job(&id)["schedule"], "nightly");
}

/// One job that cannot be retried does not keep the others from being retried.
#[test]
fn many_jobs_are_retried_although_the_schedule_of_one_was_removed() {
    let fleet = "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'exit 7']
    schedules:
      gone: {type: manual}
      stays: {type: manual}
";
    let scene = Scene::with(fleet);
    scene.start();
    let failed = ["gone", "stays"].map(|schedule| {
        assert_eq!(scene.run(&["trigger", "a", schedule, "--wait"]).code, Some(1));
        scene.json(&["jobs", "--schedule", schedule])[0]["id"].as_str().unwrap().to_owned()
    });
    scene.write("cowhand.yaml", &fleet.replace("      gone: {type: manual}\n", ""));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    let said = scene.run(&["retry", "--status", "failed", "--yes"]);
    assert_eq!(said.code, Some(5), "{}{}", said.stdout, said.stderr);
    let expected = format!("{} is not retried: the schedule a/gone is not in the config any more", failed[0]);
    assert!(words(&said.stderr).contains(&expected), "{}", said.stderr);
    assert!(said.stdout.ends_with("1 job retried\n"), "{}", said.stdout);
    assert_eq!(scene.json(&["jobs"])[0]["retry_of"], failed[1].as_str());
}

/// Only a firing without a job is left of the agent, and `jobs` would list nothing.
#[test]
fn verbs_for_a_removed_agent_name_a_verb_that_shows_what_is_left() {
    let scene = Scene::with(STUCK);
    scene.start();
    assert_eq!(scene.run(&["trigger", "a", "checked"]).code, Some(0));
    scene.write("cowhand.yaml", OTHER);
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    for verb in [&["trigger", "a"][..], &["schedule", "disable", "a/checked"], &["clear", "a"]] {
        let said = scene.run(verb);
        let text = words(&said.stderr);
        assert_eq!(said.code, Some(5), "{verb:?}: {text}");
        assert!(
            text.contains("put it back under this name to use it; `cowhand why a` shows"),
            "{verb:?}: {text}"
        );
    }
    assert!(scene.run(&["why", "a"]).stdout.contains("1 accepted firing without a job"));
    // A removed agent is no suggestion for a verb that refuses it.
    let said = words(&scene.run(&["trigger", "aa"]).stderr);
    assert!(!said.contains("did you mean a?"), "{said}");
}

/// The advice to cancel or to fork is given only if a retry, or a fork, is possible then.
#[test]
fn a_retry_of_a_job_that_has_not_ended_advises_what_is_possible() {
    let scene = Scene::with(&format!(
        "{FLEET}  - {{name: reader, runtime: gemini, default_prompt: Read., schedules: {{s: {{type: manual}}}}}}\n"
    ));
    let bin = scene.root.join("bin");
    std::fs::create_dir(&bin).unwrap();
    scene.write("bin/gemini", "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n");
    std::fs::set_permissions(bin.join("gemini"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    assert!(scene.command(&["start", "-d", "--no-server"]).env("PATH", path).status().unwrap().success());
    let cannot_fork = scene.json(&["trigger", "reader", "s"])["id"].as_str().unwrap().to_owned();
    wait_until("the reader to run", || (scene.job(&cannot_fork)["status"] == "running").then_some(()));
    let (can_fork, _) = scene.waiting_job();
    for (job, advice) in [(&cannot_fork, "; cancel it first"), (&can_fork, "; cancel it first, or fork it")] {
        let said = scene.run(&["retry", job]);
        assert_eq!(said.code, Some(5), "{}", said.stderr);
        assert!(words(&said.stderr).ends_with(&format!("{job} is running{advice}")), "{}", said.stderr);
    }
    scene.write("cowhand.yaml", OTHER);
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    for verb in ["retry", "fork"] {
        let text = words(&scene.run(&[verb, &can_fork]).stderr);
        assert!(text.contains("waiter is not in the config any more"), "{verb}: {text}");
        assert!(!text.contains("cancel"), "{verb}: {text}");
    }
    scene.go();
}

pub(super) const STUCK: &str = "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      checked: {type: manual, when_command: [no-such-program]}
      other: {type: manual}
";

/// Only the store knows whether the former name is right, so `config check` accepts it and `reload` reports it.
#[test]
fn reload_reports_adoption_of_unknown_schedule() {
    let scene = Scene::started();
    for (former, is_known) in [("worker/tdiy", false), ("worker/tdiy", false), ("worker/tidy", true)] {
        let schedule = format!("neat: {{type: manual, prompt: x, adopt: {former}}}");
        let agent = OTHER.replace("['true']", &format!("['true'], schedules: {{{schedule}}}"));
        scene.write("cowhand.yaml", &agent);
        assert_eq!(scene.run(&["config", "check"]).code, Some(0));
        let said = scene.run(&["reload"]);
        assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
        let note =
            "other/neat took over no history: its `adopt` names worker/tdiy, which the store does not know";
        assert_eq!(words(&said.stderr).contains(note), !is_known, "{former}: {}", said.stderr);
        let notes = if is_known { json!([]) } else { json!([note]) };
        assert_eq!(scene.json(&["reload"])["notes"], notes, "{former}");
        for verb in [&["why", "other/neat"][..], &["why", "other"], &["doctor"]] {
            let said = words(&scene.run(verb).stdout);
            assert_eq!(said.contains(note), !is_known, "{verb:?}: {said}");
        }
    }
}

/// The firing was accepted, so it is shown until it runs.
#[test]
fn firing_without_job_is_shown_after_removal_of_schedule_or_agent() {
    let scene = Scene::with(STUCK);
    scene.start();
    let told = std::fs::File::create(scene.root.join("told")).unwrap();
    let trigger = Running::of(scene.command(&["trigger", "a", "checked", "--wait"]).stderr(told));
    let noted = || std::fs::read_to_string(scene.root.join("told")).unwrap();
    wait_until("a note about what it waits for", || {
        let noted = words(&noted());
        (noted.contains("the schedule waits: its firing cannot be prepared")
            && noted.contains("no-such-program"))
        .then_some(())
    });
    let without = STUCK.replace("      checked: {type: manual, when_command: [no-such-program]}\n", "");
    scene.write("cowhand.yaml", &without);
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    assert_eq!(trigger.end().code, Some(5), "{}", noted());
    let expected = "a/checked was removed from the config before its firing had a job";
    assert!(words(&noted()).contains(expected), "{}", noted());
    let expected = "not in the config: a/checked: 1 accepted firing without a job waiting; the schedule a/checked is not in \
                    the config any more; put it back under this name, or continue its history in another schedule of a, \
                    with `adopt: checked`; `cowhand cancel --agent a --schedule checked --status pending` cancels the waiting jobs and firings";
    for verb in [&["status"][..], &["status", "a"], &["why", "a"], &["why", "a/checked"]] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(0), "{verb:?}: {}", said.stderr);
        assert!(words(&said.stdout).contains(expected), "{verb:?}: {}", said.stdout);
    }
    assert_eq!(scene.json(&["status"])["gone_schedules"][0]["firings"], 1);
    assert_eq!(scene.json(&["why", "a"])["gone_schedules"][0]["schedule"], "checked");
    assert_eq!(scene.json(&["why", "a/checked"])["gone_schedule"]["firings"], 1);
    scene.write("cowhand.yaml", OTHER);
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    for verb in [&["status"][..], &["status", "a"], &["why", "a"], &["why", "a/checked"]] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(0), "{verb:?}: {}", said.stderr);
        let expected = "not in the config: jobs of a: 0 running, 0 waiting, 1 accepted firing without a job; the agent a";
        assert!(words(&said.stdout).contains(expected), "{verb:?}: {}", said.stdout);
    }
    // The advised change works.
    let adopted = without.replace("{type: manual}", "{type: manual, adopt: checked}");
    scene.write("cowhand.yaml", &adopted);
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    wait_until("the firing to run", || {
        (scene.json(&["jobs", "--schedule", "other"])[0]["status"] == "completed").then_some(())
    });
    assert!(!words(&scene.run(&["status"]).stdout).contains("not in the config"));
}

/// The firing is stored, and nobody has to wait for its job.
#[test]
fn trigger_returns_although_firing_cannot_be_prepared() {
    let scene = Scene::with(STUCK);
    scene.start();
    let said = scene.run(&["trigger", "a", "checked"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    let text = words(&said.stdout);
    assert!(text.starts_with("a/checked: the firing manual:"), "{text}");
    let expected = "was accepted, and has no job yet: its firing cannot be prepared, and is retried: ";
    assert!(text.contains(expected) && text.contains("no-such-program"), "{text}");
    let advice = "`cowhand why a/checked` shows it, `cowhand cancel --agent a --schedule checked` cancels the jobs and firings of this schedule";
    assert!(text.contains(advice), "{text}");
    let accepted = scene.json(&["trigger", "a", "checked", "--idempotency-key", "mine"]);
    assert_eq!(
        (
            &accepted["agent"],
            &accepted["schedule"],
            &accepted["firing"],
            &accepted["status"],
            &accepted["id"]
        ),
        (&"a".into(), &"checked".into(), &"manual:mine".into(), &"preparing".into(), &Value::Null),
        "{accepted}"
    );
    assert!(accepted["waits"].as_str().unwrap().contains("no-such-program"), "{accepted}");
    // After an interrupt, a note states that the firing stays.
    let told = std::fs::File::create(scene.root.join("told")).unwrap();
    let trigger = Running::of(scene.command(&["trigger", "a", "checked", "--wait"]).stderr(told));
    let noted = || words(&std::fs::read_to_string(scene.root.join("told")).unwrap());
    wait_until("a note about what it waits for", || noted().contains("the schedule waits: ").then_some(()));
    trigger.interrupt();
    assert_eq!(trigger.end().code, Some(130), "{}", noted());
    let expected = format!("note: an accepted firing of a/checked is kept; {advice}");
    assert!(noted().contains(&expected), "{}", noted());
    // All three firings run as soon as they can be prepared.
    scene.write("cowhand.yaml", &STUCK.replace("no-such-program", "'true'"));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    wait_until("the firings to run", || {
        let jobs = scene.json(&["jobs", "--schedule", "checked", "--status", "completed"]);
        (jobs.as_array().unwrap().len() == 3).then_some(())
    });
}

/// Runs the advised commands for a removed schedule and for a removed agent.
#[test]
fn firings_of_removed_schedule_or_agent_can_be_cancelled() {
    let scene = Scene::with(STUCK);
    scene.start();
    let without = STUCK.replace("      checked: {type: manual, when_command: [no-such-program]}\n", "");
    for (rest, filter) in [(without.as_str(), &["--schedule", "checked"][..]), (OTHER, &[])] {
        let trigger = scene.spawn(&["trigger", "a", "checked", "--wait"]);
        wait_until("it to be held up", || {
            scene.run(&["status"]).stdout.contains("not prepared: a/checked").then_some(())
        });
        scene.write("cowhand.yaml", rest);
        assert_eq!(scene.run(&["reload"]).code, Some(0));
        assert_eq!(trigger.end().code, Some(5));
        let said = scene.run(&[&["cancel", "--agent", "a"], filter].concat());
        assert_eq!(said.code, Some(2), "{}", said.stdout);
        assert!(said.stderr.contains("1 firing matches; give `--yes` to cancel it"), "{}", said.stderr);
        let said = scene.run(&[&["cancel", "--agent", "a", "--yes"], filter].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "1 firing cancelled\n"), "{}", said.stderr);
        assert!(!scene.run(&["status"]).stdout.contains("not in the config"));
        scene.write("cowhand.yaml", STUCK);
        assert_eq!(scene.run(&["reload"]).code, Some(0));
        let firing = scene.json(&["why", "a/checked"])["firings"][0].take();
        assert_eq!(
            (&firing["outcome"], &firing["reason"]),
            (&"skipped".into(), &"cancelled".into()),
            "{firing}"
        );
        assert_eq!(firing["why"], "somebody cancelled it before it had a job");
    }
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 0);
}

/// Every filter by names finds the firings of schedules that are in the config, and of schedules that were removed.
#[test]
fn name_filters_cancel_firings_without_job() {
    let fleet = "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      checked: {type: manual, when_command: [no-such-program]}
      often: {type: interval, interval: 1h, when_command: [no-such-program]}
";
    let without = fleet.replace("      checked: {type: manual, when_command: [no-such-program]}\n", "");
    let scene = Scene::with(fleet);
    scene.start();
    let of_agent: &[&str] = &["--agent", "a", "--schedule", "checked"];
    let filters: [&[&str]; 4] =
        [&["--schedule", "a/checked"], &["--schedule", "checked"], of_agent, &["--agent", "a"]];
    for (config, filter) in
        [fleet, without.as_str(), OTHER].into_iter().flat_map(|config| filters.map(|of| (config, of)))
    {
        let case = format!("{filter:?} with {config}");
        scene.write("cowhand.yaml", fleet);
        assert_eq!(scene.run(&["reload"]).code, Some(0));
        let trigger = scene.spawn(&["trigger", "a", "checked", "--wait"]);
        wait_until("it to be accepted", || {
            (scene.json(&["why", "a/checked"])["firings"][0]["outcome"] == "preparing").then_some(())
        });
        let key = scene.json(&["why", "a/checked"])["firings"][0]["key"].take();
        scene.write("cowhand.yaml", config);
        assert_eq!(scene.run(&["reload"]).code, Some(0));
        let said = scene.json(&[&["cancel", "--yes"], filter].concat());
        let cancelled = said.as_array().unwrap();
        let expected = json!({"firing": key, "agent": "a", "schedule": "checked", "status": "cancelled"});
        assert!(cancelled.contains(&expected), "{case}: {said}");
        assert!(cancelled.iter().all(|firing| firing["id"].is_null()), "{case}: {said}");
        assert_eq!(trigger.end().code, Some(5), "{case}");
        let shown = scene.run(&["status"]).stdout;
        assert!(!shown.contains("not in the config") && !shown.contains("a/checked"), "{case}: {shown}");
    }
    // The firing of the interval was cancelled with its agent. It never ran, and the interval counts from the
    // cancellation.
    scene.write("cowhand.yaml", fleet);
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    let often = scene.json(&["why", "a/often"]);
    assert_eq!(often["firings"][0]["reason"], "cancelled", "{often}");
    assert!(often["schedule"]["last_run_at"].is_null(), "{often}");
    assert!(often["schedule"]["next_run_at"].is_string(), "{often}");
}

#[test]
fn verbs_agree_about_waiting_jobs_of_removed_schedule() {
    let fleet = "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']
    schedules:
      stays: {type: manual}
      left: {type: manual}
";
    let scene = Scene::with(fleet);
    scene.start();
    let made = |schedule: &str| scene.json(&["trigger", "a", schedule])["id"].as_str().unwrap().to_owned();
    let first = made("stays");
    wait_until("the first to run", || (scene.job(&first)["status"] == "running").then_some(()));
    let waits = made("left");
    scene.write("cowhand.yaml", &fleet.replace("      left: {type: manual}\n", ""));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    let advice = "`cowhand cancel --agent a --schedule left";
    for verb in [&["status"][..], &["status", "a"], &["why", "a"], &["why", "a/left"]] {
        let text = words(&scene.run(verb).stdout);
        assert!(
            text.contains("not in the config: a/left: 1 job waiting; the schedule a/left"),
            "{verb:?}: {text}"
        );
        assert!(text.contains(advice), "{verb:?}: {text}");
        assert_eq!(text.matches("is not in the config any more").count(), 1, "{verb:?}: {text}");
    }
    // The advised command works.
    let said = scene.run(&["cancel", "--agent", "a", "--schedule", "left", "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(scene.job(&waits)["status"], "cancelled");
    scene.go();
}

#[test]
fn retry_of_removed_schedule_has_no_time() {
    let fleet = "agents:
  - name: a
    runtime: command
    command: ['false']
    schedules:
      stays: {type: manual}
      left: {type: manual, retry: {max_attempts: 3, backoff: 1h}}
";
    let scene = Scene::with(fleet);
    scene.start();
    let job = scene.json(&["trigger", "a", "left"])["id"].as_str().unwrap().to_owned();
    wait_until("the retry", || (scene.job(&job)["waits"]["reason"] == "requeued").then_some(()));
    assert!(scene.run(&["job", &job]).stdout.contains("next attempt"));
    for config in [
        fleet.replace("      left: {type: manual, retry: {max_attempts: 3, backoff: 1h}}\n", ""),
        OTHER.to_owned(),
    ] {
        scene.write("cowhand.yaml", &config);
        assert_eq!(scene.run(&["reload"]).code, Some(0));
        assert_eq!(scene.job(&job)["waits"]["reason"], "removed");
        assert_eq!(scene.json(&["jobs"])[0]["waits"]["reason"], "removed");
        let shown = scene.run(&["job", &job]).stdout;
        assert!(!shown.contains("next attempt"), "{shown}");
        for verb in [&["job", &job][..], &["status"], &["why", "a/left"]] {
            let text = words(&scene.run(verb).stdout);
            assert!(text.contains("in the config") && !text.contains("in 59m"), "{verb:?}: {text}");
        }
    }
}

/// Commands in messages of the daemon and in those of verbs have the same `-c`.
#[test]
fn advice_names_config_of_the_command() {
    let scene = Scene::new();
    std::fs::create_dir(scene.root.join("my fleet")).unwrap();
    scene.write("my fleet/cowhand.yaml", &format!("{FLEET}\nserver: {{enabled: false}}\n"));
    let run = |verb: &[&str]| scene.run(&[&["-c", "my fleet/cowhand.yaml"], verb].concat());
    assert_eq!(run(&["start", "-d", "--no-server"]).code, Some(0));
    assert_eq!(run(&["schedule", "disable", "worker/nightly"]).code, Some(0));
    let verbs: [&[&str]; 11] = [
        &["job", "job-2026-01-01-nosuch"],
        &["status", "nobody"],
        &["schedule", "show", "worker/nothing"],
        &["why", "worker/nightly"],
        &["why", "waiter"],
        &["token", "list"],
        &["logs"],
        &["start", "-d"],
        &["trigger", "worker", "nothing"],
        &["schedule", "next", "worker/nightly"],
        &["asks", "job-2026-01-01-nosuch.1"],
    ];
    for verb in verbs {
        let said = run(verb);
        let text = words(&format!("{}{}", said.stdout, said.stderr));
        assert!(text.contains("`cowhand -c 'my fleet/cowhand.yaml' "), "{verb:?}: {text}");
        for (at, _) in text.match_indices("`cowhand ") {
            assert!(text[at..].starts_with("`cowhand -c 'my fleet/cowhand.yaml' "), "{verb:?}: {text}");
        }
    }
    assert_eq!(run(&["stop"]).code, Some(0));
    for verb in [&["status"][..], &["trigger", "worker"], &["why", "worker/tidy"]] {
        let said = run(verb);
        let text = words(&format!("{}{}", said.stdout, said.stderr));
        assert!(text.contains("`cowhand -c 'my fleet/cowhand.yaml' start -d`"), "{verb:?}: {text}");
    }
    // Text of an agent stays unchanged.
    assert_eq!(run(&["start", "-d", "--no-server"]).code, Some(0));
    let said = run(&["trigger", "worker", "-p", "run `cowhand jobs` now", "--wait"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let said = run(&["logs", "worker"]).stdout;
    assert!(said.contains("run `cowhand jobs` now"), "{said}");
    let said = words(&run(&["job", &said_job(&scene)]).stdout);
    assert!(said.contains("run `cowhand jobs` now"), "{said}");
    assert_eq!(run(&["stop"]).code, Some(0));
}

fn said_job(scene: &Scene) -> String {
    scene.json(&["-c", "my fleet/cowhand.yaml", "jobs"])[0]["id"].as_str().unwrap().to_owned()
}

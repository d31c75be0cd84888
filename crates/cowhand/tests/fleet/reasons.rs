//! The reasons why a schedule does not fire, and their messages.

use super::{Scene, wait_until};

/// Returns the output of `why`.
fn why(scene: &Scene, name: &str) -> String {
    scene.run(&["why", name]).stdout
}

#[test]
fn fired_delay_is_finished() {
    let config = |time: &str| {
        format!(
            "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      once: {{type: delay, run_at: '{time}'}}
"
        )
    };
    let scene = Scene::with(&config("2020-01-01T00:00:00Z"));
    scene.start();
    let job = wait_until("it to fire", || {
        let jobs = scene.json(&["jobs"]);
        (jobs[0]["status"] == "completed").then(|| jobs[0]["id"].as_str().unwrap().to_owned())
    });
    let shown = scene.json(&["schedule", "show", "a/once"]);
    assert_eq!((&shown["status"], &shown["skip_reason"]), (&"finished".into(), &"not_due".into()));
    let said = why(&scene, "a/once");
    assert!(said.contains("a/once has finished: it fired ") && said.contains(&job), "{said}");
    assert!(!said.contains("schedule enable"), "{said}");
    let refused = scene.run(&["schedule", "enable", "a/once"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("`cowhand trigger a once` runs it again"), "{}", refused.stderr);
    // `enable` takes back a `disable`, but does not fire the schedule again.
    scene.run(&["schedule", "disable", "a/once"]);
    assert_eq!(scene.run(&["schedule", "enable", "a/once"]).code, Some(0));
    assert_ne!(scene.run(&["schedule", "enable", "a/once"]).code, Some(0));
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 1);
    scene.write("cowhand.yaml", &config("2020-01-02T00:00:00Z"));
    wait_until("the new time to fire", || {
        (scene.json(&["jobs"]).as_array().unwrap().len() == 2).then_some(())
    });
}

/// A person disables the delay before its time, and enables it after its time.
#[test]
fn delay_whose_time_passed_while_it_was_off_does_not_run() {
    let config = |time: &str, enabled: &str| {
        format!(
            "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      once: {{type: delay, run_at: '{time}'}}
      in-file: {{type: delay, run_at: '2020-01-01T00:00:00Z', enabled: {enabled}}}
"
        )
    };
    let time = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3)).to_string();
    let scene = Scene::with(&config(&time, "false"));
    scene.start();
    assert_eq!(scene.run(&["schedule", "disable", "a/once"]).code, Some(0));
    let due: jiff::Timestamp = time.parse().unwrap();
    wait_until("its time to pass", || (jiff::Timestamp::now() > due).then_some(()));
    let enabled = scene.run(&["schedule", "enable", "a/once"]);
    assert_eq!(enabled.code, Some(0), "{}", enabled.stderr);
    assert!(enabled.stdout.contains("finished"), "{}", enabled.stdout);
    scene.write("cowhand.yaml", &config(&time, "true"));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    for name in ["once", "in-file"] {
        let of = format!("a/{name}");
        let shown = scene.json(&["schedule", "show", &of]);
        assert_eq!(
            (&shown["status"], &shown["over"], &shown["next_run_at"]),
            (&"finished".into(), &true.into(), &serde_json::Value::Null),
            "{shown:#}"
        );
        let said = why(&scene, &of).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&format!("{of} has finished: its time (20")), "{said}");
        assert!(
            said.contains(") passed while it was off, so it does not fire; `cowhand trigger a"),
            "{said}"
        );
        assert!(!said.contains("never been due") && !said.contains("it fired"), "{said}");
        let next = scene.run(&["schedule", "next", &of]).stdout;
        assert!(next.contains("has no next firing: its time (20"), "{next}");
        let refused = scene.run(&["schedule", "enable", &of]);
        assert_ne!(refused.code, Some(0));
        assert!(refused.stderr.contains("passed while it was off"), "{}", refused.stderr);
    }
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 0);
    assert_eq!(scene.run(&["trigger", "a", "once", "--wait"]).code, Some(0));
    // A new time arms it again.
    scene.write("cowhand.yaml", &config("2020-01-02T00:00:00Z", "true"));
    wait_until("the new time to fire", || {
        (scene.json(&["jobs"]).as_array().unwrap().len() == 2).then_some(())
    });
    assert_eq!(scene.json(&["schedule", "show", "a/in-file"])["status"], "finished");
}

#[test]
fn delay_with_running_job_does_not_wait() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']
    schedules:
      once: {type: delay, run_at: '2020-01-01T00:00:00Z'}
",
    );
    scene.start();
    wait_until("it to run", || (scene.json(&["jobs"])[0]["status"] == "running").then_some(()));
    let said = why(&scene, "a/once");
    assert!(said.contains("a/once is running now.") && said.contains("a `delay` fires once."), "{said}");
    assert!(!said.contains("It waits"), "{said}");
    scene.write("go", "");
}

#[test]
fn why_names_each_calendar_key() {
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let tomorrow = today.tomorrow().unwrap();
    let scene = Scene::with(&format!(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      later: {{type: interval, interval: 1s, start_at: '2090-01-01T00:00:00Z'}}
      holiday: {{type: interval, interval: 1s, exclude_dates: ['{today}', '{tomorrow}']}}
      ticks: {{type: cron, cron: '* * * * * *', timezone: UTC, exclude_dates: ['{today}', '{tomorrow}']}}
      daily: {{type: cron, cron: '0 12 * * *', timezone: UTC, exclude_dates: ['{today}', '{tomorrow}']}}
      month: {{type: cron, cron: '0 12 * * *', timezone: UTC, start_at: '2090-01-01T00:00:00Z'}}
      hook: {{type: webhook, allow_unsigned: true, start_at: '2090-01-01T00:00:00Z'}}
      over: {{type: webhook, allow_unsigned: true, end_at: '2020-01-01T00:00:00Z'}}
      past: {{type: interval, interval: 1h, end_at: '2020-01-01T00:00:00Z'}}
      once: {{type: delay, run_at: '2020-01-01T00:00:00Z', exclude_dates: ['{today}', '{tomorrow}']}}
      never: {{type: delay, in: 1s, end_at: '2020-01-01T00:00:00Z'}}
",
    ));
    scene.start();
    wait_until("the holiday to hold it", || {
        (scene.json(&["schedule", "show", "a/holiday"])["skip_reason"] == "outside_hours").then_some(())
    });
    let later = scene.json(&["schedule", "show", "a/later"]);
    assert_eq!((&later["skip_reason"], &later["due_since"]), (&"not_due".into(), &serde_json::Value::Null));
    let said = why(&scene, "a/later");
    assert!(
        said.contains("It is not due: nothing is due before its `start_at` (2090-01-01T00:00:00Z)."),
        "{said}"
    );
    let said = why(&scene, "a/holiday");
    assert!(said.contains("and waits: the day is one of its `exclude_dates`."), "{said}");
    assert!(said.contains("It has not fired yet.") && !said.contains("never been due"), "{said}");
    wait_until("the holiday to hold the delay", || {
        (scene.json(&["schedule", "show", "a/once"])["skip_reason"] == "outside_hours").then_some(())
    });
    let said = why(&scene, "a/once");
    assert!(said.contains("and waits: the day is one of its `exclude_dates`."), "{said}");
    let said = why(&scene, "a/never");
    assert!(said.contains("a/never has finished: its `end_at` has passed."), "{said}");
    let said = why(&scene, "a/daily");
    assert!(
        said.contains("T12:00:00Z is skipped: the day is one of its `exclude_dates`. It fires next"),
        "{said}"
    );
    let daily = scene.json(&["schedule", "show", "a/daily"]);
    assert_eq!((&daily["skip_reason"], &daily["skip_note_reason"]), (&"not_due".into(), &"not_due".into()));
    assert_eq!(daily["skip_until"], daily["next_run_at"]);
    let list = scene.run(&["schedule", "list"]).stdout;
    for note in ["is skipped: the day is one of its", "nothing is due before its `start_at`"] {
        assert!(list.contains(note), "{list}");
    }
    let firing = wait_until("a due time on a holiday", || {
        let firing = scene.json(&["why", "a/ticks"])["firings"].get_mut(0)?.take();
        firing.is_object().then_some(firing)
    });
    assert_eq!(firing["why"], "the day is one of its `exclude_dates`");
    let said = why(&scene, "a/hook");
    assert!(
        said.contains("A job of this schedule would wait, until 2090-01-01T00:00:00Z at the latest"),
        "{said}"
    );
    let said = why(&scene, "a/over");
    assert!(said.contains("Each occurrence of its trigger is skipped: its `end_at` has passed."), "{said}");
    wait_until("it to finish", || {
        (scene.json(&["schedule", "show", "a/past"])["status"] == "finished").then_some(())
    });
    scene.run(&["schedule", "disable", "a/past"]);
    let said = why(&scene, "a/past");
    assert!(said.contains("a/past is turned off, and has finished: its `end_at` has passed."), "{said}");
}

#[test]
fn waiting_and_cancelled_jobs_show_reason() {
    let config = "agents:
  - name: held
    runtime: command
    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']
  - name: fails
    runtime: command
    command: [sh, -c, 'exit 3']
    retry: {max_attempts: 3, backoff: 1h, on: [error]}
";
    let other = "  - name: other\n    runtime: command\n    command: ['true']\n";
    let scene = Scene::with(&format!("{config}{other}"));
    scene.start();
    let id = |verb: &[&str]| scene.json(verb)["id"].as_str().unwrap().to_owned();
    let (first, second, third) =
        (id(&["trigger", "held"]), id(&["trigger", "held"]), id(&["trigger", "held"]));
    wait_until("the first to run", || (scene.json(&["job", &first])["status"] == "running").then_some(()));
    assert_eq!(scene.json(&["job", &second])["waits"]["reason"], "at_capacity");
    let said = scene.run(&["job", &third]).stdout;
    assert!(
        said.contains("the only place of held is taken (`max_concurrent`)")
            && said.contains("1 job waits before it"),
        "{said}"
    );
    let retried = id(&["trigger", "fails"]);
    wait_until("the retry", || scene.json(&["job", &retried])["waits"].is_object().then_some(()));
    let said = scene.run(&["job", &retried]).stdout;
    assert!(said.contains("attempt 1 failed and will be retried: exit code 3"), "{said}");
    let said = scene.run(&["logs", &retried]).stdout;
    let expected = "pending: attempt 1 failed and will be retried: exit code 3; attempt 2 starts in ";
    assert!(said.contains(expected), "{said}");
    let said = scene.run(&["status"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(&format!("waits: {retried} (tried again in ")), "{said}");
    assert!(!said.contains("if a daemon runs by then"), "{said}");
    assert_eq!(scene.run(&["stop", "--keep-agents"]).code, Some(0));
    for verb in [&["logs", retried.as_str()][..], &["job", &retried], &["status"]] {
        let said = scene.run(verb).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(", if a daemon runs by then"), "{verb:?}: {said}");
    }
    scene.start();
    // The agents are removed from the config, and their jobs are still shown.
    scene.write("cowhand.yaml", &format!("agents:\n{other}"));
    scene.json(&["reload"]);
    let said = scene.run(&["status"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("not in the config: jobs of held: 1 running, 2 waiting"), "{said}");
    assert!(said.contains("`cowhand cancel --agent held`"), "{said}");
    let waits = scene.json(&["job", &second])["waits"]["message"].take();
    assert!(waits.as_str().unwrap().contains("the agent held is not in the config any more"), "{waits}");
    assert_eq!(scene.run(&["logs", "fails"]).code, Some(0));
    assert_eq!(scene.json(&["why", "held"])["gone"]["queued"], 2);
    let said = scene.run(&["why", "held"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("1 running, 2 waiting") && said.contains("`cowhand cancel --agent held`"),
        "{said}"
    );
    assert_eq!(scene.run(&["why", "nobody"]).code, Some(5));
    // `adopt` moves no jobs to another agent, so it is not advised. The advised commands work.
    assert!(!said.contains("adopt") && said.contains("put it back under this name"), "{said}");
    assert_eq!(scene.run(&["cancel", "--agent", "fails", "--yes"]).code, Some(0));
    assert_eq!(scene.json(&["job", &retried])["status"], "cancelled");
    scene.run(&["cancel", &third]);
    assert_eq!(scene.json(&["job", &third])["cancellation"]["by"]["who"], "person");
    let stopped = scene.run(&["stop", "--timeout", "0"]);
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    assert_eq!(scene.json(&["job", &first])["cancellation"]["reason"], "daemon_stopped");
    let said = scene.run(&["job", &first]).stdout;
    assert!(said.contains("cowhand itself: the daemon was stopped") && !said.contains("graceful"), "{said}");
}

#[test]
fn a_job_that_waits_for_a_provider_names_it() {
    let scene = Scene::with(
        "providers: {paced: {start_every: 10m}, narrow: {max_concurrent: 1}}
agents:
  - {name: a, runtime: command, command: ['true'], provider: paced, schedules: {s: {type: manual}}}
  - name: b
    runtime: command
    command: [sleep, '600']
    provider: narrow
    instances: {max_concurrent: 2}
    schedules: {s: {type: manual}}
",
    );
    scene.start();
    for (agent, sentence, timed) in [
        ("a", "the provider paced starts one job every 10m (`start_every`), the next one at ", true),
        ("b", "all slots of the provider narrow are taken (1, `max_concurrent`)", false),
    ] {
        let first = scene.json(&["trigger", agent, "s"])["id"].as_str().unwrap().to_owned();
        wait_until("the first to start", || {
            (scene.json(&["job", &first])["status"] != "pending").then_some(())
        });
        let second = scene.json(&["trigger", agent, "s"])["id"].as_str().unwrap().to_owned();
        let waits = wait_until("the second to wait", || {
            let waits = scene.json(&["job", &second])["waits"].take();
            waits["message"].as_str().is_some_and(|message| message.starts_with(sentence)).then_some(waits)
        });
        assert_eq!(waits["reason"], "at_capacity");
        assert_eq!(waits["until"].is_string(), timed, "{waits}");
        let status = scene.run(&["status"]).stdout;
        let said = why(&scene, &format!("{agent}/s"));
        for text in [status, said] {
            // Long lines are wrapped between words.
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(sentence.trim_end()), "{text}");
        }
    }
}

/// The reason for the end of a job or an attempt is in its output and in its file, not only in `job`.
#[test]
fn output_and_file_of_job_show_why_it_ended() {
    let scene = Scene::with(
        r"agents:
  - name: tries
    runtime: command
    command: [sh, -c, 'echo trying; [ -e tried ] && exit 0; touch tried; exit 3']
    retry: {max_attempts: 2, backoff: 1s, on: [error]}
  - name: long
    runtime: command
    command: [sh, -c, 'echo up; while [ ! -e go ]; do sleep 0.05; done']
",
    );
    scene.start();
    let tried = scene.json(&["trigger", "tries", "--wait"])["id"].as_str().unwrap().to_owned();
    let said = scene.run(&["logs", &tried]).stdout;
    assert!(
        said.contains("── attempt 2 (attempt 1 failed: exit code 3; last line on stdout: trying (exit))\n"),
        "{said}"
    );
    let by_hand = scene.json(&["trigger", "long"])["id"].as_str().unwrap().to_owned();
    wait_until("it to run", || (scene.job(&by_hand)["status"] == "running").then_some(()));
    scene.run(&["cancel", &by_hand]);
    wait_until("its end", || (scene.job(&by_hand)["status"] == "cancelled").then_some(()));
    let left = scene.json(&["trigger", "long"])["id"].as_str().unwrap().to_owned();
    wait_until("it to run", || (scene.job(&left)["status"] == "running").then_some(()));
    scene.run(&["stop", "--timeout", "0"]);
    for (job, word, sentence) in [
        (by_hand, "who: person", "it ended after the stop signal, by "),
        (left, "reason: daemon_stopped", "by cowhand itself: the daemon was stopped"),
    ] {
        let yaml = std::fs::read_to_string(scene.root.join(format!(".cowhand/jobs/{job}.yaml"))).unwrap();
        assert!(yaml.contains("cancellation:\n") && yaml.contains(word), "{yaml}");
        let said = scene.run(&["logs", &job]).stdout;
        assert!(said.contains(sentence), "{said}");
    }
}

/// Nothing is prepared while no daemon runs.
#[test]
fn firing_is_not_shown_as_being_prepared_without_daemon() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      slow: {type: interval, interval: 1s, when_command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']}
",
    );
    scene.start();
    wait_until("it to be prepared", || {
        (scene.json(&["schedule", "show", "a/slow"])["preparing"] == true).then_some(())
    });
    let running = scene.run(&["schedule", "show", "a/slow"]).stdout;
    assert!(running.contains("being prepared"), "{running}");
    assert_eq!(scene.run(&["stop", "--timeout", "0"]).code, Some(0));
    for verb in [
        &["why", "a/slow"][..],
        &["why", "a"],
        &["schedule", "show", "a/slow"],
        &["schedule", "list"],
        &["status", "a"],
    ] {
        let said = scene.run(verb).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!said.contains("being prepared"), "{verb:?}: {said}");
        assert!(said.contains("it is prepared when a daemon starts"), "{verb:?}: {said}");
    }
    assert_eq!(scene.json(&["why", "a/slow"])["firings"][0]["outcome"], "preparing");
    scene.go();
    scene.start();
    wait_until("its job", || (!scene.json(&["jobs"]).as_array().unwrap().is_empty()).then_some(()));
}

/// The message does not contain the error code, which is for programs.
#[test]
fn waits_message_contains_no_error_code() {
    let scene = Scene::with(
        "agents:
  - name: fails
    runtime: command
    command: [sh, -c, 'exit 3']
    retry: {max_attempts: 3, backoff: 1h, on: [error]}
  - name: held
    runtime: command
    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']
",
    );
    scene.start();
    let id = |agent: &str| scene.json(&["trigger", agent])["id"].as_str().unwrap().to_owned();
    let (first, second, retried) = (id("held"), id("held"), id("fails"));
    wait_until("the first to run", || (scene.job(&first)["status"] == "running").then_some(()));
    for (job, code) in [(second, "at_capacity"), (retried, "requeued")] {
        let waits = wait_until("it to wait", || {
            Some(scene.job(&job)["waits"].clone()).filter(serde_json::Value::is_object)
        });
        assert_eq!(waits["reason"], code);
        let message = waits["message"].as_str().unwrap();
        assert!(!message.ends_with(')'), "{message}");
        let said = scene.run(&["job", &job]).stdout;
        let line = said.lines().find(|line| line.starts_with("waits ")).unwrap();
        assert!(line.ends_with(message), "{said}");
        let status = scene.run(&["status"]).stdout;
        assert!(!status.contains("(exit)") && !status.contains(code), "{status}");
    }
}

/// A schedule with a work source polls while one of its jobs waits for its retry, and `why` names the next poll.
#[test]
fn why_names_next_poll_beside_retry() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'exit 3']
    retry: {max_attempts: 3, backoff: 1h, on: [error]}
    work_source: {type: files, path: tasks}
    schedules:
      polls: {type: interval, interval: 30m}
",
    );
    std::fs::create_dir(scene.root.join("tasks")).unwrap();
    scene.write("tasks/one.md", "Do it.");
    scene.start();
    wait_until("its job to be tried again", || {
        (scene.json(&["schedule", "show", "a/polls"])["skip_reason"] == "requeued").then_some(())
    });
    let said = why(&scene, "a/polls");
    assert!(said.contains("It waits, and continues in ") && said.contains(" It fires next in "), "{said}");
}

#[test]
fn why_shows_failure_and_time_of_retry() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'exit 3']
    retry: {max_attempts: 3, backoff: 1h, on: [error]}
    schedules:
      often: {type: interval, interval: 1s}
      asked: {type: manual}
",
    );
    scene.start();
    scene.run(&["trigger", "a", "asked"]);
    for name in ["a/often", "a/asked"] {
        wait_until("its job to be tried again", || {
            (scene.json(&["schedule", "show", name])["skip_reason"] == "requeued").then_some(())
        });
        let said = why(&scene, name);
        assert!(said.contains("attempt 1 failed and will be retried: exit code 3"), "{said}");
        assert!(said.contains("It waits, and continues in ") && !said.contains("previous"), "{said}");
        assert!(!said.contains("at the latest"), "the time is exact: {said}");
    }
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    let said = why(&scene, "a");
    assert_eq!(said.matches(", if a daemon runs by then: ").count(), 2, "{said}");
}

#[test]
fn new_interval_is_due_before_first_start() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      fresh: {type: interval, interval: 1h}
",
    );
    let said = why(&scene, "a/fresh");
    assert!(said.contains("It is due now.") && said.contains("It has not fired yet."), "{said}");
}

#[test]
fn manual_schedule_has_no_next_firing_also_over_budget() {
    let scene = Scene::with(
        r#"agents:
  - name: a
    runtime: command
    command: [sh, -c, "echo '{\"type\":\"system\",\"subtype\":\"usage\",\"model\":\"m\",\"usage\":{\"input_tokens\":1000,\"output_tokens\":50}}'"]
    budget: {per_day_tokens: 100}
    schedules:
      asked: {type: manual, prompt: Work.}
"#,
    );
    scene.start();
    scene.run(&["trigger", "a", "asked"]);
    wait_until("the budget to be used up", || {
        (scene.json(&["schedule", "show", "a/asked"])["skip_reason"] == "over_budget").then_some(())
    });
    let next = scene.run(&["schedule", "next", "a/asked"]).stdout;
    assert!(next.contains("a schedule of type manual does not fire by the clock"), "{next}");
}

#[test]
fn why_shows_error_of_failed_job() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'exit 3']
    schedules:
      asked: {type: manual}
",
    );
    scene.start();
    let job = scene.json(&["trigger", "a", "asked"])["id"].as_str().unwrap().to_owned();
    wait_until("it to fail", || (scene.json(&["job", &job])["status"] == "failed").then_some(()));
    let said = why(&scene, "a/asked").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("fired by hand; the job failed: exit code 3"), "{said}");
    let firings = scene.json(&["why", "a/asked"])["firings"].take();
    assert_eq!(firings[0]["jobs"][0]["error"], "exit code 3");
}

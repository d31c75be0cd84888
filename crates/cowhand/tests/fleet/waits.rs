//! Verbs that wait or follow: their display, interrupts, and a daemon that stops.

use std::fs;

use serde_json::Value;

use super::terminal::Shown;
use super::{Scene, wait_until};

/// Control sequence that clears the line.
const ERASE: &str = "\r\u{1b}[K";

/// Runs `stop` on a terminal of this width while one job runs, until it has shown `picture`; returns the
/// screen.
fn stop_on(scene: &Scene, columns: u16, picture: &str) -> String {
    let mut command = scene.command(&["stop"]);
    command.env("TERM", "xterm");
    let shown = Shown::run(command, columns);
    wait_until("the spinner to turn", || shown.screen().contains(picture).then_some(()));
    scene.go();
    let (code, stdout, screen) = shown.end();
    assert_eq!((code, stdout.as_str()), (Some(0), "stopped\n"), "{screen}");
    screen
}

fn again(scene: &Scene) {
    for name in ["go", "pid"] {
        let _ = fs::remove_file(scene.root.join(name));
    }
    scene.start();
    scene.waiting_job();
}

#[test]
fn spinner_is_shown_and_erased_on_terminal() {
    let scene = Scene::new();
    again(&scene);
    let screen = stop_on(&scene, 100, "⠙ stopping; 1 job still runs");
    assert!(screen.ends_with(ERASE) && !screen.contains('\n'), "{screen:?}");
    assert!(!screen.replace(ERASE, "").contains('\u{1b}'), "no colour: {screen:?}");
    again(&scene);
    let screen = stop_on(&scene, 12, "⠙ stopping");
    let longest = screen.split(ERASE).map(|line| line.chars().count()).max();
    assert_eq!(longest, Some(11), "a narrow one: {screen:?}");
}

#[test]
fn trigger_wait_shows_spinner_on_terminal() {
    let scene = Scene::started();
    let wait_on = |term: &str| {
        let mut command = scene.command(&["trigger", "waiter", "--wait"]);
        command.env("TERM", term);
        Shown::run(command, 100)
    };
    let dumb = wait_on("dumb");
    wait_until("the agent to be up", || scene.root.join("pid").exists().then_some(()));
    let shown = wait_on("xterm");
    let turns = |count: usize| shown.screen().matches(" waiting for job-").count() >= count;
    wait_until("the spinner to turn", || turns(2).then_some(()));
    assert_eq!(scene.run(&["restart"]).code, Some(0));
    let before = shown.screen().matches(" waiting for job-").count();
    wait_until("it to turn on", || turns(before + 2).then_some(()));
    scene.go();
    let (code, stdout, screen) = shown.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(stdout.contains("completed after"), "{stdout}");
    assert!(screen.ends_with(ERASE), "{screen:?}");
    assert!(screen.matches("note: ").count() <= 1, "{screen:?}");
    // This verb waited longer than the other one.
    let (code, _, screen) = dumb.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(
        !screen.contains(ERASE) && !screen.contains("waiting for job"),
        "not where it cannot be erased: {screen:?}"
    );
}

#[test]
fn no_spinner_is_shown_in_a_pipe() {
    let scene = Scene::new();
    let verbs: [&[&str]; 6] = [
        &["start", "-d"],
        &["reload"],
        &["trigger", "worker", "--wait"],
        &["restart"],
        &["stop"],
        &["start", "-d"],
    ];
    for verb in verbs {
        let said = scene.run(verb);
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{verb:?}");
        assert!(!said.stdout.contains(['\r', '\u{1b}']), "{verb:?}: {}", said.stdout);
    }
    let (job, _) = scene.waiting_job();
    let said = scene.run(&["cancel", &job]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
}

#[test]
fn interrupted_verb_exits_with_130_and_a_note() {
    let scene = Scene::started();
    let (job, _) = scene.waiting_job();
    let verbs: [(&[&str], &str); 4] = [
        (
            &["logs", "waiter", "-f"],
            "[JOB] continues; `cowhand logs [JOB] -f` follows it, `cowhand cancel [JOB]` ends it",
        ),
        (&["events", "-f"], "`cowhand events -f --after [SEQ]` continues from here"),
        (
            &["trigger", "waiter", "--wait"],
            "[JOB] continues, pending or running; `cowhand logs [JOB] -f` follows it, `cowhand cancel [JOB]` ends it",
        ),
        (
            &["stop"],
            "the daemon is still stopping; another `cowhand stop` cancels the running jobs immediately",
        ),
    ];
    for (arguments, goes_on) in verbs {
        let verb = scene.spawn(arguments);
        verb.interrupt();
        let said = verb.end();
        let newest = scene.json(&["jobs", "--limit", "1"])[0]["id"].as_str().unwrap().to_owned();
        let last = scene.json(&["events", "--limit", "1"])["seq"].to_string();
        let said_of =
            said.stderr.replace(&newest, "[JOB]").replace(&format!("--after {last}"), "--after [SEQ]");
        assert_eq!((said.code, said_of), (Some(130), format!("note: {goes_on}\n")), "{arguments:?}");
    }
    assert_eq!(scene.job(&job)["status"], "running", "nothing ended but those who watched");
    assert_eq!(scene.json(&["status"])["daemon"]["stopping"], true);
}

#[test]
fn logs_follow_ends_when_its_output_is_closed() {
    let scene = Scene::started();
    scene.waiting_job();
    let mut logs = scene.spawn(&["logs", "waiter", "-f"]);
    assert_eq!(logs.line(), "up");
    logs.close_stdout();
    scene.go();
    let said = logs.end();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
}

#[test]
fn events_follow_misses_none_over_restarts() {
    let scene = Scene::with(
        "agents:
  - name: busy
    runtime: command
    command: [sh, -c, 'sleep 0.3']
    instances: {max_concurrent: 4}
    schedules: {tick: {type: interval, interval: 1s}}
",
    );
    scene.start();
    let mut follower = scene.spawn(&["events", "-f", "--json", "--after", "0"]);
    let mut heard = Vec::new();
    for _ in 0..2 {
        // The next daemon settles the job that runs meanwhile.
        let job = scene.json(&["trigger", "busy"])["id"].as_str().unwrap().to_owned();
        while !heard.last().is_some_and(|line: &String| line.contains(&job)) {
            heard.push(follower.line());
        }
        assert_eq!(scene.run(&["restart"]).code, Some(0));
    }
    scene.json(&["trigger", "busy", "--wait"]);
    let all = scene.run(&["events", "--json", "--after", "0", "--limit", "1000"]).stdout;
    while heard.len() < all.lines().count() {
        heard.push(follower.line());
    }
    assert_eq!(heard, all.lines().collect::<Vec<_>>(), "each event once, in order");
    let numbers =
        heard.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_i64().unwrap());
    assert!(numbers.eq(1..=i64::try_from(heard.len()).unwrap()), "and no number is left out");
    follower.interrupt();
    let said = follower.end();
    assert_eq!(said.code, Some(130));
    let notes = said.stderr.matches("note: the daemon does not answer; waiting for it\n").count();
    assert!((1..=2).contains(&notes) && said.stderr.lines().count() == notes + 1, "{}", said.stderr);
    assert!(said.stderr.ends_with("continues from here\n"), "{}", said.stderr);
}

#[test]
fn followers_report_that_daemon_was_stopped() {
    let scene = Scene::started();
    let (job, _) = scene.waiting_job();
    let mut followers = [&["events", "-f"][..], &["logs", &job, "-f"]].map(|verb| scene.spawn(verb));
    for follower in &mut followers {
        follower.line();
    }
    assert_eq!(scene.run(&["stop", "--keep-agents"]).code, Some(0));
    for follower in followers {
        let said = follower.end();
        assert_eq!(said.code, Some(4), "{}", said.stderr);
        let expected = "note: the daemon does not answer; waiting for it\nerror: the daemon was stopped, and no daemon answered for 10s; `cowhand start -d` starts it\n";
        assert_eq!(said.stderr, expected);
    }
}

#[test]
fn followers_see_end_of_job_that_finishes_during_stop() {
    let scene = Scene::started();
    let waits = scene.spawn(&["trigger", "waiter", "--wait"]);
    wait_until("the agent to be up", || scene.root.join("pid").exists().then_some(()));
    let mut events = scene.spawn(&["events", "-f", "--json"]);
    let mut logs = scene.spawn(&["logs", "waiter", "-f"]);
    assert_eq!(logs.line(), "up");
    events.line();
    let stop = scene.spawn(&["stop"]);
    wait_until("the daemon to drain", || {
        (scene.json(&["status"])["daemon"]["stopping"] == true).then_some(())
    });
    scene.go();
    assert_eq!(stop.end().code, Some(0));
    for (follower, word) in [(waits, "completed after"), (logs, "went\n")] {
        let said = follower.end();
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "no daemon is needed to know");
        assert!(said.stdout.contains(word), "{}", said.stdout);
    }
    let said = events.end();
    assert_eq!(said.code, Some(4), "{}", said.stderr);
    assert!(said.stdout.lines().last().unwrap().contains("job:completed"), "{}", said.stdout);
}

#[test]
fn stop_ends_all_agents_in_parallel() {
    // Each agent ends when it has seen that both got the signal.
    let agent = |name: &str| {
        format!(
            "  - name: {name}
    runtime: command
    command: [sh, -c, 'trap \"touch {name}.told; while [ ! -e a.told -o ! -e b.told ]; do sleep 0.05; done; exit 0\" TERM; touch {name}.up; while :; do sleep 0.05; done']
"
        )
    };
    let scene = Scene::with(&format!("agents:\n{}{}", agent("a"), agent("b")));
    scene.start();
    let jobs = ["a", "b"].map(|name| scene.json(&["trigger", name])["id"].as_str().unwrap().to_owned());
    wait_until("both to be up", || {
        ["a.up", "b.up"].iter().all(|name| scene.root.join(name).exists()).then_some(())
    });
    assert_eq!(scene.json(&["jobs", "--status", "running"]).as_array().unwrap().len(), 2);
    assert_eq!(scene.run(&["stop", "--timeout", "0"]).code, Some(0));
    for job in jobs {
        let job = scene.job(&job);
        assert_eq!((&job["status"], &job["termination"]), (&"cancelled".into(), &"graceful".into()));
    }
}

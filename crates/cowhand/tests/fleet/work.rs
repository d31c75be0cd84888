//! `cowhand work`: the queues, from the command line.

use std::fs;

use serde_json::Value;

use crate::api::ask;
use crate::{Scene, wait_until};

const FLEET: &str = r"
agents:
  - name: worker
    runtime: command
    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']
    work_source: {type: files, path: tasks}
    schedules:
      poll: {type: manual}
";

pub(super) fn scene() -> Scene {
    let scene = Scene::with(FLEET);
    fs::create_dir(scene.root.join("tasks")).unwrap();
    for (name, priority) in [("one", "low"), ("two", "high")] {
        let text = format!(
            "---\ntitle: Do {name}\npriority: {priority}\ncreated: 2024-01-01T00:00:00Z\n---\nText.\n"
        );
        scene.write(&format!("tasks/{name}.md"), &text);
    }
    scene
}

pub(super) fn read(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.root.join(format!("tasks/{name}.md"))).unwrap()
}

#[test]
fn work_list_and_show_need_no_daemon() {
    let scene = scene();
    let items = scene.json(&["work", "list"]);
    let ids: Vec<&str> = items.as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["files-two", "files-one"], "the most urgent first");
    assert_eq!(items[0]["status"], "available");
    assert_eq!(scene.json(&["work", "show", "files-one"])["title"], "Do one");
    assert_eq!(scene.run(&["work", "claim", "files-one"]).code, Some(4), "that needs a daemon");
    let said = scene.run(&["work", "show", "files-three"]);
    let expected = "error: there is no work item files-three in the queues of the fleet; \
                    `cowhand work list --all` lists them\n";
    assert_eq!((said.code, said.stderr.as_str()), (Some(5), expected));
    assert!(!scene.root.join(".cowhand").exists(), "looking leaves nothing behind");
}

#[test]
fn work_list_filters_and_pages() {
    let scene = scene();
    for (name, head) in [
        ("bug", "priority: high\nlabels: [bug]\ncreated: 2025-01-01T00:00:00Z\n"),
        ("both", "priority: critical\nlabels: [Bug, auth]\ncreated: 2025-01-01T00:00:00Z\n"),
    ] {
        scene.write(&format!("tasks/{name}.md"), &format!("---\ntitle: {name}\n{head}---\nText.\n"));
    }
    let ids = |arguments: &[&str]| -> Vec<String> {
        let items = scene.json(&[&["work", "list"], arguments].concat());
        items
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["external_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&[]), ["both", "two", "bug", "one"]);
    assert_eq!(ids(&["--limit", "2"]), ["both", "two"]);
    assert_eq!(ids(&["--label", "bug"]), ["both", "bug"]);
    assert_eq!(ids(&["--label", "bug", "--label", "auth"]), ["both"]);
    assert_eq!(ids(&["--priority", "high", "--priority", "low"]), ["two", "bug", "one"]);
    assert_eq!(ids(&["--label", "bug", "--priority", "high"]), ["bug"]);
    scene.start();
    let ask = |query: &str| -> Value {
        let answer = ask(&scene, "GET", &format!("work?{query}"), "");
        serde_json::from_str(answer.splitn(3, '\n').nth(2).unwrap()).unwrap()
    };
    let (mut cursor, mut seen) = (String::new(), Vec::new());
    loop {
        let page = ask(&format!("limit=1{cursor}"));
        let [item] = page["items"].as_array().unwrap().as_slice() else { panic!("{page:#}") };
        seen.push(item["external_id"].as_str().unwrap().to_owned());
        // Items that appear, disappear or change meanwhile hide no others.
        if seen.len() == 2 {
            fs::remove_file(scene.root.join("tasks/two.md")).unwrap();
        }
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, ["both", "two", "bug", "one"]);
    assert_eq!(ask("labels=bug,auth&priority=critical,low")["items"].as_array().unwrap().len(), 1);
    for (wrong, word) in [
        ("priority=urgent", "not a priority"),
        ("cursor=x", "not a cursor"),
        ("limit=0", "1 to 1000"),
        ("label=x", "label"),
    ] {
        let answer = ask(wrong);
        assert!(answer["detail"].as_str().is_some_and(|said| said.contains(word)), "{wrong}: {answer:#}");
    }
}

/// The source cannot receive the result, so the item keeps the state that it has right after the command: only the
/// store has the result.
#[test]
fn item_failed_by_person_is_listed_before_its_source_is_updated() {
    let scene = scene();
    scene.start();
    assert_eq!(scene.run(&["work", "claim", "files-one"]).code, Some(0));
    fs::remove_file(scene.root.join("tasks/one.md")).unwrap();
    let done = scene.run(&["work", "complete", "files-one", "--outcome", "failure", "--summary", "No."]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let listed = || -> Vec<(String, String)> {
        let word = |item: &Value, key: &str| item[key].as_str().unwrap().to_owned();
        let items = scene.json(&["work", "list"]);
        items.as_array().unwrap().iter().map(|item| (word(item, "id"), word(item, "status"))).collect()
    };
    assert!(listed().contains(&("files-one".to_owned(), "closing".to_owned())), "{:?}", listed());
    let released = scene.run(&["work", "release", "files-one"]);
    let expected = "files-one removed, because its source does not have it any more: Do one\n";
    assert_eq!(released.stdout, expected, "{}", released.stderr);
    assert_eq!(listed(), [("files-two".to_owned(), "available".to_owned())]);
    assert!(!scene.run(&["status"]).stdout.contains("files-one"));
}

/// The message about a missing work source appears only if there is none.
#[test]
fn empty_work_list_gives_reason() {
    let scene = Scene::with(FLEET);
    fs::create_dir(scene.root.join("tasks")).unwrap();
    let said = |scene: &Scene, arguments: &[&str]| {
        let said = scene.run(&[&["work", "list"], arguments].concat());
        (said.code, said.stdout + &said.stderr)
    };
    let (code, words) = said(&scene, &[]);
    assert_eq!(code, Some(0));
    assert!(words.starts_with("no work is available in files ") && !words.contains("work_source"), "{words}");
    assert!(said(&scene, &["--label", "x"]).1.starts_with("no item of files "), "{words}");
    let without = Scene::with("agents:\n  - {name: a, runtime: command, command: [make]}\n");
    assert!(said(&without, &[]).1.contains("no agent has a `work_source`"));
    assert_eq!(said(&without, &["--agent", "a"]).1, "a has no `work_source`, so there is no work for it\n");
    // A source that cannot be used does not hide the others, and its message names the remedy.
    let github = FLEET.replace("schedules:\n", "schedules:\n      issues: {type: manual, work_source: {type: github, repo: o/r, auth: {token_env: NO_SUCH_TOKEN}}}\n");
    let both = Scene::with(
        &github
            .replace("    work_source: {type: files, path: tasks}\n", "")
            .replace("poll: {type: manual}", "poll: {type: manual, work_source: {type: files, path: tasks}}"),
    );
    fs::create_dir(both.root.join("tasks")).unwrap();
    both.write("tasks/one.md", "Do it.\n");
    let (code, words) = said(&both, &[]);
    assert_eq!(code, Some(6), "{words}");
    assert!(
        words.contains("files-one")
            && words.contains("no token for o/r: the variable NO_SUCH_TOKEN is not set"),
        "{words}"
    );
}

#[test]
fn items_of_another_fleet_are_left_alone() {
    let scene = scene();
    let claimed = "---\ntitle: Theirs\nstatus: claimed\nclaimed_by: others/job-1\nclaimed_until: 2999-01-01T00:00:00Z\n---\n";
    scene.write("tasks/theirs.md", claimed);
    scene.start();
    for verb in ["release", "complete"] {
        let said = scene.run(&["work", verb, "files-theirs"]);
        assert_eq!(said.code, Some(5), "{}{}", said.stdout, said.stderr);
        assert!(said.stderr.contains("files-theirs was not changed: "), "{}", said.stderr);
        assert!(said.stderr.contains("others/job-1"), "{}", said.stderr);
        assert_eq!(read(&scene, "theirs"), claimed);
    }
    let listed = scene.run(&["work", "list", "--all"]).stdout;
    assert!(listed.contains("claimed by others/job-1"), "{listed}");
    let shown = scene.json(&["work", "show", "files-theirs"]);
    assert_eq!((&shown["held_by"], &shown["claimed_by"]), (&Value::Null, &"others/job-1".into()));
}

#[test]
fn person_can_claim_release_and_complete_items() {
    let scene = scene();
    scene.start();
    assert_eq!(scene.run(&["work", "claim", "files-two"]).stdout, "files-two claimed: Do two\n");
    assert!(read(&scene, "two").contains("status: claimed"), "{}", read(&scene, "two"));
    let again = scene.run(&["work", "claim", "files-two"]);
    assert_eq!(again.code, Some(5), "once is enough");
    assert!(again.stderr.contains("`cowhand work release files-two` releases it"), "{}", again.stderr);
    // The agents do not take the claimed item; they take the other one.
    let job = scene.json(&["trigger", "worker", "poll"]);
    assert_eq!(job["work_item"]["id"], "files-one");
    let said = scene.run(&["work", "list", "--all"]);
    assert!(said.stdout.contains("claimed by person "), "{}", said.stdout);
    assert!(said.stdout.contains(&format!("claimed by {}", job["id"].as_str().unwrap())), "{}", said.stdout);
    let none = scene.run(&["trigger", "worker", "poll"]);
    let expected = "error: worker/poll did not run: no_work, its work source has nothing to do; `cowhand why worker/poll` shows what happened\n";
    assert_eq!((none.code, none.stderr.as_str()), (Some(5), expected));
    let held = scene.run(&["work", "release", "files-one"]);
    assert_eq!(held.code, Some(5), "{}", held.stdout);
    assert!(held.stderr.contains("`cowhand cancel`"), "{}", held.stderr);

    assert_eq!(scene.run(&["work", "release", "files-two", "--reason", "later"]).code, Some(0));
    wait_until("files-two is available again", || {
        read(&scene, "two").contains("status: available").then_some(())
    });
    assert_eq!(scene.run(&["work", "complete", "files-two", "--summary", "By hand."]).code, Some(0));
    wait_until("files-two is done", || read(&scene, "two").contains("status: completed").then_some(()));
    assert!(read(&scene, "two").contains("By hand."));
    scene.write("go", "");
    wait_until("files-one is done", || read(&scene, "one").contains("status: completed").then_some(()));
    // The report is recorded after the file is written.
    wait_until("the report of files-one", || {
        let job = scene.run(&["job", job["id"].as_str().unwrap()]).stdout;
        job.contains("work item    files-one  Do one; reported to its source: success\n").then_some(())
    });

    // The audit contains the actions of the person, and the claim of the job that the person requested.
    scene.write("tasks/two.md", "---\nstatus: failed\n---\n");
    assert_eq!(scene.run(&["work", "retry", "files-two"]).code, Some(0));
    let audit = scene.run(&["events", "--audit"]).stdout;
    let acts: Vec<&str> = audit.lines().filter(|line| line.contains(" work:")).collect();
    let expected = [
        ("work:claimed", "files-two"),
        ("work:claimed", "files-one"),
        ("work:released", "files-two"),
        ("work:reported", "files-two"),
        ("work:released", "files-two"),
    ];
    assert_eq!(acts.len(), expected.len(), "{audit}");
    for (line, (kind, item)) in acts.iter().zip(expected) {
        assert!(line.contains(kind) && line.contains(item), "{audit}");
    }
}

#[test]
fn work_show_reads_status_from_source() {
    let scene = scene();
    for (status, expected) in [
        ("available", "available"),
        ("claimed", "claimed"),
        ("claimed\nclaimed_by: others/job-1\nclaimed_until: 2999-01-01T00:00:00Z", "claimed"),
        ("claimed\nclaimed_by: others/job-1\nclaimed_until: 2020-01-01T00:00:00Z", "available"),
        ("completed", "done"),
        ("failed", "withdrawn"),
        ("partial", "withdrawn"),
        ("draft", "withdrawn"),
    ] {
        scene.write("tasks/one.md", &format!("---\nstatus: {status}\n---\nText.\n"));
        assert_eq!(scene.json(&["work", "show", "files-one"])["status"], expected, "{status}");
    }
}

/// Data of the store is shown even while the source cannot be read.
#[test]
fn undelivered_results_are_shown() {
    let scene = scene();
    scene.start();
    let job = scene.json(&["trigger", "worker", "poll"]);
    let id = job["id"].as_str().unwrap();
    fs::rename(scene.root.join("tasks"), scene.root.join("away")).unwrap();
    scene.write("go", "");
    let untold = wait_until("the result to be delayed", || {
        let status = scene.json(&["status"]);
        status["untold"].as_array().unwrap().first().cloned()
    });
    assert_eq!((&untold["id"], &untold["held_by"]), (&job["work_item"]["id"], &job["id"]), "{untold}");
    assert!(untold["since"].is_string() && untold["last_error"].is_string(), "{untold}");
    let said = scene.run(&["status"]).stdout;
    assert!(said.contains("not reported: files "), "{said}");
    let listed = scene.run(&["work", "list", "--all"]);
    assert_eq!(listed.code, Some(6));
    assert!(listed.stdout.contains("closing, not reported yet"), "{}", listed.stdout);
    let shown = scene.run(&["job", id]).stdout;
    assert!(shown.contains("not reported to its source yet"), "{shown}");
    // The job has ended, so a cancellation is not advised, and its result is not replaced.
    for verb in ["claim", "complete"] {
        let refused = scene.run(&["work", verb, "files-two"]);
        assert_eq!(refused.code, Some(5), "{}", refused.stdout);
        let why = format!("the work source has not received the result of {id} yet");
        assert!(refused.stderr.contains(&why) && !refused.stderr.contains("cancel"), "{}", refused.stderr);
    }
    fs::rename(scene.root.join("away"), scene.root.join("tasks")).unwrap();
    wait_until("the result to be told", || read(&scene, "two").contains("status: completed").then_some(()));
}

/// A person's claim, unlike a job's, does not end by itself. The advised commands work.
#[test]
fn undelivered_result_of_person_is_shown() {
    let scene = scene();
    scene.start();
    assert_eq!(scene.run(&["work", "claim", "files-one"]).code, Some(0));
    fs::remove_file(scene.root.join("tasks/one.md")).unwrap();
    assert_eq!(scene.run(&["work", "complete", "files-one"]).code, Some(0));
    wait_until("that to be delayed", || {
        let said = scene.run(&["status"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        said.contains("has not received the change of files-one by person yet").then_some(())
    });
    let refused = scene.run(&["work", "claim", "files-one"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stdout);
    assert!(
        refused.stderr.contains("the work source has not received the change by person yet"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("`cowhand work release files-one`"), "{}", refused.stderr);
    assert_eq!(scene.run(&["work", "release", "files-one"]).code, Some(0));
    assert_eq!(scene.json(&["status"])["untold"], serde_json::json!([]));
    let events = scene.run(&["events", "--json"]).stdout;
    let message = "files-one was released by hand, and its source no longer has it";
    assert!(events.contains(message), "{events}");
}

/// A retry of a deleted item is not advised for ever.
#[test]
fn deleted_given_up_item_is_forgotten() {
    let scene = Scene::with(&FLEET.replace("while [ ! -e go ]; do sleep 0.05; done", "exit 3"));
    fs::create_dir(scene.root.join("tasks")).unwrap();
    scene.write("tasks/hard.md", "---\ntitle: Do hard\n---\nText.\n");
    scene.start();
    scene.json(&["trigger", "worker", "poll"]);
    wait_until("it is given up", || (scene.json(&["work", "list"])[0]["status"] == "given_up").then_some(()));
    fs::remove_file(scene.root.join("tasks/hard.md")).unwrap();
    assert_eq!(scene.json(&["status"])["given_up"][0]["id"], "files-hard");
    let gone = scene.run(&["work", "retry", "files-hard"]);
    assert_eq!(gone.code, Some(5), "{}", gone.stdout);
    assert!(gone.stderr.contains("files-hard no longer exists"), "{}", gone.stderr);
    assert_eq!(scene.json(&["status"])["given_up"], serde_json::json!([]));
    let none = scene.run(&["work", "retry", "files-hard"]);
    assert!(none.stderr.contains("there is no work item files-hard"), "{}", none.stderr);
}

/// Given-up items are shown everywhere, and the advised command works.
#[test]
fn given_up_items_are_shown_and_can_be_retried() {
    let scene = Scene::with(&FLEET.replace("while [ ! -e go ]; do sleep 0.05; done", "[ -e go ] || exit 3"));
    fs::create_dir(scene.root.join("tasks")).unwrap();
    scene.write("tasks/hard.md", "---\ntitle: Do hard\n---\nText.\n");
    scene.start();
    let given_up = |expected: usize| {
        let status = scene.json(&["status"]);
        let told = status["given_up"].as_array().unwrap().clone();
        (told.len() == expected).then_some(told)
    };
    assert_eq!(scene.json(&["status"])["given_up"], serde_json::json!([]));
    scene.json(&["trigger", "worker", "poll"]);
    let told = wait_until("it is given up", || given_up(1));
    assert_eq!(told[0]["id"], "files-hard");
    assert_eq!(told[0]["title"], "Do hard");
    assert_eq!(told[0]["taken_by"], serde_json::json!([{"agent": "worker", "schedule": "poll"}]));
    let reason = told[0]["given_up"]["reason"].as_str().unwrap().to_owned();

    // The item is `closing` until the result is reported to its source.
    let items = wait_until("the source to be told", || {
        let items = scene.json(&["work", "list"]);
        (items[0]["status"] == "given_up").then_some(items)
    });
    assert_eq!(items[0]["id"], "files-hard");
    assert_eq!(items[0]["given_up"]["reason"], reason.as_str());
    assert_eq!(scene.json(&["work", "show", "files-hard"])["status"], "given_up");
    assert_eq!(scene.json(&["why", "worker/poll"])["given_up"], serde_json::json!(told));
    let advice =
        "`cowhand work retry files-hard` retries it, once `cowhand trigger worker poll` fires its schedule";
    for verb in [&["work", "list"][..], &["status"], &["status", "worker"], &["why", "worker/poll"]] {
        let said = scene.run(verb).stdout.replace('\n', " ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains(advice) && said.contains(&format!("failed once: {reason}")),
            "{verb:?}: {said}"
        );
    }
    assert!(
        scene
            .run(&["work", "show", "files-hard"])
            .stdout
            .contains(&format!("given up: failed once: {reason}"))
    );

    let retried = scene.run(&["work", "retry", "files-hard"]);
    assert_eq!(retried.stdout, "files-hard offered again: Do hard\n");
    let note = retried.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "worker/poll is of type manual, and `cowhand trigger worker poll` fires it";
    assert!(note.contains(expected), "{note}");
    assert!(read(&scene, "hard").contains("status: available"), "{}", read(&scene, "hard"));
    assert_eq!(scene.json(&["work", "show", "files-hard"])["status"], "available");
    wait_until("nothing is given up", || given_up(0));
    scene.write("go", "");
    scene.json(&["trigger", "worker", "poll"]);
    wait_until("it is done", || read(&scene, "hard").contains("status: completed").then_some(()));
    wait_until("the store to know that the source was told", || {
        let events = scene.run(&["events", "--json"]).stdout;
        events.contains("\"outcome\":\"success\"").then_some(())
    });
    let done = scene.run(&["work", "retry", "files-hard"]);
    let expected = "error: files-hard cannot be tried again: files-hard is completed\n";
    assert_eq!((done.code, done.stderr.as_str()), (Some(5), expected));
    assert_eq!(scene.run(&["work", "retry", "files-none"]).code, Some(5));
}

/// The queue still belongs to the fleet, so `work list` and all other verbs show the item.
#[test]
fn given_up_item_is_shown_without_schedule_for_its_queue() {
    let fleet = FLEET.replace("while [ ! -e go ]; do sleep 0.05; done", "exit 3");
    let scene = Scene::with(&fleet);
    fs::create_dir(scene.root.join("tasks")).unwrap();
    scene.write("tasks/hard.md", "---\ntitle: Do hard\n---\nText.\n");
    scene.start();
    scene.json(&["trigger", "worker", "poll"]);
    wait_until("it is given up", || (scene.json(&["work", "list"])[0]["status"] == "given_up").then_some(()));
    let without = fleet.split("    schedules:").next().unwrap();
    scene.write("cowhand.yaml", without);
    scene.json(&["reload"]);
    assert_eq!(scene.json(&["work", "list"])[0]["status"], "given_up");
    let told = scene.json(&["status"])["given_up"][0].take();
    assert_eq!((&told["id"], &told["taken_by"]), (&"files-hard".into(), &serde_json::json!([])));
    assert_eq!(told["agents"], serde_json::json!(["worker"]));
    assert_eq!(scene.json(&["why", "worker"])["given_up"][0]["id"], "files-hard");
    let advice = "`cowhand work retry files-hard` retries it, once a schedule takes from its queue again";
    for verb in [&["status"][..], &["status", "worker"], &["why", "worker"]] {
        let said = scene.run(verb).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(advice), "{verb:?}: {said}");
    }
}

/// A secret in an item, or in the prompt of a person, reaches the agent but no view.
#[test]
fn known_secrets_in_items_and_prompts_are_in_no_view() {
    const SECRET: &str = "canary-of-the-mine-77";
    let scene = Scene::with(
        &FLEET.replace("while [ ! -e go ]; do sleep 0.05; done", "cat > got.$COWHAND_JOB_ID; exit 3"),
    );
    scene.write(".env", &format!("MINE_TOKEN={SECRET}\n"));
    fs::create_dir(scene.root.join("tasks")).unwrap();
    let text =
        format!("---\ntitle: Feed {SECRET}\nlabels: [{SECRET}]\nown: {SECRET}\n---\nUse {SECRET} for it.\n");
    scene.write("tasks/one.md", &text);
    scene.start();
    let run = |words: &[&str]| {
        let said = scene.run(&[&["trigger"], words, &["--wait", "--json"]].concat());
        let job: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{}", said.stderr));
        assert!(!said.stdout.contains(SECRET), "{}", said.stdout);
        job["id"].as_str().unwrap().to_owned()
    };
    let of_item = run(&["worker", "poll"]);
    let by_hand = run(&["worker", "--prompt", &format!("Say {SECRET}.")]);
    for job in [&of_item, &by_hand] {
        let got = fs::read_to_string(scene.root.join(format!("got.{job}"))).unwrap();
        assert!(got.contains(SECRET), "the agent gets what it was given: {got}");
    }
    wait_until("the views to be written", || {
        let yaml = fs::read_to_string(scene.root.join(format!(".cowhand/jobs/{by_hand}.yaml"))).ok()?;
        yaml.contains("status: failed").then_some(())
    });
    let mut shown: Vec<(String, String)> = Vec::new();
    for folder in [".cowhand", ".cowhand/jobs"] {
        for entry in fs::read_dir(scene.root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "yaml" || end == "jsonl" || end == "log") {
                shown.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(shown.iter().any(|(_, text)| text.contains("Feed ***")), "the rest of the title stays");
    let look = |shown: &mut Vec<(String, String)>| {
        for words in [
            "jobs",
            "events",
            "work list --all",
            "work show files-one",
            "status",
            "usage",
            "why worker/poll",
            "schedules",
            "timeline",
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            for form in [&[][..], &["--json"]] {
                let said = scene.run(&[&words[..], form].concat());
                shown.push((format!("{words:?} {form:?}"), said.stdout + &said.stderr));
            }
        }
        for job in [&of_item, &by_hand] {
            for verb in ["job", "logs", "why"] {
                shown.push((format!("{verb} {job}"), scene.run(&[verb, job]).stdout));
                shown.push((format!("{verb} {job} --json"), scene.run(&[verb, job, "--json"]).stdout));
            }
        }
    };
    look(&mut shown);
    let events = ask(&scene, "GET", "events?after=0&limit=1000", "");
    assert!(events.contains("job_record"), "{events}");
    shown.push(("GET events".to_owned(), events));
    scene.run(&["stop"]);
    // Also check reads without a daemon.
    look(&mut shown);
    shown.push(("events -f".to_owned(), scene.run(&["events", "-f", "--json"]).stdout));
    for (place, text) in shown {
        assert!(!text.contains(SECRET), "{place}: {text}");
    }
}

/// A source that accepts a request and never answers is named, with the remedy.
#[test]
fn silent_work_source_times_out() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let source =
        format!("{{type: github, repo: o/r, api_url: 'http://{address}', auth: {{token_env: SOME_TOKEN}}}}");
    let scene = Scene::with(&FLEET.replace("{type: files, path: tasks}", &source));
    scene.write(".env", "SOME_TOKEN=canary-of-the-mine-77\n");
    scene.start();
    let advice =
        "the source did not answer within 15s; check with `cowhand doctor` whether it can be reached";
    for verb in ["list", "show github-1"] {
        let said = scene.run(&[&["work"][..], &verb.split(' ').collect::<Vec<_>>()].concat());
        assert_ne!(said.code, Some(0), "{}", said.stdout);
        assert!(said.stderr.contains("o/r: ") && said.stderr.contains(advice), "{}", said.stderr);
    }
    drop(silent);
}

#[test]
fn items_of_one_agent_name_all_agents_of_their_queue() {
    let scene = scene();
    let agent = |name: &str| {
        format!(
            "  - {{name: {name}, runtime: command, command: ['true'], work_source: {{type: files, path: tasks}}, \
             schedules: {{poll: {{type: manual}}}}}}\n"
        )
    };
    scene.write("cowhand.yaml", &format!("agents:\n{}{}", agent("wa"), agent("wb")));
    let both = serde_json::json!(["wa", "wb"]);
    for of_agent in [&[][..], &["--agent", "wa"], &["--agent", "wb"]] {
        let list = scene.json(&[&["work", "list"], of_agent].concat());
        assert_eq!(list[0]["agents"], both, "{of_agent:?}");
        let item = scene.json(&[&["work", "show", "files-one"], of_agent].concat());
        assert_eq!(item["agents"], both, "{of_agent:?}");
    }
}

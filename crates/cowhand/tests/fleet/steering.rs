//! Messages to agents that take none while they run, and what the verbs say about them.

use serde_json::{Value, json};

use super::{Scene, wait_until};

fn finished(scene: &Scene, job: &str) -> Value {
    wait_until("the job to end", || Some(scene.job(job)).filter(|job| job["finished_at"].is_string()))
}

#[test]
fn message_to_an_agent_without_input_is_the_prompt_of_the_next_job() {
    let scene = Scene::started();
    let (job, _) = scene.waiting_job();
    let sent = scene.json(&["say", &job, "Then rest.", "--idempotency-key", "k"]);
    assert_eq!((&sent["route"], &sent["state"]), (&json!("next_turn"), &json!("pending")));
    assert_eq!(scene.json(&["say", &job, "Other text.", "--idempotency-key", "k"]), sent, "it is sent once");
    let said = scene.run(&["say", &job, "-p", "And sleep."]);
    let expected = format!(
        "message 2 to {job} waits for the end of the job; the agent takes no messages while it runs\n"
    );
    assert_eq!((said.code, said.stdout), (Some(0), expected), "{}", said.stderr);
    assert!(scene.run(&["status"]).stdout.contains("2 messages to jobs wait; `cowhand job JOB` shows"));
    assert_eq!(scene.json(&["jobs"])[0]["waiting_messages"], 2);

    // What was sent is kept by the next daemon.
    scene.kill_daemon();
    scene.start();
    scene.go();
    let ended = finished(&scene, &job);
    assert_eq!(ended["status"], "completed");
    let messages = ended["messages"].as_array().unwrap();
    let next = messages[0]["next_job"].as_str().unwrap();
    for message in messages {
        assert_eq!((&message["state"], &message["next_job"]), (&json!("next_turn"), &json!(next)));
    }
    let next = finished(&scene, next);
    assert_eq!((&next["prompt"], &next["continues"]), (&json!("Then rest.\n\nAnd sleep."), &json!(job)));
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 2);
    let shown = scene.run(&["job", next["id"].as_str().unwrap()]).stdout;
    assert!(shown.contains(&format!("{job}; its prompt is what was sent to that job")), "{shown}");
    let shown = scene.run(&["job", &job]).stdout;
    assert!(shown.contains("\"Then rest.\" from "), "{shown}");

    let late = scene.run(&["say", &job, "Too late."]);
    assert_eq!(late.code, Some(5), "{}", late.stderr);
    assert!(
        late.stderr.contains("has ended (completed), so its agent takes no more messages"),
        "{}",
        late.stderr
    );
}

#[test]
fn messages_to_a_cancelled_job_are_dropped() {
    let scene = Scene::started();
    let (job, _) = scene.waiting_job();
    scene.json(&["say", &job, "Then rest."]);
    scene.json(&["cancel", &job]);
    let ended = finished(&scene, &job);
    assert_eq!((&ended["status"], &ended["messages"][0]["state"]), (&json!("cancelled"), &json!("dropped")));
    let shown = scene.run(&["job", &job]).stdout;
    assert!(shown.contains("dropped, because the job was cancelled"), "{shown}");
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 1);
}

#[test]
fn wrong_messages_are_refused() {
    let scene = Scene::started();
    let (job, _) = scene.waiting_job();
    for (arguments, code, expected) in [
        (vec!["say", &job], 2, "write a message: cowhand say JOB TEXT"),
        (vec!["say", &job, " "], 2, "the message is empty; write a text"),
        (vec!["say", "job-2026-01-05-000000", "Hello."], 5, "there is no job job-2026-01-05-000000"),
        (vec!["say", &job, "Hello.", "--idempotency-key", ""], 2, "an idempotency key has 1 to"),
    ] {
        let said = scene.run(&arguments);
        assert!(said.stderr.contains(expected), "{arguments:?}: {}", said.stderr);
        assert_eq!(said.code, Some(code), "{arguments:?}: {}", said.stderr);
    }
    let large = "x".repeat(100 << 10);
    let sent = (0..11).map(|_| scene.run(&["say", &job, &large])).find(|said| said.code != Some(0));
    let refused = sent.expect("together they are too large");
    assert!(refused.stderr.contains("may have 1048576 bytes together"), "{}", refused.stderr);
}

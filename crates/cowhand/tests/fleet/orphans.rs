//! Attempts without a lease: no process of such an attempt continues, whoever settled the job.

use std::fs;
use std::time::Duration;

use cowhand::store::{Settled, Store};
use cowhand_core::id::JobId;
use cowhand_core::interval::Interval;
use cowhand_core::policy::Retry;
use jiff::{SignedDuration, Timestamp};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Scene, kill_and_wait, left_over, lives, wait_until};
use cowhand_testing::postgres::Postgres;
use cowhand_testing::process::processes;

/// Returns a config in which each attempt writes its process id to `pid.ATTEMPT` and waits for the file `go`.
fn fleet(store: &str, command: &str) -> String {
    format!(
        "{store}\nagents:\n  - name: waiter\n    runtime: command\n    command: [sh, -c, {command:?}]\n    \
         retry: {{max_attempts: 2, backoff: 1s, on: [error]}}\n"
    )
}

const WAITS: &str = "echo $$ > pid.$COWHAND_ATTEMPT; while [ ! -e go ]; do sleep 0.05; done";

fn on_file() -> Scene {
    Scene::with(&fleet("", WAITS))
}

fn file_of(scene: &Scene) -> String {
    scene.root.join(".cowhand/store.db").display().to_string()
}

/// Waits for the process of an attempt.
fn pid_of(scene: &Scene, attempt: u32) -> Pid {
    let file = scene.root.join(format!("pid.{attempt}"));
    let pid = wait_until("the agent to be up", || fs::read_to_string(&file).ok()?.trim().parse().ok());
    Pid::from_raw(pid).unwrap()
}

fn triggered(scene: &Scene) -> (String, Pid) {
    let job = scene.json(&["trigger", "waiter"])["id"].as_str().unwrap().to_owned();
    (job, pid_of(scene, 1))
}

/// Settles the running attempt as another node does after the lease has expired.
async fn lapse(url: &str, job: &str, retry: Retry) {
    let store = Store::open(url).await.unwrap();
    let job: JobId = job.parse().unwrap();
    let history = store.history(job.clone()).await.unwrap().unwrap();
    let node = history.attempts[0].node.clone();
    let lease = SignedDuration::from_secs(3);
    store.join("another".to_owned(), Timestamp::now()).await.unwrap();
    // Its own daemon may renew the lease in between.
    loop {
        let now = Timestamp::now();
        store.renew("another".to_owned(), Vec::new(), lease, now).await.unwrap();
        let ago = SignedDuration::from_hours(-1);
        store.extend_lease(node.clone(), job.clone(), ago, now).await.unwrap();
        let settled = store.settle_expired(job.clone(), 1, false, retry.clone(), now).await.unwrap();
        if matches!(settled, Settled::Done(_)) {
            break;
        }
        // A node has to reach the database for the length of a lease first.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.close().await;
}

fn after(seconds: i64) -> Retry {
    let on = vec!["error".to_owned()];
    Retry { max_attempts: 2, backoff: Interval::seconds(seconds), on }
}

/// Returns a policy by which the job waits a day for its second attempt.
fn tomorrow() -> Retry {
    after(24 * 60 * 60)
}

fn keeper_of(scene: &Scene, job: &str) -> Pid {
    let record = scene.root.join(".cowhand/attempts").join(format!("{job}.1/keeper.json"));
    let keeper: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    Pid::from_raw(keeper["pid"].as_i64().unwrap().try_into().unwrap()).unwrap()
}

fn gone(pid: Pid) {
    wait_until("the process to be ended", || (!lives(pid)).then_some(()));
}

/// Waits until no process of this folder runs except the daemon and its spawner.
fn nothing_left(scene: &Scene) {
    let daemon = scene.daemon();
    let state = format!("keeper spawner {}", scene.root.join(".cowhand").display());
    let others = || {
        let spawners = processes(|arguments, _| arguments.contains(&state));
        let all = left_over(scene.folder.path()).into_iter();
        all.filter(move |pid| Some(*pid) != daemon && !spawners.contains(pid))
    };
    wait_until("nothing to be left", || others().next().is_none().then_some(()));
}

#[tokio::test]
async fn daemon_ends_attempt_that_another_node_settled() {
    for (settled, retry) in [("failed", Retry::default()), ("pending", tomorrow())] {
        let server = Postgres::start();
        let scene = Scene::with(&fleet(&format!("store: {}\nleases: {{length: 3s}}", server.url()), WAITS));
        scene.start();
        let (job, agent) = triggered(&scene);
        lapse(&server.url(), &job, retry).await;
        gone(agent);
        nothing_left(&scene);
        let shown = scene.job(&job);
        assert_eq!((&shown["status"], &shown["attempt"]), (&settled.into(), &1.into()), "{shown:#}");
        assert!(scene.log().contains("its lease is lost"), "{}", scene.log());
    }
}

#[tokio::test]
async fn start_ends_attempts_without_lease() {
    for retry in [Retry::default(), tomorrow()] {
        for without_keeper in [false, true] {
            let scene = on_file();
            scene.start();
            let (job, agent) = triggered(&scene);
            let keeper = keeper_of(&scene, &job);
            scene.kill_daemon();
            if without_keeper {
                kill_process(keeper, Signal::KILL).unwrap();
                gone(keeper);
            }
            lapse(&file_of(&scene), &job, retry.clone()).await;
            assert!(lives(agent));
            scene.start();
            gone(agent);
            nothing_left(&scene);
            let raw = scene.root.join(".cowhand/attempts").join(format!("{job}.1/stdout"));
            wait_until("its raw output to be removed", || (!raw.exists()).then_some(()));
            assert!(!raw.with_file_name("prompt").exists());
            assert!(scene.log().contains("ended an attempt without a lease"), "{}", scene.log());
        }
    }
}

/// The second attempt does not begin before the first has ended.
#[tokio::test]
async fn the_next_attempt_waits_for_the_end_of_an_orphan() {
    // The first attempt takes a while to end, so attempts that run in parallel would be visible in the file.
    let slow = "echo + >> ran; trap 'sleep 1; echo - >> ran; exit' TERM; \
                echo $$ > pid.$COWHAND_ATTEMPT; while [ ! -e go ]; do sleep 0.05; done; echo - >> ran";
    let scene = Scene::with(&fleet("", slow));
    scene.start();
    let (job, agent) = triggered(&scene);
    scene.kill_daemon();
    lapse(&file_of(&scene), &job, after(1)).await;
    scene.start();
    gone(agent);
    scene.write("go", "");
    wait_until("the job to end", || (scene.job(&job)["status"] == "completed").then_some(()));
    let ran = fs::read_to_string(scene.root.join("ran")).unwrap();
    assert_eq!(ran, "+\n-\n+\n-\n");
}

/// A person has removed the folders of the attempts, and the processes are ended all the same.
#[tokio::test]
async fn start_ends_attempts_without_folder() {
    let scene = on_file();
    scene.start();
    let (job, agent) = triggered(&scene);
    let keeper = keeper_of(&scene, &job);
    scene.kill_daemon();
    kill_process(keeper, Signal::KILL).unwrap();
    gone(keeper);
    lapse(&file_of(&scene), &job, Retry::default()).await;
    fs::remove_dir_all(scene.root.join(".cowhand/attempts")).unwrap();
    assert!(lives(agent));
    scene.start();
    gone(agent);
}

/// Creates two folders, each with its own daemon, on one database.
fn two_nodes(server: &Postgres) -> [Scene; 2] {
    [(), ()].map(|()| Scene::with(&fleet(&format!("store: {}\nleases: {{length: 3s}}", server.url()), WAITS)))
}

/// A node that was suspended for longer than its lease finds that another node has continued the job.
#[test]
fn suspended_node_ends_attempt_of_job_taken_over() {
    let server = Postgres::start();
    let [first, second] = two_nodes(&server);
    first.start();
    let (job, agent) = triggered(&first);
    let daemon = first.daemon().unwrap();
    second.start();
    kill_process(daemon, Signal::STOP).unwrap();
    // The lease has to expire first.
    wait_until("it to be lost", || {
        second.log().contains("its node stopped renewing the lease").then_some(())
    });
    pid_of(&second, 2);
    second.write("go", "");
    let shown =
        wait_until("the job to end", || Some(second.job(&job)).filter(|job| job["finished_at"].is_string()));
    assert_eq!((&shown["status"], &shown["attempt"]), (&"completed".into(), &2.into()), "{shown:#}");
    assert!(lives(agent));
    kill_process(daemon, Signal::CONT).unwrap();
    gone(agent);
    nothing_left(&first);
    // Each node has the output of its own attempt.
    let without_output = |mut job: Value| {
        let elsewhere = job.as_object_mut().unwrap().remove("output_elsewhere").unwrap();
        job.as_object_mut().unwrap().remove("output_here").unwrap();
        (elsewhere[0]["attempt"].clone(), job)
    };
    let ((second_attempt, on_first), (first_attempt, on_second)) =
        (without_output(first.job(&job)), without_output(shown));
    assert_eq!((first_attempt, second_attempt), (1.into(), 2.into()));
    assert_eq!(on_first, on_second, "a job that has ended does not change");
    let on_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Each node names the attempts whose output it has, and the node of the other attempt.
    let name =
        |scene: &Scene| fs::read_to_string(scene.root.join(".cowhand/node")).unwrap().trim().to_owned();
    let said = first.run(&["logs", &job]);
    assert!(said.stdout.starts_with("── attempt 1\n"), "{}", said.stdout);
    let (own, other) =
        ("this node has only the output of attempt 1 of", format!("of attempt 2 on node {}", name(&second)));
    assert!(
        on_one_line(&said.stderr).contains(own) && on_one_line(&said.stderr).contains(&other),
        "{}",
        said.stderr
    );
    let said = second.run(&["logs", &job]);
    assert!(said.stdout.starts_with("── attempt 2"), "{}", said.stdout);
    let (own, other) =
        ("this node has only the output of attempt 2 of", format!("of attempt 1 on node {}", name(&first)));
    assert!(
        on_one_line(&said.stderr).contains(own) && on_one_line(&said.stderr).contains(&other),
        "{}",
        said.stderr
    );
}

/// `stop --keep-agents` leaves the agent to its keeper; another node takes the job over meanwhile.
#[tokio::test]
async fn kept_agent_ends_if_its_job_was_taken_over() {
    let server = Postgres::start();
    let [first, second] = two_nodes(&server);
    first.start();
    let (job, agent) = triggered(&first);
    assert_eq!(first.run(&["stop", "--keep-agents"]).code, Some(0));
    lapse(&server.url(), &job, after(1)).await;
    second.start();
    let other = pid_of(&second, 2);
    assert!(lives(agent), "nobody is there who could end it");
    first.start();
    gone(agent);
    nothing_left(&first);
    assert!(lives(other));
    let daemon = second.daemon().unwrap();
    kill_and_wait(daemon);
    second.start();
    assert!(lives(other), "the daemon continues its own attempts");
    second.write("go", "");
    wait_until("the job to end", || (second.job(&job)["status"] == "completed").then_some(()));
}

//! A delivery about a repository triggers a poll at once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Scene, answer};
use cowhand_testing::github_lists as fake;
use fake::{FakeLists, issue};

fn fleet(url: &str) -> String {
    format!(
        r#"
server: {{listen: "127.0.0.1:0"}}
agents:
  - name: worker
    runtime: command
    command: [sh, -c, "cat > /dev/null"]
    instances: {{max_concurrent: 8}}
    schedules:
      hook: {{type: webhook, secret_env: HOOK_OLD, events: [push], prompt: Look.}}
      unsigned: {{type: webhook, allow_unsigned: true, events: [push], prompt: Look.}}
      issues:
        {{type: github_issues, owner: Octo, repo: Cat, poll_interval: 1h, api_url: "{url}", prompt: "{{{{title}}}}"}}
      work:
        type: interval
        interval: 1h
        work_source: {{type: github, repo: octo/cat, api_url: "{url}", labels: {{ready: none}}}}
        prompt: Work.
"#
    )
}

fn of_schedule(scene: &Scene, name: &str) -> Vec<Value> {
    scene.jobs().into_iter().filter(|job| job["schedule"] == name).collect()
}

fn looks(scene: &Scene) -> Vec<Value> {
    let (_, why, said) = scene.run(&["why", "worker/work", "--json"]);
    let why: Value = serde_json::from_str(&why).unwrap_or_else(|_| panic!("{said}"));
    why["firings"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivery_about_repository_triggers_polls_at_once() {
    let fake = FakeLists::with_issues(0).await;
    let mut scene = Scene::prepared(&fleet(&fake.url));
    std::fs::write(scene.path(".env"), "GITHUB_TOKEN=token\n").unwrap();
    scene.start(&[]);
    let settled = |scene: &Scene| looks(scene).iter().filter(|look| look["reason"] == "no_work").count();
    // One request for the list of the trigger, one for the items of the interval, and one for expired claims.
    scene.until("both have looked", || settled(&scene) == 1 && fake.fake_state.lock().unwrap().requests == 3);

    let asked = || fake.fake_state.lock().unwrap().requests;
    let before = asked();
    fake.fake_state.lock().unwrap().issues.push(issue(7));
    let body = |repo: &str| json!({"repository": {"full_name": repo}}).to_string().into_bytes();
    // No poll is triggered by a delivery about another repository, an unsigned or wrongly signed delivery, or a ping.
    assert_eq!(answer(scene.github("hook", "1", "push", &body("octo/dog"))).await.0, 202);
    let unsigned = scene.deliver("unsigned", body("octo/cat")).header("x-github-event", "push");
    assert_eq!(answer(unsigned).await.0, 202);
    let wrong = scene.deliver("hook", body("octo/cat")).header("x-github-event", "push");
    assert_eq!(answer(wrong.header("x-hub-signature-256", "sha256=00")).await.0, 401);
    assert_eq!(answer(scene.github("hook", "2", "ping", &body("octo/cat"))).await.0, 200);
    assert_eq!(asked(), before);

    // A delivery that its own schedule filters out still triggers a poll.
    let began = Instant::now();
    assert_eq!(answer(scene.github("hook", "3", "issues", &body("octo/cat"))).await.0, 202);
    // The schedules themselves poll only once an hour.
    while asked() < before + 2 {
        assert!(began.elapsed() < Duration::from_mins(1), "{} requests", asked() - before);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("both have asked {:?} after the delivery", began.elapsed());
    scene.until("the issue is a job", || of_schedule(&scene, "issues").len() == 1);
    scene.until("the interval looked, too", || settled(&scene) == 2);
    assert!(looks(&scene).iter().any(|look| look["key"] == "webhook:3"));

    // Many more deliveries cause one more poll of each schedule, ten seconds later.
    for number in 0..200 {
        let id = format!("more-{number}");
        assert_eq!(answer(scene.github("hook", &id, "issues", &body("OCTO/cat"))).await.0, 202);
    }
    scene.until("the second look", || settled(&scene) == 3);
    assert!(began.elapsed() > Duration::from_secs(9), "{:?}", began.elapsed());
    assert!(asked() - before < 20, "{} requests", asked() - before);
    assert_eq!(of_schedule(&scene, "issues").len(), 1);
}

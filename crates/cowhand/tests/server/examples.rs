//! GitHub's own examples of webhook deliveries, from `@octokit/webhooks-examples`.

use std::fs;
use std::path::Path;

use futures_util::StreamExt as _;
use futures_util::stream::iter;
use serde::Deserialize;
use serde_json::Value;

use crate::{Scene, answer};

const FLEET: &str = r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: worker
    runtime: command
    command: [sh, -c, "cat > /dev/null"]
    instances: {max_concurrent: 4}
    schedules:
      all: {type: webhook, secret_env: HOOK_OLD, prompt: "{{metadata.github_event}} in {{metadata.repository}}: {{title}}"}
      opened: {type: webhook, secret_env: HOOK_OLD, events: [issues.opened], prompt: "{{title}} ({{url}})"}
      bugs:
        type: webhook
        secret_env: HOOK_OLD
        events: [issues]
        filter: {actions: [opened, labeled], labels: [BUG], payload: {/sender/type: User}}
        prompt: Mend it.
"#;

#[derive(Deserialize)]
struct Event {
    name: String,
    examples: Vec<Value>,
}

fn examples() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/node/node_modules/@octokit");
    let file = folder.join("webhooks-examples/api.github.com/index.json");
    let text = fs::read_to_string(&file).unwrap_or_else(|error| {
        panic!("{}: {error}; run scripts/test, which installs it", file.display());
    });
    let events: Vec<Event> = serde_json::from_str(&text).unwrap();
    let all = events.into_iter().flat_map(|Event { name, examples }| {
        examples.into_iter().map(move |example| (name.clone(), example))
    });
    all.collect()
}

/// Checks labels and sender of an issue, independently of the program.
fn is_bug(payload: &Value) -> bool {
    let labels = payload["issue"]["labels"].as_array().into_iter().flatten();
    ["opened", "labeled"].contains(&payload["action"].as_str().unwrap_or_default())
        && labels.clone().any(|label| label["name"] == "bug")
        && payload["sender"]["type"] == "User"
}

#[tokio::test]
async fn github_examples_are_accepted_filtered_and_rendered() {
    let scene = Scene::of(FLEET);
    let examples = examples();
    assert!(examples.len() > 300, "{}", examples.len());
    let deliveries = examples
        .iter()
        .enumerate()
        .flat_map(|(number, example)| ["all", "opened", "bugs"].map(|schedule| (number, schedule, example)));
    let sent = iter(deliveries).map(async |(number, schedule, (event, payload))| {
        let body = serde_json::to_vec(payload).unwrap();
        let (status, said) = answer(scene.github(schedule, &format!("d-{number}"), event, &body)).await;
        let is_issue = event == "issues";
        let expected = match schedule {
            _ if event == "ping" => (200, "pong"),
            "opened" if is_issue && payload["action"] == "opened" => (202, "accepted"),
            "bugs" if is_issue && is_bug(payload) => (202, "accepted"),
            "all" => (202, "accepted"),
            _ => (202, "filtered"),
        };
        assert_eq!(
            (status, said["status"].as_str().unwrap()),
            expected,
            "{schedule} {event} {number} {said}"
        );
        (schedule, expected.1 == "accepted")
    });
    let sent: Vec<(&str, bool)> = sent.buffer_unordered(16).collect().await;
    let accepted = |of: &str| sent.iter().filter(|(schedule, taken)| *schedule == of && *taken).count();
    let counts = ["all", "opened", "bugs"].map(accepted);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");

    let jobs = scene.jobs();
    assert_eq!(jobs.len(), counts.iter().sum::<usize>());
    let prompts = |of: &str| -> Vec<&str> {
        let own = jobs.iter().filter(|job| job["schedule"] == of);
        own.map(|job| job["prompt"].as_str().unwrap()).collect()
    };
    for (event, payload) in examples.iter().filter(|(event, _)| event == "issues" || event == "push") {
        let repository = payload["repository"]["full_name"].as_str().unwrap_or_default();
        let start = format!("{event} in {repository}: ");
        assert!(prompts("all").iter().any(|prompt| prompt.starts_with(&start)), "{start}");
        if event == "issues" && payload["action"] == "opened" {
            let (title, url) = (&payload["issue"]["title"], &payload["issue"]["html_url"]);
            let prompt = format!("`{}` ({})", title.as_str().unwrap(), url.as_str().unwrap());
            assert!(
                prompts("opened").iter().any(|made| made.contains(&prompt)),
                "{prompt}: {:?}",
                prompts("opened")
            );
        }
    }
    println!("{} examples; accepted {counts:?} of all, opened, bugs", examples.len());
}

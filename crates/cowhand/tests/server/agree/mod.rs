//! One fleet with a schedule, a job, an item, an ask, a budget, a provider and a config in each of their
//! states: the command line, the API, the pages, `state.yaml` and the metrics agree about each, and advised
//! commands work.

mod advice;
mod fleet;
mod surfaces;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Scene;
use surfaces::Surfaces;

#[tokio::test]
async fn all_surfaces_show_the_same_state() {
    let scene = fleet::driven().await;
    let token = scene.token("reader", "read");
    let surfaces = Surfaces { scene: &scene, token: &token };
    let (schedules, state) = surfaces.settled().await;
    // The fleet has the intended states.
    for (name, status, reason) in fleet::STATES {
        let view = schedules.iter().find(|view| name_of(view) == name).unwrap();
        assert_eq!((&view["status"], &view["skip_reason"]), (&json!(status), &json!(reason)), "{view}");
    }
    for view in &schedules {
        surfaces.schedule(view, &state).await;
    }
    surfaces.agents(&schedules, &state).await;
    surfaces.jobs().await;
    surfaces.work().await;
    surfaces.asks().await;
    surfaces.budgets().await;
    surfaces.providers().await;
    surfaces.config().await;
    surfaces.texts(&schedules);
    std::fs::write(scene.path("go"), "").unwrap();
}

#[tokio::test]
async fn advised_commands_work() {
    let scene = fleet::driven().await;
    advice::follow(&scene);
    std::fs::write(scene.path("go"), "").unwrap();
}

fn name_of(view: &Value) -> String {
    format!("{}/{}", view["agent"].as_str().unwrap(), view["schedule"].as_str().unwrap())
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str().map(|text| text.parse().unwrap())
}

/// Returns the JSON of a verb.
fn told(scene: &Scene, arguments: &[&str]) -> Value {
    let (code, out, said) = scene.run(&[arguments, &["--json"]].concat());
    assert_eq!(code, 0, "{arguments:?}: {out}{said}");
    serde_json::from_str(&out).unwrap()
}

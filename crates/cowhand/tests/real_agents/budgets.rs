//! A looping agent is stopped within one call of the model, whatever it reports.

use std::fs;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::models::{CACHED, Got, INPUT, OUTPUT, Scenario};
use super::{Cli, Scene, left_over, status_and_error, wait_until};

/// Tokens that one call reports.
const CALL: u64 = INPUT + CACHED + OUTPUT;

fn tokens(job: &Value) -> u64 {
    let of_model = |usage: &Value| {
        ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]
            .iter()
            .filter_map(|key| usage[key].as_u64())
            .sum::<u64>()
    };
    job["usage"]["per_model"].as_object().unwrap().values().map(of_model).sum()
}

/// Counts the calls that got an answer.
fn answered(scene: &Scene) -> usize {
    let served = scene.models.served();
    served.iter().filter(|served| served.scenario == Scenario::Loop && served.got != Got::Nothing).count()
}

/// Checks that the job is ended by its token limit. Some programs report usage during a call, others at the next call.
/// The model answers four calls only. So the usage is bounded on a slow machine too, and an agent that is not ended
/// would stay for ever.
fn tokens_of_a_job(cli: Cli) {
    let limit = 3 * CALL - 500;
    let scene = Scene::with(cli, &json!({"budget": {"per_job_tokens": limit}}));
    scene.models.answers(4);
    let job = scene.finished(&scene.trigger("SCENARIO:loop"));
    assert_eq!(status_and_error(&job), ["failed", "error", "budget"], "{job:#}");
    let message = job["error"]["message"].as_str().unwrap();
    assert!(message.contains("coder's job budget of 2,650 tokens is used up"), "{message}");
    assert!(message.contains("raise `budget.per_job_tokens`"), "{message}");
    // The third call exceeds the limit, and a fourth may have begun.
    let used = tokens(&job);
    println!("{}: {used} tokens of {limit}", cli.name());
    assert!((limit..=4 * CALL).contains(&used), "{used} of {limit}: {job:#}");
}

#[test]
fn claude_stops_at_token_budget() {
    tokens_of_a_job(Cli::Claude);
}

#[test]
fn codex_stops_at_token_budget() {
    tokens_of_a_job(Cli::Codex);
}

#[test]
fn opencode_stops_at_token_budget() {
    tokens_of_a_job(Cli::Opencode);
}

#[test]
fn gemini_stops_at_token_budget() {
    tokens_of_a_job(Cli::Gemini);
}

#[test]
fn gemini_by_acp_stops_at_token_budget() {
    tokens_of_a_job(Cli::GeminiAcp);
}

/// Checks the limit in dollars, by the table of prices or by the cost that the program reports.
fn five_cents(cli: Cli) {
    let scene = Scene::with(cli, &json!({"budget": {"per_job_usd": 0.05}}));
    // The price is twenty times that of the other tests, 1.9 cents for a call, because the Gemini CLI detects the loop
    // itself after five calls.
    scene.change(|fleet| {
        fleet["prices"] = json!({cli.model(): {"input": 20.0, "cached_input": 10.0, "output": 40.0}});
    });
    let told = fs::read_to_string(scene.root.join("home/opencode.json")).unwrap();
    let mut told: Value = serde_json::from_str(&told).unwrap();
    told["provider"]["fake"]["models"]["m1"]["cost"] = json!({"input": 20, "output": 40, "cache_read": 10});
    scene.write("home/opencode.json", &told.to_string());
    scene.models.answers(4);
    let job = scene.finished(&scene.trigger("SCENARIO:loop"));
    assert_eq!(status_and_error(&job), ["failed", "error", "budget"], "{job:#}");
    let message = job["error"]["message"].as_str().unwrap();
    assert!(message.contains("coder's job budget of $0.05 is used up"), "{message}");
    let spent = job["usage"]["total_cost_usd"].as_f64().unwrap();
    let calls = answered(&scene);
    println!("{}: {spent} dollars, {calls} calls", cli.name());
    // The third call exceeds the limit, and a fourth may have begun. OpenCode makes one more call to name its session,
    // whose cost it does not report.
    let most = if cli == Cli::Opencode { 5 } else { 4 };
    assert!((3..=most).contains(&calls), "{calls} calls");
    assert!((0.05..=4.0 * 0.019 + 1e-6).contains(&spent), "{spent} in {calls} calls: {job:#}");
}

#[test]
fn codex_stops_at_dollar_budget() {
    five_cents(Cli::Codex);
}

#[test]
fn opencode_stops_at_dollar_budget() {
    five_cents(Cli::Opencode);
}

#[test]
fn gemini_stops_at_dollar_budget() {
    five_cents(Cli::Gemini);
}

#[test]
fn gemini_by_acp_stops_at_dollar_budget() {
    five_cents(Cli::GeminiAcp);
}

/// The program reports 0 for a model without a known price, which is ignored.
#[test]
fn opencode_stops_at_once_without_known_price() {
    let scene = Scene::with(Cli::Opencode, &json!({"budget": {"per_job_usd": 0.05}}));
    scene.change(|fleet| fleet["prices"] = json!({}));
    let told = fs::read_to_string(scene.root.join("home/opencode.json")).unwrap();
    let mut told: Value = serde_json::from_str(&told).unwrap();
    told["provider"]["fake"]["models"]["m1"].as_object_mut().unwrap().shift_remove("cost");
    scene.write("home/opencode.json", &told.to_string());
    scene.models.answers(2);
    let job = scene.finished(&scene.trigger("SCENARIO:loop"));
    assert_eq!(status_and_error(&job), ["failed", "error", "budget"], "{job:#}");
    let message = job["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("the price of fake/m1 is not known, so the budget in dollars"), "{message}");
    let calls = answered(&scene);
    // This includes the call that names the session.
    assert!(calls <= 3, "{calls} calls");
}

/// Claude enforces the limit itself, because it knows its spending before cowhand does.
#[test]
fn claude_stops_at_dollar_budget() {
    let scene = Scene::with(Cli::Claude, &json!({"budget": {"per_job_usd": 0.05}}));
    let job = scene.run("SCENARIO:spin");
    assert_eq!(status_and_error(&job), ["failed", "error", "budget"], "{job:#}");
    let message = job["error"]["message"].as_str().unwrap();
    assert!(message.contains("coder's job budget of $0.05 is used up"), "{message}");
    let spent = job["usage"]["total_cost_usd"].as_f64().unwrap();
    let calls = tokens(&job) / CALL;
    println!("{spent} dollars in {calls} calls");
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let call = spent / calls as f64;
    assert!((0.05..=0.05 + call + 1e-6).contains(&spent), "{spent} in {calls} calls: {job:#}");
    // The next job has its own budget, and the day counts both.
    assert_eq!(scene.run("Say hello.")["status"], "completed");
    let usage = scene.json(&["usage"]);
    assert!(usage["total"]["cost_usd"].as_f64().unwrap() > spent, "{usage:#}");
    assert_eq!(usage["total"]["attempts"], 2);
}

/// Claude reports its cost when it ends, even if it is cancelled. If it is killed it reports none, so its spending is
/// assumed, and counts for the day.
#[test]
fn spending_of_killed_claude_is_assumed() {
    let scene = Scene::with(Cli::Claude, &json!({"budget": {"per_day_usd": 3.0}}));
    scene.change(|fleet| fleet["prices"] = json!({}));
    let id = scene.trigger("SCENARIO:loop");
    // After the third call, the usage of the first is known.
    wait_until("some calls of the model", || (scene.models.served().len() >= 3).then_some(()));
    let daemon = scene.json(&["status"])["daemon"]["pid"].as_i64().unwrap();
    for pid in left_over(scene.folder.path()) {
        if i64::from(pid.as_raw_nonzero().get()) != daemon {
            kill_process(pid, Signal::KILL).ok();
        }
    }
    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job), ["failed", "error", "lost"], "{job:#}");
    let assumed = job["usage"]["assumed_usd"].as_f64().unwrap_or_else(|| panic!("{job:#}"));
    println!("{assumed} dollars for {} tokens", tokens(&job));
    assert!((0.01..=3.0).contains(&assumed), "{job:#}");
    let usage = scene.json(&["usage"]);
    assert!(usage["total"]["cost_usd"].as_f64().unwrap() >= assumed, "{usage:#}");
}

//! Events of a fleet create jobs: each once, in order, across restarts.

use cowhand::fleet::{Fleet, Stop, TriggerRequest};
use cowhand::store::Store;
use cowhand::trigger::Registry;
use cowhand_core::event::{Event, Fact};
use cowhand_core::job::{NewJob, TriggerType};
use cowhand_core::schedule::{FiringOutcome, SkipReason};
use jiff::Timestamp;

use crate::{
    FleetFolder, crash, fires, id, jobs, ledger, name, on_both, prompts, until, wait_for, with_schedule,
};

on_both! {
    a_result_makes_a_job_that_knows_it,
    what_happens_while_nobody_listens_is_heard_later,
}

async fn trigger(fleet: &Fleet, agent: &str, schedule: Option<&str>, prompt: Option<&str>) {
    let schedule = schedule.map(|name| name.parse().unwrap());
    let asked = TriggerRequest { schedule, prompt: prompt.map(str::to_owned), ..TriggerRequest::default() };
    fleet.trigger(&name(agent), asked).await.unwrap();
}

async fn a_result_makes_a_job_that_knows_it(home: FleetFolder) {
    let builder =
        with_schedule(home.agent("builder"), "build", r#"{"type":"manual"}"#, "Built {{ \"{{agent}}\" }}.");
    let after = r#"{"type":"dispatch_result","schedule":"builder/build","status":"completed"}"#;
    let prompt = "{{upstream.agent}}/{{upstream.schedule}} {{upstream.status}} {{status}}: {{upstream.summary}}\n{{upstream.result}}";
    let tester = with_schedule(home.agent("tester"), "after", after, prompt);
    let failures = r#"{"type":"dispatch_result","schedule":"builder/build","status":"failed"}"#;
    let medic = with_schedule(home.idle_agent("medic"), "mend", failures, "x");
    let fleet = home.start(vec![builder, tester, medic], Registry::default()).await;
    let mut events = fleet.subscribe_after(0);
    trigger(&fleet, "builder", None, Some("Not of the schedule.")).await;
    trigger(&fleet, "builder", Some("build"), None).await;
    let fired = fires(&mut events, "tester", "after").await;
    let job = fleet.store().job(fired.job.unwrap()).await.unwrap().unwrap();
    let prompt = job.prompt().unwrap();
    assert!(
        prompt.starts_with("builder/build completed completed: `Built {{agent}}.`\n~~~~ text from outside"),
        "{prompt}"
    );
    assert!(prompt.contains("\nBuilt {{agent}}.\n~~~~"), "a value is not expanded again: {prompt}");
    until(&mut events, |event| {
        event.agent == Some(name("tester")) && matches!(event.fact, Fact::JobCompleted { .. })
    })
    .await;
    fleet.stop(Stop::default()).await.unwrap();
    assert_eq!(jobs(&fleet).await.len(), 3, "one for each result that is waited for");
}

async fn what_happens_while_nobody_listens_is_heard_later(home: FleetFolder) {
    let builder = || with_schedule(home.agent("builder"), "build", r#"{"type":"manual"}"#, "x");
    let after = r#"{"type":"dispatch_result","schedule":"builder/build"}"#;
    let tester = |enabled: bool| {
        let mut tester = with_schedule(home.idle_agent("tester"), "after", after, "{{upstream.job_id}}");
        tester.schedules[0].enabled = enabled;
        tester
    };
    let fleet = home.start(vec![builder(), tester(true)], Registry::default()).await;
    fleet.stop(Stop::default()).await.unwrap();
    drop(fleet);
    let ended = three_jobs_end(&home).await;
    for _ in 0..2 {
        let fleet = home.start(vec![builder(), tester(true)], Registry::default()).await;
        wait_for("three firings", async || ledger(&fleet, id("tester", "after")).await.len() >= 3).await;
        fleet.stop(Stop::default()).await.unwrap();
        assert_eq!(prompts(&fleet).await[3..], ended, "each once, in order");
    }
    // The schedule is turned off and on again, by hand or in the file. Events in between do not fire later.
    let fleet = home.start(vec![builder(), tester(false)], Registry::default()).await;
    fleet.stop(Stop::default()).await.unwrap();
    drop(fleet);
    three_jobs_end(&home).await;
    let fleet = home.start(vec![builder(), tester(true)], Registry::default()).await;
    let after = "after".parse().unwrap();
    fleet.disable(&name("tester"), &after).await.unwrap();
    let mut events = fleet.subscribe().await.unwrap();
    trigger(&fleet, "builder", Some("build"), None).await;
    until(&mut events, |event| matches!(event.fact, Fact::JobCompleted { .. })).await;
    fleet.enable(&name("tester"), &after).await.unwrap();
    trigger(&fleet, "builder", Some("build"), None).await;
    fires(&mut events, "tester", "after").await;
    fleet.stop(Stop::default()).await.unwrap();
    assert_eq!(ledger(&fleet, id("tester", "after")).await.len(), 4);
}

/// Ends three jobs in the same store while the fleet is down.
async fn three_jobs_end(home: &FleetFolder) -> Vec<String> {
    let store = Store::open(&home.store_url()).await.unwrap();
    let mut ended = Vec::new();
    for _ in 0..3 {
        let (agent, schedule) = (name("builder"), Some("build".parse().unwrap()));
        let new = NewJob {
            agent,
            trigger_type: TriggerType::Manual,
            schedule,
            prompt: Some("x".into()),
            origin: None,
            work_item: None,
            chat: None,
            message: None,
            confined: None,
            not_before: None,
        };
        let job = store.add_job(new, Timestamp::now()).await.unwrap();
        store.cancel(job.id().clone(), Timestamp::now()).await.unwrap();
        ended.push(job.id().to_string());
    }
    store.close().await;
    ended
}

/// Checks an agent with a schedule that listens to its own sessions; the job of that schedule does not fire
/// it again.
async fn a_session(event: &str) {
    let home = FleetFolder::sqlite();
    let trigger_of = format!(r#"{{"type":"agent_lifecycle","event":"{event}"}}"#);
    let agent = with_schedule(home.agent("coder"), "s", &trigger_of, "{{event_type}} {{agent_id}}");
    let fleet = home.start(vec![agent], Registry::default()).await;
    let mut events = fleet.subscribe_after(0);
    trigger(&fleet, "coder", None, None).await;
    let fired = fires(&mut events, "coder", "s").await;
    let job = fleet.store().job(fired.job.unwrap()).await.unwrap().unwrap();
    assert_eq!(job.prompt(), Some(format!("{event} coder").as_str()));
    let its_end = |event: &Event| {
        event.job.as_ref() == Some(job.id()) && matches!(event.fact, Fact::JobCompleted { .. })
    };
    until(&mut events, its_end).await;
    fleet.stop(Stop::default()).await.unwrap();
    assert_eq!(ledger(&fleet, id("coder", "s")).await.len(), 1);
}

#[tokio::test]
async fn session_start_fires_schedule() {
    Box::pin(a_session("session_start")).await;
}

#[tokio::test]
async fn session_end_fires_schedule() {
    Box::pin(a_session("session_end")).await;
}

#[tokio::test]
async fn context_clear_fires_schedules() {
    let home = FleetFolder::sqlite();
    let own = r#"{"type":"agent_lifecycle","event":"context_clear"}"#;
    let of_other = r#"{"type":"agent_lifecycle","event":"context_clear","agent":"coder"}"#;
    let coder = with_schedule(home.idle_agent("coder"), "s", own, "{{event_type}} {{agent_id}}");
    let watcher = with_schedule(home.idle_agent("watcher"), "s", of_other, "{{event_type}} {{agent_id}}");
    let fleet = home.start(vec![coder, watcher], Registry::default()).await;
    fleet.clear(&name("watcher")).await.unwrap();
    fleet.clear(&name("coder")).await.unwrap();
    assert!(fleet.clear(&name("nobody")).await.is_err());
    wait_for("two jobs", async || jobs(&fleet).await.len() == 2).await;
    fleet.stop(Stop::KeepAgents).await.unwrap();
    assert_eq!(prompts(&fleet).await, ["context_clear coder", "context_clear coder"]);
}

/// Runs the verb of the real program.
#[tokio::test]
async fn clear_verb_fires_schedule() {
    let home = FleetFolder::sqlite();
    let schedule = "{type: agent_lifecycle, event: context_clear, prompt: 'Begin anew.'}";
    let agent = format!("{{name: coder, runtime: command, command: [cat], schedules: {{s: {schedule}}}}}");
    std::fs::write(home.path().join("cowhand.yaml"), format!("agents: [{agent}]\n")).unwrap();
    let mut daemon = crash::start(&home, None);
    let said = crash::cowhand(&home).args(["clear", "coder"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "The sessions of coder are cleared.\n");
    let unknown = crash::cowhand(&home).args(["clear", "nobody"]).output().unwrap();
    assert!(
        !unknown.status.success()
            && String::from_utf8_lossy(&unknown.stderr).contains("there is no agent nobody")
    );
    wait_for("an answer to it", async || {
        let why = crash::cowhand(&home).args(["why", "coder/s"]).output().unwrap();
        String::from_utf8_lossy(&why.stdout).contains("its trigger fired")
    })
    .await;
    assert!(crash::cowhand(&home).arg("stop").output().unwrap().status.success());
    assert!(daemon.wait().unwrap().success());
}

/// Only a config is checked for circles of schedules, and here a program provides the agents.
#[tokio::test]
async fn circle_of_dispatch_results_ends() {
    let home = FleetFolder::sqlite();
    let waits_for = |other: &str| format!(r#"{{"type":"dispatch_result","schedule":"{other}/s"}}"#);
    let one = with_schedule(home.agent("ping"), "s", &waits_for("pong"), "{{metadata.chain_length}}");
    let other = with_schedule(home.agent("pong"), "s", &waits_for("ping"), "{{metadata.chain_length}}");
    let fleet = home.start(vec![one, other], Registry::default()).await;
    let mut events = fleet.subscribe_after(0);
    trigger(&fleet, "ping", Some("s"), Some("start")).await;
    let skipped =
        until(&mut events, |event| matches!(event.fact, Fact::ScheduleSkipped { .. })).await.pop().unwrap();
    assert!(matches!(skipped.fact, Fact::ScheduleSkipped { reason: SkipReason::Filtered, .. }));
    fleet.stop(Stop::default()).await.unwrap();
    let all = prompts(&fleet).await;
    let counted: Vec<String> = (0..10).map(|length| length.to_string()).collect();
    assert_eq!(all[0], "start");
    assert_eq!(all[1..], counted);
    let newest = &ledger(&fleet, id("pong", "s")).await[0];
    assert_eq!(newest.outcome, FiringOutcome::Skipped(SkipReason::Filtered));
}

/// An idle listener does not query the store again and again.
#[tokio::test]
async fn idle_listener_does_not_query_store_repeatedly() {
    let home = FleetFolder::sqlite();
    let agent = with_schedule(home.idle_agent("a"), "s", r#"{"type":"dispatch_result"}"#, "x");
    let fleet = home.start(vec![agent], Registry::default()).await;
    wait_for("a first look", async || fleet.state().check_count > 0).await;
    // With a listener that queries again and again, this moment never comes.
    wait_for("a quiet moment", async || {
        let before = fleet.state().check_count;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        fleet.state().check_count <= before + 1
    })
    .await;
    fleet.stop(Stop::default()).await.unwrap();
}

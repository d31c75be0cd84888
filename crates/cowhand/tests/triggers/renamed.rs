//! A renamed schedule does not repeat its firings.

use cowhand::fleet::{Fleet, Stop, TriggerRequest};
use cowhand::store::JobFilter;
use cowhand::trigger::Registry;
use cowhand_core::event::Fact;
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::roster::{Agent, FormerName};
use cowhand_core::schedule::{FiringOutcome, ScheduleState};

use crate::fake::{FakeLists, issue};
use crate::{FleetFolder, id, jobs, ledger, name, on_both, record, until, wait_for, with_schedule};

on_both!(a_new_name_alone_fires_nothing, jobs_that_run_meanwhile_end_well);

/// Returns the trigger of a schedule. It reads the same list under each name, but not equally often.
fn issues(fake: &FakeLists, schedule: &str) -> String {
    let poll_interval = if schedule == "new" { "2s" } else { "1s" };
    format!(
        r#"{{"type":"github_issues","owner":"o","repo":"r","labels":["agent"],"poll_interval":"{poll_interval}","api_url":"{}",
        "auth":{{"token_env":"PATH"}}}}"#,
        fake.url
    )
}

/// Returns the agent with one schedule, and its former name.
fn agent_with_schedule(
    agent: Agent,
    schedule: &str,
    fake: &FakeLists,
    adopts: Option<(&str, &str)>,
) -> Agent {
    let mut agent = with_schedule(agent, schedule, &issues(fake, schedule), "{{title}}");
    let former =
        adopts.map(|(agent, name)| FormerName { agent: crate::name(agent), name: name.parse().unwrap() });
    agent.schedules.last_mut().unwrap().adopts = former;
    agent
}

async fn count(fleet: &Fleet, status: JobStatus) -> usize {
    jobs(fleet).await.iter().filter(|job| job.status() == status).count()
}

async fn a_new_name_alone_fires_nothing(home: FleetFolder) {
    let fake = FakeLists::with_issues(3).await;
    let fleet = home
        .start(vec![agent_with_schedule(home.idle_agent("a"), "old", &fake, None)], Registry::default())
        .await;
    wait_for("three jobs wait", async || count(&fleet, JobStatus::Pending).await == 3).await;
    fleet.stop(Stop::KeepAgents).await.unwrap();
    drop(fleet);

    // Without a former name the error names the remedy, and nothing fires twice.
    let new = || agent_with_schedule(home.agent("a"), "new", &fake, None);
    let fleet = home.start(vec![new()], Registry::default()).await;
    let ScheduleState::Error { reason } = record(&fleet, id("a", "new")).await.state else { panic!("held") };
    assert_eq!(
        reason,
        "it seems to be a/old under a new name, and would fire again for all items of its list; to continue the \
         history, write `adopt: old`; to start without it, run `cowhand schedule enable a/new`"
    );
    // The state is the same after another reload.
    fleet.set_agents(vec![new()]).await.unwrap();
    assert!(matches!(record(&fleet, id("a", "new")).await.state, ScheduleState::Error { .. }));
    assert_eq!(ledger(&fleet, id("a", "new")).await, []);

    // With the former name the schedule continues: waiting jobs run, and only new items fire.
    fleet
        .set_agents(vec![agent_with_schedule(home.agent("a"), "new", &fake, Some(("a", "old")))])
        .await
        .unwrap();
    wait_for("what waited is done", async || count(&fleet, JobStatus::Completed).await == 3).await;
    fake.fake_state.lock().unwrap().issues.push(issue(4));
    wait_for("the fourth is done", async || count(&fleet, JobStatus::Completed).await == 4).await;
    let all = jobs(&fleet).await;
    assert_eq!(
        all.iter().filter_map(Job::prompt).collect::<Vec<_>>(),
        ["`Issue 1`", "`Issue 2`", "`Issue 3`", "`Issue 4`"]
    );
    assert!(all.iter().all(|job| job.schedule().unwrap().as_str() == "new"), "{all:#?}");
    let rows = ledger(&fleet, id("a", "new")).await;
    assert_eq!(rows.iter().filter(|row| row.outcome == FiringOutcome::Ran).count(), 4, "{rows:#?}");
    let known = fleet.store().schedules().await.unwrap();
    assert_eq!(known.iter().map(|record| record.name.as_str()).collect::<Vec<_>>(), ["new"]);
    let mut events = fleet.subscribe_after(0);
    let adopted = |fact: &Fact| matches!(fact, Fact::ScheduleAdopted { former } if former == "a/old");
    until(&mut events, |event| adopted(&event.fact)).await;
    fleet.stop(Stop::Cancel).await.unwrap();
}

/// An agent with a new name has all its schedules under new names.
async fn jobs_that_run_meanwhile_end_well(home: FleetFolder) {
    let fake = FakeLists::with_issues(1).await;
    let waiting = |called: &str| {
        let mut agent = home.agent(called);
        let script = "touch up; while [ ! -e end ]; do sleep 0.05; done";
        agent.program.command = ["sh", "-c", script].map(str::to_owned).into();
        agent
    };
    let fleet =
        home.start(vec![agent_with_schedule(waiting("a"), "s", &fake, None)], Registry::default()).await;
    wait_for("it runs", async || home.path().join("up").exists()).await;
    fleet.set_agents(vec![agent_with_schedule(waiting("b"), "s", &fake, Some(("a", "s")))]).await.unwrap();
    std::fs::write(home.path().join("end"), "").unwrap();
    wait_for("it is done", async || count(&fleet, JobStatus::Completed).await == 1).await;
    fake.fake_state.lock().unwrap().issues.push(issue(2));
    wait_for("the second is done", async || count(&fleet, JobStatus::Completed).await == 2).await;
    let of = |agent: &str| JobFilter { agent: Some(name(agent)), ..JobFilter::default() };
    for (agent, title) in [("a", "`Issue 1`"), ("b", "`Issue 2`")] {
        let own = fleet.store().jobs(of(agent), 10).await.unwrap();
        assert_eq!(own.iter().filter_map(Job::prompt).collect::<Vec<_>>(), [title], "{agent}");
    }
    assert_eq!(ledger(&fleet, id("b", "s")).await.len(), 2);
    fleet.stop(Stop::Cancel).await.unwrap();
}

/// Enabling the schedule fires for all items again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enabled_renamed_schedule_fires_for_all_items_again() {
    let (home, fake) = (FleetFolder::sqlite(), FakeLists::with_issues(2).await);
    let fleet = home
        .start(vec![agent_with_schedule(home.idle_agent("a"), "old", &fake, None)], Registry::default())
        .await;
    wait_for("two jobs wait", async || count(&fleet, JobStatus::Pending).await == 2).await;
    fleet.set_agents(vec![agent_with_schedule(home.idle_agent("a"), "new", &fake, None)]).await.unwrap();
    assert!(matches!(record(&fleet, id("a", "new")).await.state, ScheduleState::Error { .. }));
    assert!(fleet.enable(&name("a"), &"new".parse().unwrap()).await.is_ok());
    wait_for("both fire again", async || ledger(&fleet, id("a", "new")).await.len() == 2).await;
    assert_eq!(jobs(&fleet).await.len(), 4);
    // If the new schedule adopts the old one afterwards, an item that fired in both counts once.
    fleet
        .set_agents(vec![agent_with_schedule(home.idle_agent("a"), "new", &fake, Some(("a", "old")))])
        .await
        .unwrap();
    assert_eq!(ledger(&fleet, id("a", "new")).await.len(), 2);
    assert_eq!(fleet.store().schedules().await.unwrap().len(), 1);
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// A wrong former name has no effect. A schedule that was fired only by hand can still adopt. A name with a slash is
/// written in full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_former_name_changes_nothing() {
    let (home, fake) = (FleetFolder::sqlite(), FakeLists::with_issues(1).await);
    let idle = || home.idle_agent("a");
    let fleet =
        home.start(vec![agent_with_schedule(idle(), "x/old", &fake, None)], Registry::default()).await;
    wait_for("one job waits", async || count(&fleet, JobStatus::Pending).await == 1).await;
    fleet.set_agents(vec![agent_with_schedule(idle(), "new", &fake, Some(("a", "odl")))]).await.unwrap();
    let ScheduleState::Error { reason } = record(&fleet, id("a", "new")).await.state else { panic!("held") };
    assert!(reason.contains("to continue the history, write `adopt: a/x/old`"), "{reason}");
    let by_hand = TriggerRequest { schedule: Some("new".parse().unwrap()), ..TriggerRequest::default() };
    fleet.trigger(&name("a"), by_hand).await.unwrap();
    fleet.set_agents(vec![agent_with_schedule(idle(), "new", &fake, Some(("a", "x/old")))]).await.unwrap();
    assert_eq!(record(&fleet, id("a", "new")).await.state, ScheduleState::Active);
    assert_eq!(ledger(&fleet, id("a", "new")).await.len(), 2);
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// Adoption keeps the later generation of the sightings of both schedules, so an item that comes back is new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returning_item_fires_after_adoption() {
    let (home, fake) = (FleetFolder::sqlite(), FakeLists::with_issues(1).await);
    let comes_back = async |fleet: &Fleet, schedule: &str| {
        let before = ledger(fleet, id("a", schedule)).await.len();
        let asked = || fake.fake_state.lock().unwrap().requests;
        fake.fake_state.lock().unwrap().issues.clear();
        let looks = asked() + 2;
        wait_for("it is missed", async || asked() >= looks).await;
        fake.fake_state.lock().unwrap().issues.push(issue(1));
        wait_for("it fires again", async || ledger(fleet, id("a", schedule)).await.len() > before).await;
    };
    let idle = || home.idle_agent("a");
    let fleet = home.start(vec![agent_with_schedule(idle(), "old", &fake, None)], Registry::default()).await;
    wait_for("it fires", async || ledger(&fleet, id("a", "old")).await.len() == 1).await;
    comes_back(&fleet, "old").await;
    fleet.set_agents(vec![agent_with_schedule(idle(), "new", &fake, None)]).await.unwrap();
    fleet.enable(&name("a"), &"new".parse().unwrap()).await.unwrap();
    wait_for("it begins anew", async || ledger(&fleet, id("a", "new")).await.len() == 1).await;
    fleet.set_agents(vec![agent_with_schedule(idle(), "new", &fake, Some(("a", "old")))]).await.unwrap();
    assert_eq!(ledger(&fleet, id("a", "new")).await.len(), 2);
    comes_back(&fleet, "new").await;
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// A schedule with another list is new, and so is a schedule beside the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_schedule_is_not_taken_for_renamed() {
    let (home, fake) = (FleetFolder::sqlite(), FakeLists::with_issues(1).await);
    let old = agent_with_schedule(home.idle_agent("a"), "old", &fake, None);
    let fleet = home.start(vec![old.clone()], Registry::default()).await;
    wait_for("one job waits", async || count(&fleet, JobStatus::Pending).await == 1).await;
    let both = agent_with_schedule(old, "beside", &fake, None);
    fleet.set_agents(vec![both]).await.unwrap();
    wait_for("it fires, too", async || ledger(&fleet, id("a", "beside")).await.len() == 1).await;
    let other = issues(&fake, "new").replace("agent", "bug");
    fleet.set_agents(vec![with_schedule(home.idle_agent("a"), "other", &other, "x")]).await.unwrap();
    assert_eq!(record(&fleet, id("a", "other")).await.state, ScheduleState::Active);
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

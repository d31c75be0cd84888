//! The public library: a fleet inside another program.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use cowhand::clock::Clock;
use cowhand::fleet::{
    AgentSource, Fleet, FleetError, FleetStatus, JobChanges, JobMessage, Options, Stop, Subscription,
    TriggerRequest, Triggered,
};
use cowhand::state::StateFolder;
use cowhand::store::CancelOutcome;
use cowhand::work::SourceRegistry;
use cowhand_core::event::{Event, Fact};
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{ExitReason, Job, JobStatus, Origin, Termination};
use cowhand_core::output::OutputMessage;
use cowhand_core::roster::{Agent, Roster, Schedule};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

/// Returns an agent with a shell script that works in `folder`.
fn agent(folder: &Path, called: &str, script: &str) -> Agent {
    let mut agent = Agent::new(name(called));
    folder.clone_into(&mut agent.directory);
    agent.program.runtime = cowhand_core::runtime::Runtime::Command;
    agent.program.command = ["sh", "-c", script].map(str::to_owned).into();
    agent
}

fn with_schedule(mut agent: Agent, called: &str, trigger: &str) -> Agent {
    let trigger = serde_json::from_str(trigger).unwrap();
    agent.schedules.push(Schedule::new(&agent.name, called.parse().unwrap(), trigger));
    agent
}

/// Script that creates `up`, and ends when there is a file `go`.
const WAITER: &str = "touch up; while [ ! -e go ]; do sleep 0.05; done; echo went";

fn options(folder: &TempDir, agents: Vec<Agent>) -> Options {
    Options {
        node: cowhand::fleet::NodeOptions::default(),
        agents: AgentSource::Given(Roster::of(agents)),
        state: StateFolder::at(folder.path().join("state")),
        clock: Clock::System,
        program: env!("CARGO_BIN_EXE_cowhand").into(),
        work_sources: SourceRegistry::default(),
        triggers: cowhand::trigger::Registry::default(),
        fresh: false,
    }
}

async fn started(folder: &TempDir, agents: Vec<Agent>) -> Fleet {
    Fleet::start(options(folder, agents)).await.unwrap()
}

async fn trigger(fleet: &Fleet, agent: &str) -> Job {
    match fleet.trigger(&name(agent), TriggerRequest::default()).await.unwrap() {
        Triggered::New(job) => job,
        other => panic!("{other:?}"),
    }
}

/// Returns all events up to the first that matches.
async fn until(events: &mut Subscription, fits: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut seen = Vec::new();
    loop {
        let event = events.next().await.unwrap().expect("the fleet has ended");
        let last = fits(&event);
        seen.push(event);
        if last {
            return seen;
        }
    }
}

async fn ended(events: &mut Subscription, job: &JobId) -> Vec<Event> {
    let of_its_end = |fact: &Fact| {
        matches!(fact, Fact::JobCompleted { .. } | Fact::JobFailed { .. } | Fact::JobCancelled { .. })
    };
    until(events, |event| event.job.as_ref() == Some(job) && of_its_end(&event.fact)).await
}

async fn appeared(file: &Path) {
    while !file.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn fleet_runs_jobs_and_sends_events() {
    let folder = TempDir::new().unwrap();
    let worker = with_schedule(agent(folder.path(), "worker", "cat"), "tidy", r#"{"type":"manual"}"#);
    let fleet = started(&folder, vec![worker]).await;
    assert!(fleet.is_running());
    let before = fleet.state();
    assert_eq!((before.status, before.trigger_count), (FleetStatus::Running, 0));

    let mut events = fleet.subscribe().await.unwrap();
    let asked = TriggerRequest { prompt: Some("Hello.".into()), ..TriggerRequest::default() };
    let Triggered::New(job) = fleet.trigger(&name("worker"), asked).await.unwrap() else { panic!("new") };
    let seen = ended(&mut events, job.id()).await;
    let facts: Vec<&str> = seen.iter().map(|event| event.fact.type_name()).collect();
    assert_eq!(facts, ["job:created", "job:started", "job:completed"]);
    assert!(
        seen.iter().all(|event| event.agent == Some(name("worker")) && event.job.as_ref() == Some(job.id()))
    );
    let Fact::JobCompleted { exit_reason: ExitReason::Success, .. } = seen[2].fact else {
        panic!("{seen:?}")
    };
    assert!(seen.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq), "each once, and in order");

    let key = TriggerRequest {
        schedule: Some("tidy".parse().unwrap()),
        idempotency_key: Some("once".into()),
        ..TriggerRequest::default()
    };
    let Triggered::New(first) = fleet.trigger(&name("worker"), key.clone()).await.unwrap() else {
        panic!("new")
    };
    let Triggered::Existing(second) = fleet.trigger(&name("worker"), key).await.unwrap() else {
        panic!("before")
    };
    assert_eq!(first.id(), second.id());
    ended(&mut events, first.id()).await;

    // The event about the end of the job comes before its attempt task has ended.
    while fleet.state().running_jobs > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let state = fleet.state();
    assert_eq!(state.trigger_count, 2);
    assert!(state.check_count > before.check_count && state.last_check_at >= Some(state.started_at));
    fleet.stop(Stop::default()).await.unwrap();
    assert_eq!(fleet.status(), FleetStatus::Stopped);
    assert!(events.next().await.unwrap().is_none(), "nothing more can happen");
    assert!(matches!(
        fleet.trigger(&name("worker"), TriggerRequest::default()).await,
        Err(FleetError::Stopping)
    ));
}

/// Returns the text of a line, with its number.
fn line(said: &JobMessage) -> (u64, &str) {
    match &said.message {
        OutputMessage::Assistant { content: Some(text), .. }
        | OutputMessage::System { content: Some(text), .. } => (said.line, text),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn output_of_running_job_can_be_followed() {
    let folder = TempDir::new().unwrap();
    let script = r#"echo one; echo '{"type":"assistant","content":"two"}'; while [ ! -e go ]; do sleep 0.05; done; echo three"#;
    let fleet = started(&folder, vec![agent(folder.path(), "talker", script)]).await;
    let mut events = fleet.subscribe().await.unwrap();
    let job = trigger(&fleet, "talker").await;
    let mut output = fleet.output(job.id()).await.unwrap();
    let mut said = Vec::new();
    for _ in 0..2 {
        said.push(output.next().await.unwrap().expect("it runs"));
    }
    assert!(said.iter().all(|said| said.job == *job.id() && said.agent == name("talker")));
    assert!(matches!(said[1].message, OutputMessage::Assistant { .. }), "typed: {said:?}");
    assert_eq!(fleet.result(job.id()).await.unwrap().as_deref(), Some("two"), "so far");
    // Only now the job can end, so its end comes after its output.
    fs::write(folder.path().join("go"), "").unwrap();
    while let Some(next) = output.next().await.unwrap() {
        said.push(next);
    }
    assert_eq!(said.iter().map(line).collect::<Vec<_>>(), [(1, "one"), (2, "two"), (3, "three")]);
    assert_eq!(fleet.job(job.id()).await.unwrap().status(), JobStatus::Completed, "it ended with the job");
    let seen = ended(&mut events, job.id()).await;
    let facts: Vec<&str> = seen.iter().map(|event| event.fact.type_name()).collect();
    assert_eq!(facts, ["job:created", "job:started", "job:completed"]);
    let times = said.iter().map(|said| said.message.timestamp().unwrap());
    let all: Vec<_> = [seen[0].at].into_iter().chain(times).chain([seen[2].at]).collect();
    assert!(all.is_sorted(), "created, said, completed: {all:?}");

    // A reader continues where it was, and a late reader gets everything.
    for after in 0..5_u8 {
        let (mut output, mut again) = (fleet.output_after(job.id(), after.into()).await.unwrap(), Vec::new());
        while let Some(next) = output.next().await.unwrap() {
            again.push(next);
        }
        assert_eq!(again, said.get(after.into()..).unwrap_or_default());
    }
    let nobody: JobId = "job-2026-01-01-zzzzzz".parse().unwrap();
    assert!(matches!(fleet.output(&nobody).await, Err(FleetError::NoJob(_))));
    assert!(matches!(fleet.result(&nobody).await, Err(FleetError::NoJob(_))));
    fleet.stop(Stop::default()).await.unwrap();
}

#[tokio::test]
async fn output_stream_ends_with_the_fleet() {
    let folder = TempDir::new().unwrap();
    let fleet = started(&folder, vec![agent(folder.path(), "waiter", WAITER)]).await;
    let job = trigger(&fleet, "waiter").await;
    let mut output = fleet.output(job.id()).await.unwrap();
    appeared(&folder.path().join("up")).await;
    let (heard, stopped) = tokio::join!(output.next(), fleet.stop(Stop::KeepAgents));
    stopped.unwrap();
    assert!(heard.unwrap().is_none(), "nobody here follows the job any more");
    drop((fleet, output));
    // Its agent continues, and has to end before the folder is removed.
    let fleet = started(&folder, vec![agent(folder.path(), "waiter", WAITER)]).await;
    fleet.stop(Stop::Cancel).await.unwrap();
}

/// One keeper is suspended, so that it cannot end its agent.
#[tokio::test]
async fn stuck_job_does_not_delay_cancellation_of_others() {
    let folder = TempDir::new().unwrap();
    let script = "touch up-$COWHAND_JOB_ID; while :; do sleep 0.05; done";
    let agents = ["a", "stuck", "b"].map(|called| agent(folder.path(), called, script));
    let fleet = started(&folder, agents.to_vec()).await;
    let mut jobs = Vec::new();
    for called in ["a", "stuck", "b"] {
        let job = trigger(&fleet, called).await;
        appeared(&folder.path().join(format!("up-{}", job.id()))).await;
        jobs.push(job.id().clone());
    }
    let attempt = folder.path().join(format!("state/attempts/{}.1", jobs[1]));
    let pid = |record: &str| -> i32 {
        let record: serde_json::Value =
            serde_json::from_slice(&fs::read(attempt.join(record)).unwrap()).unwrap();
        record["pid"].as_i64().unwrap().try_into().unwrap()
    };
    // A zombie process has no command line.
    let lives = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    kill_process(Pid::from_raw(pid("keeper.json")).unwrap(), Signal::STOP).unwrap();
    let mut events = fleet.subscribe().await.unwrap();
    fleet.begin_stop(Stop::Cancel);
    let mut order = Vec::new();
    for _ in 0..2 {
        let event = until(&mut events, |event| matches!(event.fact, Fact::JobCancelled { .. })).await.pop();
        order.extend(event.and_then(|event| event.job));
    }
    assert!(!order.contains(&jobs[1]), "the others have ended: {order:?}");
    assert!(lives(pid("agent.json")), "and it has not");
    // A second stop request does not wait for it.
    fleet.begin_stop(Stop::Cancel);
    fleet.ended().await.unwrap();
    let last = ended(&mut events, &jobs[1]).await.pop().unwrap();
    assert!(matches!(last.fact, Fact::JobCancelled { termination: Termination::Forced, .. }), "{last:?}");
    assert!(!lives(pid("agent.json")) && !lives(pid("keeper.json")), "nothing of it is left");
}

/// The clock does not advance by itself. Only events, and the test that sets the clock, can wake the fleet.
#[tokio::test]
async fn fleet_wakes_only_for_due_times_and_events() {
    let folder = TempDir::new().unwrap();
    let clock = Clock::test("2026-01-01T00:00:00Z".parse().unwrap());
    let every_day = r#"{"type":"interval","interval":"1d"}"#;
    let worker = with_schedule(agent(folder.path(), "worker", "true"), "daily", every_day);
    let fleet =
        Fleet::start(Options { clock: clock.clone(), ..options(&folder, vec![worker]) }).await.unwrap();
    let mut events = fleet.subscribe_after(0);
    until(&mut events, |event| matches!(event.fact, Fact::JobCompleted { .. })).await;
    let (before, jobs) = (fleet.state().check_count, 5);
    for _ in 0..jobs {
        let job = trigger(&fleet, "worker").await;
        ended(&mut events, job.id()).await;
    }
    let checks = fleet.state().check_count - before;
    assert!(checks <= jobs * 8, "it looked {checks} times while {jobs} jobs came and went");

    let fired = |event: &Event| matches!(event.fact, Fact::ScheduleFired { .. });
    clock.set("2026-01-01T23:00:00Z".parse().unwrap());
    let job = trigger(&fleet, "worker").await;
    let seen = ended(&mut events, job.id()).await;
    assert!(!seen.iter().any(fired), "an hour too early");
    clock.set("2026-01-02T00:00:00Z".parse().unwrap());
    until(&mut events, fired).await;
    let seen = until(&mut events, |event| matches!(event.fact, Fact::JobCompleted { .. })).await;
    assert!(!seen.iter().any(fired), "once");
    // The stop does not wait for the next due time.
    fleet.stop(Stop::default()).await.unwrap();
}

/// Both agents have a schedule that is due at once and then every second.
#[tokio::test]
async fn agents_can_be_set_while_fleet_runs() {
    let folder = TempDir::new().unwrap();
    let every_second = r#"{"type":"interval","interval":"1s"}"#;
    let of = |called: &str| with_schedule(agent(folder.path(), called, "true"), "often", every_second);
    let fleet = started(&folder, vec![of("old")]).await;
    let mut events = fleet.subscribe_after(0);
    until(&mut events, |event| matches!(event.fact, Fact::ScheduleFired { .. })).await;

    fleet.set_agents(vec![of("new")]).await.unwrap();
    let fired_by_new =
        |event: &Event| event.agent == Some(name("new")) && matches!(event.fact, Fact::ScheduleFired { .. });
    until(&mut events, fired_by_new).await;
    let later = until(&mut events, fired_by_new).await;
    assert!(
        !later
            .iter()
            .any(|event| matches!(event.fact, Fact::ScheduleFired { .. }) && event.agent == Some(name("old")))
    );
    let twice = fleet.set_agents(vec![of("new"), of("new")]).await.unwrap_err();
    assert_eq!(twice.to_string(), "two agents have the name new");
    assert_eq!(fleet.roster().agents.len(), 1, "the old ones stay");
    assert!(fleet.reload().await.is_err(), "there is no file");
    fleet.stop(Stop::Cancel).await.unwrap();
}

#[tokio::test]
async fn stop_timeout_is_error_with_number_of_jobs() {
    let folder = TempDir::new().unwrap();
    let fleet = started(&folder, vec![agent(folder.path(), "waiter", WAITER)]).await;
    let job = trigger(&fleet, "waiter").await;
    appeared(&folder.path().join("up")).await;
    let timeout = Duration::from_millis(300);
    let error = fleet.stop(Stop::Finish { timeout }).await.unwrap_err();
    assert_eq!(error.to_string(), "shutdown timed out after 300ms with 1 job(s) still running");
    let FleetError::StopTimedOut { timeout: told, running_jobs: 1 } = error else { panic!("{error:?}") };
    assert_eq!(told, timeout);
    let of_job = || fleet.store().job(job.id().clone());
    fleet.ended().await.unwrap();
    assert_eq!(of_job().await.unwrap().unwrap().status(), JobStatus::Cancelled, "still to be read");
    drop(fleet);
    let again = started(&folder, vec![]).await;
    again.stop(Stop::default()).await.unwrap();
}

#[tokio::test]
async fn jobs_can_finish_during_stop() {
    let folder = TempDir::new().unwrap();
    let fleet = started(&folder, vec![agent(folder.path(), "waiter", WAITER)]).await;
    let mut events = fleet.subscribe().await.unwrap();
    let job = trigger(&fleet, "waiter").await;
    appeared(&folder.path().join("up")).await;
    fleet.begin_stop(Stop::Finish { timeout: Duration::from_mins(5) });
    assert_eq!(fleet.status(), FleetStatus::Stopping);
    assert!(matches!(fleet.fork(job.id(), JobChanges::default()).await, Err(FleetError::Stopping)));
    fs::write(folder.path().join("go"), "").unwrap();
    let seen = ended(&mut events, job.id()).await;
    assert!(matches!(seen.last().unwrap().fact, Fact::JobCompleted { .. }), "{seen:?}");
    fleet.ended().await.unwrap();
}

/// Each agent waits until all others got the signal: if they got it one after another, all but the last would
/// have to be killed.
#[tokio::test]
async fn stop_cancels_jobs_in_parallel() {
    let folder = TempDir::new().unwrap();
    let script = "trap 'touch told-$COWHAND_JOB_ID; while [ $(ls told-* | wc -l) -lt 4 ]; do sleep 0.05; done; \
                  exit 0' TERM; touch up-$COWHAND_JOB_ID; while :; do sleep 0.05; done";
    let agents = ["a", "b", "c", "d"].map(|called| agent(folder.path(), called, script));
    let fleet = started(&folder, agents.to_vec()).await;
    for called in ["a", "b", "c", "d"] {
        let job = trigger(&fleet, called).await;
        appeared(&folder.path().join(format!("up-{}", job.id()))).await;
    }
    fleet.stop(Stop::Cancel).await.unwrap();
    let events = fleet.store().events_after(0, 1000).await.unwrap();
    let how = events.iter().filter_map(|event| match event.fact {
        Fact::JobCancelled { termination, .. } => Some(termination),
        _ => None,
    });
    assert_eq!(how.collect::<Vec<_>>(), [Termination::Graceful; 4]);
}

#[tokio::test]
async fn dropped_fleet_leaves_its_agents_running() {
    let folder = TempDir::new().unwrap();
    let agents = || vec![agent(folder.path(), "waiter", WAITER)];
    let fleet = started(&folder, agents()).await;
    let job = trigger(&fleet, "waiter").await;
    appeared(&folder.path().join("up")).await;
    let busy = Fleet::start(options(&folder, agents())).await.unwrap_err();
    assert!(matches!(busy, FleetError::AlreadyRunning(_)), "{busy:?}");
    drop(fleet);
    let again = loop {
        // The dropped fleet ends within a moment, and there is no handle to wait for it.
        match Fleet::start(options(&folder, agents())).await {
            Err(FleetError::AlreadyRunning(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
            other => break other.unwrap(),
        }
    };
    let mut events = again.subscribe().await.unwrap();
    fs::write(folder.path().join("go"), "").unwrap();
    let seen = ended(&mut events, job.id()).await;
    assert!(matches!(seen.last().unwrap().fact, Fact::JobCompleted { .. }), "{seen:?}");
    again.stop(Stop::KeepAgents).await.unwrap();
}

#[tokio::test]
async fn a_fork_may_have_another_prompt_and_schedule() {
    let folder = TempDir::new().unwrap();
    let worker = with_schedule(agent(folder.path(), "worker", "cat"), "tidy", r#"{"type":"manual"}"#);
    let fleet = started(&folder, vec![worker]).await;
    let mut events = fleet.subscribe().await.unwrap();
    let job = trigger(&fleet, "worker").await;
    ended(&mut events, job.id()).await;
    let changes = JobChanges { prompt: Some("Differently.".into()), schedule: Some("tidy".parse().unwrap()) };
    let fork = fleet.fork(job.id(), changes).await.unwrap();
    assert_eq!(fork.origin(), Some(&Origin::ForkOf(job.id().clone())));
    assert_eq!((fork.prompt(), fork.status()), (Some("Differently."), JobStatus::Pending));
    assert_eq!(fork.schedule().map(ScheduleName::as_str), Some("tidy"));
    let seen = ended(&mut events, fork.id()).await;
    let facts: Vec<&str> = seen.iter().map(|event| event.fact.type_name()).collect();
    assert_eq!(facts, ["job:created", "job:forked", "job:started", "job:completed"]);
    assert_eq!(seen[1].fact, Fact::JobForked { forked_from: job.id().clone() });
    let again = fleet.retry(job.id(), JobChanges::default()).await.unwrap();
    assert_eq!(again.origin(), Some(&Origin::RetryOf(job.id().clone())));
    fleet.stop(Stop::Cancel).await.unwrap();
}

#[tokio::test]
async fn refused_requests_name_their_object() {
    let folder = TempDir::new().unwrap();
    let fleet = started(&folder, vec![agent(folder.path(), "waiter", WAITER)]).await;
    let job = trigger(&fleet, "waiter").await;
    let nobody: JobId = "job-2026-01-01-zzzzzz".parse().unwrap();
    let of = |schedule: &str| TriggerRequest {
        schedule: Some(schedule.parse().unwrap()),
        ..TriggerRequest::default()
    };
    let keyed = TriggerRequest { idempotency_key: Some("k".into()), ..TriggerRequest::default() };
    let table = [
        (
            fleet.trigger(&name("nobody"), TriggerRequest::default()).await.unwrap_err(),
            "there is no agent nobody in the fleet; `cowhand agents` lists them".to_owned(),
        ),
        (
            fleet.trigger(&name("waiter"), of("never")).await.unwrap_err(),
            "waiter has no schedule never; `cowhand schedule list` lists them".to_owned(),
        ),
        (
            fleet.trigger(&name("waiter"), keyed).await.unwrap_err(),
            "an idempotency key needs a schedule, because it identifies a firing of the schedule".to_owned(),
        ),
        (
            fleet.fork(&nobody, JobChanges::default()).await.unwrap_err(),
            format!("there is no job {nobody}; `cowhand jobs` lists them"),
        ),
        (
            fleet.cancel(nobody.clone()).await.unwrap_err(),
            format!("there is no job {nobody}; `cowhand jobs` lists them"),
        ),
    ];
    for (error, expected) in table {
        assert_eq!(error.to_string(), expected);
    }
    appeared(&folder.path().join("up")).await;
    let running = fleet.retry(job.id(), JobChanges::default()).await.unwrap_err();
    assert_eq!(running.to_string(), format!("{} is running; cancel it first, or fork it", job.id()));
    let mut events = fleet.subscribe().await.unwrap();
    assert!(matches!(fleet.cancel(job.id().clone()).await.unwrap(), CancelOutcome::Requested(_)));
    ended(&mut events, job.id()).await;
    assert!(matches!(fleet.cancel(job.id().clone()).await.unwrap(), CancelOutcome::AlreadyEnded(_)));
    fleet.stop(Stop::Cancel).await.unwrap();
}

/// Returns the path relative to the working directory of this process.
fn relative(path: &Path) -> std::path::PathBuf {
    let here = std::env::current_dir().unwrap();
    let shared = here.ancestors().find(|folder| path.starts_with(folder)).unwrap();
    assert_ne!(shared, Path::new("/"), "this would be right everywhere");
    let up = here.strip_prefix(shared).unwrap().components().count();
    let up: std::path::PathBuf = std::iter::repeat_n("..", up).collect();
    up.join(path.strip_prefix(shared).unwrap())
}

#[tokio::test]
async fn paths_may_be_relative() {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let worker = agent(folder.path(), "worker", "cat");
    let mut options = options(&folder, vec![worker]);
    options.state = StateFolder::at(relative(options.state.path()));
    options.program = relative(&options.program);
    let fleet = Fleet::start(options).await.unwrap();
    let mut events = fleet.subscribe().await.unwrap();
    let job = trigger(&fleet, "worker").await;
    let seen = until(&mut events, |event| {
        assert_ne!(event.fact.type_name(), "job:requeued", "{event:?}");
        matches!(event.fact, Fact::JobCompleted { .. } | Fact::JobFailed { .. })
    });
    let seen = seen.await;
    assert!(matches!(seen.last().unwrap().fact, Fact::JobCompleted { .. }), "{seen:?}");
    assert_eq!(fleet.store().job(job.id().clone()).await.unwrap().unwrap().attempts(), 1);
    fleet.stop(Stop::default()).await.unwrap();
}

/// The reason that prevents the start persists.
#[tokio::test]
async fn a_job_that_never_begins_fails_after_five_requeues() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("no-keeper");
    fs::write(&program, "#!/bin/sh\necho no keeper here >&2\nexit 3\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let clock = Clock::test("2026-01-05T12:00:00Z".parse().unwrap());
    let options = Options {
        program,
        clock: clock.clone(),
        ..options(&folder, vec![agent(folder.path(), "worker", "cat")])
    };
    let fleet = Fleet::start(options).await.unwrap();
    let mut events = fleet.subscribe().await.unwrap();
    let job = trigger(&fleet, "worker").await;
    let mut requeued = 0;
    let failed = loop {
        let event = events.next().await.unwrap().unwrap();
        match event.fact {
            Fact::JobRequeued { .. } => {
                requeued += 1;
                assert!(requeued <= 5, "it goes on for ever");
                clock.set(clock.now() + jiff::SignedDuration::from_secs(10));
            }
            Fact::JobFailed { kind, message, .. } => break (kind, message),
            _ => {}
        }
    };
    assert_eq!((requeued, failed.0), (5, cowhand_core::job::ErrorKind::StartFailed));
    assert!(failed.1.contains("no keeper here") && failed.1.contains("5 times"), "{}", failed.1);
    let ended = fleet.store().job(job.id().clone()).await.unwrap().unwrap();
    assert_eq!(ended.status(), JobStatus::Failed);
    fleet.stop(Stop::default()).await.unwrap();
}

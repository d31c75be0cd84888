//! A slow container engine does not block other tasks on the thread of the attempt.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cowhand::clock::Clock;
use cowhand::fleet::{AgentSource, Fleet, Options, Stop, TriggerRequest, Triggered};
use cowhand::state::StateFolder;
use cowhand::work::SourceRegistry;
use cowhand_core::job::JobStatus;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::runtime::Runtime;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

fn agent(folder: &TempDir) -> Agent {
    let mut agent = Agent::new("worker".parse().unwrap());
    folder.path().clone_into(&mut agent.directory);
    agent.program.runtime = Runtime::Command;
    agent.program.command = ["sleep", "1000"].map(str::to_owned).into();
    agent
}

/// There is one thread for everything, so that blocking it would block the test.
#[tokio::test]
async fn silent_container_engine_does_not_block_fleet() {
    let folder = TempDir::new().unwrap();
    let options = Options {
        node: cowhand::fleet::NodeOptions::default(),
        agents: AgentSource::Given(Roster::of(vec![agent(&folder)])),
        state: StateFolder::at(folder.path().join("state")),
        clock: Clock::System,
        program: env!("CARGO_BIN_EXE_cowhand").into(),
        work_sources: SourceRegistry::default(),
        triggers: cowhand::trigger::Registry::default(),
        fresh: false,
    };
    let fleet = Fleet::start(options).await.unwrap();
    let worker = "worker".parse().unwrap();
    let Triggered::New(job) = fleet.trigger(&worker, TriggerRequest::default()).await.unwrap() else {
        panic!()
    };
    let attempt = folder.path().join(format!("state/attempts/{}.1", job.id()));
    while !attempt.join("agent.json").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    // The fake engine accepts a connection, and does not answer until the test ends it.
    let socket = folder.path().join("engine.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (called, calls) = mpsc::channel();
    let (let_go, end) = mpsc::channel::<()>();
    let engine = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut first = [0];
        connection.read_exact(&mut first).unwrap();
        called.send(()).unwrap();
        // This also returns if the test has failed.
        end.recv().ok();
    });
    fs::write(attempt.join("container"), json!({"socket": socket, "name": "cowhand-test"}).to_string())
        .unwrap();
    // Without a keeper, the daemon requests the end of the container.
    for record in ["keeper.json", "agent.json"] {
        let record: Value = serde_json::from_slice(&fs::read(attempt.join(record)).unwrap()).unwrap();
        let pid = Pid::from_raw(record["pid"].as_i64().unwrap().try_into().unwrap()).unwrap();
        // The agent may have ended with its keeper.
        kill_process(pid, Signal::KILL).ok();
    }
    let began = Instant::now();
    while calls.try_recv().is_err() {
        assert!(began.elapsed() < Duration::from_mins(1), "nobody has asked the engine");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let began = Instant::now();
    assert_eq!(fleet.store().job(job.id().clone()).await.unwrap().unwrap().status(), JobStatus::Running);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let took = began.elapsed();
    println!("the fleet answered after {took:?}");
    assert!(took < Duration::from_secs(30), "the engine held the fleet up for {took:?}");

    drop(let_go);
    engine.join().unwrap();
    while fleet.store().job(job.id().clone()).await.unwrap().unwrap().status() == JobStatus::Running {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fleet.stop(Stop::Cancel).await.unwrap();
}

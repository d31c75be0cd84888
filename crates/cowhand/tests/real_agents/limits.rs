//! A provider that is used up: all agents wait for its reset, and continue their sessions.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::models::{Got, SHARING, Scenario};
use super::{Cli, Scene, wait_until};

const AGENTS: [&str; SHARING] = ["coder", "second", "third"];

/// Starts three agents of one provider, each with its own directory.
fn fleet(cli: Cli) -> Scene {
    // Only subscription accounts get the end of a limit.
    let env = match cli {
        Cli::Claude => json!({"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "fake"}),
        _ => json!({}),
    };
    let scene = Scene::with(cli, &json!({"env": env}));
    for name in AGENTS {
        scene.write(&format!("{}/.keep", desk(name)), "");
    }
    scene.change(|fleet| {
        let coder = fleet["agents"][0].clone();
        let agents = AGENTS.map(|name| {
            let mut agent = coder.clone();
            (agent["name"], agent["working_directory"]) = (json!(name), json!(desk(name)));
            agent
        });
        fleet["agents"] = json!(agents);
    });
    scene
}

fn desk(agent: &str) -> String {
    format!("desk-{agent}")
}

fn parks_three_agents(cli: Cli, killed: bool) {
    let scene = fleet(cli);
    let trigger = |agent| scene.json(&["trigger", agent, "-p", "SCENARIO:limited"])["id"].clone();
    let jobs = AGENTS.map(|agent| trigger(agent).as_str().unwrap().to_owned());
    let parked = wait_until("all three to be parked", || {
        let jobs = jobs.each_ref().map(|id| scene.json(&["job", id]));
        jobs.iter().all(|job| job["parks"].as_u64() > Some(0)).then_some(jobs)
    });
    if killed {
        let pid = scene.json(&["status"])["daemon"]["pid"].as_i64().unwrap();
        kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
        wait_until("the daemon to be gone", || {
            let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            (state.is_empty() || state.contains(") Z")).then_some(())
        });
        let said = scene.command(&["start", "-d", "--no-server"]).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }
    let sessions: HashSet<String> =
        parked.iter().map(|job| job["session_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(sessions.len(), 3, "{parked:#?}");
    for (id, parked) in jobs.iter().zip(&parked) {
        let job = scene.finished(id);
        assert_eq!(job["status"], "completed", "{job:#}");
        assert_eq!(job["session_id"], parked["session_id"], "its own session");
        assert_eq!(job["summary"], "The tool has answered.");
    }
    for agent in AGENTS {
        let done = fs::read_to_string(scene.root.join(desk(agent)).join("done.txt")).unwrap();
        assert_eq!(done, "once\n", "the tool of {agent} ran once");
    }
    let served = scene.models.served();
    let count = |got| served.iter().filter(|one| one.scenario == Scenario::Limited && one.got == got).count();
    assert_eq!((count(Got::Shell), count(Got::Words)), (3, 3), "no turn was made twice");
    println!("{cli:?}: {} requests were sent away", count(Got::Error));
    let events = scene.command(&["events", "--limit", "1000"]).output().unwrap();
    assert!(String::from_utf8_lossy(&events.stdout).contains("job:parked"));
}

#[test]
fn claude_agents_wait_for_end_of_usage_limit() {
    parks_three_agents(Cli::Claude, false);
}

#[test]
fn codex_agents_wait_for_end_of_usage_limit() {
    parks_three_agents(Cli::Codex, false);
}

#[test]
fn claude_agents_wait_for_limit_after_daemon_was_killed() {
    parks_three_agents(Cli::Claude, true);
}

#[test]
fn codex_agents_wait_for_limit_after_daemon_was_killed() {
    parks_three_agents(Cli::Codex, true);
}

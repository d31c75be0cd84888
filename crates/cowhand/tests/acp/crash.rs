//! Kills and stops of the agent, the client and the daemon.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Run, WORDS, describe_outcome, marked, wait_until};

/// Script of an agent that writes its pid, sends a message, and then waits for a file.
const WAITS: &str =
    "ready; chunk 'Half a '; echo $$ > agent.pid; until [ -e go ]; do sleep 0.05; done; chunk 'word.'; end";

fn kill(pid: &str) {
    kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
}

fn parent(pid: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().to_owned()
}

#[test]
fn killed_agent_ends_attempt_with_signal_error() {
    let mut run = Run::of(WAITS);
    kill(&run.wait_for_file("agent.pid"));
    let (finish, output) = run.finish();
    let why = "signal: the agent was ended by signal 9 before it had answered session/prompt";
    assert_eq!(describe_outcome(&finish.outcome), why);
    assert!(output.iter().any(|line| line["content"] == "Half a "), "{output:#?}");
}

/// The keeper ends the agent, and its output is kept.
#[test]
fn killed_client_ends_attempt_and_keeps_output() {
    let mut run = Run::of(WAITS);
    let agent = run.wait_for_file("agent.pid");
    wait_until("the client to have heard it", || {
        fs::read_to_string(run.attempt.stdout()).ok().filter(|said| said.contains("Half a "))
    });
    kill(&parent(&agent));
    let (finish, output) = run.finish();
    let why = "signal: ended by SIGKILL (out of memory?), which was not sent by cowhand, and the turn was not finished";
    assert_eq!(describe_outcome(&finish.outcome), why);
    assert!(output.iter().any(|line| line["content"] == "Half a "), "{output:#?}");
    assert_eq!(finish.session_id.as_deref(), Some("s-1"));
}

#[test]
fn stop_sends_session_cancel_to_agent() {
    let polite = r#"trap 'echo signalled > signalled' INT TERM; ready; chunk 'Half a word'; echo $$ > agent.pid
        hear; case "$heard" in *session/cancel*) end cancelled ;; esac"#;
    let deaf = "trap '' INT TERM; ready; echo $$ > agent.pid; while :; do sleep 1; done";
    let early = "trap '' INT TERM; echo $$ > agent.pid; while :; do sleep 1; done";
    for (script, is_told) in [(polite, true), (deaf, false), (early, false)] {
        let mut run = Run::of(script);
        run.wait_for_file("agent.pid");
        run.attempt.stop().unwrap();
        let (finish, output) = run.finish();
        // The client stops waiting for the agent and ends within the grace period, so it is not killed.
        assert_eq!(describe_outcome(&finish.outcome), "cancelled: Graceful", "{script}");
        if is_told {
            let cancel = run.heard().into_iter().find(|frame| frame["method"] == "session/cancel").unwrap();
            assert_eq!((&cancel["params"], cancel.get("id")), (&json!({"sessionId": "s-1"}), None));
            assert!(!run.path("signalled").exists(), "the agent got a signal");
            assert!(output.iter().any(|line| line["content"] == "Half a word"), "{output:#?}");
        }
    }
}

/// Fleet with one scripted agent.
struct Fleet {
    folder: TempDir,
}

impl Fleet {
    fn new(script: &str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("agent.sh"), format!("{WORDS}\n{script}\n")).unwrap();
        let config =
            "agents: [{name: coder, runtime: acp, command: [sh, agent.sh]}]\nserver: {enabled: false}\n";
        fs::write(folder.path().join("cowhand.yaml"), config).unwrap();
        Self { folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command.args(arguments).current_dir(self.folder.path());
        command
    }

    fn start(&self) {
        let said = self.command(&["start", "-d", "--no-server"]).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let said = self.command(&[arguments, &["--json"]].concat()).output().unwrap();
        serde_json::from_slice(&said.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?} {error} {}", String::from_utf8_lossy(&said.stderr)))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.command(&["stop", "--timeout", "0"]).output();
        for pid in marked(self.folder.path()) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

#[test]
fn acp_agent_continues_after_daemon_is_killed() {
    let fleet = Fleet::new(WAITS);
    fleet.start();
    let job = fleet.json(&["trigger", "coder", "-p", "Say hello."]);
    let id = job["id"].as_str().unwrap();
    wait_until("the agent to speak", || {
        fs::read_to_string(fleet.folder.path().join("agent.pid")).ok().filter(|pid| pid.ends_with('\n'))
    });
    let daemon = fleet.json(&["status"])["daemon"]["pid"].to_string();
    kill(&daemon);
    // An ended process has no arguments, even before it is reaped.
    wait_until("the daemon to be gone", || {
        fs::read(format!("/proc/{daemon}/cmdline")).unwrap_or_default().is_empty().then_some(())
    });
    fleet.start();
    assert_eq!(fleet.json(&["job", id])["status"], "running");
    fs::write(fleet.folder.path().join("go"), "").unwrap();
    let job = wait_until("the job to end", || {
        Some(fleet.json(&["job", id])).filter(|job| job["finished_at"].is_string())
    });
    assert_eq!((&job["status"], &job["summary"]), (&json!("completed"), &json!("Half a word.")), "{job:#}");
    assert_eq!(job["attempt"], 1);
    let output = fs::read_to_string(fleet.folder.path().join(format!(".cowhand/jobs/{id}.jsonl"))).unwrap();
    assert_eq!(output.matches("Half a word.").count(), 1, "{output}");

    // `resume` is refused, because cowhand does not know how to open a session with this program.
    let said = fleet.command(&["resume", id]).output().unwrap();
    assert_eq!(said.status.code(), Some(5));
    let why = "the program of `runtime: acp` cannot be opened with a session";
    assert!(String::from_utf8_lossy(&said.stderr).contains(why), "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn doctor_reports_name_and_version_of_acp_agent() {
    for (script, expected, warning) in [
        ("begin; cat > /dev/null", "scripted 1.2.3 at ", false),
        ("exit 3", "the agent ended with exit code 3 before it had answered initialize", true),
        ("hear; answer 1 '{\"protocolVersion\":7}'; cat > /dev/null", "speaks version 7", true),
    ] {
        let fleet = Fleet::new(script);
        let findings = fleet.json(&["doctor"]);
        let found =
            findings.as_array().unwrap().iter().find(|finding| finding["what"] == "agent coder").unwrap();
        assert_eq!((&found["ok"], &found["warning"]), (&json!(true), &json!(warning)), "{found}");
        assert!(found["detail"].as_str().unwrap().contains(expected), "{found}");
        assert!(marked(fleet.folder.path()).is_empty(), "the agent was left");
    }
    let fleet = Fleet::new("");
    let config =
        "agents: [{name: coder, runtime: acp, command: [no-such-agent, --acp]}]\nserver: {enabled: false}\n";
    fs::write(fleet.folder.path().join("cowhand.yaml"), config).unwrap();
    let findings = fleet.json(&["doctor"]);
    let found = findings.as_array().unwrap().iter().find(|finding| finding["what"] == "agent coder").unwrap();
    assert_eq!(found["ok"], false);
    assert!(found["detail"].as_str().unwrap().starts_with("no-such-agent was not found on PATH"), "{found}");
}

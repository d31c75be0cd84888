//! `runtime: acp` with agents that are a few lines of shell: their permissions, their faults, and kills of
//! agent, client and daemon. Tests with real agents are in `real_agents`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod crash;
mod hostile;
mod permission;
mod session;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};

use cowhand::redact::Redactor;
use cowhand::run::attempt::Attempt;
use cowhand::run::ending::Ending;
use cowhand::run::launch::{FleetVariables, Launch};
use cowhand::run::runtime::{Finish, SessionChoice};
use cowhand::run::supervision::AttemptState;
use cowhand::run::tail::{TailFiles, Tailer};
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, NewJob, Outcome, TriggerType};
use cowhand_core::roster::{Agent, Roster};
use cowhand_testing::wait_until;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Shell functions for the scripts of agents. Requests of the client are numbered from 1.
const WORDS: &str = r#"
say() { printf '%s\n' "$1"; }
hear() { IFS= read -r heard || exit 9; printf '%s\n' "$heard" >> heard; }
answer() { say '{"jsonrpc":"2.0","id":'"$1"',"result":'"$2"'}'; }
refuse() { say '{"jsonrpc":"2.0","id":'"$1"',"error":'"$2"'}'; }
begin() { hear; answer 1 '{"protocolVersion":1,"agentInfo":{"name":"scripted","version":"1.2.3"},"agentCapabilities":'"${1:-{\}}"'}'; }
session() { hear; answer 2 '{"sessionId":"s-1"}'; }
ready() { begin; session; hear; }
update() { say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":'"$1"'}}'; }
chunk() { update '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$1"'"}}'; }
end() { answer 3 '{"stopReason":"'"${1:-end_turn}"'"}'; cat > /dev/null; }
ask() { say '{"jsonrpc":"2.0","id":"p1","method":"session/request_permission","params":{"sessionId":"s-1","toolCall":'"$1"',"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]}}'; hear; }
"#;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// One attempt with its keeper, without a daemon.
struct Run {
    folder: TempDir,
    attempt: Attempt,
    launch: Launch,
    keeper: Child,
}

impl Run {
    fn of(script: &str) -> Self {
        Self::with(script, &json!({}), &SessionChoice::Fresh)
    }

    /// Starts an agent, with this many seconds to answer instead of a minute.
    fn with_timeout(script: &str, seconds: u64) -> Self {
        Self::start(script, &json!({}), &SessionChoice::Fresh, seconds)
    }

    /// Starts an agent with `settings` over the default ones.
    fn with(script: &str, settings: &Value, session: &SessionChoice) -> Self {
        Self::start(script, settings, session, 60)
    }

    fn start(script: &str, settings: &Value, session: &SessionChoice, timeout_seconds: u64) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("agent.sh"), format!("{WORDS}\n{script}\n")).unwrap();
        let mut all = json!({"runtime": "acp", "command": ["sh", "agent.sh"]});
        for (key, value) in settings.as_object().unwrap() {
            all[key] = value.clone();
        }
        let mut agent = Agent::from_config("coder".parse().unwrap(), serde_json::from_value(all).unwrap());
        folder.path().clone_into(&mut agent.directory);
        let new = NewJob {
            agent: agent.name.clone(),
            trigger_type: TriggerType::Manual,
            schedule: None,
            prompt: None,
            origin: None,
            chat: None,
            message: None,
            confined: None,
            work_item: None,
            not_before: None,
        };
        // The number is unique, because attempts find their processes by it.
        let number = std::process::id() * 100 + COUNT.fetch_add(1, Ordering::Relaxed);
        let job =
            Job::new(JobId::new(jiff::civil::date(2026, 1, 5), number.into()), new, Timestamp::UNIX_EPOCH);
        let attempt = Attempt::new(folder.path(), job.id(), 1);
        let (roster, dotenv) = (Roster::default(), HashMap::new());
        let variables = FleetVariables::of(&roster, &dotenv);
        let mut launch = Launch::of(&agent, &job, session, &variables, &attempt.private()).unwrap();
        let orders = &mut launch.files[0].1;
        assert!(orders.contains("\"patience_ms\":60000"), "{orders}");
        *orders = orders.replace("\"patience_ms\":60000", &format!("\"patience_ms\":{timeout_seconds}000"));
        attempt.write_private(&launch.files).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_cowhand"));
        let keeper = attempt.launch(program, &launch.start, "Say hello.", &launch.environment).unwrap();
        Self { folder, attempt, launch, keeper }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the messages that the agent received.
    fn heard(&self) -> Vec<Value> {
        let heard = fs::read_to_string(self.path("heard")).unwrap_or_default();
        heard.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn wait_for_file(&self, name: &str) -> String {
        wait_until(name, || fs::read_to_string(self.path(name)).ok().filter(|text| text.ends_with('\n')))
    }

    fn ending(&mut self) -> Ending {
        let ending = wait_until("the attempt to end", || match self.attempt.state().unwrap() {
            AttemptState::Ended(ending) => Some(ending),
            _ => None,
        });
        self.keeper.wait().unwrap();
        ending
    }

    /// Returns the outcome and the output, after checking that no process is left.
    fn finish(&mut self) -> (Finish, Vec<Value>) {
        let ending = self.ending();
        assert!(marked(self.folder.path()).is_empty(), "something is left");
        let files = TailFiles {
            stdout: self.attempt.stdout(),
            stderr: self.attempt.stderr(),
            jsonl: self.path("out.jsonl"),
            index: self.attempt.folder().join("index"),
            attempt: 1,
            previous_ending: None,
        };
        let now = Timestamp::UNIX_EPOCH;
        let mut tail =
            Tailer::open(files, self.launch.start.reader.clone().unwrap(), Redactor::default(), now).unwrap();
        let finish = tail.finish(&ending, now).unwrap();
        let text = fs::read_to_string(self.path("out.jsonl")).unwrap();
        (finish, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !matches!(self.attempt.state(), Ok(AttemptState::Ended(_))) {
            self.attempt.stop().ok();
            self.attempt.stop().ok();
        }
        self.keeper.wait().ok();
    }
}

/// Formats a failure as `kind: message`, and a success as its summary.
fn describe_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed { summary } => format!("completed: {}", summary.as_deref().unwrap_or_default()),
        Outcome::Failed { error, .. } => format!("{}: {}", error.kind, error.message),
        Outcome::Cancelled { how } => format!("cancelled: {how:?}"),
    }
}

/// Returns the processes whose directory or arguments name the folder.
fn marked(folder: &Path) -> Vec<i32> {
    let name = folder.to_str().unwrap();
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let ours = |pid: &i32| {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let inside = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        inside || String::from_utf8_lossy(&read("cmdline")).contains(name)
    };
    pids.filter(ours).collect()
}

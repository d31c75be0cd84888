//! The client of the Agent Client Protocol, which a keeper starts for `runtime: acp`.
//!
//! ```text
//! keeper ──spawns──▶ this client ──spawns──▶ the agent ──▶ its tools
//!                        │  ▲ JSON-RPC, one frame per line, over the agent's stdin and stdout
//!                        ▼
//!                   the attempt's stdout: the agent's lines unchanged, and the client's requests and decisions
//! ```
//!
//! The pipes are between two processes of the attempt, so an ACP agent outlives the daemon like every other agent.

mod exchange;
pub(crate) mod input;
mod instructions;
mod messages;
mod permission;
mod process;
mod session;
mod wire;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::BoxFuture;
use serde_json::Value;

use cowhand_system::stderr;
use exchange::Exchange;
use input::ClientInput;
pub use instructions::{Instructions, SessionRequest};
pub use messages::{CLIENT_KEY, FAILED, MESSAGE, NOTE, PERMISSION, REQUEST, TURN_ENDED};
pub use permission::PermissionRules;
pub use process::AgentProcess;

/// Version of the protocol. It is raised only for incompatible changes.
const PROTOCOL_VERSION: u64 = 1;

/// Timeout of every answer except the answer to the prompt. Some agents need seconds to start, and more on a busy
/// machine.
pub const STARTUP_TIMEOUT: Duration = Duration::from_mins(1);

/// Message of the client about a missing session. The daemon looks for it on stderr and starts a new session.
pub(crate) const MISSING_SESSION: &str = "the session {id} was not found";

/// A tool use for which an agent requests permission.
#[derive(Debug)]
pub struct ToolUse {
    /// Id that the agent gave to this use.
    pub id: String,
    pub tool: String,
    pub input: Value,
}

/// Function that asks the fleet whether the agent may use a tool. The error is the reason of a refusal.
pub(crate) type AskFleet = fn(ToolUse) -> BoxFuture<'static, Result<(), String>>;

/// Runs `cowhand acp FILE`: starts the agent that the file describes and sends it the prompt from stdin.
pub fn run(instructions: &Path, ask_fleet: AskFleet) -> ExitCode {
    match run_instructions(instructions, ask_fleet) {
        Ok(code) => code,
        Err(error) => {
            stderr::write_line(format!("cowhand acp: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run_instructions(instructions: &Path, ask_fleet: AskFleet) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(instructions)
        .with_context(|| format!("cannot read {}", instructions.display()))?;
    let instructions: Instructions =
        serde_json::from_str(&text).with_context(|| format!("cannot parse {}", instructions.display()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let input = ClientInput::read(instructions.has_messages).await.context("cannot read the prompt")?;
        exchange::run(instructions, input, ask_fleet).await
    })
}

/// Name and version that an agent states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentVersion {
    pub name: String,
    pub version: Option<String>,
}

impl AgentVersion {
    fn of(answer: &Value) -> Self {
        let text = |key: &str| answer.get("agentInfo")?.get(key)?.as_str().map(short);
        Self { name: text("name").unwrap_or_else(|| "the agent".to_owned()), version: text("version") }
    }
}

/// Prepares a text from outside for a message: the first 300 characters, with blanks instead of control characters.
fn short(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(300).collect()
}

/// Why the name and version of an agent are not known. The message is for people.
#[derive(Debug, thiserror::Error)]
pub enum VersionQueryError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The agent did not answer, answered with an error, or does not follow the protocol.
    #[error("{0}")]
    Answer(String),
}

/// Asks a started agent for its name and version, and ends the agent.
pub async fn query_version(
    agent: AgentProcess,
    timeout: Duration,
) -> Result<AgentVersion, VersionQueryError> {
    let mut exchange = Exchange::without_output(agent, timeout)?;
    let answer = exchange.initialize().await.map_err(|cause| VersionQueryError::Answer(cause.to_string()));
    exchange.close().await;
    answer.map(|answer| AgentVersion::of(&answer))
}

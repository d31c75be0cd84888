//! The job channel: the token and the socket with which an attempt's processes reach the fleet, and an MCP server if
//! the agent needs one.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cowhand_core::mcp::{JobToolSet, McpServer};
use cowhand_core::permission::{PermissionMode, Permissions};
use cowhand_core::roster::{Agent, OWN_SERVER};
use cowhand_core::sandbox::SandboxKind;
use jiff::SignedDuration;

use super::AttemptTask;
use crate::job_token::{SOCKET_VARIABLE, TOKEN_VARIABLE};
use crate::state;

/// Why an agent cannot reach the fleet. The message is for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChannelError {
    #[error(
        "the agent needs the job socket to reach the fleet, but the folder of the socket cannot be created in {}: \
         {error}",
        folder.display()
    )]
    NoFolder { folder: PathBuf, error: io::Error },
    #[error(
        "`permission_mode: ask`, `followups` and `fleet_tools` need a socket of the fleet, which `sandbox: {0}` \
         does not give to agents; use `sandbox: bubblewrap`"
    )]
    NotInSandbox(SandboxKind),
    #[error("cannot bind the folder of the job socket into the sandbox: {0}")]
    NotBound(io::Error),
}

impl AttemptTask {
    pub(super) fn token(&self) -> String {
        self.engine.home.job_key.token(self.job.id(), self.job.attempts())
    }

    /// Returns the variables of the job channel: the token and the path of the socket. If this fails, the attempt is
    /// not started, because its agent could not reach the fleet.
    pub(super) fn channel_env(&self) -> Result<[(String, String); 2], ChannelError> {
        let socket = state::job_socket(&self.engine.home.state).map_err(|error| {
            let folder = self.engine.home.state.path().to_owned();
            ChannelError::NoFolder { folder, error }
        })?;
        Ok([
            (TOKEN_VARIABLE.to_owned(), self.token()),
            (SOCKET_VARIABLE.to_owned(), socket.display().to_string()),
        ])
    }

    /// Returns the folder of the job socket, which the sandbox has to make available. Returns `None` if the agent has
    /// no sandbox or does not need the job channel, and an error if the sandbox cannot make the folder available.
    pub(super) fn channel_folder(
        &self,
        agent: &Agent,
        kind: SandboxKind,
    ) -> Result<Option<PathBuf>, ChannelError> {
        let is_needed = agent.needs_job_channel();
        if kind == SandboxKind::None || !(is_needed || self.answers_chat()) {
            return Ok(None);
        }
        if kind != SandboxKind::Bubblewrap {
            return if is_needed { Err(ChannelError::NotInSandbox(kind)) } else { Ok(None) };
        }
        let folder = state::job_folder(&self.engine.home.state).and_then(std::fs::canonicalize);
        folder.map(Some).map_err(ChannelError::NotBound)
    }

    /// Returns true if the agent can send files into the chat of the job.
    fn answers_chat(&self) -> bool {
        self.job.chat().is_some()
    }

    /// Returns the tools of the MCP server of the job channel, or `None` if the agent gets no such server. An agent that
    /// does not need the job channel gets only the tools for its chat, if its sandbox gives it the socket.
    fn job_tools(&self, agent: &Agent) -> Option<JobToolSet> {
        match (agent.needs_job_channel(), self.answers_chat()) {
            (true, false) => Some(JobToolSet::Fleet),
            (true, true) => Some(JobToolSet::All),
            (false, true) => {
                let kind = agent.sandbox(self.job.schedule(), self.job.confined().is_some()).kind;
                let has_socket = matches!(kind, SandboxKind::None | SandboxKind::Bubblewrap);
                (has_socket && !agent.mcp_servers.contains_key(OWN_SERVER)).then_some(JobToolSet::Chat)
            }
            (false, false) => None,
        }
    }

    /// Adds the MCP server of the job channel, and the `ask` and `deny` rules of the job's schedule, to an agent that
    /// needs the job channel or answers a chat message. Returns any other agent unchanged.
    pub(super) fn with_job_channel(&self, agent: &Agent) -> Result<Agent, ChannelError> {
        let mut agent = agent.clone();
        let is_ask_mode = agent.tools.mode == PermissionMode::Ask;
        let Some(tools) = self.job_tools(&agent) else { return Ok(agent) };
        if !is_ask_mode && agent.runtime().needs_permission_for_servers() {
            // Without the mode `ask`, nobody can be asked for permission to use these tools, so they are allowed.
            let of_fleet = ["ask_person", "work_item", "schedule_followup", "report"];
            let of_chat = ["send_file", "herdctl_send_file"];
            let of_fleet = of_fleet.iter().filter(|_| tools != JobToolSet::Chat);
            let all = of_fleet.chain(of_chat.iter().filter(|_| tools != JobToolSet::Fleet));
            agent.tools.allowed.extend(all.map(|tool| format!("mcp__{OWN_SERVER}__{tool}")));
        }
        let schedule = agent.restrictions(&self.job).schedule();
        if let Some(more) = schedule.and_then(|schedule| schedule.permissions.as_deref().cloned()) {
            let permissions = agent.tools.permissions.get_or_insert_default();
            let Permissions { ask, deny, .. } = more;
            for (rules, added) in [(&mut permissions.ask, ask), (&mut permissions.deny, deny)] {
                rules.get_or_insert_default().extend(added.into_iter().flatten());
            }
        }
        let server = job_channel_server(&self.engine.program, tools, self.channel_env()?, agent.ask_timeout);
        agent.mcp_servers.insert(OWN_SERVER.to_owned(), server);
        Ok(agent)
    }
}

/// Describes the MCP server of the job channel. Its timeout is longer than an answer may take. Without a timeout, many
/// programs give up on a tool after a minute or less.
fn job_channel_server(
    program: &Path,
    tools: JobToolSet,
    channel_env: [(String, String); 2],
    ask_timeout: SignedDuration,
) -> McpServer {
    let timeout = ask_timeout.unsigned_abs() + ASK_TIMEOUT_MARGIN;
    McpServer {
        command: Some(program.display().to_string()),
        args: ["mcp", "--job", "--tools", tools.as_str()].map(str::to_owned).to_vec(),
        env: channel_env.into_iter().collect(),
        timeout: u64::try_from(timeout.as_millis()).ok(),
        ..McpServer::default()
    }
}

const ASK_TIMEOUT_MARGIN: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use cowhand_core::ask::ASK_TIMEOUT;

    use super::*;

    #[test]
    fn server_timeout_is_longer_than_the_ask_timeout() {
        let channel_env =
            || [(TOKEN_VARIABLE.to_owned(), "t".to_owned()), (SOCKET_VARIABLE.to_owned(), "s".to_owned())];
        let timeout = |ask_timeout: SignedDuration| {
            job_channel_server(Path::new("cowhand"), JobToolSet::Fleet, channel_env(), ask_timeout).timeout
        };
        assert_eq!(timeout(ASK_TIMEOUT), Some(70 * 60 * 1000));
        assert_eq!(timeout(SignedDuration::from_hours(48)), Some((2 * 24 * 60 + 10) * 60 * 1000));
    }
}

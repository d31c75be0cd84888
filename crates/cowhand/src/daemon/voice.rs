//! How an attempt's processes can speak to the fleet: a token of their job, and an MCP server where one is needed.

use cowhand_core::config::shape::{McpServer, PermissionMode};
use cowhand_core::permission::Permissions;
use cowhand_core::roster::{Agent, OWN_SERVER};

use super::attempt::Charge;
use crate::mcp::{STATE, TOKEN};

impl Charge {
    pub(super) fn token(&self) -> String {
        self.engine.home.job_key.token(self.job.id(), self.job.attempts())
    }

    /// What the attempt's processes find in their environment.
    pub(super) fn voice(&self) -> [(String, String); 2] {
        let state = self.engine.home.state.path();
        let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
        [(TOKEN.to_owned(), self.token()), (STATE.to_owned(), state.display().to_string())]
    }

    /// An agent that has to ask, or may ask for further jobs, gets the server that it does that with, and the rules of
    /// the job's schedule.
    pub(super) fn with_voice(&self, agent: &Agent) -> Agent {
        let mut agent = agent.clone();
        let asks = agent.settings.permission_mode == Some(PermissionMode::Ask);
        if !agent.needs_a_voice() {
            return agent;
        }
        if !asks && agent.settings.runtime.unwrap_or_default().name() == "claude" {
            // Nobody can be asked whether it may speak to the fleet.
            let tools = ["ask_person", "work_item", "schedule_followup", "report"];
            let tools = tools.map(|tool| format!("mcp__{OWN_SERVER}__{tool}"));
            agent.settings.allowed_tools.get_or_insert_default().extend(tools);
        }
        let schedule = agent.schedules.iter().find(|known| Some(&known.name) == self.job.schedule());
        if let Some(more) = schedule.and_then(|schedule| schedule.permissions.clone()) {
            let own = agent.settings.permissions.get_or_insert_default();
            let Permissions { ask, deny, .. } = more;
            for (rules, more) in [(&mut own.ask, ask), (&mut own.deny, deny)] {
                rules.get_or_insert_default().extend(more.into_iter().flatten());
            }
        }
        let server = McpServer {
            command: Some(self.engine.program.display().to_string()),
            args: Some(vec!["mcp".to_owned(), "--job".to_owned()]),
            env: Some(self.voice().into_iter().collect()),
            ..McpServer::default()
        };
        agent.settings.mcp_servers.insert(OWN_SERVER.to_owned(), server);
        agent
    }
}

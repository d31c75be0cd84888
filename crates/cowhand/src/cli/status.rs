//! `cowhand status`: the daemon and its agents at a glance.

use std::path::Path;

use clap::Args;
use cowhand_core::id::AgentName;
use jiff::Timestamp;

use super::agents::table;
use super::{Failure, ago, place, print, schedule};
use crate::api::{DaemonView, Page, Problem, Status as Answer};
use crate::fleet::{ScheduleStatus, ScheduleView};

#[derive(Debug, Args)]
pub(super) struct Status {
    /// Only this agent, with its schedules
    agent: Option<AgentName>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        place::ask(config, async |client| {
            let mut status: Answer = client.get("status").await?;
            if let Some(agent) = &self.agent {
                status.agents.retain(|view| view.name == *agent);
                if status.agents.is_empty() {
                    return Err(Problem::no_agent(agent).into());
                }
            }
            if self.json {
                print::json(&status);
                return Ok(());
            }
            let now = Timestamp::now();
            print::line(daemon(&status.daemon, now));
            if let Some(waiting) = waiting(status.asks) {
                print::line(waiting);
            }
            for parked in &status.parked {
                let (name, until) = (&parked.provider, ago::from_now(now, parked.until));
                let message = print::one_line(&parked.message, 300);
                let said = format!("{name} is used up, and takes jobs again {until}: {message}");
                print::line(print::styled(said, print::ODD));
            }
            print::line("");
            table(&status.agents, now).print();
            let mut schedules = client.get::<Page<ScheduleView>>("schedules").await?.items;
            schedules.retain(|view| self.agent.as_ref().is_none_or(|agent| view.agent == *agent));
            let stopped = stopped(&schedules, now);
            if self.agent.is_some() {
                print::line("");
                schedule::table(&schedules, now).print();
            }
            if !stopped.is_empty() {
                print::line("");
            }
            for line in stopped {
                print::line(line);
            }
            Ok(())
        })
    }
}

fn waiting(asks: usize) -> Option<String> {
    let who = match asks {
        0 => return None,
        1 => "an agent waits for an answer".to_owned(),
        more => format!("agents wait for {more} answers"),
    };
    Some(format!("{}; `cowhand asks` shows what they want", print::styled(&who, print::ODD)))
}

/// What does not run although it is on: for want of money, each budget once, and because of a breaker.
fn stopped(schedules: &[ScheduleView], now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    for view in schedules {
        let Some(note) = &view.skip_note else { continue };
        let note = print::one_line(note, 300);
        let line = match (view.status, view.skip_until) {
            (ScheduleStatus::Paused, Some(until)) => {
                let (name, until) = (format!("{}/{}", view.agent, view.schedule), ago::from_now(now, until));
                format!("{}: {name} until {until}: {note}", print::styled("paused", print::ODD))
            }
            _ => format!("{}: {note}", print::styled("no money", print::ODD)),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn daemon(view: &DaemonView, now: Timestamp) -> String {
    if !view.running {
        return format!("daemon: {}; `cowhand start -d` starts it", print::styled("not running", print::ODD));
    }
    let state = if view.stopping { "stopping" } else { "running" };
    let pid = view.pid.unwrap_or_default();
    let since = view.started_at.map(|at| ago::from_now(now, at)).unwrap_or_default();
    format!("daemon: {}, pid {pid}, started {since}", print::styled(state, print::GOOD))
}

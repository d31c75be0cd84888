//! A schedule under the name that it had before. The name is what its history is kept under, so a new name alone makes a
//! new schedule, and one that reads a list would fire again for all that is open.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt;

use super::{Roster, Schedule};
use crate::id::{AgentName, IdError, ScheduleId, ScheduleName};
use crate::schedule::ScheduleRecord;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Former {
    pub agent: AgentName,
    pub name: ScheduleName,
}

impl Former {
    /// `SCHEDULE` of this agent, or `AGENT/SCHEDULE`.
    pub fn read(text: &str, of: &AgentName) -> Result<Self, IdError> {
        match text.split_once('/') {
            Some((agent, name)) => Ok(Self { agent: agent.parse()?, name: name.parse()? }),
            None => Ok(Self { agent: of.clone(), name: text.parse()? }),
        }
    }

    /// Why a schedule that may be this one does not fire yet, and what to do.
    pub fn suspicion(&self, new: &ScheduleRecord) -> String {
        // A name with a slash in it would be taken for an agent's.
        let short = self.agent == new.agent && !self.name.as_str().contains('/');
        let written = if short { self.name.to_string() } else { self.to_string() };
        format!(
            "it seems to be {self} under a new name, and would fire again for all that is on its list; write \
             `adopt: {written}` to go on where that was, or run `cowhand schedule enable {}/{}` to begin anew",
            new.agent, new.name
        )
    }

    pub fn id(&self) -> ScheduleId {
        ScheduleId::of(&self.agent, &self.name)
    }
}

impl fmt::Display for Former {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.agent, self.name)
    }
}

impl Roster {
    /// What each new schedule may have been called before, the likeliest first: those with the same list to read that
    /// have left the config, and their agent with them, or the agent is the same.
    pub fn seem_renamed(&self, known: &[ScheduleRecord]) -> Vec<(ScheduleId, Vec<Former>)> {
        let before: HashSet<ScheduleId> = known.iter().map(|record| record.id).collect();
        let own = self.agents.iter().flat_map(|agent| &agent.schedules);
        let now: HashSet<ScheduleId> = own.map(|schedule| schedule.id).collect();
        let mut gone: Vec<&ScheduleRecord> =
            known.iter().filter(|record| !now.contains(&record.id)).collect();
        gone.sort_by_key(|record| Reverse(record.last_run_at));
        let mut found = Vec::new();
        for agent in &self.agents {
            let is_new = |schedule: &&Schedule| !before.contains(&schedule.id);
            for schedule in agent.schedules.iter().filter(is_new).filter(|new| new.trigger.reads_a_list()) {
                let fits = |record: &&&ScheduleRecord| {
                    record.trigger == schedule.trigger
                        && (record.agent == agent.name || self.agent(&record.agent).is_none())
                };
                let former = |record: &&ScheduleRecord| Former {
                    agent: record.agent.clone(),
                    name: record.name.clone(),
                };
                found.push((schedule.id, gone.iter().filter(fits).map(former).collect()));
            }
        }
        found
    }
}

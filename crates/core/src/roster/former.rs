//! Former names of schedules. The history of a schedule is stored under its name, so a renamed schedule is a new
//! schedule. A new schedule that reads a list would fire again for all open items.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt;

use super::{Roster, Schedule};
use crate::id::{AgentName, IdError, ScheduleId, ScheduleName};
use crate::schedule::ScheduleRecord;
use crate::shell::schedule_word;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerName {
    pub agent: AgentName,
    pub name: ScheduleName,
}

impl FormerName {
    /// Parses `SCHEDULE` of this agent, or `AGENT/SCHEDULE`.
    pub fn read(text: &str, of: &AgentName) -> Result<Self, IdError> {
        match text.split_once('/') {
            Some((agent, name)) => Ok(Self { agent: agent.parse()?, name: name.parse()? }),
            None => Ok(Self { agent: of.clone(), name: text.parse()? }),
        }
    }

    /// Describes why a schedule that may have been renamed does not fire yet, and what to do.
    pub fn rename_advice(&self, new: &ScheduleRecord) -> String {
        // The part of a name before a slash would be parsed as an agent.
        let short = self.agent == new.agent && !self.name.as_str().contains('/');
        let written = if short { self.name.to_string() } else { self.to_string() };
        format!(
            "it seems to be {self} under a new name, and would fire again for all items of its list; to continue the \
             history, write `adopt: {written}`; to start without it, run `cowhand schedule enable {}`",
            schedule_word(&new.agent, &new.name)
        )
    }

    pub fn id(&self) -> ScheduleId {
        ScheduleId::of(&self.agent, &self.name)
    }
}

impl fmt::Display for FormerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.agent, self.name)
    }
}

impl Roster {
    /// Returns the possible former names of each new schedule that reads a list. A possible former name is the name of
    /// a schedule that is no longer in the config and read the same list. That schedule belonged to the same agent,
    /// or to an agent that is no longer in the config. The schedule that ran last comes first.
    pub fn seem_renamed(&self, known: &[ScheduleRecord]) -> Vec<(ScheduleId, Vec<FormerName>)> {
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
                    schedule.trigger.reads_same_list(&record.trigger)
                        && (record.agent == agent.name || self.agent(&record.agent).is_none())
                };
                let former = |record: &&ScheduleRecord| FormerName {
                    agent: record.agent.clone(),
                    name: record.name.clone(),
                };
                found.push((schedule.id, gone.iter().filter(fits).map(former).collect()));
            }
        }
        found
    }
}

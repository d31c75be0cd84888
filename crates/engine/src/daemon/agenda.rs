//! The agenda of the daemon loop: which agents have to be planned, and when.
//!
//! A plan of an agent depends on its rows in the store, on the config and on the time. An agent is planned again when
//! an event concerns it, when a part of the daemon requests it, and at the time that its last plan named. So the cost
//! of a tick does not depend on the number of other agents. After a change of the config or of the clock, and after
//! events that concern the whole fleet, all agents are planned. In addition, each tick plans the next agent of the
//! roster, so that a change without an event or request is found in the end.

use std::collections::{BTreeSet, HashMap};

use cowhand_core::id::AgentName;
use cowhand_core::roster::{CoupledAgents, Roster};
use cowhand_store::ChangedAgents;
use jiff::Timestamp;

use crate::plan_requests::PlanRequests;

/// Maximum number of agents that are planned together, unless their plans depend on each other.
const AGENTS_PER_PLAN: usize = 64;

#[derive(Debug)]
pub(super) struct Agenda {
    /// Number of the last event that was noted.
    pub(super) cursor: i64,
    /// True if all agents have to be planned.
    all: bool,
    /// Agents that have to be planned now.
    changed: BTreeSet<AgentName>,
    /// Time of the next plan of each agent.
    wakes: HashMap<AgentName, Timestamp>,
    by_time: BTreeSet<(Timestamp, AgentName)>,
    /// Position of the next agent that is planned without a reason.
    rotation: usize,
}

impl Agenda {
    /// Creates an agenda that begins with a plan of all agents, and with the events after `cursor`.
    pub(super) fn new(cursor: i64) -> Self {
        Self {
            cursor,
            all: true,
            changed: BTreeSet::new(),
            wakes: HashMap::new(),
            by_time: BTreeSet::new(),
            rotation: 0,
        }
    }

    pub(super) fn plan_all(&mut self) {
        self.all = true;
    }

    /// Notes the agents of new events, and the requests.
    pub(super) fn note(&mut self, changed: ChangedAgents, requests: &PlanRequests) {
        let requested = requests.take();
        self.all |= changed.whole_fleet || requested.all;
        self.changed.extend(changed.agents);
        self.changed.extend(requested.agents);
        self.cursor = changed.newest;
    }

    /// Returns whether all agents have to be planned. If so, forgets the times that earlier plans named.
    pub(super) fn take_all(&mut self) -> bool {
        let all = std::mem::take(&mut self.all);
        if all {
            self.changed.clear();
            self.wakes.clear();
            self.by_time.clear();
        }
        all
    }

    /// Takes the agents that have to be planned now, in groups. Agents whose plans depend on each other are in the same
    /// group.
    pub(super) fn take_due(&mut self, roster: &Roster, now: Timestamp) -> Vec<Vec<AgentName>> {
        let mut due = std::mem::take(&mut self.changed);
        while self.next().is_some_and(|at| at <= now) {
            let Some((_, agent)) = self.by_time.pop_first() else { break };
            self.wakes.remove(&agent);
            due.insert(agent);
        }
        if let Some(next) = roster.agents.get(self.rotation) {
            due.insert(next.name.clone());
        }
        self.rotation = (self.rotation + 1).checked_rem(roster.agents.len()).unwrap_or_default();
        groups(roster, due)
    }

    /// Records when an agent has to be planned again.
    pub(super) fn set_wake(&mut self, agent: AgentName, wake_at: Option<Timestamp>) {
        let before = match wake_at {
            Some(at) => self.wakes.insert(agent.clone(), at),
            None => self.wakes.remove(&agent),
        };
        if let Some(before) = before {
            self.by_time.remove(&(before, agent.clone()));
        }
        self.by_time.extend(wake_at.map(|at| (at, agent)));
    }

    /// Returns the time of the next plan.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

/// Divides agents into groups that are planned together.
pub(super) fn groups(roster: &Roster, agents: impl IntoIterator<Item = AgentName>) -> Vec<Vec<AgentName>> {
    let (mut coupled, mut groups) = (Vec::new(), Vec::new());
    let mut group = Vec::new();
    let is_removed = |agent: &AgentName| roster.agent(agent).is_none();
    for agent in agents {
        match roster.coupled_with(&agent) {
            CoupledAgents::None => group.push(agent),
            CoupledAgents::Some(others) if coupled.is_empty() => coupled = others,
            CoupledAgents::All if coupled.is_empty() => {
                coupled = roster.agents.iter().map(|agent| agent.name.clone()).collect();
                coupled.extend(is_removed(&agent).then_some(agent));
            }
            CoupledAgents::All | CoupledAgents::Some(_) => {
                coupled.extend(is_removed(&agent).then_some(agent));
            }
        }
        if group.len() == AGENTS_PER_PLAN {
            groups.push(std::mem::take(&mut group));
        }
    }
    groups.extend([group, coupled].into_iter().filter(|group| !group.is_empty()));
    groups
}

#[cfg(test)]
mod tests {
    use cowhand_core::provider::Provider;
    use cowhand_core::roster::Agent;

    use super::*;

    fn names(list: &[&str]) -> Vec<AgentName> {
        list.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn roster(list: &[&str]) -> Roster {
        Roster::of(names(list).into_iter().map(Agent::new).collect())
    }

    #[test]
    fn agents_are_due_after_an_event_a_request_or_at_their_time() {
        let (roster, requests) = (roster(&["a", "b", "c", "d"]), PlanRequests::default());
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut agenda = Agenda::new(0);
        assert!(agenda.take_all() && !agenda.take_all(), "the first plan is of all agents");
        for (agent, second) in [("b", 10), ("c", 20)] {
            agenda.set_wake(agent.parse().unwrap(), Some(at(second)));
        }
        agenda.set_wake("c".parse().unwrap(), Some(at(30)));
        assert_eq!(agenda.next(), Some(at(10)));
        // No agent has a reason to be planned, so the next agent of the roster is planned: the first one.
        assert_eq!(agenda.take_due(&roster, at(9)), [names(&["a"])]);
        assert_eq!(agenda.take_due(&roster, at(20)), [names(&["b"])], "its time has come");
        assert_eq!(agenda.next(), Some(at(30)));
        let changed =
            ChangedAgents { newest: 7, agents: names(&["d"]).into_iter().collect(), whole_fleet: false };
        requests.add("a".parse().unwrap());
        agenda.note(changed, &requests);
        assert_eq!((agenda.cursor, agenda.take_all()), (7, false));
        assert_eq!(agenda.take_due(&roster, at(20)), [names(&["a", "c", "d"])], "c comes in turn");
        requests.add_all();
        agenda.note(ChangedAgents { newest: 8, ..ChangedAgents::default() }, &requests);
        assert!(agenda.take_all());
        assert_eq!(agenda.next(), None, "earlier times are forgotten");
    }

    #[test]
    fn agents_that_share_a_limited_provider_are_planned_together() {
        let mut roster = roster(&["a", "b", "c"]);
        for agent in roster.agents.iter_mut().skip(1) {
            agent.program.provider = Some("shared".to_owned());
        }
        assert_eq!(groups(&roster.clone(), names(&["a", "c"])), [names(&["a", "c"])], "without limits");
        let limits = Provider { max_concurrent: Some(1), ..Provider::default() };
        roster.providers.insert("shared".to_owned(), limits);
        assert_eq!(groups(&roster.clone(), names(&["a", "c"])), [names(&["a"]), names(&["b", "c"])]);
        roster.budget.per_day_usd = Some("5".parse().unwrap());
        let all = [names(&["a", "b", "c", "removed", "gone"])];
        assert_eq!(groups(&roster.clone(), names(&["c", "removed", "gone"])), all);
    }

    #[test]
    fn a_group_has_a_maximum_size() {
        let list: Vec<String> = (0..=AGENTS_PER_PLAN).map(|number| format!("a{number}")).collect();
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        let sizes: Vec<usize> = groups(&roster(&list), names(&list)).iter().map(Vec::len).collect();
        assert_eq!(sizes, [AGENTS_PER_PLAN, 1]);
    }
}

//! What agents and schedules say about each other: every name leads somewhere, and no circle of schedules starts
//! itself for ever.

use std::collections::{HashMap, HashSet};

use super::load::Draft;
use super::node::{Location, Node};
use super::problem::{Problem, Problems};
use super::resolve::schedule_at;
use super::suggest::did_you_mean;
use crate::fleet::{Agent, Fleet, Schedule};
use crate::id::{AgentName, ScheduleId};
use crate::trigger::TriggerConfig;

/// All that can be referred to.
pub(super) struct Known<'a> {
    pub fleet: &'a Fleet,
    /// The agents of the fleet in the same order, with their places.
    pub drafts: &'a [Draft],
    /// Agents with errors of their own. They exist, so naming them is no second error.
    pub broken: &'a [Draft],
    /// No file is missing.
    pub all: bool,
}

impl Known<'_> {
    pub(super) fn check(&self, problems: &mut Problems) {
        let mut upstream: HashMap<ScheduleId, ScheduleId> = HashMap::new();
        for place in self.places() {
            match &place.schedule.trigger {
                TriggerConfig::AgentLifecycle { agent: Some(name), .. } => {
                    place.lifecycle(self, name, problems);
                }
                TriggerConfig::DispatchResult { source_workflow_id, schedule: name, .. } => {
                    let id = source_workflow_id.map(ScheduleId);
                    if let Some(source) = place.upstream(self, name.as_deref(), id, problems) {
                        upstream.insert(place.schedule.id, source);
                    }
                }
                _ => {}
            }
        }
        self.circles(&upstream, problems);
    }

    fn places(&self) -> impl Iterator<Item = Place<'_>> {
        let agents = self.fleet.agents.iter().zip(self.drafts);
        agents.flat_map(|(agent, draft)| {
            agent.schedules.iter().map(move |schedule| Place { agent, draft, schedule })
        })
    }

    /// By its name within the same fleet, or by its whole name.
    fn agent(&self, name: &str, from: &Draft) -> Option<&Agent> {
        spellings(name, from).iter().find_map(|name| self.fleet.agent(&name.parse::<AgentName>().ok()?))
    }

    /// May an agent of this name exist, for all we could read?
    fn may_exist(&self, name: &str, from: &Draft) -> bool {
        let wanted = spellings(name, from);
        let may_be = |draft: &Draft| match draft.node.get("name").and_then(Node::text) {
            Some(own) => wanted.contains(&spellings(own, draft)[0]),
            None => true,
        };
        !self.all || self.broken.iter().any(may_be)
    }

    /// `SCHEDULE` of the same agent, or `AGENT/SCHEDULE`.
    fn schedule(&self, name: &str, from: &Place<'_>) -> Option<ScheduleId> {
        let of = |agent: &Agent, name: &str| {
            agent.schedules.iter().find(|schedule| schedule.name.as_str() == name).map(|schedule| schedule.id)
        };
        of(from.agent, name).or_else(|| {
            let (agent, schedule) = name.split_once('/')?;
            of(self.agent(agent, from.draft)?, schedule)
        })
    }

    /// Each schedule waits for at most one other, so every circle is found by walking on until a step repeats.
    fn circles(&self, upstream: &HashMap<ScheduleId, ScheduleId>, problems: &mut Problems) {
        let places: HashMap<ScheduleId, Place<'_>> =
            self.places().map(|place| (place.schedule.id, place)).collect();
        let mut seen = HashSet::new();
        for start in self.places().map(|place| place.schedule.id) {
            let mut way = Vec::new();
            let mut step = Some(start);
            while let Some(id) = step.filter(|id| seen.insert(*id)) {
                way.push(id);
                step = upstream.get(&id).copied();
            }
            let Some(first) = step.and_then(|id| way.iter().position(|passed| *passed == id)) else {
                continue;
            };
            let round: Vec<&Place<'_>> = way[first..].iter().filter_map(|id| places.get(id)).collect();
            if let Some(place) = round.first() {
                let problem = Problem::error(place.at("schedule"), in_a_circle(&round));
                problems.add(problem.key(place.key("schedule")));
            }
        }
    }
}

fn in_a_circle(round: &[&Place<'_>]) -> String {
    let names: Vec<String> = round.iter().map(|place| place.name()).collect();
    match names.as_slice() {
        [only] => format!("`{only}` waits for itself; a job never triggers its own schedule"),
        _ => format!("these schedules wait for each other: {} → {}", names.join(" → "), names[0]),
    }
}

/// A name as seen from a fleet: inside it first, then from the root.
fn spellings(name: &str, from: &Draft) -> [String; 2] {
    let nearby: Vec<&str> = from.fleets.iter().map(String::as_str).chain([name]).collect();
    [nearby.join("."), name.to_owned()]
}

struct Place<'a> {
    agent: &'a Agent,
    draft: &'a Draft,
    schedule: &'a Schedule,
}

impl Place<'_> {
    fn lifecycle(&self, known: &Known<'_>, name: &str, problems: &mut Problems) {
        if known.agent(name, self.draft).is_none() && !known.may_exist(name, self.draft) {
            let names = known.fleet.agents.iter().map(|agent| agent.name.as_str());
            let problem = Problem::error(self.at("agent"), format!("there is no agent `{name}`"));
            problems.add(problem.key(self.key("agent")).help(did_you_mean(name, names)));
        }
    }

    /// The schedule whose jobs this one waits for.
    fn upstream(
        &self,
        known: &Known<'_>,
        name: Option<&str>,
        id: Option<ScheduleId>,
        problems: &mut Problems,
    ) -> Option<ScheduleId> {
        let Some(name) = name else {
            return self.upstream_by_id(known, id, problems);
        };
        let Some(source) = known.schedule(name, self) else {
            if !name.split_once('/').is_some_and(|(agent, _)| known.may_exist(agent, self.draft)) {
                self.no_such_schedule(known, name, problems);
            }
            return None;
        };
        if id.is_some_and(|id| id != source) {
            let message = format!("`source_workflow_id` is not the id of `{name}`, which is {source}");
            let problem = Problem::error(self.at("source_workflow_id"), message);
            problems.add(problem.key(self.key("source_workflow_id")));
        }
        Some(source)
    }

    fn upstream_by_id(
        &self,
        known: &Known<'_>,
        id: Option<ScheduleId>,
        problems: &mut Problems,
    ) -> Option<ScheduleId> {
        let Some(id) = id else {
            let message = "`schedule` is missing (for `type: dispatch_result`)";
            let at = schedule_at(self.draft, self.schedule.name.as_str());
            let key = self.draft.key_of(&format!("schedules.{}", self.schedule.name));
            problems.add(Problem::error(at, message).key(key));
            return None;
        };
        let exists = known.places().any(|place| place.schedule.id == id);
        if !exists && known.all && known.broken.is_empty() {
            let problem =
                Problem::warning(self.at("source_workflow_id"), format!("no schedule here has the id {id}"));
            problems.add(problem.key(self.key("source_workflow_id")));
        }
        exists.then_some(id)
    }

    fn no_such_schedule(&self, known: &Known<'_>, name: &str, problems: &mut Problems) {
        let near = self.agent.schedules.iter().map(|schedule| schedule.name.to_string());
        let names: Vec<String> = near.chain(known.places().map(|place| place.name())).collect();
        let problem = Problem::error(self.at("schedule"), format!("there is no schedule `{name}`"));
        let help = did_you_mean(name, names.iter().map(String::as_str));
        problems.add(problem.key(self.key("schedule")).help(help));
    }

    fn name(&self) -> String {
        format!("{}/{}", self.agent.name, self.schedule.name)
    }

    fn at(&self, field: &str) -> Location {
        let name = self.schedule.name.as_str();
        let schedule = self.draft.node.get("schedules").and_then(Node::entries).and_then(|all| all.get(name));
        let field = schedule.and_then(|schedule| schedule.node.get(field));
        field.map_or_else(|| schedule_at(self.draft, name), |node| node.at)
    }

    fn key(&self, field: &str) -> String {
        self.draft.key_of(&format!("schedules.{}.{field}", self.schedule.name))
    }
}

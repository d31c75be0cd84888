//! Checks of references between agents and schedules: every name exists, and no cycle of schedules starts itself
//! forever.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::load::Draft;
use super::node::{Location, Node, Value};
use super::problem::{Problem, Problems};
use super::resolve::schedule_at;
use super::secret;
use super::suggest::did_you_mean;
use crate::id::ScheduleId;
use crate::roster::{Agent, Roster, Schedule};
use crate::trigger::{EventTrigger, TriggerConfig, TriggerKind};

/// Checks all references. `drafts` are the drafts of the agents of the roster; `broken` are the agents with errors, as
/// far as they can be read; `complete` is true if all files could be read.
pub(super) fn check(
    roster: &Roster,
    drafts: &[Arc<Draft>],
    broken: &[(Draft, Option<Box<Agent>>)],
    complete: bool,
    problems: &mut Problems,
) {
    let refers = |schedule: &Schedule| {
        matches!(schedule.trigger.kind(), TriggerKind::Event(_)) || schedule.adopts.is_some()
    };
    let has_reference = |agent: &Agent| agent.followups.is_some() || agent.schedules.iter().any(refers);
    // In most fleets there is no reference, and then the names are not needed.
    let mut agents = roster.agents.iter().chain(broken.iter().filter_map(|(_, agent)| agent.as_deref()));
    if agents.any(has_reference) {
        KnownNames::new(roster, drafts, broken, complete).check(problems);
    }
}

/// All agents and schedules that can be referred to.
struct KnownNames<'a> {
    /// Agents with their drafts, including agents with errors, as far as they can be read.
    agents: Vec<(&'a Agent, &'a Draft)>,
    /// True if the names of all agents are known.
    knows_all_agents: bool,
    names: Names,
}

/// Indexes for fast lookups, because a fleet may have many references.
#[derive(Default)]
struct Names {
    agents: HashSet<String>,
    /// Ids by `AGENT/SCHEDULE`; the name of an agent has no slash.
    schedules: HashMap<String, ScheduleId>,
    ids: HashSet<ScheduleId>,
    /// Schedules of agents with errors, as `AGENT/SCHEDULE`. They exist, so a reference to them is not a second error.
    broken: HashSet<String>,
    /// Agents whose schedule names are not known.
    unread: HashSet<String>,
}

impl<'a> KnownNames<'a> {
    fn new(
        roster: &'a Roster,
        drafts: &'a [Arc<Draft>],
        broken: &'a [(Draft, Option<Box<Agent>>)],
        complete: bool,
    ) -> Self {
        let read = broken.iter().filter_map(|(draft, agent)| Some((agent.as_deref()?, draft)));
        let agents = roster.agents.iter().zip(drafts.iter().map(Arc::as_ref)).chain(read).collect();
        let mut known = Self { agents, knows_all_agents: complete, names: Names::default() };
        known.names.agents = known.agent_names().collect();
        known.names.schedules = known.places().map(|place| (place.name(), place.schedule.id)).collect();
        known.names.ids = known.names.schedules.values().copied().collect();
        for (draft, _) in broken {
            match written_name(draft) {
                Some(name) => known.note_broken(name, draft),
                None => known.knows_all_agents = false,
            }
        }
        known
    }

    fn note_broken(&mut self, agent: String, draft: &Draft) {
        match draft.node.get("schedules").map(Node::entries) {
            Some(None) => _ = self.names.unread.insert(agent.clone()),
            schedules => {
                let names = schedules.flatten().into_iter().flat_map(|schedules| schedules.keys());
                self.names.broken.extend(names.map(|name| format!("{agent}/{name}")));
            }
        }
        self.names.agents.insert(agent);
    }

    fn check(&self, problems: &mut Problems) {
        let mut upstream: HashMap<ScheduleId, ScheduleId> = HashMap::new();
        let mut for_anyone = Vec::new();
        for place in self.places() {
            let TriggerKind::Event(trigger) = place.schedule.trigger.kind() else { continue };
            match trigger {
                EventTrigger::Lifecycle { agent, .. } => {
                    if let Some(name) = agent {
                        place.lifecycle(self, name, problems);
                    }
                }
                EventTrigger::JobEnded { id: None, schedule: None, .. } => for_anyone.push(place),
                EventTrigger::JobEnded { id, schedule: name, .. } => {
                    if let Some(source) = place.upstream(self, name, id.map(ScheduleId), problems) {
                        upstream.insert(place.schedule.id, source);
                    }
                }
            }
        }
        for (agent, draft) in &self.agents {
            self.followups(agent, draft, problems);
        }
        self.adoptions(problems);
        self.find_cycles(&upstream, problems);
        self.find_mutual_cycles(&for_anyone, &upstream, problems);
    }

    /// Checks `followups`: it has to set `max` or `from`, and the agents in `from` have to exist.
    fn followups(&self, agent: &Agent, draft: &Draft, problems: &mut Problems) {
        let (Some(own), Some(node)) = (&agent.followups, draft.node.get("followups")) else {
            return;
        };
        if own.max.is_none() && own.from.is_empty() {
            let message = "set `max` (how many follow-ups its jobs may request) or `from` (which agents may request its jobs)";
            problems.add(Problem::error(node.at, message).key(draft.key_of("followups")));
        }
        for name in own.from.iter().filter(|name| !self.agent_may_exist(name, draft)) {
            let at = node.get("from").map_or(node.at, |from| from.at);
            let names: Vec<String> = self.agent_names().collect();
            let help = did_you_mean(name, names.iter().map(String::as_str));
            let problem = Problem::error(at, format!("there is no agent `{name}`"));
            problems.add(problem.key(draft.key_of("followups.from")).help(help));
        }
    }

    /// Checks `adopt`: only a schedule that is no longer in the config can be adopted, and only once.
    fn adoptions(&self, problems: &mut Problems) {
        let mut taken: HashMap<ScheduleId, ScheduleRef<'_>> = HashMap::new();
        for place in self.places() {
            let Some(former) = &place.schedule.adopts else { continue };
            let mut help = None;
            let message = if self.names.ids.contains(&former.id()) {
                format!("{former} is still in the config; `adopt` is for the former name of this schedule")
            } else if let Some(other) =
                // Agents with the same name are reported elsewhere, so their equal `adopt` is not reported here.
                taken.insert(former.id(), place).filter(|other| other.name() != place.name())
            {
                help = Some(format!(
                    "a history moves once; if {} has it, remove that `adopt`, and this one takes over the jobs that stayed with \
                     their agent",
                    other.shown()
                ));
                format!("{} adopts {former} already", other.shown())
            } else {
                continue;
            };
            problems.add(Problem::error(place.at("adopt"), message).key(place.key("adopt")).help(help));
        }
    }

    /// Returns the names of all agents that have a name.
    fn agent_names(&self) -> impl Iterator<Item = String> {
        self.agents.iter().filter_map(|(_, draft)| written_name(draft))
    }

    fn places(&self) -> impl Iterator<Item = ScheduleRef<'_>> {
        self.agents.iter().flat_map(|&(agent, draft)| {
            agent.schedules.iter().map(move |schedule| ScheduleRef { agent, draft, schedule })
        })
    }

    /// Checks whether an agent of this name may exist, as far as the files could be read.
    fn agent_may_exist(&self, name: &str, from: &Draft) -> bool {
        !self.knows_all_agents || full_names(name, from).iter().any(|name| self.names.agents.contains(name))
    }

    /// Finds `SCHEDULE` of the same agent, or `AGENT/SCHEDULE`.
    fn schedule(&self, name: &str, from: &ScheduleRef<'_>) -> Option<ScheduleId> {
        let own = format!("{}/{name}", from.agent_name());
        std::iter::once(own)
            .chain(full_names(name, from.draft))
            .find_map(|name| self.names.schedules.get(&name).copied())
    }

    /// Checks whether the name may refer to a schedule that could not be read.
    fn schedule_may_exist(&self, name: &str, from: &ScheduleRef<'_>) -> bool {
        let own = format!("{}/{name}", from.agent_name());
        let is_broken = |name: &String| self.names.broken.contains(name);
        if is_broken(&own) || full_names(name, from.draft).iter().any(is_broken) {
            return true;
        }
        let Some((agent, _)) = name.split_once('/') else { return false };
        !self.knows_all_agents
            || full_names(agent, from.draft).iter().any(|name| self.names.unread.contains(name))
    }

    /// Finds cycles of schedules that name each other. Each schedule names at most one other schedule, so this function
    /// follows the references until a schedule repeats.
    fn find_cycles(&self, upstream: &HashMap<ScheduleId, ScheduleId>, problems: &mut Problems) {
        let places: HashMap<ScheduleId, ScheduleRef<'_>> =
            self.places().map(|place| (place.schedule.id, place)).collect();
        let mut seen = HashSet::new();
        for start in self.places().map(|place| place.schedule.id) {
            let mut visited = Vec::new();
            let mut step = Some(start);
            while let Some(id) = step.filter(|id| seen.insert(*id)) {
                visited.push(id);
                step = upstream.get(&id).copied();
            }
            let Some(first) = step.and_then(|id| visited.iter().position(|other| *other == id)) else {
                continue;
            };
            let cycle: Vec<&ScheduleRef<'_>> =
                visited[first..].iter().filter_map(|id| places.get(id)).collect();
            if let Some(place) = cycle.first() {
                let problem = Problem::error(place.at("schedule"), cycle_message(&cycle));
                problems.add(problem.key(place.key("schedule")));
            }
        }
    }

    /// Finds cycles of two schedules. The first schedule waits for the jobs of all schedules. The second schedule does
    /// the same, or names the first. The two start each other forever if the same outcome starts both. A cycle that
    /// needs two different outcomes in turn ends as soon as a job has another outcome, or when too many schedules have
    /// triggered each other in a row.
    fn find_mutual_cycles(
        &self,
        for_anyone: &[ScheduleRef<'_>],
        upstream: &HashMap<ScheduleId, ScheduleId>,
        problems: &mut Problems,
    ) {
        for (number, place) in for_anyone.iter().enumerate() {
            let waits =
                |other: &ScheduleRef<'_>| upstream.get(&other.schedule.id) == Some(&place.schedule.id);
            let named = self.places().filter(waits);
            let mut others = named.chain(for_anyone[number + 1..].iter().copied());
            let Some(other) = others.find(|other| place.shares_outcome(other)) else { continue };
            let at = schedule_at(place.draft, place.schedule.name.as_str());
            let help = "set `schedule` in one of them, or give each a different `status`";
            let problem = Problem::error(at, cycle_message(&[place, &other])).help(help.to_owned());
            problems.add(problem.key(place.key("type")));
        }
    }
}

fn cycle_message(cycle: &[&ScheduleRef<'_>]) -> String {
    let names: Vec<String> = cycle.iter().map(|place| place.shown()).collect();
    match names.as_slice() {
        [only] => format!("`{only}` waits for itself; a job never triggers its own schedule"),
        _ => format!("these schedules wait for each other: {} → {}", names.join(" → "), names[0]),
    }
}

/// Returns the full name of an agent, if it is known.
fn written_name(draft: &Draft) -> Option<String> {
    let [name, _] = full_names(draft.node.get("name")?.text()?, draft);
    Some(name)
}

/// Returns the full names that a name in a fleet can mean: first inside this fleet, then from the root.
fn full_names(name: &str, from: &Draft) -> [String; 2] {
    let nearby: Vec<&str> = from.fleets.iter().map(String::as_str).chain([name]).collect();
    [nearby.join("."), name.to_owned()]
}

/// Number of errors after which no suggestions are made, because nobody reads them and comparing every name with every
/// other is slow.
const MAX_SUGGESTIONS: usize = 100;

#[derive(Clone, Copy)]
struct ScheduleRef<'a> {
    agent: &'a Agent,
    draft: &'a Draft,
    schedule: &'a Schedule,
}

impl ScheduleRef<'_> {
    /// Checks whether both schedules are enabled, and the same outcome of a job starts both.
    fn shares_outcome(&self, other: &Self) -> bool {
        let status = |place: &Self| match &place.schedule.trigger {
            TriggerConfig::DispatchResult { status, .. } => *status,
            _ => None,
        };
        // A wrong `status` is left out when the schedule is read, so its outcome is not known.
        let is_unknown = |place: &Self| status(place).is_none() && place.field("status").is_some();
        let is_same = match (status(self), status(other)) {
            (Some(own), Some(theirs)) => own == theirs,
            _ => !is_unknown(self) && !is_unknown(other),
        };
        is_same && self.schedule.enabled && other.schedule.enabled
    }

    fn lifecycle(&self, known: &KnownNames<'_>, name: &str, problems: &mut Problems) {
        if !known.agent_may_exist(name, self.draft) {
            self.report_unknown_name("agent", name, known.agent_names(), problems);
        }
    }

    /// Returns the schedule for whose jobs this schedule waits.
    fn upstream(
        &self,
        known: &KnownNames<'_>,
        name: Option<&str>,
        id: Option<ScheduleId>,
        problems: &mut Problems,
    ) -> Option<ScheduleId> {
        let Some(name) = name else {
            return self.upstream_by_id(known, id, problems);
        };
        let Some(source) = known.schedule(name, self) else {
            if !known.schedule_may_exist(name, self) {
                let near = self.agent.schedules.iter().map(|schedule| schedule.name.to_string());
                let names = near.chain(known.places().map(|place| place.name()));
                self.report_unknown_name("schedule", name, names, problems);
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
        known: &KnownNames<'_>,
        id: Option<ScheduleId>,
        problems: &mut Problems,
    ) -> Option<ScheduleId> {
        let id = id?;
        let exists = known.names.ids.contains(&id);
        if !exists && known.knows_all_agents && known.names.broken.is_empty() && known.names.unread.is_empty()
        {
            let problem =
                Problem::warning(self.at("source_workflow_id"), format!("no schedule here has the id {id}"));
            problems.add(problem.key(self.key("source_workflow_id")));
        }
        exists.then_some(id)
    }

    fn report_unknown_name(
        &self,
        field: &str,
        name: &str,
        names: impl Iterator<Item = String>,
        problems: &mut Problems,
    ) {
        let secret = self.field(field).is_some_and(|node| match &node.value {
            Value::Scalar(scalar) => secret::holds_secret(scalar),
            _ => false,
        });
        let mut help = None;
        if !secret && problems.errors() < MAX_SUGGESTIONS {
            let names: Vec<String> = names.collect();
            help = did_you_mean(name, names.iter().map(String::as_str));
        }
        let shown = if secret { secret::MASK } else { name };
        let problem = Problem::error(self.at(field), format!("there is no {field} `{shown}`"));
        problems.add(problem.key(self.key(field)).help(help));
    }

    fn name(&self) -> String {
        format!("{}/{}", self.agent_name(), self.schedule.name)
    }

    /// Returns the name for messages: without the agent if the agent has no name.
    fn shown(&self) -> String {
        if written_name(self.draft).is_some() { self.name() } else { self.schedule.name.to_string() }
    }

    /// Returns the full name of the agent as it is written, even if it is not valid. An agent without a name has a
    /// placeholder.
    fn agent_name(&self) -> String {
        written_name(self.draft).unwrap_or_else(|| self.agent.name.to_string())
    }

    fn at(&self, field: &str) -> Location {
        self.field(field).map_or_else(|| schedule_at(self.draft, self.schedule.name.as_str()), |node| node.at)
    }

    fn field(&self, field: &str) -> Option<&Node> {
        let schedules = self.draft.node.get("schedules")?.entries()?;
        schedules.get(self.schedule.name.as_str())?.node.get(field)
    }

    fn key(&self, field: &str) -> String {
        self.draft.key_of(&format!("schedules.{}.{field}", self.schedule.name))
    }
}

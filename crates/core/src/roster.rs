//! Who is in the fleet, as it runs: resolved, merged and checked. What was written in the files is in [`crate::shape`].

mod budget;
mod fallback;
mod followup;
mod former;
mod listen;
mod record;
mod unheld;

use std::path::PathBuf;

use indexmap::IndexMap;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::breaker::Breaker;
use crate::budget::{Budget, Tells};
use crate::filter::Filter;
use crate::id::{AgentName, ScheduleId, ScheduleName};
use crate::job::Job;
use crate::permission::Permissions;
use crate::policy::{Retry, Timeout, Timing, Zone};
use crate::price::Prices;
use crate::provider::{Provider, ProviderSlot};
use crate::retention::Retention;
use crate::sandbox::{Asked, Sandbox, SandboxRules};
use crate::server::Server;
use crate::session::SessionPolicy;
use crate::shape::{self, Docker};
use crate::trigger::{Driver, TriggerConfig};
use crate::trust::{self, Trust};
use crate::work::WorkItemId;
use crate::workspace::{Isolation, IsolationKind, IsolationRules};
pub use former::Former;
pub use listen::{Listener, of_end};
pub use unheld::Unheld;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Roster {
    /// `fleet.name` of the root file.
    pub name: Option<String>,
    /// In the order of the files: root agents first, then each sub-fleet's.
    pub agents: Vec<Agent>,
    /// `postgres://…`; none means a file in the state folder.
    pub store: Option<String>,
    /// Of the root file; each agent has its own merged with it.
    pub retention: Retention,
    /// Of the root file.
    pub prices: Prices,
    /// Of all agents together.
    pub budget: Budget,
    /// In which days and months are counted.
    pub zone: Zone,
    /// What agents share, by name; what is not here has no limits of ours.
    pub providers: IndexMap<String, Provider>,
    pub server: Server,
    /// Of the root file; none if it says nothing about them.
    pub traces: Option<shape::Traces>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    pub name: AgentName,
    /// Over all jobs of the agent, however they were started, on all nodes.
    pub max_concurrent: u32,
    /// Of jobs that come from no schedule.
    pub retry: Retry,
    pub schedules: Vec<Schedule>,
    /// Where its processes run.
    pub directory: PathBuf,
    /// Whether its processes get the daemon's whole environment, as agents of a `herdctl.yaml` do.
    pub inherits_environment: bool,
    /// Everything else as it was written, merged; its schedules are above.
    pub settings: shape::Agent,
}

/// What holds a job beside the rules of its agent.
#[derive(Debug, Clone, PartialEq)]
pub enum Holding<'a> {
    /// Nothing: it is of no schedule.
    Agent,
    Schedule(&'a Schedule),
    /// Its schedule has left the config. What it forbade nobody knows, so nothing may be taken for allowed.
    Gone(ScheduleName),
}

/// The name of the fleet's own MCP server among an agent's; its tools are `mcp__cowhand__…`.
pub const OWN_SERVER: &str = "cowhand";

#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub id: ScheduleId,
    pub name: ScheduleName,
    /// What it was called before.
    pub adopts: Option<Former>,
    /// `enabled: false` in the file; a person's `disable` lives in the store.
    pub enabled: bool,
    /// Where that is written, as `FILE:LINE`.
    pub off_in_file: Option<String>,
    pub trigger: TriggerConfig,
    pub timing: Timing,
    /// Of the cron expression, the active hours and the excluded dates.
    pub zone: Zone,
    /// What does not pass is written down as skipped.
    pub filter: Filter,
    pub prompt: Option<String>,
    pub work_source: Option<shape::WorkSource>,
    /// Asked before each firing whether it runs.
    pub when_command: Option<Vec<String>>,
    /// Whether the output of its jobs is also kept as plain text.
    pub output_to_file: bool,
    /// The agent's, where it says nothing itself.
    pub isolation: IsolationRules,
    /// Beside the agent's.
    pub permissions: Option<Permissions>,
    pub retry: Retry,
    /// Of one attempt.
    pub timeout: Timeout,
    /// Of an attempt's silence.
    pub idle_timeout: Timeout,
    /// Within its agent's.
    pub sandbox: Option<Sandbox>,
    /// When it pauses itself.
    pub breaker: Breaker,
    /// Beside the agent's.
    pub trust: Option<Trust>,
}

impl Agent {
    /// What it says, or the usual one.
    pub fn runtime(&self) -> shape::Runtime {
        self.settings.runtime.unwrap_or_default()
    }

    /// Whether it has a `work_source` from which none of its schedules takes items.
    pub fn leaves_its_work_source(&self) -> bool {
        let Some(source) = &self.settings.work_source else { return false };
        let takes = |schedule: &Schedule| schedule.work_source.as_ref().is_none_or(|own| own == source);
        !self.schedules.iter().any(takes)
    }

    /// Its schedule of this name; one that a job is of may have left the config.
    pub fn schedule(&self, name: Option<&ScheduleName>) -> Option<&Schedule> {
        self.schedules.iter().find(|own| Some(&own.name) == name)
    }

    /// What it says itself, else what everybody with its runtime shares.
    pub fn provider(&self) -> Option<&str> {
        let usual = || self.runtime().provider();
        self.settings.provider.as_deref().or_else(usual)
    }

    /// The runtime that its program has; behind `runtime: acp` there may be one that is a runtime of its own.
    pub fn program(&self) -> shape::Runtime {
        let runtime = self.runtime();
        let command = self.settings.command.as_ref().and_then(|command| command.first());
        let name = command.and_then(|command| std::path::Path::new(command).file_name()?.to_str());
        let known = name.and_then(shape::Runtime::named);
        known.filter(|_| runtime == shape::Runtime::Acp).unwrap_or(runtime)
    }

    /// When it is known what its jobs spend.
    pub fn tells(&self) -> Tells {
        use shape::Runtime::{Acp, Claude, Cli, Codex, Command, Gemini, Opencode, Sdk};
        match self.program() {
            Codex | Gemini => Tells::TokensAsItGoes,
            Opencode if self.settings.runtime != Some(Acp) => Tells::AllAsItGoes,
            Claude | Sdk | Cli if self.settings.runtime != Some(Acp) => Tells::DollarsInTheEnd,
            Command => Tells::DollarsInTheEnd,
            Claude | Sdk | Cli | Opencode | Acp => Tells::AllInTheEnd,
        }
    }

    /// Whether its program can be told to ask a proxy of ours in place of its provider.
    pub fn can_leave_keys_outside(&self) -> bool {
        use shape::Runtime::{Acp, Claude, Cli, Codex, Command, Gemini, Opencode, Sdk};
        match self.settings.runtime.unwrap_or_default() {
            Claude | Sdk | Cli | Codex | Gemini | Opencode => true,
            Acp => self.program() == Gemini,
            Command => false,
        }
    }

    /// Whether its jobs have to speak to the fleet while they run.
    pub fn needs_a_voice(&self) -> bool {
        let settings = &self.settings;
        settings.permission_mode == Some(shape::PermissionMode::Ask)
            || settings.followups.as_ref().is_some_and(|followups| followups.max.is_some())
            || settings.fleet_tools == Some(true)
    }

    pub fn session_policy(&self) -> SessionPolicy {
        self.settings.session.as_ref().and_then(|session| session.policy).unwrap_or_default()
    }

    /// Its jobs that have the same key go on with one session, one after the other. What a stranger said in one of them
    /// is not heard by those that are not confined.
    pub fn session_key(
        &self,
        item: Option<&WorkItemId>,
        chat: Option<&str>,
        confined: bool,
    ) -> Option<String> {
        let key = self.session_policy().key(item, chat)?;
        Some(if confined { format!("confined {key}") } else { key })
    }

    /// That of a job of its own.
    pub fn session_key_of(&self, job: &Job) -> Option<String> {
        self.session_key(job.work_item().map(|item| &item.id), job.chat(), job.confined().is_some())
    }

    /// Who may put words into the prompts of a schedule's jobs: all of them have to agree.
    pub fn trusts<'a>(&'a self, schedule: Option<&'a Schedule>) -> Vec<&'a Trust> {
        let own = [self.settings.trust.as_ref(), schedule.and_then(|schedule| schedule.trust.as_ref())];
        own.into_iter().flatten().collect()
    }

    pub fn isolation(&self) -> IsolationRules {
        self.settings.isolation.as_ref().map(Isolation::rules).unwrap_or_default()
    }

    /// What the processes of a job may reach, by its agent and the schedule it comes from; and by the strict sandbox, if
    /// it is confined.
    pub fn sandbox(&self, schedule: Option<&ScheduleName>, confined: bool) -> Asked {
        let schedule = self.schedule(schedule);
        let docker = self.settings.docker.as_ref().filter(|docker| docker.enabled == Some(true));
        let own = self.settings.sandbox.as_ref().map(Sandbox::rules);
        let own = docker.and_then(Docker::rules).into_iter().chain(own).reduce(SandboxRules::and);
        let of_schedule = schedule.and_then(|schedule| schedule.sandbox.as_ref()).map(Sandbox::rules);
        // What the agent leaves unsaid is closed, and nobody after it opens that.
        let all = own.map(SandboxRules::closed).into_iter().chain(of_schedule);
        let all = all.chain(confined.then(|| self.strict(schedule)));
        let mut asked = all.reduce(SandboxRules::and).unwrap_or_default().asked();
        if let Some(docker) = docker {
            asked.container = docker.container(asked.container);
        }
        if confined {
            // Folders of the machine, which the strict sandbox has no words for.
            asked.container.volumes.clear();
        }
        asked
    }

    /// What is asked for by jobs of no schedule, and by those of each; and by those among them that are confined.
    pub fn sandboxes(&self) -> impl Iterator<Item = Asked> {
        let schedules = self.schedules.iter().map(Some);
        [None].into_iter().chain(schedules).flat_map(|schedule| {
            let confines = self.trusts(schedule).into_iter().any(Trust::confines);
            let name = schedule.map(|schedule| &schedule.name);
            let strict = confines.then(|| self.sandbox(name, true));
            [self.sandbox(name, false)].into_iter().chain(strict)
        })
    }

    /// What holds the jobs of strangers: what is asked for, else the usual.
    fn strict(&self, schedule: Option<&Schedule>) -> SandboxRules {
        let keys = self.program().provider().is_some();
        let asked = self.trusts(schedule).into_iter().filter_map(|trust| trust.strict(keys));
        asked.reduce(SandboxRules::and).unwrap_or_else(|| trust::strict(keys))
    }

    /// The schedule whose rules hold a job, if any do.
    pub fn holding(&self, job: &Job) -> Holding<'_> {
        match job.schedule() {
            None => Holding::Agent,
            Some(name) => {
                self.schedule(Some(name)).map_or_else(|| Holding::Gone(name.clone()), Holding::Schedule)
            }
        }
    }

    /// What a job of this schedule has to itself; one that is of no schedule that there is has what the agent says.
    pub fn isolation_of(&self, schedule: Option<&ScheduleName>) -> IsolationRules {
        self.schedule(schedule).map_or_else(|| self.isolation(), |schedule| schedule.isolation.clone())
    }

    /// The rules of all jobs that do not share the agent's directory.
    pub fn isolations(&self) -> impl Iterator<Item = IsolationRules> {
        let of_schedules = self.schedules.iter().map(|schedule| schedule.isolation.clone());
        std::iter::once(self.isolation())
            .chain(of_schedules)
            .filter(|rules| rules.kind != IsolationKind::Shared)
    }

    /// With everything that has a default left at it.
    pub fn new(name: AgentName) -> Self {
        Self {
            name,
            max_concurrent: 1,
            retry: Retry::default(),
            schedules: Vec::new(),
            directory: PathBuf::from("."),
            inherits_environment: false,
            settings: shape::Agent::default(),
        }
    }
}

impl<'a> Holding<'a> {
    pub fn schedule(&self) -> Option<&'a Schedule> {
        match self {
            Self::Schedule(schedule) => Some(schedule),
            Self::Agent | Self::Gone(_) => None,
        }
    }
}

impl Schedule {
    /// Whether it takes time to find out what a firing runs for.
    pub fn needs_preparing(&self, agent: &Agent) -> bool {
        self.when_command.is_some() || self.takes_work(agent) || !agent.trusts(Some(self)).is_empty()
    }

    /// Whether its firings take items from a work source.
    pub fn takes_work(&self, agent: &Agent) -> bool {
        self.work_source.is_some() || agent.settings.work_source.is_some()
    }

    /// Where `enabled: false` is written, if it is.
    pub fn place_of_off(&self) -> Option<String> {
        let unknown = || "the config".to_owned();
        (!self.enabled).then(|| self.off_in_file.clone().unwrap_or_else(unknown))
    }

    /// Whether its `end_at` has passed. What others fire has no end.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.trigger.driver() == Driver::Clock && self.timing.end_at.is_some_and(|end| end <= now)
    }

    /// With everything that has a default left at it.
    pub fn new(agent: &AgentName, name: ScheduleName, trigger: TriggerConfig) -> Self {
        Self {
            id: ScheduleId::of(agent, &name),
            name,
            adopts: None,
            enabled: true,
            off_in_file: None,
            trigger,
            timing: Timing::default(),
            zone: Zone::UTC,
            filter: Filter::default(),
            prompt: None,
            work_source: None,
            when_command: None,
            output_to_file: false,
            isolation: IsolationRules::default(),
            permissions: None,
            retry: Retry::default(),
            timeout: Timeout::ATTEMPT,
            idle_timeout: Timeout::IDLE,
            sandbox: None,
            breaker: Breaker::default(),
            trust: None,
        }
    }
}

impl Roster {
    /// With everything that has a default left at it.
    pub fn of(agents: Vec<Agent>) -> Self {
        Self { agents, ..Self::default() }
    }

    /// What a job of the agent needs of its provider; none for an agent that has none.
    pub fn slot(&self, agent: &Agent) -> Option<ProviderSlot> {
        agent.provider().map(|provider| self.seat_at(provider))
    }

    pub fn seat_at(&self, provider: &str) -> ProviderSlot {
        let limits = self.providers.get(provider).cloned().unwrap_or_default();
        ProviderSlot { provider: provider.to_owned(), limits }
    }

    pub fn zone(&self) -> &TimeZone {
        self.zone.time_zone()
    }

    pub fn agent(&self, name: &AgentName) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.name == *name)
    }

    pub fn schedule(&self, id: ScheduleId) -> Option<(&Agent, &Schedule)> {
        self.agents.iter().find_map(|agent| {
            let schedule = agent.schedules.iter().find(|schedule| schedule.id == id)?;
            Some((agent, schedule))
        })
    }

    /// The agent that another one means by a name: inside its own fleet first, then from the root.
    pub fn agent_near(&self, from: &AgentName, name: &str) -> Option<&Agent> {
        let nearby = from.as_str().rsplit_once('.').map(|(fleet, _)| format!("{fleet}.{name}"));
        let called = |name: &str| self.agents.iter().find(|agent| agent.name.as_str() == name);
        nearby.and_then(|name| called(&name)).or_else(|| called(name))
    }

    /// `SCHEDULE` of the same agent, or `AGENT/SCHEDULE`.
    pub fn schedule_near(&self, from: &AgentName, name: &str) -> Option<&Schedule> {
        let of = |agent: &'_ Agent, name: &str| {
            agent.schedules.iter().position(|known| known.name.as_str() == name)
        };
        let own = self.agent(from).and_then(|agent| agent.schedules.get(of(agent, name)?));
        own.or_else(|| {
            let (agent, schedule) = name.split_once('/')?;
            let agent = self.agent_near(from, agent)?;
            agent.schedules.get(of(agent, schedule)?)
        })
    }

    /// Whether anybody's words are not trusted by anybody.
    pub fn asks_for_trust(&self) -> bool {
        let asks = |agent: &Agent| {
            agent.settings.trust.is_some() || agent.schedules.iter().any(|schedule| schedule.trust.is_some())
        };
        self.agents.iter().any(asks)
    }

    /// Whether no limit is set for anybody.
    pub fn keeps_everything(&self) -> bool {
        let keeps = |agent: &Agent| agent.settings.retention.is_none_or(|retention| retention.is_unlimited());
        self.retention.is_unlimited() && self.agents.iter().all(keeps)
    }

    /// The agent's own, or for one that has left the fleet, that of the root file.
    pub fn retention(&self, name: &AgentName) -> Retention {
        self.agent(name).map_or(self.retention, |agent| agent.settings.retention.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The strict sandbox lets it do its work and nothing else, whatever its own would allow; what is stricter stays.
    #[test]
    fn strangers_are_held_by_more() {
        use crate::sandbox::{Credentials, Reaches, SandboxKind};
        use crate::shape::Runtime;
        let held = |runtime: Runtime, sandbox: &str, trust: &str| {
            let mut agent = Agent::new("a".parse().unwrap());
            agent.settings.runtime = Some(runtime);
            agent.settings.sandbox = serde_json::from_str(sandbox).unwrap();
            agent.settings.trust = serde_json::from_str(trust).unwrap();
            agent.sandbox(None, true)
        };
        let open = r#"{"kind":"landlock","network":"on","write":["/srv"],"memory":"1GB"}"#;
        for (runtime, sandbox, credentials) in [
            (Runtime::Claude, "null", Credentials::Outside),
            (Runtime::Claude, open, Credentials::Outside),
            (Runtime::Command, open, Credentials::Inside),
        ] {
            let asked = held(runtime, sandbox, "null");
            assert_eq!(
                (asked.kind, asked.network, asked.credentials),
                (SandboxKind::Bubblewrap, Reaches::Nobody, credentials)
            );
            assert_eq!((asked.write.len(), asked.caps.memory.is_some()), (0, sandbox == open));
        }
        // What it leaves open is not for the agent's own sandbox to open.
        let more = r#"{"strangers":"sandbox","sandbox":{"kind":"bubblewrap","memory":"2GB"}}"#;
        let asked = held(Runtime::Claude, r#"{"kind":"bubblewrap","network":"on","read":["/srv"]}"#, more);
        assert_eq!(
            (asked.network, asked.read.len(), asked.credentials),
            (Reaches::Nobody, 0, Credentials::Outside)
        );
        let own = r#"{"strangers":"sandbox","sandbox":{"kind":"landlock","network":"off"}}"#;
        assert_eq!(held(Runtime::Claude, "null", own).kind, SandboxKind::Landlock);
        assert_eq!(held(Runtime::Claude, "\"bubblewrap\"", own).kind, SandboxKind::Bubblewrap);
    }

    /// What the agent does not say is closed, and its schedule can only close more; where the agent has no sandbox, its
    /// schedule decides.
    #[test]
    fn a_schedule_opens_nothing() {
        use crate::sandbox::{Reaches, SandboxKind};
        let held = |agent: &str, schedule: &str| {
            let mut own = Agent::new("a".parse().unwrap());
            own.settings.sandbox = serde_json::from_str(agent).unwrap();
            let mut more = Schedule::new(&own.name, "s".parse().unwrap(), TriggerConfig::Manual {});
            more.sandbox = serde_json::from_str(schedule).unwrap();
            own.schedules = vec![more];
            let asked = own.sandbox(Some(&"s".parse().unwrap()), false);
            (asked.kind, asked.network, asked.write, asked.read)
        };
        let open = r#"{"kind":"bubblewrap","network":"on","write":["/srv"],"read":["/books"]}"#;
        let (bubblewrap, paths) = (SandboxKind::Bubblewrap, |path: &str| vec![path.to_owned()]);
        let opened = (bubblewrap, Reaches::Everybody, paths("/srv"), paths("/books"));
        let closed = (bubblewrap, Reaches::Nobody, Vec::new(), Vec::new());
        for (agent, schedule, expected) in [
            (r#""bubblewrap""#, open, &closed),
            (r#""landlock""#, open, &closed),
            (open, r#""bubblewrap""#, &opened),
            (open, open, &opened),
            (open, "null", &opened),
            (open, r#"{"kind":"bubblewrap","network":"off","write":[],"read":[]}"#, &closed),
            ("null", open, &opened),
            (r#""none""#, open, &opened),
            (r#"{"kind":"none","pids":50}"#, open, &opened),
        ] {
            assert_eq!(&held(agent, schedule), expected, "{agent} and {schedule}");
        }
    }

    /// Both keys are the agent's, and each says what the other does not.
    #[test]
    fn a_container_has_two_keys() {
        let mut agent = Agent::new("a".parse().unwrap());
        agent.settings.docker = serde_json::from_str(r#"{"enabled":true,"image":"i"}"#).unwrap();
        agent.settings.sandbox = serde_json::from_str(r#"{"kind":"docker","read":["/books"]}"#).unwrap();
        assert_eq!(agent.sandbox(None, false).read, ["/books"]);
    }

    /// A container is the stricter one, so it stays, and loses what it was given of the machine.
    #[test]
    fn strangers_in_a_container() {
        use crate::sandbox::{Reaches, SandboxKind};
        let mut agent = Agent::new("a".parse().unwrap());
        agent.settings.runtime = Some(crate::shape::Runtime::Command);
        let docker = r#"{"enabled":true,"image":"i","network":"host","volumes":["/data:/data"]}"#;
        agent.settings.docker = serde_json::from_str(docker).unwrap();
        let own = agent.sandbox(None, false);
        assert_eq!((own.kind, own.container.volumes.len()), (SandboxKind::Docker, 1));
        assert_eq!((own.network, own.container.host_network), (Reaches::Everybody, true));
        let strict = agent.sandbox(None, true);
        assert_eq!((strict.kind, strict.container.volumes.len()), (SandboxKind::Docker, 0));
        assert_eq!((strict.network, strict.container.image.as_deref()), (Reaches::Nobody, Some("i")));
    }

    #[test]
    fn names_are_looked_for_nearby_first() {
        let agent = |name: &str, schedules: &[&str]| {
            let mut agent = Agent::new(name.parse().unwrap());
            let schedule =
                |of: &&str| Schedule::new(&agent.name, of.parse().unwrap(), TriggerConfig::Manual {});
            agent.schedules = schedules.iter().map(schedule).collect();
            agent
        };
        let roster = Roster::of(vec![
            agent("coder", &["s", "odd/name"]),
            agent("web.coder", &["s", "t"]),
            agent("web.tester", &["s"]),
        ]);
        for (from, name, expected) in [
            ("coder", "coder", Some("coder")),
            ("web.tester", "coder", Some("web.coder")),
            ("coder", "web.coder", Some("web.coder")),
            ("coder", "tester", None),
        ] {
            let found = roster.agent_near(&from.parse().unwrap(), name);
            assert_eq!(found.map(|agent| agent.name.as_str()), expected, "{from} {name}");
        }
        for (from, name, expected) in [
            ("coder", "s", Some("coder/s")),
            ("coder", "odd/name", Some("coder/odd/name")),
            ("web.tester", "coder/s", Some("web.coder/s")),
            ("web.tester", "t", None),
            ("coder", "web.tester/s", Some("web.tester/s")),
        ] {
            let found = roster
                .schedule_near(&from.parse().unwrap(), name)
                .and_then(|found| roster.schedule(found.id));
            let found = found.map(|(agent, schedule)| format!("{}/{}", agent.name, schedule.name));
            assert_eq!(found.as_deref(), expected, "{from} {name}");
        }
    }
}

//! The roster: the fleet as it runs, resolved, merged and checked. The config as it is written is in [`crate::shape`].

mod agents;
mod budget;
mod fallback;
mod followup;
mod former;
mod index;
mod listen;
mod program;
mod record;
mod unenforceable;
mod web_chat;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use indexmap::IndexMap;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::ask::ASK_TIMEOUT;
use crate::breaker::Breaker;
use crate::budget::{Budget, UsageReporting};
use crate::chat::settings::AgentChat;
use crate::filter::Filter;
use crate::followup::Followups;
use crate::hook::Hooks;
use crate::id::{AgentName, ScheduleId, ScheduleName};
use crate::job::Job;
use crate::label::NodeLabel;
use crate::lease::{LeaseTimes, OnLostLease};
use crate::mcp::McpServer;
use crate::notification::{AgentNotify, NotificationSettings};
use crate::permission::{PermissionMode, Permissions, ToolAccess};
use crate::policy::{Retry, Timeout, Timing, Zone};
use crate::price::Prices;
use crate::provider::{LimitedProvider, Provider};
use crate::retention::Retention;
use crate::runtime::{ClaudeSettings, Runtime};
use crate::sandbox::{ContainerSandbox, RequestedSandbox, SandboxRules};
use crate::server::ServerConfig;
use crate::session::{Session, SessionPolicy};
use crate::shape::WebChatConfig;
use crate::traces::TracesConfig;
use crate::trigger::{Driver, FiringContext, TriggerConfig};
use crate::trust::{self, Trust};
use crate::web_chat::is_web_chat;
use crate::work::WorkItemId;
use crate::work_source::ConfiguredSource;
use crate::workspace::{IsolationKind, IsolationRules};
pub use agents::AgentList;
pub use former::FormerName;
pub use index::{CoupledAgents, RosterIndex};
pub use listen::{EventListener, end_status};
pub use program::Program;
pub use unenforceable::Unenforceable;
pub use web_chat::WebChat;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Roster {
    /// `fleet.name` of the root file.
    pub name: Option<String>,
    /// Agents in the order of the files: those of the root file first, then those of each sub-fleet.
    pub agents: AgentList,
    /// Address of the database, `postgres://…`; none means a file in the state folder.
    pub store: Option<String>,
    /// Times of the leases on a shared database.
    pub leases: LeaseTimes,
    /// Retention of the root file. Each agent has its own retention, whose unset keys are taken from here.
    pub retention: Retention,
    /// Prices of the root file.
    pub prices: Prices,
    /// Budget of all agents together.
    pub budget: Budget,
    /// Maximum number of running jobs of the fleet, on all nodes; none means no limit.
    pub max_concurrent: Option<u32>,
    /// Maximum number of running jobs of this node; none means no limit. It is an option of the start, and not in the
    /// config.
    pub capacity: Option<u32>,
    /// Time zone of budget days and months.
    pub zone: Zone,
    /// Shared providers by name. Providers that are not listed have no limits.
    pub providers: IndexMap<String, Provider>,
    pub server: ServerConfig,
    /// Traces of the root file; none if it does not configure them.
    pub traces: Option<TracesConfig>,
    /// Targets and rules of notifications.
    pub notifications: NotificationSettings,
    /// Passwords in the URLs of all config files, whatever key contains them. They are masked like other secrets.
    pub url_passwords: Vec<String>,
    /// True if the config has errors. Agents and schedules of the config can then be missing here.
    pub has_errors: bool,
    pub index: RosterIndex,
}

/// An agent: typed, with the defaults applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    pub name: AgentName,
    /// Name for people, in the input of hooks.
    pub display_name: String,
    pub description: Option<String>,
    pub schedules: Vec<Schedule>,
    /// Working directory of its jobs. A job with isolation works in its own worktree or clone of this directory's
    /// repository instead.
    pub directory: PathBuf,
    /// Isolation of its jobs without a schedule.
    pub isolation: IsolationRules,
    /// Its program, with model, account and environment.
    pub program: Program,
    /// Programs for jobs that start while the provider is used up, in order of preference.
    pub fallbacks: Vec<Program>,
    /// True if its processes inherit the whole environment of the daemon, as agents of a `herdctl.yaml` without
    /// `pass_env` do.
    pub inherits_environment: bool,
    /// Names of variables in the daemon's environment that its processes get.
    pub pass_env: Vec<String>,
    pub system_prompt: Option<String>,
    /// Prompt of a job whose schedule has none.
    pub default_prompt: Option<String>,
    /// Maximum number of turns of a job; none means that the program decides.
    pub max_turns: Option<u32>,
    pub session: Session,
    pub tools: ToolAccess,
    /// Time after which an unanswered ask is denied.
    pub ask_timeout: SignedDuration,
    /// True if its jobs get the tools of the fleet even if the agent uses neither asks nor follow-ups.
    pub fleet_tools: bool,
    /// MCP servers by name.
    pub mcp_servers: IndexMap<String, McpServer>,
    /// Settings that only Claude Code has.
    pub claude: ClaudeSettings,
    /// Restrictions on its processes.
    pub sandbox_rules: Option<SandboxRules>,
    /// Container of its processes, in addition to `sandbox_rules`.
    pub container: Option<ContainerSandbox>,
    /// Environment variables of its processes if they run in a container.
    pub container_env: IndexMap<String, String>,
    /// Source of its work items. Schedules that inherit the source contain a copy.
    pub work_source: Option<ConfiguredSource>,
    /// Actions after the end of a job.
    pub hooks: Hooks,
    /// File in the working directory in which the agent leaves metadata for its hooks.
    pub metadata_file: String,
    /// Rules for follow-ups; without rules there are no follow-ups.
    pub followups: Option<Followups>,
    /// Trusted authors of text in its prompts; without rules everybody is trusted.
    pub trust: Option<Trust>,
    /// Maximum number of running jobs of the agent, on all nodes, whatever started them.
    pub max_concurrent: u32,
    /// Retry policy of jobs without a schedule.
    pub retry: Retry,
    /// Limit of one attempt of a job without a schedule.
    pub timeout: Timeout,
    /// Limit of an attempt's time without output, for jobs without a schedule.
    pub idle_timeout: Timeout,
    /// Action if the node cannot renew the lease of a job on a shared database.
    pub on_lost_lease: OnLostLease,
    /// Limits for its finished jobs.
    pub retention: Retention,
    /// Labels of the nodes that may run its jobs; empty means every node.
    pub runs_on: Vec<NodeLabel>,
    /// Spend limits of the agent.
    pub budget: Budget,
    /// Rules that report its incidents, in addition to those of the root file.
    pub notify: AgentNotify,
    /// Chat settings; none if people cannot talk to it in a chat.
    pub chat: Option<AgentChat>,
    /// Settings of web chat; none if it is off.
    pub web_chat: Option<WebChat>,
}

/// Default of `instances.max_concurrent`.
pub const MAX_CONCURRENT_JOBS: u32 = 1;

/// Default file for metadata.
pub const METADATA_FILE: &str = "metadata.json";

/// The restrictions of a job in addition to those of its agent.
#[derive(Debug, Clone, PartialEq)]
pub enum JobRestrictions<'a> {
    /// No further restrictions: the job has no schedule.
    Agent,
    Schedule(&'a Schedule),
    /// Its schedule is no longer in the config, so the restrictions of the schedule are not known, and nothing counts
    /// as allowed.
    Removed(ScheduleName),
}

/// Name of cowhand's own MCP server among an agent's servers; its tools are `mcp__cowhand__…`.
pub const OWN_SERVER: &str = "cowhand";

#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub id: ScheduleId,
    pub name: ScheduleName,
    /// Former name of the schedule.
    pub adopts: Option<FormerName>,
    /// False for `enabled: false` in the file. `disable` by a person is recorded in the store.
    pub enabled: bool,
    /// Location of `enabled: false`, as `FILE:LINE`.
    pub disabled_location: Option<String>,
    pub trigger: TriggerConfig,
    pub timing: Timing,
    /// Time zone of the cron expression, the active hours and the excluded dates.
    pub zone: Zone,
    /// Conditions of a firing. A firing that does not meet them is recorded as skipped. The box keeps the type
    /// `Schedule` small, as the boxes below do.
    pub filter: Option<Box<Filter>>,
    pub prompt: Option<String>,
    /// Source of its work items, its own or inherited from the agent; none if it takes no items.
    pub work_source: Option<Box<ConfiguredSource>>,
    /// Command that decides before each firing whether it runs.
    pub when_command: Option<Vec<String>>,
    /// True if the output of its jobs is also stored as plain text.
    pub output_to_file: bool,
    /// Isolation of its jobs. Unset keys are already taken from the agent.
    pub isolation: IsolationRules,
    /// Permissions in addition to those of the agent.
    pub permissions: Option<Box<Permissions>>,
    /// Retry policy. Schedules with the default policy share one value.
    pub retry: Arc<Retry>,
    /// Limit of one attempt.
    pub timeout: Timeout,
    /// Limit of an attempt's time without output.
    pub idle_timeout: Timeout,
    /// Restrictions in addition to the agent's sandbox.
    pub sandbox_rules: Option<Box<SandboxRules>>,
    /// Conditions under which it pauses itself.
    pub breaker: Breaker,
    /// Trust rules in addition to those of the agent.
    pub trust: Option<Box<Trust>>,
    /// Rules that report its incidents, instead of those of the agent; none means those of the agent.
    pub notify: Option<Box<AgentNotify>>,
}

impl Agent {
    pub const fn runtime(&self) -> Runtime {
        self.program.runtime
    }

    /// Checks whether the agent has a `work_source` from which none of its schedules takes items.
    pub fn has_unused_work_source(&self) -> bool {
        let Some(source) = &self.work_source else { return false };
        let takes = |schedule: &Schedule| schedule.work_source.as_deref() == Some(source);
        !self.schedules.iter().any(takes)
    }

    /// Returns the schedule with this name; none if there is no name, or if the schedule is no longer in the config.
    pub fn schedule(&self, name: Option<&ScheduleName>) -> Option<&Schedule> {
        self.all_schedules().find(|own| Some(&own.name) == name)
    }

    /// Returns the schedules of the config, and then the schedule of web chat.
    pub fn all_schedules(&self) -> impl Iterator<Item = &Schedule> {
        self.schedules.iter().chain(self.web_chat.iter().map(|chat| &*chat.schedule))
    }

    /// Returns the configured provider, else the default provider of its runtime; none if neither exists.
    pub fn provider(&self) -> Option<&str> {
        self.program.provider.as_deref().or_else(|| self.runtime().provider())
    }

    /// Returns when its program reports tokens and dollars: with each answer of the model, or only at the end.
    pub fn usage_reporting(&self) -> UsageReporting {
        use Runtime::{Acp, Claude, Codex, Command, Gemini, Opencode};
        match self.program.known_runtime() {
            Codex | Gemini => UsageReporting::TokensContinuous,
            Opencode if self.runtime() != Acp => UsageReporting::Continuous,
            Claude if self.runtime() != Acp => UsageReporting::CostAtEnd,
            Command => UsageReporting::CostAtEnd,
            Claude | Opencode | Acp => UsageReporting::AtEnd,
        }
    }

    /// Checks whether its program can send requests to the credential proxy instead of its provider, so that the
    /// program does not need the provider's key.
    pub fn can_leave_keys_outside(&self) -> bool {
        use Runtime::{Acp, Claude, Codex, Command, Gemini, Opencode};
        match self.runtime() {
            Claude | Codex | Gemini | Opencode => true,
            Acp => self.program.known_runtime() == Gemini,
            Command => false,
        }
    }

    /// Checks whether its jobs have to communicate with the fleet while they run.
    pub fn needs_job_channel(&self) -> bool {
        self.tools.mode == PermissionMode::Ask
            || self.followups.as_ref().is_some_and(|followups| followups.max.is_some())
            || self.fleet_tools
    }

    /// Returns the session key of a job; none if the job starts a new session. Jobs with the same key continue one
    /// session, one after the other. Confined jobs have their own sessions, so that text of strangers does not get into
    /// the sessions of other jobs.
    pub fn session_key(
        &self,
        item: Option<&WorkItemId>,
        chat: Option<&str>,
        confined: bool,
    ) -> Option<String> {
        // A command has no session.
        if self.runtime() == Runtime::Command {
            return None;
        }
        let key = self.session_of(chat).policy.key(item, chat)?;
        Some(if confined { format!("confined {key}") } else { key })
    }

    /// Returns the session settings of a job. `chat` is its conversation, if it belongs to one. If the agent has
    /// settings for the platform of the conversation, or if it is a conversation of web chat, its jobs there continue one
    /// session for each conversation. The session policy of the agent does not matter then.
    pub fn session_of(&self, chat: Option<&str>) -> Session {
        if chat.is_some_and(is_web_chat) {
            let expires = self.web_chat.as_ref().map_or(self.session.expires, |chat| chat.session_expires);
            return Session { policy: SessionPolicy::PerChat, expires };
        }
        let platform = chat.and_then(|chat| chat.split_once(' ')?.0.parse().ok());
        let settings = platform.and_then(|platform| self.chat.as_ref()?.on(platform));
        settings.map_or(self.session, |settings| Session {
            policy: SessionPolicy::PerChat,
            expires: settings.session_expires,
        })
    }

    /// Returns the session key of one of its jobs.
    pub fn session_key_of(&self, job: &Job) -> Option<String> {
        self.session_key(job.work_item().map(|item| &item.id), job.chat(), job.confined().is_some())
    }

    /// Returns the trust rules for the authors of text in the prompts of a schedule's jobs. The strictest of
    /// their decisions counts.
    pub fn trusts<'a>(&'a self, schedule: Option<&'a Schedule>) -> Vec<&'a Trust> {
        let own = [self.trust.as_ref(), schedule.and_then(|schedule| schedule.trust.as_deref())];
        own.into_iter().flatten().collect()
    }

    /// Returns the sandbox of a job, from its agent and schedule, and from the strict sandbox if the job is confined.
    pub fn sandbox(&self, schedule: Option<&ScheduleName>, confined: bool) -> RequestedSandbox {
        let schedule = self.schedule(schedule);
        let of_container = self.container.as_ref().map(|container| container.rules.clone());
        let own = of_container.into_iter().chain(self.sandbox_rules.clone()).reduce(SandboxRules::and);
        let of_schedule = schedule.and_then(|schedule| schedule.sandbox_rules.as_deref().cloned());
        // Keys that the agent leaves unset are closed, and the following rules do not open them.
        let all = own.map(SandboxRules::closed).into_iter().chain(of_schedule);
        let all = all.chain(confined.then(|| self.strict(schedule)));
        let mut asked = all.reduce(SandboxRules::and).unwrap_or_default().request();
        if let Some(own) = &self.container {
            asked.container = own.container.over(asked.container);
        }
        if confined {
            // Volumes are folders of the machine, which the rules of the strict sandbox cannot name.
            asked.container.volumes.clear();
        }
        asked
    }

    /// Returns the sandboxes of jobs without a schedule and of jobs of each schedule. Where trust rules confine jobs,
    /// the sandboxes of confined jobs are included.
    pub fn sandboxes(&self) -> impl Iterator<Item = RequestedSandbox> {
        let schedules = self.schedules.iter().map(Some);
        [None].into_iter().chain(schedules).flat_map(|schedule| {
            let confines = self.trusts(schedule).into_iter().any(Trust::confines);
            let name = schedule.map(|schedule| &schedule.name);
            let strict = confines.then(|| self.sandbox(name, true));
            [self.sandbox(name, false)].into_iter().chain(strict)
        })
    }

    /// Returns the rules of the strict sandbox: the configured rules, else the default rules.
    fn strict(&self, schedule: Option<&Schedule>) -> SandboxRules {
        let keys = self.program.known_runtime().provider().is_some();
        let asked = self.trusts(schedule).into_iter().filter_map(|trust| trust.strict(keys));
        asked.reduce(SandboxRules::and).unwrap_or_else(|| trust::strict(keys))
    }

    /// Returns the restrictions of a job that its schedule adds.
    pub fn restrictions(&self, job: &Job) -> JobRestrictions<'_> {
        match job.schedule() {
            None => JobRestrictions::Agent,
            Some(name) => self
                .schedule(Some(name))
                .map_or_else(|| JobRestrictions::Removed(name.clone()), JobRestrictions::Schedule),
        }
    }

    /// Returns the isolation of a job of this schedule. Without a known schedule, it is the isolation of the agent.
    pub fn isolation_of(&self, schedule: Option<&ScheduleName>) -> IsolationRules {
        self.schedule(schedule).map_or(&self.isolation, |schedule| &schedule.isolation).clone()
    }

    /// Returns the isolation of jobs without a schedule and of jobs of each schedule, with the schedule. Jobs that
    /// share the agent's directory are left out.
    pub fn isolations(&self) -> impl Iterator<Item = (Option<&ScheduleName>, &IsolationRules)> {
        let of_schedules = self.schedules.iter().map(|schedule| (Some(&schedule.name), &schedule.isolation));
        std::iter::once((None, &self.isolation))
            .chain(of_schedules)
            .filter(|(_, rules)| rules.kind != IsolationKind::Shared)
    }

    /// Creates an agent with default values.
    pub fn new(name: AgentName) -> Self {
        let mut agent = Self {
            display_name: name.to_string(),
            name,
            description: None,
            schedules: Vec::new(),
            directory: PathBuf::from("."),
            isolation: IsolationRules::default(),
            program: Program::default(),
            fallbacks: Vec::new(),
            inherits_environment: false,
            pass_env: Vec::new(),
            system_prompt: None,
            default_prompt: None,
            max_turns: None,
            session: Session::default(),
            tools: ToolAccess::default(),
            ask_timeout: ASK_TIMEOUT,
            fleet_tools: false,
            mcp_servers: IndexMap::new(),
            claude: ClaudeSettings::default(),
            sandbox_rules: None,
            container: None,
            container_env: IndexMap::new(),
            work_source: None,
            hooks: Hooks::default(),
            metadata_file: METADATA_FILE.to_owned(),
            followups: None,
            trust: None,
            max_concurrent: MAX_CONCURRENT_JOBS,
            runs_on: Vec::new(),
            retry: Retry::default(),
            timeout: Timeout::ATTEMPT,
            idle_timeout: Timeout::IDLE,
            on_lost_lease: OnLostLease::default(),
            retention: Retention::default(),
            budget: Budget::default(),
            notify: AgentNotify::default(),
            chat: None,
            web_chat: None,
        };
        agent.web_chat = WebChat::of(&agent, &WebChatConfig::default());
        agent
    }
}

impl<'a> JobRestrictions<'a> {
    pub fn schedule(&self) -> Option<&'a Schedule> {
        match self {
            Self::Schedule(schedule) => Some(schedule),
            Self::Agent | Self::Removed(_) => None,
        }
    }
}

impl Schedule {
    /// Checks whether its firings have to be prepared: for `when_command`, a work source or trust rules.
    pub fn needs_preparing(&self, agent: &Agent) -> bool {
        self.when_command.is_some() || self.takes_work() || !agent.trusts(Some(self)).is_empty()
    }

    /// Checks whether a firing meets the conditions of the schedule.
    pub fn passes_filter(&self, context: &FiringContext) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.passes(context))
    }

    /// Checks whether its firings take items from a work source.
    pub const fn takes_work(&self) -> bool {
        self.work_source.is_some()
    }

    /// Returns the location of `enabled: false`, or `the config` if the location is not known; none if the schedule is
    /// enabled.
    pub fn disabled_in_file(&self) -> Option<String> {
        let unknown = || "the config".to_owned();
        (!self.enabled).then(|| self.disabled_location.clone().unwrap_or_else(unknown))
    }

    /// Returns the time at which a delay with this `run_at` is due: not before its `start_at`.
    pub(crate) fn delay_due(&self, run_at: Timestamp) -> Timestamp {
        self.timing.start_at.map_or(run_at, |start| run_at.max(start))
    }

    /// Checks whether its `end_at` has passed. Only schedules that the clock fires have an end.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.trigger.driver() == Driver::Clock && self.timing.end_at.is_some_and(|end| end <= now)
    }

    /// Creates a schedule with default values.
    pub fn new(agent: &AgentName, name: ScheduleName, trigger: TriggerConfig) -> Self {
        Self {
            id: ScheduleId::of(agent, &name),
            name,
            adopts: None,
            enabled: true,
            disabled_location: None,
            trigger,
            timing: Timing::default(),
            zone: Zone::UTC,
            filter: None,
            prompt: None,
            work_source: None,
            when_command: None,
            output_to_file: false,
            isolation: IsolationRules::default(),
            permissions: None,
            retry: Retry::shared_default(),
            timeout: Timeout::ATTEMPT,
            idle_timeout: Timeout::IDLE,
            sandbox_rules: None,
            breaker: Breaker::default(),
            trust: None,
            notify: None,
        }
    }
}

impl Roster {
    /// Creates a roster of these agents, with default values for everything else.
    pub fn of(agents: Vec<Agent>) -> Self {
        Self { agents: agents.into(), ..Self::default() }
    }

    /// Returns the provider of the agent with its limits; none if the agent has no provider.
    pub fn slot(&self, agent: &Agent) -> Option<LimitedProvider> {
        agent.provider().map(|provider| self.slot_at(provider))
    }

    pub fn slot_at(&self, provider: &str) -> LimitedProvider {
        let limits = self.providers.get(provider).cloned().unwrap_or_default();
        LimitedProvider { provider: provider.to_owned(), limits, zone: self.zone().clone() }
    }

    pub fn zone(&self) -> &TimeZone {
        self.zone.time_zone()
    }

    /// Returns the names of the variables with the tokens and keys that the chats of all agents need.
    pub fn chat_variables(&self) -> BTreeSet<&str> {
        let chats = self.agents.iter().filter_map(|agent| agent.chat.as_ref());
        chats.flat_map(AgentChat::secret_variables).collect()
    }

    /// Returns the agent that the agent `from` means by a name. The name is looked up relative to the fleet of `from`
    /// first, and then relative to the root fleet.
    pub fn agent_near(&self, from: &AgentName, name: &str) -> Option<&Agent> {
        let nearby = from.as_str().rsplit_once('.').map(|(fleet, _)| format!("{fleet}.{name}"));
        let called = |name: &str| self.agents.iter().find(|agent| agent.name.as_str() == name);
        nearby.and_then(|name| called(&name)).or_else(|| called(name))
    }

    /// Finds `SCHEDULE` of the agent `from`, or `AGENT/SCHEDULE`.
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

    /// Checks whether any agent or schedule has `trust` rules.
    pub fn has_trust_rules(&self) -> bool {
        let asks = |agent: &Agent| {
            agent.trust.is_some() || agent.schedules.iter().any(|schedule| schedule.trust.is_some())
        };
        self.agents.iter().any(asks)
    }

    /// Checks whether there is no retention limit at all.
    pub fn keeps_everything(&self) -> bool {
        let keeps = |agent: &Agent| agent.retention.is_unlimited();
        self.retention.is_unlimited() && self.agents.iter().all(keeps)
    }

    /// Returns the retention of the agent, or the retention of the root file if the agent is no longer in the fleet.
    pub fn retention(&self, name: &AgentName) -> Retention {
        self.agent(name).map_or(self.retention, |agent| agent.retention)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Sandbox;

    fn rules(sandbox: &str) -> Option<SandboxRules> {
        serde_json::from_str::<Option<Sandbox>>(sandbox).unwrap().map(|sandbox| sandbox.rules())
    }

    fn configured(config: &str) -> Agent {
        Agent::from_config("a".parse().unwrap(), serde_json::from_str(config).unwrap())
    }

    /// The strict sandbox allows only what the work needs, even if the agent's own sandbox allows more. Stricter
    /// rules of the agent's own sandbox also apply.
    #[test]
    fn jobs_of_strangers_run_in_the_strict_sandbox() {
        use crate::sandbox::{Credentials, NetworkAccess, SandboxKind};
        let held = |runtime: Runtime, sandbox: &str, trust: &str| {
            let mut agent = Agent::new("a".parse().unwrap());
            agent.program.runtime = runtime;
            agent.sandbox_rules = rules(sandbox);
            agent.trust = serde_json::from_str(trust).unwrap();
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
                (SandboxKind::Bubblewrap, NetworkAccess::None, credentials)
            );
            assert_eq!((asked.write.len(), asked.caps.memory.is_some()), (0, sandbox == open));
        }
        // The agent's own sandbox does not open keys that the strict sandbox leaves unset.
        let more = r#"{"strangers":"sandbox","sandbox":{"kind":"bubblewrap","memory":"2GB"}}"#;
        let asked = held(Runtime::Claude, r#"{"kind":"bubblewrap","network":"on","read":["/srv"]}"#, more);
        assert_eq!(
            (asked.network, asked.read.len(), asked.credentials),
            (NetworkAccess::None, 0, Credentials::Outside)
        );
        let own = r#"{"strangers":"sandbox","sandbox":{"kind":"landlock","network":"off"}}"#;
        assert_eq!(held(Runtime::Claude, "null", own).kind, SandboxKind::Landlock);
        assert_eq!(held(Runtime::Claude, "\"bubblewrap\"", own).kind, SandboxKind::Bubblewrap);
    }

    /// Keys that the agent does not set are closed, and its schedule can only close more. If the agent has no sandbox,
    /// its schedule decides.
    #[test]
    fn a_schedule_can_only_narrow_the_sandbox_of_its_agent() {
        use crate::sandbox::{NetworkAccess, SandboxKind};
        let held = |agent: &str, schedule: &str| {
            let mut own = Agent::new("a".parse().unwrap());
            own.sandbox_rules = rules(agent);
            let mut more = Schedule::new(&own.name, "s".parse().unwrap(), TriggerConfig::Manual {});
            more.sandbox_rules = rules(schedule).map(Box::new);
            own.schedules = vec![more];
            let asked = own.sandbox(Some(&"s".parse().unwrap()), false);
            (asked.kind, asked.network, asked.write, asked.read)
        };
        let open = r#"{"kind":"bubblewrap","network":"on","write":["/srv"],"read":["/books"]}"#;
        let (bubblewrap, paths) = (SandboxKind::Bubblewrap, |path: &str| vec![path.to_owned()]);
        let opened = (bubblewrap, NetworkAccess::All, paths("/srv"), paths("/books"));
        let closed = (bubblewrap, NetworkAccess::None, Vec::new(), Vec::new());
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

    /// The keys `docker` and `sandbox` both apply to the agent, and their rules are combined.
    #[test]
    fn docker_and_sandbox_keys_of_an_agent_are_combined() {
        let agent = configured(
            r#"{"docker":{"enabled":true,"image":"i"},"sandbox":{"kind":"docker","read":["/books"]}}"#,
        );
        assert_eq!(agent.sandbox(None, false).read, ["/books"]);
    }

    /// A container is stricter than the strict sandbox, so confined jobs run in the container, without its volumes.
    #[test]
    fn the_strict_sandbox_keeps_a_container_without_volumes() {
        use crate::sandbox::{NetworkAccess, SandboxKind};
        let agent = configured(
            r#"{"runtime":"command",
                "docker":{"enabled":true,"image":"i","network":"host","volumes":["/data:/data"]}}"#,
        );
        let own = agent.sandbox(None, false);
        assert_eq!((own.kind, own.container.volumes.len()), (SandboxKind::Docker, 1));
        assert_eq!((own.network, own.container.host_network), (NetworkAccess::All, true));
        let strict = agent.sandbox(None, true);
        assert_eq!((strict.kind, strict.container.volumes.len()), (SandboxKind::Docker, 0));
        assert_eq!((strict.network, strict.container.image.as_deref()), (NetworkAccess::None, Some("i")));
    }

    /// Jobs of a chat for which the agent has settings share a session for each conversation. The session settings of
    /// the agent apply to its other jobs.
    #[test]
    fn jobs_of_a_chat_continue_the_session_of_their_conversation() {
        let agent = |session: &str| {
            configured(&format!(
                r#"{{"session":{session},"chat":{{"slack":{{"session_expiry_hours":3,"channels":[]}}}}}}"#
            ))
        };
        let item = "file-1".parse().unwrap();
        for (session, item, chat, confined, key, hours) in [
            ("{}", None, Some("slack C1"), false, Some("chat slack C1"), 3),
            ("{}", None, Some("slack C1/9.1"), false, Some("chat slack C1/9.1"), 3),
            ("{}", None, Some("slack C1"), true, Some("confined chat slack C1"), 3),
            ("{}", None, Some("discord 1"), false, None, 24),
            ("{}", None, None, false, None, 24),
            (
                r#"{"policy":"continue","expires":"5h"}"#,
                None,
                Some("slack C1"),
                false,
                Some("chat slack C1"),
                3,
            ),
            (r#"{"policy":"continue","expires":"5h"}"#, None, Some("discord 1"), false, Some("agent"), 5),
            (r#"{"policy":"continue","expires":"5h"}"#, None, None, false, Some("agent"), 5),
            (r#"{"policy":"per_item"}"#, Some(&item), None, false, Some("item file-1"), 24),
        ] {
            let agent = agent(session);
            assert_eq!(agent.session_key(item, chat, confined).as_deref(), key, "{session} {chat:?}");
            assert_eq!(
                agent.session_of(chat).expires,
                SignedDuration::from_hours(hours),
                "{session} {chat:?}"
            );
        }
        let mut command = agent("{}");
        command.program.runtime = Runtime::Command;
        assert_eq!(command.session_key(None, Some("slack C1"), false), None);
    }

    #[test]
    fn names_are_looked_up_in_the_own_fleet_first() {
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

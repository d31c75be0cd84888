//! Preparing the start of an agent for a job: argv, environment, directory and reader.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use cowhand_core::id::ScheduleName;
use cowhand_core::job::Job;
use cowhand_core::prompt;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::sandbox::SandboxKind;
use cowhand_core::work::WorkItem;

use super::runtime::description::{self, CommandLine, LaunchRequest, SessionRefusal};
use super::runtime::{Reader, SessionChoice};
use super::sandbox::SandboxError;
use super::start::StartSpec;

/// Time from the stop signal to the kill.
const STOP_GRACE_MS: u64 = 10_000;

/// Why the launch of an agent cannot be built, or cannot be started now. The message is for people.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Session(#[from] SessionRefusal),
    /// The runtime cannot enforce a setting.
    #[error("{0}")]
    Unenforceable(String),
    #[error("the work item of the job cannot be written to a file: {0}")]
    WorkItem(serde_json::Error),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

/// The command of an agent, with the environment and the private files that it needs.
#[derive(Debug, Clone)]
pub struct Launch {
    pub start: StartSpec,
    pub environment: Vec<(String, String)>,
    /// Private files: name and content.
    pub files: Vec<(String, String)>,
}

impl Launch {
    /// Builds the launch of an agent. `folder` will contain the private files. Returns an error if the runtime cannot use
    /// the session, if the runtime cannot enforce a setting, or if the work item cannot be written as JSON.
    pub fn of(
        agent: &Agent,
        job: &Job,
        session: &SessionChoice,
        variables: &FleetVariables<'_>,
        folder: &Path,
    ) -> Result<Self, LaunchError> {
        let runtime = agent.runtime();
        if let Some(refusal) = description::refusal(runtime, session) {
            return Err(refusal.into());
        }
        if let Some(unenforceable) = agent.unenforceable().into_iter().next() {
            return Err(LaunchError::Unenforceable(unenforceable.why));
        }
        let mut environment = environment(agent, job, variables);
        let item = job.work_item().map(|item| WorkItemFile::of(item, folder)).transpose()?;
        environment.extend(item.iter().flat_map(|item| item.variables.clone()));
        let request = LaunchRequest { agent, session, folder, environment: &environment };
        let CommandLine { argv, defaults, environment: own, mut files, stop_signal, reader, input } =
            (description::description(runtime).plan)(&request);
        files.extend(item.map(|item| item.file));
        for (name, value) in defaults {
            environment.entry(name.to_owned()).or_insert(value);
        }
        environment.extend(own);
        let directory = agent.directory.clone();
        let start = StartSpec {
            argv,
            directory,
            stop_signal,
            grace_ms: STOP_GRACE_MS,
            reader: Some(reader),
            input,
            limits: None,
            sandbox: None,
            program: None,
            rules: None,
        };
        Ok(Self { start, environment: environment.into_iter().collect(), files })
    }

    /// Returns the launch. Returns an error if the launch has a sandbox that is not available now.
    pub async fn ready(self) -> Result<Self, LaunchError> {
        if let Some(sandbox) = &self.start.sandbox {
            sandbox.ready().await?;
        }
        Ok(self)
    }
}

/// Returns the reader of an attempt that was started by a version of cowhand that did not store the reader.
pub fn reader(agent: &Agent) -> Reader {
    (description::description(agent.runtime()).reader)()
}

/// The variables that a fleet has for its agents.
#[derive(Debug)]
pub struct FleetVariables<'a> {
    /// The daemon's environment.
    pub own: HashMap<String, String>,
    /// The variables of `.env`.
    pub dotenv: &'a HashMap<String, String>,
    /// Names of the variables with the tokens and keys that the chats of the fleet need.
    pub of_chats: BTreeSet<&'a str>,
}

impl<'a> FleetVariables<'a> {
    /// Returns the variables with the environment of this process, without variables that are not valid UTF-8.
    pub fn of(roster: &'a Roster, dotenv: &'a HashMap<String, String>) -> Self {
        let own = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self { own: own.collect(), dotenv, of_chats: roster.chat_variables() }
    }

    /// Returns whether the agent does not get a variable, because only the chats of the fleet need it.
    fn withholds(&self, agent: &Agent, name: &str) -> bool {
        self.of_chats.contains(name)
            && !agent.pass_env.iter().any(|passed| passed == name)
            && !description::may_be_own_key(agent, name)
    }
}

/// Variables of the daemon's environment that every agent gets: paths, user, language, proxies and certificates. The
/// same names in lower case count too.
const INHERITED_VARIABLES: [&str; 16] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TERM",
    "TZ",
    "TMPDIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];
/// Prefixes of further variables that every agent gets: language and folders.
const INHERITED_PREFIXES: [&str; 2] = ["LC_", "XDG_"];

/// Returns whether an agent's processes get this variable of the daemon's environment. Every agent gets the variables
/// of `INHERITED_VARIABLES` and `INHERITED_PREFIXES`, the variables of all runtimes (`variable_prefixes`), and those
/// that its `pass_env` names. An agent with `inherits_environment` and without a sandbox also gets all other variables,
/// except those of cowhand.
pub fn is_passed_on(agent: &Agent, sandboxed: bool, name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let inherited = agent.inherits_environment && !sandboxed && !name.starts_with(OWN_VARIABLE_PREFIX);
    let named = agent.pass_env.iter().any(|passed| passed == name);
    inherited
        || named
        || INHERITED_VARIABLES.contains(&upper.as_str())
        || INHERITED_PREFIXES.iter().any(|start| name.starts_with(start))
        || description::is_variable_of_runtime(name)
}

/// Prefix of the variables that the daemon reads or sets. An agent that inherits the daemon's environment inherits such
/// a variable only if `pass_env` names it. In addition, the agent gets the variables that are set for its own job.
const OWN_VARIABLE_PREFIX: &str = "COWHAND_";

/// Builds the environment of an agent's process, or of a command that a hook of the agent runs. If several sources have
/// the same variable, the last of them in this order counts: `.env`, the daemon's variables that the agent gets, `env`
/// of the config, the variables of the job. The tokens and keys of chats are left out, unless `pass_env` or `env` names
/// them, or the agent's own program may need them.
pub fn environment(agent: &Agent, job: &Job, fleet: &FleetVariables<'_>) -> HashMap<String, String> {
    let sandboxed = agent.sandbox(job.schedule(), job.confined().is_some()).kind != SandboxKind::None;
    let own = fleet.own.iter().filter(|(name, _)| is_passed_on(agent, sandboxed, name));
    // The daemon's environment takes precedence over `.env`.
    let given = fleet.dotenv.iter().chain(own).filter(|(name, _)| !fleet.withholds(agent, name));
    let mut variables: HashMap<String, String> =
        given.map(|(name, value)| (name.clone(), value.clone())).collect();
    variables.extend(agent.program.env.clone());
    let schedule = job.schedule().map_or("", ScheduleName::as_str);
    variables.extend([
        ("COWHAND_JOB_ID".to_owned(), job.id().to_string()),
        ("COWHAND_AGENT".to_owned(), job.agent().to_string()),
        ("COWHAND_SCHEDULE".to_owned(), schedule.to_owned()),
        ("COWHAND_ATTEMPT".to_owned(), job.attempts().to_string()),
    ]);
    variables
}

/// The work item of a job, as variables and as a file.
struct WorkItemFile {
    variables: [(String, String); 4],
    /// Name and text of a file in the attempt's private folder, which every sandbox lets the agent read.
    file: (String, String),
}

/// Name of the file with the work item.
const WORK_ITEM_FILE: &str = "work-item.json";

impl WorkItemFile {
    fn of(item: &WorkItem, folder: &Path) -> Result<Self, LaunchError> {
        let file = folder.join(WORK_ITEM_FILE).to_string_lossy().into_owned();
        let text = serde_json::to_string_pretty(item).map_err(LaunchError::WorkItem)?;
        let variables = [
            ("COWHAND_WORK_ITEM", item.id.to_string()),
            ("COWHAND_WORK_ITEM_URL", prompt::one_line(&item.url)),
            ("COWHAND_WORK_ITEM_TITLE", prompt::one_line(&item.title)),
            ("COWHAND_WORK_ITEM_FILE", file),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        Ok(Self { variables, file: (WORK_ITEM_FILE.to_owned(), text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowhand_core::id::JobId;
    use cowhand_core::job::{NewJob, TriggerType};
    use cowhand_core::runtime::Runtime;
    use cowhand_core::sandbox::SandboxRules;

    fn new() -> NewJob {
        NewJob {
            agent: "coder".parse().unwrap(),
            trigger_type: TriggerType::Schedule,
            schedule: Some("nightly".parse().unwrap()),
            prompt: None,
            origin: None,
            work_item: None,
            chat: None,
            message: None,
            confined: None,
            not_before: None,
        }
    }

    fn job() -> Job {
        Job::new(JobId::new(jiff::civil::date(2026, 1, 5), 1), new(), jiff::Timestamp::UNIX_EPOCH)
    }

    /// Returns the launch in a fleet without variables.
    fn launch_in(agent: &Agent, job: &Job, session: &SessionChoice, folder: &str) -> Launch {
        let dotenv = HashMap::new();
        let variables = FleetVariables { own: HashMap::new(), dotenv: &dotenv, of_chats: BTreeSet::new() };
        Launch::of(agent, job, session, &variables, Path::new(folder)).unwrap()
    }

    #[test]
    fn only_named_variables_reach_the_agent() {
        let mut agent = Agent::new("coder".parse().unwrap());
        agent.program.env.insert("MODE".into(), "night".into());
        let own = [
            ("PATH", "/bin"),
            ("SECRET", "x"),
            ("https_proxy", "p"),
            ("ANTHROPIC_API_KEY", "k"),
            ("TOKEN", "real"),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let dotenv =
            HashMap::from([("TOKEN".to_owned(), "file".to_owned()), ("PATH".to_owned(), "/evil".to_owned())]);
        let variables = FleetVariables { own: own.into(), dotenv: &dotenv, of_chats: BTreeSet::new() };
        let launch =
            Launch::of(&agent, &job(), &SessionChoice::Fresh, &variables, Path::new("/attempt")).unwrap();
        let mut environment = launch.environment;
        environment.sort();
        let lines: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            lines,
            [
                "ANTHROPIC_API_KEY=k",
                "COWHAND_AGENT=coder",
                "COWHAND_ATTEMPT=0",
                "COWHAND_JOB_ID=job-2026-01-05-000001",
                "COWHAND_SCHEDULE=nightly",
                "DISABLE_AUTOUPDATER=1",
                "MODE=night",
                "PATH=/bin",
                "TOKEN=file",
                "https_proxy=p",
            ]
        );
    }

    /// A work item contains text of strangers. The text must not prevent the start of the agent or set another
    /// variable.
    #[test]
    fn a_work_item_is_passed_to_the_agent() {
        let agent = Agent::new("coder".parse().unwrap());
        let item = |title: &str| {
            let item = serde_json::json!({
                "id": "github-42", "source": "github", "external_id": "42", "title": title,
                "description": "Line\nby line.", "priority": "high", "labels": ["bug"], "metadata": {"author": "ann"},
                "url": "https://example.org/42", "created_at": "2026-01-05T09:00:00Z",
                "updated_at": "2026-01-05T09:00:00Z",
            });
            let item: WorkItem = serde_json::from_value(item).unwrap();
            Job::new(
                job().id().clone(),
                NewJob { work_item: Some(item), ..new() },
                jiff::Timestamp::UNIX_EPOCH,
            )
        };
        for (title, expected) in [
            ("Fix login", "Fix login".to_owned()),
            ("a\0b\nPATH=/evil\u{1b}[2J", "ab PATH=/evil".to_owned()),
            (&"x".repeat(500_000), "x".repeat(900)),
        ] {
            let job = item(title);
            let launch = launch_in(&agent, &job, &SessionChoice::Fresh, "/attempt/private");
            let variable = |name: &str| {
                let found = launch.environment.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| value.clone()).unwrap_or_default()
            };
            assert_eq!(variable("COWHAND_WORK_ITEM"), "github-42");
            assert_eq!(variable("COWHAND_WORK_ITEM_URL"), "https://example.org/42");
            assert!(variable("COWHAND_WORK_ITEM_TITLE").starts_with(&expected), "{title:.40}");
            assert!(variable("COWHAND_WORK_ITEM_TITLE").len() < 1_100);
            assert_eq!(variable("COWHAND_WORK_ITEM_FILE"), "/attempt/private/work-item.json");
            let (_, text) = launch.files.iter().find(|(name, _)| name == "work-item.json").unwrap();
            let read: WorkItem = serde_json::from_str(text).unwrap();
            assert_eq!(Some(&read), job.work_item());
        }
    }

    /// Returns the names of the variables that an agent inherits from a daemon with four variables.
    fn inherited(agent: &Agent) -> Vec<String> {
        inherited_of(agent, &["PATH", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "COWHAND_LOG"], &[], &[])
    }

    /// Returns the names of the variables that an agent gets from the daemon's environment and from `.env`.
    fn inherited_of(agent: &Agent, own: &[&str], dotenv: &[&str], of_chats: &[&str]) -> Vec<String> {
        let variables = |names: &[&str]| -> HashMap<String, String> {
            names.iter().map(|&name| (name.to_owned(), "x".to_owned())).collect()
        };
        let dotenv = variables(dotenv);
        let of_chats = of_chats.iter().copied().collect();
        let environment =
            environment(agent, &job(), &FleetVariables { own: variables(own), dotenv: &dotenv, of_chats });
        let mut names: Vec<String> = environment
            .into_keys()
            .filter(|name| name == "COWHAND_LOG" || !name.starts_with("COWHAND_"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn variables_are_passed_on_by_name() {
        let mut agent = Agent::new("coder".parse().unwrap());
        assert_eq!(inherited(&agent), ["PATH"]);
        agent.pass_env = vec!["GITHUB_TOKEN".into(), "NOT_SET".into()];
        assert_eq!(inherited(&agent), ["GITHUB_TOKEN", "PATH"]);
    }

    #[test]
    fn herdctl_agents_inherit_the_environment_except_in_a_sandbox() {
        let mut agent = Agent::new("coder".parse().unwrap());
        agent.inherits_environment = true;
        assert_eq!(inherited(&agent), ["GITHUB_TOKEN", "PATH", "SSH_AUTH_SOCK"]);
        for kind in [SandboxKind::Landlock, SandboxKind::Bubblewrap, SandboxKind::Docker] {
            agent.sandbox_rules = Some(SandboxRules { kind, ..SandboxRules::default() });
            assert_eq!(inherited(&agent), ["PATH"], "{kind}");
        }
    }

    #[test]
    fn tokens_of_chats_reach_only_agents_that_name_or_need_them() {
        let agent = |config: &str| {
            Agent::from_config("coder".parse().unwrap(), serde_json::from_str(config).unwrap())
        };
        let own = ["GITHUB_TOKEN", "SLACK_BOT_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"];
        let of_chats = ["SLACK_BOT_TOKEN", "DISCORD_TOKEN", "OPENAI_API_KEY"];
        for (config, expected) in [
            (r#"{"runtime": "claude"}"#, vec!["ANTHROPIC_API_KEY"]),
            (r#"{"runtime": "codex"}"#, vec!["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]),
            (r#"{"runtime": "opencode", "model": "anthropic/m"}"#, vec!["ANTHROPIC_API_KEY"]),
            (r#"{"runtime": "opencode", "model": "openai/m"}"#, vec!["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]),
            (r#"{"runtime": "command", "command": ["x"]}"#, vec!["ANTHROPIC_API_KEY"]),
            (r#"{"runtime": "acp", "command": ["gemini"]}"#, vec!["ANTHROPIC_API_KEY"]),
            (r#"{"runtime": "acp", "command": ["x"]}"#, vec!["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]),
            (
                r#"{"pass_env": ["SLACK_BOT_TOKEN", "DISCORD_TOKEN"], "env": {"OPENAI_API_KEY": "x"}}"#,
                vec!["ANTHROPIC_API_KEY", "DISCORD_TOKEN", "OPENAI_API_KEY", "SLACK_BOT_TOKEN"],
            ),
        ] {
            let found = inherited_of(&agent(config), &own, &["DISCORD_TOKEN"], &of_chats);
            assert_eq!(found, expected, "{config}");
        }
        let of_herdctl = Agent { inherits_environment: true, ..agent("{}") };
        let found = inherited_of(&of_herdctl, &own, &["DISCORD_TOKEN"], &of_chats);
        assert_eq!(found, ["ANTHROPIC_API_KEY", "GITHUB_TOKEN"]);
    }

    #[test]
    fn the_runtimes_sdk_and_cli_start_claude() {
        let mut agent = Agent::new("coder".parse().unwrap());
        let argv_in =
            |agent: &Agent, session: SessionChoice| launch_in(agent, &job(), &session, "/attempt").start.argv;
        let argv = |agent: &Agent| argv_in(agent, SessionChoice::Fresh);
        let plain = argv(&agent);
        assert_eq!(plain[..5], ["claude", "-p", "--output-format", "stream-json", "--verbose"]);
        for runtime in ["claude", "sdk", "cli"] {
            let config = serde_json::from_value(serde_json::json!({ "runtime": runtime })).unwrap();
            assert_eq!(argv(&Agent::from_config("coder".parse().unwrap(), config)), plain, "{runtime}");
        }
        let fork = SessionChoice::Fork { of: "s-1".into(), as_id: None };
        let forked = argv_in(&agent, fork);
        assert_eq!(forked[forked.len() - 3..], ["--resume", "s-1", "--fork-session"]);
        agent.program.runtime = Runtime::Command;
        agent.program.command = vec!["echo".into(), "hi".into()];
        assert_eq!(argv(&agent), ["echo", "hi"]);
    }
}

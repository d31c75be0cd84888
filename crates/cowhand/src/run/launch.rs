//! What it takes to start an agent for a job: argv, environment, directory, and who reads its output.

use std::collections::HashMap;

use cowhand_core::config::shape::{PermissionMode, Runtime, SettingSource};
use cowhand_core::id::ScheduleName;
use cowhand_core::job::Job;
use cowhand_core::roster::Agent;

use super::attempt::{Start, StopSignal};
use super::runtime::Reader;
use super::runtime::claude::{ClaudeLaunch, Session};

/// From the stop signal to the kill.
const GRACE_MS: u64 = 10_000;

#[derive(Debug, Clone)]
pub struct Launch {
    pub start: Start,
    pub environment: Vec<(String, String)>,
    pub reader: Reader,
}

impl Launch {
    /// `session` is for runtimes that have them; `own` is our environment; `dotenv` is what the `.env` beside the config names.
    pub fn of(
        agent: &Agent,
        job: &Job,
        session: Session,
        own: impl Iterator<Item = (String, String)>,
        dotenv: &HashMap<String, String>,
    ) -> Self {
        let (argv, stop_signal) = match agent.settings.runtime {
            Some(Runtime::Command) => {
                (agent.settings.command.clone().unwrap_or_default(), StopSignal::Terminate)
            }
            // Claude writes its result line on an interrupt.
            Some(Runtime::Claude | Runtime::Sdk | Runtime::Cli) | None => {
                (claude(agent, session), StopSignal::Interrupt)
            }
        };
        let directory = agent.directory.clone();
        let start = Start { argv, directory, stop_signal, grace_ms: GRACE_MS };
        Self { start, environment: environment(agent, job, own, dotenv), reader: reader(agent) }
    }
}

pub fn reader(agent: &Agent) -> Reader {
    match agent.settings.runtime {
        Some(Runtime::Command) => Reader::command(),
        Some(Runtime::Claude | Runtime::Sdk | Runtime::Cli) | None => Reader::claude(),
    }
}

fn claude(agent: &Agent, session: Session) -> Vec<String> {
    let settings = &agent.settings;
    let limits = settings.session.as_ref();
    let word = |source: &SettingSource| match source {
        SettingSource::User => "user".to_owned(),
        SettingSource::Project => "project".to_owned(),
        SettingSource::Local => "local".to_owned(),
    };
    let launch = ClaudeLaunch {
        model: settings.model.clone(),
        max_turns: settings.max_turns.or_else(|| limits.and_then(|limits| limits.max_turns)),
        permission_mode: Some(permission_mode(settings.permission_mode).to_owned()),
        system_prompt: settings.system_prompt.clone(),
        tools: settings.tools.clone().filter(|tools| !tools.is_empty()),
        allowed_tools: settings.allowed_tools.clone().unwrap_or_default(),
        denied_tools: settings.denied_tools.clone().unwrap_or_default(),
        setting_sources: settings.setting_sources.as_ref().map(|sources| sources.iter().map(word).collect()),
        session,
        ..ClaudeLaunch::default()
    };
    std::iter::once("claude".to_owned()).chain(launch.arguments()).collect()
}

const fn permission_mode(mode: Option<PermissionMode>) -> &'static str {
    match mode {
        Some(PermissionMode::Default) => "default",
        Some(PermissionMode::AcceptEdits) | None => "acceptEdits",
        Some(PermissionMode::BypassPermissions) => "bypassPermissions",
        Some(PermissionMode::Plan) => "plan",
        Some(PermissionMode::Delegate) => "delegate",
        Some(PermissionMode::DontAsk) => "dontAsk",
    }
}

/// What every agent may see of our own environment: where things are, how to speak, and how to reach a provider.
const PASSED_ON: [&str; 17] = [
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
    "CODEX_HOME",
];
const PASSED_ON_BEGINNINGS: [&str; 8] =
    ["LC_", "XDG_", "ANTHROPIC_", "CLAUDE_", "OPENAI_", "GEMINI_", "GOOGLE_", "OPENCODE_"];

/// Nothing else is inherited; later ones win.
fn environment(
    agent: &Agent,
    job: &Job,
    own: impl Iterator<Item = (String, String)>,
    dotenv: &HashMap<String, String>,
) -> Vec<(String, String)> {
    let passed_on = |name: &str| {
        let upper = name.to_ascii_uppercase();
        PASSED_ON.contains(&upper.as_str())
            || PASSED_ON_BEGINNINGS.iter().any(|start| name.starts_with(start))
    };
    let mut variables: HashMap<String, String> = own.filter(|(name, _)| passed_on(name)).collect();
    for (name, value) in dotenv {
        // The real environment wins over the file.
        variables.entry(name.clone()).or_insert_with(|| value.clone());
    }
    variables.extend(agent.settings.env.clone());
    let schedule = job.schedule().map_or("", ScheduleName::as_str);
    variables.extend([
        ("COWHAND_JOB_ID".to_owned(), job.id().to_string()),
        ("COWHAND_AGENT".to_owned(), job.agent().to_string()),
        ("COWHAND_SCHEDULE".to_owned(), schedule.to_owned()),
        ("COWHAND_ATTEMPT".to_owned(), job.attempts().to_string()),
    ]);
    variables.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowhand_core::id::JobId;
    use cowhand_core::job::{NewJob, TriggerType};

    fn job() -> Job {
        let new = NewJob {
            agent: "coder".parse().unwrap(),
            trigger_type: TriggerType::Schedule,
            schedule: Some("nightly".parse().unwrap()),
            prompt: None,
            origin: None,
            work_item: None,
            not_before: None,
        };
        Job::new(JobId::new(jiff::civil::date(2026, 1, 5), 1), new, jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn only_what_is_named_is_passed_on() {
        let mut agent = Agent::new("coder".parse().unwrap());
        agent.settings.env.insert("MODE".into(), "night".into());
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
        let mut environment =
            Launch::of(&agent, &job(), Session::Fresh, own.into_iter(), &dotenv).environment;
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
                "MODE=night",
                "PATH=/bin",
                "TOKEN=file",
                "https_proxy=p",
            ]
        );
    }

    #[test]
    fn herdctls_two_ways_to_start_claude_are_one() {
        let mut agent = Agent::new("coder".parse().unwrap());
        let argv = |agent: &Agent| {
            Launch::of(agent, &job(), Session::Fresh, std::iter::empty(), &HashMap::new()).start.argv
        };
        let plain = argv(&agent);
        assert_eq!(plain[..5], ["claude", "-p", "--output-format", "stream-json", "--verbose"]);
        for runtime in [Runtime::Claude, Runtime::Sdk, Runtime::Cli] {
            agent.settings.runtime = Some(runtime);
            assert_eq!(argv(&agent), plain);
        }
        let fork = Session::Fork { of: "s-1".into(), as_id: None };
        let forked = Launch::of(&agent, &job(), fork, std::iter::empty(), &HashMap::new()).start.argv;
        assert_eq!(forked[forked.len() - 3..], ["--resume", "s-1", "--fork-session"]);
        agent.settings.runtime = Some(Runtime::Command);
        agent.settings.command = Some(vec!["echo".into(), "hi".into()]);
        assert_eq!(argv(&agent), ["echo", "hi"]);
    }
}

//! The description of a runtime: its capabilities, and how its program is started.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cowhand_core::roster::Agent;
use cowhand_core::runtime::Runtime;

use super::input::InputFormat;
use super::{Reader, SessionChoice, acp, claude, codex, command, gemini, opencode};
use crate::process::StopSignal;

/// Placeholder for cowhand's own program. The launcher replaces the placeholder by the path of the program.
pub(crate) const OWN_PROGRAM: &str = "(cowhand)";

/// The data from which a runtime makes its command line.
#[derive(Debug, Clone, Copy)]
pub struct LaunchRequest<'a> {
    pub agent: &'a Agent,
    pub session: &'a SessionChoice,
    /// Folder of the private files, for the owner only.
    pub folder: &'a Path,
    /// Environment of the program, for runtimes that have to look up paths.
    pub environment: &'a HashMap<String, String>,
}

/// Command line of a program, with its environment, its private files and its reader. Secrets are only in `files` and
/// `environment`, which other users cannot read. Arguments are visible to all users.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandLine {
    pub argv: Vec<String>,
    /// Variables that are set only if they are not set yet.
    pub defaults: Vec<(&'static str, String)>,
    /// Variables that are always set.
    pub environment: Vec<(String, String)>,
    /// Private files: name and content.
    pub files: Vec<(String, String)>,
    pub stop_signal: StopSignal,
    pub reader: Reader,
    /// Form of the input, if the program takes messages while it runs.
    pub input: Option<InputFormat>,
}

/// Capabilities of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "it is a list of answers, each yes or no")]
pub struct Capabilities {
    pub resume: bool,
    pub fork: bool,
    /// Set if the program reports costs. For other runtimes the prices of the config are used.
    pub cost: bool,
    /// Set if the id of a new session can be chosen.
    pub session_id: bool,
    /// Set if the program can ask for permission before it uses a tool.
    pub asks: bool,
    /// Set if the program takes messages while it runs.
    pub messages: bool,
}

/// Description of one runtime.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    /// Name of the program on PATH; `None` if the agent's config names it.
    pub program: Option<&'static str>,
    /// Oldest supported version.
    pub oldest: Option<[u32; 3]>,
    pub capabilities: Capabilities,
    pub plan: fn(&LaunchRequest<'_>) -> CommandLine,
    /// Function that returns a reader if only the runtime is known.
    pub reader: fn() -> Reader,
    /// Arguments before the session id in the command with which a person resumes a session in a terminal.
    pub interactive: &'static [&'static str],
    /// Messages of the program for a missing session. `{id}` stands for the id of the session.
    pub missing_session_messages: &'static [&'static str],
    /// Prefixes of the variables of the daemon's environment that belong to this program or its providers. Every agent
    /// gets them.
    pub variable_prefixes: &'static [&'static str],
    /// Files and folders of the program: sessions, settings, logins. In a sandbox they are writable, or replaced by
    /// private folders.
    pub homes: &'static [RuntimePath],
    /// Access to the provider through the credential proxy; `None` if the program does not support it.
    pub provider: Option<fn(&Agent) -> ProviderAccess>,
}

/// Address and key of a provider, as the program expects them.
#[derive(Debug, Clone, Copy)]
pub struct ProviderAccess {
    /// Variable with the provider's address.
    pub address_variable: &'static str,
    /// Address of the provider if the variable is not set.
    pub default_address: &'static str,
    /// Variables with the key, in order of precedence. For each: name of the variable, header of the key in a request,
    /// and prefix of the header's value.
    pub keys: &'static [(&'static str, &'static str, &'static str)],
    /// Function that configures the program in addition to the variables.
    pub configure: fn(&mut ProxySettings<'_>),
}

/// The parts of a program's start that can be changed so that the program uses the credential proxy. The variables of
/// the address and the key are already set.
#[derive(Debug)]
pub struct ProxySettings<'a> {
    pub agent: &'a Agent,
    pub argv: &'a mut Vec<String>,
    pub environment: &'a mut HashMap<String, String>,
    /// Address of the proxy.
    pub proxy_address: &'a str,
    /// Name of the variable that contains a placeholder instead of the key.
    pub key_variable: &'static str,
}

/// Does nothing, for programs that need only variables.
pub(super) const fn no_configuration(_: &mut ProxySettings<'_>) {}

/// A file or folder of a runtime's program.
#[derive(Debug, Clone, Copy)]
pub struct RuntimePath {
    /// Variable that contains the path; empty if there is no such variable.
    pub variable: &'static str,
    /// Default path in the user's home directory.
    pub default_path: &'static str,
    /// Path below the value of the variable or below the default path; empty if the path itself is meant.
    pub below: &'static str,
    pub is_folder: bool,
    /// Name and content of a file that the program needs to start in an empty folder.
    pub required_file: Option<(&'static str, &'static str)>,
}

impl RuntimePath {
    pub const fn folder(variable: &'static str, default_path: &'static str) -> Self {
        Self { variable, default_path, below: "", is_folder: true, required_file: None }
    }

    pub fn path(&self, environment: &HashMap<String, String>) -> Option<PathBuf> {
        let set = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        let configured = set(self.variable).map(PathBuf::from);
        let path =
            configured.or_else(|| Some(Path::new(set("HOME")?).join(self.default_path)))?.join(self.below);
        path.is_absolute().then_some(path)
    }
}

/// Returns the description of a runtime. A new runtime adds one line here.
pub const fn description(runtime: Runtime) -> &'static Description {
    match runtime {
        Runtime::Claude => &claude::DESCRIPTION,
        Runtime::Codex => &codex::DESCRIPTION,
        Runtime::Gemini => &gemini::DESCRIPTION,
        Runtime::Opencode => &opencode::DESCRIPTION,
        Runtime::Acp => &acp::DESCRIPTION,
        Runtime::Command => &command::DESCRIPTION,
    }
}

/// Returns the variables with the keys of providers, for all runtimes. If the provider of a runtime depends on the
/// model, the model of this agent decides.
pub fn key_variables(agent: &Agent) -> Vec<&'static str> {
    let providers = Runtime::ALL.into_iter().filter_map(|runtime| description(runtime).provider);
    providers.flat_map(|provider| provider(agent).keys).map(|(variable, ..)| *variable).collect()
}

/// Returns whether a variable can have the key with which the agent's own program reaches its provider. For an ACP agent
/// whose program is not known, that is every variable of a runtime.
pub fn may_be_own_key(agent: &Agent, name: &str) -> bool {
    match description(agent.program.known_runtime()).provider {
        Some(provider) => provider(agent).keys.iter().any(|(variable, ..)| *variable == name),
        None => agent.runtime() == Runtime::Acp && is_variable_of_runtime(name),
    }
}

/// Returns whether a variable of the daemon's environment belongs to the program of a runtime, or to its provider.
pub fn is_variable_of_runtime(name: &str) -> bool {
    let prefixes = Runtime::ALL.into_iter().flat_map(|runtime| description(runtime).variable_prefixes);
    prefixes.into_iter().any(|prefix| name.starts_with(prefix))
}

/// Why a runtime cannot resume, fork or open a session. The message is for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefusal {
    #[error("{id:?} is not a session of `runtime: {runtime}`")]
    NotASession { id: String, runtime: &'static str },
    #[error("`runtime: {0}` cannot resume a session")]
    CannotResume(&'static str),
    #[error("`runtime: {0}` cannot fork a session; `retry` runs the job again in a fresh session")]
    CannotFork(&'static str),
    #[error("the program of `runtime: {0}` cannot be opened with a session")]
    CannotOpen(&'static str),
}

/// Returns why the runtime cannot use the session; `None` if it can.
pub fn refusal(runtime: Runtime, session: &SessionChoice) -> Option<SessionRefusal> {
    let can = description(runtime).capabilities;
    let name = runtime.name();
    match session {
        SessionChoice::Resume(id) | SessionChoice::FreshAs(id) | SessionChoice::Fork { of: id, .. }
            if !is_plain(id) =>
        {
            Some(SessionRefusal::NotASession { id: id.clone(), runtime: name })
        }
        SessionChoice::Resume(_) if !can.resume => Some(SessionRefusal::CannotResume(name)),
        SessionChoice::Fork { .. } if !can.fork => Some(SessionRefusal::CannotFork(name)),
        _ => None,
    }
}

/// Returns true if stderr contains the program's message for a missing session.
pub fn reports_missing_session(runtime: Runtime, session: &str, stderr: &str) -> bool {
    description(runtime)
        .missing_session_messages
        .iter()
        .any(|pattern| stderr.contains(&pattern.replace("{id}", session)))
}

/// Returns the command with which a person resumes a session in a terminal, or why there is none.
pub fn interactive(runtime: Runtime, session: &str) -> Result<Vec<String>, SessionRefusal> {
    if let Some(refusal) = refusal(runtime, &SessionChoice::Resume(session.to_owned())) {
        return Err(refusal);
    }
    let description = description(runtime);
    let Some(program) = description.program.filter(|_| !description.interactive.is_empty()) else {
        return Err(SessionRefusal::CannotOpen(runtime.name()));
    };
    let words = [program].into_iter().chain(description.interactive.iter().copied()).chain([session]);
    Ok(words.map(str::to_owned).collect())
}

/// Returns true if an id is safe as an argument: it must be neither an option nor a path.
fn is_plain(id: &str) -> bool {
    id.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && id.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
}

impl LaunchRequest<'_> {
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the folder of the program: the value of the variable or, without a value, a folder in the user's home
    /// directory. Returns an empty path if the home directory is not known either.
    pub(super) fn home(&self, variable: &str, folder: &str) -> PathBuf {
        let set = |name: &str| self.environment.get(name).filter(|value| !value.is_empty());
        let configured = set(variable).map(PathBuf::from);
        configured.or_else(|| Some(Path::new(set("HOME")?).join(folder))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_session_is_recognized_in_stderr() {
        let id = "11111111-2222-3333-4444-555555555555";
        for (runtime, stderr, expected) in [
            (Runtime::Claude, include_str!("../../tests/samples/claude/resume-missing.stderr"), true),
            (Runtime::Codex, include_str!("../../tests/samples/codex/resume-missing.stderr"), true),
            (Runtime::Opencode, include_str!("../../tests/samples/opencode/resume-missing.stderr"), true),
            (Runtime::Gemini, "Error resuming session: No previous sessions found for this project.", true),
            (Runtime::Claude, "No conversation found with session ID: another", false),
            (Runtime::Codex, "Error: connection refused", false),
            (Runtime::Command, "Session not found", false),
        ] {
            assert_eq!(reports_missing_session(runtime, id, stderr), expected, "{runtime:?} {stderr}");
        }
        let gemini = include_str!("../../tests/samples/gemini/resume-missing.stderr");
        assert!(reports_missing_session(Runtime::Gemini, "7b6e5a00-0000-4000-8000-00000000dead", gemini));
    }

    /// herdctl does not pass an empty list either.
    #[test]
    fn an_empty_list_of_tools_is_the_same_as_none_in_every_runtime() {
        let environment = HashMap::new();
        for (runtime, name) in [
            (Runtime::Claude, "claude"),
            (Runtime::Codex, "codex"),
            (Runtime::Gemini, "gemini"),
            (Runtime::Opencode, "opencode"),
            (Runtime::Acp, "acp"),
            (Runtime::Command, "command"),
        ] {
            let plan = |tools: &str| {
                let settings = format!(r#"{{"runtime": "{name}"{tools}}}"#);
                let config = serde_json::from_str(&settings).unwrap();
                let agent = Agent::from_config("a".parse().unwrap(), config);
                let folder = Path::new("/p");
                let order = LaunchRequest {
                    agent: &agent,
                    session: &SessionChoice::Fresh,
                    folder,
                    environment: &environment,
                };
                let CommandLine { argv, defaults, environment, files, .. } =
                    (description(runtime).plan)(&order);
                (argv, defaults, environment, files)
            };
            assert_eq!(plan(r#", "tools": []"#), plan(""), "{name}");
        }
    }

    #[test]
    fn each_runtime_has_its_command_to_continue_a_session() {
        for (runtime, expected) in [
            (Runtime::Claude, Ok("claude --resume s-1")),
            (Runtime::Codex, Ok("codex resume s-1")),
            (Runtime::Gemini, Ok("gemini --resume s-1")),
            (Runtime::Opencode, Ok("opencode --session s-1")),
            (Runtime::Acp, Err("the program of `runtime: acp` cannot be opened with a session")),
            (Runtime::Command, Err("`runtime: command` cannot resume a session")),
        ] {
            let words = interactive(runtime, "s-1").map(|words| words.join(" "));
            let words = words.map_err(|refusal| refusal.to_string());
            assert_eq!(words, expected.map(str::to_owned).map_err(str::to_owned), "{runtime:?}");
        }
        assert!(interactive(Runtime::Claude, "--help").is_err());
    }

    /// Core checks configs and has no access to the descriptions, so it repeats these facts.
    #[test]
    fn core_agrees_with_the_descriptions_of_the_runtimes() {
        use Runtime::{Acp, Claude, Codex, Command, Gemini, Opencode};
        for runtime in [Acp, Claude, Codex, Command, Gemini, Opencode] {
            let about = description(runtime);
            assert_eq!(runtime.asks(), about.capabilities.asks, "{runtime:?}");
            let mut agent = Agent::new("coder".parse().unwrap());
            agent.program.runtime = runtime;
            assert_eq!(agent.can_leave_keys_outside(), about.provider.is_some(), "{runtime:?}");
        }
    }

    #[test]
    fn unsupported_session_choices_are_refused() {
        let fork = |of: &str| SessionChoice::Fork { of: of.to_owned(), as_id: None };
        let resume = |id: &str| SessionChoice::Resume(id.to_owned());
        for (runtime, session, expected) in [
            (
                Runtime::Gemini,
                fork("s-1"),
                Some(
                    "`runtime: gemini` cannot fork a session; `retry` runs the job again in a fresh session",
                ),
            ),
            (Runtime::Command, resume("s-1"), Some("`runtime: command` cannot resume a session")),
            (Runtime::Claude, resume("--help"), Some("\"--help\" is not a session of `runtime: claude`")),
            (Runtime::Codex, fork("../x"), Some("\"../x\" is not a session of `runtime: codex`")),
            (Runtime::Opencode, resume(""), Some("\"\" is not a session of `runtime: opencode`")),
            (Runtime::Opencode, fork("ses_e2210292effeVhffwcMM8CNRQI"), None),
            (Runtime::Gemini, resume("7b6e5a00-0000-4000-8000-000000000001"), None),
            (Runtime::Gemini, SessionChoice::Fresh, None),
        ] {
            assert_eq!(
                refusal(runtime, &session).map(|refusal| refusal.to_string()).as_deref(),
                expected,
                "{runtime:?} {session:?}"
            );
        }
    }
}

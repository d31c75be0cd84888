//! Builds the sandbox plan of an attempt, and the environment that fits the sandbox, before the launch.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cowhand_core::roster::Agent;
use cowhand_core::runtime::Runtime;
use cowhand_core::sandbox::{NetworkAccess, SandboxKind};
use cowhand_core::workspace::IsolationKind;

use super::AttemptTask;
use super::credentials;
use super::start_error::CannotStart;
use cowhand_run::launch::Launch;
use cowhand_run::runtime::description;
use cowhand_run::sandbox::proxy;
use cowhand_run::sandbox::{self, SandboxInput};
use cowhand_run::start::SandboxPlan;

impl AttemptTask {
    /// Adds the configured sandbox to the launch. If that is not possible, returns the reason, and nothing is started.
    /// `agent_directory` is the agent's own directory. If the job has a workspace, the agent works in the workspace
    /// instead.
    pub(super) fn with_sandbox(
        &self,
        agent: &Agent,
        agent_directory: &Path,
        mut launch: Launch,
    ) -> Result<Launch, CannotStart> {
        let requested = agent.sandbox(self.job.schedule(), self.job.confined().is_some());
        if self.job.confined().is_some() && requested.kind == SandboxKind::None {
            return Err(CannotStart::NoStrictSandbox);
        }
        let mut environment: HashMap<String, String> = launch.environment.iter().cloned().collect();
        let (attempt, loaded) = (self.attempt(), self.engine.loaded());
        let private = attempt.private();
        let runtime = agent.runtime();
        let argv = launch.start.with_program(&self.engine.program).argv;
        let is_acp = runtime == Runtime::Acp;
        let command = agent.program.command.first().filter(|_| is_acp);
        let confined = self.job.confined().is_some();
        let private_home = self.engine.home.state.home_for_strangers(&agent.name);
        let files = if confined { loaded.files_and_queues() } else { loaded.files.clone() };
        let input = SandboxInput {
            requested: &requested,
            agent_directory,
            directory: &agent.directory,
            isolated: agent.isolation_of(self.job.schedule()).kind != IsolationKind::Shared,
            runtime: description::description(agent.program.known_runtime()),
            environment: &environment,
            argv: &argv,
            agent: command.map(String::as_str),
            private: &private,
            has_private: !launch.files.is_empty(),
            state: self.engine.home.state.path(),
            files: &files,
            program: &self.engine.program,
            private_home: confined.then_some(private_home.as_path()),
        };
        let Some(mut plan) = sandbox::resolve_plan(&input)? else { return Ok(launch) };
        plan.job_socket_folder = self.channel_folder(agent, plan.kind)?;
        if plan.gateway {
            let credentials = credentials::withhold_key(agent, &mut launch.start.argv, &mut environment)?;
            let result = attempt.write_credentials(&credentials);
            result.map_err(CannotStart::CredentialsNotWritten)?;
        }
        let temporary = match plan.kind {
            SandboxKind::None => None,
            SandboxKind::Landlock => Some(sandbox::temporary(&private).to_string_lossy().into_owned()),
            SandboxKind::Bubblewrap | SandboxKind::Docker => Some("/tmp".to_owned()),
        };
        if let Some(container) = &mut plan.container {
            let container_env = agent.container_env.clone();
            let is_configured =
                |name: &str| container_env.contains_key(name) || agent.program.env.contains_key(name);
            let host_variables = HOST_VARIABLES.iter().filter(|name| !is_configured(name));
            container.excluded_variables = host_variables.map(|name| (*name).to_owned()).collect();
            environment.extend(container_env);
        }
        environment.extend(temporary.map(|folder| ("TMPDIR".to_owned(), folder)));
        if plan.kind == SandboxKind::Landlock && !environment.contains_key(GIT_CONFIG) {
            environment.extend(git_config(&plan, &environment).map(|file| (GIT_CONFIG.to_owned(), file)));
        }
        if plan.has_proxy() {
            set_proxy_variables(&plan, &mut environment);
        }
        launch.environment = environment.into_iter().collect();
        launch.start.sandbox = Some(plan);
        Ok(launch)
    }
}

/// Variables with paths of this machine. A container gets them only if the config sets them, because the image has its
/// own values.
const HOST_VARIABLES: [&str; 6] =
    ["PATH", "SHELL", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"];

/// Variable with the path of the file that git reads instead of the user's config.
const GIT_CONFIG: &str = "GIT_CONFIG_GLOBAL";

/// Returns the file that git has to read instead of the user's config, or `None` if all existing config files can be
/// read. Git fails if a config file exists and cannot be opened, and Landlock denies access without hiding the file.
fn git_config(plan: &SandboxPlan, environment: &HashMap<String, String>) -> Option<String> {
    let home = environment.get("HOME").map(Path::new)?;
    let settings = environment.get("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
    let existing =
        [home.join(".gitconfig"), settings.join("git/config")].into_iter().filter(|file| file.exists());
    let is_allowed = |file: &PathBuf| {
        let real = file.canonicalize().unwrap_or_else(|_| file.clone());
        plan.read.iter().chain(&plan.write).any(|allowed| real.starts_with(allowed))
    };
    let (readable, closed): (Vec<_>, Vec<_>) = existing.partition(is_allowed);
    let file = readable.into_iter().next().unwrap_or_else(|| PathBuf::from("/dev/null"));
    (!closed.is_empty()).then(|| file.to_string_lossy().into_owned())
}

/// Sets the proxy variables. Requests to loopback do not use the proxy, so they stay inside the sandbox. But if the
/// config allows a host on the loopback of this machine, requests to loopback use the proxy, which reaches that host.
fn set_proxy_variables(plan: &SandboxPlan, environment: &mut HashMap<String, String>) {
    let reaches_loopback = match &plan.network {
        NetworkAccess::Hosts(hosts) => hosts.iter().any(|host| {
            host.name() == "localhost" || host.address().is_some_and(|address| address.is_loopback())
        }),
        NetworkAccess::None | NetworkAccess::Ports(_) | NetworkAccess::All => false,
    };
    let direct = if reaches_loopback { "" } else { "localhost,127.0.0.1,::1" };
    environment.retain(|name, _| !name.to_ascii_lowercase().ends_with("_proxy"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        environment.insert(name.to_owned(), format!("http://{}", proxy::PROXY_ADDRESS));
    }
    if !direct.is_empty() {
        environment.extend(["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), direct.to_owned())));
    }
    // Node uses the proxy variables only if this one is set.
    environment.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> HashMap<String, String> {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn git_reads_no_config_that_it_cannot_open() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let variables = environment(&[("HOME", home.to_str().unwrap())]);
        let read = |read: &[&str]| {
            let read = read.iter().map(|name| home.join(name)).collect();
            git_config(&SandboxPlan { read, ..SandboxPlan::default() }, &variables)
        };
        assert_eq!(read(&[]), None, "there is no config file");
        let config_file = home.join(".gitconfig");
        std::fs::write(&config_file, "").unwrap();
        assert_eq!(read(&[]).as_deref(), Some("/dev/null"));
        assert_eq!(read(&[".gitconfig"]), None);
        std::fs::create_dir_all(home.join(".config/git")).unwrap();
        std::fs::write(home.join(".config/git/config"), "").unwrap();
        assert_eq!(read(&[".gitconfig"]).as_deref(), config_file.to_str());
        assert_eq!(read(&[".gitconfig", ".config"]), None);
    }

    #[test]
    fn loopback_bypasses_the_proxy_unless_the_config_allows_it() {
        for (hosts, direct) in [("api.example.com", true), ("127.0.0.1:81", false), ("localhost:81", false)] {
            let plan = SandboxPlan {
                network: NetworkAccess::Hosts(vec![hosts.parse().unwrap()]),
                ..SandboxPlan::default()
            };
            let mut variables = environment(&[("no_proxy", "x"), ("ALL_PROXY", "y")]);
            set_proxy_variables(&plan, &mut variables);
            assert_eq!(variables.contains_key("NO_PROXY"), direct, "{hosts}");
            assert!(!variables.contains_key("ALL_PROXY"));
            assert_eq!(variables["HTTPS_PROXY"], "http://127.0.0.1:3128");
        }
    }
}

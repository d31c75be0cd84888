//! Builds the sandbox of an attempt before its processes start.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cowhand_core::roster::Agent;
use cowhand_core::runtime::Runtime;
use cowhand_core::sandbox::{Reaches, SandboxKind};
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
    /// `base` is the agent's own directory, which need not be its working directory.
    pub(super) fn with_sandbox(
        &self,
        agent: &Agent,
        base: &Path,
        mut launch: Launch,
    ) -> Result<Launch, CannotStart> {
        let asked = agent.sandbox(self.job.schedule(), self.job.confined().is_some());
        if self.job.confined().is_some() && asked.kind == SandboxKind::None {
            return Err(CannotStart::NoStrictSandbox);
        }
        let mut environment: HashMap<String, String> = launch.environment.iter().cloned().collect();
        let (attempt, loaded) = (self.attempt(), self.engine.loaded());
        let private = attempt.private();
        let runtime = agent.runtime();
        let argv = launch.start.by(&self.engine.program).argv;
        let client = runtime == Runtime::Acp;
        let command = agent.program.command.first().filter(|_| client);
        let confined = self.job.confined().is_some();
        let stead = self.engine.home.state.of_strangers(&agent.name);
        let files = if confined { loaded.files_and_queues() } else { loaded.files.clone() };
        let setting = SandboxInput {
            asked: &asked,
            base,
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
            stead: confined.then_some(stead.as_path()),
        };
        let Some(mut plan) = sandbox::resolve_plan(&setting)? else { return Ok(launch) };
        plan.talk = self.channel_folder(agent, plan.kind)?;
        if plan.gateway {
            let credentials = credentials::from(agent, &mut launch.start.argv, &mut environment)?;
            let written = attempt.write_credentials(&credentials);
            written.map_err(CannotStart::CredentialsNotWritten)?;
        }
        let temporary = match plan.kind {
            SandboxKind::None => None,
            SandboxKind::Landlock => Some(sandbox::temporary(&private).to_string_lossy().into_owned()),
            SandboxKind::Bubblewrap | SandboxKind::Docker => Some("/tmp".to_owned()),
        };
        if let Some(container) = &mut plan.container {
            let own = agent.container_env.clone();
            let meant = |name: &str| own.contains_key(name) || agent.program.env.contains_key(name);
            let outside = OUTSIDE.iter().filter(|name| !meant(name));
            container.left_outside = outside.map(|name| (*name).to_owned()).collect();
            environment.extend(own);
        }
        environment.extend(temporary.map(|folder| ("TMPDIR".to_owned(), folder)));
        if plan.kind == SandboxKind::Landlock && !environment.contains_key(GIT_CONFIG) {
            environment.extend(git_config(&plan, &environment).map(|file| (GIT_CONFIG.to_owned(), file)));
        }
        if plan.has_proxy() {
            by_proxy(&plan, &mut environment);
        }
        launch.environment = environment.into_iter().collect();
        launch.start.sandbox = Some(plan);
        Ok(launch)
    }
}

/// Variables with paths of this machine; an image has its own.
const OUTSIDE: [&str; 6] =
    ["PATH", "SHELL", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"];

/// Variable with the path of the file that git reads instead of the user's config.
const GIT_CONFIG: &str = "GIT_CONFIG_GLOBAL";

/// Returns the file that git has to read instead of the user's config. Git runs no command if a config file exists and
/// cannot be opened, and Landlock does not hide the file. Returns `None` if all existing config files can be read.
fn git_config(plan: &SandboxPlan, environment: &HashMap<String, String>) -> Option<String> {
    let home = environment.get("HOME").map(Path::new)?;
    let settings = environment.get("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
    let there =
        [home.join(".gitconfig"), settings.join("git/config")].into_iter().filter(|file| file.exists());
    let given = |file: &PathBuf| {
        let real = file.canonicalize().unwrap_or_else(|_| file.clone());
        plan.read.iter().chain(&plan.write).any(|given| real.starts_with(given))
    };
    let (readable, closed): (Vec<_>, Vec<_>) = there.partition(given);
    let file = readable.into_iter().next().unwrap_or_else(|| PathBuf::from("/dev/null"));
    (!closed.is_empty()).then(|| file.to_string_lossy().into_owned())
}

/// Sets the proxy variables. Loopback is inside the sandbox, unless the config allows the loopback outside.
fn by_proxy(plan: &SandboxPlan, environment: &mut HashMap<String, String>) {
    let outside = match &plan.network {
        Reaches::Hosts(hosts) => hosts.iter().any(|host| {
            host.name() == "localhost" || host.address().is_some_and(|address| address.is_loopback())
        }),
        Reaches::Nobody | Reaches::Ports(_) | Reaches::Everybody => false,
    };
    let direct = if outside { "" } else { "localhost,127.0.0.1,::1" };
    environment.retain(|name, _| !name.to_ascii_lowercase().ends_with("_proxy"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        environment.insert(name.to_owned(), format!("http://{}", proxy::INSIDE));
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
    fn git_is_not_led_to_a_config_that_it_cannot_read() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let own = environment(&[("HOME", home.to_str().unwrap())]);
        let read = |read: &[&str]| {
            let read = read.iter().map(|name| home.join(name)).collect();
            git_config(&SandboxPlan { read, ..SandboxPlan::default() }, &own)
        };
        assert_eq!(read(&[]), None, "there is none");
        let ours = home.join(".gitconfig");
        std::fs::write(&ours, "").unwrap();
        assert_eq!(read(&[]).as_deref(), Some("/dev/null"));
        assert_eq!(read(&[".gitconfig"]), None);
        std::fs::create_dir_all(home.join(".config/git")).unwrap();
        std::fs::write(home.join(".config/git/config"), "").unwrap();
        assert_eq!(read(&[".gitconfig"]).as_deref(), ours.to_str());
        assert_eq!(read(&[".gitconfig", ".config"]), None);
    }

    #[test]
    fn whose_loopback_it_is() {
        for (hosts, direct) in [("api.example.com", true), ("127.0.0.1:81", false), ("localhost:81", false)] {
            let plan = SandboxPlan {
                network: Reaches::Hosts(vec![hosts.parse().unwrap()]),
                ..SandboxPlan::default()
            };
            let mut own = environment(&[("no_proxy", "x"), ("ALL_PROXY", "y")]);
            by_proxy(&plan, &mut own);
            assert_eq!(own.contains_key("NO_PROXY"), direct, "{hosts}");
            assert!(!own.contains_key("ALL_PROXY"));
            assert_eq!(own["HTTPS_PROXY"], "http://127.0.0.1:3128");
        }
    }
}

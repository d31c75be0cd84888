//! What holds an attempt's processes, before there are any.

use std::collections::HashMap;
use std::path::Path;

use cowhand_core::config::shape::Runtime;
use cowhand_core::roster::Agent;
use cowhand_core::sandbox::{Reaches, SandboxKind};
use cowhand_core::workspace::IsolationKind;

use super::attempt::Charge;
use super::withhold;
use crate::run::launch::Launch;
use crate::run::runtime::plan;
use crate::run::sandbox::proxy;
use crate::run::sandbox::{self, Enclosure, Setting};

impl Charge {
    /// The launch, enclosed as the config asks for it; or why that cannot be done, which means that nothing is started.
    /// `base` is the agent's own directory, which need not be where it works.
    pub(super) fn enclosed(&self, agent: &Agent, base: &Path, mut launch: Launch) -> Result<Launch, String> {
        let asked = agent.sandbox(self.job.schedule(), self.job.confined().is_some());
        let mut environment: HashMap<String, String> = launch.environment.iter().cloned().collect();
        let (attempt, loaded) = (self.attempt(), self.engine.loaded());
        let private = attempt.private();
        let runtime = agent.settings.runtime.unwrap_or_default();
        let argv = launch.start.by(&self.engine.program).argv;
        let client = runtime == Runtime::Acp;
        let command = agent.settings.command.as_ref().filter(|_| client).and_then(|command| command.first());
        let setting = Setting {
            asked: &asked,
            base,
            directory: &agent.directory,
            isolated: agent.isolation_of(self.job.schedule()).kind != IsolationKind::Shared,
            runtime: plan::description(command.and_then(|name| known(name)).unwrap_or(runtime)),
            environment: &environment,
            argv: &argv,
            agent: command.map(String::as_str),
            private: &private,
            has_private: !launch.files.is_empty(),
            state: self.engine.home.state.path(),
            files: &loaded.files,
            program: &self.engine.program,
        };
        let Some(enclosure) = sandbox::enclose(&setting)? else { return Ok(launch) };
        if enclosure.kind != SandboxKind::None && agent.needs_a_voice() {
            return Err(format!(
                "`permission_mode: ask` and `followups` need the daemon's socket, which `sandbox: {}` keeps from the agent; take away one or the other",
                enclosure.kind
            ));
        }
        if enclosure.gateway {
            let credentials = withhold::from(agent, &mut launch.start.argv, &mut environment)?;
            let written = attempt.write_credentials(&credentials);
            written.map_err(|error| format!("its credentials cannot be handed to its keeper: {error}"))?;
        }
        let temporary = match enclosure.kind {
            SandboxKind::None | SandboxKind::Docker => None,
            SandboxKind::Landlock => Some(sandbox::temporary(&private).to_string_lossy().into_owned()),
            SandboxKind::Bubblewrap => Some("/tmp".to_owned()),
        };
        environment.extend(temporary.map(|folder| ("TMPDIR".to_owned(), folder)));
        if enclosure.has_proxy() {
            by_proxy(&enclosure, &mut environment);
        }
        launch.environment = environment.into_iter().collect();
        launch.start.enclosure = Some(enclosure);
        Ok(launch)
    }
}

/// A program that is a runtime of its own keeps its things in one place, however it is spoken to.
fn known(command: &str) -> Option<Runtime> {
    Runtime::named(Path::new(command).file_name()?.to_str()?)
}

/// What programs read to find a proxy. Their own loopback is theirs, unless the config means the one outside.
fn by_proxy(enclosure: &Enclosure, environment: &mut HashMap<String, String>) {
    let outside = match &enclosure.network {
        Reaches::Hosts(hosts) => hosts.iter().any(|host| {
            host.name() == "localhost" || host.address().is_some_and(|address| address.is_loopback())
        }),
        _ => false,
    };
    let direct = if outside { "" } else { "localhost,127.0.0.1,::1" };
    environment.retain(|name, _| !name.to_ascii_lowercase().ends_with("_proxy"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        environment.insert(name.to_owned(), format!("http://{}", proxy::INSIDE));
    }
    if !direct.is_empty() {
        environment.extend(["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), direct.to_owned())));
    }
    // Node looks at them only when it is told to.
    environment.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> HashMap<String, String> {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn whose_loopback_it_is() {
        for (hosts, direct) in [("api.example.com", true), ("127.0.0.1:81", false), ("localhost:81", false)] {
            let enclosure =
                Enclosure { network: Reaches::Hosts(vec![hosts.parse().unwrap()]), ..Enclosure::default() };
            let mut own = environment(&[("no_proxy", "x"), ("ALL_PROXY", "y")]);
            by_proxy(&enclosure, &mut own);
            assert_eq!(own.contains_key("NO_PROXY"), direct, "{hosts}");
            assert!(!own.contains_key("ALL_PROXY"));
            assert_eq!(own["HTTPS_PROXY"], "http://127.0.0.1:3128");
        }
    }
}

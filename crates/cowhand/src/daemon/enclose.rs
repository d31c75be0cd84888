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
        if self.job.confined().is_some() && asked.kind == SandboxKind::None {
            return Err("it is of a stranger's words, and its strict sandbox is none".to_owned());
        }
        let mut environment: HashMap<String, String> = launch.environment.iter().cloned().collect();
        let (attempt, loaded) = (self.attempt(), self.engine.loaded());
        let private = attempt.private();
        let runtime = agent.runtime();
        let argv = launch.start.by(&self.engine.program).argv;
        let client = runtime == Runtime::Acp;
        let command = agent.settings.command.as_ref().filter(|_| client).and_then(|command| command.first());
        let confined = self.job.confined().is_some();
        let stead = self.engine.home.state.of_strangers(&agent.name);
        let files = if confined { loaded.files_and_queues() } else { loaded.files.clone() };
        let setting = Setting {
            asked: &asked,
            base,
            directory: &agent.directory,
            isolated: agent.isolation_of(self.job.schedule()).kind != IsolationKind::Shared,
            runtime: plan::description(agent.program()),
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
        let Some(mut enclosure) = sandbox::enclose(&setting)? else { return Ok(launch) };
        enclosure.talk = self.talk(agent, enclosure.kind)?;
        if enclosure.gateway {
            let credentials = withhold::from(agent, &mut launch.start.argv, &mut environment)?;
            let written = attempt.write_credentials(&credentials);
            written.map_err(|error| format!("its credentials cannot be handed to its keeper: {error}"))?;
        }
        let temporary = match enclosure.kind {
            SandboxKind::None => None,
            SandboxKind::Landlock => Some(sandbox::temporary(&private).to_string_lossy().into_owned()),
            SandboxKind::Bubblewrap | SandboxKind::Docker => Some("/tmp".to_owned()),
        };
        if let Some(container) = &mut enclosure.container {
            let own =
                agent.settings.docker.as_ref().and_then(|docker| docker.env.clone()).unwrap_or_default();
            let meant = |name: &str| own.contains_key(name) || agent.settings.env.contains_key(name);
            let outside = OUTSIDE.iter().filter(|name| !meant(name));
            container.left_outside = outside.map(|name| (*name).to_owned()).collect();
            environment.extend(own);
        }
        environment.extend(temporary.map(|folder| ("TMPDIR".to_owned(), folder)));
        if enclosure.has_proxy() {
            by_proxy(&enclosure, &mut environment);
        }
        launch.environment = environment.into_iter().collect();
        launch.start.enclosure = Some(enclosure);
        Ok(launch)
    }
}

/// Where things are on this machine; an image has its own places.
const OUTSIDE: [&str; 6] =
    ["PATH", "SHELL", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"];

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

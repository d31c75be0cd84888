//! The checks of `cowhand doctor` that run in the process that starts the agents: whether agents can start, whether
//! work sources and chat platforms answer, and whether triggers, webhooks, hooks and trust rules can be used.

mod abilities;
mod agents;
mod chats;
mod git;
mod hooks;
mod notifications;
mod sandboxes;
mod starts;
mod triggers;
mod trust;
mod variables;

use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::duration;
use cowhand_core::roster::Roster;
use cowhand_core::server::TlsConfig;
use cowhand_core::trigger::TriggerConfig;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::queues;
use crate::secrets::process::known;
use crate::state::StateFolder;
use crate::tls::Certificate;
use crate::trigger::Registry;
pub(crate) use abilities::unable;
use cowhand_work::{self as work, SourceHealth, WorkSourceError, WorkSources};

/// Time limit for the answer of a work source.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    pub what: String,
    pub ok: bool,
    /// True for a warning: the checked part may work, but should be looked at.
    pub warning: bool,
    pub detail: String,
}

impl Finding {
    pub fn of(what: impl Into<String>, found: Result<String, impl Display>) -> Self {
        let ok = found.is_ok();
        let detail = found.unwrap_or_else(|why| why.to_string());
        Self { what: what.into(), ok, warning: false, detail }
    }

    /// Returns the finding that something works.
    pub fn works(what: impl Into<String>, detail: String) -> Self {
        Self { what: what.into(), ok: true, warning: false, detail }
    }
}

/// The input of the checks.
#[derive(Debug, Clone)]
pub struct Subject {
    pub roster: Arc<Roster>,
    pub state: StateFolder,
    /// Variables of the `.env`.
    pub variables: HashMap<String, String>,
    /// The files of the config.
    pub files: Vec<PathBuf>,
    pub sources: Arc<WorkSources>,
    /// The custom triggers that the program has registered.
    pub triggers: Registry,
    /// Address of the server, if other machines can reach it.
    pub outside: Option<SocketAddr>,
}

/// Runs all checks with the environment of this process. Known secrets are masked in the findings.
pub async fn examine(subject: Subject) -> Vec<Finding> {
    let findings = examine_all(subject).await;
    let redactor = known();
    let masked = |text: &str| redactor.redact(text).into_owned();
    findings
        .into_iter()
        .map(|finding| Finding { what: masked(&finding.what), detail: masked(&finding.detail), ..finding })
        .collect()
}

async fn examine_all(subject: Subject) -> Vec<Finding> {
    let Subject { roster, sources, .. } = &subject;
    let mut findings = agents::check(roster).await;
    findings.extend(git::check(roster).await);
    findings.extend(variables::check(roster, |name| std::env::var_os(name).is_some()));
    let machine_subject = subject.clone();
    let machine_findings = tokio::task::spawn_blocking(move || {
        let Subject { roster, state, variables, files, .. } = &machine_subject;
        let mut findings = sandboxes::check(roster);
        findings.extend(starts::check(roster, state, variables, files));
        findings
    });
    findings.extend(
        machine_findings.await.unwrap_or_else(|error| {
            vec![Finding::of("starts", Err(format!("they cannot be tried: {error}")))]
        }),
    );
    findings.extend(roster.server.tls.as_ref().map(certificate));
    findings.extend(webhooks(sources, roster, subject.outside));
    findings.extend(triggers::check(&subject.triggers, sources, roster));
    findings.extend(hooks::check(sources, roster));
    findings.extend(notifications::check(sources, roster));
    findings.extend(trust::check(sources, roster));
    findings.extend(chats::check(sources, roster).await);
    findings.extend(work_sources(sources, roster).await);
    findings.extend(
        queues::queues(sources, roster, None).iter().filter_map(|queue| untaken(sources, roster, queue)),
    );
    findings
}

fn certificate(files: &TlsConfig) -> Finding {
    match Certificate::read(files) {
        Ok(certificate) => {
            let (validity, warning) = certificate.validity(Timestamp::now());
            Finding { warning, ..Finding::works("certificate", validity) }
        }
        Err(error) => Finding::of("certificate", Err(error.to_string())),
    }
}

/// Says how the server listens on loopback: by its config or, if `start --listen` has replaced the address of the config,
/// by the same option.
fn listen_on_loopback(roster: &Roster, listen: SocketAddr) -> String {
    let port = listen.port();
    if roster.server.outside() == Some(listen) {
        format!("set `server.listen` to 127.0.0.1:{port} and run `cowhand restart`")
    } else {
        format!("run `cowhand restart --listen 127.0.0.1:{port}`")
    }
}

/// Checks that the secrets of webhooks are set, and that webhooks without a secret can be used.
fn webhooks(sources: &WorkSources, roster: &Roster, outside: Option<SocketAddr>) -> Vec<Finding> {
    let schedules =
        roster.agents.iter().flat_map(|agent| agent.schedules.iter().map(move |schedule| (agent, schedule)));
    schedules.filter_map(|(agent, schedule)| {
        let TriggerConfig::Webhook { secret, secret_env, allow_unsigned, .. } = &schedule.trigger else {
            return None;
        };
        let is_missing = |name: &&str| sources.context().variable(name).is_none();
        let (missing, set): (Vec<&str>, Vec<&str>) = schedule.trigger.secret_names().partition(is_missing);
        let missing = missing.join(", ");
        let found = if secret.is_none() && secret_env.is_none() && !allow_unsigned {
            Err("it has no secret, so every delivery is refused; set `secret_env` to the name of the variable with \
                 the secret, or `allow_unsigned: true` to accept unsigned deliveries"
                .to_owned())
        } else if let (true, Some(listen)) = (schedule.trigger.is_unsigned(), outside) {
            Err(format!(
                "every delivery is refused: `allow_unsigned` has an effect only on loopback, and the server listens \
                 on {listen}; set `secret_env`, or {}",
                listen_on_loopback(roster, listen)
            ))
        } else if secret.is_none() && secret_env.is_none() {
            Ok("unsigned deliveries are taken while the server listens on this machine only".to_owned())
        } else if set.is_empty() && secret.is_none() {
            Err(format!(
                "{missing} is not set, so every delivery is refused; set it in the environment or in .env"
            ))
        } else if missing.is_empty() {
            Ok("its secret is set".to_owned())
        } else {
            Ok(format!("{missing} is not set; deliveries signed with that secret are refused"))
        };
        let warning = found.is_ok() && !missing.is_empty();
        let what = format!("webhook {}/{}", agent.name, schedule.name);
        Some(Finding { warning, ..Finding::of(what, found) })
    })
    .collect()
}

/// Warns of a queue from which no schedule takes items.
fn untaken(sources: &WorkSources, roster: &Roster, queue: &queues::Queue) -> Option<Finding> {
    let detail = "no schedule takes its items; add one, for example `poll: {type: interval, interval: 5m}`";
    let is_taken = !queues::takers(sources, roster, &queue.name).is_empty();
    let what = format!("work in {}", queue.name);
    (!is_taken).then(|| Finding { warning: true, ..Finding::works(what, detail.to_owned()) })
}

/// Checks that the configured work sources can be used.
async fn work_sources(sources: &WorkSources, roster: &Roster) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (agent, config) in queues::configured_sources(roster) {
        let found = match sources.source(agent, config) {
            Ok(source) => tokio::time::timeout(SOURCE_TIMEOUT, source.check()).await.unwrap_or_else(|_| {
                vec![work::SourceFinding::problem(
                    "answer",
                    format!("no answer within {}", duration::exact(SOURCE_TIMEOUT)),
                )]
            }),
            Err(error @ WorkSourceError::GitHubAuth(_)) => {
                vec![work::SourceFinding::of_error("token", &error)]
            }
            Err(error) => vec![work::SourceFinding::of_error("config", &error)],
        };
        for work::SourceFinding { what, verdict, detail } in found {
            let what = format!("{} {}, {what}", config.name(), config.location());
            let found = if verdict == SourceHealth::Problem { Err(detail) } else { Ok(detail) };
            let finding = Finding { warning: verdict == SourceHealth::Warning, ..Finding::of(what, found) };
            // Several agents can use one queue.
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    }
    findings
}

//! `cowhand doctor`: can this fleet run here, and if not, what to do.

mod agents;
mod environment;
mod git;
mod hooks;
mod sandboxes;
mod starts;
mod trust;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cowhand_core::config::{Loaded, report};
use cowhand_core::roster::Roster;
use cowhand_core::server::Tls;
use cowhand_core::size::in_words;
use cowhand_core::trigger::TriggerConfig;
use jiff::Timestamp;
use serde::Serialize;

use super::place::{Place, wait};
use super::{Exit, Failure, print};
use crate::api::{Client, Status};
use crate::config::{self, FromDisk};
use crate::prune::files;
use crate::run::sandbox::writable;
use crate::server::Certificate;
use crate::state::StateFolder;
use crate::store::Store;
use crate::work::{self, Setting, Sources, Verdict, WorkSourceError, queues};

/// A source may be far away.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    what: String,
    ok: bool,
    /// It works, but should not stay like this.
    warning: bool,
    detail: String,
    /// What it means for the exit code.
    #[serde(skip)]
    exit: Exit,
}

impl Finding {
    fn of(what: impl Into<String>, found: Result<String, String>) -> Self {
        let ok = found.is_ok();
        let (Ok(detail) | Err(detail)) = found;
        Self { what: what.into(), ok, warning: false, detail, exit: Exit::CannotRunHere }
    }
}

impl Doctor {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let place = Place::find(config)?;
        let FromDisk { loaded, variables, files, .. } = config::load(&place.config);
        let mut findings = vec![
            Finding { exit: Exit::Config, ..Finding::of("config", of_config(&loaded)) },
            Finding::of("state folder", folder(&place.state)),
            Finding::of(
                "store",
                wait(async { Ok(store(&place.state, loaded.roster.store.as_deref()).await) })?,
            ),
            disk_use(&place.state),
            Finding::of("daemon", wait(async { Ok(daemon(&place.state).await) })?),
            Finding::of("clock", clock(Timestamp::now())),
        ];
        findings.extend(wait(async { Ok(agents::look(&loaded.roster).await) })?);
        findings.extend(wait(async { Ok(git::look(&loaded.roster).await) })?);
        findings.extend(environment::look(&loaded.roster, |name| std::env::var_os(name).is_some()));
        findings.extend(sandboxes::look(&loaded.roster));
        findings.extend(starts::look(&loaded.roster, &place.state, &variables, &files));
        let base = place.config.parent().unwrap_or(Path::new(""));
        let setting = Setting::of_base(base, variables).written_by_agents(writable(&loaded.roster));
        let sources = Sources::new(Arc::default(), setting);
        findings.extend(loaded.roster.server.tls.as_ref().map(certificate));
        findings.extend(webhooks(&sources, &loaded.roster));
        findings.extend(hooks::look(&sources, &loaded.roster));
        findings.extend(trust::look(&sources, &loaded.roster));
        findings.extend(wait(async { Ok(work_sources(&sources, &loaded.roster).await) })?);
        if self.json {
            print::json(&findings);
        } else {
            findings.iter().for_each(show);
        }
        let worst = findings.iter().find(|finding| !finding.ok);
        worst.map_or(Ok(()), |finding| Err(Failure::reported(finding.exit)))
    }
}

fn show(finding: &Finding) {
    let mark = match finding {
        Finding { ok: false, .. } => print::styled("FAIL", print::BAD),
        Finding { warning: true, .. } => print::styled("warn", print::ODD),
        _ => print::styled("ok  ", print::GOOD),
    };
    print::line(format!("{mark}  {}: {}", finding.what, finding.detail));
}

fn of_config(loaded: &Loaded) -> Result<String, String> {
    let summary = report::summary(loaded);
    if loaded.errors() == 0 {
        Ok(summary)
    } else {
        Err(format!("{summary}; `cowhand config check` shows where"))
    }
}

fn folder(state: &StateFolder) -> Result<String, String> {
    let path = state.path();
    state.check().map_err(|error| error.to_string())?;
    // One that is not there yet will be made beside the config.
    let there = if path.exists() { path } else { path.parent().unwrap_or(path) };
    match tempfile::tempfile_in(there) {
        Ok(_) => Ok(format!("{} can be written", path.display())),
        Err(error) => Err(format!("{} cannot be written: {error}", there.display())),
    }
}

/// Every job leaves files, and nothing goes by itself unless the config says so.
fn disk_use(state: &StateFolder) -> Finding {
    let measured = files::size(state.path())
        .and_then(|bytes| Ok((bytes, files::entries(&state.jobs())?.count())))
        .map_err(|error| format!("{} cannot be read: {error}", state.path().display()));
    let large = measured.as_ref().is_ok_and(|(bytes, files)| is_large(*bytes, *files));
    let detail = measured.map(|(bytes, files)| {
        let used = format!("{} in the state folder, {files} files of jobs", in_words(bytes));
        let help = "; set `retention` in the config, and see what can go with `cowhand prune --dry-run`";
        if large { used + help } else { used }
    });
    Finding { warning: large, ..Finding::of("disk use", detail) }
}

const fn is_large(bytes: u64, files: usize) -> bool {
    bytes > 1_000_000_000 || files > 10_000
}

async fn store(state: &StateFolder, configured: Option<&str>) -> Result<String, String> {
    // What a daemon has open may be another file by now.
    if let Ok(Some(client)) = Client::of_daemon(state).await
        && let Ok(Status { daemon, .. }) = client.get::<Status>("status").await
        && let Some(problem) = daemon.store_problem
    {
        return Err(problem);
    }
    let database = state.database();
    state.check().map_err(|_| "not looked at, since the state folder is refused".to_owned())?;
    if configured.is_none() && !database.exists() {
        return Ok("not there yet; the first start makes it".to_owned());
    }
    let file = database.display().to_string();
    let store = Store::open(configured.unwrap_or(&file)).await.map_err(|error| error.to_string())?;
    let checked = async {
        store.check_integrity().await?;
        store.check_statements().await
    };
    let checked = checked.await.map_err(|error| error.to_string());
    store.close().await;
    // The address of a server may hold a password.
    let place = if configured.is_some() { "the configured server" } else { &file };
    Ok(format!("{place} answers all {} kinds of question, and what it holds can be read", checked?))
}

async fn daemon(state: &StateFolder) -> Result<String, String> {
    let answer = async {
        let Some(client) = Client::of_daemon(state).await? else { return Ok(None) };
        client.get::<Status>("status").await.map(Some)
    };
    match answer.await {
        Ok(Some(status)) => Ok(format!("running, pid {}", status.daemon.pid.unwrap_or_default())),
        // Looking makes no file.
        Ok(None) if state.is_locked() => {
            Err("one holds the state folder but does not answer; its log may say why".to_owned())
        }
        Ok(None) => Ok("not running; `cowhand start -d` starts it".to_owned()),
        Err(problem) => Err(problem.message),
    }
}

/// A clock that lies in the past fires everything at the wrong time.
fn clock(now: Timestamp) -> Result<String, String> {
    let zone = jiff::tz::TimeZone::system();
    let local = now.to_zoned(zone.clone());
    if local.year() < 2026 {
        return Err(format!("{local:.0} lies in the past; set the clock"));
    }
    match zone.iana_name() {
        Some(name) => Ok(format!("{}, zone {name}", local.strftime("%Y-%m-%d %H:%M:%S"))),
        None => Ok(format!("{}, no zone is set, so cron uses UTC", local.strftime("%Y-%m-%d %H:%M:%S"))),
    }
}

fn certificate(files: &Tls) -> Finding {
    match Certificate::read(files) {
        Ok(certificate) => {
            let (standing, warning) = certificate.standing(Timestamp::now());
            Finding { warning, ..Finding::of("certificate", Ok(standing)) }
        }
        Err(error) => Finding::of("certificate", Err(error.to_string())),
    }
}

/// Whether their secrets are there.
fn webhooks(sources: &Sources, roster: &Roster) -> Vec<Finding> {
    let all = roster.agents.iter().flat_map(|agent| agent.schedules.iter().map(move |own| (agent, own)));
    all.filter_map(|(agent, schedule)| {
        let TriggerConfig::Webhook { secret, secret_env, .. } = &schedule.trigger else { return None };
        let is_missing = |name: &&str| sources.setting().variable(name).is_none();
        let (missing, set): (Vec<&str>, Vec<&str>) = schedule.trigger.secret_names().partition(is_missing);
        let missing = missing.join(", ");
        let found = if secret.is_none() && secret_env.is_none() {
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

/// Whether work can be taken from where the config says.
async fn work_sources(sources: &Sources, roster: &Roster) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (agent, config) in queues::named(roster) {
        let found = match sources.source(agent, config) {
            Ok(source) => tokio::time::timeout(PATIENCE, source.check()).await.unwrap_or_else(|_| {
                vec![work::Finding::problem("answer", format!("none within {} seconds", PATIENCE.as_secs()))]
            }),
            Err(error @ WorkSourceError::GitHubAuth(_)) => vec![work::Finding::of_error("token", &error)],
            Err(error) => vec![work::Finding::of_error("config", &error)],
        };
        findings.extend(found.into_iter().map(|work::Finding { what, verdict, detail }| {
            let what = format!("{} {}, {what}", config.name(), config.place());
            let found = if verdict == Verdict::Problem { Err(detail) } else { Ok(detail) };
            Finding { warning: verdict == Verdict::Warning, ..Finding::of(what, found) }
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_is_more_than_a_gigabyte_or_ten_thousand_files() {
        for (bytes, files, large) in
            [(0, 0, false), (1_000_000_000, 10_000, false), (1_000_000_001, 1, true), (1, 10_001, true)]
        {
            assert_eq!(is_large(bytes, files), large, "{bytes} bytes in {files} files");
        }
    }
}

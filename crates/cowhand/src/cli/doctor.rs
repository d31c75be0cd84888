//! `cowhand doctor`: checks whether this fleet can run on this machine, and names remedies.

use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use cowhand_core::config::interpolate::is_unset_variable;
use cowhand_core::config::problem::Severity;
use cowhand_core::config::{LoadedConfig, report};
use cowhand_core::shell::schedule_word;
use cowhand_core::size::in_words;
use jiff::Timestamp;

use super::location::{FleetLocation, wait};
use super::{Exit, Failure, print, style};
use cowhand_engine::config::{self, FromDisk};
use cowhand_engine::daemon::nodes::other_config_sentence;
use cowhand_engine::daemon::{refuse_taken_node, unsettled_sentence};
use cowhand_engine::doctor::{self, Finding, Subject};
use cowhand_engine::error::{FleetError, OtherStore};
use cowhand_engine::fleet::{ScheduleStatus, ScheduleView};
use cowhand_engine::herdctl::HerdctlFolder;
use cowhand_engine::notification::view::UndeliveredTarget;
use cowhand_engine::prune::files;
use cowhand_engine::state::{StateFolder, StoreMark};
use cowhand_engine::trigger::Registry;
use cowhand_run::sandbox::writable;
use cowhand_store::{Store, StoreError, is_postgres};
use cowhand_system::disk::{DiskProblem, test_write_in};
use cowhand_system::tree;
use cowhand_web::api::{ApiProblem, Client, Code, Page, StatusView};
use cowhand_work::{SourceContext, WorkSources};

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl DoctorArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let location = FleetLocation::find(config)?;
        FleetLocation::without_unsettled_note();
        let FromDisk { loaded, variables, env_notes, files, .. } = config::load(&location.config);
        let daemon_status = wait(async { Ok(ask_daemon(&location.state).await) })?;
        // This advice depends on the free space, so it is built before the check of the store, which can free space on
        // a full disk.
        let how_to_start = location.how_to_start();
        let refusal = wait(async { Ok(location.start_refusal().await) })?;
        let store_check = store(&location, loaded.roster.store.as_deref(), &daemon_status, refusal.as_ref());
        let is_alone = matches!(daemon_status, Ok(None));
        let nodes = other_configs(&daemon_status);
        let mut findings = vec![
            config_finding(&loaded, &location.config, &daemon_status),
            Finding::of("state folder", folder(&location.state, is_alone)),
            Finding::of("store", wait(async { Ok(store_check.await) })?),
            disk_use(&location.state),
            Finding::of("daemon", daemon(refusal.as_ref(), daemon_status, &how_to_start)),
            Finding::of("clock", clock(Timestamp::now())),
        ];
        findings.extend(nodes);
        let (has_config, has_store) = (findings[0].ok, findings[2].ok);
        let views = if has_config && has_store { schedules(&location) } else { Vec::new() };
        findings.extend(views.iter().filter_map(empty_adoption));
        let sentence = if has_store { unsettled_sentence(unsettled(&location)) } else { None };
        findings
            .extend(sentence.map(|sentence| Finding { warning: true, ..Finding::works("jobs", sentence) }));
        findings.extend(herdctl(&location.config));
        let undelivered = if has_store { undelivered(&location) } else { Vec::new() };
        let now = Timestamp::now();
        findings.extend(undelivered.iter().map(|target| {
            Finding::of(format!("notifications to {}", target.target), Err(target.sentence(now)))
        }));
        let note = location.runs_other_file();
        findings.extend(note.map(|note| Finding { warning: true, ..Finding::works("daemon", note) }));
        findings.extend(
            env_notes.into_iter().map(|note| Finding { warning: true, ..Finding::works("variables", note) }),
        );
        findings.extend(
            config::left_by_herdctl(&location.config)
                .map(|note| Finding { warning: true, ..Finding::works("herdctl", note) }),
        );
        let base = location.config.parent().unwrap_or(Path::new(""));
        let context = SourceContext::of_base(base, variables.clone()).writable(writable(&loaded.roster));
        let sources = Arc::new(WorkSources::new(Arc::default(), context));
        let (roster, state) = (Arc::new(loaded.roster), location.state.clone());
        let outside = roster.server.outside();
        let triggers = Registry::default();
        let subject = Subject { roster, state, variables, files, sources, triggers, outside };
        findings.extend(wait(async { Ok(examine(&location.state, subject).await) })?);
        // If a check above already failed for the trigger of a stopped schedule, that finding has the cause and the
        // remedy.
        let is_new =
            |stopped: &Finding| !findings.iter().any(|known| !known.ok && known.what == stopped.what);
        let failing = views.iter().filter_map(|view| failing_trigger(view, is_alone, Timestamp::now()));
        let stopped: Vec<Finding> =
            views.iter().filter_map(stopped_schedule).chain(failing).filter(is_new).collect();
        findings.extend(stopped);
        if self.json {
            print::json(&findings);
        } else {
            findings.iter().for_each(show);
        }
        match findings.iter().any(|finding| !finding.ok) {
            false => Ok(()),
            true if has_config => Err(Failure::reported(Exit::CannotRunHere)),
            true => Err(Failure::reported(Exit::Config)),
        }
    }
}

/// Checks whether agents can start and sources answer. A running daemon makes the checks, because it starts the agents.
/// Without a daemon, this process makes the same checks. If the daemon cannot make them, this process does, and the
/// first finding reports that.
async fn examine(state: &StateFolder, subject: Subject) -> Vec<Finding> {
    let request = async {
        let Some(client) = Client::of_daemon(state).await? else { return Ok(None) };
        client.get::<Page<Finding>>("doctor").await.map(Some)
    };
    match request.await {
        Ok(Some(page)) => page.items,
        Ok(None) => doctor::examine(subject).await,
        Err(problem) => {
            let findings = doctor::examine(subject).await;
            let unanswered = Err(format!(
                "the daemon could not make the checks, so these are the checks of this process: {}",
                problem.message
            ));
            std::iter::once(Finding::of("daemon's environment", unanswered)).chain(findings).collect()
        }
    }
}

fn show(finding: &Finding) {
    let mark = match finding {
        Finding { ok: false, .. } => style::styled("FAIL", style::BAD),
        Finding { warning: true, .. } => style::styled("warn", style::ODD),
        _ => style::styled("ok  ", style::GOOD),
    };
    print::prose(&format!("{mark}  {}: {}", finding.what, finding.detail), 6);
}

/// Returns the schedules of the fleet. Returns no schedules if the fleet does not answer; another check reports that.
fn schedules(location: &FleetLocation) -> Vec<ScheduleView> {
    let views = location.ask(async |client| Ok(client.get::<Page<ScheduleView>>("schedules").await?.items));
    views.unwrap_or_default()
}

/// Returns the number of unsettled jobs. Returns 0 if the fleet does not answer; another
/// check reports that.
fn unsettled(location: &FleetLocation) -> usize {
    let status = location.ask(async |client| Ok(client.get::<StatusView>("status").await?));
    status.map_or(0, |status| status.unsettled)
}

/// Returns the targets whose last notifications could not be delivered. Returns none if the fleet does not answer;
/// another check reports that.
fn undelivered(location: &FleetLocation) -> Vec<UndeliveredTarget> {
    let status = location.ask(async |client| Ok(client.get::<StatusView>("status").await?));
    status.map(|status| status.undelivered_notifications).unwrap_or_default()
}

/// Warns of a schedule whose `adopt` names a schedule that the store does not know.
fn empty_adoption(view: &ScheduleView) -> Option<Finding> {
    let what = format!("schedule {}/{}", view.agent, view.schedule);
    Some(Finding { warning: true, ..Finding::works(what, view.adopt_note.clone()?) })
}

/// Reports an active schedule whose trigger fails.
fn failing_trigger(view: &ScheduleView, is_alone: bool, now: Timestamp) -> Option<Finding> {
    let why = view.failing_trigger(is_alone, now).filter(|_| view.off_in_file.is_none())?;
    let what = format!("schedule {}/{}", view.agent, view.schedule);
    Some(Finding::of(what, Err(format!("its trigger fails, {why}"))))
}

/// Reports a schedule that an error has stopped.
fn stopped_schedule(view: &ScheduleView) -> Option<Finding> {
    if view.status != ScheduleStatus::Error || view.off_in_file.is_some() {
        return None;
    }
    let what = format!("schedule {}/{}", view.agent, view.schedule);
    let error = view.last_error.as_deref().unwrap_or("the reason was not recorded");
    let word = schedule_word(&view.agent, &view.schedule);
    let detail = format!(
        "stopped because of an error: {error}; when the cause has been corrected, `cowhand schedule enable {word}` starts it \
         again"
    );
    Some(Finding::of(what, Err(detail)))
}

/// Checks the config with the environment of this process. A variable that is not set here may be set for a running
/// daemon. So if the daemon accepts the config, it is not an error that variables are not set here.
fn config_finding(loaded: &LoadedConfig, file: &Path, daemon_status: &DaemonStatus) -> Finding {
    let checked = of_config(loaded, file);
    let accepts = |status: &StatusView| status.daemon.config_refused_at.is_none();
    let is_accepted = matches!(daemon_status, Ok(Some(Ok(status))) if accepts(status));
    let mut errors = loaded.problems.iter().filter(|problem| problem.severity == Severity::Error);
    match checked {
        Err(error) if is_accepted && file.exists() && errors.all(is_unset_variable) => {
            let detail =
                format!("the running daemon accepts it; with the environment of this command: {error:#}");
            Finding { warning: true, ..Finding::works("config", detail) }
        }
        checked => Finding::of("config", checked),
    }
}

fn of_config(loaded: &LoadedConfig, file: &Path) -> anyhow::Result<String> {
    let summary = format!("{}: {}", file.display(), report::summary(loaded));
    ensure!(file.exists(), "{} does not exist; put it back", file.display());
    ensure!(loaded.errors() == 0, "{summary}; `cowhand config check` shows where");
    Ok(summary)
}

/// Returns a finding if herdctl runs beside this config, because no daemon can then start.
fn herdctl(config: &Path) -> Option<Finding> {
    let refused = HerdctlFolder::refuse_if_running_beside(config).err()?;
    Some(Finding::of("herdctl", Err::<String, _>(refused)))
}

fn folder(state: &StateFolder, without_daemon: bool) -> anyhow::Result<String> {
    let path = state.path();
    state.check().and_then(|()| state.check_files())?;
    // A start creates a missing state folder beside the config, so that folder has to be writable.
    let existing = if path.exists() { path } else { path.parent().unwrap_or(path) };
    match test_write_in(existing) {
        Ok(()) => Ok(format!("{} can be written", path.display())),
        Err(error) => Err(match DiskProblem::of(error.kind()) {
            Some(problem) if without_daemon => anyhow!(problem.sentence_without_daemon(existing.display())),
            Some(problem) => anyhow!(problem.sentence(existing.display())),
            None => anyhow!("{} cannot be written: {error}", existing.display()),
        }),
    }
}

/// Measures the state folder. Every job leaves files, and the daemon removes them only if the config sets `retention`.
fn disk_use(state: &StateFolder) -> Finding {
    let measured = tree::size(state.path())
        .and_then(|bytes| Ok((bytes, files::entries(&state.jobs())?.count())))
        .map_err(|error| format!("{} cannot be read: {error}", state.path().display()));
    let large = measured.as_ref().is_ok_and(|(bytes, files)| is_large(*bytes, *files));
    let detail = measured.map(|(bytes, files)| {
        let used = format!("{} in the state folder, {files} files of jobs", in_words(bytes));
        let help =
            "; set `retention` in the config, and `cowhand prune --dry-run` lists what would be removed";
        if large { used + help } else { used }
    });
    Finding { warning: large, ..Finding::of("disk use", detail) }
}

const fn is_large(bytes: u64, files: usize) -> bool {
    bytes > 1_000_000_000 || files > 10_000
}

/// Answer of the daemon to a request for its status; `None` if no daemon runs. The outer error is an error of the
/// connection, the inner error an error of the request.
type DaemonStatus = Result<Option<Result<StatusView, ApiProblem>>, ApiProblem>;

/// Warns of running nodes whose config differs from that of the daemon here.
fn other_configs(daemon_status: &DaemonStatus) -> Option<Finding> {
    let Ok(Some(Ok(status))) = daemon_status else { return None };
    let others = &status.daemon.other_configs;
    (!others.is_empty())
        .then(|| Finding { warning: true, ..Finding::works("nodes", other_config_sentence(others)) })
}

/// Asks the daemon for its status. The daemon is asked only once for all findings, because its answer is late if its
/// store does not answer.
async fn ask_daemon(state: &StateFolder) -> DaemonStatus {
    let Some(client) = Client::of_daemon(state).await? else { return Ok(None) };
    Ok(Some(client.get::<StatusView>("status").await))
}

async fn store(
    location: &FleetLocation,
    configured: Option<&str>,
    daemon_status: &DaemonStatus,
    refusal: Option<&FleetError>,
) -> anyhow::Result<String> {
    let state = &location.state;
    // The answer of the daemon counts first, because the file that the daemon has opened may have been replaced by
    // another file with the same path.
    if let Ok(Some(answer)) = daemon_status {
        let status = answer.as_ref().map_err(|problem| anyhow!(problem.message.clone()))?;
        if let Some(problem) = &status.daemon.store_problem {
            bail!(problem.clone());
        }
    }
    if configured.is_some_and(|address| !is_postgres(address)) {
        bail!("not checked, because `store` in the config is not the address of a PostgreSQL server");
    }
    let database = state.database();
    state.check().map_err(|_| anyhow!("not checked, because the state folder is refused"))?;
    let daemon_runs = matches!(daemon_status, Ok(Some(_)));
    if let Some(refusal) = refusal {
        bail!(refusal_text(refusal, daemon_runs));
    }
    let file = database.display().to_string();
    let address = configured.unwrap_or(&file);
    let describe = |error: StoreError| {
        if daemon_runs { anyhow!(error) } else { anyhow!(error.sentence_without_daemon()) }
    };
    let exists = Store::exists(address).await.map_err(describe)?;
    let former = former_store(location, address, daemon_runs).await;
    if !exists {
        return Ok(format!("does not exist yet; the first start creates it{former}"));
    }
    let store = Store::open(address).await.map_err(describe)?;
    let checked = async {
        // `check_statements` prepares statements without values, so PostgreSQL infers the types of the values, which
        // may differ from their real types. `check_integrity` comes first, because it runs some of these statements
        // with values.
        store.check_integrity().await?;
        store.check_statements().await
    };
    let mut checked = checked.await.map_err(describe);
    if checked.is_ok()
        && matches!(daemon_status, Ok(None))
        && !state.is_locked()
        && let Err(error) = refuse_taken_node(&store, state).await
    {
        checked = Err(match error {
            FleetError::Store(error) => describe(error),
            other => other.into(),
        });
    }
    store.close().await;
    // The address of a server may contain a password.
    let name = if configured.is_some() { "the configured server" } else { &file };
    let works = format!("{name}: all {} statements work, and its data can be read", checked?);
    Ok(works + &former)
}

/// Formats a note if the daemon used another store than the one at `address`; empty if it did not.
async fn former_store(location: &FleetLocation, address: &str, daemon_runs: bool) -> String {
    let is_elsewhere = |former: &StoreMark| Store::address_of(address).as_ref() != Some(&former.location);
    let Some(former) = location.former_store().await.filter(is_elsewhere) else { return String::new() };
    let daemon = if daemon_runs { "the running daemon uses" } else { "the last daemon used" };
    format!("; {daemon} another store, {}", former.location)
}

/// Returns the reason why a start is refused because of another store, or a note that the running daemon uses another
/// store than the config names.
pub(super) async fn store_change(location: &FleetLocation, daemon_runs: bool) -> Option<String> {
    let store = config::load(&location.config).loaded.roster.store;
    let address = store.unwrap_or_else(|| location.state.database().display().to_string());
    // A running daemon checks its store itself, so the server is not asked if the address is the same.
    let mark = location.state.store_mark().ok().flatten();
    if daemon_runs && mark.is_none_or(|mark| Store::address_of(&address) == Some(mark.location)) {
        return None;
    }
    if let Some(refusal) = location.start_refusal().await {
        return Some(refusal_text(&refusal, daemon_runs));
    }
    let former = if daemon_runs { former_store(location, &address, true).await } else { String::new() };
    former.strip_prefix("; ").map(str::to_owned)
}

/// Formats the reason why a start is refused. The text advises to start the daemon of the former store, unless that
/// daemon runs.
fn refusal_text(refusal: &FleetError, daemon_runs: bool) -> String {
    match refusal {
        FleetError::OtherStore(other) => OtherStore { daemon_runs, ..OtherStore::clone(other) }.to_string(),
        other => other.to_string(),
    }
}

fn daemon(
    refusal: Option<&FleetError>,
    daemon_status: DaemonStatus,
    how_to_start: &str,
) -> anyhow::Result<String> {
    match daemon_status.and_then(Option::transpose) {
        Ok(Some(status)) => {
            let pid = status.daemon.pid.unwrap_or_default();
            Ok(format!("running, pid {pid}; agents and sources are shown as the daemon sees them"))
        }
        Ok(None) if refusal.is_some() => Ok("not running, and cannot start; see `store` above".to_owned()),
        Ok(None) => Ok(format!("not running; {how_to_start}")),
        Err(problem) if problem.code == Code::StoreUnavailable => {
            Ok("running, but its store cannot be read".to_owned())
        }
        Err(problem) => bail!(problem.message),
    }
}

/// Checks the clock and the time zone. If the clock is set to the past, everything fires at the wrong time.
fn clock(now: Timestamp) -> anyhow::Result<String> {
    let zone = jiff::tz::TimeZone::system();
    let local = now.to_zoned(zone.clone());
    ensure!(local.year() >= 2026, "the clock shows {local:.0}, which is in the past; set the clock");
    let local = local.strftime("%Y-%m-%d %H:%M:%S");
    let tz_variable = std::env::var("TZ").ok().filter(|tz_variable| !tz_variable.is_empty());
    match (zone.iana_name().filter(|_| !zone.is_unknown()), tz_variable) {
        (Some(name), _) => Ok(format!("{local}, zone {name}")),
        (None, Some(tz_variable)) if zone.is_unknown() => Err(anyhow!(
            "TZ is {tz_variable:?}, which is not a known time zone, so cron uses UTC; set it to a name such as Europe/Berlin"
        )),
        (None, Some(tz_variable)) => Ok(format!("{local}, zone {tz_variable}")),
        (None, None) => Ok(format!("{local}, no zone is set, so cron uses UTC")),
    }
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

//! Starts a daemon in the background, where it outlives the command that starts it. Other verbs use this file to wait
//! for the end of a daemon.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cowhand_core::config::report;
use cowhand_core::event::Event;
use jiff::Timestamp;
use rustix::fs::{MemfdFlags, memfd_create};

use super::advice::with_config_option;
use super::location::{FleetLocation, cannot, wait};
use super::spinner::Spinner;
use super::start::DETACHED_FLAG;
use super::start_options::StartOptions;
use super::{Exit, Failure, interrupt, print};
use cowhand_engine::config::{self, FromDisk};
use cowhand_engine::error::state_folder_advice;
use cowhand_engine::herdctl::HerdctlFolder;
use cowhand_run::descriptors;
use cowhand_run::process::ProcessIdentity;
use cowhand_store::Imported;
use cowhand_web::api::{ApiProblem, Client, DaemonView, LINK_VALID_MINUTES, LoginLink, Page, StatusView};

/// Time between two checks whether a daemon answers or has ended.
pub(super) const POLL_DAEMON_EVERY: Duration = Duration::from_millis(50);
/// Time after the start of a daemon in which errors of requests to it are ignored.
const IGNORE_ERRORS_FOR: Duration = Duration::from_secs(10);

/// Starts a daemon in the background. Returns when it is ready, or an error with the reason why it does not start.
pub(super) fn start(
    location: &FleetLocation,
    options: &StartOptions,
    fresh: bool,
    json: bool,
) -> Result<(), Failure> {
    show_warnings(location);
    if let Some(note) = config::left_by_herdctl(&location.config) {
        print::note(note);
    }
    let default_address = options.listen.default_address(&location.config);
    let mut arguments = options.arguments();
    if fresh {
        arguments.push("--fresh".to_owned());
    }
    location.refuse_silent_daemon()?;
    location.state.create().map_err(|error| unusable(location, &error))?;
    let log = location.state.log();
    let log_offset = fs::metadata(&log).map_or(0, |log| log.len());
    let start_time = Timestamp::now();
    let started = spawn(location, &arguments)?;
    let ready = async {
        let spinner = Spinner::new("starting");
        interrupt::unless_interrupted(
            spinner.during(wait_until_ready(location, started, log_offset)),
            Some(DAEMON_MAY_STILL_START),
        )
        .await
    };
    let daemon = wait(ready)?;
    print::remember_done(format!("the daemon was started, pid {}", daemon.pid.unwrap_or_default()));
    if json {
        print::json(&daemon);
    } else {
        print::line(ready_line(daemon.url.as_deref()));
    }
    if let (Some(default_address), Some(url)) = (default_address, &daemon.url)
        && !url.ends_with(&default_address.to_string())
    {
        print::note(other_address(default_address, url));
    }
    if HerdctlFolder::beside(&location.config).is_some() {
        print_import(location, start_time)?;
    }
    if daemon.url.is_some() && io::stdout().is_terminal() && !json {
        print_link(&location.ask(async |client| Ok(client.post("login", &()).await?))?);
    }
    Ok(())
}

/// Prints what this start imported from herdctl. Only the first events of the fleet are read, because the events of the
/// import are among them.
fn print_import(location: &FleetLocation, start_time: Timestamp) -> Result<(), Failure> {
    let events: Page<Event> =
        location.ask(async |client| Ok(client.get("events?after=0&limit=1000").await?))?;
    let imported = events.items.iter().filter(|event| event.at >= start_time);
    imported.filter_map(|event| Imported::of(&event.fact)).for_each(print::note);
    Ok(())
}

/// Prints the notes about the `.env`, and the warnings of `config check`. If the config has errors, no warnings are
/// printed: the daemon does not start and reports the errors.
fn show_warnings(location: &FleetLocation) {
    let FromDisk { loaded, env_notes, .. } = config::load(&location.config);
    env_notes.iter().for_each(print::note);
    if loaded.errors() == 0 && loaded.warnings() > 0 {
        let current_dir = std::env::current_dir().unwrap_or_default();
        print::stderr(&with_config_option(&report::render(&loaded, &current_dir, true)));
    }
}

/// Formats the note that the server does not listen at its default address.
pub(super) fn other_address(default_address: SocketAddr, url: &str) -> String {
    format!(
        "{default_address} is taken by another program, so the server listens at {url}; `server.listen` chooses a port"
    )
}

/// Prints the login link, but only to a terminal, so that a file with the output contains no login link.
pub(super) fn print_link(link: &LoginLink) {
    if io::stdout().is_terminal() {
        // An error is ignored, because the terminal may be closed. `cowhand dashboard` creates another link.
        let url = &link.url;
        let text = format!("dashboard {url} (works once, within {LINK_VALID_MINUTES} minutes)");
        let _ = print::try_line(text);
    }
}

/// Formats the first line that every daemon prints: `ready`, with the address of its server if it has one.
pub(super) fn ready_line(url: Option<&str>) -> String {
    url.map_or_else(|| "ready".to_owned(), |url| format!("ready {url}"))
}

const DAEMON_MAY_STILL_START: &str = "the daemon may still start; `cowhand status` shows whether it runs";

async fn wait_until_ready(
    location: &FleetLocation,
    StartedDaemon { mut child, failure }: StartedDaemon,
    log_offset: u64,
) -> Result<DaemonView, Failure> {
    let deadline = Instant::now() + IGNORE_ERRORS_FOR;
    loop {
        if let Some(status) =
            child.try_wait().map_err(|error| cannot("cannot wait for the daemon", &error))?
        {
            let reason = [read_failure(failure), tail(location, log_offset)];
            let reason = reason.iter().map(|text| text.trim()).find(|text| !text.is_empty());
            let log = location.state.log();
            let reason = reason.map_or_else(
                || format!("the daemon ended ({status}) without a message; see its log {}", log.display()),
                str::to_owned,
            );
            return Err(Failure::new(Exit::of_code(status.code()), reason));
        }
        match daemon(location).await {
            Ok(Some(daemon)) if daemon.pid == Some(child.id()) => return Ok(daemon),
            // Until the deadline, errors are ignored, because the daemon is still starting.
            Err(problem) if Instant::now() > deadline => return Err(problem.into()),
            Ok(_) | Err(_) => {}
        }
        tokio::time::sleep(POLL_DAEMON_EVERY).await;
    }
}

struct StartedDaemon {
    child: Child,
    /// File in memory to which the daemon writes why it does not start. The log is not enough: it may be on a full
    /// disk, and it also contains the messages of other daemons that are started at the same time.
    failure: fs::File,
}

/// Reads why the daemon did not start; empty if it ended without a message, for example by a signal.
fn read_failure(mut file: fs::File) -> String {
    let mut text = String::new();
    match file.rewind().and_then(|()| file.read_to_string(&mut text)) {
        Ok(_) => text,
        Err(error) => format!("the daemon ended, and its message cannot be read: {error}"),
    }
}

fn spawn(location: &FleetLocation, arguments: &[String]) -> Result<StartedDaemon, Failure> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(location.state.log());
    let log = log.map_err(|error| {
        cannot(&format!("cannot write the log {}", location.state.log().display()), &error)
    })?;
    let program =
        std::env::current_exe().map_err(|error| cannot("cannot find the path of this program", &error))?;
    // If the daemon inherited all descriptors of this process, a pipe of the caller's shell would stay open until the
    // daemon ends.
    descriptors::close_on_exec().map_err(|error| cannot("cannot close descriptors", &error))?;
    let not_started = |error: io::Error| cannot("cannot start the daemon", &error);
    let failure = memfd_create("start", MemfdFlags::CLOEXEC)
        .map_err(|error| not_started(error.into()))
        .map(fs::File::from)?;
    let stdout = failure.try_clone().map_err(not_started)?;
    let child = Command::new(program)
        .arg("-c")
        .arg(&location.config)
        .arg("start")
        .arg(format!("--{DETACHED_FLAG}"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(log)
        .spawn()
        .map_err(not_started)?;
    Ok(StartedDaemon { child, failure })
}

async fn daemon(location: &FleetLocation) -> Result<Option<DaemonView>, ApiProblem> {
    let Some(client) = Client::of_answering_daemon(&location.state).await? else { return Ok(None) };
    Ok(Some(client.get::<StatusView>("status").await?.daemon))
}

/// Returns the reason why the daemon ended: the error in its log after the offset `from`.
fn tail(location: &FleetLocation, from: u64) -> String {
    let mut text = String::new();
    let read = fs::File::open(location.state.log()).and_then(|mut log| {
        log.seek(SeekFrom::Start(from))?;
        log.read_to_string(&mut text)
    });
    match read {
        Ok(_) => last_error(&text),
        Err(error) => format!("the daemon ended, and its log cannot be read: {error}"),
    }
}

/// Returns the error with which a daemon ended, from its log in text or JSON. Returns the whole log if it contains no
/// error.
fn last_error(log: &str) -> String {
    let as_json = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok();
    let message = |line: &str| Some(as_json(line)?.get("message")?.as_str()?.to_owned());
    let is_error = |line: &&str| as_json(line).is_some_and(|json| json["level"] == "ERROR");
    if let Some(error) = log.lines().rfind(is_error).and_then(message) {
        return error;
    }
    let lines: Vec<&str> = log.lines().collect();
    let from = lines.iter().position(|line| line.starts_with("error: ")).unwrap_or_default();
    let readable = |line: &&str| message(line).unwrap_or_else(|| (*line).to_owned());
    lines[from..].iter().map(readable).collect::<Vec<_>>().join("\n")
}

/// Builds the failure for a state folder that cannot be used.
pub(super) fn unusable(location: &FleetLocation, error: &io::Error) -> Failure {
    let (folder, advice) = (location.state.path().display(), state_folder_advice(error));
    Failure::new(Exit::CannotRunHere, format!("cannot use the state folder {folder}: {error}{advice}"))
}

/// Waits until the state folder is not locked and the process, if known, has ended. Returns whether both happened in
/// time.
pub(super) async fn wait_until_stopped(
    location: &FleetLocation,
    process: Option<ProcessIdentity>,
    timeout: Duration,
) -> Result<bool, Failure> {
    let deadline = Instant::now() + timeout;
    loop {
        match location.state.lock() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() >= deadline => return Ok(false),
            Ok(None) => tokio::time::sleep(POLL_DAEMON_EVERY).await,
            Err(error) => return Err(cannot("cannot check the lock of the state folder", &error)),
        }
    }
    let Some(process) = process else { return Ok(true) };
    loop {
        match process.lives() {
            Ok(false) => return Ok(true),
            Ok(true) if Instant::now() >= deadline => return Ok(false),
            Ok(true) => tokio::time::sleep(POLL_DAEMON_EVERY).await,
            Err(error) => return Err(cannot("cannot check the process of the daemon", &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::last_error;

    #[test]
    fn only_the_error_is_returned() {
        let warned = "2026-11-16T15:00:00Z  WARN fleet.yaml: odd\n";
        for (log, expected) in [
            (format!("{warned}error: cannot listen\n  on 1"), "error: cannot listen\n  on 1"),
            ("killed".to_owned(), "killed"),
            (
                "{\"level\":\"WARN\",\"message\":\"odd\"}\n{\"level\":\"ERROR\",\"message\":\"cannot listen\"}\n"
                    .to_owned(),
                "cannot listen",
            ),
            ("{\"level\":\"WARN\",\"message\":\"odd\"}".to_owned(), "odd"),
        ] {
            assert_eq!(last_error(&log), expected, "{log}");
        }
    }
}

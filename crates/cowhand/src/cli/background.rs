//! A daemon that outlives the command that started it, and waiting for one that goes.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cowhand_core::config::report;
use cowhand_core::event::Event;
use jiff::Timestamp;

use super::listen::Listen;
use super::place::{Place, cannot, wait};
use super::spinner::Spinner;
use super::{Exit, Failure, interrupt, print};
use crate::api::{Client, DaemonView, LoginLink, Page, Problem, Status};
use crate::config;
use crate::herdctl::HerdctlFolder;
use crate::store::Imported;

const LOOK: Duration = Duration::from_millis(50);
/// For so long a socket may be there at which nobody answers.
const UNANSWERED: Duration = Duration::from_secs(10);

/// Answers when the daemon does, or says why it does not.
pub(super) fn start(place: &Place, listen: &Listen, more: &[String]) -> Result<(), Failure> {
    show_warnings(place);
    let usual = listen.default_address(&place.config);
    let arguments = [&listen.arguments(), more].concat();
    place.state.create().map_err(|error| cannot("cannot use the state folder", &error))?;
    let log = place.state.log();
    let said = fs::metadata(&log).map_or(0, |log| log.len());
    let began = Timestamp::now();
    let child = spawn(place, &arguments)?;
    let ready = async {
        let spinner = Spinner::new("starting");
        interrupt::unless(spinner.during(ready(place, child, said)), Some(GOES_ON)).await
    };
    let daemon = wait(ready)?;
    print::line(ready_line(daemon.url.as_deref()));
    if let (Some(usual), Some(url)) = (usual, &daemon.url)
        && !url.ends_with(&usual.to_string())
    {
        print::note(other_address(usual, url));
    }
    if HerdctlFolder::beside(&place.config).is_some() {
        print_import(place, began)?;
    }
    if daemon.url.is_some() && io::stdout().is_terminal() {
        print_link(&place.ask(async |client| Ok(client.post("login", &()).await?))?);
    }
    Ok(())
}

/// Prints what a start imported from herdctl. It is among the first events of a fleet.
fn print_import(place: &Place, began: Timestamp) -> Result<(), Failure> {
    let events: Page<Event> =
        place.ask(async |client| Ok(client.get("events?after=0&limit=1000").await?))?;
    let imported = events.items.iter().filter(|event| event.at >= began);
    imported.filter_map(|event| Imported::of(&event.fact)).for_each(print::note);
    Ok(())
}

/// Shows what `config check` warns of. Errors are told by the daemon, which does not start.
fn show_warnings(place: &Place) {
    let loaded = config::load(&place.config).loaded;
    if loaded.errors() == 0 && loaded.warnings() > 0 {
        let here = std::env::current_dir().unwrap_or_default();
        anstream::eprintln!("{}", report::render(&loaded, &here, true));
    }
}

/// Says that the server does not listen where it usually does.
pub(super) fn other_address(usual: SocketAddr, url: &str) -> String {
    format!(
        "{usual} is taken by another program, so the server listens at {url}; `server.listen` chooses a port"
    )
}

/// For the person at the terminal: whoever keeps what we print in a file is not to have a way in there.
pub(super) fn print_link(link: &LoginLink) {
    if io::stdout().is_terminal() {
        print::line(format!("dashboard {} (works once, within ten minutes)", link.url));
    }
}

/// The first line of every daemon: it takes work, and where.
pub(super) fn ready_line(url: Option<&str>) -> String {
    url.map_or_else(|| "ready".to_owned(), |url| format!("ready {url}"))
}

const GOES_ON: &str = "the daemon may come up all the same; `cowhand status` tells";

async fn ready(place: &Place, mut child: Child, said: u64) -> Result<DaemonView, Failure> {
    let patience = Instant::now() + UNANSWERED;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| cannot("lost the daemon", &error))? {
            return Err(Failure::new(Exit::of_code(status.code()), tail(place, said).trim()));
        }
        match daemon(place).await {
            Ok(Some(daemon)) if daemon.pid == Some(child.id()) => return Ok(daemon),
            // One that was killed a moment ago may still hold the socket.
            Err(problem) if Instant::now() > patience => return Err(problem.into()),
            Ok(_) | Err(_) => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn spawn(place: &Place, arguments: &[String]) -> Result<Child, Failure> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(place.state.log());
    let log = log.map_err(|error| cannot("cannot write the log", &error))?;
    let program = std::env::current_exe().map_err(|error| cannot("where is this program", &error))?;
    Command::new(program)
        .arg("-c")
        .arg(&place.config)
        .args(["start", "--behind"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|error| cannot("cannot start the daemon", &error))
}

async fn daemon(place: &Place) -> Result<Option<DaemonView>, Problem> {
    let Some(client) = Client::of_daemon(&place.state).await? else { return Ok(None) };
    Ok(Some(client.get::<Status>("status").await?.daemon))
}

/// What the log says since it was this long.
fn tail(place: &Place, from: u64) -> String {
    let mut text = String::new();
    let read = fs::File::open(place.state.log()).and_then(|mut log| {
        log.seek(SeekFrom::Start(from))?;
        log.read_to_string(&mut text)
    });
    match read {
        Ok(_) => text.lines().map(readable).collect::<Vec<_>>().join("\n"),
        Err(error) => format!("the daemon ended, and its log cannot be read: {error}"),
    }
}

/// With `--log-format json`, what a line says without the rest of it.
fn readable(line: &str) -> String {
    let json = serde_json::from_str::<serde_json::Value>(line).ok();
    let message = json.as_ref().and_then(|json| json.get("message")?.as_str());
    message.unwrap_or(line).to_owned()
}

/// Until nobody holds the state folder; says whether that came in time.
pub(super) async fn gone(place: &Place, patience: Duration) -> Result<bool, Failure> {
    let until = Instant::now() + patience;
    loop {
        match place.state.lock() {
            Ok(Some(_)) => return Ok(true),
            Ok(None) if Instant::now() >= until => return Ok(false),
            Ok(None) => tokio::time::sleep(LOOK).await,
            Err(error) => return Err(cannot("cannot look at the state folder's lock", &error)),
        }
    }
}

//! `cowhand start`: runs the daemon, in the foreground or the background.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cowhand_core::server::ServerConfig as Settings;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, warn};

use super::listen::ListenArgs;
use super::location::{FleetLocation, cannot};
use super::log::{self, LogFormat};
use super::node_args::NodeArgs;
use super::start_options::{DEFAULT_STOP_TIMEOUT, StartOptions};
use super::threads::daemon_runtime;
use super::{Exit, Failure, background, number};
use cowhand_engine::chat::ChatService;
use cowhand_engine::config::{self, ConfigWatch, FromDisk};
use cowhand_engine::fleet::{AgentSource, Fleet, FleetError, Options, Stop};
use cowhand_engine::herdctl::HerdctlError;
use cowhand_engine::state::StateFolder;
use cowhand_engine::trigger;
use cowhand_system::blocking::run_blocking;
use cowhand_system::clock::Clock;
use cowhand_web::api::{Api, Socket};
use cowhand_web::server::{HttpListener, JobSocket, ListenError};
use cowhand_work as work;

/// Name of the option with which cowhand starts the background daemon.
pub(super) const DETACHED_FLAG: &str = "internal-detached-daemon";

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(super) struct StartArgs {
    /// Run in the background, and return when the daemon is ready
    #[arg(short, long, visible_alias = "background")]
    detach: bool,
    /// Time for running jobs to finish after a signal, before they are cancelled
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_STOP_TIMEOUT, value_parser = number::seconds)]
    stop_timeout: u64,
    /// On the first start with a herdctl.yaml, do not import the state in .herdctl
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// Format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Print the background daemon as JSON
    #[arg(long, requires = "detach")]
    json: bool,
    /// Mark this process as the background daemon; set by cowhand, not by a person
    #[arg(long = DETACHED_FLAG, hide = true)]
    is_detached: bool,
}

impl StartArgs {
    /// Checks whether this process is the background daemon.
    pub(super) const fn is_background(&self) -> bool {
        self.is_detached
    }

    pub(super) fn run(mut self, config: Option<&Path>) -> Result<(), Failure> {
        self.node = self.node.with_environment()?;
        if self.detach {
            let (location, note) = FleetLocation::search(config)?;
            location.refuse_second_daemon(&config::load(&location.config).files)?;
            location.note(note);
            return background::start(&location, &self.start_options(), self.fresh, self.json);
        }
        log::begin(self.log_format);
        let (as_json, is_background) = (matches!(self.log_format, LogFormat::Json), self.is_detached);
        self.run_here(config).map_err(|failure| {
            if is_background {
                failure.print_for_starter();
            }
            if as_json { failure.into_log() } else { failure }
        })
    }

    fn start_options(&self) -> StartOptions {
        StartOptions {
            listen: self.listen.clone(),
            stop_timeout: Some(self.stop_timeout),
            log_format: Some(self.log_format),
            node: self.node.clone(),
            config: None,
        }
    }

    fn run_here(self, config: Option<&Path>) -> Result<(), Failure> {
        let (location, note) = FleetLocation::search(config)?;
        // A large config takes a while, so it is read only once.
        let read = config::load(&location.config);
        location.refuse_second_daemon(&read.files)?;
        location.note(note);
        if self.is_detached {
            // Leave the terminal's session, so that closing the terminal does not end the daemon.
            rustix::process::setsid()
                .map_err(|error| cannot("cannot detach from the terminal", &error.into()))?;
        } else {
            location.refuse_silent_daemon()?;
        }
        let program = std::env::current_exe()
            .map_err(|error| cannot("cannot find the path of this program", &error))?;
        let files = ConfigWatch::new(&read.watched);
        let start_options = StartOptions { config: Some(location.config.clone()), ..self.start_options() };
        let server = self.listen.server_of(&read.loaded);
        let (agents, state) = (AgentSource::Config(location.config), location.state);
        let (work_sources, triggers) = (work::SourceRegistry::default(), trigger::Registry::default());
        let options = Options {
            agents,
            state,
            clock: Clock::System,
            program,
            work_sources,
            triggers,
            fresh: self.fresh,
            node: self.node.options(),
        };
        let runtime = daemon_runtime().map_err(|error| cannot("cannot start the Tokio runtime", &error))?;
        let stop = Stop::Finish { timeout: Duration::from_secs(self.stop_timeout) };
        runtime.block_on(serve(options, read, server, files, stop, start_options))
    }
}

async fn serve(
    options: Options,
    read: FromDisk,
    server: Option<Settings>,
    mut files: ConfigWatch,
    stop: Stop,
    start_options: StartOptions,
) -> Result<(), Failure> {
    let listen = |kind| signal(kind).map_err(|error| cannot("cannot listen to signals", &error));
    // The handlers are installed before the fleet starts, so that a signal cannot kill a daemon that has begun to work.
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let listener = match server {
        Some(settings) => Some(bind(settings, &options.state).await?),
        None => None,
    };
    let url = listener.as_ref().map(HttpListener::url);
    let fleet = Arc::new(Fleet::start_with(options, Some(read)).await?);
    if let Err(error) = start_options.write(fleet.state_folder()) {
        warn!("cannot store the options of this start, so `cowhand restart` will not use them: {error}");
    }
    let api = Api::of_fleet(Arc::clone(&fleet)).at(url.clone());
    let socket = Socket::open(api.clone());
    let socket = socket.map_err(|error| Failure::new(Exit::CannotRunHere, error.to_string()))?;
    let job_socket = JobSocket::open(&api);
    let job_socket = job_socket.map_err(|error| Failure::new(Exit::CannotRunHere, error.to_string()))?;
    let chat = ChatService::start(Arc::clone(&fleet));
    let link = url.is_some().then(|| api.login_link());
    let server = listener.map(|listener| listener.serve(api, Arc::clone(&fleet), cowhand_dashboard::router));
    // An error is only logged, because the daemon does not need a reader of its output.
    if let Err(error) = super::print::try_line(background::ready_line(url.as_deref())) {
        warn!("the daemon is ready, but standard output cannot be written: {error}");
    }
    if let Some(link) = link.transpose()? {
        background::print_link(&link);
    }
    let mut ended = Box::pin(fleet.ended());
    loop {
        tokio::select! {
            ended = &mut ended => {
                // Close the sockets while the state folder is still locked: the next daemon creates its own. If this
                // daemon has lost its state folder, the sockets at these paths may belong to another daemon.
                if !matches!(ended, Err(FleetError::HomeGone { .. } | FleetError::HomeTaken { .. })) {
                    socket.close().await;
                    job_socket.close().await;
                }
                if let Some(server) = server {
                    server.close().await;
                }
                chat.close().await;
                fleet.store().clone().close().await;
                return Ok(ended?);
            }
            _ = interrupt.recv() => fleet.begin_stop(stop),
            _ = terminate.recv() => fleet.begin_stop(stop),
            _ = hangup.recv() => reload(&fleet).await,
            () = files.change() => {
                reload(&fleet).await;
                // The config may now have other files.
                let read = fleet.watched_files();
                files = run_blocking(move || ConfigWatch::new(&read)).await;
            }
        }
    }
}

/// Binds the server's address. If the address cannot be bound and a daemon of this fleet runs, the error is that this
/// daemon runs. If another program uses the address, and neither the config nor the command line has chosen the
/// address, binds a free port instead.
async fn bind(settings: Settings, state: &StateFolder) -> Result<HttpListener, Failure> {
    let listen_failure = |error: ListenError| Failure::new(Exit::CannotRunHere, error.to_string());
    let (default_address, is_chosen) = (settings.listen, settings.listen_chosen);
    let free_port = Settings { listen: SocketAddr::new(default_address.ip(), 0), ..settings.clone() };
    match (HttpListener::bind(settings).await, state.lock()) {
        (Err(ListenError::CannotBind { .. }), Ok(None)) => {
            Err(FleetError::AlreadyRunning(state.path().display().to_string()).into())
        }
        (Err(ListenError::CannotBind { source, .. }), _)
            if !is_chosen && source.kind() == ErrorKind::AddrInUse =>
        {
            let listener = HttpListener::bind(free_port).await.map_err(listen_failure)?;
            warn!("{}", background::other_address(default_address, &listener.url()));
            Ok(listener)
        }
        (bound, _) => bound.map_err(listen_failure),
    }
}

async fn reload(fleet: &Fleet) {
    if let Err(error) = fleet.reload().await {
        error!("the config was refused, and the previous config stays in use: {error}");
    }
}

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Self {
        let exit = match error {
            FleetError::AlreadyRunning(_) | FleetError::Herdctl(HerdctlError::Running { .. }) => {
                Exit::Refused
            }
            FleetError::Config(_) => Exit::Config,
            _ => Exit::CannotRunHere,
        };
        // No daemon runs here, so nothing continues by itself.
        let message = match &error {
            FleetError::Store(error) => error.sentence_without_daemon(),
            _ => error.to_string(),
        };
        Self::new(exit, message)
    }
}

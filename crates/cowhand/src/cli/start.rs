//! `cowhand start`: the daemon, in the foreground.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing_subscriber::EnvFilter;

use super::{Exit, Failure};
use crate::clock::Clock;
use crate::config;
use crate::daemon::{Daemon, Options, StartError, Stop};
use crate::state::StateFolder;

#[derive(Debug, Args)]
pub(super) struct Start {
    /// How long running jobs may finish after a signal, before they are cancelled
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    stop_timeout: u64,
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Start {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let here =
            std::env::current_dir().map_err(|error| Failure::new(Exit::CannotRunHere, error.to_string()))?;
        let found =
            config::find(config, &here).map_err(|error| Failure::new(Exit::Config, format!("{error:#}")))?;
        let program =
            std::env::current_exe().map_err(|error| Failure::new(Exit::CannotRunHere, error.to_string()))?;
        self.log();
        if let Some(note) = &found.note {
            tracing::warn!("{note}");
        }
        let options = Options {
            state: StateFolder::beside(&found.file),
            config: found.file,
            clock: Clock::System,
            program,
        };
        let runtime = tokio::runtime::Runtime::new()
            .map_err(|error| Failure::new(Exit::CannotRunHere, error.to_string()))?;
        runtime.block_on(serve(options, Duration::from_secs(self.stop_timeout)))
    }

    fn log(&self) {
        let filter =
            EnvFilter::try_from_env("COWHAND_LOG").unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
        let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_ansi(colour);
        let log = log.with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => log.init(),
            LogFormat::Json => log.json().init(),
        }
    }
}

async fn serve(options: Options, patience: Duration) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| Failure::new(Exit::CannotRunHere, error.to_string());
    // Before anything runs, so that a signal can never kill a daemon that has begun.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let daemon = Daemon::open(options).await.map_err(|error| start_failure(&error))?;
    anstream::println!("ready");
    let (tell, stop) = watch::channel(Stop::No);
    let running = tokio::spawn(daemon.run(stop));
    tokio::pin!(running);
    loop {
        tokio::select! {
            ended = &mut running => {
                return ended.map_err(|error| Failure::new(Exit::CannotRunHere, format!("the daemon failed: {error}")));
            }
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // The first signal lets jobs finish, the second cancels them, the third kills them.
        tell.send_modify(|stop| {
            *stop = match *stop {
                Stop::No => Stop::Drain { until: Instant::now() + patience },
                _ => Stop::Now,
            };
        });
    }
}

fn start_failure(error: &StartError) -> Failure {
    let exit = match error {
        StartError::AlreadyRunning(_) => Exit::Refused,
        StartError::Config(_) => Exit::Config,
        StartError::State { .. } | StartError::Store(_) => Exit::CannotRunHere,
    };
    Failure::new(exit, error.to_string())
}

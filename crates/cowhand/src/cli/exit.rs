//! The documented exit codes of verbs, and the type with which every verb reports a failure.

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};

use super::advice::with_config_option;
use super::print;
use cowhand_web::api::{ApiProblem, Code};

/// Exit code of a verb; scripts can rely on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    JobFailed = 1,
    Usage = 2,
    Config = 3,
    NoDaemon = 4,
    Refused = 5,
    CannotRunHere = 6,
    Interrupted = 130,
}

pub(super) const EXIT_CODES_HELP: &str = "Exit codes: 0 ok, 1 the job failed, 2 usage, 3 config, 4 no daemon, 5 refused, \
                               6 cannot run here (store, disk, permissions), 130 interrupted";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// Converts the exit code of a child process that runs the same program and has failed. An unknown code, and the
    /// end by a signal, become `CannotRunHere`.
    pub(super) fn of_code(code: Option<i32>) -> Self {
        let all = [Self::JobFailed, Self::Usage, Self::Config, Self::NoDaemon, Self::Refused];
        all.into_iter().find(|exit| Some(*exit as i32) == code).unwrap_or(Self::CannotRunHere)
    }
}

/// Failure of a verb: a reason for the user, and the exit code.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    /// None if the reason is already printed.
    message: Option<String>,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: Some(message.into()) }
    }

    /// Builds a failure whose reason is already printed.
    pub fn reported(exit: Exit) -> Self {
        Self { exit, message: None }
    }

    /// Appends a line to the message.
    pub(super) fn with_line(mut self, more: &str) -> Self {
        self.message =
            Some(self.message.map_or_else(|| more.to_owned(), |message| format!("{message}\n{more}")));
        self
    }

    /// Returns the message, for a verb that continues after the failure.
    pub(super) fn into_message(self) -> String {
        self.message.unwrap_or_default()
    }

    pub(super) fn has_exit(&self, exit: Exit) -> bool {
        self.exit == exit
    }

    pub(super) fn was_interrupted(&self) -> bool {
        self.has_exit(Exit::Interrupted)
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Writes the message to the log, and returns a failure without a message. A daemon with a log in JSON must not
    /// write other text to standard error.
    pub(super) fn into_log(self) -> Self {
        if let Some(message) = &self.message {
            tracing::error!("{message}");
        }
        Self::reported(self.exit)
    }

    /// Writes the message to standard output, where `start -d` reads it.
    pub(super) fn print_for_starter(&self) {
        if let Some(message) = &self.message {
            // An error is ignored, because the message is also written to the log.
            let _ = print::try_line(message);
        }
    }

    pub(super) fn report(&self) -> ExitCode {
        let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        if let Some(message) = self.message.as_deref().map(with_config_option) {
            // A report of the config or of a background daemon already begins with `error: `, or with a warning before
            // the first error, perhaps in colour.
            let text = anstream::adapter::strip_str(&message).to_string();
            if ["error: ", "warning: "].iter().any(|kind| text.starts_with(kind)) {
                print::stderr(&message);
            } else {
                print::stderr(&format!("{red}error{red:#}: {message}"));
            }
        }
        self.exit.into()
    }
}

impl From<ApiProblem> for Failure {
    fn from(problem: ApiProblem) -> Self {
        let exit = match problem.code {
            Code::BadRequest | Code::BadMethod | Code::TooSlow | Code::NotAWebhook => Exit::Usage,
            Code::Unauthorized
            | Code::Forbidden
            | Code::Misdirected
            | Code::TooLarge
            | Code::TooMany
            | Code::NotFound
            | Code::Conflict
            | Code::AlreadyStopped
            | Code::Stopping => Exit::Refused,
            Code::BadConfig => Exit::Config,
            Code::NoDaemon => Exit::NoDaemon,
            Code::Unavailable | Code::StoreUnavailable | Code::Busy => Exit::CannotRunHere,
        };
        Self::new(exit, problem.message)
    }
}

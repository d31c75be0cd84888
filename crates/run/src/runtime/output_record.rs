//! The parts of an agent's output that the readers of all runtimes keep, and the outcome that follows from them and the
//! exit status.

use cowhand_core::cut::cut;
use cowhand_core::job::{ErrorKind, FailReason, JobError, Outcome};
use cowhand_core::output::OutputMessage;
use cowhand_core::provider::WindowReport;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::result_line::ResultLine;
use crate::ending::ExitStatus;

/// Maximum length of the text that `one_line` returns.
const MAX_OUTPUT_LINE_BYTES: usize = 300;

/// Beginning of the lines that cowhand itself writes to an agent's stderr.
const COWHAND_LINE_PREFIX: &str = "cowhand: ";

/// Maximum size of a summary; the whole text is in the job's output.
pub(super) const MAX_SUMMARY_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct OutputRecord {
    /// Last complete text of the agent.
    #[serde(rename = "said")]
    last_text: Option<String>,
    /// Last error message.
    error: Option<String>,
    /// Last line of stdout that is not blank and that the reader did not recognise as a message.
    stdout: Option<String>,
    /// Last line of stderr that is not blank and that cowhand did not write.
    stderr: Option<String>,
    /// Last line that cowhand itself wrote to the agent's stderr.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    pub(super) result: Option<ResultLine>,
    /// Number of tool calls.
    pub(super) tools: u64,
    /// Last report about each usage window of the provider.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) windows: Vec<WindowReport>,
}

impl OutputRecord {
    pub(super) fn message(&mut self, message: &OutputMessage) {
        match message {
            OutputMessage::Assistant { content: Some(content), partial, .. }
                if *partial != Some(true) && !content.trim().is_empty() =>
            {
                self.last_text = Some(cut(content, 0, MAX_SUMMARY_BYTES));
            }
            OutputMessage::Error { message, code, .. } => {
                let code = code.as_deref().filter(|code| !message.contains(code));
                let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
                self.error = Some(one_line(&format!("{message}{code}")));
            }
            OutputMessage::ToolUse { .. } => self.tools = self.tools.saturating_add(1),
            _ => {}
        }
    }

    pub(super) fn stdout(&mut self, line: &str) {
        remember(&mut self.stdout, line);
    }

    pub(super) fn stderr(&mut self, line: &str) {
        // A note of cowhand itself is not the agent's last line.
        let last = if line.starts_with(COWHAND_LINE_PREFIX) { &mut self.note } else { &mut self.stderr };
        remember(last, line);
    }

    /// Stores a result, which replaces the result before it. A process can state several results. Each states only its
    /// own number of turns, so the turns are added up. The tokens and the cost of a result are totals of the process,
    /// so they are not added.
    pub(super) fn result(&mut self, mut result: ResultLine) {
        let before = self.result.as_ref().and_then(|result| result.usage.num_turns);
        if let Some(before) = before {
            result.usage.num_turns = Some(result.usage.num_turns.unwrap_or(0).saturating_add(before));
        }
        self.result = Some(result);
    }

    /// Stores a report, which replaces the report before it about the same window.
    pub(super) fn window(&mut self, report: WindowReport) {
        self.windows.retain(|known| known.window != report.window);
        self.windows.push(report);
    }

    pub(super) fn has_undated_window(&self) -> bool {
        self.windows.iter().any(|report| report.at.is_none())
    }

    /// Sets the time of the reports that state none.
    pub(super) fn date_windows(&mut self, at: Timestamp) {
        for report in &mut self.windows {
            report.at.get_or_insert(at);
        }
    }

    pub(super) fn last_text(&self) -> Option<&str> {
        self.last_text.as_deref()
    }

    pub(super) fn summary(&self) -> Option<String> {
        let reported = self.result.as_ref().and_then(ResultLine::summary);
        reported.or_else(|| self.last_text.clone()).or_else(|| self.stdout.as_deref().map(one_line))
    }

    /// Returns the outcome that the agent's result states. Without a result, returns a failure as [`Self::failed`]
    /// does.
    pub(super) fn outcome(&self, status: &ExitStatus, note: &str) -> Outcome {
        match &self.result {
            Some(result) if result.failed() => match result.outcome() {
                Outcome::Failed { reason, error, .. } => {
                    Outcome::Failed { reason, error, summary: self.last_text.clone() }
                }
                other => other,
            },
            Some(_) => Outcome::Completed { summary: self.summary() },
            None => self.failed(status, note),
        }
    }

    /// Returns a failure whose message states the exit status. `note` is added to the message and states what else was
    /// wrong; it may be empty.
    pub(super) fn failed(&self, status: &ExitStatus, note: &str) -> Outcome {
        let (kind, description) = match status {
            ExitStatus::StartFailed { message } => {
                (ErrorKind::StartFailed, format!("could not be started: {}", one_line(message)))
            }
            ExitStatus::Code { code } => (ErrorKind::Exit, format!("exit code {code}{note}")),
            ExitStatus::Signal { signal, code } => {
                let name = signal_name(*signal);
                let seen =
                    code.map(|code| format!(" (its sandbox reported exit code {code})")).unwrap_or_default();
                (ErrorKind::Signal, format!("ended by {name}, which was not sent by cowhand{seen}{note}"))
            }
            ExitStatus::Lost { why: Some(why) } => {
                (ErrorKind::Lost, format!("lost: {}{note}", one_line(why)))
            }
            ExitStatus::Lost { why: None } => (
                ErrorKind::Lost,
                format!("lost: the agent and its keeper ended, and the exit status is unknown{note}"),
            ),
        };
        let message = match self.last_line() {
            Some(line) if kind != ErrorKind::StartFailed => format!("{description}; {line}"),
            _ => description,
        };
        let timed_out = kind == ErrorKind::Exit && self.error.as_deref().is_some_and(mentions_timeout);
        let reason = if timed_out { FailReason::Timeout } else { FailReason::Error };
        Outcome::Failed { reason, error: JobError { kind, message }, summary: self.last_text.clone() }
    }

    /// Returns a failure as [`Self::failed`] does, for a program without structured errors: `ETIMEDOUT` in the last
    /// line of stderr means that a connection timed out.
    pub(super) fn failed_or_timed_out(&self, status: &ExitStatus) -> Outcome {
        let timed_out = self.stderr.as_deref().is_some_and(|line| line.contains("ETIMEDOUT"));
        match self.failed(status, "") {
            Outcome::Failed { error, summary, .. } if timed_out && error.kind == ErrorKind::Exit => {
                Outcome::Failed { reason: FailReason::Timeout, error, summary }
            }
            other => other,
        }
    }

    fn last_line(&self) -> Option<String> {
        let error = self.error.as_ref().map(|error| format!("it reported: {error}"));
        let stderr = || self.stderr.as_ref().map(|line| format!("last line on stderr: {}", one_line(line)));
        let stdout = || self.stdout.as_ref().map(|line| format!("last line on stdout: {}", one_line(line)));
        // An agent without output may not have started; then the note of cowhand states why.
        let note = || self.note.as_deref().map(one_line);
        error.or_else(stderr).or_else(stdout).or_else(note)
    }
}

/// Stores a line in `last`, unless the line is blank. This runs for every line, so only a long line is shortened now;
/// other lines are formatted when they are used.
fn remember(last: &mut Option<String>, line: &str) {
    if line.trim().is_empty() {
        return;
    }
    let last = last.get_or_insert_default();
    last.clear();
    if line.len() <= MAX_OUTPUT_LINE_BYTES * 2 { last.push_str(line) } else { last.push_str(&one_line(line)) }
}

/// Returns true if a text mentions that a network request timed out.
pub(super) fn mentions_timeout(text: &str) -> bool {
    let text = text.to_lowercase();
    ["etimedout", "request timed out", "connection timed out"].iter().any(|words| text.contains(words))
}

/// Formats a text as one short line for a table or a log.
pub(super) fn one_line(text: &str) -> String {
    // Repeated whitespace is removed, so up to twice the maximum is read.
    let room = text.floor_char_boundary(MAX_OUTPUT_LINE_BYTES * 2);
    let words: Vec<_> = text[..room].split_whitespace().collect();
    cut(&words.join(" "), text.len() - room, MAX_OUTPUT_LINE_BYTES)
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        // A SIGKILL that cowhand did not send usually comes from the kernel.
        9 => "SIGKILL (out of memory?)",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

//! The ending: the record of how an attempt's process ended. The keeper writes it to a file.

use cowhand_core::job::Termination;
use cowhand_core::moment::BootTime;
use cowhand_system::clock::Clock;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub at: Timestamp,
    /// The boot clock at that time; `None` from a keeper of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootTime>,
    pub status: ExitStatus,
    /// Whether the process ended after the stop signal or was killed; `None` if the keeper did not stop it.
    pub stopped: Option<Termination>,
    /// Number of processes that outlived the agent and were ended.
    pub leftovers: u32,
    /// Sentence that names a disk of the attempt that was full at that time; `None` if none was full, or from a keeper
    /// of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_disk: Option<String>,
    /// Set if the keeper ended the agent because its node could not renew the lease of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_loss: Option<LeaseLoss>,
}

/// When a keeper ended an agent whose node could not renew the lease of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LeaseLoss {
    /// As soon as the agent was no longer allowed to work.
    AtDeadline,
    /// After the longest allowed pause.
    AfterPause { paused_ms: u64 },
}

impl Ending {
    /// Returns the ending of a process that ends now.
    pub(crate) fn now(status: ExitStatus, stopped: Option<Termination>, leftovers: u32) -> Self {
        let now = Clock::System.moment();
        Self { at: now.wall, boot: now.boot, status, stopped, leftovers, full_disk: None, lease_loss: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExitStatus {
    /// The agent's program never ran.
    StartFailed {
        message: String,
    },
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
        /// Exit code by which the sandbox reported the signal; `None` if the signal itself was seen.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
    },
    /// The agent has ended, and its status is unknown, for example because the keeper ended before the agent.
    Lost {
        /// Why the status is unknown; `None` if the keeper ended first, or could not record the agent's process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
}

/// Base of the exit codes with which shells and other wrapper programs report that a signal ended their child. The code
/// is this base plus the number of the signal.
const SIGNAL_CODE_BASE: i32 = 128;

/// Signals that end a process, by their numbers. Real-time signals and signals that no current kernel sends are left
/// out, because agents use some of their codes for other failures.
const FATAL_SIGNALS: [i32; 18] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 31];

impl ExitStatus {
    pub const LOST: Self = Self::Lost { why: None };

    pub const fn signal(signal: i32) -> Self {
        Self::Signal { signal, code: None }
    }

    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Returns the status of an agent whose sandbox exits with the agent's exit code. `bwrap` and container engines
    /// report a signal only as a code, so the code of a fatal signal counts as the signal.
    #[must_use]
    pub(crate) fn of_sandboxed_agent(self) -> Self {
        match self {
            Self::Code { code } if FATAL_SIGNALS.contains(&(code - SIGNAL_CODE_BASE)) => {
                Self::Signal { signal: code - SIGNAL_CODE_BASE, code: Some(code) }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_fatal_signal_of_sandboxed_agent_is_that_signal() {
        for (code, signal) in
            [(137, Some(9)), (143, Some(15)), (139, Some(11)), (0, None), (1, None), (128, None)]
                .into_iter()
                .chain([(125, None), (144, None), (255, None), (-1, None)])
        {
            let status = ExitStatus::Code { code }.of_sandboxed_agent();
            let expected = signal
                .map_or(ExitStatus::Code { code }, |signal| ExitStatus::Signal { signal, code: Some(code) });
            assert_eq!(status, expected, "{code}");
        }
        assert_eq!(ExitStatus::signal(9).of_sandboxed_agent(), ExitStatus::signal(9));
    }

    /// A daemon reads the endings that keepers of earlier versions wrote.
    #[test]
    fn endings_of_earlier_keepers_are_read() {
        for (text, expected) in [
            (r#"{"kind":"lost"}"#, ExitStatus::LOST),
            (r#"{"kind":"signal","signal":9}"#, ExitStatus::signal(9)),
        ] {
            assert_eq!(serde_json::from_str::<ExitStatus>(text).unwrap(), expected);
            assert_eq!(serde_json::to_string(&expected).unwrap(), text);
        }
    }
}

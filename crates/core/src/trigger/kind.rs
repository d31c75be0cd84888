//! The kinds of triggers. Other modules match on the kind, so that most modules need no change for a new type.
//! `TriggerConfig::kind` returns the kind of each type.

use uuid::Uuid;

use super::{Driver, EndStatus, LifecycleEvent, TriggerConfig};
use crate::cron::Cron;
use crate::github::Auth;
use crate::interval::Interval;

/// Kind of a trigger, with the fields that other modules need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TriggerKind<'a> {
    Clock(ClockTrigger<'a>),
    /// A person only.
    Hand,
    Webhook {
        secret: Option<&'a str>,
        /// Names of the variables that hold secrets, separated by commas.
        secret_env: Option<&'a str>,
        allow_unsigned: bool,
        /// Events that fire it, for example `issues` or `issues.opened`; empty means all.
        events: &'a [String],
    },
    Chat,
    /// Events of the fleet's own log.
    Event(EventTrigger<'a>),
    /// Issues or pull requests of a repository.
    Github {
        owner: &'a str,
        repo: &'a str,
        item: GithubItem,
    },
    /// Tasks that a strategy passes on, for a trigger that belongs to none of the other kinds.
    Tasks {
        /// True if the strategy returns everything that exists, and each item fires once.
        is_list: bool,
        /// True if somebody outside the fleet can write the text of a task.
        has_author: bool,
    },
}

/// A trigger that the planner fires.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClockTrigger<'a> {
    Interval(Interval),
    Cron(&'a Cron),
    Delay,
}

/// A trigger that events of the log fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventTrigger<'a> {
    /// A change of a session of an agent; without a name, of the schedule's own agent.
    Lifecycle { event: LifecycleEvent, agent: Option<&'a str> },
    /// The end of a job that does not belong to the schedule of this trigger. `id` and `schedule`, if they are set,
    /// restrict the trigger to jobs of the schedule with this id and this name.
    JobEnded { id: Option<Uuid>, schedule: Option<&'a str>, status: Option<EndStatus> },
}

/// Kind of item that a trigger lists in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GithubItem {
    Issue,
    PullRequest,
}

impl TriggerKind<'_> {
    /// Checks whether the firings of this kind of trigger are automatic (`FiringKey::is_automatic`).
    pub const fn is_automatic(&self) -> bool {
        match self {
            Self::Hand | Self::Chat => false,
            Self::Clock(_)
            | Self::Webhook { .. }
            | Self::Event(_)
            | Self::Github { .. }
            | Self::Tasks { .. } => true,
        }
    }
}

impl TriggerConfig {
    pub fn driver(&self) -> Driver {
        match self.kind() {
            TriggerKind::Clock(_) => Driver::Clock,
            TriggerKind::Hand => Driver::Hand,
            TriggerKind::Webhook { .. } | TriggerKind::Chat => Driver::Delivery,
            TriggerKind::Event(_) | TriggerKind::Github { .. } | TriggerKind::Tasks { .. } => {
                Driver::Strategy
            }
        }
    }

    /// Checks whether it fires once for each item of a list.
    pub fn reads_a_list(&self) -> bool {
        matches!(self.kind(), TriggerKind::Github { .. } | TriggerKind::Tasks { is_list: true, .. })
    }

    /// Checks whether this trigger and another trigger read the same list. How often and with which account they read
    /// it does not matter.
    pub fn reads_same_list(&self, other: &Self) -> bool {
        self.reads_a_list() && self.without_access() == other.without_access()
    }

    /// Returns the trigger without the fields that state how a list is read.
    fn without_access(&self) -> Self {
        let mut list = self.clone();
        if let Self::GithubIssues { poll_interval, auth, backend, .. }
        | Self::GithubPullRequests { poll_interval, auth, backend, .. } = &mut list
        {
            (*poll_interval, *auth, *backend) = (None, Auth::default(), None);
        }
        list
    }

    /// Checks whether it is fired by events of the log.
    pub fn follows_events(&self) -> bool {
        matches!(self.kind(), TriggerKind::Event(_))
    }

    /// Returns the names of the variables that hold a webhook's secrets.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        let names = match self.kind() {
            TriggerKind::Webhook { secret_env, .. } => secret_env.unwrap_or_default(),
            _ => "",
        };
        names.split(',').map(str::trim).filter(|name| !name.is_empty())
    }

    /// Checks whether it is a webhook without a secret, so that its deliveries are not signed.
    pub fn is_unsigned(&self) -> bool {
        matches!(
            self.kind(),
            TriggerKind::Webhook { secret: None, secret_env: None, allow_unsigned: true, .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_list_contains_distinguishes_lists() {
        let read = |fields: &str| -> TriggerConfig {
            let start = r#"{"type":"github_issues","owner":"o","#;
            serde_json::from_str(&format!("{start}{fields}}}")).unwrap()
        };
        let list = read(r#""repo":"r","labels":["a"]"#);
        for (fields, is_same) in [
            (r#""repo":"r","labels":["a"],"poll_interval":"5m","backend":"gh""#, true),
            (r#""repo":"r","labels":["a"],"auth":{"token_env":"T"}"#, true),
            (r#""repo":"r","labels":["b"]"#, false),
            (r#""repo":"s","labels":["a"]"#, false),
            (r#""repo":"r","labels":["a"],"state":"all""#, false),
            (r#""repo":"r","labels":["a"],"api_url":"https://github.example.com/api/v3""#, false),
        ] {
            assert_eq!(list.reads_same_list(&read(fields)), is_same, "{fields}");
        }
        let cron: TriggerConfig = serde_json::from_str(r#"{"type":"cron","cron":"@daily"}"#).unwrap();
        assert!(!cron.reads_same_list(&cron), "it reads no list");
    }
}

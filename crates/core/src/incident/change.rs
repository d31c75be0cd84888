//! Which events open, repeat and end incidents.

use jiff::Timestamp;

use crate::ask::AskStatus;
use crate::budget::{BudgetWindow, Unit};
use crate::cut::cut;
use crate::event::{Event, Fact};
use crate::id::AgentName;
use crate::notification::{IncidentEnd, IncidentKind};
use crate::size;

/// Longest detail of an incident, in bytes.
const MAX_DETAIL_BYTES: usize = 1_000;
/// Subject of the incident of a refused config.
const CONFIG_SUBJECT: &str = "config";

/// The effect of an event on incidents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IncidentChange {
    /// The incident begins, or happens again.
    Happens {
        kind: IncidentKind,
        subject: String,
        detail: String,
        /// Time at which the incident ends without an event, and how it ends then.
        ends: Option<(Timestamp, IncidentEnd)>,
    },
    Ends {
        kind: IncidentKind,
        subject: String,
        how: IncidentEnd,
    },
}

/// Returns the changes that follow from an event, in their order.
pub fn changes(event: &Event) -> Vec<IncidentChange> {
    use IncidentKind as Kind;
    let happens = |kind, subject: String, detail: &str| {
        vec![IncidentChange::Happens { kind, subject, detail: shortened(detail), ends: None }]
    };
    let ends = |kind, subject: String, how| vec![IncidentChange::Ends { kind, subject, how }];
    let of_schedule = |how| {
        [Kind::SchedulePaused, Kind::ScheduleError]
            .map(|kind| IncidentChange::Ends { kind, subject: event.subject(), how })
            .to_vec()
    };
    match &event.fact {
        Fact::JobFailed { message, .. } => happens(Kind::JobFailed, event.subject(), message),
        Fact::JobCompleted { .. } => ends(Kind::JobFailed, event.subject(), IncidentEnd::Recovered),
        Fact::AskMade { ask, about } => happens(Kind::AskWaiting, ask.to_string(), about),
        Fact::AskAnswered { ask, .. } => ends(Kind::AskWaiting, ask.to_string(), IncidentEnd::Answered),
        Fact::AskExpired { ask, status } => {
            let is_answered = matches!(status, AskStatus::Allowed | AskStatus::Denied | AskStatus::Answered);
            let how = if is_answered { IncidentEnd::Answered } else { IncidentEnd::Expired };
            ends(Kind::AskWaiting, ask.to_string(), how)
        }
        Fact::SchedulePaused { reason, .. } => happens(Kind::SchedulePaused, event.subject(), reason),
        Fact::ScheduleError { reason } => happens(Kind::ScheduleError, event.subject(), reason),
        Fact::ScheduleResumed | Fact::ScheduleEnabled | Fact::ScheduleArmed => {
            of_schedule(IncidentEnd::Resumed)
        }
        Fact::JobParked { provider, until, message, .. } => vec![IncidentChange::Happens {
            kind: Kind::ProviderParked,
            subject: provider.clone(),
            detail: shortened(message),
            ends: Some((*until, IncidentEnd::Resumed)),
        }],
        Fact::ProviderUnparked { provider } => {
            ends(Kind::ProviderParked, provider.clone(), IncidentEnd::Resumed)
        }
        Fact::WorkGivenUp { item, message, .. } => happens(Kind::ItemGivenUp, item.to_string(), message),
        Fact::WorkReopened { item } => ends(Kind::ItemGivenUp, item.to_string(), IncidentEnd::Reopened),
        Fact::FleetConfigRefused => happens(Kind::ConfigRefused, CONFIG_SUBJECT.to_owned(), ""),
        Fact::FleetReloaded { .. } => {
            ends(Kind::ConfigRefused, CONFIG_SUBJECT.to_owned(), IncidentEnd::Accepted)
        }
        Fact::BudgetReached { window, unit, percent, limit, spent, until, .. } => {
            let subject = budget_subject(event.agent.as_ref(), *window, *unit);
            let detail = format!("{} of {} are spent.", unit.amount(*spent), unit.amount(*limit));
            let is_spent = *percent >= 100;
            let kind = if is_spent { Kind::BudgetSpent } else { Kind::BudgetLow };
            let replaced = is_spent.then(|| IncidentChange::Ends {
                kind: Kind::BudgetLow,
                subject: subject.clone(),
                how: IncidentEnd::Replaced,
            });
            let ends = Some((*until, IncidentEnd::Renewed));
            replaced.into_iter().chain([IncidentChange::Happens { kind, subject, detail, ends }]).collect()
        }
        Fact::BudgetRelieved { window, unit, .. } => {
            let subject = budget_subject(event.agent.as_ref(), *window, *unit);
            [Kind::BudgetLow, Kind::BudgetSpent]
                .map(|kind| {
                    let (subject, how) = (subject.clone(), IncidentEnd::Relieved);
                    IncidentChange::Ends { kind, subject, how }
                })
                .to_vec()
        }
        Fact::NodeLost { node } => happens(Kind::NodeLost, node.clone(), ""),
        Fact::NodeReturned { node } => ends(Kind::NodeLost, node.clone(), IncidentEnd::Returned),
        Fact::DiskLow { node, free, limit } => {
            let (free, limit) = (size::in_words(*free), size::in_words(*limit));
            happens(Kind::DiskLow, node.clone(), &format!("{free} are free; the limit is {limit}."))
        }
        Fact::DiskFreed { node, .. } => ends(Kind::DiskLow, node.clone(), IncidentEnd::Freed),
        _ => Vec::new(),
    }
}

fn shortened(detail: &str) -> String {
    cut(detail.trim(), 0, MAX_DETAIL_BYTES)
}

/// Returns the subject of a budget, for example `daily budget of coder in dollars`.
fn budget_subject(agent: Option<&AgentName>, window: BudgetWindow, unit: Unit) -> String {
    let period = match window {
        BudgetWindow::Job => "job",
        BudgetWindow::Day => "daily",
        BudgetWindow::Month => "monthly",
    };
    let owner = agent.map_or("the fleet", AgentName::as_str);
    let unit = match unit {
        Unit::Usd => "dollars",
        Unit::Tokens => "tokens",
    };
    format!("{period} budget of {owner} in {unit}")
}

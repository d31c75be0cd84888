//! Due times that have passed and did not run: missed due times, and due times that wait.

use jiff::Timestamp;

use super::due::DueCheck;
use super::next_firings::Outlook;
use crate::cron::Cron;
use crate::policy::{ClosedBy, MAX_MISFIRES, Misfire};
use crate::roster::{Agent, Schedule};
use crate::schedule::FiringOutcome;
use crate::trigger::{ClockTrigger, TriggerConfig, TriggerKind};

/// Maximum number of due times that are examined after the first waiting due time.
const MAX_COUNTED: usize = 1_000;

/// Reason why due times are missed. A daemon that stops fires nothing while it waits for running jobs.
const NO_DAEMON: &str = "no daemon ran or the daemon was stopping";

/// Due times of a cron schedule or a delay that passed while no daemon could fire them, and what the next daemon does
/// with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// First missed due time.
    pub since: Timestamp,
    /// Number of missed due times; at most 100 are counted.
    pub times: usize,
    /// Number of runs for the missed due times when the next daemon starts.
    pub runs: usize,
    rule: MissedRule,
}

/// Rule for the missed due times when a daemon starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissedRule {
    Cron(Misfire),
    /// A delay fires when a daemon starts.
    Delay,
    /// A delay waits for its calendar.
    DelayUntil {
        opens: Timestamp,
        /// Key of the calendar that did not allow the due time; none if the calendar allowed it and closed later.
        closed: Option<ClosedBy>,
    },
}

impl Missed {
    /// Describes which due times were missed, and what a daemon does about them when it starts.
    pub fn sentence(&self) -> String {
        match self.rule {
            MissedRule::Cron(misfire) => self.cron_sentence(misfire),
            MissedRule::Delay => format!(
                "its time {:.0} was missed, because {NO_DAEMON}; it fires when a daemon starts",
                self.since
            ),
            MissedRule::DelayUntil { opens, closed } => {
                let why = closed.map_or_else(|| NO_DAEMON.to_owned(), ClosedBy::sentence);
                format!(
                    "it did not run at {:.0}, because {why}; it waits until {opens:.0}, when its calendar allows it",
                    self.since
                )
            }
        }
    }

    fn cron_sentence(&self, misfire: Misfire) -> String {
        let since = format!("{:.0}", self.since);
        let what = match self.times {
            1 => format!("its time {since} was missed, because {NO_DAEMON}"),
            MAX_MISFIRES.. => {
                format!("{MAX_MISFIRES} times or more were missed since {since}, because {NO_DAEMON}")
            }
            more => format!("{more} times were missed since {since}, because {NO_DAEMON}"),
        };
        let it = if self.times == 1 { "it is" } else { "they are" };
        let policy = misfire.as_str();
        let then = match (self.runs, misfire) {
            (0, Misfire::Skip) => format!("{it} skipped when a daemon starts (`misfire: {policy}`)"),
            (0, _) => format!("{it} skipped when a daemon starts (`max_lateness`)"),
            (1, _) => format!("one run makes up for that when a daemon starts (`misfire: {policy}`)"),
            (runs, _) => format!("{runs} runs make up for them when a daemon starts (`misfire: {policy}`)"),
        };
        format!("{what}; {then}")
    }
}

impl Outlook<'_> {
    /// Returns the missed due times of a cron schedule or a delay; none if no due time was missed. The snapshot has to
    /// be of a fleet without a running daemon: its `uptime` begins now.
    pub fn missed(&self, agent: &Agent, schedule: &Schedule) -> Option<Missed> {
        let TriggerKind::Clock(trigger) = schedule.trigger.kind() else { return None };
        self.search(agent, schedule, |search| match trigger {
            ClockTrigger::Cron(expression) => search.check.backlog(expression),
            ClockTrigger::Delay => search.check.missed_delay(),
            ClockTrigger::Interval(_) => None,
        })
    }

    /// Counts the due times from the first waiting due time on. The result is zero if no due time waits.
    pub fn times_waited(&self, agent: &Agent, schedule: &Schedule) -> usize {
        self.search(agent, schedule, |search| search.check.times_waited())
    }
}

impl DueCheck<'_> {
    fn backlog(&self, cron: &Cron) -> Option<Missed> {
        let decided = self.decided_until();
        if self.snapshot.uptime.covers(decided, self.snapshot.moment(self.now)) {
            return None;
        }
        let mut missed = self.misfires(self.overdue(cron, decided));
        let is_full = missed.len() == MAX_MISFIRES;
        missed.retain(|(due, outcome)| !matches!(outcome, FiringOutcome::Skipped(_)) && self.missed(*due));
        let (oldest, _) = *missed.first()?;
        let first = cron.next_after(decided, self.zone()).filter(|_| is_full);
        Some(Missed {
            since: first.unwrap_or(oldest),
            times: missed.len(),
            runs: missed.iter().filter(|(_, outcome)| *outcome == FiringOutcome::Ran).count(),
            rule: MissedRule::Cron(self.schedule.timing.misfire),
        })
    }

    fn missed_delay(&self) -> Option<Missed> {
        let due = self.schedule.delay_due(self.record.run_at?);
        if due > self.now || !self.missed(due) {
            return None;
        }
        let opens = self.delay_opens(due)?;
        let closed = self.schedule.timing.closed_by(due, self.zone());
        let (runs, rule) = if opens > self.now {
            (0, MissedRule::DelayUntil { opens, closed })
        } else {
            (1, MissedRule::Delay)
        };
        Some(Missed { since: due, times: 1, runs, rule })
    }

    fn times_waited(&self) -> usize {
        let Some(waiting) = &self.record.waiting else { return 0 };
        let TriggerConfig::Cron { expression, .. } = &self.schedule.trigger else { return 1 };
        let zone = self.zone();
        let later = std::iter::successors(expression.next_after(waiting.due, zone), |due| {
            expression.next_after(*due, zone)
        });
        let later = later.take_while(|due| self.spread(expression, *due) <= self.now);
        1 + later.take(MAX_COUNTED).filter(|due| self.schedule.timing.allows(*due, zone)).count()
    }
}

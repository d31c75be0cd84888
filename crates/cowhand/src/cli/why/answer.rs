//! What `cowhand why` shows about one schedule.

use cowhand_core::shell::schedule_word;
use jiff::Timestamp;
use serde::Serialize;

use super::super::location::{Connection, FleetLocation};
use super::super::schedule::ScheduleFullName;
use super::super::{print, status};
use super::{MAX_FIRINGS, describe_state, firings, with_full_stop};
use cowhand_engine::chat::ChatBotView;
use cowhand_engine::fleet::ScheduleView;
use cowhand_engine::queues::given_up::{GivenUpItem, TakenBy};
use cowhand_engine::queues::skipped_files::SkippedFiles;
use cowhand_web::api::{ApiProblem, FiringView, LostLease, ScheduleWithFirings, StatusView};

/// Schedule, the outcomes of its last firings, and the work items that it no longer takes.
#[derive(Debug, Serialize)]
pub(super) struct WhyAnswer {
    pub(super) schedule: ScheduleView,
    pub(super) firings: Vec<FiringView>,
    pub(super) given_up: Vec<GivenUpItem>,
    /// Files in the folders of the schedule's work source that are not work items.
    pub(super) skipped_files: Vec<SkippedFiles>,
    /// Bots through which the schedule receives messages.
    pub(super) chat_bots: Vec<ChatBotView>,
    /// Running jobs of the schedule whose nodes have not renewed their leases in time.
    pub(super) lost_leases: Vec<LostLease>,
    /// Node that answered.
    #[serde(skip)]
    pub(super) node: Option<String>,
    /// Reason why the store cannot be written, if there is a problem.
    #[serde(skip)]
    pub(super) store_problem: Option<String>,
    /// Set if the schedule has, or may have, more firings than `firings`.
    pub(super) has_more: bool,
}

impl WhyAnswer {
    pub(super) async fn of(
        client: &Connection<'_>,
        name: &ScheduleFullName,
        limit: u32,
    ) -> Result<Self, ApiProblem> {
        // The state and the firings come from one request, so that no firing can happen between two requests.
        let requested = limit.saturating_add(1).min(MAX_FIRINGS);
        let answer: ScheduleWithFirings =
            client.get(&format!("{}?firings={requested}", name.address())).await?;
        let (schedule, mut firings) = (answer.schedule, answer.firings.unwrap_or_default());
        // The API returns at most `MAX_FIRINGS` firings. If it returns that many, there may be earlier firings.
        let has_more = firings.len() > limit as usize || firings.len() == MAX_FIRINGS as usize;
        firings.truncate(limit as usize);
        let StatusView { daemon, mut given_up, mut skipped_files, mut chat_bots, mut lost_leases, .. } =
            client.get("status").await?;
        lost_leases.retain(|lost| {
            lost.agent == schedule.agent && lost.schedule.as_ref() == Some(&schedule.schedule)
        });
        chat_bots.retain(|bot| schedule.kind == "chat" && bot.agents.contains(&schedule.agent));
        let takes = |by: &TakenBy| by.agent == schedule.agent && by.schedule == schedule.schedule;
        given_up.retain(|item| item.taken_by.iter().any(takes));
        skipped_files.retain(|skipped| skipped.taken_by.iter().any(takes));
        let node = daemon.node;
        let store_problem = daemon.store_problem.or_else(|| client.disk_problem());
        Ok(Self {
            schedule,
            firings,
            given_up,
            skipped_files,
            chat_bots,
            lost_leases,
            node,
            store_problem,
            has_more,
        })
    }

    /// Prints the state of the schedule. `fleet_without_daemon` is set if no daemon runs and no earlier line states
    /// that.
    pub(super) fn print(&self, fleet_without_daemon: Option<&FleetLocation>, is_alone: bool, now: Timestamp) {
        for line in describe_state(&self.schedule, &self.firings, fleet_without_daemon, is_alone, now) {
            print::prose(&line, 0);
        }
        for bot in &self.chat_bots {
            let state = status::chat_bot_state(bot, self.node.as_deref(), now);
            print::prose(&with_full_stop(&format!("Its chat bot {} {state}", bot.bot)), 0);
        }
        for lost in &self.lost_leases {
            print::prose(&with_full_stop(&format!("Its job {}: {}", lost.job, lost.message)), 0);
        }
        for item in &self.given_up {
            print::prose(&with_full_stop(&status::given_up_line(item)), 0);
        }
        for skipped in &self.skipped_files {
            print::prose(&with_full_stop(&status::skipped_files_line(skipped)), 0);
        }
    }

    /// Prints the firings. `more` is the end of the command that shows further firings.
    pub(super) fn print_firings(&self, more: &str, now: Timestamp) {
        print::line("");
        if self.firings.is_empty() {
            let ScheduleView { due_since, missed, next_run_at, .. } = &self.schedule;
            let is_due = due_since.is_some()
                || missed.is_some()
                || next_run_at.is_some_and(|at| at <= now)
                || self.schedule.passed_while_off().is_some();
            print::line(if is_due { "It has not fired yet." } else { "It has never been due." });
        } else {
            firings::table(&self.firings, now).print();
        }
        if self.has_more && self.firings.len() == MAX_FIRINGS as usize {
            print::prose(&format!("Earlier firings are not shown; {MAX_FIRINGS} is the maximum."), 0);
        } else if self.has_more {
            let ScheduleView { agent, schedule, .. } = &self.schedule;
            let name = schedule_word(agent, schedule);
            print::prose(&format!("Earlier firings: `cowhand why {name}{more}`"), 0);
        }
    }
}

//! `status`: the agent, its queue and its connection, as `cowhand status` shows them.

use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::escape::{escape, inline_code};
use cowhand_core::duration;
use cowhand_core::plan::{LiveJob, LiveState};
use cowhand_core::roster::Roster;
use cowhand_core::schedule::SkipReason;
use jiff::Timestamp;

use super::super::bot_view::chat_bots;
use super::UsedCommand;
use super::session::counts;
use crate::fleet::FleetError;
use crate::schedule_view::{ScheduleStatus, ScheduleView};

/// Number of running jobs that are named.
const MAX_NAMED_JOBS: usize = 5;
/// Number of schedules whose problems are shown.
const MAX_PROBLEMS: usize = 10;

impl UsedCommand<'_> {
    pub(super) async fn status(&self) -> Result<String, FleetError> {
        let (roster, now) = (self.context().fleet.roster(), self.now());
        let snapshot = self.store().snapshot_of(&roster, now).await?;
        let agent = &self.addressee.agent;
        let running: Vec<&LiveJob> = snapshot.jobs.iter().filter(|job| job.takes_place_of(agent)).collect();
        let is_waiting =
            |job: &&LiveJob| matches!(job.state, LiveState::Pending { .. }) && job.agent == agent.name;
        let waiting = snapshot.jobs.iter().filter(is_waiting).count();
        let name = inline_code(agent.name.as_str(), self.platform());
        let places = agent.max_concurrent;
        let mut lines =
            vec![format!("Agent {name}: {}. At most {places} at a time.", counts(running.len(), waiting))];
        let named = running.iter().take(MAX_NAMED_JOBS);
        lines.extend(named.filter_map(|job| running_line(job, self.platform(), now)));
        let schedules = self.visible_schedules(&roster, agent, &snapshot, now);
        let problems = schedules.iter().filter_map(|view| self.schedule_problem(view, now));
        lines.extend(problems.take(MAX_PROBLEMS));
        lines.push(self.connection_line(&roster, now).await?);
        Ok(lines.join("\n"))
    }

    /// Describes a schedule that does not run as planned.
    fn schedule_problem(&self, view: &ScheduleView, now: Timestamp) -> Option<String> {
        let platform = self.platform();
        let name = inline_code(&format!("{}/{}", view.agent, view.schedule), platform);
        let note = view.skip_note.as_deref().map(|note| escape(note, platform));
        let until = view.skip_until.map(|at| format!("; it ends {}", duration::until(now, at)));
        let until = until.unwrap_or_default();
        match view.status {
            ScheduleStatus::Paused => {
                Some(format!("Schedule {name} is paused: {}{until}", note.unwrap_or_default()))
            }
            ScheduleStatus::Error => {
                let error = view.last_error.as_deref().unwrap_or_default();
                Some(format!("Schedule {name} has stopped because of an error: {}", escape(error, platform)))
            }
            ScheduleStatus::Disabled if view.kind == "chat" => Some(format!("Schedule {name} is disabled.")),
            ScheduleStatus::Disabled | ScheduleStatus::Finished => None,
            ScheduleStatus::Idle | ScheduleStatus::Running => {
                let is_held = view.skip_note_reason.is_some_and(|reason| {
                    matches!(reason, SkipReason::OverBudget | SkipReason::Requeued)
                        || reason.is_about_provider()
                });
                let held =
                    note.filter(|_| is_held).map(|note| format!("Schedule {name} waits: {note}{until}"));
                held.or_else(|| {
                    let failing = view.failing_trigger(false, now)?;
                    Some(format!("The trigger of schedule {name} fails, {}", escape(&failing, platform)))
                })
            }
        }
    }

    /// Describes the connection of the bot, in the words of `cowhand status`.
    async fn connection_line(&self, roster: &Roster, now: Timestamp) -> Result<String, FleetError> {
        let bots = chat_bots(self.store(), roster, false, None, now).await?;
        let bot = bots.iter().find(|bot| bot.bot == self.sent.bot.key);
        let node = self.context().node();
        let connection = bot.map(|bot| bot.connection_in_words(Some(&node), now));
        let connection = connection.unwrap_or_else(|| "is not connected".to_owned());
        Ok(format!("The bot {}.", escape(&connection, self.platform())))
    }
}

fn running_line(job: &LiveJob, platform: ChatPlatform, now: Timestamp) -> Option<String> {
    let began = duration::rounded(now.duration_since(job.began_at?));
    let schedule = job.schedule_name.as_ref();
    let schedule = schedule.map(|schedule| format!(" of schedule {}", escape(schedule.as_str(), platform)));
    Some(format!("{}{} runs for {began}.", job.id, schedule.unwrap_or_default()))
}

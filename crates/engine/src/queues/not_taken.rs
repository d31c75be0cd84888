//! The reasons why the clock fires no schedule that takes items from a queue.

use cowhand_core::id::ScheduleId;
use cowhand_core::shell::{schedule_word, trigger_words};

use crate::schedule_view::{ScheduleStatus, ScheduleView};

/// Returns the reasons why the clock fires no schedule that takes items from a queue, and the commands that change this.
/// Returns `None` if the clock fires one.
pub(crate) fn not_taken(takers: &[ScheduleId], schedules: &[ScheduleView]) -> Option<String> {
    let takers: Vec<&ScheduleView> = schedules.iter().filter(|view| takers.contains(&view.id)).collect();
    let reasons: Option<Vec<String>> = takers.iter().map(|view| obstacle(view)).collect();
    let reasons = reasons?;
    if reasons.is_empty() {
        return Some("no schedule takes items from the queue of this item, so the item waits until the config has such a schedule".to_owned());
    }
    Some(format!("no schedule takes it now: {}", reasons.join("; ")))
}

/// Returns the reason why the clock does not fire a schedule. Returns `None` if the clock fires it.
fn obstacle(view: &ScheduleView) -> Option<String> {
    let name = format!("{}/{}", view.agent, view.schedule);
    let enable = format!("`cowhand schedule enable {}`", schedule_word(&view.agent, &view.schedule));
    match view.status {
        ScheduleStatus::Idle | ScheduleStatus::Running if view.is_by_clock() => None,
        ScheduleStatus::Idle | ScheduleStatus::Running => {
            let (words, kind) = (trigger_words(&view.agent, &view.schedule), &view.kind);
            Some(format!("{name} is of type {kind}, and `cowhand trigger {words}` fires it"))
        }
        ScheduleStatus::Finished => Some(format!("{name} has finished")),
        ScheduleStatus::Disabled if view.over => Some(format!("{name} is turned off and has finished")),
        ScheduleStatus::Disabled => Some(match view.off_in_file_advice() {
            Some(advice) => format!("{name} is {advice}"),
            None => format!("{name} is turned off, and {enable} turns it on"),
        }),
        ScheduleStatus::Error => {
            Some(format!("{name} stopped because of an error; correct the cause, and then run {enable}"))
        }
        ScheduleStatus::Paused => Some(format!("{name} has paused itself, and {enable} ends the pause")),
    }
}

//! The status that Discord shows for the bot.

use cowhand_core::chat::settings::ActivityKind;
use twilight_model::gateway::payload::outgoing::update_presence::UpdatePresencePayload;
use twilight_model::gateway::presence::{Activity, ActivityType, MinimalActivity, Status};

pub(super) fn presence(kind: ActivityKind, text: &str) -> UpdatePresencePayload {
    let (kind, name) = match kind {
        ActivityKind::Playing => (ActivityType::Playing, text),
        ActivityKind::Watching => (ActivityType::Watching, text),
        ActivityKind::Listening => (ActivityType::Listening, text),
        ActivityKind::Competing => (ActivityType::Competing, text),
        // Discord shows the state of a custom status, not its name.
        ActivityKind::Custom => (ActivityType::Custom, "Custom Status"),
    };
    let mut activity = Activity::from(MinimalActivity { kind, name: name.to_owned(), url: None });
    if kind == ActivityType::Custom {
        activity.state = Some(text.to_owned());
    }
    UpdatePresencePayload { activities: vec![activity], afk: false, since: None, status: Status::Online }
}

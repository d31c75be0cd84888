//! Webhooks that nobody can use, because what should hold their secrets is not set: `why` says so before anybody tries.

use cowhand_core::id::ScheduleId;
use cowhand_core::trigger::TriggerConfig;
use tracing::warn;

use crate::context::Engine;
use crate::loaded::Loaded;
use cowhand_store::StoreError;

/// How the note begins, by which it is known again when all is well.
const NOTE: &str = "its deliveries are refused, because no secret is set";

pub(super) async fn note(engine: &Engine) -> Result<(), StoreError> {
    for (schedule, trouble) in troubles(&engine.loaded()) {
        if trouble.is_none() {
            let record = engine.store.schedule(schedule).await?;
            let note = record.and_then(|record| record.last_error);
            if !note.is_some_and(|note| note.starts_with(NOTE)) {
                continue;
            }
        }
        engine.store.note_trouble(schedule, trouble, engine.clock.now()).await?;
    }
    Ok(())
}

/// Of every webhook.
fn troubles(loaded: &Loaded) -> Vec<(ScheduleId, Option<String>)> {
    let mut troubles = Vec::new();
    for agent in &loaded.roster.agents {
        for schedule in &agent.schedules {
            let TriggerConfig::Webhook { secret, allow_unsigned, .. } = &schedule.trigger else { continue };
            let names: Vec<&str> = schedule.trigger.secret_names().collect();
            let is_set = |name: &&str| loaded.sources.setting().variable(name).is_some();
            let is_well =
                names.iter().any(is_set) || secret.is_some() || (names.is_empty() && *allow_unsigned);
            let what = if names.is_empty() {
                "`secret_env` names the variable that holds one".to_owned()
            } else {
                names.join(", ")
            };
            let trouble = (!is_well).then(|| format!("{NOTE}: {what}"));
            if let Some(trouble) = &trouble {
                warn!(agent = %agent.name, schedule = %schedule.name, "{trouble}");
            }
            troubles.push((schedule.id, trouble));
        }
    }
    troubles
}

//! Notes for `why` about webhooks whose deliveries are all refused. Either no variable of their secrets is set, or they
//! have no secret. A webhook with `allow_unsigned` needs no secret if the server listens only on loopback.

use std::net::SocketAddr;

use cowhand_core::id::ScheduleId;
use cowhand_core::trigger::TriggerConfig;
use tracing::warn;

use crate::context::Engine;
use crate::loaded::Loaded;
use crate::schedule_view::UNSIGNED_NOTE;
use cowhand_store::StoreError;

pub(super) async fn note_webhook_problems(engine: &Engine) -> Result<(), StoreError> {
    for (schedule, problem) in webhook_problems(&engine.loaded(), engine.listens_outside()) {
        if problem.is_none() {
            let record = engine.store.schedule(schedule).await?;
            let note = record.and_then(|record| record.last_error);
            if !note.is_some_and(|note| note.starts_with(UNSIGNED_NOTE)) {
                continue;
            }
        }
        engine.store.record_delay(schedule, problem, engine.clock.now()).await?;
    }
    Ok(())
}

/// Returns the problem of each webhook; `None` for a webhook without a problem.
fn webhook_problems(
    loaded: &Loaded,
    public_address: Option<SocketAddr>,
) -> Vec<(ScheduleId, Option<String>)> {
    let mut webhook_problems = Vec::new();
    for agent in &loaded.roster.agents {
        for schedule in &agent.schedules {
            let TriggerConfig::Webhook { secret, allow_unsigned, .. } = &schedule.trigger else { continue };
            let names: Vec<&str> = schedule.trigger.secret_names().collect();
            let is_set = |name: &&str| loaded.sources.context().variable(name).is_some();
            let is_unsigned = names.is_empty() && *allow_unsigned;
            let is_usable =
                names.iter().any(is_set) || secret.is_some() || (is_unsigned && public_address.is_none());
            let detail = if let (true, Some(listen)) = (is_unsigned, public_address) {
                format!("`allow_unsigned` has an effect only on loopback, and the server listens on {listen}")
            } else if names.is_empty() {
                "set `secret_env` to the name of the variable with the secret".to_owned()
            } else {
                format!("set {}", names.join(" or "))
            };
            let problem = (!is_usable).then(|| format!("{UNSIGNED_NOTE}: {detail}"));
            if let Some(problem) = &problem {
                warn!(agent = %agent.name, schedule = %schedule.name, "{problem}");
            }
            webhook_problems.push((schedule.id, problem));
        }
    }
    webhook_problems
}

//! Finding out what a firing runs for: whether a command allows it, and which items there are to work on.
//!
//! The firing is recorded before and settled after, so a crash in between is followed by another try. An item's row
//! comes before its claim outside, and its job after that, with the id that stands there.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use cowhand_core::cut::cut;
use cowhand_core::firing::{self, Occasion};
use cowhand_core::id::ScheduleId;
use cowhand_core::job::NewJob;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::schedule::{ScheduleState, SkipReason};
use cowhand_core::trigger::FiringKey;
use cowhand_core::trust::Verdict;
use cowhand_core::work::{ClaimResult, FetchOptions, WorkItem};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use tracing::{debug, info, warn};

use super::engine::Engine;
use crate::fault;
use crate::panic::caught;
use crate::run::gate;
use crate::store::{OfFiring, Preparation, Prepared, Taken, Taking};
use crate::work::{Claimant, For, WorkSource, WorkSourceError, guarded, tries_the_next};

/// Nobody else prepares a firing for so long after we took it in hand.
const LEASE: SignedDuration = SignedDuration::from_mins(5);
/// A claim that is not finished by then is taken back.
pub(super) const CLAIMING: SignedDuration = SignedDuration::from_mins(5);
/// A claim outside holds for so long without another word; it is renewed when half of it is over.
pub(super) const HELD: SignedDuration = SignedDuration::from_hours(1);

/// What is kept of a note.
const NOTE_CAP: usize = 2_000;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Until it is settled, or somebody else has it.
pub(super) async fn prepare(engine: Arc<Engine>, schedule: ScheduleId, key: FiringKey) {
    let mut pause = FIRST_PAUSE;
    while let Err(error) = (Errand { engine: &engine, schedule, key: &key }).try_to_run().await {
        let asked = error.downcast_ref::<WorkSourceError>().and_then(WorkSourceError::retry_after);
        let message = format!("{error:#}");
        warn!(firing = %key, "cannot prepare it at the moment: {message}");
        if let Err(error) = engine.store.note_trouble(schedule, Some(message), engine.clock.now()).await {
            warn!("and cannot write that down: {error}");
        }
        tokio::time::sleep(asked.unwrap_or(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    engine.prepared(schedule, &key);
}

pub(super) struct Errand<'a> {
    pub(super) engine: &'a Engine,
    schedule: ScheduleId,
    key: &'a FiringKey,
}

/// What the errand is for.
pub(super) struct Order<'a> {
    pub(super) agent: &'a Agent,
    pub(super) schedule: &'a Schedule,
    preparation: Preparation,
}

impl Order<'_> {
    pub(super) const fn occasion(&self) -> &Occasion {
        &self.preparation.occasion
    }
}

impl Errand<'_> {
    /// A work source, which may be anybody's, can panic as well as fail.
    async fn try_to_run(&self) -> anyhow::Result<()> {
        caught(self.run()).await.context("preparing it")?
    }

    async fn run(&self) -> anyhow::Result<()> {
        let (engine, now) = (self.engine, self.now());
        let loaded = engine.loaded();
        // A schedule that is gone from the config keeps its firing, in case it comes back.
        let Some((agent, schedule)) = loaded.roster.schedule(self.schedule) else { return Ok(()) };
        let (node, until) = (engine.home.node.clone(), now.checked_add(LEASE)?);
        let taken = engine.store.take_preparing(self.schedule, self.key.clone(), node, until, now).await?;
        let Some(preparation) = taken else { return Ok(()) };
        let mut order = Order { agent, schedule, preparation };
        let (prepared, words) = self.outcome(&mut order).await?;
        fault::place("prepared");
        let words = words.map(|words| cut(&words, 0, NOTE_CAP));
        engine.store.prepared(self.schedule, self.key.clone(), prepared, words, self.now()).await?;
        Ok(())
    }

    /// What it comes to, and what there is to say about it.
    async fn outcome(&self, order: &mut Order<'_>) -> anyhow::Result<(Prepared, Option<String>)> {
        if let Some(reason) = self.turned_off().await? {
            return Ok((Prepared::Skip(reason), None));
        }
        // Before anything is run for it.
        let verdict = if self.key.is_by_hand() { Verdict::Trusted } else { self.judge_firing(order).await? };
        let note = match verdict {
            Verdict::Refused(why) => return Ok((Prepared::Skip(SkipReason::Filtered), Some(why))),
            Verdict::Confined(why) => {
                order.preparation.occasion.confined = Some(why.clone());
                Some(format!("in the strict sandbox: {why}"))
            }
            Verdict::Trusted => None,
        };
        if !self.is_let_through(order).await? {
            return Ok((Prepared::Skip(SkipReason::Filtered), None));
        }
        if For::schedule(order.agent, order.schedule).config().is_some() {
            let (prepared, of_items) = self.items(order).await?;
            let notes: Vec<String> = note.into_iter().chain(of_items).collect();
            return Ok((prepared, (!notes.is_empty()).then(|| notes.join("; "))));
        }
        Ok((Prepared::Job(self.job(order, None, None)), note))
    }

    /// A schedule that went off since does not run, unless somebody wants it to.
    async fn turned_off(&self) -> anyhow::Result<Option<SkipReason>> {
        let record = self.engine.store.schedule(self.schedule).await?;
        // A delay is off as soon as it has fired.
        if !self.key.is_by_hand() && self.key.kind() != "delay" {
            match record.map(|record| record.state) {
                Some(ScheduleState::Disabled { .. } | ScheduleState::Error { .. }) => {
                    return Ok(Some(SkipReason::Disabled));
                }
                Some(ScheduleState::Paused { .. }) => return Ok(Some(SkipReason::Paused)),
                Some(ScheduleState::Active) | None => {}
            }
        }
        Ok(None)
    }

    /// As `when_command` says.
    async fn is_let_through(&self, order: &Order<'_>) -> anyhow::Result<bool> {
        let Some(command) = &order.schedule.when_command else { return Ok(true) };
        let allowed = gate::allows(command, &order.agent.directory).await;
        allowed.with_context(|| format!("`when_command` of {}", order.schedule.name))
    }

    /// `confined` is why the item's words are not trusted; the firing's own may not be, either.
    fn job(&self, order: &Order<'_>, item: Option<&WorkItem>, confined: Option<String>) -> NewJob {
        let Order { agent, schedule, preparation } = order;
        let due = self.key.is_by_clock().then_some(preparation.due);
        let (schedule, zone) = (Some(*schedule), &TimeZone::system());
        let occasion = &preparation.occasion;
        let new =
            firing::Firing { agent, schedule, key: self.key, due, occasion, zone }.job(item, self.now());
        NewJob { confined: confined.or(new.confined), ..new }
    }

    /// One job for each item, as many as the agent has places for.
    async fn items(&self, order: &Order<'_>) -> anyhow::Result<(Prepared, Option<String>)> {
        let whose = For::schedule(order.agent, order.schedule);
        let sources = Arc::clone(&self.engine.loaded().sources);
        let Some(source) = sources.source_of(whose)? else {
            return Ok((Prepared::Skip(SkipReason::NoWork), None));
        };
        self.put_back_lapsed(order, source.as_ref()).await;
        let candidates = sources.candidates(whose, &FetchOptions::default()).await?;
        if let Some(quota) = source.quota() {
            let left = quota.rate_limit.map(|info| info.remaining);
            let (requests, unchanged, waits) = (quota.requests, quota.conditional_hits, quota.waits);
            debug!(agent = %order.agent.name, requests, unchanged, waits, left, "asked for work");
        }
        let mut places = self.places(order.agent).await?;
        // What a try before us has made counts, too.
        let before = self.engine.store.firing(self.schedule, self.key.clone()).await?;
        let mut made = usize::from(before.is_some_and(|firing| firing.job.is_some()));
        let (mut refused, mut unknown) = (Vec::new(), None);
        for item in candidates {
            if places == 0 {
                break;
            }
            let confined = match self.judge_item(order, &item).await {
                Ok(Verdict::Refused(why)) => {
                    debug!(item = %item.id, "left alone: {why}");
                    refused.push(format!("{}: {why}", item.id));
                    continue;
                }
                // Others' items do not wait for this one's author.
                Err(error) => {
                    warn!(item = %item.id, "left for now: {error:#}");
                    unknown = Some(error);
                    continue;
                }
                Ok(Verdict::Confined(why)) => Some(why),
                Ok(Verdict::Trusted) => None,
            };
            if self.take(order, source.as_ref(), item, confined).await? {
                (places, made) = (places - 1, made + 1);
            }
        }
        if let Some(error) = unknown.filter(|_| made == 0) {
            return Err(error);
        }
        let prepared = match (made, refused.is_empty()) {
            (0, true) => Prepared::Skip(SkipReason::NoWork),
            (0, false) => Prepared::Skip(SkipReason::Filtered),
            _ => Prepared::Jobs,
        };
        Ok((prepared, (!refused.is_empty()).then(|| format!("left alone: {}", refused.join("; ")))))
    }

    /// At least one: what has no place yet waits for one.
    async fn places(&self, agent: &Agent) -> anyhow::Result<usize> {
        let snapshot = self.engine.store.snapshot().await?;
        let live = snapshot.jobs.iter().filter(|job| job.agent == agent.name).count();
        Ok((agent.max_concurrent as usize).saturating_sub(live).max(1))
    }

    /// Whether the item is ours now, with its job.
    async fn take(
        &self,
        order: &Order<'_>,
        source: &dyn WorkSource,
        item: WorkItem,
        confined: Option<String>,
    ) -> anyhow::Result<bool> {
        let (engine, now) = (self.engine, self.now());
        let Some(taking) = self.taking(order, item.clone())? else { return Ok(false) };
        let holder = match engine.store.take_item(taking, None, now).await? {
            Taken::Ours(holder) => holder,
            Taken::Held => return Ok(false),
            Taken::TooOften { failures } => {
                info!(item = %item.id, failures, "left for a person: it failed too often");
                return Ok(false);
            }
        };
        fault::place("item_taken");
        let until = now.checked_add(HELD)?;
        let by = Claimant { fleet: engine.store.fleet_id().await?, holder: holder.to_string(), until };
        match guarded(source.claim_work(&item.id, &by)).await {
            Ok(ClaimResult::Claimed(item)) => {
                fault::place("item_claimed");
                let new = self.job(order, Some(&item), confined);
                let of = OfFiring { schedule: self.schedule, key: self.key.clone() };
                let job = engine.store.hold_item(holder, new, of, until, self.now()).await?;
                engine.nudge.notify_one();
                engine.owed.notify_one();
                Ok(job.is_some())
            }
            Ok(ClaimResult::Refused { reason, message }) => {
                engine.store.leave_item(holder.to_string()).await?;
                if tries_the_next(reason) {
                    info!(item = %item.id, ?reason, "not ours");
                    return Ok(false);
                }
                anyhow::bail!(
                    "{} cannot be claimed: {}",
                    item.id,
                    message.unwrap_or_else(|| format!("{reason:?}"))
                )
            }
            Err(error) => {
                let reason = format!("the claim did not succeed: {error}");
                engine.store.give_up_item(holder.to_string(), reason, self.now()).await?;
                engine.owed.notify_one();
                Err(error.into())
            }
        }
    }

    pub(super) fn taking(&self, order: &Order<'_>, item: WorkItem) -> anyhow::Result<Option<Taking>> {
        let (engine, whose) = (self.engine, For::schedule(order.agent, order.schedule));
        let Some(config) = whose.config() else { return Ok(None) };
        Ok(Some(Taking {
            queue: config.queue(&engine.loaded().sources.setting().base),
            item,
            source: config.clone(),
            node: engine.home.node.clone(),
            agent: order.agent.name.clone(),
            schedule: Some(order.schedule.name.clone()),
            until: self.now().checked_add(CLAIMING)?,
        }))
    }

    pub(super) fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }
}

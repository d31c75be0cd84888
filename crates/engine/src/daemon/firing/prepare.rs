//! Prepares a firing: checks trust and `when_command`, and claims the items to work on.
//!
//! The firing is recorded before the preparation, and the result of the preparation afterwards. So the preparation is
//! tried again after a crash.

use std::time::Duration;

use anyhow::Context;
use cowhand_core::cut::cut;
use cowhand_core::firing::{self, confined_note};
use cowhand_core::id::ScheduleId;
use cowhand_core::job::NewJob;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::schedule::{ScheduleState, SkipReason};
use cowhand_core::trigger::{FiringContext, FiringKey};
use cowhand_core::trust::TrustVerdict;
use cowhand_core::work::WorkItem;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::context::Engine;
use crate::schedule_view::WHEN_COMMAND;
use crate::secrets::redactor_over;
use cowhand_run::gate::{self, GateAnswer, printed_suffix};
use cowhand_store::{NewItemClaim, Preparation, Prepared, TakeConditions, TakePreparing, audit};
use cowhand_system::fault;
use cowhand_system::panic::caught;
use cowhand_work::{SourceOwner, WorkSourceError};

/// Time for which no other node prepares a firing that this node has taken.
const PREPARE_LEASE: SignedDuration = SignedDuration::from_mins(5);
/// Time after which an unfinished claim is undone.
pub(super) const UNFINISHED_CLAIM_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// Time for which a claim at a work source is valid without a renewal. The outbox renews a claim when half of this time
/// is over.
pub(in crate::daemon) const CLAIM_VALID_FOR: SignedDuration = SignedDuration::from_hours(1);

/// Maximum length in bytes of a stored note.
const NOTE_CAP: usize = 2_000;

/// Result of one try.
pub(super) enum Step {
    /// The result of the firing is recorded, or its schedule is not in the config.
    Done,
    /// Another node prepares this firing, or an earlier firing of the schedule.
    Elsewhere,
    /// The try failed. `tries` includes this try; `wait` is the wait that the work source asks for.
    Failed { error: anyhow::Error, tries: u32, wait: Option<Duration> },
}

pub(super) struct Preparer<'a> {
    pub(super) engine: &'a Engine,
    pub(super) schedule: ScheduleId,
    pub(super) key: &'a FiringKey,
}

/// The agent, the schedule and the data of the firing that is prepared.
pub(super) struct PreparedFiring<'a> {
    pub(super) agent: &'a Agent,
    pub(super) schedule: &'a Schedule,
    preparation: Preparation,
}

impl PreparedFiring<'_> {
    pub(super) const fn firing_context(&self) -> &FiringContext {
        &self.preparation.context
    }
}

impl Preparer<'_> {
    pub(super) async fn try_to_run(&self) -> Step {
        let (engine, now) = (self.engine, self.now());
        let loaded = engine.loaded();
        // A schedule that was removed from the config keeps its firing, because the schedule may be added again.
        let Some((agent, schedule)) = loaded.roster.schedule(self.schedule) else { return Step::Done };
        let (node, until) =
            (engine.home.node.clone(), now.checked_add(PREPARE_LEASE).unwrap_or(Timestamp::MAX));
        let taken = engine.store.take_preparing(self.schedule, self.key.clone(), node, until, now).await;
        let preparation = match taken {
            Ok(TakePreparing::Ours(preparation)) => preparation,
            Ok(TakePreparing::Done) => return Step::Done,
            Ok(TakePreparing::Elsewhere) => return Step::Elsewhere,
            Err(error) => return Step::Failed { error: error.into(), tries: 1, wait: None },
        };
        let tries = preparation.tries;
        let firing = PreparedFiring { agent, schedule, preparation };
        // A work source may be code of the library's user, which can panic.
        let prepared = match firing.firing_context().by.clone() {
            Some(actor) => caught(audit::by(actor, self.run(firing))).await,
            None => caught(self.run(firing)).await,
        };
        match prepared.context("preparing it").and_then(|done| done) {
            Ok(()) => Step::Done,
            Err(error) => {
                let wait = error.downcast_ref::<WorkSourceError>().and_then(WorkSourceError::retry_after);
                Step::Failed { error, tries, wait }
            }
        }
    }

    async fn run(&self, mut firing: PreparedFiring<'_>) -> anyhow::Result<()> {
        let (prepared, note) = self.outcome(&mut firing).await?;
        fault::point("prepared");
        let note = note.map(|note| cut(&note, 0, NOTE_CAP));
        self.engine.store.prepared(self.schedule, self.key.clone(), prepared, note, self.now()).await?;
        Ok(())
    }

    /// Returns the result of the preparation, with a note about it.
    async fn outcome(&self, firing: &mut PreparedFiring<'_>) -> anyhow::Result<(Prepared, Option<String>)> {
        if let Some(reason) = self.off_reason(firing.schedule).await? {
            return Ok((Prepared::Skip(reason), None));
        }
        // Trust is checked before any command runs.
        let verdict =
            if self.key.is_by_hand() { TrustVerdict::Trusted } else { self.judge_firing(firing).await? };
        let note = match verdict {
            TrustVerdict::Refused(why) => return Ok((Prepared::Skip(SkipReason::Filtered), Some(why))),
            TrustVerdict::Confined(why) => {
                firing.preparation.context.confined = Some(why.clone());
                Some(confined_note(&why))
            }
            TrustVerdict::Trusted => None,
        };
        let answer = self.ask_command(firing).await?;
        if let Some(GateAnswer { allows: false, output }) = answer {
            let note = format!("{WHEN_COMMAND} rejected it{}", printed_suffix(&output));
            return Ok((Prepared::Skip(SkipReason::Filtered), Some(note)));
        }
        if SourceOwner::schedule(firing.agent, firing.schedule).config().is_some() {
            let (prepared, item_note) = self.items(firing).await?;
            let notes: Vec<String> = note.into_iter().chain(item_note).collect();
            return Ok((prepared, (!notes.is_empty()).then(|| notes.join("; "))));
        }
        Ok((Prepared::Job(self.job(firing, None, None)), note))
    }

    /// Returns the reason to skip a firing whose schedule was turned off or paused meanwhile. Only firings by the clock
    /// are skipped, except the firing of a `delay`, because the schedule of a `delay` is disabled as soon as it has
    /// fired. A firing by hand or from outside is already accepted, so it is not skipped; its job waits for the end of
    /// a pause.
    async fn off_reason(&self, schedule: &Schedule) -> anyhow::Result<Option<SkipReason>> {
        if !self.key.is_dropped_when_disabled() {
            return Ok(None);
        }
        let record = self.engine.store.schedule(self.schedule).await?;
        Ok(match record.map(|record| record.state) {
            _ if !schedule.enabled => Some(SkipReason::Disabled),
            Some(ScheduleState::Disabled { .. } | ScheduleState::Error { .. }) => Some(SkipReason::Disabled),
            Some(ScheduleState::Paused { .. }) => Some(SkipReason::Paused),
            Some(ScheduleState::Active | ScheduleState::Finished) | None => None,
        })
    }

    /// Runs `when_command` and returns its answer with masked secrets; `None` if there is no such command.
    async fn ask_command(&self, firing: &PreparedFiring<'_>) -> anyhow::Result<Option<GateAnswer>> {
        let Some(command) = &firing.schedule.when_command else { return Ok(None) };
        let redactor = redactor_over(&self.engine.loaded(), Some(firing.agent));
        let answer = gate::allows(&self.engine.program, command, &firing.agent.directory, redactor).await;
        answer.map(Some).with_context(|| format!("`when_command` of {}", firing.schedule.name))
    }

    /// Builds a job of the firing. `confined` is the reason why the item's text is not trusted; the firing's own text
    /// may be untrusted, too.
    pub(super) fn job(
        &self,
        firing: &PreparedFiring<'_>,
        item: Option<&WorkItem>,
        confined: Option<String>,
    ) -> NewJob {
        let PreparedFiring { agent, schedule, preparation } = firing;
        let due = self.key.is_by_clock().then_some(preparation.due);
        let (schedule, zone) = (Some(*schedule), &TimeZone::system());
        let confined_context =
            confined.map(|why| FiringContext { confined: Some(why), ..preparation.context.clone() });
        let firing_context = confined_context.as_ref().unwrap_or(&preparation.context);
        firing::Firing { agent, schedule, key: self.key, due, firing_context, zone }.job(item, self.now())
    }

    pub(super) fn item_claim(
        &self,
        firing: &PreparedFiring<'_>,
        item: WorkItem,
    ) -> anyhow::Result<Option<NewItemClaim>> {
        let (engine, owner) = (self.engine, SourceOwner::schedule(firing.agent, firing.schedule));
        let Some(config) = owner.config() else { return Ok(None) };
        Ok(Some(NewItemClaim {
            queue: config.queue(&engine.loaded().sources.context().base),
            item,
            source: config.clone(),
            node: engine.home.node.clone(),
            agent: firing.agent.name.clone(),
            schedule: Some(firing.schedule.name.clone()),
            until: self.now().checked_add(UNFINISHED_CLAIM_TIMEOUT)?,
            unless: TakeConditions { given_up: true, released_since: None },
        }))
    }

    pub(super) fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }
}

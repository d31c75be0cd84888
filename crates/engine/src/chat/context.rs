//! Data that the parts of the chat share: the fleet and the bots, with functions for the leases and states of bots.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use cowhand_chat::ConnectionState;
use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::settings::PlatformChat;
use cowhand_core::id::AgentName;
use cowhand_core::interval::Interval;
use cowhand_core::job::JobStatus;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::schedule::FiringOutcome;
use cowhand_core::trigger::TriggerConfig;
use jiff::{SignedDuration, Timestamp};
use tracing::warn;

use super::bot::{BOT_LEASE, Bot};
use super::other_nodes::HeldConditions;
use super::refusal::PostedRefusals;
use crate::chat_bots::{BotSettings, bots_of};
use crate::fleet::{Fleet, FleetError};
use crate::loaded::Loaded;
use cowhand_store::{ChatAnswer, ChatBotState, FiringJobRow, Store, StoreError, audit};

/// Default age up to which missed messages fire a schedule.
const DEFAULT_LATENESS: SignedDuration = SignedDuration::from_hours(24);

/// Returns the age up to which a missed message fires a schedule.
pub(super) fn max_lateness(schedule: &Schedule) -> SignedDuration {
    schedule.timing.max_lateness.map_or(DEFAULT_LATENESS, Interval::duration)
}

#[derive(Debug)]
pub(super) struct ChatContext {
    pub(super) fleet: Arc<Fleet>,
    pub(super) refusals: PostedRefusals,
    pub(super) held: HeldConditions,
    bots: RwLock<Vec<Arc<Bot>>>,
}

impl ChatContext {
    pub(super) fn new(fleet: Arc<Fleet>) -> Self {
        Self {
            fleet,
            refusals: PostedRefusals::default(),
            held: HeldConditions::default(),
            bots: RwLock::default(),
        }
    }

    pub(super) fn store(&self) -> &Store {
        self.fleet.store()
    }

    /// Returns the folder of the fleet, which contains its config and its state folder.
    pub(super) fn fleet_folder(&self) -> &Path {
        let state = self.fleet.state_folder().path();
        state.parent().unwrap_or(state)
    }

    /// Returns a text for a chat: known secrets are masked, and paths in the folder of the fleet are relative to it.
    pub(super) fn public_text(&self, text: &str) -> String {
        let folder = format!("{}/", self.fleet_folder().display());
        let text = self.fleet.redactor().redact(text);
        if folder.len() > 1 { text.replace(&folder, "") } else { text.into_owned() }
    }

    pub(super) fn node(&self) -> String {
        self.fleet.node().to_owned()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.fleet.clock().now()
    }

    pub(super) fn config(&self) -> Arc<Loaded> {
        self.fleet.current()
    }

    pub(super) fn set_bots(&self, bots: Vec<Arc<Bot>>) {
        *self.bots.write().unwrap_or_else(PoisonError::into_inner) = bots;
    }

    pub(super) fn bots(&self) -> Vec<Arc<Bot>> {
        self.bots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the bot that an agent uses on a platform; none if the agent is not on the platform, or if its bot has no
    /// tokens.
    pub(super) fn bot_of(&self, agent: &AgentName, platform: ChatPlatform) -> Option<Arc<Bot>> {
        let bots = self.bots();
        bots.into_iter().find(|bot| bot.platform == platform && bot.agents().contains(agent))
    }

    /// Returns the chat settings of an agent on a platform.
    pub(super) fn chat_of(&self, agent: &AgentName, platform: ChatPlatform) -> Option<PlatformChat> {
        self.fleet.roster().agent(agent)?.chat.as_ref()?.on(platform).cloned()
    }

    /// Returns the agents of a bot with their chat settings, in the order of the config.
    pub(super) fn agents_of(&self, bot: &Bot) -> Vec<(Agent, PlatformChat)> {
        let roster = self.fleet.roster();
        let agents = bot.agents();
        let of_bot = agents.iter().filter_map(|name| roster.agent(name));
        of_bot
            .filter_map(|agent| {
                let chat = agent.chat.as_ref()?.on(bot.platform)?.clone();
                Some((agent.clone(), chat))
            })
            .collect()
    }

    /// Returns the age up to which missed messages of a bot are read after a downtime: the longest `max_lateness` of the
    /// chat schedules of its agents.
    pub(super) fn max_lateness(&self, bot: &Bot) -> SignedDuration {
        let agents = self.agents_of(bot);
        let schedules = agents.iter().flat_map(|(agent, _)| &agent.schedules);
        let of_chat = schedules.filter(|schedule| matches!(schedule.trigger, TriggerConfig::Chat { .. }));
        of_chat.map(max_lateness).max().unwrap_or(DEFAULT_LATENESS)
    }

    /// Cancels the firing or the pending job of an answer. Returns false if the job has started, or there is none.
    pub(super) async fn cancel_waiting(&self, answer: &ChatAnswer) -> Result<bool, FleetError> {
        let (schedule, key) = (answer.schedule, answer.key.clone());
        let Some(firing) = self.store().firing(schedule, key.clone()).await? else { return Ok(false) };
        if firing.outcome == FiringOutcome::Preparing {
            return Ok(self.store().cancel_firing(schedule, key, self.now()).await?);
        }
        let is_pending = |job: &&FiringJobRow| job.status == JobStatus::Pending;
        let Some(job) = firing.jobs.iter().find(is_pending) else { return Ok(false) };
        let actor = super::actor_of(answer.origin.platform, answer.origin.requester());
        audit::by(actor, self.fleet.cancel(job.id.clone())).await?;
        Ok(true)
    }

    /// Takes or renews the lease of a bot for this node. Returns false if another node has it.
    pub(super) async fn hold(&self, bot: &Bot) -> Result<bool, StoreError> {
        let used_by = (bot.platform, bot.agents());
        self.store().hold_chat_bot(bot.key.clone(), self.node(), used_by, BOT_LEASE, self.now()).await
    }

    /// Returns whether this node was the last to get the lease of a bot. A node that was suspended may have lost the
    /// lease without noticing it.
    pub(super) async fn is_holder(&self, bot: &Bot) -> Result<bool, StoreError> {
        self.store().is_chat_bot_of(bot.key.clone(), self.node()).await
    }

    /// Returns whether this node is connected for the bot.
    pub(super) fn is_connected(bot: &Bot) -> bool {
        matches!(&*bot.connector.state().borrow(), ConnectionState::Connected(_))
    }

    /// Records the state of a connection. An error is only logged, because the next change is recorded again.
    pub(super) async fn record_state(&self, bot: &Bot, state: ChatBotState) {
        let recorded = self.store().set_chat_bot_state(bot.key.clone(), self.node(), state, self.now());
        if let Err(error) = recorded.await {
            warn!(bot = bot.key, "cannot record the state of a chat bot: {error}");
        }
    }

    /// Records under which key the messages of a bot are stored. An error is only logged, because the next connection
    /// records it again.
    pub(super) async fn record_inbox(&self, bot: &Bot) {
        let Some(inbox) = bot.inbox() else { return };
        if let Err(error) = self.store().set_chat_bot_inbox(bot.key.clone(), inbox).await {
            warn!(bot = bot.key, "cannot record the account of a chat bot: {error}");
        }
    }

    /// Records why a bot cannot be connected at all, unless another node is connected for it.
    pub(super) async fn record_unusable(&self, bot: &BotSettings, agents: &[AgentName], reason: String) {
        let (key, node, now) = (bot.key.clone(), self.node(), self.now());
        let used_by = (bot.platform, agents.to_vec());
        let recorded = async {
            // Without a lease, a node that has the tokens can connect at once.
            let lease = SignedDuration::ZERO;
            if self.store().hold_chat_bot(key.clone(), node.clone(), used_by, lease, now).await? {
                let state = ChatBotState::Refused { reason };
                self.store().set_chat_bot_state(key.clone(), node, state, now).await?;
            }
            Ok::<(), StoreError>(())
        };
        if let Err(error) = recorded.await {
            warn!(bot = key, "cannot record the state of a chat bot: {error}");
        }
    }

    /// Removes the records of bots that no agent of the config uses.
    pub(super) async fn drop_other_bots(&self) {
        let config = self.config();
        let bots = bots_of(&config.roster, &config.sources);
        let used: Vec<String> = bots.into_iter().map(|(bot, _)| bot.key).collect();
        let dropped = async {
            for record in self.store().chat_bots().await? {
                if !used.contains(&record.bot) && record.until <= self.now() {
                    self.store().drop_chat_bot(record.bot).await?;
                }
            }
            Ok::<(), StoreError>(())
        };
        if let Err(error) = dropped.await {
            warn!("cannot remove the records of unused chat bots: {error}");
        }
    }
}

//! Chat: agents that are addressed on Slack and Discord, and the answers that are posted there.
//!
//! A message is stored before the platform gets a confirmation ([`bot`]). The stored messages of a channel are handled
//! in their order ([`intake`]): a message becomes a firing, a command, an answer to an ask or a refusal. The output of
//! the job is posted as the answer ([`answers`]).

mod accepted;
mod answer;
mod answer_end;
mod answers;
mod asks;
mod attachments;
mod bot;
mod bot_view;
mod buttons;
mod changes;
mod command_answers;
mod command_limits;
mod commands;
mod context;
mod conversation;
mod handling;
mod intake;
mod job_output;
mod live_answers;
mod missed;
mod other_nodes;
mod output_lines;
mod person_limits;
mod post_tries;
mod posts;
mod progress_tries;
mod refusal;
mod sent_files;
mod voice;
mod waiting_note;

use std::sync::Arc;

use cowhand_core::actor::Actor;
use cowhand_core::chat::{ChatPlatform, ChatUser};
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::warn;

use crate::chat_bots::{BotSettings, bots_of};
use crate::fleet::Fleet;
use bot::{Bot, keep_connected};
use context::ChatContext;
use cowhand_system::{fault, panic};

pub use bot_view::{ChatBotStatus, ChatBotView, chat_bots};

/// Time between two comparisons of the running bots with the config.
const CONFIG_CHECK_EVERY: std::time::Duration = std::time::Duration::from_secs(2);

/// The chat of a fleet. It connects the bots of the agents until it is closed.
#[derive(Debug)]
pub struct ChatService {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl ChatService {
    /// Connects the bots of the fleet's agents, and follows changes of the config.
    pub fn start(fleet: Arc<Fleet>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let context = Arc::new(ChatContext::new(fleet));
        let running = Mutex::new(RunningChat::default());
        let task = tokio::spawn(async move {
            panic::restart_on_panic("the task that starts and stops chat bots", || {
                run(Arc::clone(&context), &running, stopped.clone())
            })
            .await;
        });
        Self { stop, task }
    }

    /// Disconnects the bots.
    pub async fn close(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            warn!("the chat service ended with an error: {error}");
        }
    }
}

/// The tasks of the chat. They go on if the task that starts and stops them is restarted.
#[derive(Default)]
struct RunningChat {
    bots: Vec<RunningBot>,
    /// The tasks that post answers, asks and notes.
    answering: JoinSet<()>,
}

/// A bot with the sender that stops it.
struct RunningBot {
    settings: BotSettings,
    bot: Arc<Bot>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl RunningBot {
    /// Disconnects the bot. Another connection with the same token may begin afterwards.
    async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            warn!(bot = self.bot.key, "the task of a chat bot ended with an error: {error}");
        }
    }
}

async fn run(context: Arc<ChatContext>, running: &Mutex<RunningChat>, mut stopped: watch::Receiver<bool>) {
    let mut running = running.lock().await;
    let RunningChat { bots, answering } = &mut *running;
    let mut seen = None;
    loop {
        let config = context.config();
        if !seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &config)) {
            adapt(&context, bots).await;
            fault::point("chat_bots_started");
            if !bots.is_empty() && answering.is_empty() {
                answering.spawn(answers::post_answers(Arc::clone(&context)));
                answering.spawn(asks::close::close_asks(Arc::clone(&context)));
                answering.spawn(waiting_note::keep_notes(Arc::clone(&context)));
            }
            seen = Some(config);
        }
        tokio::select! {
            () = tokio::time::sleep(CONFIG_CHECK_EVERY) => {}
            () = bot::stopped(&mut stopped) => break,
        }
    }
    answering.shutdown().await;
    for one in bots.iter() {
        one.stop.send_replace(true);
    }
    for one in bots.drain(..) {
        one.stop().await;
    }
}

/// Starts and stops bots, so that the running bots are those of the config.
async fn adapt(context: &Arc<ChatContext>, running: &mut Vec<RunningBot>) {
    let config = context.config();
    let wanted = bots_of(&config.roster, &config.sources);
    let is_unwanted = |one: &mut RunningBot| wanted.iter().all(|(settings, _)| *settings != one.settings);
    for unwanted in running.extract_if(.., is_unwanted) {
        unwanted.stop().await;
    }
    for (settings, agents) in wanted {
        if let Some(one) = running.iter().find(|one| one.settings == settings) {
            one.bot.set_agents(agents);
            // The config was read again, so a person may have corrected the reason of a refusal.
            one.bot.retry.notify_one();
            continue;
        }
        let bot = match settings.connector(commands::slash_commands(settings.has_skills)) {
            Ok(connector) => Arc::new(Bot::new(settings.key.clone(), settings.platform, connector, agents)),
            Err(error) => {
                warn!(
                    bot = settings.key,
                    "the chat bot cannot be connected: {error}; {}",
                    bot_view::REFUSED_ADVICE
                );
                context.record_unusable(&settings, &agents, error.to_string()).await;
                continue;
            }
        };
        let (stop, stopped) = watch::channel(false);
        let (of_task, of_bot) = (Arc::clone(context), Arc::clone(&bot));
        let task = tokio::spawn(async move {
            panic::restart_on_panic("a chat bot", || {
                keep_connected(Arc::clone(&of_task), Arc::clone(&of_bot), stopped.clone())
            })
            .await;
        });
        running.push(RunningBot { settings, bot, stop, task });
    }
    context.set_bots(running.iter().map(|one| Arc::clone(&one.bot)).collect());
    context.drop_other_bots().await;
}

/// Returns the user of a chat as the actor of an event.
fn actor_of(platform: ChatPlatform, user: &ChatUser) -> Actor {
    Actor::Chat { platform, id: user.id.clone(), name: user.name.clone() }
}

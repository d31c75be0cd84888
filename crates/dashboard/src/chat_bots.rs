//! The bots on chat platforms, with the states of their connections.

use cowhand_core::id::AgentName;
use jiff::Timestamp;
use maud::{Markup, html};

use super::elements;
use super::layout::part;
use super::text::{self, ShownMessage};
use cowhand_engine::chat::{ChatBotStatus, ChatBotView};
use cowhand_web::api::StatusView;

/// Shows the bots of one agent. Shows nothing if it has none.
pub(super) fn of_agent(status: &StatusView, agent: &AgentName, now: Timestamp) -> Markup {
    let bots: Vec<&ChatBotView> = status.chat_bots.iter().filter(|bot| bot.agents.contains(agent)).collect();
    html! {
        @if !bots.is_empty() { (part("chat-bots", "Chat bots", &html! {}, &rows(&bots, status, now))) }
    }
}

pub(super) fn table(status: &StatusView, now: Timestamp) -> Markup {
    rows(&status.chat_bots.iter().collect::<Vec<_>>(), status, now)
}

/// Returns the bots that their platforms refuse, or whose tokens are missing.
pub(super) fn refused(status: &StatusView) -> impl Iterator<Item = &ChatBotView> {
    status.chat_bots.iter().filter(|bot| bot.status == ChatBotStatus::Refused)
}

/// Describes the connection of a bot, and what its chats lack.
pub(super) fn state(bot: &ChatBotView, status: &StatusView, now: Timestamp) -> String {
    bot.state_in_words(status.daemon.node.as_deref(), now)
}

fn rows(bots: &[&ChatBotView], status: &StatusView, now: Timestamp) -> Markup {
    html! {
        table {
            thead { tr { th { "Bot" } th { "Status" } th { "Agents" } th.grow { "State" } } }
            tbody {
                @for bot in bots {
                    tr {
                        td { code.any { (text::short(&bot.bot, 60)) } }
                        td { (elements::status_as(symbol(bot.status), bot.status.as_str())) }
                        td { @for agent in &bot.agents { (elements::agent(agent)) " " } }
                        td.grow { (ShownMessage(&state(bot, status, now))) }
                    }
                }
            }
        }
    }
}

const fn symbol(status: ChatBotStatus) -> &'static str {
    match status {
        ChatBotStatus::Connected => "completed",
        ChatBotStatus::Connecting => "pending",
        ChatBotStatus::Refused => "error",
        ChatBotStatus::Stopped => "disabled",
    }
}

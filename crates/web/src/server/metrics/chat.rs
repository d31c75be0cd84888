//! Metrics of the bots on chat platforms.

use cowhand_engine::chat::{ChatBotStatus, ChatBotView, chat_bots};

use super::Metrics;
use super::text::{MetricKind, MetricsText};
use crate::api::ApiProblem;

impl Metrics {
    pub(super) async fn write_chat(&self, page: &mut MetricsText) -> Result<(), ApiProblem> {
        let (roster, now) = (self.fleet.roster(), self.fleet.clock().now());
        let bots = chat_bots(self.fleet.store(), &roster, false, None, now).await?;
        let mut write = |name: &str, help: &str, value: fn(&ChatBotView) -> u32| {
            let values = bots.iter().map(|bot| ([("bot", bot.bot.clone())], value(bot)));
            page.family(MetricKind::Gauge, name, help, values);
        };
        write("cowhand_chat_bot_connected", "1 if the bot is connected, otherwise 0.", |bot| {
            u32::from(bot.status == ChatBotStatus::Connected)
        });
        write("cowhand_chat_open_answers", "Answers to chat messages that are not complete.", |bot| {
            bot.open_answers
        });
        write(
            "cowhand_chat_unhandled_messages",
            "Received chat messages that are stored and not handled yet.",
            |bot| bot.unhandled_messages,
        );
        write(
            "cowhand_chat_refused_answers",
            "Answers to chat messages of which the platform has refused a part for good in the last 24 hours.",
            |bot| bot.refused_answers,
        );
        Ok(())
    }
}

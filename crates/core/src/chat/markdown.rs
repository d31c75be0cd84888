//! Converts Markdown to the notations of the platforms, and to HTML for the dashboard.

mod discord;
mod html;
mod masked_link;
mod nesting;
mod slack;
mod table;

use pulldown_cmark::Options;

use super::ChatPlatform;
use super::escape::{entities, without_mentions};
use super::split::split;
use crate::invisible::without_invisible;

pub use html::to_html;

/// Converts a text in Markdown to messages in the notation of the platform, each within the platform's limit. A text
/// without visible characters becomes no message.
pub fn to_posts(markdown: &str, platform: ChatPlatform) -> Vec<String> {
    split(&convert(markdown, platform), post_limit(platform))
}

/// Returns the maximum length of a message, counted as [`super::split::length`] counts.
pub const fn post_limit(platform: ChatPlatform) -> usize {
    match platform {
        ChatPlatform::Discord => 2_000,
        // The limit of a section block.
        ChatPlatform::Slack => 3_000,
    }
}

/// Converts a text in Markdown to the notation of the platform. The result mentions nobody, and the text of
/// a link never hides another address. A text with lists or quotes
/// that are nested too deeply is not converted.
pub fn convert(markdown: &str, platform: ChatPlatform) -> String {
    let markdown = without_invisible(markdown);
    if nesting::is_too_deep(&markdown) {
        return match platform {
            ChatPlatform::Slack => entities(&markdown),
            ChatPlatform::Discord => masked_link::show_addresses(&without_mentions(&markdown)),
        };
    }
    match platform {
        ChatPlatform::Slack => slack::convert(&markdown),
        ChatPlatform::Discord => discord::convert(&markdown),
    }
}

const OPTIONS: Options =
    Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH).union(Options::ENABLE_TASKLISTS);

const fn checkbox(is_checked: bool) -> &'static str {
    if is_checked { "☑" } else { "☐" }
}

#[cfg(test)]
mod tests;

//! Commands that people send in a chat.

use super::ChatPlatform;

/// Returns how a command is written on a platform, for example `/why coder` for `why coder`.
pub fn command_text(words: &str, platform: ChatPlatform) -> String {
    match platform {
        ChatPlatform::Discord => format!("/{words}"),
        ChatPlatform::Slack => format!("!{words}"),
    }
}

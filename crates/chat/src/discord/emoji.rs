//! Emoji in addresses of requests.

use std::fmt::Write as _;

/// Emoji by the names that people use in the config. Discord accepts only the emoji itself.
const NAMED: [(&str, &str); 26] = [
    ("eyes", "👀"),
    ("hourglass", "⌛"),
    ("hourglass_flowing_sand", "⏳"),
    ("white_check_mark", "✅"),
    ("heavy_check_mark", "✔️"),
    ("x", "❌"),
    ("warning", "⚠️"),
    ("thumbsup", "👍"),
    ("+1", "👍"),
    ("thumbsdown", "👎"),
    ("-1", "👎"),
    ("robot", "🤖"),
    ("robot_face", "🤖"),
    ("rocket", "🚀"),
    ("tada", "🎉"),
    ("thinking", "🤔"),
    ("thinking_face", "🤔"),
    ("wave", "👋"),
    ("gear", "⚙️"),
    ("hammer", "🔨"),
    ("hammer_and_wrench", "🛠️"),
    ("zap", "⚡"),
    ("ok_hand", "👌"),
    ("stopwatch", "⏱️"),
    ("speech_balloon", "💬"),
    ("bulb", "💡"),
];

/// Returns an emoji as part of a path. A custom emoji is `name:id`.
pub(super) fn emoji_in_path(emoji: &str) -> String {
    let name = emoji.trim_matches(':');
    let unicode = NAMED.iter().find(|(named, _)| *named == name).map_or(name, |(_, unicode)| unicode);
    let mut path = String::new();
    for byte in unicode.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'~') {
            path.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::emoji_in_path;

    #[test]
    fn names_become_emoji_and_are_encoded() {
        for (emoji, path) in [
            ("eyes", "%F0%9F%91%80"),
            (":eyes:", "%F0%9F%91%80"),
            ("👀", "%F0%9F%91%80"),
            ("white_check_mark", "%E2%9C%85"),
            ("party:123456789012345678", "party%3A123456789012345678"),
            ("../@me", "..%2F%40me"),
        ] {
            assert_eq!(emoji_in_path(emoji), path);
        }
    }
}

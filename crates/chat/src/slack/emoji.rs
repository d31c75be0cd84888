//! Names of emoji. Slack's reactions have names only.

/// Emoji that settings commonly use, with their names on Slack.
const EMOJI_NAMES: [(&str, &str); 26] = [
    ("👀", "eyes"),
    ("👍", "+1"),
    ("👎", "-1"),
    ("✅", "white_check_mark"),
    ("☑", "ballot_box_with_check"),
    ("✔", "heavy_check_mark"),
    ("❌", "x"),
    ("❎", "negative_squared_cross_mark"),
    ("⏳", "hourglass_flowing_sand"),
    ("⌛", "hourglass"),
    ("🤖", "robot_face"),
    ("🐄", "cow2"),
    ("🐮", "cow"),
    ("🤠", "face_with_cowboy_hat"),
    ("⚙", "gear"),
    ("🔧", "wrench"),
    ("🚀", "rocket"),
    ("🎉", "tada"),
    ("💬", "speech_balloon"),
    ("💭", "thought_balloon"),
    ("🤔", "thinking_face"),
    ("👋", "wave"),
    ("🔄", "arrows_counterclockwise"),
    ("⚠", "warning"),
    ("🛑", "octagonal_sign"),
    ("❤", "heart"),
];

/// Returns the name of an emoji. `emoji` is the emoji itself, its name, or its name in colons.
pub(super) fn emoji_name(emoji: &str) -> &str {
    let plain = emoji.trim().trim_end_matches('\u{fe0f}');
    let known = EMOJI_NAMES.iter().find(|(symbol, _)| *symbol == plain).map(|(_, name)| *name);
    known.unwrap_or_else(|| plain.trim_matches(':'))
}

#[cfg(test)]
mod tests {
    use super::emoji_name;

    #[test]
    fn emoji_have_names() {
        let cases =
            [("👀", "eyes"), ("⚙️", "gear"), (":hourglass:", "hourglass"), ("eyes", "eyes"), ("+1", "+1")];
        for (emoji, name) in cases {
            assert_eq!(emoji_name(emoji), name);
        }
    }
}

//! Formats texts of others for messages: without mentions, and without characters that people do not see.

use super::ChatPlatform;
use crate::invisible::{is_invisible, without_invisible};

/// Invisible character that is inserted into a mention or a fence, so that it has no effect.
pub(super) const BREAK: char = '\u{200b}';

/// Formats a text of others as a part of one line of a message. The result mentions nobody. On Discord it also formats
/// nothing. On Slack, `*`, `_`, `~` and backticks keep their effect, because Slack has no way to write them without it:
/// `mrkdwn: false` would apply to the whole message.
pub fn escape(text: &str, platform: ChatPlatform) -> String {
    let line = one_line(&without_invisible(text));
    match platform {
        ChatPlatform::Slack => entities(&line),
        ChatPlatform::Discord => {
            let mut out = String::with_capacity(line.len());
            for character in line.chars() {
                let is_leading = out.is_empty() && matches!(character, '#' | '-' | '+');
                if is_leading || r"\*_~`|[]()<>".contains(character) {
                    out.push('\\');
                }
                out.push(character);
            }
            without_mentions(&out)
        }
    }
}

/// Formats a text as a code block. A language is only shown on Discord.
pub fn code_block(text: &str, language: &str, platform: ChatPlatform) -> String {
    let text = without_fences(without_invisible(text).trim_end_matches('\n'));
    match platform {
        ChatPlatform::Slack => format!("```\n{}\n```", entities(&text)),
        ChatPlatform::Discord => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-#_.".contains(c);
            let language = language.split([' ', ',', '{']).next().unwrap_or_default();
            let language = if language.chars().all(is_plain) { language } else { "" };
            format!("```{language}\n{}\n```", without_mentions(&text))
        }
    }
}

/// Formats a text as code within a line. Replaces backticks by apostrophes.
pub fn inline_code(text: &str, platform: ChatPlatform) -> String {
    let line = one_line(&without_invisible(text)).replace('`', "'");
    let line = if line.is_empty() { " ".to_owned() } else { line };
    match platform {
        ChatPlatform::Slack => format!("`{}`", entities(&line)),
        ChatPlatform::Discord => format!("`{}`", without_mentions(&line)),
    }
}

/// Replaces every invisible character by its code, for texts that people read before they decide.
pub fn with_codes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.replace("\r\n", "\n").chars() {
        let is_hidden = character.is_control() || is_invisible(character);
        if (is_hidden || matches!(character, '\u{2028}' | '\u{2029}')) && !matches!(character, '\n' | '\t') {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out
}

/// Replaces the characters that have a meaning on Slack.
pub(super) fn entities(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Makes the mentions of Discord ineffective.
pub(super) fn without_mentions(text: &str) -> String {
    text.replace("@everyone", &format!("@{BREAK}everyone"))
        .replace("@here", &format!("@{BREAK}here"))
        .replace("<@", &format!("<{BREAK}@"))
}

/// Separates three backticks in a row, so that they end no code block.
fn without_fences(text: &str) -> String {
    let (mut out, mut run) = (String::with_capacity(text.len()), 0);
    for character in text.chars() {
        run = if character == '`' { run + 1 } else { 0 };
        if run == 3 {
            out.push(BREAK);
            run = 1;
        }
        out.push(character);
    }
    out
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ChatPlatform::{Discord, Slack};

    #[test]
    fn texts_of_others_mention_nobody() {
        for (text, slack, discord) in [
            ("plain", "plain", "plain"),
            ("a\n b", "a b", "a b"),
            (
                "<!channel> & <@U1>",
                "&lt;!channel&gt; &amp; &lt;@U1&gt;",
                "\\<!channel\\> & \\<\u{200b}@U1\\>",
            ),
            ("@everyone @here", "@everyone @here", "@\u{200b}everyone @\u{200b}here"),
            ("@ev\u{200b}eryone", "@everyone", "@\u{200b}everyone"),
            ("# [x](y) `z`", "# [x](y) `z`", r"\# \[x\]\(y\) \`z\`"),
            ("*a* _b_ ~c~", "*a* _b_ ~c~", r"\*a\* \_b\_ \~c\~"),
            ("\u{202e}txt\u{1b}[1m", "txt", "txt"),
        ] {
            assert_eq!((&escape(text, Slack)[..], &escape(text, Discord)[..]), (slack, discord), "{text}");
        }
    }

    #[test]
    fn nothing_in_a_code_block_ends_it() {
        assert_eq!(code_block("a\n```\n<b>", "rust", Discord), "```rust\na\n``\u{200b}`\n<b>\n```");
        assert_eq!(code_block("`````", "", Slack), "```\n``\u{200b}``\u{200b}`\n```");
        assert_eq!(code_block("a & <b>\n", "rust", Slack), "```\na &amp; &lt;b&gt;\n```");
        assert_eq!(code_block("<@1> @here", "a`b", Discord), "```\n<\u{200b}@1> @\u{200b}here\n```");
        assert_eq!(inline_code("a `b`\nc <", Slack), "`a 'b' c &lt;`");
        assert_eq!(inline_code("", Discord), "` `");
    }

    #[test]
    fn invisible_characters_become_codes() {
        assert_eq!(with_codes("rm\u{202e} \u{1b}[8m\tx\r\ny"), "rm\\u{202e} \\u{1b}[8m\tx\ny");
    }
}

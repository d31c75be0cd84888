//! Reads the notation of Slack for mentions, links and entities.

use std::collections::HashMap;

/// Part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextPart<'a> {
    Plain(&'a str),
    /// The inside of `<…>`: its target and its label.
    Reference(&'a str, Option<&'a str>),
}

/// Returns the ids of the users that the text mentions without stating their names.
pub(super) fn unnamed_users(text: &str) -> Vec<&str> {
    let user = |part| match part {
        TextPart::Reference(target, None | Some("")) => target.strip_prefix('@'),
        TextPart::Reference(..) | TextPart::Plain(_) => None,
    };
    parts(text).into_iter().filter_map(user).collect()
}

/// Returns true if the text mentions the user.
pub(super) fn mentions(text: &str, user: &str) -> bool {
    let is_user = |part: TextPart<'_>| match part {
        TextPart::Reference(target, _) => target.strip_prefix('@') == Some(user),
        TextPart::Plain(_) => false,
    };
    parts(text).into_iter().any(is_user)
}

/// Returns the text as people read it, without the mentions of the bot.
pub(super) fn decode(text: &str, bot: &str, names: &HashMap<String, String>) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut is_bot_removed = false;
    for part in parts(text) {
        match part {
            TextPart::Reference(target, _) if target.strip_prefix('@') == Some(bot) => is_bot_removed = true,
            TextPart::Reference(target, label) => {
                decoded += &reference(target, label, names);
                is_bot_removed = false;
            }
            TextPart::Plain(plain) => {
                let is_spaced = decoded.is_empty() || decoded.ends_with(char::is_whitespace);
                let plain = if is_bot_removed && is_spaced { plain.trim_start_matches(' ') } else { plain };
                decoded += &unescape(plain);
                is_bot_removed = false;
            }
        }
    }
    decoded.trim().to_owned()
}

fn reference(target: &str, label: Option<&str>, names: &HashMap<String, String>) -> String {
    let label = label.filter(|label| !label.is_empty()).map(unescape);
    if let Some(user) = target.strip_prefix('@') {
        let name = label.or_else(|| names.get(user).cloned());
        return format!("@{}", name.as_deref().unwrap_or(user));
    }
    if let Some(channel) = target.strip_prefix('#') {
        return format!("#{}", label.as_deref().unwrap_or(channel));
    }
    if let Some(special) = target.strip_prefix('!') {
        let word = special.split('^').next().unwrap_or(special);
        return label.unwrap_or_else(|| format!("@{word}"));
    }
    let url = unescape(target);
    let bare = url.strip_prefix("mailto:").or_else(|| url.strip_prefix("tel:")).unwrap_or(&url);
    match label {
        None => bare.to_owned(),
        Some(label) if is_same_address(&label, bare) => label,
        Some(label) => format!("{label} ({bare})"),
    }
}

/// Checks whether a label is the address itself. Slack makes a link of `example.org`, and the label of this link is
/// what the author wrote.
fn is_same_address(label: &str, url: &str) -> bool {
    let without_scheme = |text: &str| {
        let text = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
        text.trim_end_matches('/').to_owned()
    };
    without_scheme(label) == without_scheme(url)
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn parts(text: &str) -> Vec<TextPart<'_>> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some(start) = rest.find('<') {
        let Some(length) = rest[start..].find('>') else { break };
        if start > 0 {
            parts.push(TextPart::Plain(&rest[..start]));
        }
        let inside = &rest[start + 1..start + length];
        parts.push(match inside.split_once('|') {
            Some((target, label)) => TextPart::Reference(target, Some(label)),
            None => TextPart::Reference(inside, None),
        });
        rest = &rest[start + length + 1..];
    }
    if !rest.is_empty() {
        parts.push(TextPart::Plain(rest));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notation_of_slack_becomes_readable_text() {
        let names = HashMap::from([("U1".to_owned(), "Ada".to_owned())]);
        let cases = [
            ("<@UBOT> do it", "do it"),
            ("hey <@UBOT> do it", "hey do it"),
            ("do it <@UBOT>", "do it"),
            ("<@UBOT|cow>", ""),
            ("<@UBOT> <@U1> and <@U2> and <@U3|Eve>", "@Ada and @U2 and @Eve"),
            ("in <#C1|general> or <#C2> or <#C3|>", "in #general or #C2 or #C3"),
            ("<https://a.example/x?a=1&amp;b=2|docs>", "docs (https://a.example/x?a=1&b=2)"),
            ("<https://a.example>", "https://a.example"),
            ("<http://a.example|a.example>", "a.example"),
            ("<mailto:a@b.example|a@b.example>", "a@b.example"),
            ("<!here> <!channel> <!subteam^S1|@team> <!date^1^{date}|today>", "@here @channel @team today"),
            ("1 &lt; 2 &amp;&amp; 3 &gt; 2 &amp;lt;", "1 < 2 && 3 > 2 &lt;"),
            ("a < b", "a < b"),
            ("<@UBOT>\n```\n  code\n```", "```\n  code\n```"),
        ];
        for (text, expected) in cases {
            assert_eq!(decode(text, "UBOT", &names), expected, "{text}");
        }
        assert!(mentions("x <@UBOT|cow>", "UBOT") && !mentions("@UBOT &lt;@UBOT&gt;", "UBOT"));
        assert_eq!(unnamed_users("<@U1> <@U2|b> <#C1>"), ["U1"]);
    }
}

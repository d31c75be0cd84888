//! Shows text that agents, people or senders wrote. Characters that change how the rest of the page is shown are
//! removed or replaced, and maud escapes the text.

use maud::{Markup, Render, html};

use cowhand_engine::view::line::one_line;
pub(super) use cowhand_engine::view::line::plain;

/// Text that an agent, a person or a sender wrote.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'t>(pub(super) &'t str);

impl Render for Text<'_> {
    fn render_to(&self, buffer: &mut String) {
        plain(self.0).as_str().render_to(buffer);
    }
}

/// A message of cowhand for people. Commands and keys between backticks are shown as code. Text of others inside the
/// message is escaped as in [`Text`].
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownMessage<'t>(pub(super) &'t str);

impl Render for ShownMessage<'_> {
    fn render_to(&self, buffer: &mut String) {
        let text = plain(self.0);
        let mut rest = text.as_str();
        while let Some((before, code, after)) = next_code(rest) {
            html! { (before) code { (code) } }.render_to(buffer);
            rest = after;
        }
        rest.render_to(buffer);
    }
}

/// Returns the text before the first code span, the span without its backticks, and the text after it. A span is on one
/// line and not empty.
fn next_code(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let open = from + text[from..].find('`')?;
        let after = &text[open + 1..];
        match after.find(['`', '\n']) {
            Some(close) if close > 0 && after[close..].starts_with('`') => {
                return Some((&text[..open], &after[..close], &after[close + 1..]));
            }
            _ => from = open + 1,
        }
    }
}

/// Shortens a message to one line of at most `max_length` characters, and renders it as [`ShownMessage`] does.
pub(super) fn short_message(text: &str, max_length: usize) -> Markup {
    let text = short(text, max_length);
    html! { (ShownMessage(&text)) }
}

/// Shortens a text to one line of at most `max_length` characters, for lists.
pub(super) fn short(text: &str, max_length: usize) -> String {
    one_line(text, max_length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_in_a_message_is_marked_and_escaped() {
        for (text, expected) in [
            ("run `cowhand reload` now", "run <code>cowhand reload</code> now"),
            ("`a``b`", "<code>a</code><code>b</code>"),
            ("`<b>&` <i>", "<code>&lt;b&gt;&amp;</code> &lt;i&gt;"),
            ("one ` only", "one ` only"),
            ("`` empty", "`` empty"),
            ("`two\nlines` and `x`", "`two\nlines<code> and </code>x`"),
            ("`user\u{202e}`", "<code>user‹U+202E›</code>"),
            ("", ""),
        ] {
            assert_eq!(html! { (ShownMessage(text)) }.into_string(), expected, "{text:?}");
        }
        assert_eq!(short_message("use `abcdef`", 8).into_string(), "use `ab…");
    }

    #[test]
    fn hostile_text_is_escaped() {
        for (text, expected) in [
            ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7}x", "red x"),
            ("user\u{202e}txt.exe", "user‹U+202E›txt.exe"),
            ("a\tb\r\nc\0\u{8}", "a\tb\nc"),
            ("\" onload=\"x", "&quot; onload=&quot;x"),
        ] {
            assert_eq!(Text(text).render().into_string(), expected, "{text:?}");
        }
        assert_eq!(short("\n\u{1b}[1mfirst line\nsecond", 8), "first l…");
    }
}

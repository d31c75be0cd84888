//! Text on a page that agents, people or senders wrote. Characters that change how the rest of the page is shown are
//! removed or replaced, and maud escapes the text.

use maud::Render;

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

/// Shortens a text to one line of at most `max_length` characters, for lists.
pub(super) fn short(text: &str, max_length: usize) -> String {
    one_line(text, max_length)
}

#[cfg(test)]
mod tests {
    use super::*;

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

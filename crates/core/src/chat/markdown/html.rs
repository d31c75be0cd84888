//! Converts Markdown to HTML for the dashboard. The HTML contains no markup of the text itself, no images, and only
//! links to web and mail addresses.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Parser, Tag, TagEnd};

use super::masked_link::is_misleading;
use super::nesting::is_too_deep;
use super::{OPTIONS, checkbox};

/// Converts a text in Markdown to HTML that is safe to show. A text with lists or quotes that are nested too deeply
/// becomes one preformatted block.
pub fn to_html(markdown: &str) -> String {
    let mut page = HtmlText::default();
    if is_too_deep(markdown) {
        page.html += "<pre tabindex=\"0\">";
        page.text(markdown);
        page.html += "</pre>";
        return page.html;
    }
    for event in Parser::new_ext(markdown, OPTIONS) {
        page.read(event);
    }
    page.html
}

#[derive(Default)]
struct HtmlText {
    html: String,
    /// Links and images that are open, the outermost first.
    links: Vec<OpenLink>,
    is_in_head: bool,
}

/// A link or an image that is open.
struct OpenLink {
    url: String,
    /// Text of the link so far, without markup.
    text: String,
    /// True if an element `a` was opened.
    is_linked: bool,
}

impl HtmlText {
    fn read(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.html += "<code>";
                self.text(&text);
                self.html += "</code>";
            }
            Event::SoftBreak | Event::HardBreak => self.html += "<br>",
            Event::Rule => self.html += "<hr>",
            Event::TaskListMarker(is_checked) => {
                self.html += checkbox(is_checked);
                self.html.push(' ');
            }
            Event::FootnoteReference(name) => self.text(&name),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Link { dest_url, .. } => self.open_link(&dest_url),
            Tag::Image { dest_url, .. } => {
                self.open_link(&dest_url);
                self.text("image: ");
            }
            Tag::CodeBlock(_) => self.html += "<pre tabindex=\"0\"><code>",
            Tag::List(Some(first)) => {
                self.html += "<ol start=\"";
                self.html += &first.to_string();
                self.html += "\">";
            }
            Tag::Table(_) => {
                self.html +=
                    "<div class=\"table\" tabindex=\"0\" role=\"group\" aria-label=\"Table\"><table>";
            }
            Tag::TableHead => {
                self.is_in_head = true;
                self.html += "<thead><tr>";
            }
            Tag::TableCell => self.html += if self.is_in_head { "<th>" } else { "<td>" },
            other => self.html += opening(other.to_end()),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Link | TagEnd::Image => self.close_link(),
            TagEnd::CodeBlock => self.html += "</code></pre>",
            TagEnd::Table => self.html += "</tbody></table></div>",
            TagEnd::TableHead => {
                self.is_in_head = false;
                self.html += "</tr></thead><tbody>";
            }
            TagEnd::TableCell => self.html += if self.is_in_head { "</th>" } else { "</td>" },
            other => self.html += &opening(other).replace('<', "</"),
        }
    }

    fn text(&mut self, text: &str) {
        for link in &mut self.links {
            link.text += text;
        }
        escape_into(text, &mut self.html);
    }

    /// Opens a link. A link inside a link, and a link to anything but a web or mail address, is only text.
    fn open_link(&mut self, url: &CowStr<'_>) {
        let is_linked = is_safe(url) && self.links.is_empty();
        if is_linked {
            self.html += "<a rel=\"noreferrer noopener nofollow\" target=\"_blank\" href=\"";
            escape_into(url, &mut self.html);
            self.html += "\">";
        }
        self.links.push(OpenLink { url: url.to_string(), text: String::new(), is_linked });
    }

    /// Closes a link. Its address is shown if the text could be taken for another address, and if it is not linked.
    fn close_link(&mut self) {
        let Some(OpenLink { url, text, is_linked }) = self.links.pop() else { return };
        if is_linked {
            if text.trim().is_empty() {
                escape_into(&url, &mut self.html);
            }
            self.html += "</a>";
        }
        let is_shown = !url.is_empty() && (!is_linked || is_misleading(&text, &url));
        if is_shown {
            self.text(&format!(" ({url})"));
        }
    }
}

/// Returns the element that begins a part without attributes; empty for a part that has none.
const fn opening(tag: TagEnd) -> &'static str {
    match tag {
        TagEnd::Paragraph => "<p>",
        TagEnd::Heading(HeadingLevel::H1) => "<h3>",
        TagEnd::Heading(HeadingLevel::H2) => "<h4>",
        TagEnd::Heading(_) => "<h5>",
        TagEnd::BlockQuote(_) => "<blockquote>",
        TagEnd::List(true) => "<ol>",
        TagEnd::List(false) => "<ul>",
        TagEnd::Item => "<li>",
        TagEnd::TableRow => "<tr>",
        TagEnd::Emphasis => "<em>",
        TagEnd::Strong => "<strong>",
        TagEnd::Strikethrough => "<del>",
        _ => "",
    }
}

/// Checks whether a browser may open the address: it is a web or mail address.
fn is_safe(url: &str) -> bool {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_known = matches!(scheme.as_deref(), Some("http" | "https" | "mailto"));
    is_known && !url.contains(|c: char| c.is_control() || c.is_whitespace())
}

fn escape_into(text: &str, html: &mut String) {
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_html() {
        for (markdown, html) in [
            ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
            ("# A\n### B", "<h3>A</h3><h5>B</h5>"),
            (
                "**b** *i* ~~d~~ `a<b`",
                "<p><strong>b</strong> <em>i</em> <del>d</del> <code>a&lt;b</code></p>",
            ),
            ("- a\n- [x] b", "<ul><li>a</li><li>☑ b</li></ul>"),
            ("3. a\n4. b", "<ol start=\"3\"><li>a</li><li>b</li></ol>"),
            ("> q\n\n---", "<blockquote><p>q</p></blockquote><hr>"),
            (
                "```rust\nlet x = \"<b>\";\n```",
                "<pre tabindex=\"0\"><code>let x = &quot;&lt;b&gt;&quot;;\n</code></pre>",
            ),
            (
                "|a|b|\n|-|:-:|\n|1|2|",
                "<div class=\"table\" tabindex=\"0\" role=\"group\" aria-label=\"Table\"><table><thead><tr><th>a</th>\
                 <th>b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table></div>",
            ),
            (
                "[docs](https://example.org/a?b=1&c='2')",
                "<p><a rel=\"noreferrer noopener nofollow\" target=\"_blank\" \
                 href=\"https://example.org/a?b=1&amp;c=&#39;2&#39;\">docs</a></p>",
            ),
        ] {
            assert_eq!(to_html(markdown), html, "{markdown}");
        }
    }

    #[test]
    fn hostile_markdown_has_no_effect() {
        for markdown in [
            "<script>alert(1)</script>",
            "text <img src=x onerror=alert(1)> more",
            "<div onclick=\"x\">\n\n*a*\n</div>",
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt&colon;alert(1))",
            "[x](java\tscript:alert(1))",
            "<javascript:alert(1)>",
            "[x](data:text/html;base64,PHNjcmlwdD4=)",
            "[x](//evil.example)",
            "[x](/api/v1/stop)",
            "[x]: javascript:alert(1)\n\n[x]",
            "![i](javascript:alert(1))",
            "[a\" onmouseover=\"x](https://e.example/\" onmouseover=\"x)",
            "`` ` </code><script>x</script> ``",
            "```\n</code></pre><script>x</script>\n```",
            "```\" onclick=x\ncode\n```",
            "|<script>|\n|-|\n|<img src=x>|",
        ] {
            let html = to_html(markdown);
            for (at, _) in html.match_indices('<') {
                let tag = html[at + 1..].trim_start_matches('/');
                let known = [
                    "p>",
                    "br>",
                    "em>",
                    "ul>",
                    "li>",
                    "code>",
                    "pre>",
                    "pre tabindex=\"0\">",
                    "table>",
                    "thead>",
                    "tbody>",
                    "tr>",
                    "th>",
                    "td>",
                    "div>",
                    "div class=\"table\" ",
                    "a>",
                    "a rel=\"noreferrer noopener nofollow\" target=\"_blank\" href=\"http",
                ];
                assert!(known.iter().any(|known| tag.starts_with(known)), "{markdown}: {html}");
            }
            assert!(!html.contains("href=\"java") && !html.contains("<img"), "{markdown}: {html}");
        }
        let image = to_html("![a cat](https://example.org/cat.png)");
        assert!(image.contains(">image: a cat</a>") && !image.contains("<img"), "{image}");
    }

    #[test]
    fn the_text_of_a_link_hides_no_address() {
        let html = to_html("[https://bank.example](https://evil.example/x)");
        assert!(html.contains("</a> (https://evil.example/x)"), "{html}");
        let html = to_html("[x](javascript:alert(1))");
        assert_eq!(html, "<p>x (javascript:alert(1))</p>");
    }

    #[test]
    fn deep_nesting_is_not_parsed() {
        let html = to_html(&format!("{}<b>", "> ".repeat(5_000)));
        assert!(html.starts_with("<pre") && html.ends_with("&lt;b&gt;</pre>"), "{}", &html[..40]);
    }
}

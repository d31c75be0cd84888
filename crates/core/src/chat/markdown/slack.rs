//! Converts Markdown to mrkdwn, the notation of Slack.

use std::fmt::Write;

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::masked_link::is_misleading;
use super::table::TableText;
use super::{OPTIONS, checkbox};
use crate::chat::ChatPlatform::Slack;
use crate::chat::escape::{code_block, entities, inline_code};
use crate::invisible::{is_invisible, without_invisible};

/// Maximum number of nested lists that are indented.
const MAX_INDENTED_LISTS: usize = 10;

pub(super) fn convert(markdown: &str) -> String {
    let mut mrkdwn = Mrkdwn::default();
    for event in Parser::new_ext(markdown, OPTIONS) {
        mrkdwn.read(event);
    }
    mrkdwn.out
}

#[derive(Default)]
struct Mrkdwn {
    out: String,
    /// Number of line ends before the next text.
    line_ends: usize,
    quotes: usize,
    /// True if the last line is a part of a quote.
    was_quoted: bool,
    /// Lists that are open, with the next number of each numbered list.
    lists: Vec<Option<u64>>,
    /// Marks that are open, each with the number of its elements that are open. A mark that is open already is not
    /// written again.
    marks: Vec<(char, usize)>,
    /// Links and images that are open: their addresses, and where their texts begin.
    links: Vec<(String, usize)>,
    table: Option<TableText>,
    code: Option<String>,
}

impl Mrkdwn {
    fn read(&mut self, event: Event<'_>) {
        if let Some(table) = &mut self.table {
            table.add(&event);
            if matches!(event, Event::End(TagEnd::Table)) {
                let text = self.table.take().unwrap_or_default().to_text();
                self.block(&code_block(&text, "", Slack));
            }
            return;
        }
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                // Entities of HTML are characters now.
                None => self.push(&entities(&without_invisible(&text))),
            },
            Event::Code(text) => self.push(&inline_code(&text, Slack)),
            Event::Html(text) => self.lines(text.trim_end_matches('\n'), text.ends_with('\n')),
            Event::InlineHtml(tag) if tag.starts_with("<br") => self.line_break(),
            Event::InlineHtml(text) => self.push(&entities(&text)),
            Event::SoftBreak | Event::HardBreak => self.line_break(),
            Event::Rule => self.block("⸻"),
            Event::TaskListMarker(is_checked) => self.push(&format!("{} ", checkbox(is_checked))),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { .. } | Tag::Strong => self.open_mark('*'),
            Tag::Emphasis => self.open_mark('_'),
            Tag::Strikethrough => self.open_mark('~'),
            Tag::BlockQuote(_) => self.quotes += 1,
            Tag::CodeBlock(_) => self.code = Some(String::new()),
            Tag::List(first) => {
                if !self.lists.is_empty() {
                    self.line_ends = 1;
                }
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.push("");
                self.links.push((dest_url.into_string(), self.out.len()));
            }
            Tag::Table(_) => self.table = Some(TableText::default()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.close_mark('*');
                self.line_ends = 2;
            }
            TagEnd::Strong => self.close_mark('*'),
            TagEnd::Emphasis => self.close_mark('_'),
            TagEnd::Strikethrough => self.close_mark('~'),
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.line_ends = 2,
            TagEnd::BlockQuote(_) => {
                self.quotes -= 1;
                self.line_ends = 2;
            }
            TagEnd::CodeBlock => {
                let code = self.code.take().unwrap_or_default();
                self.block(&code_block(&code, "", Slack));
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.line_ends = if self.lists.is_empty() { 2 } else { 1 };
            }
            TagEnd::Item => self.line_ends = 1,
            TagEnd::Link | TagEnd::Image => self.link(),
            _ => {}
        }
    }

    fn item(&mut self) {
        let depth = self.lists.len().min(MAX_INDENTED_LISTS);
        let bullet = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            _ => "• ".to_owned(),
        };
        self.separate(&"    ".repeat(depth.saturating_sub(1)));
        self.out += &bullet;
    }

    /// Writes a link or an image around the text that was written since its start.
    fn link(&mut self) {
        let Some((url, start)) = self.links.pop() else { return };
        // Slack shows no links within links.
        if !self.links.is_empty() {
            return;
        }
        let text = self.out.split_off(start);
        let address = address(&url);
        let link = match address {
            Some(address) if text.is_empty() || text == entities(&url) => format!("<{address}>"),
            Some(address) if is_misleading(&plain(&text), &url) => format!("{text} (<{address}>)"),
            Some(address) => format!("<{address}|{}>", text.replace('\n', " ")),
            None if text == entities(&url) || url.is_empty() => text,
            None if text.is_empty() => entities(&url),
            None => format!("{text} ({})", entities(&url)),
        };
        self.out += &link;
    }

    fn open_mark(&mut self, mark: char) {
        self.push("");
        if let Some((_, count)) = self.marks.iter_mut().find(|(open, _)| *open == mark) {
            *count += 1;
        } else {
            self.out.push(mark);
            self.marks.push((mark, 1));
        }
    }

    fn close_mark(&mut self, mark: char) {
        let Some(index) = self.marks.iter().position(|(open, _)| *open == mark) else { return };
        self.marks[index].1 -= 1;
        if self.marks[index].1 == 0 {
            self.marks.remove(index);
            self.out.push(mark);
        }
    }

    /// Breaks the line. Closes the open marks before the line end and opens them again after it, because a mark of
    /// Slack works only within a line.
    fn line_break(&mut self) {
        self.out.extend(self.marks.iter().rev().map(|(mark, _)| mark));
        self.line_ends = 1;
        self.push("");
        self.out.extend(self.marks.iter().map(|(mark, _)| mark));
    }

    fn lines(&mut self, text: &str, ends_line: bool) {
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                self.line_ends = 1;
            }
            self.push(&entities(line));
        }
        if ends_line {
            self.line_ends = 1;
        }
    }

    fn push(&mut self, text: &str) {
        self.separate(&"  ".repeat(self.lists.len().min(MAX_INDENTED_LISTS)));
        self.out += text;
    }

    /// Writes a block on lines of its own, without indentation.
    fn block(&mut self, text: &str) {
        self.line_ends = self.line_ends.max(usize::from(!self.out.is_empty()));
        let quotes = std::mem::take(&mut self.quotes);
        self.separate("");
        self.quotes = quotes;
        self.out += text;
        self.line_ends = 2;
    }

    /// Writes the pending line ends, and the start of the next line.
    fn separate(&mut self, indent: &str) {
        let quote = if self.quotes > 0 { "> " } else { "" };
        let blank = if self.quotes > 0 && self.was_quoted { ">" } else { "" };
        let is_start = self.out.is_empty();
        if is_start {
            self.line_ends = 0;
        } else if self.line_ends == 0 {
            return;
        }
        for number in (0..std::mem::take(&mut self.line_ends)).rev() {
            self.out.push('\n');
            if number > 0 {
                self.out += blank;
            }
        }
        let _ = write!(self.out, "{quote}{indent}");
        self.was_quoted = self.quotes > 0;
    }
}

/// Returns a text without entities.
fn plain(mrkdwn: &str) -> String {
    mrkdwn.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// Returns an address in the notation of Slack; none if Slack does not show the address as a link.
fn address(url: &str) -> Option<String> {
    let (scheme, _) = url.split_once(':')?;
    let is_known = ["http", "https", "mailto"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let mut out = String::new();
    for character in url.chars() {
        match character {
            '&' => out += "&amp;",
            special if is_encoded(special) => {
                for byte in special.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(out, "%{byte:02X}");
                }
            }
            plain => out.push(plain),
        }
    }
    is_known.then_some(out)
}

/// Checks whether a character of an address has to be written as its code.
fn is_encoded(character: char) -> bool {
    let is_special = matches!(character, '<' | '>' | '|' | '"' | '`');
    is_special || character.is_whitespace() || character.is_control() || is_invisible(character)
}

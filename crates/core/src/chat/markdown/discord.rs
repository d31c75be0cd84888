//! Converts Markdown for Discord. Discord shows most of Markdown; only what it does not show is replaced.

use std::cmp::Reverse;
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, LinkType, Parser, Tag, TagEnd};

use super::masked_link::show_addresses;
use super::table::TableText;
use super::{OPTIONS, checkbox};
use crate::chat::ChatPlatform::Discord;
use crate::chat::escape::{code_block, without_mentions};
use crate::invisible::without_invisible;

pub(super) fn convert(markdown: &str) -> String {
    let mut edits = Edits { markdown, ..Edits::default() };
    for (event, range) in Parser::new_ext(markdown, OPTIONS).into_offset_iter() {
        edits.read(event, range);
    }
    show_addresses(&without_mentions(&edits.apply()))
}

#[derive(Default)]
struct Edits<'a> {
    markdown: &'a str,
    /// Replaced parts of the text.
    replaced: Vec<(Range<usize>, String)>,
    table: Option<TableText>,
    /// Language and text of the code block that is read.
    code: Option<(String, String)>,
    /// Links and images that are open: their plain texts, and their addresses if they have to be replaced.
    links: Vec<(String, Option<String>)>,
}

impl Edits<'_> {
    fn read(&mut self, event: Event<'_>, range: Range<usize>) {
        if let Some(table) = &mut self.table {
            table.add(&event);
        }
        match event {
            Event::Start(Tag::Table(_)) => self.table = Some(TableText::default()),
            Event::End(TagEnd::Table) => {
                let text = self.table.take().unwrap_or_default().to_text();
                self.replace_block(range, &code_block(&text, "", Discord));
            }
            Event::Start(Tag::Heading { level, .. }) => self.heading(level, range),
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Event::End(TagEnd::CodeBlock) => self.code_block(range),
            Event::Start(Tag::Link { link_type, dest_url, .. }) => {
                let is_kept = matches!(link_type, LinkType::Inline | LinkType::Autolink | LinkType::Email);
                self.links.push((String::new(), (!is_kept).then(|| dest_url.into_string())));
            }
            Event::Start(Tag::Image { dest_url, .. }) => {
                self.links.push((String::new(), Some(dest_url.into_string())));
            }
            Event::End(TagEnd::Link | TagEnd::Image) => self.link(range),
            Event::TaskListMarker(is_checked) => self.replaced.push((range, checkbox(is_checked).to_owned())),
            Event::Text(text) | Event::Code(text) => {
                if let Some((_, code)) = &mut self.code {
                    code.push_str(&text);
                }
                // A link or image that is replaced has a plain text. Two levels are enough, because a replacement
                // inside a replaced part is left out.
                for (plain, _) in self.links.iter_mut().take(2) {
                    plain.push_str(&without_invisible(&text));
                }
            }
            _ => {}
        }
    }

    /// Replaces a heading that Discord does not show: a heading below level 3, or a heading that is marked by a line
    /// below it.
    fn heading(&mut self, level: HeadingLevel, range: Range<usize>) {
        let source = self.markdown[range.clone()].trim_end();
        let marks = source.len() - source.trim_start_matches('#').len();
        if marks > 3 {
            let text = source[marks..].trim_end_matches('#').trim().replace("**", "");
            let bold = if text.is_empty() { text } else { format!("**{text}**") };
            self.replace_block(range, &bold);
        } else if marks == 0
            && let Some((text, _)) = source.rsplit_once('\n')
        {
            let text: Vec<&str> = text.split_whitespace().collect();
            self.replace_block(range, &format!("{} {}", "#".repeat(level as usize), text.join(" ")));
        }
    }

    /// Replaces a code block that Discord would show incorrectly. Discord knows only fences of three backticks, and the
    /// next three backticks end the block.
    fn code_block(&mut self, range: Range<usize>) {
        let Some((language, code)) = self.code.take() else { return };
        let source = self.markdown[range.clone()].trim_end();
        let closing =
            source.rsplit_once('\n').map_or("", |(_, line)| line.trim_start_matches([' ', '\t', '>']));
        let is_plain = source.starts_with("```") && !source.starts_with("````");
        if !is_plain || closing != "```" || code.contains("```") {
            self.replace_block(range, &code_block(&code, &language, Discord));
        }
    }

    fn link(&mut self, range: Range<usize>) {
        let Some((text, Some(url))) = self.links.pop() else { return };
        // Discord shows no links within links.
        let replacement = if !self.links.is_empty() {
            text
        } else if text.trim().is_empty() {
            url
        } else {
            format!("[{text}]({url})")
        };
        self.replaced.push((range, replacement));
    }

    /// Replaces a block. The line end after it stays.
    fn replace_block(&mut self, range: Range<usize>, text: &str) {
        let source = &self.markdown[range.clone()];
        let line_end = if source.ends_with('\n') { "\n" } else { "" };
        // An indented block begins after its indentation.
        let start =
            range.start - self.markdown[..range.start].chars().rev().take_while(|c| *c == ' ').count();
        let is_line = start == 0 || self.markdown[..start].ends_with('\n');
        let start = if is_line { start } else { range.start };
        self.replaced.push((start..range.end, format!("{text}{line_end}")));
    }

    fn apply(mut self) -> String {
        self.replaced.sort_by_key(|(range, _)| (range.start, Reverse(range.end)));
        let (mut out, mut at) = (String::with_capacity(self.markdown.len()), 0);
        for (range, text) in self.replaced {
            // This part is inside a part that is already replaced.
            if range.start < at {
                continue;
            }
            out += &self.markdown[at..range.start];
            out += &text;
            at = range.end;
        }
        out + &self.markdown[at..]
    }
}

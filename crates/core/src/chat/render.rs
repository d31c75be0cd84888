//! Turns the output of a job into posts. The posts follow from the lines alone: the same lines give the same posts in
//! the same order, and later lines never change a post. After a restart, the caller renders the lines again and skips
//! the posts that are already there.

mod end;
mod progress;
mod tool_result;

use serde_json::Value;

use super::ChatPlatform;
use super::escape::escape;
use super::markdown::{post_limit, to_posts};
use super::settings::{ChatOutput, OutputDetail, PostedMessages};
use super::split::{length, shorten};
use crate::output::{FinalOutput, OutputMessage};
pub use end::{AnswerEnd, AnswerOutcome};
use progress::{ProgressState, ProgressTrace};

/// Number of posts above which a text of the agent is posted as a file.
const MAX_TEXT_POSTS: usize = 20;
const MAX_ERROR_CHARS: usize = 4_000;

/// A message to post, in the notation of the platform and within its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedPost {
    pub text: String,
    pub file: Option<RenderedFile>,
}

/// A text file that is attached to a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedFile {
    pub name: String,
    pub content: String,
}

/// Renders the output of one job.
///
/// - **Texts of the agent**: with [`PostedMessages::All`], every text is posted at once. With
///   [`PostedMessages::Answers`], a text is held back until it is known whether its turn calls a tool, and is dropped
///   if so. A turn ends with a tool result, with a message that has another id, with a result or an input of the user,
///   and with the output. Texts without ids between two tool results are one turn. Texts of subagents are never posted.
///   A text that would need more than 20 posts is posted as its first 300 characters, with the whole text in a file.
/// - **Results of tools**, if `tool_results` is set: a result of at most `tool_result_max_length` characters is a part
///   of the progress message; without a progress message it is posted. A longer result is posted as its first
///   300 characters, with the whole result in a text file. Results of subagents only appear in the progress message.
/// - **Errors** that the agent reports are posted if `errors` is set. The failure of a job is always posted, once.
/// - A job that succeeds without a text of the agent posts its final output, or else one sentence.
#[derive(Debug)]
pub struct OutputRenderer {
    platform: ChatPlatform,
    output: ChatOutput,
    turn: Turn,
    /// True if the last attempt has posted a text of the agent.
    has_text: bool,
    /// Number of texts of the agent so far.
    texts: usize,
    /// Number of tool results of the agent itself.
    tool_results: usize,
    final_output: FinalOutput,
    progress: ProgressTrace,
}

/// One turn of the agent.
#[derive(Debug, Default)]
struct Turn {
    /// Id of the agent's message.
    id: Option<String>,
    held_texts: Vec<String>,
    calls_tool: bool,
}

impl OutputRenderer {
    pub fn new(platform: ChatPlatform, output: &ChatOutput) -> Self {
        Self {
            platform,
            output: output.clone(),
            turn: Turn::default(),
            has_text: false,
            texts: 0,
            tool_results: 0,
            final_output: FinalOutput::default(),
            progress: ProgressTrace::new(platform, output.detail),
        }
    }

    /// Reads the next line, and returns the posts that are complete now.
    pub fn push(&mut self, line: &OutputMessage) -> Vec<RenderedPost> {
        self.final_output.add(line.clone());
        match line {
            OutputMessage::System { subtype, content, extra, .. } => {
                self.system(subtype.as_deref(), content.as_deref(), extra)
            }
            OutputMessage::Assistant { partial: Some(true), .. } => Vec::new(),
            OutputMessage::Assistant { extra, .. } if is_of_subagent(extra) => Vec::new(),
            OutputMessage::Assistant { content, extra, .. } => {
                let mut posts = self.enter_turn(extra);
                if let Some(text) = content.as_deref().filter(|text| !text.trim().is_empty()) {
                    posts.extend(self.text(text));
                }
                posts
            }
            OutputMessage::ToolUse { tool_name, tool_use_id, input, extra, .. } => {
                let is_of_subagent = is_of_subagent(extra);
                self.progress.tool_call(tool_name, tool_use_id.as_deref(), input.as_ref(), is_of_subagent);
                if is_of_subagent {
                    return Vec::new();
                }
                let posts = self.enter_turn(extra);
                self.turn.calls_tool = true;
                posts
            }
            OutputMessage::ToolResult { tool_use_id, result, success, error, extra, .. } => {
                let has_failed = *success == Some(false) || error.is_some();
                let text = tool_result::text_of(result.as_ref(), error.as_deref());
                self.tool_result(tool_use_id.as_deref(), &text, has_failed, is_of_subagent(extra))
            }
            OutputMessage::Error { message, .. } => {
                if !self.output.errors {
                    return Vec::new();
                }
                let message = shorten(message, MAX_ERROR_CHARS);
                posts_of(&format!("**Error:** {message}"), self.platform)
            }
        }
    }

    /// Reads the end of the job, and returns the last posts.
    pub fn end(&mut self, end: &AnswerEnd) -> Vec<RenderedPost> {
        let mut posts = self.close_turn();
        let state = match &end.outcome {
            AnswerOutcome::Succeeded => ProgressState::Done { duration: end.duration },
            AnswerOutcome::Failed { reason } => ProgressState::Failed { reason: reason.clone() },
            AnswerOutcome::Cancelled { by } => ProgressState::Stopped { by: by.clone() },
        };
        self.progress.finish(state);
        let final_output = std::mem::take(&mut self.final_output).into_text();
        match (&end.outcome, final_output) {
            (AnswerOutcome::Succeeded, _) if self.has_text => {}
            (AnswerOutcome::Succeeded, Some(text)) => {
                posts.extend(end::final_output(&text, end, self.platform));
            }
            _ => posts.push(text_post(end::sentence(end, self.platform))),
        }
        if let Some(summary) = self.output.result_summary.then(|| end::summary(end)).flatten() {
            self.add_summary(&mut posts, summary, end);
        }
        posts
    }

    /// Adds the summary as a post of its own. A summary with nothing but the duration is a line of the last post instead,
    /// or is left out.
    fn add_summary(&self, posts: &mut Vec<RenderedPost>, summary: String, end: &AnswerEnd) {
        if end.usage.is_some() {
            return posts.push(text_post(summary));
        }
        let Some(last) = posts.last_mut().filter(|last| last.file.is_none()) else { return };
        let text = format!("{}\n{summary}", last.text);
        if length(&text) <= post_limit(self.platform) {
            last.text = text;
        }
    }

    /// Returns the text of the message that shows the progress. Every push can change it.
    pub fn progress(&self) -> String {
        self.progress.to_text()
    }

    fn system(
        &mut self,
        subtype: Option<&str>,
        content: Option<&str>,
        extra: &serde_json::Map<String, Value>,
    ) -> Vec<RenderedPost> {
        match subtype {
            Some(OutputMessage::ATTEMPT) => {
                self.turn = Turn::default();
                self.has_text = false;
                self.progress.note(&OutputMessage::attempt_heading(content.unwrap_or_default(), extra));
                Vec::new()
            }
            Some("result" | "user_input") => self.close_turn(),
            Some(subtype) => {
                let is_shown = self.output.detail == OutputDetail::Verbose || is_status(subtype);
                if self.output.system_status && is_shown {
                    let words = subtype.replace('_', " ");
                    self.progress
                        .note(&content.map_or_else(|| words.clone(), |text| format!("{words}: {text}")));
                }
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn text(&mut self, text: &str) -> Vec<RenderedPost> {
        match self.output.assistant_messages {
            PostedMessages::All => {
                self.has_text = true;
                self.posts_of_text(text)
            }
            PostedMessages::Answers => {
                self.turn.held_texts.push(text.to_owned());
                Vec::new()
            }
        }
    }

    /// Begins a turn if the message with these keys is not a part of the current turn.
    fn enter_turn(&mut self, extra: &serde_json::Map<String, Value>) -> Vec<RenderedPost> {
        let Some(id) = message_id(extra) else { return Vec::new() };
        let is_new = self.turn.id.as_deref().is_some_and(|known| known != id);
        let posts = if is_new { self.close_turn() } else { Vec::new() };
        self.turn.id = Some(id.to_owned());
        posts
    }

    fn close_turn(&mut self) -> Vec<RenderedPost> {
        let turn = std::mem::take(&mut self.turn);
        if turn.calls_tool {
            return Vec::new();
        }
        let posts: Vec<_> = turn.held_texts.iter().flat_map(|text| self.posts_of_text(text)).collect();
        self.has_text |= !posts.is_empty();
        posts
    }

    fn posts_of_text(&mut self, text: &str) -> Vec<RenderedPost> {
        self.texts += 1;
        if let Some(posts) = posts_up_to(MAX_TEXT_POSTS, text, self.platform) {
            return posts;
        }
        let name = format!("message-{}.md", self.texts);
        vec![tool_result::with_file("The agent wrote a long message.", text, name, self.platform)]
    }

    fn tool_result(
        &mut self,
        id: Option<&str>,
        text: &str,
        has_failed: bool,
        is_of_subagent: bool,
    ) -> Vec<RenderedPost> {
        let is_short = text.chars().count() <= self.output.tool_result_max_length;
        let is_folded = self.output.tool_results && (is_short || is_of_subagent);
        let call = self.progress.tool_result(id, is_folded.then_some(text), has_failed);
        if is_of_subagent {
            return Vec::new();
        }
        let mut posts = self.close_turn();
        self.tool_results += 1;
        let is_posted = self.output.tool_results && !text.trim().is_empty();
        if is_posted && !(is_short && self.output.progress_indicator) {
            posts.push(tool_result::post(&call, text, is_short, self.tool_results, self.platform));
        }
        posts
    }
}

fn text_post(text: String) -> RenderedPost {
    RenderedPost { text, file: None }
}

fn posts_of(markdown: &str, platform: ChatPlatform) -> Vec<RenderedPost> {
    to_posts(markdown, platform).into_iter().map(text_post).collect()
}

/// Returns the posts of a text; none if it needs more than `limit` posts.
fn posts_up_to(limit: usize, markdown: &str, platform: ChatPlatform) -> Option<Vec<RenderedPost>> {
    let is_short = length(markdown) <= limit * post_limit(platform);
    is_short.then(|| posts_of(markdown, platform)).filter(|posts| posts.len() <= limit)
}

/// Formats a short text of others within a sentence.
fn short_text(text: &str, limit: usize, platform: ChatPlatform) -> String {
    escape(&shorten(text, limit), platform)
}

/// Checks whether a system message is about the session, and not about a single step of the agent's program.
fn is_status(subtype: &str) -> bool {
    let own = [OutputMessage::GAP, OutputMessage::TRUNCATED, OutputMessage::UNREAD];
    matches!(subtype, "init" | "status" | "compact_boundary" | "warning") || own.contains(&subtype)
}

fn is_of_subagent(extra: &serde_json::Map<String, Value>) -> bool {
    extra.get("line").and_then(|line| line.get("parent_tool_use_id")).is_some_and(|parent| !parent.is_null())
}

/// Returns the id that the agent's program gave to the message of this line.
fn message_id(extra: &serde_json::Map<String, Value>) -> Option<&str> {
    let line = extra.get("line")?;
    let id = line.get("message").and_then(|message| message.get("id")).or_else(|| line.get("messageId"));
    id.and_then(Value::as_str)
}

#[cfg(test)]
mod tests;

//! `cowhand events`: prints the events in order.

use std::cell::Cell;
use std::path::Path;

use clap::Args;
use cowhand_core::duration;
use cowhand_core::event::{Event, Fact, JobOutput};
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

use super::follow::{FollowUntil, FollowedLines};
use super::{Failure, follow, interrupt, location, number, print};
use cowhand_engine::schedule_view::message_in_words;
use cowhand_engine::view::line::readable;
use cowhand_web::api::{Lines, OutputCursor, Page};

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(super) struct EventsArgs {
    /// Continue with new events as they happen
    #[arg(short, long)]
    follow: bool,
    /// Show only events that somebody requested, with their actor
    #[arg(long)]
    audit: bool,
    /// Also show new output of jobs
    #[arg(long, requires = "follow", conflicts_with = "audit")]
    output: bool,
    /// Show only events after the one with this number [default: the newest]
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    /// Maximum number of past events
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = number::between(1, 1000))]
    limit: u32,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

impl EventsArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let after = self.after.map(|after| format!("&after={after}")).unwrap_or_default();
        let audit = if self.audit { "&audit=1" } else { "" };
        let address = format!("events?limit={}{after}{audit}", self.limit);
        location::ask(config, async |client| {
            let events = client.get::<Page<Event>>(&address).await?.items;
            let columns = Columns::of(&events);
            for event in &events {
                self.print(event, &columns);
            }
            if !self.follow {
                return Ok(());
            }
            let last_seq = Cell::new(events.last().map_or(self.after.unwrap_or_default(), |event| event.seq));
            let mut followed = EventLines { args: &self, columns, last_seq: &last_seq, output: None };
            let interrupt_note =
                || Some(format!("`cowhand events -f --after {}` continues from here", last_seq.get()));
            let follows = follow::lines(client, FollowUntil::Never, &mut followed);
            interrupt::unless_with_note(follows, interrupt_note).await
        })
    }

    /// Prints a line of a job's output: as JSON with `--json`, otherwise only the parts that people read.
    fn print_output(&self, job_output: &JobOutput, columns: &Columns) {
        if self.json {
            print::json_line(&serde_json::to_string(job_output).unwrap_or_default());
            return;
        }
        let Some(text) = readable(&job_output.output.to_string()) else { return };
        let when = print::padded(&duration::relative_to_now(Timestamp::now(), job_output.at), columns.when);
        let kind = print::padded("job:output", columns.kind);
        let head = format!("{:>6}  {when}  {kind}  {}", "", job_output.job);
        for line in text.lines() {
            print_line(&head, line);
        }
    }

    fn print(&self, event: &Event, columns: &Columns) {
        if self.json {
            print::json_line(&serde_json::to_string(event).unwrap_or_default());
            return;
        }
        let by = match &event.by {
            Some(by) if self.audit => format!("{}  ", print::padded(&by.to_string(), columns.by)),
            _ => String::new(),
        };
        let job = event.job.as_ref().map(ToString::to_string);
        let about = match &event.fact {
            Fact::NodeDrained { node } | Fact::NodeUndrained { node } | Fact::NodeForgotten { node } => {
                Some(print::one_line(node, 300))
            }
            Fact::TokenCreated { name, .. } | Fact::TokenRevoked { name } => Some(name.to_string()),
            Fact::AccessRefused { method, endpoint } => Some(format!("{method} {endpoint}")),
            Fact::WorkClaimed { item }
            | Fact::WorkReported { item, .. }
            | Fact::WorkReleased { item, .. }
            | Fact::WorkDropped { item, .. }
            | Fact::WorkDelayed { item, .. }
            | Fact::WorkGivenUp { item, .. }
            | Fact::WorkReopened { item } => Some(item.to_string()),
            Fact::NodeLost { node }
            | Fact::NodeReturned { node }
            | Fact::DiskLow { node, .. }
            | Fact::DiskFreed { node, .. } => Some(node.clone()),
            Fact::BudgetReached { window, unit, percent, .. } => Some(format!("{window} {unit} {percent} %")),
            Fact::BudgetRelieved { window, unit, .. } => Some(format!("{window} {unit}")),
            _ => None,
        };
        let by_whom = match (&event.fact, &event.by) {
            (Fact::JobDeleted { .. }, Some(by)) if !self.audit => Some(format!("by {by}")),
            (Fact::JobCreated, _) => message(event).map(|message| print::one_line(&message, 300)),
            _ => None,
        };
        let ids: Vec<_> = [job, about].into_iter().flatten().collect();
        let subject = event.subject();
        // An event without a subject gets no empty column.
        let subject = if subject.is_empty() {
            subject
        } else {
            format!("{}  ", print::padded(&subject, columns.subject))
        };
        let when = print::padded(&duration::relative_to_now(Timestamp::now(), event.at), columns.when);
        let kind = print::padded(event.fact.type_name(), columns.kind);
        let head = format!("{:>6}  {when}  {by}{kind}  {subject}{}", event.seq, ids.join("  "));
        print_line(&head, &by_whom.or_else(|| why(&event.fact)).unwrap_or_default());
    }
}

/// New events, and new output of jobs if it is requested.
struct EventLines<'a> {
    args: &'a EventsArgs,
    columns: Columns,
    last_seq: &'a Cell<i64>,
    /// Position in the output of jobs. None before the first answer, which determines it.
    output: Option<OutputCursor>,
}

impl FollowedLines for EventLines<'_> {
    fn address(&self) -> String {
        let audit = if self.args.audit { "&audit=1" } else { "" };
        let output = if self.args.output { "&output=1" } else { "" };
        let output_after = match &self.output {
            Some(cursor) => format!("&output_after={cursor}"),
            None => String::new(),
        };
        format!("events?follow=1&after={}{audit}{output}{output_after}", self.last_seq.get())
    }

    fn on_answer(&mut self, answer: &Lines) {
        if self.output.is_none() {
            self.output = answer.output_cursor().cloned();
        }
    }

    fn on_line(&mut self, line: &str) {
        if let Ok(output) = serde_json::from_str::<JobOutput>(line) {
            self.args.print_output(&output, &self.columns);
            if let Some(cursor) = &mut self.output {
                cursor.on_output(&output);
            }
            return;
        }
        let Ok(event) = serde_json::from_str::<Event>(line) else { return };
        self.args.print(&event, &self.columns);
        self.last_seq.set(event.seq);
        if let Some(cursor) = &mut self.output {
            cursor.on_event(&event);
        }
    }
}

/// Indentation of the continuation of a wrapped line.
const CONTINUATION_INDENT: usize = 8;

/// Prints an event or a line of output. The head contains names and ids, which are never cut: on a narrow terminal they
/// are wrapped. The text after the head is cut.
fn print_line(head: &str, text: &str) {
    // Room for a short word and the `…` that shows the cut.
    const MIN_TEXT_WIDTH: usize = 4;
    let gap = if text.is_empty() || head.ends_with("  ") { "" } else { "  " };
    let room = if text.is_empty() { 0 } else { gap.len() + MIN_TEXT_WIDTH };
    let Some(width) = print::width().filter(|width| head.trim_end().width() + room > *width) else {
        return print::row(format!("{head}{gap}{text}").trim_end());
    };
    // The columns do not line up in a wrapped line.
    let words: Vec<&str> = head.split_whitespace().collect();
    let is_long = |word: &&str| CONTINUATION_INDENT + word.width() > width;
    print::wrapped(&words.join(" "), if words.iter().any(is_long) { 0 } else { CONTINUATION_INDENT });
    if !text.is_empty() {
        print::row(&format!("{:CONTINUATION_INDENT$}{text}", ""));
    }
}

/// Widths of the columns, from the first events, because later events are not known yet.
struct Columns {
    when: usize,
    by: usize,
    kind: usize,
    subject: usize,
}

impl Columns {
    fn of(events: &[Event]) -> Self {
        let now = Timestamp::now();
        let widest = |cell: &dyn Fn(&Event) -> String, min: usize| {
            events.iter().map(|event| cell(event).width()).fold(min, usize::max)
        };
        Self {
            when: widest(&|event| duration::relative_to_now(now, event.at), 12),
            by: widest(&|event| event.by.as_ref().map(ToString::to_string).unwrap_or_default(), 0),
            kind: widest(&|event| event.fact.type_name().to_owned(), 18),
            // The width is limited, so that there is room for the following text, above all the id of a job.
            subject: widest(&Event::subject, 0)
                .min(print::width().map_or(usize::MAX, |width| width.saturating_sub(65))),
        }
    }
}

/// Describes the chat message that caused the job of the event, if one did.
fn message(event: &Event) -> Option<String> {
    event.job_record.as_ref()?.message.as_ref().map(message_in_words)
}

/// Returns the text of a fact that explains it, for example its message or reason, if it has one.
fn why(fact: &Fact) -> Option<String> {
    match fact {
        Fact::JobMessage { number, interrupt, .. } => {
            let interrupt = if *interrupt { ", ends the current turn" } else { "" };
            return Some(format!("message {number}{interrupt}"));
        }
        Fact::JobMessageSettled { number, status, attempt, next_job } => {
            let attempt = attempt.map(|attempt| format!(" in attempt {attempt}"));
            let next = next_job.as_ref().map(|job| format!(": {job}"));
            let place = attempt.or(next).unwrap_or_default();
            return Some(format!("message {number}: {}{place}", status.as_str().replace('_', " ")));
        }
        _ => {}
    }
    let fact = serde_json::to_value(fact).ok()?;
    let value = ["message", "reason", "outcome", "about", "status", "former"];
    let value = value.iter().find_map(|key| fact.get(key)?.as_str())?;
    Some(print::one_line(value, 100))
}

//! `cowhand events`: what happened, in order.

use std::path::Path;

use clap::Args;
use cowhand_core::event::{Event, Fact, JobOutput};
use jiff::Timestamp;

use super::follow::Until;
use super::{Failure, ago, follow, interrupt, place, print};
use crate::api::Page;
use crate::view::line::readable;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(super) struct Events {
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
    /// Only what somebody asked for, and who it was
    #[arg(long)]
    audit: bool,
    /// Also what jobs say from now on
    #[arg(long, requires = "follow", conflicts_with = "audit")]
    output: bool,
    /// Only what has a greater number [default: the newest]
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    /// At most this many of those that have happened
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

impl Events {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let after = self.after.map(|after| format!("&after={after}")).unwrap_or_default();
        let audit = if self.audit { "&audit=1" } else { "" };
        let address = format!("events?limit={}{after}{audit}", self.limit);
        place::ask(config, async |client| {
            let events = client.get::<Page<Event>>(&address).await?.items;
            for event in &events {
                self.print(event);
            }
            if !self.follow {
                return Ok(());
            }
            let last = events.last().map_or(self.after.unwrap_or_default(), |event| event.seq);
            let output = if self.output { "&output=1" } else { "" };
            let address = |last: i64| format!("events?follow=1&after={last}{audit}{output}");
            let hear = |last, line: &str| {
                if let Ok(output) = serde_json::from_str::<JobOutput>(line) {
                    self.print_output(&output);
                    return last;
                }
                let Ok(event) = serde_json::from_str::<Event>(line) else { return last };
                self.print(&event);
                event.seq
            };
            interrupt::unless(follow::lines(client, Until::Never, last, address, hear), None).await
        })
    }

    /// A line for people; what only programs need is left out.
    fn print_output(&self, said: &JobOutput) {
        if self.json {
            print::line(serde_json::to_string(said).unwrap_or_default());
            return;
        }
        let Some(text) = readable(&said.output.to_string()) else { return };
        let who = print::padded(&ago::from_now(Timestamp::now(), said.at), 12);
        for line in text.lines() {
            print::row(&format!("{:>6}  {who}  {:<18}  {}  {line}", "", "job:output", said.job));
        }
    }

    fn print(&self, event: &Event) {
        if self.json {
            print::line(serde_json::to_string(event).unwrap_or_default());
            return;
        }
        let who = match &event.by {
            Some(by) if self.audit => format!("{}  ", print::padded(&by.to_string(), 24)),
            _ => String::new(),
        };
        let job = event.job.as_ref().map(ToString::to_string);
        let about = match &event.fact {
            Fact::TokenCreated { name, .. } | Fact::TokenRevoked { name } => Some(name.to_string()),
            Fact::WorkClaimed { item }
            | Fact::WorkReported { item, .. }
            | Fact::WorkReleased { item, .. }
            | Fact::WorkDropped { item, .. }
            | Fact::WorkDelayed { item, .. } => Some(item.to_string()),
            _ => None,
        };
        let what: Vec<_> =
            [Some(event.whose()), job, about, why(&event.fact)].into_iter().flatten().collect();
        let line = format!(
            "{:>6}  {:<12}  {who}{:<18}  {}",
            event.seq,
            ago::from_now(Timestamp::now(), event.at),
            event.fact.type_name(),
            what.join("  ").trim_start(),
        );
        print::row(line.trim_end());
    }
}

/// Why it happened, or what was said, of facts that have a word for that.
fn why(fact: &Fact) -> Option<String> {
    let fact = serde_json::to_value(fact).ok()?;
    let told = ["message", "reason", "outcome", "about", "status", "former"];
    let told = told.iter().find_map(|key| fact.get(key)?.as_str())?;
    Some(print::one_line(told, 100))
}

//! `cowhand events`: what happened, in order.

use std::path::Path;

use clap::Args;
use cowhand_core::event::Event;
use jiff::Timestamp;

use super::follow::Until;
use super::{Failure, ago, follow, interrupt, place, print};
use crate::api::Page;

#[derive(Debug, Args)]
pub(super) struct Events {
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
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
        let address = format!("events?limit={}{after}", self.limit);
        place::ask(config, async |client| {
            let events = client.get::<Page<Event>>(&address).await?.items;
            for event in &events {
                self.print(event);
            }
            if !self.follow {
                return Ok(());
            }
            let last = events.last().map_or(self.after.unwrap_or_default(), |event| event.seq);
            let address = |last: i64| format!("events?follow=1&after={last}");
            let hear = |last, line: &str| {
                let Ok(event) = serde_json::from_str::<Event>(line) else { return last };
                self.print(&event);
                event.seq
            };
            interrupt::unless(follow::lines(client, Until::Never, last, address, hear), None).await
        })
    }

    fn print(&self, event: &Event) {
        if self.json {
            print::line(serde_json::to_string(event).unwrap_or_default());
            return;
        }
        let schedule = event.schedule.as_ref().map(|schedule| format!("/{schedule}")).unwrap_or_default();
        let job = event.job.as_ref().map(|job| format!("  {job}")).unwrap_or_default();
        print::line(format!(
            "{:>6}  {:<12}  {:<18}  {}{schedule}{job}",
            event.seq,
            ago::from_now(Timestamp::now(), event.at),
            event.fact.type_name(),
            event.agent,
        ));
    }
}

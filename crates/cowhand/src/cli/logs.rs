//! `cowhand logs`: what a job said.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::JobRecord;
use cowhand_core::output::OutputMessage;
use serde_json::Value;

use super::print::{BAD, BUSY, FAINT, GOOD, harmless, one_line, styled};
use super::{Exit, Failure, job, place, print};
use crate::api::{Client, Code, Page, Problem};

#[derive(Debug, Args)]
pub(super) struct Logs {
    /// A job, or an agent for its newest job [default: the fleet's newest job]
    #[arg(value_name = "JOB|AGENT")]
    of: Option<String>,
    /// Go on until the job has ended
    #[arg(short, long)]
    follow: bool,
    /// Print the lines as they are stored
    #[arg(long)]
    json: bool,
}

impl Logs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        place::ask(config, async |client| {
            let id = self.job(client).await?;
            let show = |line: &str| match readable(line) {
                _ if self.json => print::line(line),
                Some(text) => print::line(text),
                None => {}
            };
            listen(client, &id, self.follow, show).await?;
            if !self.json {
                let job: JobRecord = client.get(&format!("jobs/{id}")).await?;
                print::line(styled(format!("── {}", job::in_short(&job)), FAINT));
            }
            Ok(())
        })
    }

    async fn job(&self, client: &Client) -> Result<JobId, Failure> {
        let of_agent = match &self.of {
            Some(of) if of.starts_with("job-") => {
                return of.parse().map_err(|error| Failure::usage(format!("{error}")));
            }
            Some(of) => {
                let agent: AgentName = of.parse().map_err(|error| Failure::usage(format!("{error}")))?;
                client.get::<Value>(&format!("agents/{agent}")).await?;
                format!("&agent={agent}")
            }
            None => String::new(),
        };
        let newest = client.get::<Page<JobRecord>>(&format!("jobs?limit=1{of_agent}")).await?.items.pop();
        let nothing =
            || Failure::new(Exit::Refused, "no job has been made yet; `cowhand trigger AGENT` makes one");
        newest.map(|job| job.id).ok_or_else(nothing)
    }
}

/// How long a daemon may be away before whoever listens gives up.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// Every line of a job's output once, also over a restart of the daemon; with `follow` until the job has ended.
pub(super) async fn listen(
    client: &Client,
    id: &JobId,
    follow: bool,
    mut hear: impl FnMut(&str),
) -> Result<(), Problem> {
    let mut heard = 0_u64;
    let mut away_since: Option<Instant> = None;
    loop {
        let address = format!("jobs/{id}/output?follow={}&after={heard}", u8::from(follow));
        let problem = match client.lines(&address).await {
            Err(problem) => problem,
            Ok(mut lines) => loop {
                match lines.next().await {
                    Ok(Some(line)) => hear(&line),
                    Ok(None) => return Ok(()),
                    Err(problem) => break problem,
                }
                (heard, away_since) = (heard + 1, None);
            },
        };
        let away = matches!(problem.code, Code::Unavailable | Code::NoDaemon | Code::Stopping);
        if !away || away_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(problem);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A line as a person reads it; none for what only programs need.
fn readable(line: &str) -> Option<String> {
    let Ok(message) = OutputMessage::read_line(line) else { return Some(harmless(line)) };
    match message? {
        OutputMessage::Assistant { partial: Some(true), .. } => None,
        OutputMessage::Assistant { content, .. } => content.map(|content| harmless(content.trim_end())),
        OutputMessage::System { subtype, content, .. } => {
            let text = content.map(|content| harmless(content.trim_end()));
            text.or_else(|| subtype.map(|word| format!("[{word}]"))).map(|text| styled(text, FAINT))
        }
        OutputMessage::ToolUse { tool_name, input, .. } => {
            let input = input.map(|input| one_line(&shown(&input), 120)).unwrap_or_default();
            Some(format!("{} {input}", styled(format!("→ {}", harmless(&tool_name)), BUSY)))
        }
        OutputMessage::ToolResult { result, success, error, .. } => {
            let (mark, style) = if success == Some(false) { ("✗", BAD) } else { ("←", GOOD) };
            let text = error.or_else(|| result.as_ref().map(shown)).unwrap_or_default();
            Some(format!("{} {}", styled(mark, style), one_line(&text, 120)))
        }
        OutputMessage::Error { message, .. } => {
            Some(format!("{} {}", styled("error:", BAD), harmless(&message)))
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_of_message_has_its_form() {
        let plain = |line: &str| readable(line).map(|text| anstream::adapter::strip_str(&text).to_string());
        let table = [
            (r#"{"type":"assistant","content":"Hello\nyou\n"}"#, Some("Hello\nyou")),
            (r#"{"type":"assistant","content":"Hello","partial":true}"#, None),
            (r#"{"type":"system","subtype":"init"}"#, Some("[init]")),
            (r#"{"type":"system","content":"plain"}"#, Some("plain")),
            (
                r#"{"type":"tool_use","tool_name":"Bash","input":{"command":"ls"}}"#,
                Some(r#"→ Bash {"command":"ls"}"#),
            ),
            (r#"{"type":"tool_result","result":"a\nb","success":true}"#, Some("← a")),
            (r#"{"type":"tool_result","error":"denied","success":false}"#, Some("✗ denied")),
            (r#"{"type":"error","message":"boom"}"#, Some("error: boom")),
            ("no JSON", Some("no JSON")),
        ];
        for (line, text) in table {
            assert_eq!(plain(line).as_deref(), text, "{line}");
        }
    }
}

//! `cowhand asks`, `approve`, `deny` and `answer`: list the asks of agents, and answer them.

use std::path::Path;

use clap::Args;
use cowhand_core::ask::{Ask, AskName, AskState, AskSubject};
use cowhand_core::duration;
use jiff::Timestamp;

use super::advice::command;
use super::print::{self, Table, plain};
use super::{Exit, Failure, complete, location, style};
use cowhand_engine::view::line::folded;
use cowhand_web::api::{AnswerKind, AnswerRequest, Page};

#[derive(Debug, Args)]
pub(super) struct AsksArgs {
    /// Show only this ask, in full
    #[arg(value_name = "ASK", add = complete::asks())]
    id: Option<AskName>,
    /// Include asks that were answered or have ended
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ApproveArgs {
    /// ID of the ask, as `cowhand asks` lists it
    #[arg(value_name = "ASK", add = complete::asks())]
    id: AskName,
    /// Note to keep with the answer
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct DenyArgs {
    /// ID of the ask, as `cowhand asks` lists it
    #[arg(value_name = "ASK", add = complete::asks())]
    id: AskName,
    /// Reason or alternative, sent to the agent
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct AnswerArgs {
    /// ID of the ask, as `cowhand asks` lists it
    #[arg(value_name = "ASK", add = complete::asks())]
    id: AskName,
    /// Text of the answer, sent to the agent
    text: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl AsksArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        if let Some(id) = &self.id {
            let ask: Ask =
                location::ask(config, async |client| Ok(client.get(&format!("asks/{id}")).await?))?;
            if self.json {
                print::json(&ask);
            } else {
                print_ask(&ask);
            }
            return Ok(());
        }
        let path = if self.all { "asks?all=1" } else { "asks" };
        let asks: Page<Ask> = location::ask(config, async |client| Ok(client.get(path).await?))?;
        if self.json {
            print::json(&asks.items);
        } else if asks.items.is_empty() {
            print::line(if self.all { "no asks" } else { "no open asks" });
        } else {
            table(&asks.items, Timestamp::now()).print();
        }
        Ok(())
    }
}

impl ApproveArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        answer(config, &self.id, AnswerKind::Allow, self.message, self.json)
    }
}

impl DenyArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        answer(config, &self.id, AnswerKind::Deny, self.message, self.json)
    }
}

impl AnswerArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        answer(config, &self.id, AnswerKind::Text, Some(self.text), self.json)
    }
}

fn answer(
    config: Option<&Path>,
    id: &AskName,
    answer: AnswerKind,
    message: Option<String>,
    json: bool,
) -> Result<(), Failure> {
    if message.as_deref().is_some_and(|text| text.trim().is_empty()) {
        return Err(Failure::new(Exit::Usage, "the text is empty; write a reason or an answer"));
    }
    // An agent can remove this variable. The check only prevents mistakes and is not a security boundary.
    if std::env::var_os("COWHAND_JOB_ID").is_some() {
        return Err(Failure::new(Exit::Refused, "an agent cannot answer asks"));
    }
    let request = AnswerRequest { answer: Some(answer), message };
    let ask: Ask = location::ask(config, async |client| {
        Ok(client.post(&format!("asks/{id}/answer"), &request).await?)
    })?;
    print::done(&format!("{} is {}.", ask.id, ask.state.status()), &ask, json);
    Ok(())
}

fn table(asks: &[Ask], now: Timestamp) -> Table {
    let mut table = Table::new(&["ASK", "AGENT", "STATUS", "ASKED", "UNTIL/BY", "WHAT"])
        .optional_columns(&["ASKED", "STATUS", "UNTIL/BY", "AGENT"]);
    let max_width = if print::width().is_some() { 80 } else { usize::MAX };
    for ask in asks {
        let until = match &ask.state {
            AskState::Open => duration::relative_to_now(now, ask.expires_at),
            AskState::Allowed(answered) | AskState::Denied(answered) | AskState::Answered(answered) => {
                answered.by.as_ref().map(ToString::to_string).unwrap_or_default()
            }
            AskState::Expired { .. } | AskState::Ended { .. } => String::new(),
        };
        table.row([
            ask.id.to_string(),
            ask.agent.to_string(),
            ask.state.status().to_string(),
            duration::relative_to_now(now, ask.asked_at),
            until,
            folded(&describe(ask), max_width),
        ]);
    }
    table
}

/// Describes the subject of an ask: the question, or the tool with its command. If the input of the tool has no
/// command, the whole input is shown.
pub(super) fn describe(ask: &Ask) -> String {
    match &ask.what {
        AskSubject::Tool { tool, input } => {
            let command = input.get("command").and_then(serde_json::Value::as_str);
            format!("{tool} {}", command.map_or_else(|| input.to_string(), str::to_owned))
        }
        AskSubject::Question { question, .. } => question.clone(),
    }
}

fn print_ask(ask: &Ask) {
    let now = Timestamp::now();
    print::line(format!(
        "{} of {}, asked {}",
        ask.id,
        ask.agent,
        duration::relative_to_now(now, ask.asked_at)
    ));
    print::line(format!("status: {}", ask.state.status()));
    if ask.state == AskState::Open {
        print::line(format!("until:  {}", duration::relative_to_now(now, ask.expires_at)));
    }
    if let AskState::Allowed(answered) | AskState::Denied(answered) | AskState::Answered(answered) =
        &ask.state
    {
        let by = answered.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        print::line(format!("answer: {}{by}", duration::relative_to_now(now, answered.answered_at)));
        if let Some(message) = &answered.message {
            print::line(plain(message));
        }
    }
    print::line("");
    match &ask.what {
        AskSubject::Tool { tool, input } => {
            print::line(plain(tool));
            print::line(plain(&serde_json::to_string_pretty(input).unwrap_or_default()));
        }
        AskSubject::Question { question, options } => {
            print::line(plain(question));
            for option in options {
                print::line(format!("- {}", plain(option)));
            }
        }
    }
    if ask.state == AskState::Open {
        let id = &ask.id;
        let yes = match &ask.what {
            AskSubject::Tool { .. } => command(&format!("approve {id}")),
            AskSubject::Question { .. } => command(&format!("answer {id} 'the answer'")),
        };
        let no = command(&format!("deny {id} -m 'why, or what to do instead'"));
        let commands = format!("\n{yes}\n{no}");
        print::line(style::styled(commands, style::FAINT));
    }
}

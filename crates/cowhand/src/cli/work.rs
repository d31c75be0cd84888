//! `cowhand work`: shows and changes the queues of work sources.

use std::path::Path;

use clap::{Args, Subcommand, ValueEnum};
use cowhand_core::duration;
use cowhand_core::id::AgentName;
use cowhand_core::work::{WorkItemId, WorkOutcome};
use jiff::Timestamp;

use super::print::{self, Table, one_line};
use super::{Exit, Failure, complete, location, number};
use cowhand_engine::queues::given_up::GivenUp;
use cowhand_engine::queues::{DroppedResult, ItemStatus, ItemView};
use cowhand_web::api::{ClaimRequest, CompleteRequest, ReleaseRequest, RetryRequest, WorkView, segment};

#[derive(Debug, Subcommand)]
pub(super) enum WorkVerb {
    /// List available items, the most urgent first
    List(WorkListArgs),
    /// Show everything about one item
    Show(WorkItemArgs),
    /// Reserve an item for yourself, so that no agent takes it
    Claim(WorkItemArgs),
    /// Make an item available again, and reset its failures
    Release(WorkReleaseArgs),
    /// Make an item available again that was given up
    Retry(WorkItemArgs),
    /// Mark an item as done
    Complete(WorkCompleteArgs),
}

#[derive(Debug, Args)]
pub(super) struct WorkListArgs {
    /// Only the queues of this agent
    #[arg(long, add = complete::agents())]
    agent: Option<AgentName>,
    /// Only the queue of this name
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Include claimed items
    #[arg(long)]
    all: bool,
    /// Only items with this label; if repeated, items that have all of them
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    /// Only items of this priority; if repeated, of any of them
    #[arg(long, value_name = "PRIORITY", value_enum)]
    priority: Vec<Urgency>,
    /// Maximum number of items
    #[arg(long, value_name = "COUNT", value_parser = number::between(1, 1000))]
    limit: Option<u32>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct WorkItemArgs {
    /// ID of the item, for example github-42
    #[arg(value_name = "ITEM")]
    id: WorkItemId,
    /// Agent with the item in its queues, if several queues have such an item
    #[arg(long, add = complete::agents())]
    agent: Option<AgentName>,
    /// Queue with the item, as `work list` shows it, if several queues of the agent have such an item
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Print the item as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct WorkReleaseArgs {
    #[command(flatten)]
    one: WorkItemArgs,
    /// Reason, shown to readers of the item
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct WorkCompleteArgs {
    #[command(flatten)]
    one: WorkItemArgs,
    /// Summary of the work
    #[arg(long)]
    summary: Option<String>,
    /// Outcome of the work
    #[arg(long, value_enum, default_value_t = Outcome::Success)]
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Urgency {
    Critical,
    High,
    Medium,
    Low,
}

impl Urgency {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Outcome {
    Success,
    Failure,
    Partial,
}

impl WorkVerb {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        match self {
            Self::List(list) => list.run(config),
            Self::Show(one) => {
                let address =
                    format!("work/{}{}", one.id, query(one.agent.as_ref(), one.queue.as_deref(), false));
                let view = location::ask(config, async |client| Ok(client.get(&address).await?))?;
                show(&view, one.json);
                Ok(())
            }
            Self::Claim(one) => {
                let person = std::env::var("USER").ok().filter(|name| !name.is_empty());
                let request = ClaimRequest { agent: one.agent.clone(), queue: one.queue.clone(), person };
                one.change(config, "claim", &request, "claimed")
            }
            Self::Release(WorkReleaseArgs { one, reason }) => {
                let request = ReleaseRequest { agent: one.agent.clone(), queue: one.queue.clone(), reason };
                one.change(config, "release", &request, "released")
            }
            Self::Retry(one) => {
                let request = RetryRequest { agent: one.agent.clone(), queue: one.queue.clone() };
                one.change(config, "retry", &request, "offered again")
            }
            Self::Complete(WorkCompleteArgs { one, summary, outcome }) => {
                let outcome = Some(match outcome {
                    Outcome::Success => WorkOutcome::Success,
                    Outcome::Failure => WorkOutcome::Failure,
                    Outcome::Partial => WorkOutcome::Partial,
                });
                let done = match outcome {
                    Some(WorkOutcome::Failure) => "failed",
                    Some(WorkOutcome::Partial) => "partly done",
                    Some(WorkOutcome::Success) | None => "completed",
                };
                let (agent, queue) = (one.agent.clone(), one.queue.clone());
                let request = CompleteRequest { agent, queue, outcome, summary };
                one.change(config, "complete", &request, done)
            }
        }
    }
}

fn query(agent: Option<&AgentName>, queue: Option<&str>, all: bool) -> String {
    let agent = agent.map(|agent| format!("agent={agent}"));
    let queue = queue.map(|queue| format!("queue={}", segment(queue)));
    let all = all.then(|| "all=1".to_owned());
    let parameters: Vec<String> = [all, agent, queue].into_iter().flatten().collect();
    format!("?{}", parameters.join("&"))
}

impl WorkItemArgs {
    fn change(
        self,
        config: Option<&Path>,
        verb: &str,
        request: &impl serde::Serialize,
        done: &str,
    ) -> Result<(), Failure> {
        let address = format!("work/{}/{verb}", self.id);
        let view: ItemView =
            location::ask(config, async |client| Ok(client.post(&address, request).await?))?;
        let done = match &view {
            view if view.forgotten => "removed, because its source does not have it any more".to_owned(),
            view if view.was_available => "is available already".to_owned(),
            view if view.undelivered => format!("will be {done} when its source accepts it"),
            _ => done.to_owned(),
        };
        let sentence = format!("{} {done}: {}", view.item.id, one_line(&view.item.title, 60));
        print::done(&sentence, &view, self.json);
        if view.undelivered && !self.json {
            let why = view.last_error.as_deref().unwrap_or("its source has not answered yet");
            print::note(format!("cowhand tries again: {}", one_line(why, 600)));
        }
        if let Some(why) = view.not_taken.as_ref().filter(|_| !self.json) {
            print::note(one_line(why, 600));
        }
        Ok(())
    }
}

impl WorkListArgs {
    /// Returns the filters as query parameters of the API.
    fn filters(&self) -> String {
        let labels =
            (!self.labels.is_empty()).then(|| format!("&labels={}", segment(&self.labels.join(","))));
        let priorities: Vec<&str> = self.priority.iter().map(|priority| priority.as_str()).collect();
        let priority = (!priorities.is_empty()).then(|| format!("&priority={}", priorities.join(",")));
        let limit = self.limit.map(|limit| format!("&limit={limit}"));
        [labels, priority, limit].into_iter().flatten().collect()
    }

    /// Returns the reason why there are no items to show.
    fn no_items_message(&self, queues: &[String]) -> String {
        match (queues.is_empty(), &self.agent) {
            (true, Some(agent)) => format!("{agent} has no `work_source`, so there is no work for it"),
            (true, None) => "no agent has a `work_source`; docs/work-sources.md describes it".to_owned(),
            (false, _) if !self.labels.is_empty() || !self.priority.is_empty() => {
                format!("no item of {} matches the filter", queues.join(", "))
            }
            (false, _) => format!("no work is available in {}", queues.join(", ")),
        }
    }

    fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let address =
            format!("work{}{}", query(self.agent.as_ref(), self.queue.as_deref(), self.all), self.filters());
        let page: WorkView = location::ask(config, async |client| Ok(client.get(&address).await?))?;
        let problems = page.problems.iter().map(|problem| format!("{}: {}", problem.queue, problem.message));
        let problems = problems.collect::<Vec<_>>().join("\n");
        let end = if problems.is_empty() { Ok(()) } else { Err(Failure::new(Exit::CannotRunHere, problems)) };
        if self.json {
            print::json(&page.items);
            return end;
        }
        for queue in &page.untaken {
            print::note(format!(
                "no schedule takes items from {queue}; add a schedule, or take an item by hand with `cowhand work claim ITEM`"
            ));
        }
        if page.items.is_empty() {
            end?;
            print::line(self.no_items_message(&page.queues));
            return Ok(());
        }
        let now = Timestamp::now();
        let given_up_lines: Vec<String> = page.items.iter().filter_map(given_up_line).collect();
        // The name of a queue is long, so it is shown only if a command needs it.
        let with_queues = page.items.iter().any(|view| view.needed.queue_needed.is_some());
        let mut columns = vec!["ITEM", "STATUS", "PRIORITY", "AGE", "AGENTS", "TITLE"];
        columns.extend(with_queues.then_some("QUEUE"));
        let mut table = Table::new(&columns).optional_columns(&["AGE", "AGENTS", "PRIORITY", "TITLE"]);
        for view in page.items {
            let agents: Vec<&str> = view.agents.iter().map(AgentName::as_str).collect();
            let mut row = vec![
                view.item.id.to_string(),
                status(&view),
                view.item.priority.as_str().to_owned(),
                duration::relative_to_now(now, view.item.created_at),
                agents.join(", "),
                print::cell(&view.item.title),
            ];
            row.extend(with_queues.then_some(view.queue));
            table.row(row);
        }
        table.print();
        for line in given_up_lines {
            print::prose(&line, 2);
        }
        end
    }
}

/// Formats why an item was given up, and the command that retries it.
fn given_up_line(view: &ItemView) -> Option<String> {
    let (why, id) = (view.given_up.as_ref()?, &view.item.id);
    let (named, condition) = (view.command_words(), why.condition());
    Some(format!("{id} {}; `cowhand work retry {named}` retries it{condition}", given_up(why)))
}

fn given_up(why: &GivenUp) -> String {
    let job = why.job.as_ref().map(|job| format!(" ({job})")).unwrap_or_default();
    format!("{}{job}", one_line(&why.sentence(), 300))
}

fn status(view: &ItemView) -> String {
    match (view.held_by.as_ref().or(view.claimed_by.as_ref()), view.status) {
        (_, ItemStatus::GivenUp) => "given up".to_owned(),
        _ if let Some(node) = &view.claiming_on => format!("being claimed by {}", one_line(node, 80)),
        (Some(holder), ItemStatus::Claimed) => {
            let person = holder.strip_suffix(&format!("@{}", view.item.id));
            format!("claimed by {}", one_line(person.unwrap_or(holder), 80))
        }
        (_, ItemStatus::Closing) if view.releasing && view.last_error.is_some() => {
            "closing, not released yet".to_owned()
        }
        (_, ItemStatus::Closing) if view.last_error.is_some() => "closing, not reported yet".to_owned(),
        (_, status) => status.as_str().to_owned(),
    }
}

/// Formats a result that was not reported because the item has changed.
fn dropped_result(dropped: &DroppedResult, now: Timestamp) -> String {
    let DroppedResult { job, at, message } = dropped;
    format!("of {job}, {}: {message}; `cowhand job {job}` shows it", duration::relative_to_now(now, *at))
}

fn show(view: &ItemView, json: bool) {
    if json {
        return print::json(view);
    }
    let item = &view.item;
    let now = Timestamp::now();
    let agents: Vec<&str> = view.agents.iter().map(AgentName::as_str).collect();
    print::line(format!("{}  {}", item.id, one_line(&item.title, 200)));
    let facts = [
        ("status", status(view)),
        ("priority", item.priority.as_str().to_owned()),
        ("labels", item.labels.join(", ")),
        ("created", duration::relative_to_now(now, item.created_at)),
        ("agents", agents.join(", ")),
        ("queue", view.needed.queue_needed.clone().unwrap_or_default()),
        ("url", item.url.clone()),
        ("given up", view.given_up.as_ref().map(given_up).unwrap_or_default()),
        (
            if view.releasing { "not released yet" } else { "not reported yet" },
            view.last_error.clone().unwrap_or_default(),
        ),
        (
            "result not reported",
            view.dropped_result.as_ref().map(|dropped| dropped_result(dropped, now)).unwrap_or_default(),
        ),
    ];
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        print::line(format!("  {name}: {}", one_line(value, 500)));
    }
    for line in item.description.lines().map(|line| one_line(line, 1000)) {
        print::line(format!("  {line}"));
    }
}

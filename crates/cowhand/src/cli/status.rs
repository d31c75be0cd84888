//! `cowhand status`: shows the daemon and its agents.

use std::path::Path;

use clap::Args;
use cowhand_core::duration;
use cowhand_core::id::AgentName;
use cowhand_core::job::JobRecord;
use cowhand_core::schedule::SkipReason;
use jiff::Timestamp;

use super::agents::table;
use super::location::{Connection, FleetLocation};
use super::{Exit, Failure, complete, doctor, job, jobs, print, removed, schedule, style};
use cowhand_engine::chat::{ChatBotStatus, ChatBotView};
use cowhand_engine::daemon::nodes::other_config_sentence;
use cowhand_engine::daemon::unsettled_sentence;
use cowhand_engine::fleet::{ScheduleStatus, ScheduleView};
use cowhand_engine::notification::view::UndeliveredTarget;
use cowhand_engine::queues::UndeliveredItem;
use cowhand_engine::queues::given_up::GivenUpItem;
use cowhand_engine::queues::skipped_files::SkippedFiles;
use cowhand_engine::unfinished::UnfinishedWorkspace;
use cowhand_web::api::{
    AgentView, Code, DaemonView, JobView, ListedJob, Page, ProviderUsage, RemovedAgent, RemovedSchedule,
    StatusView, Waits, removed_agent_sentence,
};

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Show only this agent, with its schedules
    #[arg(add = complete::agents())]
    agent: Option<AgentName>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let location = FleetLocation::find(config)?;
        let shown = location.ask(async |client| self.show(client).await);
        shown.inspect_err(|failure| {
            // Without a daemon, this process reads the store itself, and the store may be unavailable.
            if failure.has_exit(Exit::CannotRunHere) && !self.json && !location.state.is_locked() {
                let daemon =
                    if location.state.is_closed_to_this_user() { "not known" } else { "not running" };
                print::prose(&format!("daemon: {daemon}; the store cannot be read"), 2);
            }
        })
    }

    /// Returns whether the config may name another store than the one whose status is shown. A running daemon knows
    /// this, unless it refused the config. Without a daemon, only the JSON needs the check, because the line about the
    /// daemon already contains its result. Reading the config for the check takes longer than the rest of this verb.
    fn may_use_another_store(&self, daemon: &DaemonView) -> bool {
        if daemon.store_problem.is_some() {
            return false;
        }
        if daemon.running { daemon.store_changed || daemon.config_refused_at.is_some() } else { self.json }
    }

    async fn show(&self, client: &Connection<'_>) -> Result<(), Failure> {
        let mut status: StatusView = match client.get("status").await {
            Err(problem) if problem.code == Code::StoreUnavailable && !client.is_alone() => {
                print::prose("daemon: running; no new work is accepted", 2);
                return Err(problem.into());
            }
            answer => answer?,
        };
        if let Some(agent) = &self.agent {
            status.agents.retain(|view| view.name == *agent);
            if status.agents.is_empty() {
                // The error says that the agent does not exist, and suggests a similar name.
                if let Err(problem) = client.get::<AgentView>(&format!("agents/{agent}")).await {
                    return removed::show(client, agent, None, problem, self.json).await;
                }
            }
        }
        let store_change = if self.may_use_another_store(&status.daemon) {
            Box::pin(doctor::store_change(client.location(), status.daemon.running)).await
        } else {
            None
        };
        FleetLocation::without_refusal_note();
        FleetLocation::without_unsettled_note();
        if self.json {
            status.daemon.store_problem =
                status.daemon.store_problem.or(store_change).or_else(|| client.disk_problem());
            print::json(&status);
            return Ok(());
        }
        let now = Timestamp::now();
        self.print_state(client, &status, store_change, now).await;
        print::line("");
        if client.has_config_errors() {
            print_jobs_without_agents(client, &status, now).await?;
        } else {
            table(&status.agents, now).print();
        }
        let mut schedules = client.get::<Page<ScheduleView>>("schedules").await?.items;
        schedules.retain(|view| self.agent.as_ref().is_none_or(|agent| view.agent == *agent));
        let mut lines = schedule_problems(&schedules, client.is_alone(), now);
        add_waiting_jobs(client, self.agent.as_ref(), &status, now, &mut lines).await?;
        lines.extend(self.problem_lines(&status, now));
        if self.agent.is_some() {
            print::line("");
            schedule::table(&schedules, client.is_alone(), now).print();
        }
        if !lines.is_empty() {
            print::line("");
        }
        for line in lines {
            print::prose(&line, 2);
        }
        Ok(())
    }

    /// Prints the state of the daemon, and everything that holds several agents up.
    async fn print_state(
        &self,
        client: &Connection<'_>,
        status: &StatusView,
        store_change: Option<String>,
        now: Timestamp,
    ) {
        print::prose(&daemon_line(&status.daemon, client.location(), now).await, 2);
        print_store_problem(status.daemon.store_problem.as_deref());
        if let Some(sentence) = unsettled_sentence(status.unsettled) {
            print::prose(&format!("{}: {sentence}", style::styled("not settled", style::ODD)), 2);
        }
        if let Some(change) = store_change {
            print::prose(&format!("{}: {change}", style::styled("store", style::ODD)), 2);
        }
        if let Some(line) = asks_line(status.asks) {
            print::prose(&line, 2);
        }
        if let Some(line) = messages_line(status.messages) {
            print::prose(&line, 2);
        }
        if let Some(line) = config_line(&status.daemon, now) {
            print::prose(&line, 2);
        }
        for line in node_lines(&status.daemon, now) {
            print::prose(&line, 2);
        }
        if let Some(problem) = &status.daemon.certificate_problem {
            print::prose(&style::styled(print::one_line(problem, 600), style::BAD), 2);
        }
        for lost in &status.lost_leases {
            let line = format!("{}: {}: {}", style::styled("lease", style::ODD), lost.job, lost.message);
            print::prose(&line, 2);
        }
        for parked in &status.parked {
            let (name, until) = (&parked.provider, duration::until(now, parked.until));
            let (message, used_up) =
                (print::one_line(&parked.message, 300), style::styled("used up", style::ODD));
            print::prose(
                &format!(
                    "{used_up}: {name} takes jobs again {until}, or after `cowhand unpark {name}`: {message}"
                ),
                2,
            );
        }
        let usages = status.provider_usage.iter().filter(|usage| {
            self.agent.is_none()
                || status.agents.iter().any(|agent| {
                    agent.provider_usage.as_ref().is_some_and(|own| own.provider == usage.provider)
                })
        });
        for line in usages.flat_map(|usage| usage_lines(usage, now)) {
            print::prose(&line, 2);
        }
    }

    /// Describes what waits for a person, and what has not reached its receiver.
    fn problem_lines(&self, status: &StatusView, now: Timestamp) -> Vec<String> {
        let mut lines = Vec::new();
        if self.agent.is_none() {
            let undelivered = status.undelivered_notifications.iter();
            lines.extend(undelivered.map(|target| notifications_line(target, now)));
            lines.extend(status.gone.iter().map(gone_agent_line));
        }
        let of_agent = |gone: &&RemovedSchedule| self.agent.as_ref().is_none_or(|agent| gone.agent == *agent);
        lines.extend(status.gone_schedules.iter().filter(of_agent).map(gone_schedule_line));
        lines.extend(chat_bot_lines(status, self.agent.as_ref(), now));
        let of_agent =
            |item: &&GivenUpItem| self.agent.as_ref().is_none_or(|agent| item.agents.contains(agent));
        lines.extend(status.given_up.iter().filter(of_agent).map(given_up_line));
        let of_agent = |item: &&UndeliveredItem| self.agent.as_ref().is_none_or(|agent| item.agent == *agent);
        lines.extend(status.untold.iter().filter(of_agent).map(|item| undelivered_line(item, now)));
        let of_agent =
            |skipped: &&SkippedFiles| self.agent.as_ref().is_none_or(|agent| skipped.agents.contains(agent));
        lines.extend(status.skipped_files.iter().filter(of_agent).map(skipped_files_line));
        let of_agent =
            |kept: &&UnfinishedWorkspace| self.agent.as_ref().is_none_or(|agent| kept.agent == *agent);
        let unfinished: Vec<&UnfinishedWorkspace> =
            status.unfinished_workspaces.iter().filter(of_agent).collect();
        lines.extend(UnfinishedWorkspace::sentence(&unfinished).map(|text| unfinished_line(&text)));
        lines
    }
}

/// Prints the jobs that have not ended, instead of the agents. A config with errors does not tell which agents there
/// are.
async fn print_jobs_without_agents(
    client: &Connection<'_>,
    status: &StatusView,
    now: Timestamp,
) -> Result<(), Failure> {
    const MAX_JOBS_SHOWN: u32 = 20;
    let note = client.location().config_error_note();
    print::prose(&format!("The agents cannot be read, because {note}."), 2);
    let mut shown: Vec<ListedJob> = Vec::new();
    for state in ["running", "pending"] {
        let jobs: Page<ListedJob> =
            client.get(&format!("jobs?status={state}&limit={MAX_JOBS_SHOWN}")).await?;
        shown.extend(jobs.items);
    }
    if shown.is_empty() {
        return Ok(());
    }
    print::line("");
    jobs::table(&shown, now).print();
    if status.running + status.queued > shown.len() {
        let (running, queued) = (status.running, status.queued);
        print::prose(&format!("{running} jobs run, and {queued} wait; `cowhand jobs` lists all"), 2);
    }
    Ok(())
}

/// Prints why the store cannot be written, if there is a problem.
pub(super) fn print_store_problem(problem: Option<&str>) {
    let Some(problem) = problem else { return };
    let problem = print::one_line(problem, 1_000);
    print::prose(&format!("{}: {problem}", style::styled("no new work is accepted", style::BAD)), 2);
}

/// Formats the usage windows and the reserve of a provider and, if its reserve is reached, until when automatic jobs wait.
pub(super) fn usage_lines(usage: &ProviderUsage, now: Timestamp) -> Vec<String> {
    let mut lines = vec![format!("provider {}: {}", usage.provider, usage.in_words(now))];
    lines.extend(usage.reached.as_ref().map(|reached| {
        let (label, until) =
            (style::styled("reserve reached", style::ODD), duration::until(now, reached.until));
        format!("{label}: {} starts automatic jobs again {until}: {}", usage.provider, reached.sentence())
    }));
    lines
}

/// Formats the number of asks that wait for an answer, or returns none if there are no such asks.
fn messages_line(messages: usize) -> Option<String> {
    let what = match messages {
        0 => return None,
        1 => "a message to a job waits".to_owned(),
        more => format!("{more} messages to jobs wait"),
    };
    Some(format!("{}; `cowhand job JOB` shows the messages of a job", style::styled(&what, style::BUSY)))
}

fn asks_line(asks: usize) -> Option<String> {
    let who = match asks {
        0 => return None,
        1 => "an agent waits for an answer".to_owned(),
        more => format!("{more} asks wait for an answer"),
    };
    Some(format!("{}; `cowhand asks` lists the open asks", style::styled(&who, style::ODD)))
}

/// Formats a line for each schedule that does not run as planned: its breaker has paused it, an error has stopped it,
/// it is over budget, its trigger fails, it refuses all deliveries, it is starved, it can never fire, or its firing cannot be prepared. A firing
/// that cannot be prepared gets a line even if the schedule is turned off. Schedules over the same budget share one
/// line. A schedule that missed a firing gets a further line. Parked providers are not among these lines.
fn schedule_problems(schedules: &[ScheduleView], is_alone: bool, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    for view in schedules {
        let name = format!("{}/{}", view.agent, view.schedule);
        let note = view.skip_note.as_ref().map(|note| print::one_line(note, 300));
        let unprepared = view.unprepared().map(|why| print::one_line(&why, 600));
        let line = match (view.status, note, &view.last_error) {
            (ScheduleStatus::Paused, Some(note), _) => {
                let when = |until| duration::until(now, until);
                let again = |until| format!(", {}", schedule::tries_again(until, is_alone, now, when));
                let again = view.skip_until.map(again).unwrap_or_default();
                format!("{}: {name}{again}: {note}", style::styled("paused", style::ODD))
            }
            (ScheduleStatus::Error, _, Some(error)) => {
                format!(
                    "{}: {name}{}: {}",
                    style::styled("stopped by an error", style::ODD),
                    view.stopped_since(now),
                    print::one_line(error, 300)
                )
            }
            (_, Some(note), _) if view.skip_note_reason == Some(SkipReason::OverBudget) => {
                format!("{}: {note}", style::styled("over budget", style::ODD))
            }
            (status, ..) if let Some(why) = unprepared => {
                let what = if status == ScheduleStatus::Disabled { "turned off" } else { "not prepared" };
                format!("{}: {name}: {why}", style::styled(what, style::ODD))
            }
            _ if let Some(why) = view.failing_trigger(is_alone, now) => {
                format!(
                    "{}: {name}, {}",
                    style::styled("trigger fails", style::ODD),
                    print::one_line(&why, 600)
                )
            }
            _ if let Some(why) = view.refuses_deliveries() => {
                format!(
                    "{}: {name}: {}",
                    style::styled("refuses deliveries", style::ODD),
                    print::one_line(why, 300)
                )
            }
            _ if let Some(never) = &view.never_fires => {
                format!("{}: {name}: {never}", style::styled("can never fire", style::ODD))
            }
            _ if view.is_starved(now) => starved_line(&name, view, now),
            _ => continue,
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    for (view, missed) in schedules.iter().filter_map(|view| Some((view, view.missed.as_ref()?))) {
        let what = style::styled("missed", style::ODD);
        lines.push(format!("{what}: {}/{}: {}", view.agent, view.schedule, missed.note));
    }
    lines
}

/// Formats the line of a starved schedule.
fn starved_line(name: &str, view: &ScheduleView, now: Timestamp) -> String {
    let since = view.due_since.map(|since| duration::relative_to_now(now, since)).unwrap_or_default();
    let (what, again) = (style::styled("waits", style::ODD), view.due_again_in_words());
    let why = print::one_line(view.awaited().unwrap_or_default(), 300);
    format!("{what}: {name} was due {since}{again}: {why}")
}

/// Formats a work item that no agent takes before a person acts.
pub(super) fn given_up_line(item: &GivenUpItem) -> String {
    format!("{}: {}", style::styled("given up", style::ODD), print::one_line(&item.sentence(), 600))
}

/// Formats the state of each bot on a chat platform, with the agents that use the bot.
fn chat_bot_lines(
    status: &StatusView,
    agent: Option<&AgentName>,
    now: Timestamp,
) -> impl Iterator<Item = String> {
    let is_shown = move |bot: &&ChatBotView| agent.is_none_or(|agent| bot.agents.contains(agent));
    let node = status.daemon.node.as_deref();
    status.chat_bots.iter().filter(is_shown).map(move |bot| {
        let agents: Vec<&str> = bot.agents.iter().map(AgentName::as_str).collect();
        let is_good = bot.status == ChatBotStatus::Connected && bot.refused_answers == 0;
        let style = if is_good { style::GOOD } else { style::ODD };
        let (label, state) = (style::styled("chat bot", style), chat_bot_state(bot, node, now));
        format!("{label}: {}, for {}, {state}", bot.bot, agents.join(", "))
    })
}

/// Describes the connection of a bot, and what its chats lack.
pub(super) fn chat_bot_state(bot: &ChatBotView, node: Option<&str>, now: Timestamp) -> String {
    print::one_line(&bot.state_in_words(node, now), 900)
}

/// Formats the number of files of a queue that are not work items.
pub(super) fn skipped_files_line(skipped: &SkippedFiles) -> String {
    format!("{}: {}", style::styled("skipped", style::ODD), print::one_line(&skipped.sentence(), 600))
}

/// Formats the workspaces that are kept although their jobs have ended.
fn unfinished_line(text: &str) -> String {
    format!("{}: {}", style::styled("unfinished", style::ODD), print::one_line(text, 600))
}

/// Formats the notifications that a target did not get.
fn notifications_line(target: &UndeliveredTarget, now: Timestamp) -> String {
    let text = print::one_line(&target.sentence(now), 600);
    format!("{}: {text}", style::styled("not delivered", style::ODD))
}

/// Formats a result or a release that its work source has not received yet.
fn undelivered_line(item: &UndeliveredItem, now: Timestamp) -> String {
    let what = if item.releasing { "not released" } else { "not reported" };
    let (what, why) = (style::styled(what, style::ODD), print::one_line(&item.last_error, 300));
    let since = item
        .since
        .map(|since| format!(", since {}", duration::relative_to_now(now, since)))
        .unwrap_or_default();
    let (id, holder, queue) = (&item.id, &item.held_by, &item.queue);
    let result = match holder.strip_suffix(&format!("@{id}")) {
        _ if item.releasing => format!("that {id} is released"),
        Some(person) => format!("the change of {id} by {person}"),
        None => format!("the result of {holder} for {id}"),
    };
    format!("{what}: {queue} has not received {result} yet{since}; cowhand tries again: {why}")
}

/// Formats the pending and running jobs of a removed agent, and its firings that have no job yet.
fn gone_agent_line(gone: &RemovedAgent) -> String {
    let what = style::styled("not in the config", style::ODD);
    format!("{what}: {}", removed_agent_sentence(&gone.agent, Some(gone)))
}

/// Formats the pending jobs of a removed schedule whose agent is in the config, and its firings that have no job yet.
pub(super) fn gone_schedule_line(gone: &RemovedSchedule) -> String {
    format!("{}: {}", style::styled("not in the config", style::ODD), print::one_line(&gone.sentence(), 600))
}

/// Adds lines for pending jobs if no other line shows why they wait. Considers the newest `MAX_JOBS_SHOWN` pending
/// jobs, and the next job of each agent without a free place. If several jobs wait for a place of an agent, adds only
/// the job that gets the next place.
async fn add_waiting_jobs(
    client: &Connection<'_>,
    agent: Option<&AgentName>,
    status: &StatusView,
    now: Timestamp,
    lines: &mut Vec<String>,
) -> Result<(), Failure> {
    const MAX_JOBS_SHOWN: u32 = 20;
    let agent = agent.map(|agent| format!("&agent={agent}")).unwrap_or_default();
    let mut pending: Page<ListedJob> =
        client.get(&format!("jobs?status=pending&limit={MAX_JOBS_SHOWN}{agent}")).await?;
    for next in status.agents.iter().filter(|view| is_full(view)).filter_map(|view| view.next_job.as_ref()) {
        if !pending.items.iter().any(|listed| listed.job.id == *next) {
            let JobView { job, waits, unsettled, never_began, .. } =
                client.get(&format!("jobs/{next}")).await?;
            pending.items.push(ListedJob { job, waits, unsettled, never_began, waiting_messages: 0 });
        }
    }
    let mut waiting: Vec<(AgentName, String, Vec<String>)> = Vec::new();
    let is_gone = |job: &JobRecord| {
        let of_schedule =
            |gone: &RemovedSchedule| gone.agent == job.agent && Some(&gone.schedule) == job.schedule.as_ref();
        status.gone.iter().any(|gone| gone.agent == job.agent)
            || status.gone_schedules.iter().any(of_schedule)
    };
    for ListedJob { job, waits, .. } in pending.items.into_iter().rev().filter(|listed| !is_gone(&listed.job))
    {
        let agent = status.agents.iter().find(|view| view.name == job.agent).filter(|view| is_full(view));
        let shown_elsewhere = |waits: &Waits| match (waits.reason, agent) {
            (reason, _) if reason.is_about_provider() => true,
            // The table shows the number of further jobs.
            (SkipReason::AtCapacity, Some(agent)) => agent.next_job.as_ref() != Some(&job.id),
            _ => false,
        };
        let Some(waits) = waits.filter(|waits| !shown_elsewhere(waits)) else { continue };
        let message = print::one_line(&waits.message, 300);
        let next = job::next_attempt(&waits, now).map(|at| {
            let condition = job::with_daemon(client.is_alone());
            format!(" (tried again {}{condition})", duration::until(now, at))
        });
        let label = format!("{}{}", job.id, next.unwrap_or_default());
        match waiting.iter_mut().find(|(agent, reason, _)| *agent == job.agent && *reason == message) {
            Some((.., jobs)) => jobs.push(label),
            None if lines.iter().any(|line| line.ends_with(&message)) => {}
            None => waiting.push((job.agent, message, vec![label])),
        }
    }
    let waits = style::styled("waits", style::ODD);
    lines.extend(
        waiting
            .into_iter()
            .map(|(agent, message, jobs)| format!("{waits}: {} of {agent}: {message}", jobs.join(", "))),
    );
    Ok(())
}

fn is_full(view: &AgentView) -> bool {
    view.running >= view.max_concurrent as usize
}

/// Describes why the daemon does not use the config on disk. Returns none if the daemon uses it.
fn config_line(daemon: &DaemonView, now: Timestamp) -> Option<String> {
    let at = duration::relative_to_now(now, daemon.config_refused_at?);
    let (what, advice) = if daemon.config_missing {
        (format!("the config file does not exist (noticed {at})"), "put the file back")
    } else {
        (format!("the config on disk was refused {at}"), "`cowhand config check` shows its errors")
    };
    let refused = style::styled(format!("{what}, and the previous config stays in use"), style::BAD);
    Some(format!("{refused}; {advice}"))
}

/// Formats a line if this node is drained, and one if other nodes run another config.
fn node_lines(daemon: &DaemonView, now: Timestamp) -> Vec<String> {
    let drained = daemon.drained_at.map(|since| {
        let since = duration::relative_to_now(now, since);
        format!(
            "{}: this node takes no new jobs (drained {since}); `cowhand undrain` lets it take jobs again",
            style::styled("drained", style::ODD)
        )
    });
    let others = &daemon.other_configs;
    let differs = (!others.is_empty()).then(|| {
        format!("{}: {}", style::styled("config differs", style::ODD), other_config_sentence(others))
    });
    drained.into_iter().chain(differs).collect()
}

async fn daemon_line(view: &DaemonView, location: &FleetLocation, now: Timestamp) -> String {
    if !view.running {
        if let Some(refusal) = Box::pin(location.start_refusal()).await {
            return format!("daemon: {}; {refusal}", style::styled("not running", style::ODD));
        }
        let state = style::styled("not running", style::ODD);
        return format!("daemon: {state}; {}", location.how_to_start());
    }
    let state = if view.stopping { "stopping" } else { "running" };
    let pid = view.pid.unwrap_or_default();
    let since = view.started_at.map(|at| duration::relative_to_now(now, at)).unwrap_or_default();
    format!("daemon: {}, pid {pid}, started {since}", style::styled(state, style::GOOD))
}

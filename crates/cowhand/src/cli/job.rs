//! `cowhand job`: shows everything about one job, or deletes the job. Other verbs use this file to wait for jobs and to
//! print them.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use cowhand_core::ask::{Answered, Ask, AskState, Denial};
use cowhand_core::budget::{Amount, assumed_sentence, cost_in_words, tokens_in_words};
use cowhand_core::duration;
use cowhand_core::hook::HookRun;
use cowhand_core::id::{JobId, JobName};
use cowhand_core::job::{JobRecord, JobStatus};
use cowhand_core::report::Report;
use cowhand_core::schedule::SkipReason;
use jiff::Timestamp;

use super::advice::{self, with_config_option};
use super::asks::describe as describe_ask;
use super::location::Connection;
use super::spinner::{Ends, Spinner};
use super::{Exit, Failure, complete, follow, interrupt, location, logs, print, style};
use cowhand_engine::daemon::UnsettledAttempt;
use cowhand_engine::view::line::folded;
use cowhand_web::api::{AttemptView, Cancellation, JobView, Page, Waits, WorkspaceView};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct JobArgs {
    #[command(subcommand)]
    verb: Option<JobVerb>,
    /// ID of the job, as `cowhand jobs` lists it; its last six characters are enough
    #[arg(value_name = "JOB", required = true, add = complete::jobs())]
    id: Option<JobName>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the changes in its workspace
    #[arg(long, conflicts_with = "json")]
    diff: bool,
}

#[derive(Debug, Subcommand)]
enum JobVerb {
    /// Remove an ended job, with all its output
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
struct DeleteArgs {
    /// Ended job, as `cowhand jobs` lists it
    #[arg(value_name = "JOB", add = complete::ended_jobs())]
    id: JobName,
    /// Print the job as JSON
    #[arg(long)]
    json: bool,
}

/// Advice about a job that has not ended, if no daemon runs.
const NEEDS_DAEMON: &str =
    "no daemon runs, and only a daemon can end or cancel a job; `cowhand start -d` starts one";

impl DeleteArgs {
    fn run(&self, config: Option<&Path>) -> Result<(), Failure> {
        let address = format!("jobs/{}", self.id);
        let job: JobRecord = location::ask(config, async |client| {
            let failure = match client.delete(&address).await {
                Ok(job) => return Ok(job),
                Err(problem) => Failure::from(problem),
            };
            let job = client.get::<JobRecord>(&address).await.ok().filter(|_| client.is_alone());
            let is_live = job.is_some_and(|job| job.finished_at.is_none());
            Err(if is_live { failure.with_line(NEEDS_DAEMON) } else { failure })
        })?;
        print::done(&format!("{} is deleted", job.id), &job, self.json);
        Ok(())
    }
}

impl JobArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        if let Some(JobVerb::Delete(delete)) = self.verb {
            return delete.run(config);
        }
        let Some(id) = self.id else { return Err(Failure::usage("name a job; `cowhand jobs` lists them")) };
        if self.diff {
            let diff =
                location::ask(config, async |client| Ok(client.text(&format!("jobs/{id}/diff")).await?))?;
            print::raw(&diff);
            return Ok(());
        }
        let (job, attempts, is_alone) = location::ask(config, async |client| {
            let job = client.get::<JobView>(&format!("jobs/{id}")).await?;
            let attempts: Page<AttemptView> = client.get(&format!("jobs/{id}/attempts")).await?;
            Ok((job, attempts.items, client.is_alone()))
        })?;
        if self.json {
            print::json(&job);
        } else {
            details(&job, is_alone, Timestamp::now());
            work_item(&job);
            asks(&job.asks, Timestamp::now());
            denials(&job.denials);
            report(job.report.as_ref());
            messages(&job);
            followups(&job);
            workspace(job.workspace.as_ref());
            spending(&job, attempts.last(), Timestamp::now());
            superseded(&attempts);
            hooks(&job.hooks);
            print::line(style::styled(format!("\n{}", output_hint(&job)), style::FAINT));
        }
        Ok(())
    }
}

/// Returns where the output of the job is, and the command that prints it.
fn output_hint(view: &JobView) -> String {
    let id = &view.job.id;
    match view.other_node() {
        Some(node) => format!("its output is on node {node}; run there: cowhand logs {id}"),
        None => format!("{}   shows its output", advice::command(&format!("logs {id}"))),
    }
}

/// Waits for the end of the job and returns the job. `interrupt_note` is printed if the user interrupts the wait.
pub(super) async fn wait_for_end(
    client: &Connection<'_>,
    id: &JobId,
    interrupt_note: &str,
) -> Result<JobRecord, Failure> {
    let spinner = Spinner::new(format!("waiting for {id}"));
    let end = async {
        let followed = logs::follow_output(client, id, true, |_| {}).await;
        // The output of a job on another node cannot be followed.
        let is_elsewhere = followed.as_ref().is_err_and(|failure| failure.has_exit(Exit::Refused));
        if !is_elsewhere {
            followed?;
        }
        loop {
            let job: JobRecord = follow::get(client, &format!("jobs/{id}")).await?;
            if !is_elsewhere || !matches!(job.status, JobStatus::Pending | JobStatus::Running) {
                return Ok(job);
            }
            tokio::time::sleep(WAIT_POLL_INTERVAL).await;
        }
    };
    let end = Box::pin(async {
        tokio::select! {
            ended = end => ended,
            never = note_waits(client, id, &spinner) => match never {},
        }
    });
    let ended = interrupt::unless_interrupted(spinner.during(end), Some(interrupt_note)).await;
    ended.map_err(|failure| {
        if !failure.has_exit(Exit::NoDaemon) {
            return failure;
        }
        failure.with_line(&format!(
            "{id} may still run; when a daemon runs, `cowhand logs -f {id}` follows it and `cowhand job {id}` shows how it ended"
        ))
    })
}

/// Time between two requests for the reason why a job waits.
pub(super) const WAIT_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Prints a note whenever the job waits for something new between two attempts, for example a budget of the day.
async fn note_waits(client: &Connection<'_>, id: &JobId, spinner: &Spinner) -> Infallible {
    let mut last_message = None;
    loop {
        tokio::time::sleep(WAIT_POLL_INTERVAL).await;
        // If no daemon answers, the code that follows the output reports that.
        let Ok(view) = client.get::<JobView>(&format!("jobs/{id}")).await else { continue };
        let waits = view.waits.filter(|_| view.job.attempt > 0 && view.job.status == JobStatus::Pending);
        let Some(waits) = waits else { continue };
        if last_message.replace(waits.message.clone()).as_ref() != Some(&waits.message) {
            spinner.suspend_for(|| {
                print_wait(&waits);
                Ends::AtLineStart
            });
        }
    }
}

fn print_wait(waits: &Waits) {
    let until = waits.ends().map(|until| format!(", until {until:.0}")).unwrap_or_default();
    print::note(format!("the job waits{until}: {}", waits.message));
}

/// Prints a job that was just created. With `wait`, waits for the end of the job first, and fails if the job did not
/// complete.
pub(super) async fn print_created(
    client: &Connection<'_>,
    mut job: JobRecord,
    wait: bool,
    json: bool,
) -> Result<(), Failure> {
    print::remember_done(format!("the job was accepted as {}", job.id));
    if job.status == JobStatus::Pending && !json {
        let view: JobView = client.get(&format!("jobs/{}", job.id)).await?;
        // It is normal that a job waits for other jobs of its agent, so no note is printed.
        if let Some(waits) = view.waits.filter(|waits| waits.reason != SkipReason::AtCapacity) {
            print_wait(&waits);
        }
    }
    if wait {
        let id = &job.id;
        let interrupt_note = format!(
            "{id} continues, pending or running; `cowhand logs {id} -f` follows it, `cowhand cancel {id}` ends it"
        );
        job = wait_for_end(client, id, &interrupt_note).await?;
    }
    print(&job, json);
    match job.status {
        JobStatus::Failed | JobStatus::Cancelled if wait => Err(Failure::reported(Exit::JobFailed)),
        _ => Ok(()),
    }
}

pub(super) fn print(job: &JobRecord, json: bool) {
    if json {
        print::json(job);
    } else {
        print::line(summary_line(job));
    }
}

/// Formats a job in one line: `job-… failed after 3s: message`.
pub(super) fn summary_line(job: &JobRecord) -> String {
    let took =
        job.duration_seconds.map(|seconds| format!(" after {}", duration::rounded_from_seconds(seconds)));
    let status = style::styled(job.status, style::style_of(job.status.as_str()));
    let why = outcome(job);
    let why = if why.is_empty() { why } else { format!(": {}", print::one_line(&why, 600)) };
    format!("{} {status}{}{why}", job.id, took.unwrap_or_default())
}

/// Formats a job as [`summary_line`] does. Adds who cancelled the job or, for a pending job, which job it retries and
/// why it waits.
pub(super) fn summary_line_with_reason(view: &JobView, is_alone: bool, now: Timestamp) -> String {
    let by = view.cancellation.as_ref().filter(|_| view.job.status == JobStatus::Cancelled);
    let by = by.map(|by| format!(", by {}", print::one_line(&by.in_words(), 300))).unwrap_or_default();
    let retry = view.job.retry_of.as_ref().filter(|_| view.job.status == JobStatus::Pending);
    let retry = retry.map(|of| format!(", a retry of {of}")).unwrap_or_default();
    if let Some(sentence) = unsettled(view) {
        return format!("{} is unsettled: {sentence}", view.job.id);
    }
    format!("{}{by}{retry}{}", summary_line(&view.job), why_pending(view, is_alone, now))
}

/// Returns a sentence about the attempt of an unsettled job; `None` for any other job.
fn unsettled(view: &JobView) -> Option<&'static str> {
    let attempt =
        if view.never_began { UnsettledAttempt::NeverBegan } else { UnsettledAttempt::Ended { at: None } };
    view.unsettled.then(|| attempt.sentence())
}

/// Formats why a pending job waits: `: attempt 1 failed and will be retried: exit code 3; attempt 2 starts in 5m
/// (…)`. Empty if the job does not wait.
fn why_pending(view: &JobView, is_alone: bool, now: Timestamp) -> String {
    let Some(waits) = view.waits.as_ref().filter(|_| view.job.status == JobStatus::Pending) else {
        return String::new();
    };
    let next = next_attempt(waits, now).map(|at| {
        let (number, when) = (view.job.attempt + 1, duration::until(now, at));
        format!("; attempt {number} starts {when} ({at:.0}){}", with_daemon(is_alone))
    });
    format!(": {}{}", print::one_line(&waits.message, 600), next.unwrap_or_default())
}

/// Returns the condition to add to the time of a later start: that a daemon runs by then. Empty if a daemon runs now.
pub(super) const fn with_daemon(is_alone: bool) -> &'static str {
    if is_alone { ", if a daemon runs by then" } else { "" }
}

/// Formats the number of the attempt, with the number of attempts that never began, for example because the daemon
/// ended or the machine had a shortage.
fn attempt(job: &JobRecord) -> String {
    match job.requeued.as_ref().map_or(0, |requeued| requeued.total) {
        0 => job.attempt.to_string(),
        total => format!("{} ({total} never began)", job.attempt),
    }
}

/// Returns the time at which the next attempt starts, if the job waits only for this time and the time is in the
/// future.
pub(super) fn next_attempt(waits: &Waits, now: Timestamp) -> Option<Timestamp> {
    waits.until.filter(|at| waits.reason == SkipReason::Requeued && *at > now)
}

/// Returns the error of the job, else its termination, else its summary; empty if the job has none of them.
pub(super) fn outcome(job: &JobRecord) -> String {
    let error = job.error.as_ref().map(|error| format!("{} ({})", error.message, error.kind));
    let ended = job.termination.map(|how| how.in_words().to_owned());
    error.or(ended).or_else(|| job.summary.clone()).unwrap_or_default()
}

fn details(view: &JobView, is_alone: bool, now: Timestamp) {
    let JobView { job, cancellation, waits, .. } = view;
    let cancellation = cancellation.as_ref();
    let at = |at: Option<Timestamp>| at.map(|at| format!("{at:.0} ({})", duration::relative_to_now(now, at)));
    let status = style::styled(job.status, style::style_of(job.status.as_str()));
    let status = unsettled(view).map_or(status, |sentence| format!("unsettled: {sentence}"));
    let by = cancellation.map(Cancellation::in_words);
    let under_way = cancellation.filter(|_| job.status == JobStatus::Running);
    let cancelling = under_way.map(|cancellation| {
        let (since, by) = (duration::relative_to_now(now, cancellation.asked_at), cancellation.in_words());
        format!("its cancellation was requested {since}, by {by}; it has not ended yet")
    });
    let not_posted = view.answer_not_posted.as_deref();
    let can_start = waits.as_ref().is_none_or(Waits::allows_start);
    let next = at(job.not_before.filter(|at| can_start && *at > now));
    let rows = [
        ("job", Some(job.id.to_string())),
        ("agent", Some(job.agent.to_string())),
        ("schedule", job.schedule.as_ref().map(ToString::to_string)),
        ("trigger", Some(job.trigger_type.to_string())),
        ("status", Some(status)),
        ("exit reason", job.exit_reason.map(|reason| reason.to_string())),
        (
            "error",
            job.error.as_ref().map(|error| format!("{} ({})", print::plain(&error.message), error.kind)),
        ),
        ("ended", job.termination.map(|how| how.in_words().to_owned())),
        ("cancelled by", by.filter(|_| job.status == JobStatus::Cancelled)),
        ("cancelling", cancelling),
        ("fork of", job.forked_from.as_ref().map(ToString::to_string)),
        ("retry of", job.retry_of.as_ref().map(ToString::to_string)),
        ("created", at(Some(job.started_at))),
        ("started", at(job.run_started_at)),
        ("next attempt", next.map(|next| format!("{next}{}", with_daemon(is_alone)))),
        ("finished", at(job.finished_at)),
        ("took", job.duration_seconds.map(duration::rounded_from_seconds)),
        ("attempt", Some(attempt(job))),
        // The node is shown only if it is another node.
        ("node", view.other_node().map(str::to_owned)),
        ("lease", view.lost_lease.as_ref().map(|lost| with_config_option(&lost.message).into_owned())),
        ("session", job.session_id.as_deref().map(|session| print::one_line(session, 200))),
        (
            "confined",
            job.confined.as_ref().map(|why| format!("in the strict sandbox: {}", print::one_line(why, 300))),
        ),
        ("message", job.message.as_ref().map(|message| print::one_line(&message.to_string(), 200))),
        (
            "link",
            job.message.as_ref().and_then(|message| Some(print::one_line(message.url.as_deref()?, 500))),
        ),
        (
            "answer",
            not_posted.map(|why| print::one_line(&format!("a part of it is not in the chat: {why}"), 400)),
        ),
        ("prompt", job.prompt.as_deref().map(|prompt| print::one_line(prompt, 200))),
        ("summary", job.summary.as_deref().map(|summary| print::one_line(summary, 200))),
    ];
    for (name, value) in rows {
        if let Some(value) = value {
            row(name, &value);
        }
    }
}

/// Prints the work item of the job, and what has been reported to its source.
fn work_item(view: &JobView) {
    let Some(item) = &view.job.work_item else { return };
    let reported =
        view.source_report.as_ref().map(|report| format!("; {}", print::one_line(&report.sentence(), 300)));
    row(
        "work item",
        &format!("{}  {}{}", item.id, print::one_line(&item.title, 100), reported.unwrap_or_default()),
    );
}

/// Prints `name   value`, with the value wrapped to the terminal.
fn row(name: &str, value: &str) {
    print::wrapped(&format!("{name:<13}{value}"), 13);
}

/// Prints the newest asks of the job, the newest last, and the number of earlier asks.
fn asks(asks: &[Ask], now: Timestamp) {
    const MAX_ASKS_SHOWN: usize = 10;
    let skipped = asks.len().saturating_sub(MAX_ASKS_SHOWN);
    if skipped > 0 {
        row("asks", &with_config_option(&format!("{skipped} earlier ones; `cowhand asks --all` shows them")));
    }
    for ask in &asks[skipped..] {
        let (id, what) = (&ask.id, folded(&describe_ask(ask), 120));
        let by = |answer: &Answered| answer.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        row(
            "asks",
            &match &ask.state {
                AskState::Open => {
                    let until = duration::relative_to_now(now, ask.expires_at);
                    let shows = advice::command(&format!("asks {id}"));
                    format!("{what}: no answer yet; without one it is denied {until}; `{shows}` shows it")
                }
                AskState::Allowed(answer) => format!("{what}: allowed{}", by(answer)),
                AskState::Denied(answer) => format!("{what}: denied{}", by(answer)),
                AskState::Answered(answer) => format!("{what}: answered{}", by(answer)),
                AskState::Expired { answered_at } => {
                    format!(
                        "{what}: no person answered in time ({})",
                        duration::relative_to_now(now, *answered_at)
                    )
                }
                AskState::Ended { .. } => format!("{what}: its attempt ended before an answer"),
            },
        );
    }
}

/// Prints `reported  done: It works.`, and the artifacts below it.
fn report(report: Option<&Report>) {
    let Some(report) = report else { return };
    let summary = print::one_line(&report.summary, 200);
    row("reported", &format!("{}: {summary}", report.outcome.in_words()));
    for artifact in &report.artifacts {
        row("", &print::one_line(artifact, 300));
    }
}

/// Prints lines such as `denied    WebFetch, by the rule WebFetch, 3 times`.
fn denials(denials: &[Denial]) {
    for denial in denials {
        let times = if denial.times > 1 { format!(", {} times", denial.times) } else { String::new() };
        let tool = print::one_line(&denial.tool, 200);
        print::line(format!("{:<13}{tool}, by the rule {}{times}", "denied", denial.rule));
    }
}

/// Prints lines such as `message 1    "Use main" from jo: waits until the agent takes it`.
fn messages(job: &JobView) {
    if let Some(before) = &job.continues {
        row("continues", &format!("{before}; its prompt is what was sent to that job"));
    }
    for message in &job.messages {
        let (text, sender) = (folded(&message.text, 80), print::one_line(&message.sender(), 100));
        let interrupt = if message.interrupt { ", ends the turn" } else { "" };
        let name = format!("message {}", message.number);
        row(&name, &format!("{text:?} from {sender}{interrupt}: {}", message.whereabouts()));
    }
}

fn followups(job: &JobView) {
    let rows = [("follows", &job.follows)].into_iter().filter_map(|(name, id)| Some((name, id.as_ref()?)));
    for (name, id) in rows.chain(job.followed_by.iter().map(|id| ("followed by", id))) {
        print::line(format!("{name:<13}{id}"));
    }
    if let Some(refused) = &job.followup_refused {
        row("refused", &format!("no follow-up: {}", print::one_line(&refused.message, 400)));
    }
}

fn workspace(workspace: Option<&WorkspaceView>) {
    let Some(workspace) = workspace else { return };
    print::line(format!("{:<13}{} ({})", "workspace", workspace.path.display(), workspace.state.label()));
    if let Some(reason) = &workspace.unfinished {
        row(
            "",
            &format!("it is kept, and the daemon tries again to finish it: {}", print::one_line(reason, 400)),
        );
        row("", "to end that, copy what you need from the folder and delete it");
    }
    print::line(format!("{:<13}{}", "branch", workspace.branch));
}

/// Prints why the job waits, and its cost.
fn spending(job: &JobView, last: Option<&AttemptView>, now: Timestamp) {
    if let Some(waits) = &job.waits {
        row("waits", &with_config_option(&waits.message));
        if let Some(until) = waits.ends() {
            print::line(format!("{:<13}{until:.0} ({})", "until", duration::relative_to_now(now, until)));
        }
    }
    let running = last.filter(|attempt| attempt.ended_at.is_none());
    let running_usage = running.and_then(|attempt| attempt.usage.as_ref());
    let usages = job.job.usage.iter().chain(running_usage);
    if let Some(spent) = usages.clone().map(Amount::of).reduce(Amount::plus) {
        let so_far = if running_usage.is_some() { " so far" } else { "" };
        let cost = cost_in_words(usages).unwrap_or_else(|| "unknown".to_owned());
        row("cost", &format!("{cost}, {}{so_far}", tokens_in_words(spent.tokens)));
        if let Some(assumed) = job.job.usage.as_ref().and_then(assumed_sentence) {
            row("", &print::one_line(&assumed, 300));
        }
    }
}

/// Prints how the attempts ended that another node had settled as lost.
fn superseded(attempts: &[AttemptView]) {
    for attempt in attempts {
        let Some(end) = &attempt.superseded else { continue };
        let how = match end.exit_reason {
            Some(reason) => format!("its agent ended with {reason} there, which has no effect on the job"),
            None => "its agent was ended there".to_owned(),
        };
        let (number, node) = (attempt.number, &attempt.node);
        let what = format!("attempt {number} on node {node}: another node had settled it as lost; {how}");
        row("superseded", &what);
    }
}

/// Prints `hook 1   completed  after_run, shell (notify)`, and the result of the hook below it.
fn hooks(hooks: &[HookRun]) {
    for hook in hooks {
        let state = style::styled(hook.state, style::style_of(hook.state.as_str()));
        let name = hook.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let heading = format!("hook {}", hook.number);
        print::line(format!("{heading:<13}{state}  {}, {}{name}", hook.list, hook.kind));
        let names_tries = hook.reason.as_ref().is_some_and(|reason| reason.contains(", tried "));
        let tries = (hook.tries > 1 && !names_tries).then(|| format!("tried {} times", hook.tries));
        for detail in hook.reason.iter().chain(&tries) {
            row("", &print::one_line(detail, 400));
        }
        for line in print::plain(hook.output.as_deref().unwrap_or_default()).trim_end().lines() {
            row("", line);
        }
    }
}

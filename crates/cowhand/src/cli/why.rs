//! `cowhand why`: explains why a schedule, or each schedule of an agent, did or did not run.

mod answer;
mod firings;

use std::path::Path;

use clap::Args;
use cowhand_core::duration;
use cowhand_core::followup::RefusedFollowup;
use cowhand_core::id::AgentName;
use cowhand_core::schedule::SkipReason;
use cowhand_core::shell::{schedule_word, trigger_words};
use jiff::Timestamp;
use serde_json::json;

use self::answer::WhyAnswer;
use super::location::{Connection, FleetLocation};
use super::print;
use super::schedule::{AgentOrSchedule, ScheduleFullName, tries_again};
use super::{Failure, complete, job, location, number, removed, status};
use cowhand_engine::daemon::unsettled_sentence;
use cowhand_engine::fleet::{ScheduleStatus, ScheduleView};
use cowhand_engine::queues::given_up::TakenBy;
use cowhand_web::api::{AgentView, FiringView, StatusView, segment};

#[derive(Debug, Args)]
pub(super) struct WhyArgs {
    /// Schedule, or an agent for all its schedules
    #[arg(value_name = "AGENT[/SCHEDULE]", add = complete::agents_and_schedules())]
    of: AgentOrSchedule,
    /// Number of firings of each schedule to show [default: 10, for an agent 3]
    #[arg(long, value_name = "N", value_parser = number::between(1, 1000))]
    limit: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Default number of firings that `why AGENT/SCHEDULE` shows.
const FIRINGS_OF_SCHEDULE: u32 = 10;
/// Default number of firings that `why AGENT` shows of each schedule.
const FIRINGS_OF_AGENT: u32 = 3;

/// Largest number of firings that the API returns.
const MAX_FIRINGS: u32 = 1000;

impl WhyArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        location::ask(config, async |client| match &self.of {
            AgentOrSchedule::Schedule(name) => self.schedule(client, name).await,
            AgentOrSchedule::Agent(agent) => self.agent(client, agent).await,
        })
    }

    async fn schedule(&self, client: &Connection<'_>, name: &ScheduleFullName) -> Result<(), Failure> {
        let limit = self.limit.unwrap_or(FIRINGS_OF_SCHEDULE);
        let answer = match WhyAnswer::of(client, name, limit).await {
            Ok(answer) => answer,
            Err(problem) => {
                return removed::show(client, &name.agent, Some(&name.schedule), problem, self.json).await;
            }
        };
        let agent: AgentView = client.get(&format!("agents/{}", segment(name.agent.as_str()))).await?;
        let (is_alone, now) = (client.is_alone(), Timestamp::now());
        if self.json {
            let WhyAnswer {
                schedule,
                firings,
                given_up,
                skipped_files,
                chat_bots,
                lost_leases,
                store_problem,
                has_more,
                ..
            } = answer;
            print::json(&json!({
                "schedule": schedule, "daemon_running": !is_alone, "store_problem": store_problem,
                "firings": firings, "has_more": has_more, "followup_refused": agent.followup_refused, "given_up": given_up,
                "skipped_files": skipped_files, "chat_bots": chat_bots, "lost_leases": lost_leases,
            }));
            return Ok(());
        }
        // Without a daemon, the answer states why none can start.
        status::print_store_problem(answer.store_problem.as_deref().filter(|_| !is_alone));
        answer.print(is_alone.then(|| client.location()), is_alone, now);
        print_refusal(&agent, now);
        let more = limit.saturating_mul(10).min(MAX_FIRINGS);
        answer.print_firings(&format!(" --limit {more}"), now);
        Ok(())
    }

    async fn agent(&self, client: &Connection<'_>, name: &AgentName) -> Result<(), Failure> {
        let agent: AgentView = match client.get(&format!("agents/{}", segment(name.as_str()))).await {
            Ok(agent) => agent,
            Err(problem) => return removed::show(client, name, None, problem, self.json).await,
        };
        let StatusView { daemon, given_up: mut untaken, mut skipped_files, mut gone_schedules, .. } =
            client.get("status").await?;
        let store_problem = daemon.store_problem.or_else(|| client.disk_problem());
        untaken.retain(|item| item.taken_by.is_empty() && item.agents.contains(&agent.name));
        // Skipped files of the agent's schedules are shown with the schedules.
        let is_of_schedule = |by: &TakenBy| by.agent == agent.name;
        skipped_files.retain(|skipped| {
            skipped.agents.contains(&agent.name) && !skipped.taken_by.iter().any(is_of_schedule)
        });
        gone_schedules.retain(|gone| gone.agent == agent.name);
        let limit = self.limit.unwrap_or(FIRINGS_OF_AGENT);
        let mut answers = Vec::new();
        for schedule in &agent.schedules {
            let name = ScheduleFullName { agent: agent.name.clone(), schedule: schedule.clone() };
            answers.push(WhyAnswer::of(client, &name, limit).await?);
        }
        let (is_alone, now) = (client.is_alone(), Timestamp::now());
        if self.json {
            print::json(&json!({
                "agent": agent.name, "daemon_running": !is_alone, "store_problem": store_problem,
                "schedules": answers, "followup_refused": agent.followup_refused, "given_up": untaken,
                "skipped_files": skipped_files, "gone_schedules": gone_schedules,
            }));
            return Ok(());
        }
        status::print_store_problem(store_problem.as_deref().filter(|_| !is_alone));
        if answers.is_empty() {
            print::prose(&format!("{name} has no schedules; `cowhand trigger {name}` makes a job"), 0);
        }
        if let Some(source) = &agent.untaken_work {
            let source = print::one_line(source, 200);
            print::prose(
                &format!("No schedule of {name} takes items from its work source {source}; add one."),
                0,
            );
        }
        for item in &untaken {
            print::prose(&with_full_stop(&status::given_up_line(item)), 0);
        }
        for skipped in &skipped_files {
            print::prose(&with_full_stop(&status::skipped_files_line(skipped)), 0);
        }
        for gone in &gone_schedules {
            print::prose(&with_full_stop(&status::gone_schedule_line(gone)), 0);
        }
        print_refusal(&agent, now);
        for (index, answer) in answers.iter().enumerate() {
            if index > 0 {
                print::line("");
            }
            // The line that no daemon runs is printed only once.
            answer.print((is_alone && index == 0).then(|| client.location()), is_alone, now);
            let more =
                if limit < FIRINGS_OF_SCHEDULE { String::new() } else { format!(" --limit {MAX_FIRINGS}") };
            answer.print_firings(&more, now);
        }
        Ok(())
    }
}

fn print_refusal(agent: &AgentView, now: Timestamp) {
    let Some(RefusedFollowup { job, at, message }) = &agent.followup_refused else { return };
    let (when, message) = (duration::relative_to_now(now, *at), print::one_line(message, 400));
    let request = format!("{} requested a follow-up in {job}, {when}", agent.name);
    print::prose(&format!("{request}, and it was refused: {}", with_full_stop(&message)), 0);
}

/// Text for an interval whose previous job has not ended.
const COUNTS_FROM_END: &str = "its previous job has not ended. An interval counts from the end of that job";

/// Describes what the schedule does now, why it waits, and when it will fire.
fn describe_state(
    view: &ScheduleView,
    firings: &[FiringView],
    fleet_without_daemon: Option<&FleetLocation>,
    is_alone: bool,
    now: Timestamp,
) -> Vec<String> {
    let mut lines = vec![first_line(view, firings, now)];
    if let Some(location) = fleet_without_daemon {
        let how_to_start = location.how_to_start();
        lines.push(if location.has_shared_store() {
            format!(
                "No daemon runs on this node; {how_to_start}. `cowhand nodes` lists the nodes on which one runs."
            )
        } else {
            format!("No daemon runs, so nothing fires; {how_to_start}.")
        });
    }
    // If an unsettled job prevents the firing, the note with the reason `AlreadyRunning` already states that.
    if let Some(sentence) = unsettled_sentence(view.unsettled)
        && view.skip_note_reason != Some(SkipReason::AlreadyRunning)
    {
        lines.push(format!("Of its jobs, {sentence}."));
    }
    // If the clock does not fire the schedule, the note of the schedule already states that it can never fire.
    let never = view.never_fires.as_ref().filter(|_| view.is_by_clock());
    lines.extend(never.map(|never| format!("It can never fire: {never}.")));
    lines.extend(describe_next(view, is_alone, now));
    let hypothetical_note = view.skip_note.as_ref().filter(|_| view.skip_note_reason != view.skip_reason);
    if let (Some(SkipReason::NotDue), Some(note)) = (view.skip_reason, hypothetical_note) {
        let result = result_if_due(view);
        let note = with_full_stop(&print::one_line(note, 400));
        lines.push(format!("If it were due now, {result}: {note}"));
    }
    if let Some(failed) = &view.failed_attempt {
        lines.push(format!("A job waits for a retry: {}", with_full_stop(&print::one_line(failed, 400))));
    }
    if let Some(at) = view.last_run_at {
        lines.push(format!(
            "The last run by its trigger, or the last check that ran nothing, ended {}.",
            duration::relative_to_now(now, at)
        ));
    }
    if let Some(note) = &view.adopt_note {
        lines.push(with_full_stop(&print::one_line(note, 400)));
    }
    let failing = view.failing_trigger(is_alone, now);
    if let Some(why) = &failing {
        lines.push(format!("Its trigger fails, {}", with_full_stop(&print::one_line(why, 900))));
    }
    let is_shown = |error: &&String| {
        failing.is_some() && view.trigger_error.as_ref().is_some_and(|shown| shown.message == **error)
    };
    if let Some(error) = view.last_error.as_ref().filter(|error| !is_shown(error)) {
        let what = match view.status {
            ScheduleStatus::Error => "The reason",
            _ if view.drops_unprepared() => {
                "Its firing by the clock could not be prepared, and is skipped at the next try, because the schedule is \
                 turned off"
            }
            _ if view.prepare_error.is_some() => "Its firing cannot be prepared, and is retried",
            _ => "Its last error",
        };
        lines.push(format!("{what}: {}", print::one_line(error, 600)));
    }
    lines
}

/// Describes what would happen if the schedule were due now. The reason is in `skip_note`.
fn result_if_due(view: &ScheduleView) -> &'static str {
    match (view.skip_note_reason, view.kind.as_str(), view.skip_until) {
        // The firing makes a job, and only the job waits.
        (Some(SkipReason::UsageLimit | SkipReason::ReserveReached), ..)
        | (Some(SkipReason::OverBudget), "delay", _) => "its job would wait",
        // A cron firing waits only for running jobs, whose end is not known.
        (Some(SkipReason::OverBudget), "interval", _) | (Some(SkipReason::OverBudget), "cron", None) => {
            "it would wait"
        }
        _ => "it would not run",
    }
}

fn first_line(view: &ScheduleView, firings: &[FiringView], now: Timestamp) -> String {
    let (name, word) =
        (format!("{}/{}", view.agent, view.schedule), schedule_word(&view.agent, &view.schedule));
    let is_renamed = view.last_error.as_ref().is_some_and(|error| error.contains("`adopt: "));
    match view.status {
        ScheduleStatus::Running => format!("{name} is running now."),
        ScheduleStatus::Disabled => match view.off_in_file_advice() {
            Some(advice) => format!("{name} is {advice}."),
            None if view.over => format!(
                "{name} is turned off, and has finished: its `end_at` has passed. To continue it, set a later `end_at` \
                 in its file, and then run `cowhand schedule enable {word}`."
            ),
            None => format!("{name} is turned off; `cowhand schedule enable {word}` turns it on."),
        },
        ScheduleStatus::Error if is_renamed => {
            format!(
                "{name} does not fire: it seems to be a renamed schedule. `adopt` gives it the history of the old name."
            )
        }
        ScheduleStatus::Error => {
            format!(
                "{name} stopped because of an error{}. Correct the cause first; then `cowhand schedule enable {word}` \
                 starts it again.",
                view.stopped_since(now)
            )
        }
        ScheduleStatus::Paused => {
            format!("{name} has paused itself; `cowhand schedule enable {word}` ends the pause.")
        }
        ScheduleStatus::Finished if view.kind == "delay" && view.skip_note.is_none() => {
            let firing = firings.iter().find(|firing| firing.key.is_by_clock());
            let when = firing.map(|firing| format!(" {}", duration::relative_to_now(now, firing.decided_at)));
            let job = firing.and_then(|firing| firing.job.as_ref()).map(|job| format!(" ({job})"));
            format!(
                "{name} has finished: it fired{}{}, and a `delay` fires once. `cowhand trigger {}` runs it again; \
                 a new `run_at` or `in` in its file arms it again{}.",
                when.unwrap_or_default(),
                job.unwrap_or_default(),
                trigger_words(&view.agent, &view.schedule),
                if view.off_by_person {
                    format!(", after `cowhand schedule enable {word}`, because it is turned off")
                } else {
                    String::new()
                },
            )
        }
        ScheduleStatus::Finished if let Some(note) = view.passed_while_off() => {
            format!("{name} has finished: {note}.")
        }
        ScheduleStatus::Finished => {
            format!(
                "{name} has finished: its `end_at` has passed. With a later `end_at` in its file, it fires again."
            )
        }
        ScheduleStatus::Idle => format!("{name} is on, and not running now."),
    }
}

/// Describes why the schedule waits, or its next firing.
fn describe_next(view: &ScheduleView, is_alone: bool, now: Timestamp) -> Option<String> {
    let is_noted = view.skip_note.is_some() && view.skip_note_reason == view.skip_reason;
    match (view.skip_reason, view.next_run_at) {
        (Some(SkipReason::Disabled), _) => {
            let note = view.skip_note.as_deref().filter(|_| is_noted)?;
            let pause = view.skip_until.map(|until| {
                let when = duration::until(now, until);
                format!(
                    " The pause ends {when} ({until:.0}), and then {} start{}.",
                    // The first job after a pause is the probe, and the others wait for its end.
                    if view.jobs_waiting == 1 { "it can" } else { "the oldest of them can" },
                    job::with_daemon(is_alone)
                )
            });
            Some(with_full_stop(&print::one_line(note, 400)) + &pause.unwrap_or_default())
        }
        _ if view.status == ScheduleStatus::Finished => None,
        (Some(SkipReason::NotDue | SkipReason::OutsideHours), None)
            if view.is_by_clock() && view.never_fires.is_some() && !view.preparing =>
        {
            None
        }
        (
            Some(
                SkipReason::Paused
                | SkipReason::OverBudget
                | SkipReason::UsageLimit
                | SkipReason::ReserveReached
                | SkipReason::Requeued,
            ),
            _,
        ) if is_noted => describe_hold(view, is_alone, now),
        (Some(SkipReason::NotDue | SkipReason::UnsupportedType | SkipReason::AlreadyRunning) | None, _)
            if view.preparing =>
        {
            Some(preparing(view, is_alone, now))
        }
        (Some(SkipReason::AlreadyRunning), None) if view.kind == "delay" && !is_noted => {
            Some("It has fired, and a `delay` fires once.".to_owned())
        }
        (Some(SkipReason::NotDue) | None, next) if view.missed.is_some() => missed(view, next, now),
        (Some(SkipReason::NotDue) | None, Some(at))
            if duration::until(now, at) == duration::until(now, now) =>
        {
            Some("It is due now.".to_owned())
        }
        (Some(SkipReason::NotDue), Some(at)) if is_noted => {
            let note = view.skip_note.as_deref().unwrap_or_default();
            Some(format!("It is not due: {note}. It fires next {} ({at:.0}).", duration::until(now, at)))
        }
        (Some(SkipReason::NotDue) | None, Some(at)) => {
            Some(format!("It is not due: it fires next {} ({at:.0}).", duration::until(now, at)))
        }
        (Some(SkipReason::NotDue), None) => Some(
            "Its calendar (`active_hours`, `exclude_dates`, `end_at`) has no time at which it can fire."
                .to_owned(),
        ),
        (Some(SkipReason::UnsupportedType), _) => {
            Some(format!("A schedule of type {} does not fire by the clock.", view.kind))
        }
        (Some(SkipReason::OutsideHours), None) if is_noted && view.due_since.is_none() => {
            describe_hold(view, is_alone, now)
        }
        (Some(reason), next) => Some(waits(view, reason, next, now)),
        (None, None) if view.status == ScheduleStatus::Idle => {
            Some(format!("A schedule of type {} does not fire by the clock.", view.kind))
        }
        (None, None) => None,
    }
}

/// Formats `It fired 18s ago, and is being prepared: it waits for the answer of …`.
fn preparing(view: &ScheduleView, is_alone: bool, now: Timestamp) -> String {
    let since =
        view.preparing_since.map(|at| format!(" {}", duration::relative_to_now(now, at))).unwrap_or_default();
    // An error of a try is in `last_error`; otherwise no node prepares the firing.
    if let (Some(reason), None, false) = (&view.prepare_error, &view.last_error, is_alone) {
        return format!("It fired{since}, and is not prepared yet: {}.", print::one_line(reason, 600));
    }
    let preparer = view.preparing_by.as_deref().map(|preparer| print::one_line(preparer, 300));
    let detail = match preparer {
        Some(preparer) if is_alone => format!("; it then waits for the answer of {preparer}"),
        Some(preparer) => format!(": it waits for the answer of {preparer}"),
        // The command or source that prepares the firing was removed from the config meanwhile.
        None => String::new(),
    };
    if is_alone {
        return format!("It fired{since}, and it is prepared when a daemon starts{detail}.");
    }
    format!("It fired{since}, and is being prepared{detail}.")
}

/// Formats `It is late: 2 times were missed since …; one run makes up for that when a daemon starts. Its next due time
/// is in 57m (…).`
fn missed(view: &ScheduleView, next: Option<Timestamp>, now: Timestamp) -> Option<String> {
    let note = &view.missed.as_ref()?.note;
    // A delay has no other due time.
    let next = next.filter(|_| view.kind != "delay");
    let next = next.map(|at| format!(" Its next due time is {} ({at:.0}).", duration::until(now, at)));
    Some(format!("It is late: {}{}", with_full_stop(note), next.unwrap_or_default()))
}

/// Formats `It was due 3m ago and waits: an earlier job or firing of it had not ended. Its next due time is …`
fn waits(view: &ScheduleView, reason: SkipReason, next: Option<Timestamp>, now: Timestamp) -> String {
    let since = view.due_since.map(|due| match view.due_again {
        0 => format!("It was due {} and waits", duration::relative_to_now(now, due)),
        _ => format!(
            "It was first due {}{}, and waits",
            duration::relative_to_now(now, due),
            view.due_again_in_words()
        ),
    });
    let since = since.unwrap_or_else(|| "It waits".to_owned());
    let next = next.map(|at| format!(" Its next due time is {} ({at:.0}).", duration::until(now, at)));
    // If the previous job is pending or unsettled, the note explains that.
    let is_running =
        reason == SkipReason::AlreadyRunning && view.skip_note_reason != Some(SkipReason::AlreadyRunning);
    let why = match view.awaited() {
        // An interval counts from the end of its last job, whatever the value of `overlap` is.
        Some(_) if is_running && view.due_since.is_none() && view.kind == "interval" => {
            COUNTS_FROM_END.to_owned()
        }
        awaited => print::one_line(awaited.unwrap_or_default(), 400),
    };
    format!("{since}: {}{}", with_full_stop(&why), next.unwrap_or_default())
}

/// Describes why the schedule waits, and the time at which that reason ends, for example
/// `Why: 5 jobs in a row failed the same way: exit code 1 (exit).` and `It tries again in 57m (…), once.`
fn describe_hold(view: &ScheduleView, is_alone: bool, now: Timestamp) -> Option<String> {
    let note = view.skip_note.as_deref().map(|note| print::one_line(note, 400))?;
    if view.skip_reason == Some(SkipReason::OverBudget) && view.kind == "cron" && view.due_since.is_none() {
        return Some(skipped_by_budget(view, &note, now));
    }
    // Nothing waits now if the clock does not fire the schedule, the schedule is not due, and none of its jobs waits.
    let is_closed_for_good = view.skip_reason == Some(SkipReason::OutsideHours) && view.skip_until.is_none();
    let subject = if view.is_by_clock() || view.jobs_waiting > 0 || view.due_since.is_some() {
        "It waits"
    } else if is_closed_for_good {
        "Each occurrence of its trigger is skipped"
    } else {
        "A job of this schedule would wait"
    };
    Some(match (view.skip_reason, view.skip_until) {
        (Some(SkipReason::Paused), Some(until)) => {
            let when = |until| format!("{} ({until:.0}), once", duration::until(now, until));
            let again = tries_again(until, is_alone, now, when);
            format!("Why: {}\nIt {again}.", with_full_stop(&note))
        }
        (reason, Some(until)) if subject == "It waits" => {
            let (when, condition) = (duration::until(now, until), job::with_daemon(is_alone));
            // The time of a retry is exact. A usage limit may end earlier, and a budget may be raised.
            let latest = if reason == Some(SkipReason::Requeued) { "" } else { " at the latest" };
            // A schedule with a work source fires while its job waits, and so does a cron schedule.
            let next = view.next_run_at.filter(|at| reason == Some(SkipReason::Requeued) && *at > now);
            let next = next.map(|at| format!(" It fires next {} ({at:.0}).", duration::until(now, at)));
            let next = next.unwrap_or_default();
            format!("It waits, and continues {when}{latest}{condition}: {}{next}", with_full_stop(&note))
        }
        (_, Some(until)) => {
            format!("{subject}, until {until:.0} at the latest: {}", with_full_stop(&note))
        }
        (_, None) => format!("{subject}: {}", with_full_stop(&note)),
    })
}

/// Formats `Its due times are skipped until … at the latest: … It fires next in 7h (…).` A cron schedule
/// that is over budget skips its due times, but jobs that it already has wait for the budget.
fn skipped_by_budget(view: &ScheduleView, note: &str, now: Timestamp) -> String {
    let until = view.skip_until.map(|until| format!(" until {until:.0} at the latest")).unwrap_or_default();
    let jobs = match view.jobs_waiting {
        0 => "",
        1 => " Its waiting job starts when the budget allows it.",
        _ => " Its waiting jobs start when the budget allows them.",
    };
    let next = view.next_run_at.filter(|at| *at > now);
    let next = next.map(|at| format!(" It fires next {} ({at:.0}).", duration::until(now, at)));
    let next = next.unwrap_or_default();
    format!("Its due times are skipped{until}: {}{jobs}{next}", with_full_stop(note))
}

/// Adds a full stop to a sentence that has no end mark.
fn with_full_stop(sentence: &str) -> String {
    if sentence.ends_with(['.', '!', '?', '…']) { sentence.to_owned() } else { format!("{sentence}.") }
}

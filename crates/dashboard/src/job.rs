//! The page of a job: its state, prompt and output, and its actions.

use axum::extract::{Path, State};
use cowhand_core::budget::assumed_sentence;
use cowhand_core::id::JobId;
use cowhand_core::job::{JobRecord, JobStatus, ModelUsage, OriginMessage};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{Frame, Tab};
use super::output::{LINES_PER_PAGE, OutputForm, OutputWindow};
use super::text::{self, ShownMessage, Text};
use super::{PageAnswer, Pages, Params, asks, elements, hook_runs, messages, now, reports, workspace};
use cowhand_web::api::{Cancellation, JobView, SourceReport, Waits, segment};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JobPageQuery {
    view: OutputForm,
    /// Number of lines of output before the first line that is shown; unset means that the last lines are shown.
    after: Option<u64>,
}

pub(super) async fn page(
    State(pages): State<Pages>,
    Path(id): Path<String>,
    Params(params): Params<JobPageQuery>,
) -> PageAnswer {
    let now = now();
    let view: JobView = pages.client.get(&format!("jobs/{}", segment(&id))).await?;
    let followups = followups(&view);
    let elsewhere = view.elsewhere_sentence();
    let elsewhere = elsewhere.as_deref();
    let other_node = view.other_node().map(str::to_owned);
    let runs_elsewhere = view.job.status == JobStatus::Running && other_node.is_some();
    let conversation = view.conversation.clone();
    let JobView {
        job,
        asks,
        denials,
        report,
        hooks,
        messages,
        workspace,
        waits,
        cancellation,
        source_report,
        ..
    } = view;
    let changes = pages.changes(&job).await?;
    let window = pages.window(&job.id, params.after).await?;
    let main = html! {
        div #head data-live { (head(&job, conversation.as_deref(), waits.as_ref(), cancellation.as_ref(), source_report.as_ref(), now)) (elsewhere_part(elsewhere)) (followups) (reports::part(report.as_ref())) @if workspace::is_changing(&job, workspace.as_ref(), now) { span data-poll {} } }
        (asks::of_job(&asks))
        (messages::part(&job, &messages, now))
        (asks::denied(&denials))
        (prompt_part(&job))
        (hook_runs::part(&hooks))
        (workspace::part((&job.id, job.status), other_node.as_deref(), workspace.as_ref(), changes.as_ref()))
        (output(&job, params.view, &window, elsewhere, runs_elsewhere))
        (fork(&job))
    };
    let follow = format!("job={}", job.id);
    let title = format!("{} · {}", job.agent, job.id);
    pages.page(Frame { title: &title, tab: Tab::Jobs, follow: Some(&follow) }, main).await
}

fn head(
    job: &JobRecord,
    conversation: Option<&str>,
    waits: Option<&Waits>,
    cancellation: Option<&Cancellation>,
    source_report: Option<&SourceReport>,
    now: Timestamp,
) -> Markup {
    let address = format!("/api/v1/jobs/{}", job.id);
    let is_live = matches!(job.status, JobStatus::Pending | JobStatus::Running);
    html! {
        div.page-head {
            div {
                p.over { (elements::agent(&job.agent)) @if let Some(name) = &job.schedule { " · " (elements::schedule(&job.agent, name)) } }
                h1 { (job.id.as_str()) }
            }
            div.buttons.script {
                @if let Some(conversation) = conversation { a.button href={ "/chat/" (segment(conversation)) } { "Open in chat" } }
                @else if !is_live { a.button href={ "/chat/new?job=" (job.id.as_str()) } { "Continue in chat" } }
                @if is_live {
                    button data-post={ (address) "/cancel" } data-key="x" data-confirm="End this job with all its processes?"
                        data-said="The job is being ended." { "Cancel" }
                } @else {
                    button data-post={ (address) "/retry" } data-key="r" data-then="job" { "Retry" }
                }
                button data-opens="fork" data-key="f" { "Fork" }
            }
        }
        dl.grid {
            div { dt { "Status" } dd { (elements::job_status(job.status))
                @if let Some(reason) = job.exit_reason.filter(|_| job.status == JobStatus::Failed) { span.muted { " " (reason.as_str().replace('_', " ")) } } } }
            @if job.status == JobStatus::Cancelled {
                div { dt { "Cancelled by" } dd.any { @match cancellation { Some(cancellation) => (text::short(&cancellation.in_words(), 140)), None => "cowhand itself" } } }
            }
            @if let Some(cancellation) = cancellation.filter(|_| job.status == JobStatus::Running) {
                div { dt { "Being ended since" } dd.any { (elements::from_now(cancellation.asked_at, now)) ", by " (text::short(&cancellation.in_words(), 140)) } }
            }
            div { dt { "Trigger" } dd { (job.trigger_type.as_str()) } }
            div { dt { "Created" } dd { (elements::at(job.started_at)) } }
            div { dt { "Ran" } dd { (elements::job_duration(job, now)) } }
            @if job.attempt > 1 { div { dt { "Attempts" } dd { (job.attempt) } } }
            @if let Some(time) = job.not_before.filter(|time| *time > now && waits.is_none_or(Waits::allows_start)) { div { dt { "Not before" } dd { (elements::at(time)) } } }
            div { dt { "Cost" } dd { (elements::cost(job.usage.as_ref())) } }
            @if let Some(usage) = &job.usage {
                @let tokens: u64 = usage.per_model.values().map(ModelUsage::fresh_tokens).fold(0, u64::saturating_add);
                @if tokens > 0 { div { dt { "Tokens" } dd { span.number { (elements::count(tokens)) } } } }
                @if let Some(turns) = usage.num_turns { div { dt { "Turns" } dd { span.number { (turns) } } } }
            }
            @if let Some(parent) = &job.forked_from { div { dt { "Forked from" } dd { (origin(&job.id, parent)) } } }
            @if let Some(parent) = &job.retry_of { div { dt { "Retry of" } dd { (origin(&job.id, parent)) } } }
            @if let Some(session) = &job.session_id { div { dt { "Session" } dd { code.any { (text::short(session, 60)) } } } }
            @if let Some(why) = &job.confined {
                div { dt { "In the strict sandbox" } dd.any { (text::short_message(why, 200)) } }
            }
            @if let Some(message) = &job.message { div { dt { "Message" } dd.any { (chat_message(message)) } } }
            @if let Some(item) = &job.work_item {
                div { dt { "Work item" } dd.any { code { (item.id) } " " (text::short(&item.title, 80))
                    @if let Some(report) = source_report { p.muted { (text::short_message(&report.sentence(), 200)) } } } }
            }
        }
        @if let Some(assumed) = job.usage.as_ref().and_then(assumed_sentence) { p.muted { (ShownMessage(&assumed)) } }
        @if let Some(waits) = waits {
            p.alert {
                b { "waits: " } (ShownMessage(&waits.message))
                @if let Some(until) = waits.ends() { ". That ends " (elements::due(until, now)) "." }
            }
        }
        @if let Some(error) = &job.error { p.alert { b { (error_kind(job)) ": " } (ShownMessage(&error.message)) } }
        @if let Some(summary) = &job.summary { div.summary { h2 { "Result" } p.pre { (Text(summary)) } } }
    }
}

/// Shows which output is on other nodes. This part is live, because a pending job may start on another node.
fn elsewhere_part(elsewhere: Option<&str>) -> Markup {
    html! {
        @if let Some(elsewhere) = elsewhere { p.alert { (ShownMessage(elsewhere)) } }
    }
}

/// Shows the job that this job continues, the job that asked for this job, the follow-ups of this job, and why a
/// follow-up was refused.
fn followups(view: &JobView) -> Markup {
    html! {
        @if view.follows.is_some() || !view.followed_by.is_empty() || view.continues.is_some() {
            dl.grid {
                @if let Some(job) = &view.continues { div { dt { "Next turn of" } dd { (elements::job(job)) } } }
                @if let Some(job) = &view.follows { div { dt { "Follow-up of" } dd { (elements::job(job)) } } }
                @if !view.followed_by.is_empty() {
                    div { dt { "Follow-ups" } dd { @for job in &view.followed_by { (elements::job(job)) " " } } }
                }
            }
        }
        @if let Some(refused) = &view.followup_refused {
            p.alert { b { "no follow-up: " } (ShownMessage(&refused.message)) }
        }
    }
}

/// Shows who wrote the message and where, with a link to it. Only a web address becomes a link.
fn chat_message(message: &OriginMessage) -> Markup {
    let is_web = |url: &&str| url.starts_with("https://") || url.starts_with("http://");
    html! {
        (text::short(&message.to_string(), 140))
        @if let Some(url) = message.url.as_deref().filter(is_web) { " " a href=(url) rel="noreferrer" { "Open the message" } }
    }
}

fn error_kind(job: &JobRecord) -> String {
    let kind = job.error.as_ref().map(|error| error.kind);
    kind.and_then(|kind| serde_json::to_value(kind).ok()?.as_str().map(|word| word.replace('_', " ")))
        .unwrap_or_default()
}

fn origin(job: &JobId, parent: &JobId) -> Markup {
    html! { (elements::job(parent)) " " a href={ "/jobs/" (job.as_str()) "/diff" } { "what is different" } }
}

fn prompt_part(job: &JobRecord) -> Markup {
    let prompt = job.prompt.as_deref().unwrap_or_default();
    html! {
        @if !prompt.is_empty() {
            details.told open[prompt.len() < 600] { summary { h2 { "Prompt" } } (elements::block(prompt)) }
        }
    }
}

fn output(
    job: &JobRecord,
    view: OutputForm,
    window: &OutputWindow,
    elsewhere: Option<&str>,
    runs_elsewhere: bool,
) -> Markup {
    let base = format!("/jobs/{}", job.id);
    // This node receives no lines of a job that runs on another node.
    let is_live = matches!(job.status, JobStatus::Pending | JobStatus::Running) && !runs_elsewhere;
    let is_last = window.end() >= window.total;
    let raw = u8::from(view == OutputForm::Raw);
    let live = (is_live && is_last).then(|| format!("{base}/live?raw={raw}&after={}", window.end()));
    let view_name = if view == OutputForm::Raw { "raw" } else { "" };
    let page_address = |after: u64| format!("{base}?view={view_name}&after={after}#output");
    html! {
        section.part #output aria-labelledby="output-title" {
            div.part-head {
                h2 #output-title { "Output" }
                span.muted #output-where { (position_of(window, elsewhere)) }
                nav.tabs aria-label="Views of the output" {
                    a href={ (base) "#output" } aria-current=[(view == OutputForm::Transcript).then_some("true")] { "Transcript" }
                    a href={ (base) "?view=raw#output" } aria-current=[(view == OutputForm::Raw).then_some("true")] { "Raw" }
                }
            }
            @if let Some(elsewhere) = elsewhere { p.empty { (ShownMessage(elsewhere)) } }
            @else if window.total == 0 && !is_live { p.empty { "It has no output." } }
            @if window.after > 0 {
                nav.pager aria-label="Earlier output" {
                    a href=(page_address(0)) { "First" }
                    a href=(page_address(window.after.saturating_sub(LINES_PER_PAGE))) { "Earlier" }
                }
            }
            div.lines #lines role="log" aria-label="Output of the job" tabindex="0" data-stream=[live] { @if is_live && is_last { (window.render_partial(view)) } @else { (window.render(view)) } }
            @if is_live && is_last { p.following.script #following { span.dot {} "Following while it runs" } }
            @if !is_last {
                nav.pager aria-label="Later output" {
                    a href=(page_address(window.end())) { "Later" }
                    a href={ (base) "?view=" (view_name) "#output" } { "Last" }
                }
            }
        }
    }
}

fn position_of(window: &OutputWindow, elsewhere: Option<&str>) -> String {
    match window.total {
        0 if elsewhere.is_some() => "no lines on this node".to_owned(),
        0 => "no lines yet".to_owned(),
        1 => "1 line".to_owned(),
        total if window.lines.len() as u64 == total => format!("{total} lines"),
        total => format!("lines {} to {} of {total}", window.after + 1, window.end()),
    }
}

/// Shows the dialog for a new job with a copy of the session of this job, if this job has one.
fn fork(job: &JobRecord) -> Markup {
    html! {
        dialog #fork aria-labelledby="fork-title" {
            form data-post={ "/api/v1/jobs/" (job.id.as_str()) "/fork" } data-then="job" {
                h2 #fork-title { "Fork" }
                p.muted {
                    "Creates a new job with this prompt. "
                    @if job.session_id.is_some() { "It starts with a copy of the session of this job." }
                    @else { "This job has no session, so the new job starts without one." }
                }
                label for="fork-prompt" { "Prompt" }
                textarea #fork-prompt name="prompt" rows="8" { (text::plain(job.prompt.as_deref().unwrap_or_default())) }
                div.buttons {
                    button type="button" data-closes { "No" }
                    button.primary { "Fork" }
                }
            }
        }
    }
}

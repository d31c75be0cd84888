//! The page with the differences in prompt and output between a job and the job that it forks or retries.

use axum::extract::{Path, State};
use cowhand_core::id::JobId;
use cowhand_core::job::JobRecord;
use maud::{Markup, html};
use similar::{ChangeTag, TextDiff};

use super::layout::{Frame, Tab};
use super::text::plain;
use super::{PageAnswer, Pages, elements, output};
use cowhand_web::api::{ApiProblem, segment};

/// Largest number of lines of each job's output that are compared.
const MAX_COMPARED_LINES: usize = 2000;
/// Time limit of a comparison. Texts with nothing in common take long.
const COMPARE_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(500);

pub(super) async fn page(State(pages): State<Pages>, Path(id): Path<String>) -> PageAnswer {
    let job: JobRecord = pages.client.get(&format!("jobs/{}", segment(&id))).await?;
    let parent = job.forked_from.as_ref().or(job.retry_of.as_ref());
    let Some(parent) = parent else {
        return Err(
            ApiProblem::not_found(format!("{} is not a fork or a retry of another job", job.id)).into()
        );
    };
    let parent: JobRecord = pages.client.get(&format!("jobs/{parent}")).await?;
    let prompts = [&parent, &job].map(|job| plain(job.prompt.as_deref().unwrap_or_default()));
    let outputs = [output_text(&pages, &parent.id).await?, output_text(&pages, &job.id).await?];
    let main = html! {
        div.page-head { div { p.over { (elements::agent(&job.agent)) } h1 { "What is different" } } }
        p.lead { "From " (elements::job(&parent.id)) " to " (elements::job(&job.id)) "." }
        section.part aria-labelledby="prompts" { div.part-head { h2 #prompts { "Prompt" } } (table(&prompts)) }
        section.part aria-labelledby="outputs" {
            div.part-head { h2 #outputs { "Output" } span.muted { "the first " (MAX_COMPARED_LINES) " lines of each" } }
            (table(&outputs))
        }
    };
    pages.page(Frame { title: "What is different", tab: Tab::Jobs, follow: None }, main).await
}

async fn output_text(pages: &Pages, job: &JobId) -> Result<String, ApiProblem> {
    let mut text = String::new();
    let Some(mut answer) = pages.output_lines(&format!("jobs/{job}/output")).await? else {
        return Ok(format!("The output of {job} is on another node.\n"));
    };
    let mut count = 0;
    while count < MAX_COMPARED_LINES {
        let Some(line) = answer.next().await? else { break };
        if let Some(summary) = output::summarize_line(&line) {
            text.push_str(&summary);
            text.push('\n');
            count += 1;
        }
    }
    Ok(text)
}

fn table([before, after]: &[String; 2]) -> Markup {
    if before == after {
        return html! { p.empty { "The same." } };
    }
    let diff = TextDiff::configure().timeout(COMPARE_TIMEOUT).diff_lines(before.as_str(), after.as_str());
    html! {
        div.diff role="group" tabindex="0" aria-label="Differences" {
            @for change in diff.iter_all_changes() {
                @let (kind, sign, word) = match change.tag() {
                    ChangeTag::Delete => ("del", "−", "removed: "),
                    ChangeTag::Insert => ("ins", "+", "added: "),
                    ChangeTag::Equal => ("same", " ", ""),
                };
                div class={ "d d-" (kind) } { span aria-hidden="true" { (sign) } span.hidden { (word) } (change.value().trim_end_matches('\n')) }
            }
        }
    }
}

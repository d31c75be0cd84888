//! The workspace of a job, and the changes of the job in its workspace, on the page of the job.

use cowhand_core::id::JobId;
use cowhand_core::job::{JobRecord, JobStatus};
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::text::{ShownMessage, plain, short, short_message};
use super::{Pages, elements, layout};
use cowhand_web::api::{ApiProblem, Code, WorkspacePhase, WorkspaceView};

/// Maximum number of lines of a diff on the page. A longer page is slow and hard to read.
const MAX_DIFF_LINES: usize = 3000;
/// Maximum length of a line of a diff on the page, in characters. Some generated files have only one long line.
const MAX_LINE_LENGTH: usize = 1000;

/// The changes of a job, limited to the number of lines that the page shows.
pub(super) struct WorkspaceDiff {
    lines: Vec<String>,
    /// Number of lines of the whole diff.
    total: usize,
}

impl Pages {
    /// Returns the changes; none if the API has no diff, for example because the job had no workspace of its own, or
    /// has not ended.
    pub(super) async fn changes(&self, job: &JobRecord) -> Result<Option<WorkspaceDiff>, ApiProblem> {
        match self.client.text(&format!("jobs/{}/diff", job.id)).await {
            Ok(diff) => Ok(Some(WorkspaceDiff::of(&diff))),
            Err(problem) if problem.code == Code::NotFound => Ok(None),
            Err(problem) => Err(problem),
        }
    }
}

impl WorkspaceDiff {
    fn of(diff: &[u8]) -> Self {
        let lines = || diff.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let first_lines = lines().take(MAX_DIFF_LINES).map(|line| {
            let line = plain(&String::from_utf8_lossy(line));
            match line.char_indices().nth(MAX_LINE_LENGTH) {
                Some((end, _)) => format!("{}… (the line is cut)", &line[..end]),
                None => line,
            }
        });
        Self { lines: first_lines.collect(), total: lines().count() }
    }
}

/// Returns whether the workspace will probably change soon: it is being created, it is unfinished, or its job has ended
/// and it may be removed. There are no events for these changes, so the page polls.
pub(super) fn is_changing(job: &JobRecord, workspace: Option<&WorkspaceView>, now: Timestamp) -> bool {
    const CREATION_TIME: SignedDuration = SignedDuration::from_secs(30);
    let is_running = job.status == JobStatus::Running;
    match workspace.map(|workspace| workspace.state) {
        None => {
            is_running && job.run_started_at.is_some_and(|since| now.duration_since(since) < CREATION_TIME)
        }
        Some(WorkspacePhase::Making | WorkspacePhase::Ended) => true,
        Some(WorkspacePhase::Used | WorkspacePhase::Gone | WorkspacePhase::Branch) => false,
        Some(WorkspacePhase::Kept) => workspace.is_some_and(|workspace| workspace.unfinished.is_some()),
    }
}

pub(super) fn part(
    (job, status): (&JobId, JobStatus),
    other_node: Option<&str>,
    workspace: Option<&WorkspaceView>,
    changes: Option<&WorkspaceDiff>,
) -> Markup {
    if workspace.is_none() && changes.is_none() {
        return html! {};
    }
    let content = html! {
        @match workspace {
            Some(workspace) => (facts(workspace)),
            None => p.muted { "The workspace is removed; the job's changes are kept." },
        }
        @match changes {
            Some(changes) => (diff(job, changes)),
            None if workspace.is_some_and(|workspace| workspace.unfinished.is_some()) => p.empty { "There is no diff yet." },
            None if !matches!(status, JobStatus::Pending | JobStatus::Running) => p.empty { (ShownMessage(&no_diff(job, other_node))) },
            None => p.empty { "Its changes are shown after it has ended." },
        }
    };
    layout::part("workspace", "Workspace", &html! {}, &content)
}

/// Explains why an ended job has no diff on this node.
fn no_diff(job: &JobId, other_node: Option<&str>) -> String {
    match other_node {
        Some(node) => {
            format!(
                "There is no diff on this node: it ran on another node, {node}; run there: `cowhand job --diff {job}`"
            )
        }
        None => "There is no diff: its agent was never started.".to_owned(),
    }
}

fn facts(workspace: &WorkspaceView) -> Markup {
    html! {
        dl.grid {
            div { dt { "Kind" } dd { (workspace.kind.as_str()) } }
            div { dt { "State" } dd { (workspace.state.label())
                @if let Some(until) = workspace.keep_until { " until " (elements::at(until)) } } }
            @if let Some(reason) = &workspace.unfinished { div { dt { "Unfinished" } dd { (short_message(reason, 1000)) } } }
            div { dt { "Branch" } dd { code.any { (short(&workspace.branch, 200)) } } }
            div { dt { "Base" } dd { code.any { (short(&workspace.base, 12)) } } }
            div { dt { "Folder" } dd { code.any { (short(&workspace.path.to_string_lossy(), 400)) } span.muted { " on " (short(&workspace.node, 60)) } } }
        }
    }
}

fn diff(job: &JobId, changes: &WorkspaceDiff) -> Markup {
    let diff_address = format!("/api/v1/jobs/{job}/diff");
    if changes.lines.is_empty() {
        return html! { p.empty { "It changed nothing." } };
    }
    html! {
        div.diff role="group" tabindex="0" aria-label="What the job changed" {
            @for (line, in_hunk) in in_hunks(&changes.lines) { (diff_line(line, in_hunk)) }
        }
        @let more = changes.total - changes.lines.len();
        @if more > 0 { p.muted { (more) " more lines are not shown here. " a href=(diff_address) { "The whole diff" } } }
        @else { p.muted { a href=(diff_address) { "As text" } } }
    }
}

fn diff_line(line: &str, in_hunk: bool) -> Markup {
    let (kind, sign, word, text) = match line.chars().next() {
        Some('+') if in_hunk => ("ins", "+", "added: ", &line[1..]),
        Some('-') if in_hunk => ("del", "−", "removed: ", &line[1..]),
        Some(' ') if in_hunk => ("same", " ", "", &line[1..]),
        Some('@') => ("hunk", " ", "", line),
        _ => ("head", " ", "", line),
    };
    html! {
        div class={ "d d-" (kind) } { span aria-hidden="true" { (sign) } span.hidden { (word) } span.d-text { (text) } }
    }
}

/// Marks the lines from an `@@` line until the next file of the diff. Only in these lines does the first character show
/// whether the line was added or removed.
fn in_hunks(lines: &[String]) -> impl Iterator<Item = (&str, bool)> {
    lines.iter().scan(false, |in_hunk, line| {
        *in_hunk = !line.starts_with("diff --git ") && (*in_hunk || line.starts_with("@@"));
        Some((line.as_str(), *in_hunk))
    })
}

#[cfg(test)]
mod tests {
    use cowhand_core::workspace::IsolationKind;

    use super::*;

    fn render(diff: &str) -> String {
        let job = "job-2026-01-05-aaaaaa".parse().unwrap();
        part((&job, JobStatus::Completed), None, None, Some(&WorkspaceDiff::of(diff.as_bytes())))
            .into_string()
    }

    #[test]
    fn changes_are_escaped_and_have_signs() {
        let page = render(
            "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-<script>\n--- is no heading\n+\u{202e}new\u{1b}[1m\n",
        );
        for expected in [
            "d-head\"><span aria-hidden=\"true\"> </span><span class=\"hidden\"></span><span class=\"d-text\">--- a/x",
            "removed: </span><span class=\"d-text\">&lt;script&gt;",
            "removed: </span><span class=\"d-text\">-- is no heading",
            "added: </span><span class=\"d-text\">‹U+202E›new</span>",
        ] {
            assert!(page.contains(expected), "{expected} in {page}");
        }
        assert!(page.contains("The workspace is removed") && page.contains("As text"), "{page}");
        assert!(render("").contains("It changed nothing."));
    }

    #[test]
    fn a_missing_diff_is_explained_by_the_status() {
        let job: JobId = "job-2026-01-05-aaaaaa".parse().unwrap();
        let workspace = WorkspaceView {
            node: "n".to_owned(),
            path: "/w".into(),
            kind: IsolationKind::Worktree,
            branch: "b".to_owned(),
            base: "0".to_owned(),
            state: WorkspacePhase::Kept,
            keep_until: None,
            unfinished: None,
        };
        for (status, expected) in [
            (JobStatus::Running, "Its changes are shown after it has ended."),
            (JobStatus::Failed, "There is no diff: its agent was never started"),
        ] {
            let page = part((&job, status), None, Some(&workspace), None).into_string();
            assert!(page.contains(expected), "{status}: {page}");
        }
        let page = part((&job, JobStatus::Failed), Some("far"), Some(&workspace), None).into_string();
        let command = format!("another node, far; run there: <code>cowhand job --diff {job}</code>");
        assert!(page.contains(&command), "{page}");
        let unfinished = Some("no diff could be made: git <b>".to_owned());
        let workspace = WorkspaceView { state: WorkspacePhase::Ended, unfinished, ..workspace };
        let page = part((&job, JobStatus::Completed), None, Some(&workspace), None).into_string();
        assert!(page.contains("There is no diff yet.") && page.contains("git &lt;b&gt;"), "{page}");
    }

    #[test]
    fn a_huge_diff_is_cut_with_a_note() {
        let page = render(&format!("@@ -0,0 +1 @@\n{}", "+line\n".repeat(MAX_DIFF_LINES + 6)));
        assert_eq!(page.matches("d-ins").count(), MAX_DIFF_LINES - 1);
        assert!(page.contains("7 more lines are not shown here"), "{}", &page[page.len() - 300..]);
        let page = render(&format!("+{}\n", "ü".repeat(1 << 20)));
        assert!(page.contains("(the line is cut)") && page.len() < 10_000);
    }
}

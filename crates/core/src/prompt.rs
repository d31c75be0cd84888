//! Prompts: templates in which only `{{ }}` is syntax, rendered in one pass, with text from outside delimited.
//!
//! A template is split into own text and placeholders. Only the text between the braces is passed to the template
//! engine, and the result is only printed: no value is expanded again, and `{% %}` or `{# #}` have no meaning. Values
//! have no control characters except line feeds and tabs. A line of text from outside that is more than one plain word
//! is put between backticks. Their number is greater than the longest run of backticks in the text. Several lines, the
//! text of a task, and the result of another job are put into a fence that nothing inside can close. The first line of
//! the fence states whether the text is the task, and, if known, who wrote the task and whether the author is trusted.
//! A missing value is empty.

use crate::work::WorkItem;

mod author;
mod context;
mod outside;
mod template;
#[cfg(test)]
mod tests;
mod variables;

pub use author::{AuthorTrust, PromptAuthor};
pub use context::{Context, PromptFiring, Upstream};
pub use outside::{MAX_VALUE_BYTES, one_line};
use outside::{PromptPart, PromptValue};
pub use template::Template;
pub use variables::Variables;

/// Prompt if none is configured.
pub const DEFAULT_PROMPT: &str = "Execute your configured task";

/// Returns the prompt to use: that of the actor who fired the trigger, else the schedule's, else the agent's, else
/// [`DEFAULT_PROMPT`]. A blank prompt counts as unset.
pub fn choose<'a>(trigger: Option<&'a str>, schedule: Option<&'a str>, default: Option<&'a str>) -> &'a str {
    let set = |text: &&str| !text.trim().is_empty();
    [trigger, schedule, default].into_iter().flatten().find(set).unwrap_or(DEFAULT_PROMPT)
}

/// Renders the template with its values.
pub fn render(template: &Template, context: &Context<'_>) -> String {
    outside::assemble(&template.parts(context))
}

/// Renders the template with its values, followed by the work item if there is one.
pub fn build_prompt(template: &Template, context: &Context<'_>) -> String {
    let mut parts = template.parts(context);
    if let Some(item) = context.work_item {
        if let Some(PromptPart::Own(text)) = parts.last_mut() {
            text.truncate(text.trim_end().len());
        }
        parts.extend(item_parts(item, &context.author.labels().task));
    }
    outside::assemble(&parts)
}

fn item_parts(item: &WorkItem, label: &str) -> Vec<PromptPart> {
    let own = |text: &str| PromptPart::Own(text.to_owned());
    let line = |text: &str| PromptPart::Value(PromptValue::line(text));
    let mut parts = vec![own("\n\n## Work Item: "), line(&item.title), own("\n\n")];
    if !item.description.trim().is_empty() {
        parts.extend([PromptPart::Value(PromptValue::block(&item.description, label)), own("\n\n")]);
    }
    let facts = [
        ("Source", item.id.source()),
        ("ID", item.id.external_id()),
        ("Priority", item.priority.as_str()),
        ("Labels", &item.labels.join(", ")),
        ("URL", &item.url),
    ];
    for (name, value) in facts.into_iter().filter(|(_, value)| !value.is_empty()) {
        parts.extend([PromptPart::Own(format!("- **{name}:** ")), line(value), own("\n")]);
    }
    parts.pop();
    parts
}

/// Notation for two literal braces.
const LITERAL_BRACES: &str = r#"{{ "{{" }}"#;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    #[error(
        "line {line}: unknown variable {name:?} in a schedule of type {trigger}{}; known are {}. For a literal `{{{{` write `{LITERAL_BRACES}`",
        .suggestion.as_ref().map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default(),
        .known.join(", ")
    )]
    Unknown { line: usize, name: String, trigger: String, suggestion: Option<String>, known: Vec<String> },
    #[error(
        "line {line}: `{{{{` without `}}}}` on the same line. For a literal `{{{{` write `{LITERAL_BRACES}`"
    )]
    Unclosed { line: usize },
    #[error(
        "line {line}: `{placeholder}` cannot be read: {problem}. For a literal `{{{{` write `{LITERAL_BRACES}`"
    )]
    Unreadable { line: usize, placeholder: String, problem: String },
    #[error("a prompt of {bytes} bytes is too long; the maximum is {most} bytes", most = template::MAX_TEMPLATE_BYTES)]
    TooLong { bytes: usize },
    #[error("a prompt has more than {most} placeholders", most = template::MAX_PLACEHOLDERS)]
    TooMany,
}

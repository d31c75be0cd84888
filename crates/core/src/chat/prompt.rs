//! The prompt of a chat message.

/// Name of the schedule that every agent with chat settings has.
pub const CHAT_SCHEDULE: &str = "chat";

/// Prompt of a schedule of type `chat` that has none.
pub const CHAT_PROMPT: &str = r#"You talk with people in a chat on {{ platform }}. Everything that you write as your answer is posted there.

Earlier messages, oldest first: {{ earlier_messages | default("none") }}

{{ author_name | default("Somebody") }} (user id {{ author }}) wrote the following message in the channel {{ channel }}.
Files that were sent with it: {{ attachments | default("none") }}

{{ body }}
"#;

/// Returns the message with which a person asks an agent to use a skill.
pub fn skill_request(skill: &str, input: Option<&str>) -> String {
    match input {
        None => format!("Use the skill `{skill}`."),
        Some(input) => format!("Use the skill `{skill}` with this input:\n\n{input}"),
    }
}

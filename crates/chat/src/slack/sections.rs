//! Formats messages with buttons in Block Kit.

use serde_json::{Value, json};

use crate::{Button, ButtonStyle};

/// Maximum number of characters in a section.
const MAX_SECTION_CHARS: usize = 3_000;
/// Maximum number of blocks in a message; one of them contains the buttons.
const MAX_BLOCKS: usize = 50;
const MAX_LABEL_CHARS: usize = 75;
/// Maximum number of buttons in a block.
const MAX_BUTTONS: usize = 25;
const CODE_FENCE: &str = "```";
/// Number of characters that are kept free for the fences that are added to a section.
const FENCE_ROOM: usize = 2 * (CODE_FENCE.len() + 1);

/// Returns the blocks of a message; an empty list if there are no buttons, because Slack then shows the text itself.
pub(super) fn blocks(text: &str, buttons: &[Button]) -> Value {
    if buttons.is_empty() {
        return json!([]);
    }
    let section = |text: String| json!({ "type": "section", "text": { "type": "mrkdwn", "text": text, "verbatim": true } });
    let mut blocks: Vec<Value> = split(text).into_iter().map(section).take(MAX_BLOCKS - 1).collect();
    let elements: Vec<Value> = buttons.iter().take(MAX_BUTTONS).enumerate().map(element).collect();
    blocks.push(json!({ "type": "actions", "elements": elements }));
    Value::Array(blocks)
}

fn element((number, button): (usize, &Button)) -> Value {
    let label: String = button.label.chars().take(MAX_LABEL_CHARS).collect();
    let mut element = json!({
        "type": "button",
        "action_id": format!("cowhand-{number}"),
        "text": { "type": "plain_text", "text": label, "emoji": true },
        "value": button.value,
    });
    match button.style {
        ButtonStyle::Neutral => {}
        ButtonStyle::Approve => element["style"] = json!("primary"),
        ButtonStyle::Deny => element["style"] = json!("danger"),
    }
    element
}

/// Splits a text at the ends of its lines. A code block that is split is closed and opened again.
fn split(text: &str) -> Vec<String> {
    let (mut sections, mut section, mut room) = (Vec::new(), String::new(), MAX_SECTION_CHARS - FENCE_ROOM);
    let mut is_code = false;
    for line in text.split_inclusive('\n') {
        for piece in pieces(line) {
            let length = piece.chars().count();
            if length > room {
                let opening = if is_code { format!("{CODE_FENCE}\n") } else { String::new() };
                let mut full = std::mem::replace(&mut section, opening);
                if is_code {
                    full = format!("{}\n{CODE_FENCE}", full.trim_end_matches('\n'));
                }
                sections.push(full);
                room = MAX_SECTION_CHARS - FENCE_ROOM;
            }
            section += &piece;
            room -= length;
        }
        is_code ^= line.matches(CODE_FENCE).count() % 2 == 1;
    }
    sections.push(section);
    sections.retain(|section| !section.trim().is_empty());
    sections
}

/// Splits a line that is longer than a section.
fn pieces(line: &str) -> Vec<String> {
    let characters: Vec<char> = line.chars().collect();
    let pieces = characters.chunks(MAX_SECTION_CHARS - FENCE_ROOM);
    pieces.map(|piece| piece.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_becomes_sections_with_whole_code_blocks() {
        let code = "let x = 1;\n".repeat(600);
        let text = format!("Run this?\n```\n{code}```\nYes or no.\n{}", "y".repeat(7_000));
        let buttons = ["Yes", "No"].map(|label| Button {
            label: label.to_owned(),
            value: format!("v-{label}"),
            style: ButtonStyle::Approve,
        });
        let blocks = blocks(&text, &buttons);
        let (actions, sections) = blocks.as_array().unwrap().split_last().unwrap();
        let mut lines = 0;
        for section in sections {
            let text = section["text"]["text"].as_str().unwrap();
            assert!(text.chars().count() <= MAX_SECTION_CHARS, "{}", text.chars().count());
            assert_eq!(text.matches(CODE_FENCE).count() % 2, 0, "{text}");
            lines += text.matches("let x = 1;").count();
        }
        assert_eq!(lines, 600);
        assert_eq!(actions["elements"][1]["value"], "v-No");
        assert_ne!(actions["elements"][0]["action_id"], actions["elements"][1]["action_id"]);
        assert_eq!(super::blocks(&text, &[]), json!([]));
    }
}

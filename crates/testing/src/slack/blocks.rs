//! Rules of Block Kit.

use std::collections::BTreeSet;

use serde_json::Value;

const MAX_SECTION_CHARS: usize = 3_000;
const MAX_BLOCKS: usize = 50;
const MAX_LABEL_CHARS: usize = 75;

/// Returns true if Slack accepts the blocks.
pub(crate) fn are_valid(blocks: &Value) -> bool {
    let blocks = match blocks {
        Value::Null => return true,
        Value::Array(blocks) => blocks,
        _ => return false,
    };
    let mut action_ids = BTreeSet::new();
    blocks.len() <= MAX_BLOCKS
        && blocks.iter().all(|block| match block["type"].as_str() {
            Some("section") => has_length(&block["text"]["text"], MAX_SECTION_CHARS),
            Some("actions") => {
                let elements = block["elements"].as_array();
                elements.is_some_and(|elements| {
                    (1..=25).contains(&elements.len())
                        && elements.iter().all(|element| {
                            has_length(&element["text"]["text"], MAX_LABEL_CHARS)
                                && action_ids.insert(element["action_id"].as_str().map(str::to_owned))
                        })
                })
            }
            _ => false,
        })
}

fn has_length(text: &Value, max: usize) -> bool {
    text.as_str().is_some_and(|text| (1..=max).contains(&text.chars().count()))
}

/// Returns the button of a message that has this value.
pub(crate) fn button<'a>(message: &'a Value, value: &str) -> Option<&'a Value> {
    let blocks = message["blocks"].as_array().into_iter().flatten();
    let mut elements = blocks.filter_map(|block| block["elements"].as_array()).flatten();
    elements.find(|element| element["value"] == value)
}

//! The digest by which the nodes of a fleet find out that their configs differ. It covers the keys and values of all
//! files as they are written, with `${…}` unexpanded, and without comments. So nodes whose variables have different
//! values, for example the paths of their folders, still have the same config. `server` and `store` of the root file do
//! not count, because they may differ from node to node.

use uuid::Uuid;

use super::node::{Node, Sources, Value};
use super::parse::parse;
use super::problem::Problems;

/// Keys of the root file that may differ from node to node.
const NODE_KEYS: [&str; 3] = ["server", "store", "web"];
/// Number of characters of a digest. It need not resist an attacker.
const DIGEST_CHARS: usize = 16;

/// Returns the digest of all files of a config.
pub(super) fn of_sources(sources: &Sources) -> String {
    let mut text = String::new();
    for file in sources.ids() {
        // The problems of the file are already reported.
        let node = parse(file, sources.text(file), &mut Problems::default());
        match node {
            Some(mut node) => {
                if file.number() == 0 {
                    for key in NODE_KEYS {
                        node.remove(key);
                    }
                }
                write_node(&node, &mut text);
            }
            None => text.push_str(sources.text(file)),
        }
        text.push('\n');
    }
    let digest = Uuid::new_v5(&Uuid::nil(), text.as_bytes()).simple().to_string();
    digest.chars().take(DIGEST_CHARS).collect()
}

/// Writes a value so that different values have different texts.
fn write_node(node: &Node, text: &mut String) {
    match &node.value {
        Value::Scalar(scalar) => {
            text.push(if scalar.plain { 'p' } else { 'q' });
            write_text(&scalar.text, text);
        }
        Value::List(items) => {
            text.push('[');
            for item in items {
                write_node(item, text);
            }
            text.push(']');
        }
        Value::Map(map) => {
            text.push('{');
            for (key, entry) in &map.entries {
                write_text(key, text);
                write_node(&entry.node, text);
            }
            text.push('}');
        }
    }
}

fn write_text(part: &str, text: &mut String) {
    text.push_str(&part.len().to_string());
    text.push(':');
    text.push_str(part);
}

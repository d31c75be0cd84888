//! Labels of nodes. An agent names the labels of the nodes that may run its jobs (`runs_on`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum number of characters of the name, and of the value, of a label.
const MAX_LABEL_WORD: usize = 63;

/// A label of a node: a name, as `gpu`, or a name with a value, as `region=eu`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeLabel(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a label; write NAME or NAME=VALUE, with letters, digits and `._/-`, and at most {MAX_LABEL_WORD} characters each"
)]
pub struct NodeLabelError(String);

impl NodeLabel {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks whether a node with this label has the label that an agent names. A name without a value stands for every
    /// value.
    pub fn satisfies(&self, wanted: &Self) -> bool {
        self == wanted || (!wanted.0.contains('=') && self.name() == wanted.0)
    }

    fn name(&self) -> &str {
        self.0.split_once('=').map_or(self.0.as_str(), |(name, _)| name)
    }
}

impl FromStr for NodeLabel {
    type Err = NodeLabelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_word = |word: &str| {
            let is_inner = |letter: char| letter.is_ascii_alphanumeric() || "_./-".contains(letter);
            let is_begun = word.starts_with(|first: char| first.is_ascii_alphanumeric());
            is_begun && word.len() <= MAX_LABEL_WORD && word.chars().all(is_inner)
        };
        let is_label = match text.split_once('=') {
            Some((name, value)) => is_word(name) && is_word(value),
            None => is_word(text),
        };
        if is_label { Ok(Self(text.to_owned())) } else { Err(NodeLabelError(text.to_owned())) }
    }
}

impl TryFrom<String> for NodeLabel {
    type Error = NodeLabelError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<NodeLabel> for String {
    fn from(label: NodeLabel) -> Self {
        label.0
    }
}

impl fmt::Display for NodeLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_names_with_or_without_a_value() {
        for text in ["gpu", "region=eu", "cpu/arch=x86_64"] {
            assert_eq!(text.parse::<NodeLabel>().map(String::from), Ok(text.to_owned()));
        }
        for text in ["", "=eu", "region=", "a b", "a=b=c", "-gpu", "gpu,fast", &"x".repeat(64)] {
            assert!(text.parse::<NodeLabel>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_wanted_name_stands_for_every_value() {
        let label = |text: &str| text.parse::<NodeLabel>().unwrap();
        for (has, wanted, expected) in [
            ("gpu", "gpu", true),
            ("gpu=a100", "gpu", true),
            ("gpu=a100", "gpu=a100", true),
            ("gpu=a100", "gpu=h100", false),
            ("gpu", "gpu=a100", false),
            ("gpus", "gpu", false),
        ] {
            assert_eq!(label(has).satisfies(&label(wanted)), expected, "{has} {wanted}");
        }
    }
}

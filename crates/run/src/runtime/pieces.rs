//! Text that arrives in pieces. A secret may be split over several pieces. So the end of the text is held back while it
//! may be the beginning of a secret.

use serde::{Deserialize, Serialize};

use crate::redact::Redactor;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Pieces {
    held: String,
}

impl Pieces {
    /// Adds a piece and returns the text that can be written now.
    pub(super) fn add(&mut self, piece: &str, redactor: &TextRedactor) -> String {
        self.held += piece;
        let rest = self.held.split_off(redactor.0.redactable_len(&self.held));
        let settled = std::mem::replace(&mut self.held, rest);
        redactor.0.redact(&settled).into_owned()
    }

    /// Returns the rest after the last piece.
    pub(super) fn rest(&mut self, redactor: &TextRedactor) -> String {
        redactor.0.redact(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// Redactor of joined text. It is not part of the state of a reader, so it is neither in a checkpoint nor compared.
#[derive(Debug, Clone, Default)]
pub(super) struct TextRedactor(pub(super) Redactor);

impl PartialEq for TextRedactor {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(secrets: &[&str], pieces: &[&str]) -> Vec<String> {
        let redactor =
            TextRedactor(Redactor::of(secrets.iter().map(|secret| (*secret).to_owned()).collect()));
        let mut all = Pieces::default();
        let mut redacted: Vec<_> = pieces.iter().map(|piece| all.add(piece, &redactor)).collect();
        redacted.push(all.rest(&redactor));
        redacted
    }

    #[test]
    fn a_secret_split_between_pieces_is_masked() {
        for (secrets, pieces, expected) in [
            (&[][..], &["How ", "now"][..], &["How ", "now", ""][..]),
            (&["canary"], &["a can", "ary!"], &["a ", "***!", ""]),
            (&["canary"], &["c", "a", "n", "a", "r", "y"], &["", "", "", "", "", "***", ""]),
            (&["canary"], &["a can", " of beer"], &["a ", "can of beer", ""]),
            (&["canary"], &["a can"], &["a ", "can"]),
            (&["canary"], &["cancan", "ary"], &["can", "***", ""]),
            // A secret that may be the beginning of a longer secret is held back too.
            (&["canary", "canary-bird"], &["canary", "-bird"], &["", "***", ""]),
            (&["canary", "canary-bird"], &["canary", "-b", "ox"], &["", "", "***-box", ""]),
            // A secret whose end may be the beginning of another secret is held back too.
            (&["canary", "ry-bread"], &["canary", "-x"], &["", "***-x", ""]),
            (&["zwölf-ä"], &["é zwö", "lf-ä"], &["é ", "***", ""]),
        ] {
            assert_eq!(redacted(secrets, pieces), expected, "{secrets:?} {pieces:?}");
        }
    }

    /// At every cut, no text is lost and no secret is shown.
    #[test]
    fn secrets_are_masked_wherever_the_text_is_split() {
        let text = "x=sk-aa-aab-sk-aa-aac; sk-aa";
        let secrets = ["sk-aa-aab", "sk-aa-aac", "aab-sk"];
        let whole = Redactor::of(secrets.map(str::to_owned).into()).redact(text).into_owned();
        for first in 0..text.len() {
            for second in first..text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(redacted(&secrets, &pieces).concat(), whole, "{pieces:?}");
            }
        }
    }
}

//! The lines of the JSONL that are not written yet.

use cowhand_core::output::{OutputError, OutputMessage, TextFormat};
use jiff::Timestamp;

use super::MAX_MESSAGE_BYTES;

/// A batch of this size or more is written at once. A smaller batch is written when there is no more output.
const WRITE_BATCH_BYTES: usize = 256 << 10;
/// Maximum size of the memory that an empty batch keeps.
const MAX_KEPT_BYTES: usize = 2 * WRITE_BATCH_BYTES;

#[derive(Debug, Default)]
pub(super) struct Batch {
    text: Vec<u8>,
    lines: u64,
    format: TextFormat,
}

impl Batch {
    pub(super) fn add(&mut self, message: OutputMessage, now: Timestamp) -> Result<(), OutputError> {
        message.stamped(now).append_line(&mut self.text, MAX_MESSAGE_BYTES)?;
        self.lines += 1;
        Ok(())
    }

    /// Adds a message that consists of a text.
    pub(super) fn add_text(
        &mut self,
        subtype: Option<&'static str>,
        content: &str,
        now: Timestamp,
    ) -> Result<(), OutputError> {
        self.format.append(&mut self.text, subtype, content, now, MAX_MESSAGE_BYTES)?;
        self.lines += 1;
        Ok(())
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(super) const fn lines(&self) -> u64 {
        self.lines
    }

    pub(super) const fn is_full(&self) -> bool {
        self.text.len() >= WRITE_BATCH_BYTES
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(MAX_KEPT_BYTES);
        self.lines = 0;
    }

    /// Frees the memory. There may be many attempts that write nothing for a long time.
    pub(super) fn free(&mut self) {
        self.text = Vec::new();
    }
}

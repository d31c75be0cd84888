//! Digests in hexadecimal form.

use ring::digest::{SHA256, digest};

/// Writes bytes in lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// Returns the SHA-256 of the content in hexadecimal form.
pub fn sha256(content: impl AsRef<[u8]>) -> String {
    hex(digest(&SHA256, content.as_ref()).as_ref())
}

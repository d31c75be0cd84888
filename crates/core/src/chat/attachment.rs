//! Files that are sent with a message: which of them the agent gets, and how the prompt describes them.

use serde::{Deserialize, Serialize};

use super::settings::AttachmentRules;
use super::{ChatAttachment, ChatPlatform, texts};
use crate::invisible::without_invisible;
use crate::size;

/// Maximum number of characters of a text file in a prompt.
pub const MAX_TEXT_CHARS: usize = 50_000;
/// Maximum number of bytes of all text files of one message in a prompt. It is below the limit of one value of a
/// prompt, so that the descriptions of the other files fit too.
pub const MAX_TEXTS_BYTES: usize = 56 << 10;
/// Maximum number of characters of a file name in a prompt and on the disk.
const MAX_NAME_CHARS: usize = 100;
/// Maximum number of characters of a file name's ending.
const MAX_EXTENSION_CHARS: usize = 16;

/// Media types besides `text/*` whose content is text.
const TEXT_TYPES: [&str; 14] = [
    "application/json",
    "application/x-ndjson",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/javascript",
    "application/x-javascript",
    "application/ecmascript",
    "application/typescript",
    "application/x-typescript",
    "application/x-sh",
    "application/x-shellscript",
    "application/xml",
    "application/sql",
];
/// Media types that do not show whether a file is text. Some clients state `video/mp2t` for TypeScript.
const VAGUE_TYPES: [&str; 3] = ["", "application/octet-stream", "video/mp2t"];
/// Endings of text files, for files whose media type does not show whether they are text.
const TEXT_EXTENSIONS: [&str; 20] = [
    "txt", "md", "log", "csv", "json", "jsonl", "yaml", "yml", "toml", "js", "mjs", "cjs", "jsx", "ts",
    "tsx", "sh", "bash", "xml", "rs", "py",
];

/// A file of a message that the agent gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedFile {
    pub attachment: ChatAttachment,
    /// Description of the file for the prompt, with the content if the file is text.
    pub description: String,
    /// Path below the working directory of the job, at which the file is saved before each attempt; none if it is not
    /// saved.
    pub path: Option<String>,
}

/// The files of a message that the agent gets, and notices for the sender about the other files.
#[derive(Debug, PartialEq, Eq)]
pub struct AttachmentChoice<'a> {
    pub chosen: Vec<&'a ChatAttachment>,
    pub notices: Vec<String>,
}

/// Why a file of a message is missing. The words become a part of the prompt, so they contain no text from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MissingReason {
    #[error("the agent takes no files any more")]
    NotTaken,
    #[error("the bot has no connection to the platform")]
    NoBot,
    #[error("the platform refused the download")]
    Refused,
    #[error("the download failed")]
    Failed,
    #[error("the file has more than {0} bytes")]
    TooLarge(u64),
    #[error("it cannot be saved in the working directory")]
    NotSaved,
}

/// Chooses the files that the agent gets: of the first `max_files` files, those that have an allowed type and are not
/// too large. This checks the size that the platform states. The download checks the real size.
pub fn choose<'a>(
    rules: &AttachmentRules,
    attachments: &[&'a ChatAttachment],
    platform: ChatPlatform,
) -> AttachmentChoice<'a> {
    let max_files = usize::try_from(rules.max_files).unwrap_or(usize::MAX);
    let mut choice = AttachmentChoice { chosen: Vec::new(), notices: Vec::new() };
    if attachments.len() > max_files {
        choice.notices.push(texts::too_many_attachments(attachments.len(), rules.max_files));
    }
    for &attachment in attachments.iter().take(max_files) {
        if !is_allowed(attachment, &rules.allowed_types) {
            choice.notices.push(texts::attachment_type_refused(attachment, &rules.allowed_types, platform));
        } else if attachment.bytes > rules.max_file_bytes {
            choice.notices.push(texts::attachment_too_large(attachment, rules.max_file_bytes, platform));
        } else {
            choice.chosen.push(attachment);
        }
    }
    choice
}

/// Checks whether the content of a file is text: by its media type or, if the media type does not show it, by its
/// ending.
pub fn is_text(attachment: &ChatAttachment) -> bool {
    let kind = attachment.media_type.to_ascii_lowercase();
    if VAGUE_TYPES.contains(&kind.as_str()) {
        let extension = extension(&attachment.name).to_ascii_lowercase();
        return TEXT_EXTENSIONS.contains(&extension.as_str());
    }
    kind.starts_with("text/") || TEXT_TYPES.contains(&kind.as_str())
}

/// Checks whether a file has one of the allowed types. The type `text/*` allows every text file.
fn is_allowed(attachment: &ChatAttachment, allowed: &[String]) -> bool {
    let kind = attachment.media_type.to_ascii_lowercase();
    allowed.iter().map(|pattern| pattern.trim().to_ascii_lowercase()).any(|pattern| match &pattern[..] {
        "*" | "*/*" => true,
        "text/*" if is_text(attachment) => true,
        pattern => match pattern.strip_suffix("/*") {
            Some(group) => kind.split_once('/').is_some_and(|(own, _)| own == group),
            None => kind == pattern,
        },
    })
}

/// Returns the path at which a file is saved, below the working directory of the job.
pub fn saved_path(rules: &AttachmentRules, folder: &str, attachment: &ChatAttachment) -> String {
    let id = plain_name(&attachment.id, MAX_NAME_CHARS);
    format!("{}/{folder}/{id}-{}", rules.folder.trim_end_matches('/'), safe_name(&attachment.name))
}

/// Returns a name for the disk. It contains only letters, digits, dots, hyphens and underscores, begins with a letter
/// or a digit, and has the ending of the original name.
pub fn safe_name(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let extension = extension(name);
    let stem = match extension {
        "" => name,
        extension => &name[..name.len() - extension.len() - 1],
    };
    let stem = plain_name(stem, MAX_NAME_CHARS - MAX_EXTENSION_CHARS);
    let stem = stem.trim_start_matches(['.', '-', '_']);
    let stem = if stem.is_empty() { "file" } else { stem };
    match extension {
        "" => stem.to_owned(),
        extension => format!("{stem}.{}", plain_name(extension, MAX_EXTENSION_CHARS)),
    }
}

/// Returns the ending of a file name without its dot; empty if it has none.
fn extension(name: &str) -> &str {
    let (stem, extension) = name.rsplit_once('.').unwrap_or_default();
    let is_short = !extension.is_empty() && extension.chars().count() <= MAX_EXTENSION_CHARS;
    if is_short && !stem.is_empty() { extension } else { "" }
}

/// Replaces all characters except letters, digits, dots, hyphens and underscores, and shortens the result.
fn plain_name(name: &str, limit: usize) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    name.chars().map(plain).take(limit).collect()
}

/// Describes a file that is saved at `path`.
pub fn describe_saved(attachment: &ChatAttachment, path: &str) -> String {
    let bytes = size::in_words(attachment.bytes);
    format!("{}, {bytes}: the file {path} in your working directory", label(attachment))
}

/// Describes a text file with its content. Keeps at most `max_bytes` bytes and [`MAX_TEXT_CHARS`] characters of the
/// content.
pub fn describe_text(attachment: &ChatAttachment, content: &str, max_bytes: usize) -> String {
    let content = without_invisible(content);
    let end = content.char_indices().nth(MAX_TEXT_CHARS).map_or(content.len(), |(index, _)| index);
    let kept = &content[..content.floor_char_boundary(end.min(max_bytes))];
    let label = label(attachment);
    let cut = content[kept.len()..].chars().count();
    let marker = if cut == 0 { String::new() } else { format!("\n[{cut} more characters are left out]") };
    format!("--- {label} ---\n{}{marker}\n--- end of {label} ---", kept.trim_end_matches('\n'))
}

/// Describes a file that the agent does not get.
pub fn describe_missing(attachment: &ChatAttachment, reason: MissingReason) -> String {
    format!("{}: missing, because {reason}", label(attachment))
}

/// Returns the name and the media type of a file in one line.
fn label(attachment: &ChatAttachment) -> String {
    let line = |text: &str| without_invisible(text).replace(['\n', '\t'], " ");
    let name: String = line(&attachment.name).chars().take(MAX_NAME_CHARS).collect();
    match &attachment.media_type[..] {
        "" => name,
        kind => format!("{name} ({})", line(kind).chars().take(MAX_NAME_CHARS).collect::<String>()),
    }
}

#[cfg(test)]
mod tests;

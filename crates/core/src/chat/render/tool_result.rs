//! Posts with results of tools.

use serde_json::Value;

use super::progress::ShownCall;
use super::{RenderedFile, RenderedPost};
use crate::chat::ChatPlatform;
use crate::chat::escape::code_block;
use crate::chat::markdown::post_limit;
use crate::chat::split::{length, shorten};

/// Number of characters of a long text that its post shows.
const PREVIEW_CHARS: usize = 300;
const HEADING_INPUT_CHARS: usize = 200;

/// Returns the text of a result: the error, the text, the texts of its blocks, or else its JSON.
pub(super) fn text_of(result: Option<&Value>, error: Option<&str>) -> String {
    match (result, error) {
        (_, Some(error)) => error.to_owned(),
        (None | Some(Value::Null), None) => String::new(),
        (Some(Value::String(text)), None) => text.clone(),
        (Some(result), None) => {
            let blocks = result.as_array().map_or(&[][..], Vec::as_slice);
            let texts: Option<Vec<&str>> = blocks.iter().map(|block| block.get("text")?.as_str()).collect();
            let texts = texts.filter(|texts| !texts.is_empty()).map(|texts| texts.join("\n"));
            texts.unwrap_or_else(|| serde_json::to_string_pretty(result).unwrap_or_default())
        }
    }
}

/// Returns the post with a result: the whole result, or its beginning and a file. `number` is the number of the result
/// in the job.
pub(super) fn post(
    call: &ShownCall,
    text: &str,
    is_short: bool,
    number: usize,
    platform: ChatPlatform,
) -> RenderedPost {
    let heading = call.to_text(HEADING_INPUT_CHARS, platform);
    let whole = format!("{heading}\n{}", code_block(text, "", platform));
    if is_short && length(&whole) <= post_limit(platform) {
        return RenderedPost { text: whole, file: None };
    }
    with_file(&heading, text, format!("tool-result-{number}.txt"), platform)
}

/// Returns a post with the beginning of a text, and the whole text in a file.
pub(super) fn with_file(heading: &str, text: &str, name: String, platform: ChatPlatform) -> RenderedPost {
    let preview = code_block(&shorten(text, PREVIEW_CHARS), "", platform);
    let count = text.chars().count();
    let text_of_post =
        format!("{heading}\n{preview}\nThe whole text has {count} characters and is in {name}.");
    RenderedPost { text: text_of_post, file: Some(RenderedFile { name, content: text.to_owned() }) }
}

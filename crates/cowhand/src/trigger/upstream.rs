//! What a job that has ended came to, in its own words.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use cowhand_core::cut::cut;
use cowhand_core::output::OutputMessage;
use cowhand_core::prompt::VALUE_CAP;

/// The end of the output has the result.
const READ_BACK: u64 = 4 << 20;

/// The result that the agent told, else its last words, else all its lines. None if there is no output here: the job
/// may have run on another machine.
pub(super) async fn result_of(output: PathBuf) -> Option<String> {
    tokio::task::spawn_blocking(move || read(&output)).await.ok()?
}

fn read(output: &Path) -> Option<String> {
    let mut file = File::open(output).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(READ_BACK))).ok()?;
    let mut bytes = Vec::new();
    file.take(READ_BACK).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line may be half of one; then it is no message.
    let messages = text.lines().filter_map(|line| OutputMessage::read_line(line).ok().flatten());
    result(messages).map(|text| cut(&text, 0, VALUE_CAP))
}

fn result(messages: impl Iterator<Item = OutputMessage>) -> Option<String> {
    let (mut told, mut said, mut lines) = (None, None, Vec::new());
    for message in messages {
        match message {
            OutputMessage::System { subtype: Some(subtype), extra, .. } if subtype == "result" => {
                told = extra.get("result").and_then(|text| text.as_str()).map(str::to_owned).or(told);
            }
            OutputMessage::Assistant { content: Some(content), partial: None | Some(false), .. } => {
                said = Some(content).filter(|text| !text.trim().is_empty()).or(said);
            }
            OutputMessage::System { subtype: None, content: Some(content), .. } => lines.push(content),
            _ => {}
        }
    }
    told.or(said).or_else(|| (!lines.is_empty()).then(|| lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_that_count() {
        let line = r#"{"type":"system","content":"one"}"#;
        let noise = r#"{"type":"system","subtype":"stderr","content":"warning"}"#;
        let said = r#"{"type":"assistant","content":"I did it."}"#;
        let half = r#"{"type":"assistant","content":"I di","partial":true}"#;
        let told = r#"{"type":"system","subtype":"result","result":"All of it."}"#;
        for (output, expected) in [
            (vec![], None),
            (vec![noise], None),
            (vec![line, noise, line], Some("one\none")),
            (vec![line, said, half], Some("I did it.")),
            (vec![said, told, line], Some("All of it.")),
            (vec!["ystem\"}", "", said], Some("I did it.")),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), output.join("\n")).unwrap();
            assert_eq!(read(file.path()).as_deref(), expected, "{output:?}");
        }
        assert_eq!(read(Path::new("/nowhere/at/all")), None);
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = format!("{line}\n").repeat(300_000) + said;
        std::fs::write(file.path(), long).unwrap();
        assert_eq!(read(file.path()).as_deref(), Some("I did it."));
    }
}

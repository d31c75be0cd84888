//! The Gemini CLI's record of a session. The record states the usage of each answer of the model immediately; stdout
//! states the usage only at the end.
//!
//! Each message is a line, which is written again when the message grows. A resumed session continues in its old file,
//! and may have a second file that stays empty. Additional requests of the program, such as the choice of a model, are
//! not recorded; only the usage on stdout includes them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

use cowhand_core::job::{JobUsage, ModelUsage};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::MAX_MODELS;
use super::super::json::count;
use super::super::session_file;
use super::launch::HOME;

/// Maximum number of files. Their positions are part of every checkpoint.
const MAX_RECORD_FILES: usize = 10;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(in super::super) struct ChatRecord {
    /// Folder of the records, with a folder for each project; `None` if unknown.
    folder: Option<PathBuf>,
    /// Start of this attempt. Older messages of a resumed session belong to earlier attempts.
    since: Option<Timestamp>,
    files: BTreeMap<PathBuf, RecordPosition>,
    used: BTreeMap<String, ModelUsage>,
}

/// Position up to which a file was read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct RecordPosition {
    /// Number of bytes that were read.
    read: u64,
    /// Id of the last counted message, which may be written again.
    last: Option<String>,
}

impl ChatRecord {
    pub(in super::super) fn starting_now(environment: &HashMap<String, String>) -> Self {
        let folder = HOME.path(environment).map(|home| home.join("tmp"));
        Self { folder, since: Some(Timestamp::now()), ..Self::default() }
    }

    /// Reads new messages. The name of a file ends with the first eight characters of the session id. Read errors are
    /// ignored, because stdout states the usage at the end.
    pub(in super::super) fn read_new(&mut self, session: Option<&str>) {
        let (Some(folder), Some(session)) = (&self.folder, session.and_then(|id| id.get(..8))) else {
            return;
        };
        let found = session_file::find_all(folder, &format!("-{session}.jsonl"), 2);
        for (path, file) in found.into_iter().take(MAX_RECORD_FILES) {
            let mut position = self.files.remove(&path).unwrap_or_default();
            if self.read_from(file, &mut position).is_ok() {
                self.files.insert(path, position);
            } else {
                // The counts of this file are no longer valid. `used` has the counts of all files together, so the next
                // call reads all files again from their beginning.
                self.used.clear();
                self.files.clear();
            }
        }
    }

    fn read_from(&mut self, mut file: File, position: &mut RecordPosition) -> io::Result<()> {
        if file.metadata()?.len() < position.read {
            return Err(io::Error::other("the file was rewritten"));
        }
        file.seek(SeekFrom::Start(position.read))?;
        // The rest of a large file is read by the next call.
        let (mut lines, mut line) = (BufReader::new(file).take(session_file::MAX_RECORD_BYTES), Vec::new());
        while (&mut lines).take(session_file::MAX_RECORD_LINE_BYTES).read_until(b'\n', &mut line)? > 0 {
            if !line.ends_with(b"\n") && (line.len() as u64) < session_file::MAX_RECORD_LINE_BYTES {
                break;
            }
            position.read += line.len() as u64;
            if memchr::memmem::find(&line, b"\"tokens\":{").is_some() {
                self.count(&line, position);
            }
            line.clear();
        }
        Ok(())
    }

    fn count(&mut self, line: &[u8], position: &mut RecordPosition) {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { return };
        let at = message["timestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        let (Some(id), Some(at), Some(tokens)) = (message["id"].as_str(), at, message.get("tokens")) else {
            return;
        };
        if Some(at) < self.since || position.last.as_deref() == Some(id) || id.len() > 200 {
            return;
        }
        position.last = Some(id.to_owned());
        let model = message["model"].as_str().filter(|model| model.len() <= 200).unwrap_or("default");
        if self.used.len() < MAX_MODELS || self.used.contains_key(model) {
            self.used.entry(model.to_owned()).or_default().add(&tokens_of(tokens));
        }
    }

    pub(in super::super) fn usage(&self) -> Option<JobUsage> {
        (!self.used.is_empty()).then(|| JobUsage { per_model: self.used.clone(), ..JobUsage::default() })
    }
}

/// Reads token counts: cached tokens are part of the input; thinking tokens have the price of output.
fn tokens_of(tokens: &Value) -> ModelUsage {
    let cached = count(tokens, "cached");
    let input = count(tokens, "input").saturating_add(count(tokens, "tool"));
    ModelUsage {
        input_tokens: input.saturating_sub(cached),
        output_tokens: count(tokens, "output").saturating_add(count(tokens, "thoughts")),
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: cached,
        cost_usd: None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::*;

    const SESSION: &str = "238a8f3d-b2bf-462d-8a9e-03093de7a936";

    fn answer(id: &str, at: &str, input: u64) -> String {
        format!(
            r#"{{"id":"{id}","timestamp":"{at}","type":"gemini","tokens":{{"input":{input},"output":5,"cached":30,"thoughts":2,"tool":1,"total":0}},"model":"flash"}}"#
        )
    }

    fn tokens(chat: &ChatRecord) -> Option<[u64; 3]> {
        let used = chat.usage()?.per_model["flash"];
        Some([used.input_tokens, used.cache_read_input_tokens, used.output_tokens])
    }

    #[test]
    fn each_new_answer_is_counted_once() {
        let home = tempfile::tempdir().unwrap();
        let environment = HashMap::from([("HOME".to_owned(), home.path().display().to_string())]);
        let mut chat = ChatRecord::starting_now(&environment);
        chat.since = Some("2026-11-15T22:25:08Z".parse().unwrap());
        chat.read_new(Some(SESSION));
        assert_eq!(tokens(&chat), None);
        let folder = home.path().join(".gemini/tmp/desk/chats");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("session-2026-11-15T22-25-238a8f3d.jsonl");
        let earlier = answer("a", "2026-11-15T22:25:07Z", 1000);
        let one = answer("b", "2026-11-15T22:25:08.732Z", 100);
        let half = &answer("c", "2026-11-15T22:25:09Z", 200)[..40];
        let set = r#"{"$set":{"messages":[{"id":"x","tokens":{"input":7}}]}}"#;
        fs::write(&path, [&earlier, set, &one, &one, "{rubbish \"tokens\":{", half].join("\n")).unwrap();
        chat.read_new(Some(SESSION));
        assert_eq!(tokens(&chat), Some([71, 30, 7]));
        // The rest of an incomplete line arrives after a checkpoint.
        let mut chat: ChatRecord = serde_json::from_str(&serde_json::to_string(&chat).unwrap()).unwrap();
        let rest = answer("c", "2026-11-15T22:25:09Z", 200)[40..].to_owned() + "\n";
        OpenOptions::new().append(true).open(&path).unwrap().write_all(rest.as_bytes()).unwrap();
        chat.read_new(Some(SESSION));
        assert_eq!(tokens(&chat), Some([71 + 171, 60, 14]));
        // A file that was rewritten and is shorter is counted from its beginning.
        fs::write(&path, one + "\n").unwrap();
        chat.read_new(Some(SESSION));
        chat.read_new(Some(SESSION));
        assert_eq!(tokens(&chat), Some([71, 30, 7]));
        // The other file of the session is then counted again too, whether its name sorts before or after the first.
        for other in ["session-2026-11-15T22-24-238a8f3d.jsonl", "session-2026-11-15T22-26-238a8f3d.jsonl"] {
            let other = folder.join(other);
            fs::write(&other, answer("d", "2026-11-15T22:25:10Z", 300) + "\n").unwrap();
            let mut chat = chat.clone();
            chat.read_new(Some(SESSION));
            assert_eq!(tokens(&chat), Some([71 + 271, 60, 14]));
            let whole = fs::read(&path).unwrap();
            fs::write(&path, "{}\n").unwrap();
            chat.read_new(Some(SESSION));
            fs::write(&path, whole).unwrap();
            chat.read_new(Some(SESSION));
            assert_eq!(tokens(&chat), Some([71 + 271, 60, 14]));
            fs::remove_file(other).unwrap();
        }
        for nobody in [None, Some("é"), Some("short"), Some("00000000-0")] {
            let mut chat = ChatRecord { files: BTreeMap::new(), used: BTreeMap::new(), ..chat.clone() };
            chat.read_new(nobody);
            assert_eq!(tokens(&chat), None, "{nobody:?}");
        }
    }
}

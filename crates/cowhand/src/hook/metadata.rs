//! The file in which an agent leaves facts for its hooks.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use cowhand_core::id::JobId;
use cowhand_core::roster::Agent;
use serde_json::Value;
use tracing::warn;

const USUAL: &str = "metadata.json";
const CAP: u64 = 64 << 10;

/// None if there is no such file; one that cannot be used is as good as none, and said.
pub(crate) fn read(agent: &Agent, directory: &Path, job: &JobId) -> Option<Value> {
    let path = directory.join(agent.settings.metadata_file.as_deref().unwrap_or(USUAL));
    match contents(&path) {
        Ok(metadata) => metadata,
        Err(error) => {
            warn!(%job, "its metadata in {} is of no use: {error}", path.display());
            None
        }
    }
}

fn contents(path: &Path) -> io::Result<Option<Value>> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    // The agent may have put anything there: to open a pipe would take for ever.
    if !found.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut text = Vec::new();
    File::open(path)?.take(CAP + 1).read_to_end(&mut text)?;
    if text.len() as u64 > CAP {
        return Err(io::Error::other(format!("it is longer than {CAP} bytes")));
    }
    Ok(Some(serde_json::from_slice(&text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_agent_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metadata.json");
        assert_eq!(contents(&path).unwrap(), None);
        fs::write(&path, r#"{"notify": true}"#).unwrap();
        assert_eq!(contents(&path).unwrap(), Some(serde_json::json!({"notify": true})));
        fs::write(&path, "{").unwrap();
        contents(&path).unwrap_err();
        fs::write(&path, format!("{}1", " ".repeat(70_000))).unwrap();
        assert_eq!(contents(&path).unwrap_err().to_string(), "it is longer than 65536 bytes");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(contents(&path).unwrap_err().to_string(), "it is no file");
    }
}

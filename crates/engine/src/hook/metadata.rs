//! The file in which an agent leaves facts for its hooks.

use std::path::{Path, PathBuf};

use cowhand_core::id::JobId;
use serde_json::Value;
use tracing::warn;

use cowhand_system::beneath::{NotOpened, Root};

const METADATA_CAP: u64 = 64 << 10;

/// The places in which an agent can leave its metadata.
#[derive(Debug)]
pub struct MetadataPlaces<'a> {
    /// Value of `metadata_file`.
    pub file: &'a str,
    /// Working directory of the agent.
    pub directory: &'a Path,
    /// Folder of all workspaces. In a workspace, the agent can write everything, also above its directory.
    pub workspaces: &'a Path,
    /// Directories in which sandboxed agents may write.
    pub writable: &'a [PathBuf],
}

/// Reads the metadata. Returns `None` if there is no such file, or if it cannot be used, which is logged.
pub fn read(place: &MetadataPlaces<'_>, job: &JobId) -> Option<Value> {
    match contents(place) {
        Ok(metadata) => metadata,
        Err(error) => {
            let file = place.directory.join(place.file);
            warn!(%job, "the metadata file {} is ignored: {error}", file.display());
            None
        }
    }
}

fn contents(place: &MetadataPlaces<'_>) -> Result<Option<Value>, NotOpened> {
    let text = match text(place) {
        Err(NotOpened::Missing) => return Ok(None),
        text => text?,
    };
    Ok(Some(serde_json::from_slice(&text).map_err(std::io::Error::from)?))
}

fn text(place: &MetadataPlaces<'_>) -> Result<Vec<u8>, NotOpened> {
    let file = Path::new(place.file);
    if let Some(below) = below_workspaces(place) {
        return match Root::open(place.workspaces)?
            .directory(&below.top)?
            .read(&below.rest.join(file), METADATA_CAP)
        {
            Err(NotOpened::Outside) => elsewhere(place, file),
            read => read,
        };
    }
    match Root::configured(place.directory, place.writable)?.read(file, METADATA_CAP) {
        Err(NotOpened::Outside) => elsewhere(place, file),
        read => read,
    }
}

/// Reads a file that the config names outside of the agent's directory.
fn elsewhere(place: &MetadataPlaces<'_>, file: &Path) -> Result<Vec<u8>, NotOpened> {
    let file = place.directory.join(file);
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(NotOpened::Outside);
    };
    Root::configured(folder, place.writable)?.read(Path::new(name), METADATA_CAP)
}

struct Below {
    top: PathBuf,
    rest: PathBuf,
}

/// Returns the name of the workspace of the directory, and the rest of its path.
fn below_workspaces(place: &MetadataPlaces<'_>) -> Option<Below> {
    let folder = place.workspaces.canonicalize().ok()?;
    let mut names = place.directory.strip_prefix(&folder).ok()?.components();
    let top = PathBuf::from(names.next()?.as_os_str());
    Some(Below { top, rest: names.as_path().to_owned() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use cowhand_core::roster::METADATA_FILE;

    use super::*;

    fn said(file: &str, directory: &Path, workspaces: &Path) -> Result<Option<Value>, String> {
        let place = MetadataPlaces { file, directory, workspaces, writable: &[directory.to_owned()] };
        contents(&place).map_err(|error| error.to_string())
    }

    #[test]
    fn whatever_the_agent_left() {
        let folder = tempfile::tempdir().unwrap();
        let work_dir = folder.path().canonicalize().unwrap();
        let path = work_dir.join("metadata.json");
        let found = || said(METADATA_FILE, &work_dir, Path::new("/nowhere"));
        assert_eq!(found(), Ok(None));
        fs::write(&path, r#"{"notify": true}"#).unwrap();
        assert_eq!(found(), Ok(Some(serde_json::json!({"notify": true}))));
        fs::write(&path, "{").unwrap();
        found().unwrap_err();
        fs::write(&path, format!("{}1", " ".repeat(70_000))).unwrap();
        assert_eq!(found(), Err("it is larger than 65536 bytes".to_owned()));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(found(), Err("it is not a regular file".to_owned()));
    }

    #[test]
    fn where_the_config_says() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for name in ["desk/out", "shared", "workspaces/job/sub", "outside"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["desk/out/m.json", "shared/m.json", "workspaces/job/m.json", "outside/m.json"] {
            fs::write(at(name), format!("\"{name}\"")).unwrap();
        }
        let link = NotOpened::Link.to_string();
        symlink(at("outside"), at("desk/led")).unwrap();
        symlink(at("outside/m.json"), at("shared/led.json")).unwrap();
        let absolute = at("shared/m.json").display().to_string();
        for (file, directory, expected) in [
            ("out/m.json", "desk", Ok("desk/out/m.json")),
            ("../shared/m.json", "desk", Ok("shared/m.json")),
            (absolute.as_str(), "desk", Ok("shared/m.json")),
            ("led/m.json", "desk", Err(&link)),
            ("../shared/led.json", "desk", Err(&link)),
            ("../desk/led/m.json", "desk", Err(&link)),
            ("../m.json", "workspaces/job/sub", Ok("workspaces/job/m.json")),
        ] {
            let found = said(file, &at(directory), &at("workspaces"));
            assert_eq!(found, expected.map(|text| Some(text.into())).map_err(Clone::clone), "{file}");
        }
        // The agent works below the top of its workspace, and can replace everything in between.
        fs::remove_dir(at("workspaces/job/sub")).unwrap();
        symlink(at("outside"), at("workspaces/job/sub")).unwrap();
        assert_eq!(said("m.json", &at("workspaces/job/sub"), &at("workspaces")), Err(link));
    }
}

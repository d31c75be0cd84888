//! The file in which an agent leaves facts for its hooks.

use std::path::Path;

use cowhand_core::id::JobId;
use serde_json::Value;
use tracing::warn;

use cowhand_system::beneath::{NotOpened, Root};
use cowhand_system::work_dir::WorkDirPath;

const METADATA_CAP: u64 = 64 << 10;

/// Where an agent leaves its metadata.
#[derive(Debug)]
pub struct MetadataLocation<'a> {
    /// Value of `metadata_file`.
    pub file: &'a str,
    /// Working directory of the agent.
    pub work_dir: WorkDirPath<'a>,
}

/// Reads the metadata. Returns `None` if there is no such file. A file that cannot be used is logged and ignored.
pub fn read(location: &MetadataLocation<'_>, job: &JobId) -> Option<Value> {
    match contents(location) {
        Ok(metadata) => metadata,
        Err(error) => {
            let file = location.work_dir.directory.join(location.file);
            warn!(%job, "the metadata file {} is ignored: {error}", file.display());
            None
        }
    }
}

fn contents(location: &MetadataLocation<'_>) -> Result<Option<Value>, NotOpened> {
    let text = match text(location) {
        Err(NotOpened::Missing) => return Ok(None),
        text => text?,
    };
    Ok(Some(serde_json::from_slice(&text).map_err(std::io::Error::from)?))
}

fn text(location: &MetadataLocation<'_>) -> Result<Vec<u8>, NotOpened> {
    let file = Path::new(location.file);
    // The path may lead out of the working directory, but not out of the workspace.
    let read = match location.work_dir.open_workspace()? {
        Some((workspace, below)) => workspace.read(&below.join(file), METADATA_CAP),
        None => location.work_dir.open()?.read(file, METADATA_CAP),
    };
    match read {
        Err(NotOpened::Outside) => read_outside(&location.work_dir, file),
        read => read,
    }
}

/// Reads a metadata file for which the config names a path outside of the agent's directory.
fn read_outside(work_dir: &WorkDirPath<'_>, file: &Path) -> Result<Vec<u8>, NotOpened> {
    let file = work_dir.directory.join(file);
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(NotOpened::Outside);
    };
    Root::configured(folder, work_dir.writable)?.read(Path::new(name), METADATA_CAP)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use cowhand_core::roster::METADATA_FILE;

    use super::*;

    fn read_in(file: &str, directory: &Path, workspaces: &Path) -> Result<Option<Value>, String> {
        let writable = [directory.to_owned()];
        let work_dir = WorkDirPath { directory, workspaces, writable: &writable };
        contents(&MetadataLocation { file, work_dir }).map_err(|error| error.to_string())
    }

    #[test]
    fn only_a_small_regular_file_with_valid_json_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let work_dir = folder.path().canonicalize().unwrap();
        let path = work_dir.join("metadata.json");
        let found = || read_in(METADATA_FILE, &work_dir, Path::new("/nowhere"));
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
    fn files_outside_of_the_directory_are_not_read_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for name in ["work/out", "shared", "workspaces/job/sub", "outside"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["work/out/m.json", "shared/m.json", "workspaces/job/m.json", "outside/m.json"] {
            fs::write(at(name), format!("\"{name}\"")).unwrap();
        }
        let link = NotOpened::Link.to_string();
        symlink(at("outside"), at("work/led")).unwrap();
        symlink(at("outside/m.json"), at("shared/led.json")).unwrap();
        let absolute = at("shared/m.json").display().to_string();
        for (file, directory, expected) in [
            ("out/m.json", "work", Ok("work/out/m.json")),
            ("../shared/m.json", "work", Ok("shared/m.json")),
            (absolute.as_str(), "work", Ok("shared/m.json")),
            ("led/m.json", "work", Err(&link)),
            ("../shared/led.json", "work", Err(&link)),
            ("../work/led/m.json", "work", Err(&link)),
            ("../m.json", "workspaces/job/sub", Ok("workspaces/job/m.json")),
        ] {
            let found = read_in(file, &at(directory), &at("workspaces"));
            assert_eq!(found, expected.map(|text| Some(text.into())).map_err(Clone::clone), "{file}");
        }
        // The agent works below the top of its workspace, and can replace every folder from there to its directory.
        fs::remove_dir(at("workspaces/job/sub")).unwrap();
        symlink(at("outside"), at("workspaces/job/sub")).unwrap();
        assert_eq!(read_in("m.json", &at("workspaces/job/sub"), &at("workspaces")), Err(link));
    }
}

//! Counts the files that are not items. The count is requested often, so most files are read again only if they have
//! changed.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use cowhand_core::work::WorkItemId;

use super::folder::{FileVersion, MAX_ITEM_BYTES};
use super::item::FileStatus;
use super::transitions::ItemError;
use super::{Inner, NAME};
use crate::WorkSourceError;

/// Minimum age of the last change of a file whose result is remembered. The times of files advance in steps, so two
/// changes shortly after each other can have the same time, and the second change would not be noticed.
const MIN_CHANGE_AGE: Duration = Duration::from_secs(2);

/// Remembered files, by name without `.md`. Each has its version, and a flag that is true if that version is not an
/// item.
pub(super) type KnownFiles = HashMap<String, (FileVersion, bool)>;

impl Inner {
    pub(super) fn count_skipped(&self) -> Result<usize, WorkSourceError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut skipped, mut seen) = (0, KnownFiles::new());
        for stem in self.folder.stems().map_err(|error| self.unusable(error))? {
            // The version is read before the file, so that a change between the two reads is noticed the next time.
            let version = self.folder.version(&stem);
            let (is_skipped, is_lasting) = match known.get(&stem) {
                Some((before, is_skipped)) if Some(*before) == version => (*is_skipped, true),
                _ => self.judge(&stem),
            };
            skipped += usize::from(is_skipped);
            if let Some(version) = version.filter(|version| is_lasting && is_old(*version)) {
                seen.insert(stem, (version, is_skipped));
            }
        }
        *known = seen;
        Ok(skipped)
    }

    /// Returns whether a file is not an item, and whether this result is valid until the file changes.
    fn judge(&self, stem: &str) -> (bool, bool) {
        let Ok(id) = WorkItemId::new(NAME, stem) else { return (true, false) };
        match self.read_item(&id, MAX_ITEM_BYTES) {
            // The result for a claimed file is not remembered: after its claim has expired, the file is an item only if
            // it can be edited.
            Ok((item, _)) => (false, !matches!(item.status, FileStatus::Claimed { .. })),
            Err(ItemError::Missing(_)) => (false, false),
            Err(ItemError::Unusable(..)) => (true, true),
            Err(ItemError::Failed(..)) => (true, false),
        }
    }
}

fn is_old(version: FileVersion) -> bool {
    let changed = Duration::from_secs(u64::try_from(version.changed.0).unwrap_or_default());
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + changed).is_ok_and(|age| age > MIN_CHANGE_AGE)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use cowhand_system::clock::Clock;

    use super::*;
    use crate::files::FilesWorkSource;

    fn wait_until_known(source: &FilesWorkSource, files: usize) {
        let deadline = Instant::now() + Duration::from_mins(1);
        while source.0.known.lock().unwrap().len() != files {
            assert!(Instant::now() < deadline, "{:?}", source.0.known);
            std::thread::sleep(Duration::from_millis(50));
            source.0.count_skipped().unwrap();
        }
    }

    #[test]
    fn a_file_is_read_again_only_if_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::test("2026-01-01T00:00:00Z".parse().unwrap());
        let source = FilesWorkSource::new(folder.path(), clock.clone());
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("fine.md", "---\ntitle: Fine\n---\nText.\n");
        write("closed.md", "---\n{status: available}\n---\nText.\n");
        write("bad name.md", "Text.\n");
        let until = "claimed_until: 2026-01-01T01:00:00Z";
        write("claimed.md", &format!("---\n{{status: claimed, {until}}}\n---\nText.\n"));
        assert_eq!(source.0.count_skipped().unwrap(), 2);
        wait_until_known(&source, 2);
        // The known results are used: after they are inverted, `fine` is counted and `closed` is not.
        for (_, is_skipped) in source.0.known.lock().unwrap().values_mut() {
            *is_skipped = !*is_skipped;
        }
        assert_eq!(source.0.count_skipped().unwrap(), 2);
        source.0.known.lock().unwrap().get_mut("closed").unwrap().1 = true;
        assert_eq!(source.0.count_skipped().unwrap(), 3, "`fine` is not read again");
        write("fine.md", "---\ntitle: Good\n---\nText.\n");
        assert_eq!(source.0.count_skipped().unwrap(), 2, "`fine` has changed and is read again");
        write("fine.md", "---\n{title: X}\n---\nText.\n");
        assert_eq!(source.0.count_skipped().unwrap(), 3);
        clock.set("2026-01-01T02:00:00Z".parse().unwrap());
        assert_eq!(source.0.count_skipped().unwrap(), 4, "`claimed` has expired and cannot be edited");
        fs::remove_file(folder.path().join("closed.md")).unwrap();
        assert_eq!(source.0.count_skipped().unwrap(), 3);
        assert!(!source.0.known.lock().unwrap().contains_key("closed"));
    }
}

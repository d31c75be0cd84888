//! The control group of an attempt, if this machine allows control groups. Killing the group kills every process in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub(super) struct Cgroup {
    path: PathBuf,
    /// Group to which [`Self::leave`] returns.
    own_group: PathBuf,
}

impl Cgroup {
    /// Creates a group below the group of this process, on the mount of version 2: `/sys/fs/cgroup` or, on machines
    /// with both versions, another path.
    pub(super) fn make(name: &str) -> io::Result<Self> {
        let own_group = own_group_folder()?;
        Self::make_in(&own_group.clone(), name, own_group)
    }

    /// Creates a group in `parent`. [`Self::leave`] returns to `own_group`.
    pub(super) fn make_in(parent: &Path, name: &str, own_group: PathBuf) -> io::Result<Self> {
        let path = parent.join(format!("{}{name}", super::process::CGROUP_PREFIX));
        fs::create_dir(&path)?;
        if path.join("cgroup.kill").exists() {
            return Ok(Self { path, own_group });
        }
        fs::remove_dir(&path)?;
        Err(io::Error::other("this kernel has no cgroup.kill"))
    }

    /// Returns an existing group; `None` if it does not exist.
    pub(super) fn at(path: PathBuf) -> Option<Self> {
        let own_group = path.parent()?.to_owned();
        path.join("cgroup.procs").exists().then_some(Self { path, own_group })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn leave(&self) -> io::Result<()> {
        move_self(&self.own_group)
    }

    pub(super) fn has_processes(&self) -> io::Result<bool> {
        match fs::read_to_string(self.path.join("cgroup.procs")) {
            Ok(processes) => Ok(!processes.trim().is_empty()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            // The group was removed between opening and reading.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// Pauses all processes in the group. [`Self::is_frozen`] returns true once all of them are paused.
    pub(super) fn freeze(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.freeze"), "1")
    }

    pub(super) fn thaw(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.freeze"), "0")
    }

    pub(super) fn is_frozen(&self) -> bool {
        let events = fs::read_to_string(self.path.join("cgroup.events")).unwrap_or_default();
        events.lines().any(|line| line == "frozen 1")
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_dir(&self.path)
    }
}

pub(super) fn own_group_folder() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    own_group(&mounts, &groups).ok_or_else(|| io::Error::other("no cgroup v2 here"))
}

pub(super) fn move_self(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Returns the folder of a process's group of version 2. `mounts` is the text of `/proc/self/mountinfo`, and `groups`
/// is the text of the process's `/proc/PID/cgroup`.
pub(super) fn own_group(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let fields: Vec<&str> = left.split(' ').collect();
        (right.split(' ').next() == Some("cgroup2")).then_some((*fields.get(3)?, *fields.get(4)?))
    })?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A container sees its own group mounted as the root, so the path may lie outside the mount.
    let below = own.strip_prefix(mount.0.trim_end_matches('/')).unwrap_or(own);
    Some(Path::new(mount.1).join(below.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cgroup_is_found_in_every_layout() {
        for (case, mounts, groups, expected) in [
            (
                "unified",
                "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw",
                "0::/user.slice/user-1000.slice/session.scope",
                Some("/sys/fs/cgroup/user.slice/user-1000.slice/session.scope"),
            ),
            (
                "hybrid",
                "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw",
                "9:name=systemd:/\n4:memory:/process_api/82\n0::/",
                Some("/sys/fs/cgroup/unified"),
            ),
            (
                "inside a container",
                "30 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw",
                "0::/docker/abc",
                Some("/sys/fs/cgroup"),
            ),
            (
                "version 1 only",
                "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids",
                "4:memory:/x",
                None,
            ),
        ] {
            assert_eq!(own_group(mounts, groups), expected.map(PathBuf::from), "{case}");
        }
    }
}

//! bubblewrap: the program `bwrap` creates separate namespaces for files, processes, IPC and the host name. It creates
//! one for the network too, unless the sandbox plan allows the whole network.
//!
//! Paths that are not bound do not exist inside.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cowhand_core::sandbox::NetworkAccess;

use super::forward;
use crate::start::SandboxPlan;

/// Builds the command line. `cowhand` is the path of cowhand's program; `socket` is the proxy's socket, if there is a
/// proxy.
pub(super) fn argv(
    sandbox: &SandboxPlan,
    directory: &Path,
    argv: &[String],
    cowhand: &Path,
    socket: Option<&Path>,
) -> Vec<OsString> {
    let mut arguments = Arguments::default();
    arguments.add(["bwrap", "--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc"]);
    arguments.add(["--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL", "--hostname", "cowhand"]);
    let own_network = sandbox.network != NetworkAccess::All;
    if own_network {
        arguments.add(["--unshare-net"]);
    }
    // The root is mounted first, because other mounts are made over it.
    if sandbox.read.iter().any(|path| path == Path::new(ROOT)) {
        arguments.pair("--ro-bind", Path::new(ROOT), Path::new(ROOT));
    }
    // A root user could change the kernel's settings through `/proc`, so `/proc` is read-only.
    arguments.add(["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--tmpfs", TEMPORARY]);
    if let Some(home) = &sandbox.home {
        arguments.0.extend(["--dir".into(), home.into()]);
    }
    // A readable or writable path inside a hidden folder is bound after that folder is covered.
    arguments.files(sandbox, |path| !is_in_hidden(sandbox, path));
    arguments.files(sandbox, |path| is_in_hidden(sandbox, path));
    for (source, target) in &sandbox.home_replacements {
        arguments.pair("--bind", source, target);
    }
    // The folder of the job socket has the same path as outside. The mount is read-only: connecting to a socket needs
    // no write access to the mount.
    if let Some(socket) = &sandbox.job_socket_folder {
        arguments.pair("--ro-bind", socket, socket);
    }
    arguments.pair("--ro-bind", cowhand, Path::new(forward::PROGRAM_PATH));
    if let Some(socket) = socket {
        arguments.pair("--bind", socket, Path::new(forward::SOCKET_PATH));
    }
    arguments.add(["--chdir"]);
    arguments.0.push(directory.into());
    arguments.add(["--"]);
    let proxy_argument = if socket.is_some() { forward::WITH_PROXY } else { forward::WITHOUT_PROXY };
    let network = if own_network { forward::OWN_NETWORK } else { forward::SHARED_NETWORK };
    arguments.add([forward::PROGRAM_PATH, forward::ENCLOSED_VERB, proxy_argument, network]);
    arguments.0.push(sandbox.program.clone().into());
    arguments.0.extend(argv.iter().skip(1).map(Into::into));
    arguments.0
}

const ROOT: &str = "/";
/// Folder of temporary files; every sandbox has its own.
const TEMPORARY: &str = "/tmp";

fn is_in_hidden(sandbox: &SandboxPlan, path: &Path) -> bool {
    sandbox.hidden.iter().any(|hidden| path.starts_with(hidden))
}

/// Folders in which nothing is bound: each sandbox has its own `/proc` and `/dev`. `/sys` exists only if the whole root
/// is bound.
const NEVER_BOUND: [&str; 3] = ["/proc", "/dev", "/sys"];

/// Sorts paths, parents before children, and drops those in `NEVER_BOUND`.
fn sorted<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<&'a PathBuf> {
    let mut paths: Vec<&PathBuf> = paths.into_iter().collect();
    paths.sort_by_key(|path| path.components().count());
    paths.retain(|path| !NEVER_BOUND.iter().any(|made| path.starts_with(made)));
    paths
}

/// Drops paths that lie in another path of the list. A path below a link of the list is replaced by its real path,
/// because nothing can be mounted or created below the link.
fn without_nested(paths: &[&PathBuf]) -> Vec<PathBuf> {
    let (links, others): (Vec<&PathBuf>, Vec<&PathBuf>) =
        paths.iter().copied().partition(|path| path.is_symlink());
    let folders: Vec<_> = others.iter().filter(|path| path.is_dir()).collect();
    let inside = |path: &PathBuf| folders.iter().any(|folder| path != **folder && path.starts_with(folder));
    let real = |path: &PathBuf| {
        let link = links.iter().find(|link| path != **link && path.starts_with(link));
        let below = link.and_then(|link| Some(link.canonicalize().ok()?.join(path.strip_prefix(link).ok()?)));
        below.unwrap_or_else(|| path.clone())
    };
    let mut seen = HashSet::new();
    let real: Vec<PathBuf> =
        paths.iter().map(|path| real(path)).filter(|path| seen.insert(path.clone())).collect();
    sorted(&real).into_iter().filter(|path| !inside(path)).cloned().collect()
}

fn below<'a>(inner: &'a [PathBuf], outer: &[&PathBuf]) -> Vec<&'a PathBuf> {
    let holds = |inner: &PathBuf| outer.iter().any(|outer| inner.starts_with(outer));
    sorted(inner).into_iter().filter(|inner| holds(inner)).collect()
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add<const N: usize>(&mut self, arguments: [&str; N]) {
        self.0.extend(arguments.map(OsString::from));
    }

    fn pair(&mut self, option: &str, from: &Path, to: &Path) {
        self.0.extend([option.into(), from.into(), to.into()]);
    }

    /// Binds the selected paths, and then covers the hidden paths in them.
    fn files(&mut self, sandbox: &SandboxPlan, selected: impl Fn(&Path) -> bool) {
        let read: Vec<_> = sandbox.read.iter().filter(|path| selected(path)).collect();
        let root = read.iter().any(|path| path.as_path() == Path::new(ROOT));
        // If the root is bound, only paths in `/tmp`, which is a separate mount, are missing.
        let there = |path: &Path| root && !path.starts_with(TEMPORARY);
        let missing: Vec<_> = read.iter().copied().filter(|path| !there(path)).collect();
        let write: Vec<_> = sandbox.write.iter().filter(|path| selected(path)).collect();
        for path in without_nested(&missing) {
            self.read(&path);
        }
        for path in below(&sandbox.hidden, &read) {
            self.hide(path);
        }
        for path in sorted(write.iter().copied()) {
            self.pair("--bind", path, path);
        }
        for path in below(&sandbox.pinned(), &write) {
            self.pair("--bind", path, path);
        }
        for path in below(&sandbox.read_only, &write) {
            self.pair("--ro-bind", path, path);
        }
        for path in below(&sandbox.hidden, &write) {
            self.hide(path);
        }
    }

    /// Binds a path read-only. A link remains a link, because some programs read the link by which they were started.
    fn read(&mut self, path: &Path) {
        match path.read_link() {
            Ok(target) => self.pair("--symlink", &target, path),
            Err(_) => self.pair("--ro-bind-try", path, path),
        }
    }

    /// Mounts an empty folder or `/dev/null` over a path.
    fn hide(&mut self, path: &Path) {
        if path.is_dir() {
            self.0.extend(["--tmpfs".into(), path.into()]);
        } else {
            self.pair("--ro-bind", Path::new("/dev/null"), path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// `bin` is a link to `usr/bin` on many machines, and the program of an agent can be a link in it.
    #[test]
    fn path_below_a_link_is_not_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(path("usr/bin")).unwrap();
        fs::create_dir_all(path("opt/tools")).unwrap();
        fs::write(path("usr/bin/dash"), "").unwrap();
        fs::write(path("opt/tools/x"), "").unwrap();
        symlink("dash", path("usr/bin/sh")).unwrap();
        symlink("usr/bin", path("bin")).unwrap();
        symlink("opt/tools", path("tools")).unwrap();
        let read = ["usr", "bin", "bin/sh", "tools", "tools/x"].map(path);
        let expected = ["usr", "bin", "tools", "opt/tools/x"].map(path);
        assert_eq!(without_nested(&read.iter().collect::<Vec<_>>()), expected);
    }
}

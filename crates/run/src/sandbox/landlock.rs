//! Landlock: a process drops rights for itself and all its descendants.
//!
//! Landlock needs no other program and no privilege. It restricts files, TCP ports, signals and abstract sockets.
//! Seccomp filters (`sockets`) restrict the rest of the network.

use std::fs;
use std::path::{Path, PathBuf};

use cowhand_core::sandbox::NetworkAccess;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};

use super::SandboxError;
use crate::start::SandboxPlan;

/// First version that restricts signals. With an older version, an agent could end its own keeper.
const MIN_LANDLOCK_ABI: ABI = ABI::V6;

/// Devices that most programs use, and terminals.
const DEVICE_FILES: [&str; 9] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/fd",
];

fn ruleset(network: bool) -> Result<landlock::RulesetCreated, RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(MIN_LANDLOCK_ABI))?
        .scope(Scope::from_all(MIN_LANDLOCK_ABI))?;
    if network { ruleset.handle_access(AccessNet::from_all(MIN_LANDLOCK_ABI))? } else { ruleset }.create()
}

pub(super) fn refusal() -> Option<SandboxError> {
    ruleset(true).err().map(SandboxError::NoLandlock)
}

/// Returns the kernel's Landlock version. To find it out, a separate thread restricts itself and ends.
pub(super) fn version() -> Option<String> {
    let asked = std::thread::spawn(|| ruleset(false).and_then(landlock::RulesetCreated::restrict_self));
    let status = asked.join().ok()?.ok()?;
    match status.landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            let version = kernel_abi.unwrap_or(effective_abi as i32);
            Some(format!("ABI {version}"))
        }
        _ => None,
    }
}

/// Restricts this process and everything that it executes.
pub(super) fn restrict(sandbox: &SandboxPlan) -> Result<(), RulesetError> {
    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::from_all(MIN_LANDLOCK_ABI)
        & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let device = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::IoctlDev;
    let mut readable = Vec::new();
    for path in &sandbox.read {
        // A hidden folder that contains the path does not hide the path.
        let hidden: Vec<_> =
            sandbox.hidden.iter().filter(|hidden| !path.starts_with(hidden)).cloned().collect();
        collect_allowed(path, &hidden, &mut readable);
    }
    let restricts_tcp = !matches!(sandbox.network, NetworkAccess::All);
    let mut rules = ruleset(restricts_tcp)?;
    let allowed = readable
        .iter()
        .map(|path| (path.as_path(), read))
        .chain(sandbox.write.iter().map(|path| (path.as_path(), write)))
        .chain(DEVICE_FILES.iter().map(|path| (Path::new(path), device)));
    for (path, access) in allowed {
        rules = allow(rules, path, access)?;
    }
    if let NetworkAccess::Ports(ports) = &sandbox.network {
        for port in ports {
            rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
    }
    rules.restrict_self().map(drop)
}

/// Adds a rule for a path. A path that does not exist needs no rule.
fn allow(
    rules: landlock::RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<landlock::RulesetCreated, RulesetError> {
    let (Ok(opened), Ok(about)) = (PathFd::new(path), fs::metadata(path)) else { return Ok(rules) };
    let access = if about.is_dir() { access } else { access & AccessFs::from_file(MIN_LANDLOCK_ABI) };
    rules.add_rule(PathBeneath::new(opened, access))
}

/// Collects the paths to allow. Landlock cannot exclude a part of an allowed folder, so if something in a folder is
/// hidden, the other entries of the folder are allowed one by one.
fn collect_allowed(path: &Path, hidden: &[PathBuf], found: &mut Vec<PathBuf>) {
    if hidden.iter().any(|hidden| path.starts_with(hidden)) {
        return;
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(path)) {
        found.push(path.to_owned());
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let below = entry.path();
        // A rule for a link would allow its target, which may be hidden. So links are skipped.
        if !below.is_symlink() {
            collect_allowed(&below, hidden, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_paths_are_excluded_from_the_allowed_paths() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a", "b/c", "b/d", "e"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        std::os::unix::fs::symlink(at("b/c"), at("link")).unwrap();
        let allowed_without = |hidden: &[PathBuf]| {
            let mut found = Vec::new();
            collect_allowed(folder.path(), hidden, &mut found);
            found.sort();
            found
        };
        assert_eq!(allowed_without(&[]), [folder.path()]);
        assert_eq!(allowed_without(&[PathBuf::from("/elsewhere")]), [folder.path()]);
        assert_eq!(allowed_without(&[at("b/c")]), [at("a"), at("b/d"), at("e")]);
        assert_eq!(allowed_without(&[at("b"), at("e")]), [at("a")]);
        assert!(allowed_without(&[folder.path().to_owned()]).is_empty());
    }
}

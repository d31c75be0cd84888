//! The seccomp filter of containers.
//!
//! Docker's filter denies access to the kernel keyring of the user, which is the same inside and outside. Podman's
//! filter does not, so containers of Podman get a stricter copy of it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::DockerError;

/// Files of Podman's filter. The first existing file is used.
const FILTER_FILES: [&str; 2] = ["/etc/containers/seccomp.json", "/usr/share/containers/seccomp.json"];
/// System calls that the filter no longer allows; `socket` is then allowed again for some kinds of sockets. 32-bit
/// programs can create any socket with `socketcall`. The file mode of `openat2` is in memory, which a filter cannot
/// read. Programs use other calls if these two are missing.
const CLOSED_SYSCALLS: [&str; 6] = ["keyctl", "add_key", "request_key", "socket", "socketcall", "openat2"];
/// Calls that set a mode, and the index of the mode argument.
const MODE_SYSCALLS: [(&str, u32); 7] = [
    ("chmod", 1),
    ("fchmod", 1),
    ("fchmodat", 2),
    ("fchmodat2", 2),
    ("mknod", 1),
    ("mknodat", 2),
    ("creat", 1),
];
/// Calls that may create a file, and the index of the flags argument. The mode is the next argument.
const OPEN_SYSCALLS: [(&str, u32); 2] = [("open", 1), ("openat", 2)];

/// Writes the filter into this folder.
pub(super) fn write(folder: &Path) -> Result<PathBuf, DockerError> {
    let found = FILTER_FILES.iter().find_map(|file| fs::read(file).ok());
    let found = found.ok_or(DockerError::NoFilter(FILTER_FILES[1]))?;
    let file = folder.join("seccomp.json");
    let text = narrowed(&found)?.to_string();
    let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&file);
    let written = made.and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Ok(()) => Ok(file),
        Err(error) => Err(DockerError::FilterNotWritten { file, error }),
    }
}

/// Makes the filter stricter: no calls for the kernel's keyring, only sockets of IP, Unix and netlink routes, and no
/// set-user-id and set-group-id bits in file modes.
fn narrowed(filter: &[u8]) -> Result<Value, DockerError> {
    let strange = || DockerError::UnknownFilter;
    let mut filter: Value = serde_json::from_slice(filter).map_err(|_| strange())?;
    // If a filter allows all calls that it does not name, removing names does not make it stricter.
    if !filter["defaultAction"].as_str().is_some_and(|action| action.starts_with("SCMP_ACT_ERRNO")) {
        return Err(strange());
    }
    for rule in filter["syscalls"].as_array_mut().ok_or_else(strange)? {
        let names = rule["names"].as_array_mut().ok_or_else(strange)?;
        names.retain(|name| !name.as_str().is_some_and(is_replaced));
    }
    let rules = filter["syscalls"].as_array_mut().ok_or_else(strange)?;
    // A rule without names has no effect.
    rules.retain(|rule| rule["names"] != json!([]));
    rules.extend(sockets());
    rules.extend(modes());
    Ok(filter)
}

/// Returns true if the rules for a call are replaced or removed.
fn is_replaced(name: &str) -> bool {
    let mut named = CLOSED_SYSCALLS
        .into_iter()
        .chain(MODE_SYSCALLS.into_iter().chain(OPEN_SYSCALLS).map(|(name, _)| name));
    named.any(|named| named == name)
}

/// Returns the rules that allow sockets. Other sockets get the default action of the filter.
fn sockets() -> impl Iterator<Item = Value> {
    let is = |argument: u32, value: i32| json!({"index": argument, "value": value, "op": "SCMP_CMP_EQ"});
    let (domain, protocol) = (0, 2);
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6].map(|family| json!([is(domain, family)]));
    let routes = json!([is(domain, libc::AF_NETLINK), is(protocol, libc::NETLINK_ROUTE)]);
    let allow = |args| json!({"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": args});
    families.into_iter().chain([routes]).map(allow)
}

/// Returns the rules that allow modes without the set-user-id and set-group-id bits. A file that the container shares
/// with the host would have these bits on the host too.
fn modes() -> impl Iterator<Item = Value> {
    const SPECIAL: u32 = libc::S_ISUID | libc::S_ISGID;
    const MAKES_FILE: i32 = libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY);
    let lacks = |argument: u32, bits: u32| json!({"index": argument, "value": bits, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"});
    let allow = |name: &str, argument: u32, bits: u32| json!({"names": [name], "action": "SCMP_ACT_ALLOW", "args": [lacks(argument, bits)]});
    let changes = MODE_SYSCALLS.map(|(name, mode)| allow(name, mode, SPECIAL));
    // If no flag of `MAKES_FILE` is set, the mode is ignored and may have any value.
    let opens = OPEN_SYSCALLS.map(|(name, flags)| {
        [allow(name, flags, MAKES_FILE.cast_unsigned()), allow(name, flags + 1, SPECIAL)]
    });
    changes.into_iter().chain(opens.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_socket_system_calls_are_narrowed_in_the_filter() {
        let filter = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            {"names": ["read", "keyctl", "socketcall"], "action": "SCMP_ACT_ALLOW"}, {"names": ["add_key", "request_key"]},
            {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 16, "op": "SCMP_CMP_NE"}]},
        ]});
        let left = narrowed(filter.to_string().as_bytes()).unwrap();
        let [read, others @ ..] = left["syscalls"].as_array().unwrap().as_slice() else { panic!("{left}") };
        assert_eq!(*read, json!({"names": ["read"], "action": "SCMP_ACT_ALLOW"}));
        let (sockets, modes) = others.split_at(4);
        assert!(sockets.iter().all(|rule| rule["names"] == json!(["socket"])), "{left}");
        assert!(modes.iter().all(|rule| rule["args"][0]["op"] == "SCMP_CMP_MASKED_EQ"), "{left}");
        let families: Vec<_> =
            sockets.iter().map(|rule| rule["args"][0]["value"].as_i64().unwrap()).collect();
        assert_eq!(families, [1, 2, 10, 16]);
        assert_eq!(sockets[3]["args"][1], json!({"index": 2, "value": 0, "op": "SCMP_CMP_EQ"}));
        for strange in ["", "{}", r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[]}"#] {
            assert!(narrowed(strange.as_bytes()).is_err(), "{strange}");
        }
    }
}

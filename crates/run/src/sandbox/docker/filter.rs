//! The seccomp filter of containers.
//!
//! Docker's filter denies access to the kernel keyring of the user, which is the same inside and outside. Podman's does
//! not, so Podman gets its own filter without those calls.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Podman's filter; the first existing file counts.
const FILTER_FILES: [&str; 2] = ["/etc/containers/seccomp.json", "/usr/share/containers/seccomp.json"];
const KEYRING_SYSCALLS: [&str; 3] = ["keyctl", "add_key", "request_key"];

/// Writes the filter into this folder.
pub(super) fn write(folder: &Path) -> Result<PathBuf, String> {
    let found = FILTER_FILES.iter().find_map(|file| fs::read(file).ok());
    let found = found.ok_or_else(|| {
        format!(
            "Podman's seccomp filter is not there ({}), so the kernel's keys cannot be kept from the agent",
            FILTER_FILES[1]
        )
    })?;
    let file = folder.join("seccomp.json");
    let text = without_keys(&found)?.to_string();
    let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&file);
    let written = made.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
    Ok(file)
}

fn without_keys(filter: &[u8]) -> Result<Value, String> {
    let strange = || {
        "Podman's seccomp filter is not understood, so the kernel's keys cannot be kept from the agent"
            .to_owned()
    };
    let mut filter: Value = serde_json::from_slice(filter).map_err(|_| strange())?;
    // A filter that allows unnamed calls does not become stricter by naming fewer.
    if !filter["defaultAction"].as_str().is_some_and(|action| action.starts_with("SCMP_ACT_ERRNO")) {
        return Err(strange());
    }
    for rule in filter["syscalls"].as_array_mut().ok_or_else(strange)? {
        let names = rule["names"].as_array_mut().ok_or_else(strange)?;
        names.retain(|name| !name.as_str().is_some_and(|name| KEYRING_SYSCALLS.contains(&name)));
    }
    // A rule without names has no effect.
    filter["syscalls"]
        .as_array_mut()
        .ok_or_else(strange)?
        .retain(|rule| rule["names"] != serde_json::json!([]));
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_left_out() {
        let filter = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            {"names": ["read", "keyctl"], "action": "SCMP_ACT_ALLOW"}, {"names": ["add_key", "request_key"]},
        ]});
        let left = without_keys(filter.to_string().as_bytes()).unwrap();
        assert_eq!(left["syscalls"], json!([{"names": ["read"], "action": "SCMP_ACT_ALLOW"}]));
        for strange in ["", "{}", r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[]}"#] {
            assert!(without_keys(strange.as_bytes()).is_err(), "{strange}");
        }
    }
}

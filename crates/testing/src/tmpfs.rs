//! A small disk in memory, which can be filled.

use std::fs;
use std::path::Path;

use crate::disk::Namespace;

/// Mounts a disk of this many megabytes in memory.
pub fn mount(namespace: &Namespace, mount_point: &Path, megabytes: u32) {
    let (size, mount_point) = (format!("size={megabytes}m"), mount_point.to_str().unwrap());
    namespace.run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", mount_point]);
}

/// Fills all free space of a disk that has less than 64 MiB.
pub fn fill(namespace: &Namespace, mount_point: &Path) {
    let filler = namespace.outside_path(mount_point).join("filler");
    let full = fs::write(&filler, vec![0_u8; 64 << 20]);
    assert!(full.is_err(), "the disk is full");
}

/// Frees the space that [`fill`] has filled.
pub fn free(namespace: &Namespace, mount_point: &Path) {
    fs::remove_file(namespace.outside_path(mount_point).join("filler")).unwrap();
}

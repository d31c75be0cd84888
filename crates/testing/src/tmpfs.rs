//! A small disk in memory, which can be filled.

use std::fs;
use std::path::Path;

use crate::disk::Namespace;

/// Mounts a disk of this many megabytes in memory.
pub fn mount(namespace: &Namespace, place: &Path, megabytes: u32) {
    let (size, place) = (format!("size={megabytes}m"), place.to_str().unwrap());
    namespace.run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", place]);
}

/// Fills all free space.
pub fn fill(namespace: &Namespace, place: &Path) {
    let filler = namespace.seen(place).join("filler");
    let full = fs::write(&filler, vec![0_u8; 64 << 20]);
    assert!(full.is_err(), "the disk is full");
}

/// Frees the space.
pub fn free(namespace: &Namespace, place: &Path) {
    fs::remove_file(namespace.seen(place).join("filler")).unwrap();
}

//! Descriptors inherited from the parent process are not passed to agents, nor to a daemon in the background.

use std::io;

/// Closes all descriptors except stdin, stdout and stderr.
pub(super) fn close_others() -> io::Result<()> {
    close_range(0)
}

/// Marks all descriptors except stdin, stdout and stderr to be closed when a child is executed.
pub fn close_on_exec() -> io::Result<()> {
    let flags = i32::try_from(libc::CLOSE_RANGE_CLOEXEC).map_err(io::Error::other)?;
    close_range(flags)
}

fn close_range(flags: i32) -> io::Result<()> {
    #[expect(
        unsafe_code,
        reason = "no safe crate offers close_range, and closing one by one needs as much unsafe"
    )]
    // SAFETY: the call takes three numbers. `close_on_exec` only marks descriptors, so every owner in this process keeps
    // its descriptor. Only a new copy of the spawner calls `close_others`: the copy never returns to the code that owns
    // descriptors, so none of these owners is used or dropped.
    let answer = unsafe { libc::close_range(3, libc::c_uint::MAX, flags) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

//! Descriptors inherited from the parent process are not passed to agents, nor to a daemon in the background.

use std::io;

/// Marks all descriptors except stdin, stdout and stderr to be closed when a child is executed.
pub fn close_on_exec() -> io::Result<()> {
    let flags = i32::try_from(libc::CLOSE_RANGE_CLOEXEC).map_err(io::Error::other)?;
    #[expect(
        unsafe_code,
        reason = "no safe crate offers close_range, and closing one by one needs as much unsafe"
    )]
    // SAFETY: the call takes three numbers and only marks descriptors. It closes none, so every owner in this process
    // keeps its descriptor.
    let answer = unsafe { libc::close_range(3, libc::c_uint::MAX, flags) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

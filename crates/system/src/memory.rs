//! The memory of this process.

/// Gives back to the system the free memory that the allocator keeps. glibc keeps the memory of a loaded config for
/// each thread that loaded one, so a daemon would grow with every reload. Other allocators need no such call.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "no safe crate has malloc_trim")]
        // SAFETY: the call takes a number and gives back only pages that hold no allocation. Any thread may make the
        // call at any time.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

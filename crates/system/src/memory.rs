//! The memory of this process.

/// Returns memory that is free, but that the allocator keeps, to the system. glibc keeps the memory of a loaded config for
/// each thread that loaded one, so that a daemon would grow with every reload. Other allocators need no such call.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "no safe crate has malloc_trim")]
        // SAFETY: the call takes a number and only returns pages that hold no allocation. It may be called by any thread at
        // any time.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

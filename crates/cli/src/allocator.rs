//! The C library's allocator, which keeps what each thread has freed.

/// Limits the number of heaps to that of the threads that serve clients. To be called before they start.
///
/// Each of the threads that work for a moment would otherwise keep the memory of its largest request: a request with 60,000 names
/// left up to 30 MB in each of three heaps.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a call of the C library")]
pub(crate) fn limit_heaps(threads: u16) {
    // SAFETY: `mallopt` takes two numbers and changes only settings of the allocator, under its own lock. It returns 0 for an
    // unknown setting, and the broker then uses more memory.
    let _known = unsafe { libc::mallopt(libc::M_ARENA_MAX, threads.into()) };
}

/// Other allocators have no such heaps.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn limit_heaps(_threads: u16) {}

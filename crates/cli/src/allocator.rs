//! The C library's allocator, which keeps what each thread has freed.

/// Heaps besides those of the threads that serve clients: for wide requests, checks of batches, the disk and lookups.
const OTHER_HEAPS: i32 = 4;

/// Limits the number of heaps. To be called before the threads start.
///
/// Each of the many threads that can work for a moment would otherwise keep the memory of its largest request. With fewer heaps,
/// a thread that serves clients waited for up to 12 ms for a heap in which a thread of low priority freed a wide request.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a call of the C library")]
pub(crate) fn limit_heaps(threads: u16) {
    // SAFETY: `mallopt` takes two numbers and changes only settings of the allocator, under its own lock. It returns 0 for an
    // unknown setting, and the broker then uses more memory.
    let _known = unsafe { libc::mallopt(libc::M_ARENA_MAX, i32::from(threads) + OTHER_HEAPS) };
}

/// Other allocators have no such heaps.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn limit_heaps(_threads: u16) {}

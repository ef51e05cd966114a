//! The C library's allocator, which keeps what each thread has freed.

/// Heaps besides those of the threads that serve clients: for wide requests, checks of batches, the disk and lookups.
const OTHER_HEAPS: i32 = 4;

/// Larger buffers are mapped, and go back to the system when they are freed. The allocator would raise this size up to 32 MB after
/// large requests, whose memory then stays in the heaps.
const MAPPED_BYTES_MIN: i32 = 4 << 20;
/// Free memory at the end of a heap that stays there.
const SPARE_BYTES_MAX: i32 = 2 * MAPPED_BYTES_MIN;

/// Limits the heaps. To be called before the threads start.
///
/// Each of the many threads that can work for a moment would otherwise keep the memory of its largest request. With fewer heaps,
/// a thread that serves clients waited for up to 12 ms for a heap in which a thread of low priority freed a wide request.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn limit_heaps(threads: u16) {
    set(libc::M_ARENA_MAX, i32::from(threads) + OTHER_HEAPS);
    set(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
    set(libc::M_TRIM_THRESHOLD, SPARE_BYTES_MAX);
}

/// Gives the free memory of all heaps back to the system. After a start, that is what the journals and logs took while they were read:
/// a quarter of the memory of a broker with 100,000 groups.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a call of the C library")]
pub(crate) fn give_back() {
    // SAFETY: `malloc_trim` takes a number, and changes only the allocator's free memory, under its own locks.
    let _released = unsafe { libc::malloc_trim(0) };
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a call of the C library")]
fn set(what: libc::c_int, value: i32) {
    // SAFETY: `mallopt` takes two numbers and changes only settings of the allocator, under its own lock. It returns 0 for an
    // unknown setting, and the broker then uses more memory.
    let _known = unsafe { libc::mallopt(what, value) };
}

/// Other allocators have no such heaps.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn limit_heaps(_threads: u16) {}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back() {}

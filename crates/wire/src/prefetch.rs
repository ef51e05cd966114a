//! Asking for memory before it is written or read.
//!
//! Records go one behind the other through buffers that another processor read last. Without a hint, every record waits
//! for its cache lines at the next atomic operation; with it, they are on their way some records earlier. Measured as a
//! tenth of a produced record's cost (docs/PERFORMANCE.md).

/// How far ahead: about five records of 100 bytes.
const AHEAD_BYTES: usize = 512;
const LINE_BYTES: usize = 64;

/// Hints that the bytes some way behind `at` will be written soon. A hint only: nothing is read or written.
#[inline]
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the intrinsic takes a pointer")]
pub(crate) fn ahead_of(bytes: &[u8], at: usize) {
    use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
    let ahead = bytes.as_ptr().wrapping_add(at + AHEAD_BYTES).cast::<i8>();
    // SAFETY: a prefetch accesses no memory as the program sees it and is allowed for any address, mapped or not;
    // `wrapping_add` makes no claim that the pointer lies within the slice.
    unsafe {
        _mm_prefetch::<_MM_HINT_ET0>(ahead);
        _mm_prefetch::<_MM_HINT_ET0>(ahead.wrapping_add(LINE_BYTES));
    }
}

/// Hints that the bytes some way behind the front of `bytes` will be read soon. A hint only.
#[inline]
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the intrinsic takes a pointer")]
pub(crate) fn to_read(bytes: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let ahead = bytes.as_ptr().wrapping_add(AHEAD_BYTES).cast::<i8>();
    // SAFETY: as in `ahead_of`.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(ahead);
        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(LINE_BYTES));
    }
}

/// Other processors find the way themselves.
#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn ahead_of(_bytes: &[u8], _at: usize) {}

/// Other processors find the way themselves.
#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn to_read(_bytes: &[u8]) {}

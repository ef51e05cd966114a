//! An allocator that counts, for the memory limits of the targets.

#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// The bytes that this thread has allocated, less those that it has freed.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The most bytes that this thread held during `run`, beyond those that it held before. 0 without [`CountingAllocator`].
///
/// A `run` may measure a part of itself.
pub fn peak_of(run: impl FnOnce()) -> usize {
    let (before, outer_peak) = (LIVE.get(), PEAK.get());
    PEAK.set(before);
    run();
    let peak = PEAK.get();
    PEAK.set(peak.max(outer_peak));
    usize::try_from(peak - before).unwrap_or(0)
}

/// The system's allocator, which counts per thread. Programs that run targets declare it as their global allocator.
#[derive(Debug)]
pub struct CountingAllocator;

// SAFETY: every call goes to the system's allocator unchanged; counting does not touch the memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        LIVE.set(LIVE.get() - layout.size() as isize);
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as isize);
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(bytes: usize) {
    let live = LIVE.get() + bytes as isize;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

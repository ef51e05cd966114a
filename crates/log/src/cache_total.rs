//! The memory that the tail caches of all logs of a broker have together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Up to this size, copying a batch costs less than keeping its buffer.
pub(crate) const SMALL_BYTES: usize = 4096;

/// A limit for the tail caches of several logs together. The default has none.
///
/// A log does not know which of the others are idle: the owner of the logs empties caches with [`Log::trim_cache`](crate::Log::trim_cache)
/// while [`CacheTotal::is_exceeded`]. A cache that grows although the total is an eighth above the limit is emptied at once.
#[derive(Clone, Debug)]
pub struct CacheTotal {
    bytes: Arc<AtomicUsize>,
    max: usize,
}

impl CacheTotal {
    /// A limit of this many bytes.
    pub fn of_bytes(max: usize) -> Self {
        Self { bytes: Arc::default(), max }
    }

    /// The bytes that are cached now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The limit.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Returns `true` if the caches have more than the limit.
    pub fn is_exceeded(&self) -> bool {
        self.bytes() > self.max
    }

    /// A buffer of so many bytes of which caches may keep parts: see [`Log::append_part`](crate::Log::append_part). It counts as soon as
    /// one of them does.
    pub fn buffer(&self, bytes: usize) -> SharedBuffer {
        SharedBuffer(Arc::new(Counted { total: self.clone(), bytes, in_total: AtomicBool::new(false) }))
    }
}

impl Default for CacheTotal {
    fn default() -> Self {
        Self { bytes: Arc::default(), max: usize::MAX }
    }
}

impl PartialEq for CacheTotal {
    /// Two are equal if they count together.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes) || (self.max == usize::MAX && other.max == usize::MAX)
    }
}

/// A buffer that batches of several logs share. Once a cache keeps a part, it counts in a [`CacheTotal`] until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct SharedBuffer(Arc<Counted>);

impl SharedBuffer {
    /// Returns `true` if a cache keeps batches of so many bytes in their buffer. It copies smaller ones.
    pub fn is_kept_for(bytes: usize) -> bool {
        bytes > SMALL_BYTES
    }

    /// Counts it. A cache keeps a part of it now.
    pub(crate) fn count(&self) {
        let Counted { total, bytes, in_total } = &*self.0;
        if !in_total.swap(true, Ordering::Relaxed) {
            total.bytes.fetch_add(*bytes, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
struct Counted {
    total: CacheTotal,
    bytes: usize,
    in_total: AtomicBool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if *self.in_total.get_mut() {
            self.total.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// The part of one cache in the total, without the buffers that it shares.
#[derive(Debug, Default)]
pub(crate) struct CacheCount {
    total: CacheTotal,
    own: usize,
}

impl CacheCount {
    pub(crate) fn new(total: CacheTotal) -> Self {
        Self { total, own: 0 }
    }

    /// Returns `true` if no other cache has made room.
    #[inline]
    pub(crate) fn is_far_exceeded(&self) -> bool {
        self.total.bytes() > self.total.max.saturating_add(self.total.max / 8)
    }

    /// Counts the bytes that the cache has now.
    #[inline]
    pub(crate) fn set(&mut self, own: usize) {
        if own > self.own {
            self.total.bytes.fetch_add(own - self.own, Ordering::Relaxed);
        } else if own < self.own {
            self.total.bytes.fetch_sub(self.own - own, Ordering::Relaxed);
        }
        self.own = own;
    }
}

impl Drop for CacheCount {
    fn drop(&mut self) {
        self.set(0);
    }
}

//! The last batches of a log in memory, which a reader at the tail receives without reading a file.
//!
//! A large batch is kept in the buffer in which it arrived. Small batches are copied into blocks, so that they do not
//! pin the buffers of their requests, and so that a vectored write has few pieces.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use ottla_wire::batch::BatchHeader;
use ottla_wire::{Chain, Piece};

use crate::cache_total::{CacheCount, CacheTotal, SMALL_BYTES, SharedBuffer};

const BLOCK_BYTES_MIN: usize = 4096;
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// Small pieces are merged above this number, because each piece costs more in a vectored write than its copy.
const PIECES_MAX: usize = 8;

/// The last batches of the log, without gaps between them.
#[derive(Debug)]
pub(crate) struct TailCache {
    runs: VecDeque<Run>,
    /// The size of `runs` in bytes.
    sealed_bytes: usize,
    /// Small batches that are not yet sealed into a run; `open` is their span.
    block: BytesMut,
    open: Option<Span>,
    block_bytes: usize,
    budget: usize,
    /// The bytes of the runs whose buffers count elsewhere.
    shared_bytes: usize,
    count: CacheCount,
}

/// The offsets of bytes, and their position in the files of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) base_offset: i64,
    pub(crate) end_offset: i64,
    /// Base offset of the segment.
    pub(crate) segment: i64,
    /// Position in the segment.
    pub(crate) position: u64,
}

#[derive(Debug)]
struct Run {
    span: Span,
    bytes: Bytes,
    /// The buffer of which it is a part, if batches of other logs are parts of it as well.
    buffer: Option<SharedBuffer>,
}

/// The result of a read from memory.
#[derive(Debug)]
pub(crate) struct CachedRead {
    pub(crate) chain: Chain,
    pub(crate) next_offset: i64,
}

impl TailCache {
    pub(crate) fn new(budget: usize, total: CacheTotal) -> Self {
        Self {
            runs: VecDeque::new(),
            sealed_bytes: 0,
            block: BytesMut::new(),
            open: None,
            block_bytes: BLOCK_BYTES_MIN,
            budget,
            shared_bytes: 0,
            count: CacheCount::new(total),
        }
    }

    /// Returns the size of the cached batches in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.sealed_bytes + self.block.capacity()
    }

    pub(crate) fn set_budget(&mut self, budget: usize) {
        self.budget = budget;
        self.evict(budget);
    }

    /// Returns the first cached offset.
    pub(crate) fn start(&self) -> Option<i64> {
        self.runs.front().map(|run| run.span.base_offset).or(self.open.map(|span| span.base_offset))
    }

    /// Adds the batches of an append, which are at `span`, and can be a part of a shared buffer.
    #[inline]
    pub(crate) fn push(&mut self, span: Span, bytes: BytesMut, buffer: Option<SharedBuffer>) {
        if bytes.len() > self.budget {
            // The batches exceed the budget: they would evict all others and themselves.
            self.clear();
            return;
        }
        if bytes.len() > SMALL_BYTES {
            self.seal();
            self.add(Run { span, bytes: bytes.freeze(), buffer });
        } else {
            self.push_small(span, &bytes);
        }
        if self.bytes() > self.budget {
            self.evict(self.budget);
        }
        self.set_count();
        if self.count.is_far_exceeded() {
            self.clear();
        }
    }

    fn add(&mut self, run: Run) {
        self.sealed_bytes += run.bytes.len();
        if let Some(buffer) = &run.buffer {
            buffer.count();
            self.shared_bytes += run.bytes.len();
        }
        self.runs.push_back(run);
    }

    /// Drops the oldest run; returns `false` if there is none.
    fn drop_oldest(&mut self) -> bool {
        let Some(run) = self.runs.pop_front() else { return false };
        self.sealed_bytes -= run.bytes.len();
        if run.buffer.is_some() {
            self.shared_bytes -= run.bytes.len();
        }
        true
    }

    #[inline]
    fn set_count(&mut self) {
        self.count.set(self.bytes() - self.shared_bytes);
    }

    #[inline]
    fn push_small(&mut self, span: Span, bytes: &[u8]) {
        if self.block.capacity() - self.block.len() < bytes.len() {
            self.seal();
            self.block = BytesMut::with_capacity(self.block_bytes.max(bytes.len()));
            self.block_bytes = (self.block_bytes * 2).min(BLOCK_BYTES_MAX);
        }
        match &mut self.open {
            Some(open) if open.segment == span.segment => open.end_offset = span.end_offset,
            _ => {
                self.seal();
                self.open = Some(span);
            }
        }
        self.block.extend_from_slice(bytes);
    }

    /// Turns the small batches collected so far into a run that can be returned to readers.
    fn seal(&mut self) {
        if let Some(span) = self.open.take() {
            let bytes = self.block.split().freeze();
            self.add(Run { span, bytes, buffer: None });
        }
    }

    /// Drops the oldest batches until at most `budget` bytes are left. Returns the remaining size.
    pub(crate) fn evict(&mut self, budget: usize) -> usize {
        while self.bytes() > budget {
            if !self.drop_oldest() {
                self.clear();
            }
        }
        self.set_count();
        self.bytes()
    }

    /// Drops all batches and resets the block size.
    pub(crate) fn clear(&mut self) {
        self.runs = VecDeque::new();
        (self.block, self.open, self.block_bytes) = (BytesMut::new(), None, BLOCK_BYTES_MIN);
        (self.sealed_bytes, self.shared_bytes) = (0, 0);
        self.set_count();
    }

    /// Drops the batches that end below `offset`.
    pub(crate) fn drop_before(&mut self, offset: i64) {
        while self.runs.front().is_some_and(|run| run.span.end_offset <= offset) {
            self.drop_oldest();
        }
        self.set_count();
    }

    /// Drops the batches that begin below `offset`, and those in one run with them.
    pub(crate) fn drop_up_to(&mut self, offset: i64) {
        self.seal();
        while self.runs.front().is_some_and(|run| run.span.base_offset < offset) {
            self.drop_oldest();
        }
        self.set_count();
    }

    /// Returns segment and position of the batch with `offset`, if it is cached.
    pub(crate) fn position_of(&mut self, offset: i64) -> Option<(i64, u64)> {
        let number = self.find(offset)?;
        let run = &self.runs[number];
        let at = walk_to(&run.bytes, offset);
        Some((run.span.segment, run.span.position + at as u64))
    }

    /// Returns the index of the run with `offset`.
    fn find(&mut self, offset: i64) -> Option<usize> {
        if self.start()? > offset {
            return None;
        }
        if self.open.is_some_and(|open| offset >= open.base_offset) {
            self.seal();
        }
        let at = self.runs.partition_point(|run| run.span.end_offset <= offset);
        (at < self.runs.len()).then_some(at)
    }

    /// Returns whole batches from the one with `offset` on, up to `max_bytes` and `max_offset`; at least one if
    /// `min_one_batch` is `true`. Returns `None` if `offset` is not cached.
    pub(crate) fn read(
        &mut self,
        offset: i64,
        max_bytes: usize,
        max_offset: i64,
        min_one_batch: bool,
    ) -> Option<CachedRead> {
        let first = self.find(offset)?;
        let mut number = first;
        let mut left = max_bytes;
        let mut next_offset = offset;
        let mut chain = Chain::new();
        loop {
            if number == self.runs.len() {
                // Only a read that has room for more: the others would make a run of every small batch.
                if left == 0 || self.open.is_none_or(|open| open.base_offset >= max_offset) {
                    break;
                }
                self.seal();
            }
            let run = &self.runs[number];
            let from = if number == first && run.span.base_offset < offset {
                walk_to(&run.bytes, offset)
            } else {
                0
            };
            let rest = run.bytes.len() - from;
            if rest <= left && run.span.end_offset <= max_offset {
                chain.push_bytes(run.bytes.slice(from..));
                next_offset = run.span.end_offset;
                left -= rest;
                number += 1;
                continue;
            }
            let need_one = min_one_batch && number == first;
            let (to, end) = walk_within(&run.bytes[from..], left, max_offset, need_one);
            if to > 0 {
                chain.push_bytes(run.bytes.slice(from..from + to));
                next_offset = end;
            }
            break;
        }
        if chain.pieces().len() > PIECES_MAX {
            chain = merged(chain.into_pieces());
        }
        Some(CachedRead { chain, next_offset })
    }
}

/// Returns the position of the batch with `offset` in a run.
fn walk_to(bytes: &[u8], offset: i64) -> usize {
    let mut at = 0;
    while let Ok(header) = BatchHeader::parse(&bytes[at..]) {
        if header.last_offset() >= offset {
            break;
        }
        at += header.total_bytes();
    }
    at
}

/// Returns the number of bytes of the whole batches that fit, and the offset after them.
fn walk_within(bytes: &[u8], max_bytes: usize, max_offset: i64, min_one_batch: bool) -> (usize, i64) {
    let (mut at, mut end) = (0, 0);
    while let Ok(header) = BatchHeader::parse(&bytes[at..]) {
        let to = at + header.total_bytes();
        let fits = to <= max_bytes || (at == 0 && min_one_batch);
        if !fits || header.next_offset() > max_offset {
            break;
        }
        (at, end) = (to, header.next_offset());
    }
    (at, end)
}

/// Merges adjacent small pieces into one. Large pieces are not copied.
#[cold]
fn merged(pieces: Vec<Piece>) -> Chain {
    let mut chain = Chain::new();
    let mut small = BytesMut::new();
    for piece in pieces {
        let Piece::Memory(bytes) = piece else { continue };
        if bytes.len() > SMALL_BYTES {
            chain.push_bytes(std::mem::take(&mut small).freeze());
            chain.push_bytes(bytes);
            continue;
        }
        if small.capacity() - small.len() < bytes.len() {
            chain.push_bytes(std::mem::take(&mut small).freeze());
            small.reserve(BLOCK_BYTES_MAX);
        }
        small.extend_from_slice(&bytes);
    }
    chain.push_bytes(small.freeze());
    chain
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_wire::{BatchBuilder, Seal, batch};

    fn batch(base_offset: i64, records: usize, value_bytes: usize) -> BytesMut {
        let mut builder = BatchBuilder::new();
        for _ in 0..records {
            builder.push(1, None, Some(&vec![7; value_bytes]), &[]);
        }
        let mut bytes = BytesMut::from(&builder.seal(&Seal::default()).expect("no codec").to_bytes()[..]);
        batch::set_base_offset(&mut bytes, base_offset);
        bytes
    }

    fn push(cache: &mut TailCache, base_offset: i64, records: usize, value_bytes: usize, position: &mut u64) {
        let bytes = batch(base_offset, records, value_bytes);
        let span =
            Span { base_offset, end_offset: base_offset + records as i64, segment: 0, position: *position };
        *position += bytes.len() as u64;
        cache.push(span, bytes, None);
    }

    fn offsets(chain: &Chain) -> Vec<i64> {
        let bytes = chain.to_bytes().expect("in memory");
        ottla_wire::Batches::new(&bytes).map(|batch| batch.expect("whole").0.base_offset).collect()
    }

    #[test]
    fn an_idle_cache_takes_no_memory_and_a_busy_one_its_budget() {
        let mut cache = TailCache::new(100_000, CacheTotal::default());
        assert_eq!(cache.bytes(), 0);
        let mut position = 0;
        for n in 0..10_000 {
            push(&mut cache, n, 1, if n % 10 == 0 { 6000 } else { 10 }, &mut position);
            assert!(cache.bytes() <= 100_000);
        }
        assert!(cache.bytes() > 30_000 && cache.start() > Some(9800), "{cache:?}");
        assert_eq!(cache.evict(0), 0);
        assert_eq!(cache.start(), None);
        let mut off = TailCache::new(0, CacheTotal::default());
        push(&mut off, 0, 1, 1, &mut position);
        assert_eq!((off.bytes(), off.start()), (0, None));
    }

    #[test]
    fn reads_keep_to_batches_bytes_and_offsets() {
        let mut cache = TailCache::new(1 << 20, CacheTotal::default());
        let mut position = 0;
        for n in 0..50 {
            push(&mut cache, n * 2, 2, if n == 30 { 5000 } else { 10 }, &mut position);
        }
        let all = |cache: &mut TailCache, from| cache.read(from, usize::MAX, i64::MAX, true).expect("held");
        assert_eq!(offsets(&all(&mut cache, 0).chain), (0..50).map(|n| n * 2).collect::<Vec<_>>());
        assert_eq!(offsets(&all(&mut cache, 95).chain), [94, 96, 98], "from the middle of a batch");
        assert_eq!(all(&mut cache, 95).next_offset, 100);
        assert!(cache.read(100, 1000, i64::MAX, true).is_none());

        let one = batch(0, 2, 10).len();
        let read = cache.read(10, one * 3 + 1, i64::MAX, true).expect("held");
        assert_eq!((offsets(&read.chain), read.next_offset), (vec![10, 12, 14], 16));
        let read = cache.read(10, 1, i64::MAX, true).expect("held");
        assert_eq!(offsets(&read.chain), [10]);
        let read = cache.read(10, 1, i64::MAX, false).expect("held");
        assert!(read.chain.is_empty() && read.next_offset == 10);
        let read = cache.read(10, usize::MAX, 13, true).expect("held");
        assert_eq!(offsets(&read.chain), [10], "batch 12..=13 is not wholly below 13");
        assert!(cache.read(10, usize::MAX, 11, true).expect("held").chain.is_empty());
        assert_eq!(cache.position_of(12), Some((0, 6 * one as u64)));
    }

    /// They were left out as if they had no room.
    #[test]
    fn a_small_read_has_the_batches_that_are_not_sealed() {
        let mut cache = TailCache::new(1 << 20, CacheTotal::default());
        let one = batch(0, 1, 10).len();
        let mut position = 0;
        for n in 0..4 {
            push(&mut cache, n, 1, 10, &mut position);
            if n == 1 {
                assert_eq!(offsets(&cache.read(0, 1000, i64::MAX, true).expect("held").chain), [0, 1]);
            }
        }
        let read = cache.read(0, one * 2, i64::MAX, true).expect("held");
        assert_eq!((offsets(&read.chain), read.next_offset), (vec![0, 1], 2));
        assert!(cache.read(0, 1000, 2, true).is_some() && cache.open.is_some(), "no read needs the others");
        let read = cache.read(0, one * 3 + 1, i64::MAX, true).expect("held");
        assert_eq!((offsets(&read.chain), read.next_offset), (vec![0, 1, 2], 3));
    }

    #[test]
    fn many_small_pieces_are_merged_for_a_slow_reader() {
        let mut cache = TailCache::new(1 << 20, CacheTotal::default());
        let mut position = 0;
        for n in 0..1000 {
            push(&mut cache, n, 1, 10, &mut position);
            // A fast reader makes a run of every batch.
            assert_eq!(offsets(&cache.read(n, 1 << 20, i64::MAX, true).expect("held").chain), [n]);
        }
        let read = cache.read(0, usize::MAX, i64::MAX, true).expect("held");
        assert_eq!(offsets(&read.chain).len(), 1000);
        assert!(read.chain.pieces().len() <= 3);
    }

    /// Each log had its own limit only: a broker with a thousand partitions kept eight gigabytes.
    #[test]
    fn caches_count_together_until_they_are_dropped() {
        let total = CacheTotal::of_bytes(100_000);
        let mut caches = [0, 1].map(|_| TailCache::new(1 << 20, total.clone()));
        let mut positions = [0, 0];
        for offset in 0..4 {
            for (cache, position) in caches.iter_mut().zip(&mut positions) {
                push(cache, offset, 1, 10_000, position);
            }
        }
        assert_eq!(total.bytes(), caches.iter().map(TailCache::bytes).sum());
        assert!(!total.is_exceeded());
        let [mut first, second] = caches;
        for offset in 4..8 {
            push(&mut first, offset, 1, 10_000, &mut positions[0]);
        }
        assert_eq!(first.bytes(), 0, "nothing else has made room");
        assert_eq!(total.bytes(), second.bytes());
        drop(second);
        assert_eq!(total.bytes(), 0);
    }

    /// A cached batch of a large request kept the whole request in memory, and counted its own bytes only.
    #[test]
    fn a_shared_buffer_counts_until_no_cache_has_a_part_of_it() {
        let total = CacheTotal::of_bytes(1 << 20);
        let mut caches = [0, 1].map(|_| TailCache::new(1 << 20, total.clone()));
        let buffer = total.buffer(300_000);
        assert_eq!(total.bytes(), 0);
        for cache in &mut caches {
            let bytes = batch(0, 1, 10_000);
            let span = Span { base_offset: 0, end_offset: 1, segment: 0, position: 0 };
            cache.push(span, bytes, Some(buffer.clone()));
        }
        drop(buffer);
        assert_eq!(total.bytes(), 300_000);
        caches[0].evict(0);
        assert_eq!(total.bytes(), 300_000);
        caches[1].clear();
        assert_eq!(total.bytes(), 0);
    }

    /// Requests that waited for the check of their batches counted as cached: all caches were emptied.
    #[test]
    fn a_buffer_of_which_no_cache_has_a_part_leaves_the_caches_alone() {
        let total = CacheTotal::of_bytes(1 << 20);
        let waiting = total.buffer(2 << 20);
        let mut cache = TailCache::new(1 << 20, total.clone());
        push(&mut cache, 0, 1, 10_000, &mut 0);
        assert!(cache.bytes() > 0 && !total.is_exceeded());
        drop(waiting);
        assert_eq!(total.bytes(), cache.bytes());
    }
}

//! How far one assigned partition is: written where records are handed out and fetched, read by everybody else.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::config::{Config, OffsetReset};
use crate::consumer::{OffsetAndMetadata, TopicPartition};

/// Stands for an offset that is not known (yet).
const NONE: i64 = -1;

/// One partition of one assignment. A partition that is taken back and assigned again gets another one: who still
/// holds the old one writes into the void.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) at: TopicPartition,
    position: AtomicI64,
    done: AtomicI64,
    /// What the application has stored; it counts as long as `done` is its offset.
    stored: Mutex<Option<OffsetAndMetadata>>,
    /// The epoch of the leader that wrote the records handed out last.
    epoch: AtomicI32,
    committed: AtomicI64,
    log_start: AtomicI64,
    last_stable: AtomicI64,
    high_watermark: AtomicI64,
    turn: AtomicU64,
    paused: AtomicBool,
    /// `auto.offset.reset`, where it is not the client's.
    reset: OnceLock<OffsetReset>,
}

/// The ends of a partition as the last answer said them; -1 where none has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ends {
    pub(crate) log_start: i64,
    pub(crate) last_stable: i64,
    pub(crate) high_watermark: i64,
}

impl Place {
    pub(crate) fn new(at: TopicPartition) -> Self {
        let none = || AtomicI64::new(NONE);
        Self {
            at,
            position: none(),
            done: none(),
            stored: Mutex::default(),
            epoch: AtomicI32::new(-1),
            committed: none(),
            log_start: none(),
            last_stable: none(),
            high_watermark: none(),
            turn: AtomicU64::new(0),
            paused: AtomicBool::new(false),
            reset: OnceLock::new(),
        }
    }

    /// Where to go on when the position does not exist.
    pub(crate) fn reset(&self, config: &Config) -> OffsetReset {
        self.reset.get().copied().unwrap_or(config.offset_reset)
    }

    /// What holds instead of the client's `auto.offset.reset`.
    pub(crate) fn set_reset(&self, reset: OffsetReset) {
        let _ = self.reset.set(reset);
    }

    /// The next offset to be handed out, once it is known.
    pub(crate) fn position(&self) -> Option<i64> {
        known(&self.position)
    }

    /// Everything before `next` has been handed out.
    #[inline]
    pub(crate) fn hand_out(&self, next: i64) {
        self.position.store(next, Ordering::Relaxed);
    }

    /// The offset after the last record that is done.
    pub(crate) fn done(&self) -> Option<i64> {
        known(&self.done)
    }

    /// Everything before `next` is done. What the application did before is seen by whoever reads it.
    #[inline]
    pub(crate) fn finish(&self, next: i64) {
        self.done.store(next, Ordering::Release);
    }

    /// The same, with what the application wants to be kept beside it.
    pub(crate) fn store(&self, offset: OffsetAndMetadata) {
        let next = offset.offset;
        *self.stored() = Some(offset);
        self.committed.store(NONE, Ordering::Relaxed);
        self.finish(next);
    }

    /// What is done and not committed yet.
    pub(crate) fn uncommitted(&self) -> Option<OffsetAndMetadata> {
        let done = self.done().filter(|done| *done != self.committed.load(Ordering::Relaxed))?;
        let stored = self.stored().clone().filter(|stored| stored.offset == done);
        let epoch = || Some(self.epoch.load(Ordering::Relaxed)).filter(|epoch| *epoch >= 0);
        Some(stored.unwrap_or_else(|| OffsetAndMetadata { leader_epoch: epoch(), ..done.into() }))
    }

    pub(crate) fn set_epoch(&self, epoch: i32) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    fn stored(&self) -> MutexGuard<'_, Option<OffsetAndMetadata>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_committed(&self, offset: i64) {
        self.committed.store(offset, Ordering::Relaxed);
    }

    pub(crate) fn ends(&self) -> Ends {
        Ends {
            log_start: self.log_start.load(Ordering::Relaxed),
            last_stable: self.last_stable.load(Ordering::Relaxed),
            high_watermark: self.high_watermark.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_ends(&self, ends: Ends) {
        self.log_start.store(ends.log_start, Ordering::Relaxed);
        self.last_stable.store(ends.last_stable, Ordering::Relaxed);
        self.high_watermark.store(ends.high_watermark, Ordering::Relaxed);
    }

    /// Changes whenever what was fetched so far means nothing any more: with each seek, and at the end.
    #[inline]
    pub(crate) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Makes void what was fetched so far.
    pub(crate) fn next_turn(&self) -> u64 {
        self.position.store(NONE, Ordering::Relaxed);
        self.turn.fetch_add(1, Ordering::AcqRel) + 1
    }
}

fn known(offset: &AtomicI64) -> Option<i64> {
    Some(offset.load(Ordering::Acquire)).filter(|offset| *offset != NONE)
}

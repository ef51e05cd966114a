//! The counters of share consumers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// Counters since a share consumer was created.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ShareStatistics {
    /// Records that polls returned.
    pub records: u64,
    /// Batches that polls returned.
    pub batches: u64,
    /// Offsets that brokers accepted acknowledgements for, of any type.
    pub acknowledged: u64,
    /// Offsets whose acknowledgement failed: the group delivers these records again, or has given them to another member.
    pub failed: u64,
    /// Offsets whose acquisition ended before a poll returned them.
    pub expired: u64,
    /// Offsets of batches that could not be decoded; they are rejected.
    pub corrupt: u64,
}

impl ShareStatistics {
    fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.batches += other.batches;
        self.acknowledged += other.acknowledged;
        self.failed += other.failed;
        self.expired += other.expired;
        self.corrupt += other.corrupt;
    }
}

/// The share consumers of one client.
#[derive(Debug, Default)]
pub(super) struct ShareConsumers {
    followed: Vec<Arc<ShareCounters>>,
    /// The numbers of consumers that were dropped.
    ended: ShareStatistics,
}

impl ShareConsumers {
    pub(super) fn follow(&mut self, counters: Arc<ShareCounters>) {
        self.followed.push(counters);
    }

    /// The sums of all consumers so far; `None` if there was none.
    pub(super) fn total(&mut self) -> Option<ShareStatistics> {
        let is_dropped = |counters: &mut Arc<ShareCounters>| Arc::strong_count(counters) == 1;
        for counters in self.followed.extract_if(.., is_dropped) {
            self.ended.add(&counters.snapshot());
        }
        let mut total = self.ended;
        for counters in &self.followed {
            total.add(&counters.snapshot());
        }
        (!self.followed.is_empty() || total != ShareStatistics::default()).then_some(total)
    }
}

/// The counters, shared by the engine and the polling thread.
#[derive(Debug, Default)]
pub(crate) struct ShareCounters {
    pub(crate) records: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) corrupt: AtomicU64,
    /// `AcquisitionLockTimeoutMs` of the last response; 0 before the first.
    lock_timeout_ms: AtomicI32,
}

impl ShareCounters {
    /// Adds to a counter.
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn set_lock_timeout(&self, timeout_ms: i32) {
        if timeout_ms > 0 {
            self.lock_timeout_ms.store(timeout_ms, Ordering::Relaxed);
        }
    }

    pub(crate) fn lock_timeout(&self) -> Option<Duration> {
        let timeout_ms = u64::try_from(self.lock_timeout_ms.load(Ordering::Relaxed)).ok()?;
        (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms))
    }

    pub(crate) fn snapshot(&self) -> ShareStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ShareStatistics {
            records: read(&self.records),
            batches: read(&self.batches),
            acknowledged: read(&self.acknowledged),
            failed: read(&self.failed),
            expired: read(&self.expired),
            corrupt: read(&self.corrupt),
        }
    }
}

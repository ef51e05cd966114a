//! A reassignment in progress. A replication throttle makes it last: the nodes share one log, and nothing is copied.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A reassignment in progress of one partition. Its new replicas are those of [`Topic::assignments`](super::Topic::assignments).
#[derive(Debug)]
pub(crate) struct OngoingReassignment {
    /// The replicas before it: a cancellation returns to them.
    pub(crate) original: Vec<i32>,
    /// The replicas that it adds, in the order of their ids.
    pub(crate) added: Vec<Arc<AddedReplica>>,
}

/// A replica that a reassignment adds.
#[derive(Debug)]
pub(crate) struct AddedReplica {
    pub(crate) node: i32,
    /// True once it has caught up with the leader: it stays in sync then, as no throttle applies to replicas in sync.
    in_sync: AtomicBool,
    copied: Mutex<Copied>,
}

/// The progress of a copy.
#[derive(Debug)]
struct Copied {
    /// The copied bytes in billionths: a slow copy must not lose the part of a byte each time.
    nano_bytes: u128,
    until: Instant,
}

impl OngoingReassignment {
    /// The replicas during the reassignment. As in Kafka, the new ones come before those that are removed.
    pub(crate) fn replicas(&self, target: &[i32]) -> Vec<i32> {
        let mut replicas = target.to_vec();
        replicas.extend(self.removing(target));
        replicas
    }

    /// The replicas that the reassignment adds.
    pub(crate) fn adding(&self) -> Vec<i32> {
        self.added.iter().map(|added| added.node).collect()
    }

    /// The replicas that the reassignment removes, in the order of their ids.
    pub(crate) fn removing(&self, target: &[i32]) -> Vec<i32> {
        let mut removing = self.original.clone();
        removing.retain(|id| !target.contains(id));
        removing.sort_unstable();
        removing
    }

    /// The replicas after a cancellation. As in Kafka's `PartitionReassignmentReplicas`, their order is that of the cancelled reassignment.
    pub(crate) fn cancelled(&self, target: &[i32]) -> Vec<i32> {
        let mut replicas = self.replicas(target);
        replicas.retain(|id| self.original.contains(id));
        replicas
    }

    /// Returns `true` for a replica that has not caught up.
    pub(crate) fn is_lagging(&self, node: i32) -> bool {
        self.added.iter().any(|added| added.node == node && !added.is_in_sync())
    }

    /// Returns `true` once all added replicas have caught up.
    pub(crate) fn has_caught_up(&self) -> bool {
        self.added.iter().all(|added| added.is_in_sync())
    }
}

impl AddedReplica {
    /// A replica without records.
    pub(crate) fn new(node: i32, now: Instant) -> Self {
        let copied = Copied { nano_bytes: 0, until: now };
        Self { node, in_sync: AtomicBool::new(false), copied: Mutex::new(copied) }
    }

    pub(crate) fn is_in_sync(&self) -> bool {
        self.in_sync.load(Ordering::Acquire)
    }

    /// Notes the bytes that were copied since the last call, with `rate` bytes per second; `None` copies at once. The replica has caught
    /// up when it has the `log_bytes` of the leader.
    pub(crate) fn copy(&self, now: Instant, rate: Option<u64>, log_bytes: u64) {
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = now.saturating_duration_since(copied.until).as_nanos();
        let more = u128::from(rate.unwrap_or_default()).saturating_mul(elapsed);
        copied.until = copied.until.max(now);
        copied.nano_bytes = copied.nano_bytes.saturating_add(more);
        if rate.is_none() || copied.nano_bytes >= u128::from(log_bytes) * NANOS_PER_SECOND {
            self.in_sync.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_copy_ends_when_it_has_all_bytes_at_the_rates_that_applied() {
        let begun = Instant::now();
        let after = |ms: u64| begun + Duration::from_millis(ms);
        let added = AddedReplica::new(4, begun);
        // A byte per second, asked ten times a second.
        for step in 1..=100 {
            added.copy(after(step * 100), Some(1), 20);
        }
        assert!(!added.is_in_sync());
        added.copy(after(12_000), Some(0), 20);
        added.copy(after(12_000), Some(5), 20);
        added.copy(after(13_900), Some(5), 20);
        assert!(!added.is_in_sync());
        added.copy(after(14_000), Some(5), 20);
        assert!(added.is_in_sync());
    }

    #[test]
    fn a_copy_without_a_throttle_or_of_an_empty_log_takes_no_time() {
        let now = Instant::now();
        for (rate, log_bytes, is_in_sync) in [(None, 9, true), (Some(1), 0, true), (Some(0), 9, false)] {
            let added = AddedReplica::new(4, now);
            added.copy(now, rate, log_bytes);
            assert_eq!(added.is_in_sync(), is_in_sync, "{rate:?}");
        }
    }

    #[test]
    fn the_replicas_of_a_reassignment_are_in_kafkas_order() {
        let added = |node| Arc::new(AddedReplica::new(node, Instant::now()));
        let ongoing = OngoingReassignment { original: vec![2, 1, 0], added: vec![added(3)] };
        let target = [3, 1];
        assert_eq!(ongoing.replicas(&target), [3, 1, 0, 2]);
        assert_eq!((ongoing.adding(), ongoing.removing(&target)), (vec![3], vec![0, 2]));
        assert_eq!(ongoing.cancelled(&target), [1, 0, 2]);
        assert!(ongoing.is_lagging(3) && !ongoing.is_lagging(1) && !ongoing.has_caught_up());
    }
}

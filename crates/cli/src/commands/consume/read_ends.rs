//! `--exit-at-end`: the offsets at which the partitions are done.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::TopicPartition;

/// The end of each partition that has records to read. An end stays after it is reached: later records are for the next reader
/// of the group.
#[derive(Debug, Default)]
pub(super) struct ReadEnds {
    ends: BTreeMap<TopicPartition, i64>,
    unread: BTreeSet<TopicPartition>,
}

impl ReadEnds {
    /// Adds partitions that have records before these offsets.
    pub(super) fn add(&mut self, ends: BTreeMap<TopicPartition, i64>) {
        self.unread.extend(ends.keys().cloned());
        self.ends.extend(ends);
    }

    /// Removes partitions that are no longer assigned.
    pub(super) fn remove(&mut self, partitions: &[TopicPartition]) {
        self.ends.retain(|at, _| !partitions.contains(at));
        self.unread.retain(|at| !partitions.contains(at));
    }

    /// The end of a partition; `None` if it had nothing to read.
    pub(super) fn of(&self, at: &TopicPartition) -> Option<i64> {
        self.ends.get(at).copied()
    }

    /// Returns `true` if the partition has records to read.
    pub(super) fn is_unread(&self, at: &TopicPartition) -> bool {
        self.unread.contains(at)
    }

    /// Returns `true` if all partitions are read.
    pub(super) fn are_reached(&self) -> bool {
        self.unread.is_empty()
    }

    /// Records that a partition is read up to an offset. Returns `true` if that reaches its end for the first time.
    pub(super) fn advance(&mut self, at: &TopicPartition, next: i64) -> bool {
        self.ends.get(at).is_some_and(|end| next >= *end) && self.unread.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_stays_after_it_is_reached() {
        let (small, large) = (TopicPartition::new("orders", 0), TopicPartition::new("orders", 1));
        let mut ends = ReadEnds::default();
        assert!(ends.are_reached());
        ends.add([(small.clone(), 50), (large.clone(), 1000)].into());
        assert!(!ends.advance(&small, 49) && ends.is_unread(&small));
        assert!(ends.advance(&small, 50) && !ends.is_unread(&small));
        assert!(!ends.advance(&small, 60), "only once");
        assert_eq!((ends.of(&small), ends.of(&large), ends.are_reached()), (Some(50), Some(1000), false));
        ends.remove(std::slice::from_ref(&large));
        assert!(ends.are_reached());
    }
}

//! Requests that name the same thing more than once. Each is answered once: a short request would otherwise have a response of any size.

use std::collections::{BTreeMap, BTreeSet};

/// The items without those whose key an earlier one has.
pub(super) fn without_repeats<V, K: Ord>(mut items: Vec<V>, key: impl Fn(&V) -> K) -> Vec<V> {
    if items.len() > 1 {
        let mut seen = BTreeSet::new();
        items.retain(|item| seen.insert(key(item)));
    }
    items
}

/// The partitions that a request has named so far, by topic: a name can have 32 KiB, and a topic 100,000 partitions.
#[derive(Debug, Default)]
pub(super) struct SeenPartitions(BTreeMap<String, BTreeSet<i32>>);

impl SeenPartitions {
    /// The partitions of a topic that were not seen before.
    pub(super) fn new_ones(&mut self, topic: &str, mut partitions: Vec<i32>) -> Vec<i32> {
        let seen = match self.0.get_mut(topic) {
            Some(seen) => seen,
            None => self.0.entry(topic.to_owned()).or_default(),
        };
        partitions.retain(|partition| seen.insert(*partition));
        partitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_items_stays_in_its_place() {
        let items = vec![("b", 1), ("a", 2), ("b", 3), ("c", 4), ("a", 5)];
        assert_eq!(without_repeats(items, |item| item.0), [("b", 1), ("a", 2), ("c", 4)]);
    }

    #[test]
    fn a_partition_is_new_once_also_if_its_topic_is_named_again() {
        let mut seen = SeenPartitions::default();
        assert_eq!(seen.new_ones("a", vec![1, 0, 1]), [1, 0]);
        assert_eq!(seen.new_ones("b", vec![1]), [1]);
        assert_eq!(seen.new_ones("a", vec![0, 2, 1]), [2]);
    }
}

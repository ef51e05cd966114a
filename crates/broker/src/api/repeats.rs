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

/// The keys that a request has more than once. As in Kafka, they are an error of the request, whatever the client may do: handlers
/// refuse them without a look at what they name.
pub(super) fn repeated<K: Clone + Ord>(keys: impl Iterator<Item = K>) -> BTreeSet<K> {
    let mut seen = BTreeSet::new();
    keys.filter(|key| !seen.insert(key.clone())).collect()
}

/// The items of a list, then those of `more` that it does not have, each once. The items of a value of 32 KiB can be 16,000.
pub(super) fn with_new_ones<V: Ord + Clone>(mut list: Vec<V>, more: impl Iterator<Item = V>) -> Vec<V> {
    let mut seen: BTreeSet<V> = list.iter().cloned().collect();
    list.extend(more.filter(|item| seen.insert(item.clone())));
    list
}

/// The items of a list that are not in `less`.
pub(super) fn without<V: Ord>(mut list: Vec<V>, less: impl Iterator<Item = V>) -> Vec<V> {
    let less: BTreeSet<V> = less.collect();
    list.retain(|item| !less.contains(item));
    list
}

/// The partitions that a request has named so far, by topic: a name can have 32 KiB, and a topic 100,000 partitions.
#[derive(Debug, Default)]
pub(super) struct SeenPartitions(BTreeMap<String, BTreeSet<i32>>);

impl SeenPartitions {
    /// The partitions of a topic that were not seen before.
    pub(super) fn new_ones(&mut self, topic: &str, mut partitions: Vec<i32>) -> Vec<i32> {
        let seen = self.of_topic(topic);
        partitions.retain(|partition| seen.insert(*partition));
        partitions
    }

    /// Takes note of a partition. Returns `false` if it was seen before.
    pub(super) fn insert(&mut self, topic: &str, partition: i32) -> bool {
        self.of_topic(topic).insert(partition)
    }

    pub(super) fn contains(&self, topic: &str, partition: i32) -> bool {
        self.0.get(topic).is_some_and(|seen| seen.contains(&partition))
    }

    fn of_topic(&mut self, topic: &str) -> &mut BTreeSet<i32> {
        // Not `entry`: the name of a topic that was seen is not copied.
        if !self.0.contains_key(topic) {
            self.0.insert(topic.to_owned(), BTreeSet::new());
        }
        self.0.get_mut(topic).expect("it was inserted above")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use super::*;

    thread_local! {
        static COMPARISONS: Cell<usize> = const { Cell::new(0) };
    }

    /// A number that counts its comparisons.
    #[derive(Clone, Debug)]
    struct Counted(u32);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other) == Ordering::Equal
        }
    }

    impl Eq for Counted {}

    #[test]
    fn lists_are_joined_and_subtracted_in_their_order() {
        assert_eq!(with_new_ones(vec!["b", "a", "b"], ["c", "a", "c"].into_iter()), ["b", "a", "b", "c"]);
        assert_eq!(without(vec!["b", "a", "b", "c"], ["b", "d"].into_iter()), ["a", "c"]);
    }

    /// Each item was compared with all others: 64 million times.
    #[test]
    fn long_lists_are_not_compared_item_by_item() {
        let numbers = |from: u32| (from..from + 8000).map(Counted);
        let all = with_new_ones(numbers(0).collect(), numbers(8000));
        assert_eq!(without(all, numbers(8000)).len(), 8000);
        assert!(COMPARISONS.get() < 2_000_000, "{} comparisons", COMPARISONS.get());
    }

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

//! The offsets of a group that open transactions will change.

use std::collections::{BTreeMap, BTreeSet};

use crate::memory::Kept;

/// Memory of an offset here. The nodes of a set are at least five elevenths full.
pub(super) const UNSTABLE_BYTES: usize = 3 * size_of::<(i32, i64)>();
/// Memory of a topic here besides its name: an entry of the map, and a node of the set.
pub(super) const UNSTABLE_TOPIC_BYTES: usize =
    3 * size_of::<(String, Producers)>() + 11 * size_of::<(i32, i64)>();

/// Partitions of a topic, and the ids of the producers that have pending offsets of them.
type Producers = BTreeSet<(i32, i64)>;

/// The producers with pending offsets of a group, by topic and partition. Groups of many producers and partitions are looked at
/// without a search through all pending offsets.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Eq, PartialEq))]
pub(super) struct UnstableOffsets(BTreeMap<String, Producers>);

impl UnstableOffsets {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, topic: &str, partition: i32) -> bool {
        self.of_partition(topic, partition).next().is_some()
    }

    /// The producers that have a pending offset of a partition.
    pub(super) fn producers(&self, topic: &str, partition: i32) -> Vec<i64> {
        self.of_partition(topic, partition).collect()
    }

    pub(super) fn insert(&mut self, topic: &str, partition: i32, producer_id: i64, kept: &mut Kept) {
        // Not `entry`: the name of a topic that is known is not copied.
        if !self.0.contains_key(topic) {
            self.0.insert(topic.to_owned(), Producers::new());
            kept.add(UNSTABLE_TOPIC_BYTES + topic.len());
        }
        let producers = self.0.get_mut(topic).expect("it was inserted above");
        if producers.insert((partition, producer_id)) {
            kept.add(UNSTABLE_BYTES);
        }
    }

    pub(super) fn remove(&mut self, topic: &str, partition: i32, producer_id: i64, kept: &mut Kept) {
        let Some(producers) = self.0.get_mut(topic) else { return };
        if producers.remove(&(partition, producer_id)) {
            kept.release(UNSTABLE_BYTES);
        }
        if producers.is_empty() {
            self.0.remove(topic);
            kept.release(UNSTABLE_TOPIC_BYTES + topic.len());
        }
    }

    /// The memory of all of it.
    pub(super) fn bytes(&self) -> usize {
        let of_topic = |(topic, producers): (&String, &Producers)| {
            UNSTABLE_TOPIC_BYTES + topic.len() + producers.len() * UNSTABLE_BYTES
        };
        self.0.iter().map(of_topic).sum()
    }

    fn of_partition(&self, topic: &str, partition: i32) -> impl Iterator<Item = i64> {
        let producers = self.0.get(topic).into_iter();
        let found = producers.flat_map(move |all| all.range((partition, i64::MIN)..=(partition, i64::MAX)));
        found.map(|(_, producer_id)| *producer_id)
    }
}

//! The topics of a run. A slot is the number of a partition among those of all topics.

use crate::options::Options;

/// The names of the topics.
pub(crate) const TOPICS: [&str; 2] = ["orders", "payments"];
/// The names of the groups: two of members, and one of processors.
pub(crate) const GROUPS: [&str; 3] = ["billing", "shipping", "parallel"];
/// The group of the processors.
pub(crate) const PROCESSORS: u8 = 2;

impl Options {
    /// The topics with their numbers of partitions.
    pub(crate) fn topics(&self) -> impl Iterator<Item = (&'static str, i32)> + use<> {
        let counts = [self.partitions as i32, self.partitions_second as i32];
        TOPICS.into_iter().zip(counts).filter(|(_, count)| *count > 0)
    }

    /// The names of the topics.
    pub(crate) fn topic_names(&self) -> Vec<&'static str> {
        self.topics().map(|(name, _)| name).collect()
    }

    /// The number of partitions of all topics.
    pub(crate) fn slots(&self) -> i32 {
        (self.partitions + self.partitions_second) as i32
    }

    /// The topic and the partition of a slot.
    pub(crate) fn place(&self, slot: i32) -> (&'static str, i32) {
        let first = self.partitions as i32;
        if slot < first { (TOPICS[0], slot) } else { (TOPICS[1], slot - first) }
    }

    /// The slot of a partition.
    pub(crate) fn slot(&self, topic: &str, partition: i32) -> i32 {
        if topic == TOPICS[0] { partition } else { self.partitions as i32 + partition }
    }
}

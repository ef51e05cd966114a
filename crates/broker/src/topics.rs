//! Topics: their names, ids, partitions and settings, kept in a journal of their own.

mod ongoing_reassignment;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::{ErrorCode, Uuid};
use serde::{Deserialize, Serialize};

pub(crate) use self::ongoing_reassignment::{AddedReplica, OngoingReassignment};
use crate::config::TopicConfig;
use crate::partition::Partition;

/// A topic.
#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    pub(crate) id: Uuid,
    pub(crate) config: TopicConfig,
    /// The number of nodes that metadata lists as replicas of each partition, and that can lead it. The data is one copy on one disk.
    pub(crate) replication: i32,
    /// The replicas of partitions that a client has chosen, or that were placed elsewhere than on consecutive nodes.
    pub(crate) assignments: Assignments,
    /// The reassignments in progress, by partition. [`Topic::assignments`] has the replicas at their ends.
    pub(crate) reassignments: OngoingReassignments,
    pub(crate) partitions: Vec<Arc<Partition>>,
}

/// The replicas of partitions by their numbers, the preferred leader first.
pub(crate) type Assignments = BTreeMap<i32, Vec<i32>>;

/// The reassignments in progress of a topic, by the numbers of the partitions.
pub(crate) type OngoingReassignments = BTreeMap<i32, Arc<OngoingReassignment>>;

impl Topic {
    /// Returns `true` if a partition can have more than one replica.
    pub(crate) fn is_replicated(&self) -> bool {
        self.replication > 1 || !self.assignments.is_empty()
    }

    /// The replicas of a partition that were chosen or placed, if the topic stores them: during a reassignment the new replicas, and then
    /// those that it removes.
    pub(crate) fn assigned(&self, index: i32) -> Option<Vec<i32>> {
        let assigned = self.assignments.get(&index)?;
        let ongoing = self.reassignments.get(&index);
        Some(ongoing.map_or_else(|| assigned.clone(), |ongoing| ongoing.replicas(assigned)))
    }

    /// Returns `true` for a replica that a reassignment in progress adds, until it has caught up with the leader.
    pub(crate) fn is_lagging(&self, index: i32, node: i32) -> bool {
        self.reassignments.get(&index).is_some_and(|ongoing| ongoing.is_lagging(node))
    }
}

/// A topic to create.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewTopic {
    pub(crate) name: String,
    /// The number of partitions; -1 for the default number.
    pub(crate) partitions: i32,
    pub(crate) config: TopicConfig,
    /// The replication factor; less than 1 for the default number.
    pub(crate) replication: i32,
    /// The replicas of every partition, if the client has chosen them.
    pub(crate) assignments: Assignments,
}

impl NewTopic {
    /// A topic with the default settings.
    pub(crate) fn new(name: impl Into<String>, partitions: i32) -> Self {
        let (config, assignments) = (TopicConfig::default(), Assignments::new());
        Self { name: name.into(), partitions, config, replication: -1, assignments }
    }
}

/// The journal's record of a topic, in JSON so that people can read the file.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct TopicRecord {
    /// Of this record's form; a larger one was written by a later version of this program.
    pub(crate) version: u32,
    pub(crate) id: String,
    pub(crate) partitions: i32,
    pub(crate) configs: BTreeMap<String, String>,
    #[serde(default = "one_replica")]
    pub(crate) replication: i32,
    /// The replicas of partitions that a client has chosen or that were placed, by the numbers that the nodes have in the journal
    /// ([`Cluster::stored_node`](crate::cluster::Cluster::stored_node)).
    #[serde(default, skip_serializing_if = "Assignments::is_empty")]
    pub(crate) replicas: Assignments,
}

/// The replication factor of topics whose record has none.
fn one_replica() -> i32 {
    1
}

/// Directories that are being created or deleted: the only record that allows their removal.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct PendingRecord {
    /// As [`TopicRecord::version`].
    pub(crate) version: u32,
    /// The topic.
    pub(crate) name: String,
    /// The first partition meant.
    pub(crate) from: i32,
    /// The partition after the last one meant.
    pub(crate) to: i32,
}

/// The log of Kafka's controllers, which is no topic here.
pub(crate) const METADATA_TOPIC: &str = "__cluster_metadata";

/// The journal's key of a topic without its name.
pub(crate) const TOPIC_KEY: &str = "topic/";

/// The form written now.
pub(crate) const TOPIC_RECORD_VERSION: u32 = 1;

/// Longest topic name, Kafka's.
const NAME_BYTES_MAX: usize = 249;

/// The key of a topic in the journal.
pub(crate) fn topic_key(name: &str) -> Bytes {
    format!("{TOPIC_KEY}{name}").into()
}

/// The record of a topic with these properties. `replicas` are those of
/// [`Cluster::stored_assignments`](crate::cluster::Cluster::stored_assignments).
pub(crate) fn record_of(
    id: Uuid,
    partitions: i32,
    config: &TopicConfig,
    replication: i32,
    replicas: Assignments,
) -> TopicRecord {
    TopicRecord {
        version: TOPIC_RECORD_VERSION,
        id: id.to_string(),
        partitions,
        configs: config.values().clone(),
        replication,
        replicas,
    }
}

/// Returns whether a name may be a topic's, and so part of a path: letters, digits, `.`, `_`, `-`, and not `.` or `..`.
pub(crate) fn check_name(name: &str) -> Result<(), (ErrorCode, String)> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let reason = if name.is_empty() {
        "a topic name must not be empty".to_owned()
    } else if name.len() > NAME_BYTES_MAX {
        format!("a topic name has at most {NAME_BYTES_MAX} characters, this one {}", name.len())
    } else if name == "." || name == ".." {
        format!("`{name}` cannot be a topic name")
    } else if let Some(bad) = name.chars().find(|c| !u8::try_from(*c).is_ok_and(fits)) {
        format!("a topic name has letters, digits, `.`, `_` and `-`; this one has {bad:?}")
    } else {
        return Ok(());
    };
    Err((ErrorCode::InvalidTopicException, reason))
}

/// The name as Kafka's metrics show it, where `.` and `_` are the same.
pub(crate) fn folded_name(name: &str) -> String {
    name.replace('.', "_")
}

/// The directory of a partition. The name was checked; no number or dash in it makes two partitions share one.
pub(crate) fn partition_dir(topic: &str, partition: i32) -> String {
    format!("{topic}-{partition}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_be_paths_or_surprise_are_refused() {
        for bad in ["", ".", "..", "../../etc", "a/b", "a\\b", "a\0b", "a b", "ä", "a\n", &"x".repeat(250)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "orders.eu-1_x", "...", "CON", &"x".repeat(249)] {
            check_name(good).unwrap_or_else(|(_, reason)| panic!("{reason}"));
        }
    }
}

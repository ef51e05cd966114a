//! Assignors: the classic protocol's assignment of partitions to the members of a group, computed by the group's leader.
//!
//! The built-in ones compute the same assignment as Java's client, so that either may lead a group of both. With
//! librdkafka's habits, `cooperative-sticky` follows librdkafka in groups with racks. They are synchronous and use no
//! randomness.

mod cooperative;
mod order;
mod racks;
mod range;
mod roundrobin;
mod sticky;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub use self::cooperative::CooperativeSticky;
pub use self::range::Range;
pub use self::roundrobin::RoundRobin;
pub use self::sticky::Sticky;
use crate::types::{GroupHabits, TopicPartition};

/// Topics and, for each of their partitions from 0 on, the racks that have a replica.
pub type Topics = BTreeMap<Arc<str>, Vec<BTreeSet<Arc<str>>>>;

/// Partitions by member id.
pub type Assignment = BTreeMap<String, Vec<TopicPartition>>;

/// Assigns the partitions of topics to the members of a group.
///
/// Register a custom one with [`Config::assignor`](crate::Config::assignor) and name it in
/// `partition.assignment.strategy`.
///
/// ```
/// use std::collections::BTreeMap;
/// use ottla_client::TopicPartition;
/// use ottla_client::assignor::{Assignment, Assignor, Member, Topics};
///
/// /// Everything to the first member; the others stand by.
/// #[derive(Debug)]
/// struct OneWorks;
///
/// impl Assignor for OneWorks {
///     fn name(&self) -> &str {
///         "one-works"
///     }
///
///     fn assign(&self, topics: &Topics, members: &BTreeMap<String, Member>) -> Assignment {
///         let all = topics.iter().flat_map(|(topic, partitions)| {
///             (0..partitions.len()).map(|partition| TopicPartition::new(topic, partition as i32))
///         });
///         members.keys().take(1).map(|member| (member.clone(), all.clone().collect())).collect()
///     }
/// }
/// ```
pub trait Assignor: fmt::Debug + Send + Sync {
    /// The name of the assignor in `partition.assignment.strategy` and in the group protocol.
    fn name(&self) -> &str;

    /// Returns `true` if members keep their partitions while they rejoin (KIP-429).
    ///
    /// In that case, [`assign`](Self::assign) must not assign a partition that another member still owns. It leaves
    /// the partition unassigned; the next rebalance assigns it to its new owner.
    fn is_cooperative(&self) -> bool {
        false
    }

    /// The user data that this member sends to the group leader with its subscription.
    fn user_data(&self, _held: &OwnedPartitions) -> Option<Bytes> {
        None
    }

    /// Computes the assignment. A member that is missing in it gets no partitions.
    fn assign(&self, topics: &Topics, members: &BTreeMap<String, Member>) -> Assignment;
}

/// The last assignment of a member.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct OwnedPartitions {
    /// The partitions.
    pub partitions: Vec<TopicPartition>,
    /// The generation of the assignment; `None` before the first.
    pub generation: Option<i32>,
}

impl OwnedPartitions {
    /// Creates the record of `partitions`, assigned in `generation`.
    pub fn new(partitions: Vec<TopicPartition>, generation: Option<i32>) -> Self {
        Self { partitions, generation }
    }
}

/// A member, as the group leader receives it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Member {
    /// The `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// The topics that the member subscribes to.
    pub topics: Vec<Arc<str>>,
    /// The partitions that the member owns while it joins; empty if it revokes all of them first.
    pub owned: Vec<TopicPartition>,
    /// The generation of its last assignment, if reported.
    pub generation: Option<i32>,
    /// The member's `client.rack`.
    pub rack: Option<Arc<str>>,
    /// The user data from the member's assignor: [`Assignor::user_data`].
    pub user_data: Option<Bytes>,
}

impl Member {
    /// Creates a member that subscribes to `topics` and owns no partitions.
    pub fn of(topics: &[&str]) -> Self {
        Self { topics: topics.iter().map(|topic| Arc::from(*topic)).collect(), ..Self::default() }
    }
}

/// The built-in assignor of this name.
pub(crate) fn built_in(name: &str, habits: GroupHabits) -> Option<Arc<dyn Assignor>> {
    match name {
        "cooperative-sticky" if habits == GroupHabits::Librdkafka => {
            Some(Arc::new(cooperative::LibrdkafkaCooperativeSticky))
        }
        "range" => Some(Arc::new(Range)),
        "roundrobin" => Some(Arc::new(RoundRobin)),
        "sticky" => Some(Arc::new(Sticky)),
        "cooperative-sticky" => Some(Arc::new(CooperativeSticky)),
        _ => None,
    }
}

/// The names that [`built_in`] knows.
pub(crate) const BUILT_IN: &[&str] = &["range", "roundrobin", "sticky", "cooperative-sticky"];

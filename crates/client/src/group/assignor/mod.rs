//! Who gets which partitions: what a group's leader decides in the classic protocol. Sync, and free of chance.
//!
//! The built-in ones give every member what Java's client gives it, so that either may lead a group of both.

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
use crate::consumer::TopicPartition;

/// Topics and, for each of their partitions from 0 on, the racks that have a replica.
pub type Topics = BTreeMap<Arc<str>, Vec<BTreeSet<Arc<str>>>>;

/// Partitions by member id.
pub type Assignment = BTreeMap<String, Vec<TopicPartition>>;

/// Shares the partitions of topics out among the members of a group.
///
/// Give your own to [`Config::assignor`](crate::Config::assignor) and name it in `partition.assignment.strategy`.
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
    /// What it is called in `partition.assignment.strategy` and between the members.
    fn name(&self) -> &str;

    /// Whether members may keep their partitions while they join again (KIP-429).
    ///
    /// Then [`assign`](Self::assign) must not give a partition to a member while another one owns it: it gives it to
    /// nobody, and once the owner has let go of it and the group assigns again, to its new owner.
    fn is_cooperative(&self) -> bool {
        false
    }

    /// What this member tells the leader beyond its subscription.
    fn user_data(&self, _held: &Held) -> Option<Bytes> {
        None
    }

    /// The assignment. A member that is left out gets nothing.
    fn assign(&self, topics: &Topics, members: &BTreeMap<String, Member>) -> Assignment;
}

/// What a member was given last.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Held {
    /// The partitions.
    pub partitions: Vec<TopicPartition>,
    /// In which generation; none before the first.
    pub generation: Option<i32>,
}

impl Held {
    /// `partitions`, given in `generation`.
    pub fn new(partitions: Vec<TopicPartition>, generation: Option<i32>) -> Self {
        Self { partitions, generation }
    }
}

/// A member as the leader sees it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Member {
    /// The name of a static member.
    pub instance_id: Option<String>,
    /// What it subscribes to.
    pub topics: Vec<Arc<str>>,
    /// What it owns while it joins: nothing if it gives everything up first.
    pub owned: Vec<TopicPartition>,
    /// The generation it was in last, if it says.
    pub generation: Option<i32>,
    /// `client.rack`.
    pub rack: Option<Arc<str>>,
    /// What its assignor added: [`Assignor::user_data`].
    pub user_data: Option<Bytes>,
}

impl Member {
    /// A member that subscribes to `topics` and owns nothing.
    pub fn of(topics: &[&str]) -> Self {
        Self { topics: topics.iter().map(|topic| Arc::from(*topic)).collect(), ..Self::default() }
    }
}

/// The built-in assignor of this name.
pub(crate) fn built_in(name: &str) -> Option<Arc<dyn Assignor>> {
    match name {
        "range" => Some(Arc::new(Range)),
        "roundrobin" => Some(Arc::new(RoundRobin)),
        "sticky" => Some(Arc::new(Sticky)),
        "cooperative-sticky" => Some(Arc::new(CooperativeSticky)),
        _ => None,
    }
}

/// The names that [`built_in`] knows.
pub(crate) const BUILT_IN: &[&str] = &["range", "roundrobin", "sticky", "cooperative-sticky"];

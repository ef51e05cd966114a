//! The topics of a group's subscription and of its assignment, and their changes, which end a generation.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use crate::assignor::Topics;
use crate::cluster::Cluster;
use crate::cluster::metadata::{PartitionRacks, TopicLayout};
use crate::config::Config;
use crate::group::Shared;
use crate::group::subscription::Subscription;

/// The topics of the group's assignment, which its leader watches.
#[derive(Default)]
pub(super) struct AssignedTopics {
    pub(super) topics: Topics,
    /// A member has a rack, so the assignment depends on the racks of replicas.
    pub(super) uses_racks: bool,
}

/// The topics of a generation, whose changes end it.
pub(super) struct WatchedTopics {
    pub(super) subscription: Subscription,
    /// The topics that the member joined with.
    pub(super) topics: Vec<Arc<str>>,
    pub(super) assigned: AssignedTopics,
}

impl WatchedTopics {
    /// Returns the reason to join again, when the metadata differs.
    pub(super) async fn change(&self, shared: &Shared) -> &'static str {
        tokio::select! {
            biased;
            () = topics_change(shared, &self.subscription, &self.topics) => {
                "the topics of the subscription have changed"
            }
            () = partitions_change(shared, &self.assigned) => {
                "the partitions of the subscription's topics have changed"
            }
        }
    }
}

/// Returns `true` if one of the topics is known and exists.
pub(super) fn has_topic(shared: &Shared, topics: &[Arc<str>]) -> bool {
    let exists =
        |topic: &Arc<str>| shared.cluster.topic(topic).is_some_and(|layout| layout.lasting_error().is_none());
    topics.iter().any(exists)
}

/// Returns when one of the topics exists.
pub(super) async fn topic_appears(shared: &Shared, topics: &[Arc<str>]) {
    let mut changes = shared.cluster.changes();
    while !has_topic(shared, topics) {
        changes.changed().await;
    }
}

/// The topics to join with: the subscribed names and the topics that match patterns; beside a pattern only names that exist.
pub(super) fn existing_topics(subscription: &Subscription, cluster: &Cluster) -> Vec<Arc<str>> {
    let mut topics = subscription.topics(&cluster.visible_topics());
    if subscription.has_patterns() {
        topics.retain(|topic| cluster.lasting_error(topic).is_none());
    }
    topics
}

/// Returns when other topics match the subscription.
pub(super) async fn topics_change(shared: &Shared, subscription: &Subscription, topics: &[Arc<str>]) {
    change(shared, || {
        if !subscription.has_patterns() {
            return Difference::None;
        }
        let now = existing_topics(subscription, &shared.cluster);
        if now == topics {
            Difference::None
        } else if now.iter().all(|topic| topics.contains(topic)) {
            Difference::Missing
        } else {
            Difference::Present
        }
    })
    .await;
}

/// Returns when the number of partitions of a topic, or the racks of their replicas, differ from the assigned ones, or the
/// topic was deleted. Only the leader has assigned topics.
async fn partitions_change(shared: &Shared, assigned: &AssignedTopics) {
    change(shared, || {
        let differences = (assigned.topics.iter())
            .map(|(topic, partitions)| differs(shared, topic, partitions, assigned.uses_racks));
        differences.max().unwrap_or_default()
    })
    .await;
}

/// The difference between the assigned topics and the metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    #[default]
    None,
    /// Topics or partitions are missing. A broker that lags behind may not know them.
    Missing,
    Present,
}

/// The longest time for which a topic is missing before the group gives it up.
const MISSING_MAX: Duration = Duration::from_secs(5);

fn missing_max(config: &Config) -> Duration {
    MISSING_MAX.min(config.metadata_max_age).min(config.topic_metadata_refresh_interval)
}

/// Returns `true` if the group assigns no partition of the topic: it may not be read, or has been missing for too long.
pub(super) fn is_given_up(shared: &Shared, topic: &str, layout: &TopicLayout) -> bool {
    match layout.lasting_error() {
        None => false,
        Some(ErrorCode::UnknownTopicOrPartition) => {
            shared.cluster.missing_for(topic) >= missing_max(&shared.cluster.config)
        }
        Some(_) => true,
    }
}

/// Returns when the metadata differs. Topics must be missing for the maximum age of metadata, or for [`MISSING_MAX`].
async fn change(shared: &Shared, difference: impl Fn() -> Difference) {
    let missing_max = missing_max(&shared.cluster.config);
    let mut changes = shared.cluster.changes();
    let mut given_up_at = None;
    loop {
        match difference() {
            Difference::None => {
                given_up_at = None;
                changes.changed().await;
            }
            Difference::Missing => {
                let at = *given_up_at.get_or_insert_with(|| Instant::now() + missing_max);
                if tokio::time::timeout_at(at, changes.changed()).await.is_err() {
                    return;
                }
            }
            Difference::Present => return,
        }
    }
}

fn differs(shared: &Shared, topic: &str, assigned: &PartitionRacks, uses_racks: bool) -> Difference {
    let Some(layout) = shared.cluster.topic(topic) else { return Difference::None };
    match layout.error {
        ErrorCode::None => {
            // With an id, the metadata keeps all partitions of the topic.
            if layout.id.is_zero() && layout.partitions.len() < assigned.len() {
                return Difference::Missing;
            }
            let racks = layout.racks.as_deref().filter(|_| uses_racks);
            if layout.partitions.len() != assigned.len() || racks.is_some_and(|racks| racks != assigned) {
                return Difference::Present;
            }
            Difference::None
        }
        ErrorCode::UnknownTopicOrPartition if !assigned.is_empty() => Difference::Missing,
        _ => Difference::None,
    }
}

//! The dead-letter topic of a share group: its name, the rules for it, and its creation.

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::DeadLetterError;
use crate::cluster::Cluster;
use crate::config::dead_letter_queues::{COPIES_RECORDS, TOPIC_NAME, check_topic_name};
use crate::config::live::GROUP;
use crate::config::{ACCEPTS_DEAD_LETTERS, DeadLetterConfig, TopicConfig};
use crate::topics::{Assignments, NewTopic, Topic};

/// The dead-letter queue of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct DeadLetterQueue {
    /// `errors.deadletterqueue.topic.name`.
    pub(super) topic: String,
    /// `errors.deadletterqueue.copy.record.enable`.
    pub(super) copies_records: bool,
}

impl DeadLetterQueue {
    /// The queue that the group's configurations name.
    fn of_group(cluster: &Cluster, group: &str) -> Option<Self> {
        let values = cluster.live.values(GROUP, group);
        let text = |name: &str| values.get(name).map(|value| value.trim());
        let topic = text(TOPIC_NAME).filter(|topic| !topic.is_empty())?;
        let copies_records = text(COPIES_RECORDS).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        Some(Self { topic: topic.to_owned(), copies_records })
    }

    /// Checks Kafka's rules for the topic: no group may make the broker write to a topic whose administrator does not allow it.
    fn check(&self, group: &str, config: &DeadLetterConfig, known: Option<&Topic>) -> Result<(), String> {
        let (topic, prefix) = (&self.topic, &config.name_prefix);
        check_topic_name(topic)?;
        if known.is_some_and(|known| !known.config.accepts_dead_letters()) {
            return Err(format!(
                "topic `{topic}`, the dead-letter queue of share group `{group}`, does not accept dead letters: set \
                 {ACCEPTS_DEAD_LETTERS}=true on it"
            ));
        }
        if known.is_none() && !config.creates_topics {
            return Err(format!(
                "topic `{topic}`, the dead-letter queue of share group `{group}`, does not exist: create it with \
                 {ACCEPTS_DEAD_LETTERS}=true, or set errors.deadletterqueue.auto.create.topics.enable=true on the broker"
            ));
        }
        if !topic.starts_with(&**prefix) {
            return Err(format!(
                "topic `{topic}`, the dead-letter queue of share group `{group}`, must have a name that begins with `{prefix}` \
                 (errors.deadletterqueue.topic.name.prefix)"
            ));
        }
        Ok(())
    }
}

/// The queue of a group, and its topic. A missing topic is created if the broker may do that.
///
/// # Errors
/// [`DeadLetterError::Unusable`] if the topic breaks a rule; [`DeadLetterError::Unavailable`] if it cannot be created now.
pub(super) async fn find_or_create(
    cluster: &Arc<Cluster>,
    group: &str,
) -> Result<(DeadLetterQueue, Arc<Topic>), DeadLetterError> {
    let Some(queue) = DeadLetterQueue::of_group(cluster, group) else {
        let reason = format!(
            "share group `{group}` has no dead-letter queue any more: set {TOPIC_NAME} to keep such records"
        );
        return Err(DeadLetterError::Unusable(reason));
    };
    let known = cluster.topic(&queue.topic);
    queue
        .check(group, &cluster.live.broker().dead_letters, known.as_deref())
        .map_err(DeadLetterError::Unusable)?;
    if let Some(topic) = known {
        return Ok((queue, topic));
    }
    let new = new_topic(&queue.topic);
    match cluster.change_topics(move |cluster| cluster.create_topic(new, false)).await {
        Ok(topic) => {
            tracing::info!(topic = %queue.topic, group, "created the dead-letter topic of a share group");
            Ok((queue, topic))
        }
        // Another share partition was first: the next attempt finds the topic, and checks it.
        Err((ErrorCode::TopicAlreadyExists | ErrorCode::KafkaStorageError, reason)) => {
            Err(DeadLetterError::Unavailable(reason))
        }
        Err((_, reason)) => Err(DeadLetterError::Unusable(format!(
            "the dead-letter topic of share group `{group}` cannot be created: {reason}"
        ))),
    }
}

/// The topic that Kafka creates. The time of a letter is that of its write, whatever the broker's default for topics is.
fn new_topic(name: &str) -> NewTopic {
    let mut config = TopicConfig::default();
    for (name, value) in [(ACCEPTS_DEAD_LETTERS, "true"), ("message.timestamp.type", "CreateTime")] {
        config.set(name, value).expect("the values are allowed: a test creates the topic");
    }
    NewTopic {
        name: name.to_owned(),
        partitions: -1,
        config,
        replication: -1,
        assignments: Assignments::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(accepts: bool) -> Topic {
        let mut config = TopicConfig::default();
        config.set(ACCEPTS_DEAD_LETTERS, if accepts { "true" } else { "false" }).expect("allowed");
        Topic {
            name: "dlq.billing".into(),
            id: ottla_protocol::Uuid([1; 16]),
            config,
            replication: 1,
            assignments: Assignments::new(),
            reassignments: crate::topics::OngoingReassignments::new(),
            partitions: Vec::new(),
        }
    }

    #[test]
    fn a_dead_letter_topic_obeys_kafkas_rules() {
        let check = |name: &str, config: &DeadLetterConfig, known: Option<&Topic>| {
            let queue = DeadLetterQueue { topic: name.to_owned(), copies_records: false };
            queue.check("billing", config, known)
        };
        let mut config = DeadLetterConfig::default();
        assert_eq!(check("dlq.billing", &config, Some(&topic(true))), Ok(()));
        let refused = |result: Result<(), String>, what: &str| {
            let reason = result.expect_err("refused");
            assert!(reason.contains(what), "{reason}");
        };
        refused(check("__share_group_state", &config, Some(&topic(true))), "internal");
        refused(check("dlq.billing", &config, Some(&topic(false))), "group.enable=true");
        refused(check("dlq.billing", &config, None), "does not exist");
        refused(check("orders", &config, Some(&topic(true))), "begins with `dlq.`");
        config.creates_topics = true;
        assert_eq!(check("dlq.billing", &config, None), Ok(()));
        config.name_prefix = String::new();
        assert_eq!(check("orders", &config, Some(&topic(true))), Ok(()));
        assert!(new_topic("dlq.billing").config.accepts_dead_letters());
    }
}

//! The share session with one leader: its epoch, and the partitions that the broker fetches for it.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::Uuid;
use ottla_protocol::messages::{share_acknowledge, share_fetch};

use super::acknowledgements::{AckRange, PartitionAcks, TopicIdPartition, merged};

/// The epoch that opens a session. Such a request may not acknowledge.
const OPENS: i32 = 0;
/// The epoch that ends a session: the broker releases the records that are still acquired.
const CLOSES: i32 = -1;

/// The session with one leader. At epoch 0, the next fetch opens it.
#[derive(Debug, Default)]
pub(super) struct ShareSession {
    epoch: i32,
    partitions: BTreeSet<TopicIdPartition>,
}

/// The session's part of a ShareFetch request.
#[derive(Debug)]
pub(super) struct FetchPart {
    pub(super) epoch: i32,
    pub(super) topics: Vec<share_fetch::FetchTopic>,
    pub(super) forgotten: Vec<share_fetch::ForgottenTopic>,
}

/// The session's part of a ShareAcknowledge request.
#[derive(Debug)]
pub(super) struct AcknowledgePart {
    pub(super) epoch: i32,
    pub(super) topics: Vec<share_acknowledge::AcknowledgeTopic>,
}

impl ShareSession {
    /// Returns `true` if the broker has the session, as far as this client knows.
    pub(super) fn is_open(&self) -> bool {
        self.epoch != OPENS
    }

    /// The next ShareFetch request for exactly the partitions in `wanted`, with acknowledgements of these. A request that opens
    /// the session has no acknowledgements: the caller passes none.
    pub(super) fn fetch(&mut self, wanted: &BTreeSet<TopicIdPartition>, acks: &[PartitionAcks]) -> FetchPart {
        assert!(
            self.is_open() || acks.is_empty(),
            "a request that opens a share session acknowledges nothing"
        );
        let mut named: BTreeMap<TopicIdPartition, Vec<AckRange>> = by_partition(acks);
        for added in wanted.difference(&self.partitions) {
            named.entry(*added).or_default();
        }
        let forgotten: Vec<_> = self.partitions.difference(wanted).copied().collect();
        self.partitions.clone_from(wanted);
        let partition = |(key, ranges): (TopicIdPartition, Vec<AckRange>)| {
            let acknowledgement_batches = ranges.into_iter().map(fetch_batch).collect();
            let partition_index = key.partition;
            (key.topic_id, share_fetch::FetchPartition { partition_index, acknowledgement_batches })
        };
        let topic = |(topic_id, partitions)| share_fetch::FetchTopic { topic_id, partitions };
        let gone = |(topic_id, partitions)| share_fetch::ForgottenTopic { topic_id, partitions };
        let forgotten = by_topic(forgotten.into_iter().map(|key| (key.topic_id, key.partition)));
        FetchPart {
            epoch: self.epoch,
            topics: by_topic(named.into_iter().map(partition)).into_iter().map(topic).collect(),
            forgotten: forgotten.into_iter().map(gone).collect(),
        }
    }

    /// The next ShareAcknowledge request; with `closes`, it ends the session.
    pub(super) fn acknowledge(&self, acks: &[PartitionAcks], closes: bool) -> AcknowledgePart {
        assert!(self.is_open(), "only ShareFetch opens a share session");
        let partition = |(key, ranges): (TopicIdPartition, Vec<AckRange>)| {
            let acknowledgement_batches = ranges.into_iter().map(acknowledge_batch).collect();
            let partition_index = key.partition;
            (
                key.topic_id,
                share_acknowledge::AcknowledgePartition { partition_index, acknowledgement_batches },
            )
        };
        let topic = |(topic_id, partitions)| share_acknowledge::AcknowledgeTopic { topic_id, partitions };
        AcknowledgePart {
            epoch: if closes { CLOSES } else { self.epoch },
            topics: by_topic(by_partition(acks).into_iter().map(partition)).into_iter().map(topic).collect(),
        }
    }

    /// The broker processed the last request: the next one has the next epoch.
    pub(super) fn advance(&mut self) {
        self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
    }

    /// The session is lost, or its state at the broker is unknown: the next fetch opens a new one.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}

fn by_partition(acks: &[PartitionAcks]) -> BTreeMap<TopicIdPartition, Vec<AckRange>> {
    let keys: BTreeSet<_> = acks.iter().map(|acks| acks.key).collect();
    let of = |key| (key, merged(acks.iter().filter(move |acks| acks.key == key)));
    keys.into_iter().map(of).collect()
}

fn by_topic<T>(partitions: impl Iterator<Item = (Uuid, T)>) -> BTreeMap<Uuid, Vec<T>> {
    let mut topics: BTreeMap<Uuid, Vec<T>> = BTreeMap::new();
    for (topic_id, partition) in partitions {
        topics.entry(topic_id).or_default().push(partition);
    }
    topics
}

fn fetch_batch(range: AckRange) -> share_fetch::AcknowledgementBatch {
    let AckRange { first: first_offset, last: last_offset, types: acknowledge_types } = range;
    share_fetch::AcknowledgementBatch { first_offset, last_offset, acknowledge_types }
}

fn acknowledge_batch(range: AckRange) -> share_acknowledge::AcknowledgementBatch {
    let AckRange { first: first_offset, last: last_offset, types: acknowledge_types } = range;
    share_acknowledge::AcknowledgementBatch { first_offset, last_offset, acknowledge_types }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TopicPartition;

    fn key(partition: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id: Uuid::ONE, partition }
    }

    fn wanted(partitions: &[i32]) -> BTreeSet<TopicIdPartition> {
        partitions.iter().map(|partition| key(*partition)).collect()
    }

    fn accepts(partition: i32, first: i64, last: i64) -> PartitionAcks {
        let ranges = vec![AckRange::uniform(first, last, 1)];
        let at = TopicPartition::new("orders", partition);
        let (key, retry_at, give_up_at) = (key(partition), None, None);
        PartitionAcks { id: 0, key, at, node: 1, ranges, attempts: 0, retry_at, give_up_at }
    }

    /// The named partitions, each with its number of acknowledged ranges, and the forgotten ones.
    fn shape(part: &FetchPart) -> (i32, Vec<(i32, usize)>, Vec<i32>) {
        let named = part.topics.iter().flat_map(|topic| &topic.partitions);
        let named = named.map(|named| (named.partition_index, named.acknowledgement_batches.len()));
        let forgotten = part.forgotten.iter().flat_map(|topic| topic.partitions.clone());
        (part.epoch, named.collect(), forgotten.collect())
    }

    #[test]
    fn a_session_names_its_partitions_once_and_then_only_changes_and_acknowledgements() {
        let mut session = ShareSession::default();
        assert!(!session.is_open());
        assert_eq!(shape(&session.fetch(&wanted(&[0, 1]), &[])), (0, vec![(0, 0), (1, 0)], vec![]));
        session.advance();
        assert!(session.is_open());
        let second = session.fetch(&wanted(&[0, 1]), &[accepts(1, 0, 4), accepts(1, 7, 9)]);
        assert_eq!(shape(&second), (1, vec![(1, 2)], vec![]));
        session.advance();
        assert_eq!(shape(&session.fetch(&wanted(&[1, 2]), &[])), (2, vec![(2, 0)], vec![0]));
    }

    #[test]
    fn a_lost_session_is_opened_again_with_all_partitions() {
        let mut session = ShareSession::default();
        session.fetch(&wanted(&[0, 1]), &[]);
        session.advance();
        session.restart();
        assert!(!session.is_open());
        assert_eq!(shape(&session.fetch(&wanted(&[1]), &[])), (0, vec![(1, 0)], vec![]));
    }

    #[test]
    fn epochs_wrap_to_one_and_the_last_request_closes() {
        let mut session = ShareSession { epoch: i32::MAX, partitions: wanted(&[0]) };
        assert_eq!(session.acknowledge(&[], true).epoch, -1);
        session.advance();
        assert_eq!(session.acknowledge(&[accepts(0, 0, 1)], false).epoch, 1);
    }
}

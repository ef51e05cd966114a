//! One batch of dead letters: the checks of its topic, its records and its append.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::{BatchRequest, LetterBatch, RECORDS_MAX, build, memory_bytes};
use super::topic::find_or_create;
use super::{BatchLimit, DeadLetterError, DeadLetters, LetterSource, WrittenLetters};
use crate::cluster::Cluster;
use crate::partition::Partition;
use crate::topics::Topic;

impl Cluster {
    /// Writes the first batch of these letters to the group's dead-letter queue, until it is durable. The letters are not empty.
    ///
    /// The checks are made for each batch: all settings can change at any time.
    pub(crate) async fn write_dead_letters(
        self: &Arc<Self>,
        source: &LetterSource,
        letters: &VecDeque<DeadLetters>,
        limit: BatchLimit,
    ) -> Result<WrittenLetters, DeadLetterError> {
        let (queue, topic) = find_or_create(self, &source.group).await?;
        let partition = partition_of(&topic, source.index)?;
        let message_bytes_max = {
            let log = partition.log();
            log.config().message_bytes_max.min(log.config().segment_bytes) as usize
        };
        let copied = source.partition.as_ref().filter(|_| queue.copies_records);
        let memory_bytes = memory_bytes(copied, message_bytes_max);
        let request = BatchRequest {
            source: source.clone(),
            letters: letters.iter().take(RECORDS_MAX).copied().collect(),
            copies_records: queue.copies_records,
            limit,
            message_bytes_max,
        };
        let batch = self.run_dead_letters(memory_bytes, move |cluster| build(cluster, &request)).await;
        let Some(LetterBatch { bytes, letters, offsets, without_copy }) = batch else {
            return Err(DeadLetterError::Unusable("no batch can be built".to_owned()));
        };
        let written = WrittenLetters { last: offsets.1, letters };
        let Some(bytes) = bytes else { return Ok(written) };
        if without_copy > 0 {
            tracing::warn!(group = %source.group, topic = %source.topic, partition = source.index, first = offsets.0,
                last = offsets.1, without_copy,
                "dead letters have no copy of their record: it is deleted, too large or cannot be read");
        }
        self.produce_own(&topic, partition, bytes).await.map_err(|(code, reason)| {
            let reason = format!(
                "dead-letter topic `{}`, partition {}: {}",
                partition.topic,
                partition.index,
                reason.unwrap_or_else(|| code.to_string())
            );
            if code.is_retriable() {
                DeadLetterError::Unavailable(reason)
            } else {
                DeadLetterError::Refused { reason, offsets }
            }
        })?;
        Ok(written)
    }
}

/// The partition for the letters of a partition of the source: Kafka's choice.
fn partition_of(topic: &Topic, index: i32) -> Result<&Arc<Partition>, DeadLetterError> {
    let count = topic.partitions.len().max(1);
    let found = usize::try_from(index).ok().and_then(|index| topic.partitions.get(index % count));
    found.ok_or_else(|| {
        DeadLetterError::Unavailable(format!("dead-letter topic `{}` has no partitions", topic.name))
    })
}

//! DeleteRecords: moves the beginning of a partition.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopicResult,
};

use super::repeats::SeenPartitions;
use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::durable_append::await_syncs;

/// Stands for "up to the high watermark".
const HIGH_WATERMARK: i64 = -1;

impl Api for DeleteRecordsRequest {
    async fn handle(mut self, context: RequestContext) -> DeleteRecordsResponse {
        keep_last(&mut self);
        let node = context.node();
        let cluster = context.cluster();
        let mut named = Vec::new();
        for topic in &self.topics {
            let indexes = topic.partitions.iter().map(|partition| partition.partition_index);
            named.extend(indexes.filter_map(|index| cluster.partition(&topic.name, index)));
        }
        await_syncs(cluster, &named).await;
        let work = move |cluster: &Cluster| {
            respond(self, |topic, partition, offset| delete(cluster, node, topic, partition, offset))
        };
        cluster.run_deletion(context.connection.client_host(), work).await
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DeleteRecordsResponse {
        respond(self, |_, _, _| Err(code))
    }
}

/// Leaves each partition once, with the last of its offsets, as Kafka does: each deletion waits for the disk.
fn keep_last(request: &mut DeleteRecordsRequest) {
    let mut seen = SeenPartitions::default();
    for topic in request.topics.iter_mut().rev() {
        topic.partitions.reverse();
        topic.partitions.retain(|partition| seen.insert(&topic.name, partition.partition_index));
        topic.partitions.reverse();
    }
}

fn delete(cluster: &Cluster, node: i32, topic: &str, index: i32, offset: i64) -> Result<i64, ErrorCode> {
    let partition = cluster.partition(topic, index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    cluster.check_leader(&partition, node, -1)?;
    if partition.is_internal {
        return Err(ErrorCode::InvalidTopicException);
    }
    // As Kafka: a topic that is only compacted keeps the last record of each key.
    let is_only_compacted = {
        let log = partition.log();
        log.config().compact && !log.config().delete
    };
    if is_only_compacted {
        return Err(ErrorCode::PolicyViolation);
    }
    let high_watermark = partition.high_watermark();
    let offset = if offset == HIGH_WATERMARK { high_watermark } else { offset };
    if !(0..=high_watermark).contains(&offset) {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    partition.delete_records_before(offset).map_err(|error| {
        if partition.is_deleted() {
            return ErrorCode::UnknownTopicOrPartition;
        }
        tracing::error!(%error, "cannot delete records");
        ErrorCode::KafkaStorageError
    })
}

fn respond(
    request: DeleteRecordsRequest,
    delete: impl Fn(&str, i32, i64) -> Result<i64, ErrorCode>,
) -> DeleteRecordsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let (low_watermark, error_code) =
                match delete(&topic.name, partition.partition_index, partition.offset) {
                    Ok(low_watermark) => (low_watermark, ErrorCode::None),
                    Err(code) => (-1, code),
                };
            DeleteRecordsPartitionResult {
                partition_index: partition.partition_index,
                low_watermark,
                error_code,
            }
        });
        DeleteRecordsTopicResult { partitions: partitions.collect(), name: topic.name }
    });
    DeleteRecordsResponse { topics: topics.collect(), ..Default::default() }
}

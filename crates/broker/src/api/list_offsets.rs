//! ListOffsets: the first, the last, or the offset at a time.

use std::sync::Arc;

use ottla_log::{TimestampOffset, find_by_time, find_newest};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};

use super::reader::Isolation;
use super::repeats::SeenPartitions;
use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::durable_append::await_syncs;
use crate::partition::Partition;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;
/// The replica ids of requests of clients, and of requests that any replica answers. Other requests are those of followers.
const CONSUMER_REPLICA: i32 = -1;
const DEBUGGING_REPLICA: i32 = -2;
/// The answer for a time after the last record.
const NOWHERE: TimestampOffset = TimestampOffset { timestamp: -1, offset: -1, leader_epoch: -1 };
/// The first version of the request that allows each special timestamp.
const SPECIAL_SINCE: [(i64, i16); 6] = [
    (LATEST, 0),
    (EARLIEST, 0),
    (MAX_TIMESTAMP, 7),
    (EARLIEST_LOCAL, 8),
    (LATEST_TIERED, 9),
    (EARLIEST_PENDING_UPLOAD, 11),
];

impl Api for ListOffsetsRequest {
    async fn handle(self, context: RequestContext) -> ListOffsetsResponse {
        let (version, node) = (context.version, context.node());
        let replica_id = self.replica_id;
        // As in Kafka, the isolation level is for clients only.
        let level = if replica_id == CONSUMER_REPLICA { self.isolation_level } else { 0 };
        let isolation = Isolation::of_level(level);
        let mut partitions = self.topics.iter().flat_map(|topic| &topic.partitions);
        let reads =
            partitions.any(|partition| partition.timestamp >= 0 || partition.timestamp == MAX_TIMESTAMP);
        let times_unknown = context.cluster().overrides.times_unknown();
        let repeated = repeated_partitions(&self);
        let ends_wanted = ends_wanted(&self, context.cluster());
        let look_up_all = move |cluster: &Cluster| {
            answer(self, version, |topic, partition| {
                if repeated.contains(topic, partition.partition_index) {
                    return Err(ErrorCode::InvalidRequest);
                }
                if !is_supported(partition.timestamp, version) {
                    return Err(ErrorCode::UnsupportedVersion);
                }
                let found = cluster.partition(topic, partition.partition_index);
                let found = found.ok_or(ErrorCode::UnknownTopicOrPartition)?;
                let epoch = partition.current_leader_epoch;
                if replica_id == DEBUGGING_REPLICA {
                    cluster.check_replica(&found, node, epoch)?;
                } else {
                    cluster.check_leader(&found, node, epoch)?;
                }
                if times_unknown && partition.timestamp >= 0 {
                    return Ok(NOWHERE);
                }
                look_up(cluster, &found, isolation, partition.timestamp)
            })
        };
        let cluster = context.cluster();
        await_syncs(cluster, &ends_wanted).await;
        if reads {
            cluster.run_lookup(context.connection.client_host(), look_up_all).await
        } else {
            look_up_all(cluster)
        }
    }

    fn refuse(self, context: &RequestContext, code: ErrorCode) -> ListOffsetsResponse {
        answer(self, context.version, |_, _| Err(code))
    }
}

/// Returns `true` for a time, and for a special timestamp that this version of the request allows.
fn is_supported(timestamp: i64, version: i16) -> bool {
    timestamp >= 0 || SPECIAL_SINCE.iter().any(|(special, since)| *special == timestamp && version >= *since)
}

/// The partitions whose readable end decides the answer.
fn ends_wanted(request: &ListOffsetsRequest, cluster: &Cluster) -> Vec<Arc<Partition>> {
    let mut wanted = Vec::new();
    for topic in &request.topics {
        let of_end = |it: &&ListOffsetsPartition| matches!(it.timestamp, LATEST | MAX_TIMESTAMP | 0..);
        let indexes = topic.partitions.iter().filter(of_end).map(|it| it.partition_index);
        wanted.extend(indexes.filter_map(|index| cluster.partition(&topic.name, index)));
    }
    wanted
}

/// The partitions that a request names more than once: Kafka refuses them, because they may have several timestamps.
fn repeated_partitions(request: &ListOffsetsRequest) -> SeenPartitions {
    let (mut seen, mut repeated) = (SeenPartitions::default(), SeenPartitions::default());
    for topic in &request.topics {
        for partition in &topic.partitions {
            if !seen.insert(&topic.name, partition.partition_index) {
                repeated.insert(&topic.name, partition.partition_index);
            }
        }
    }
    repeated
}

/// The answer has each partition once.
fn answer(
    request: ListOffsetsRequest,
    version: i16,
    look_up: impl Fn(&str, &ListOffsetsPartition) -> Result<TimestampOffset, ErrorCode>,
) -> ListOffsetsResponse {
    let mut seen = SeenPartitions::default();
    let topics = request.topics.into_iter().map(|topic| {
        let new_ones = topic.partitions.iter().filter(|it| seen.insert(&topic.name, it.partition_index));
        let partitions = new_ones.map(|partition| {
            let partition_index = partition.partition_index;
            match look_up(&topic.name, partition) {
                Ok(TimestampOffset { timestamp, offset, leader_epoch }) => ListOffsetsPartitionResponse {
                    partition_index,
                    timestamp,
                    offset,
                    // The response has this field since version 4.
                    leader_epoch: if version >= 4 { leader_epoch } else { -1 },
                    ..Default::default()
                },
                Err(error_code) => {
                    ListOffsetsPartitionResponse { partition_index, error_code, ..Default::default() }
                }
            }
        });
        ListOffsetsTopicResponse { partitions: partitions.collect(), name: topic.name }
    });
    ListOffsetsResponse { topics: topics.collect(), ..Default::default() }
}

fn look_up(
    cluster: &Cluster,
    partition: &Partition,
    isolation: Isolation,
    timestamp: i64,
) -> Result<TimestampOffset, ErrorCode> {
    let readable_end = || match isolation {
        Isolation::Uncommitted => partition.high_watermark(),
        Isolation::Committed => partition.last_stable_offset(),
    };
    let storage = |_| ErrorCode::KafkaStorageError;
    match timestamp {
        LATEST => Ok(TimestampOffset {
            timestamp: -1,
            offset: readable_end(),
            leader_epoch: partition.leader_epoch(),
        }),
        EARLIEST | EARLIEST_LOCAL => {
            let log = partition.log();
            let leader_epoch = log.start_epoch().unwrap_or(-1);
            Ok(TimestampOffset { timestamp: -1, offset: log.start_offset(), leader_epoch })
        }
        // Tiered storage is not supported.
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(NOWHERE),
        MAX_TIMESTAMP => {
            let found = find_newest(|| cluster.log_with_files(partition)).map_err(storage)?;
            // As in Kafka's `ReplicaManager.fetchOffset`: no older record takes its place.
            Ok(found.filter(|found| found.offset < readable_end()).unwrap_or(NOWHERE))
        }
        timestamp if timestamp >= 0 => {
            let found = find_by_time(timestamp, || cluster.log_with_files(partition)).map_err(storage)?;
            // Records that consumers may not read yet are not reported.
            Ok(found.filter(|found| found.offset < readable_end()).unwrap_or(NOWHERE))
        }
        _ => Err(ErrorCode::UnsupportedVersion),
    }
}

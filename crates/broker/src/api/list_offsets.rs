//! ListOffsets: the first, the last, or the offset at a time.

use ottla_log::TimestampOffset;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};

use super::{Api, RequestContext};
use crate::partition::Partition;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

impl Api for ListOffsetsRequest {
    async fn handle(self, context: RequestContext) -> ListOffsetsResponse {
        let version = context.version;
        answer(self, version, |topic, partition| {
            let found = context.cluster().partition(topic, partition.partition_index);
            let found = found.ok_or(ErrorCode::UnknownTopicOrPartition)?;
            found.check_leader(context.node(), partition.current_leader_epoch)?;
            look_up(&found, partition.timestamp)
        })
    }

    fn refuse(self, context: &RequestContext, code: ErrorCode) -> ListOffsetsResponse {
        answer(self, context.version, |_, _| Err(code))
    }
}

fn answer(
    request: ListOffsetsRequest,
    version: i16,
    look_up: impl Fn(&str, &ListOffsetsPartition) -> Result<TimestampOffset, ErrorCode>,
) -> ListOffsetsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
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

fn look_up(partition: &Partition, timestamp: i64) -> Result<TimestampOffset, ErrorCode> {
    let leader_epoch = partition.leader_epoch();
    let at = |offset| TimestampOffset { timestamp: -1, offset, leader_epoch };
    let nowhere = TimestampOffset { timestamp: -1, offset: -1, leader_epoch: -1 };
    let storage = |_| ErrorCode::KafkaStorageError;
    let mut log = partition.log();
    match timestamp {
        LATEST => Ok(at(partition.high_watermark())),
        EARLIEST | EARLIEST_LOCAL => Ok(at(log.start_offset())),
        // Tiered storage is not supported.
        LATEST_TIERED => Ok(nowhere),
        MAX_TIMESTAMP => Ok(log.max_timestamp().map_err(storage)?.unwrap_or(nowhere)),
        timestamp if timestamp >= 0 => {
            let found = log.offset_for_timestamp(timestamp).map_err(storage)?;
            // Records that consumers may not read yet are not reported.
            Ok(found.filter(|found| found.offset < partition.high_watermark()).unwrap_or(nowhere))
        }
        _ => Err(ErrorCode::UnsupportedVersion),
    }
}

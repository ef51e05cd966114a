//! OffsetForLeaderEpoch: where a leader's epoch ended (KIP-320).

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
};

use super::{Api, RequestContext};

impl Api for OffsetForLeaderEpochRequest {
    async fn handle(self, context: RequestContext) -> OffsetForLeaderEpochResponse {
        answer(self, |topic, partition| {
            let found = context.cluster().partition(topic, partition.partition);
            let found = found.ok_or(ErrorCode::UnknownTopicOrPartition)?;
            context.cluster().check_leader(&found, context.node(), partition.current_leader_epoch)?;
            // The epoch that runs now ends where the log does, as in Kafka: records that are not on disk yet are no truncation.
            if partition.leader_epoch == found.leader_epoch() {
                return Ok((partition.leader_epoch, found.log().end_offset()));
            }
            Ok(found.epoch_end(&found.log(), partition.leader_epoch).unwrap_or((-1, -1)))
        })
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> OffsetForLeaderEpochResponse {
        answer(self, |_, _| Err(code))
    }
}

fn answer(
    request: OffsetForLeaderEpochRequest,
    look_up: impl Fn(&str, &OffsetForLeaderPartition) -> Result<(i32, i64), ErrorCode>,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|context| {
            let (error_code, (leader_epoch, end_offset)) = match look_up(&topic.topic, context) {
                Ok(found) => (ErrorCode::None, found),
                Err(code) => (code, (-1, -1)),
            };
            EpochEndOffset { error_code, partition: context.partition, leader_epoch, end_offset }
        });
        OffsetForLeaderTopicResult { partitions: partitions.collect(), topic: topic.topic }
    });
    OffsetForLeaderEpochResponse { topics: topics.collect(), ..Default::default() }
}

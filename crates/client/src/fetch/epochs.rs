//! Whether the log is still the one that was read (KIP-320): where the epoch of the last record ended, as the new leader
//! has it.

use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};

use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::consumer::TopicPartition;
use crate::error::Error;

const OFFSET_FOR_LEADER_EPOCH_VERSION_MAX: i16 = 4;
/// Consumers are no replica.
const NO_REPLICA: i32 = -1;

/// The offset at which the leader's log parts from one whose last record at hand has this epoch; `None` if the leader
/// knows nothing of that epoch, or is too old to be asked.
pub(crate) async fn end_of_epoch(
    cluster: &Rc<Cluster>,
    at: &TopicPartition,
    leader: i32,
    leader_epoch: i32,
    epoch: i32,
) -> Result<Option<i64>, Error> {
    let connection = cluster.brokers.connection(leader, Lane::Control).await?;
    if connection.version_of::<OffsetForLeaderEpochRequest>(OFFSET_FOR_LEADER_EPOCH_VERSION_MAX).is_err() {
        return Ok(None);
    }
    let request = |_| OffsetForLeaderEpochRequest {
        replica_id: NO_REPLICA,
        topics: vec![OffsetForLeaderTopic {
            topic: at.topic.to_string(),
            partitions: vec![OffsetForLeaderPartition {
                partition: at.partition,
                current_leader_epoch: leader_epoch,
                leader_epoch: epoch,
            }],
        }],
    };
    let timeout = cluster.config.request_timeout;
    let response = connection.call(OFFSET_FOR_LEADER_EPOCH_VERSION_MAX, timeout, request).await?;
    let answer = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
    match answer {
        Some(EpochEndOffset { error_code: ErrorCode::None, end_offset, .. }) => {
            Ok(Some(end_offset).filter(|end| *end >= 0))
        }
        Some(EpochEndOffset { error_code: code, .. }) => {
            if code.needs_metadata_refresh() {
                cluster.forget_leader(&at.topic, at.partition);
            }
            Err(Error::Broker { what: format!("end of epoch {epoch} of {at}"), code })
        }
        None => Err(Error::Protocol {
            address: connection.address().to_owned(),
            reason: format!("answer without the end of epoch {epoch} of {at}"),
        }),
    }
}

//! The OffsetForLeaderEpoch request: shows whether a new leader's log is the one that was read (KIP-320).

use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};

use super::core::action::{EpochEnd, EpochQuestion};
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::error::Error;

const OFFSET_FOR_LEADER_EPOCH_VERSION_MAX: i16 = 4;
/// Before this version, the request needs a right on the cluster, which consumers do not have (KIP-320).
const OFFSET_FOR_LEADER_EPOCH_VERSION_MIN: i16 = 3;
/// The replica id of a consumer.
const NO_REPLICA: i32 = -1;

/// Returns the offset at which the leader's log ends or diverges, for the epoch of the last record that was read.
pub(super) async fn end_of_epoch(cluster: &Rc<Cluster>, question: &EpochQuestion) -> Result<EpochEnd, Error> {
    let EpochQuestion { leader, leader_epoch, epoch, .. } = *question;
    let at = &question.cursor.progress.at;
    let connection = cluster.brokers.connection(leader, Lane::Control).await?;
    let version = connection.version_of::<OffsetForLeaderEpochRequest>(OFFSET_FOR_LEADER_EPOCH_VERSION_MAX);
    if !version.is_ok_and(|version| version >= OFFSET_FOR_LEADER_EPOCH_VERSION_MIN) {
        return Ok(EpochEnd::Unsupported);
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
    let version_max = OFFSET_FOR_LEADER_EPOCH_VERSION_MAX;
    let response = cluster.call_soon(&connection, version_max, request).await?;
    let answer = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
    match answer {
        Some(EpochEndOffset { error_code: ErrorCode::None, leader_epoch, end_offset, .. }) => {
            Ok(epoch_end(leader_epoch, end_offset))
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

/// A leader answers with -1 for the epoch, the offset, or both if it does not know the epoch.
const fn epoch_end(leader_epoch: i32, end_offset: i64) -> EpochEnd {
    if leader_epoch < 0 || end_offset < 0 { EpochEnd::Undefined } else { EpochEnd::At(end_offset) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_or_offset_of_minus_one_is_an_epoch_that_the_leader_does_not_know() {
        assert_eq!(epoch_end(-1, -1), EpochEnd::Undefined);
        assert_eq!(epoch_end(-1, 7), EpochEnd::Undefined);
        assert_eq!(epoch_end(3, -1), EpochEnd::Undefined);
        assert_eq!(epoch_end(0, 0), EpochEnd::At(0));
    }
}

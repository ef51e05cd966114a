//! Asking brokers for offsets by time, beginning or end.

use std::rc::Rc;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};

use super::cursor::StartAt;
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::config::Isolation;
use crate::error::Error;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
pub(crate) const LIST_OFFSETS_VERSION_MAX: i16 = 7;

/// The timestamp that stands for `start` in a ListOffsets request.
pub(crate) fn timestamp_of(start: StartAt) -> i64 {
    match start {
        StartAt::Beginning => EARLIEST,
        StartAt::End | StartAt::Committed | StartAt::Offset(_) | StartAt::OffsetInEpoch { .. } => LATEST,
        StartAt::Timestamp(timestamp) => timestamp,
    }
}

/// Asks the partition's leader once; errors that may pass are retriable.
///
/// A time after the last record gives the end.
pub(crate) async fn resolve(
    cluster: &Rc<Cluster>,
    topic: &Arc<str>,
    partition: i32,
    start: StartAt,
) -> Result<i64, Error> {
    let what = || format!("offsets of topic `{topic}` partition {partition}");
    let Some(leader) = cluster.leader(topic, partition) else {
        cluster.refresh();
        return Err(Error::Broker { what: what(), code: ErrorCode::LeaderNotAvailable });
    };
    let offset = ask(cluster, leader, topic, partition, timestamp_of(start)).await?;
    match offset {
        -1 if matches!(start, StartAt::Timestamp(_)) => ask(cluster, leader, topic, partition, LATEST).await,
        offset => Ok(offset),
    }
}

async fn ask(
    cluster: &Rc<Cluster>,
    leader: i32,
    topic: &Arc<str>,
    partition: i32,
    timestamp: i64,
) -> Result<i64, Error> {
    let what = || format!("offsets of topic `{topic}` partition {partition}");
    let connection = cluster.brokers.connection(leader, Lane::Control).await?;
    let request = |_| ListOffsetsRequest {
        replica_id: -1,
        isolation_level: isolation_code(cluster.config.isolation),
        topics: vec![ListOffsetsTopic {
            name: topic.to_string(),
            partitions: vec![ListOffsetsPartition {
                partition_index: partition,
                current_leader_epoch: -1,
                timestamp,
            }],
        }],
        ..Default::default()
    };
    let response = connection.call(LIST_OFFSETS_VERSION_MAX, cluster.config.request_timeout, request).await?;
    let answer = response.topics.iter().flat_map(|topic| &topic.partitions).next();
    match answer {
        Some(answer) if answer.error_code == ErrorCode::None => Ok(answer.offset),
        Some(answer) => {
            if answer.error_code.needs_metadata_refresh() {
                cluster.forget_leader(topic, partition);
            }
            Err(Error::Broker { what: what(), code: answer.error_code })
        }
        None => Err(Error::Protocol {
            address: connection.address().to_owned(),
            reason: format!("answer without the {}", what()),
        }),
    }
}

/// The number of an isolation level on the wire.
pub(crate) fn isolation_code(isolation: Isolation) -> i8 {
    match isolation {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
    }
}

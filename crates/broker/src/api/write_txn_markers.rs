//! WriteTxnMarkers: ends transactions in partitions. `kafka-transactions abort` sends it for a hanging transaction.

use std::sync::Arc;
use std::time::Duration;

use ottla_log::{Appended, EndMarker, TransactionOutcome};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerPartitionResult, WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use tokio::time::Instant;

use super::pace::Pace;
use super::{Api, RequestContext};
use crate::partition::Partition;

/// The longest wait for the disk: Kafka's `request.timeout.ms`.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// An append takes as long as so many usual items of a request.
const ITEMS_OF_MARKER: usize = 100;

/// A marker in its partition's log, which may have to become durable.
type Written = Result<(Arc<Partition>, Appended), ErrorCode>;

impl Api for WriteTxnMarkersRequest {
    async fn handle(self, context: RequestContext) -> WriteTxnMarkersResponse {
        let deadline = Instant::now() + WAIT_MAX;
        // All are appended before the first sync is awaited: the disk makes them durable together.
        let (mut written, mut pace): (Vec<Written>, _) = (Vec::new(), Pace::default());
        for marker in &self.markers {
            for topic in &marker.topics {
                for index in &topic.partition_indexes {
                    written.push(write(&context, marker, &topic.name, *index));
                    pace.step_by(ITEMS_OF_MARKER).await;
                }
            }
        }
        let mut codes = Vec::with_capacity(written.len());
        for written in written {
            pace.step().await;
            codes.push(match written {
                Err(code) => code,
                Ok((partition, appended)) => {
                    let durable = partition.await_marker(context.cluster(), &appended, deadline).await;
                    durable.map_or_else(|(code, _)| code, |()| ErrorCode::None)
                }
            });
        }
        let mut codes = codes.into_iter();
        respond(self, || codes.next().unwrap_or(ErrorCode::UnknownServerError))
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> WriteTxnMarkersResponse {
        respond(self, || code)
    }
}

fn write(context: &RequestContext, marker: &WritableTxnMarker, topic: &str, index: i32) -> Written {
    let cluster = context.cluster();
    let partition = cluster.partition(topic, index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    partition.check_leader(context.node(), -1)?;
    let end = EndMarker {
        producer_id: marker.producer_id,
        producer_epoch: marker.producer_epoch,
        coordinator_epoch: marker.coordinator_epoch,
        outcome: if marker.transaction_result {
            TransactionOutcome::Commit
        } else {
            TransactionOutcome::Abort
        },
        transaction_version: i16::from(marker.transaction_version),
    };
    let appended = partition.append_marker(cluster, end).map_err(|(code, _)| code)?;
    Ok((partition, appended))
}

/// Asks `code` for the result of each partition, in the order of the request.
fn respond(request: WriteTxnMarkersRequest, mut code: impl FnMut() -> ErrorCode) -> WriteTxnMarkersResponse {
    let mut markers = Vec::with_capacity(request.markers.len());
    for marker in request.markers {
        let mut topics = Vec::with_capacity(marker.topics.len());
        for topic in marker.topics {
            let result =
                |index| WritableTxnMarkerPartitionResult { partition_index: index, error_code: code() };
            let partitions = topic.partition_indexes.into_iter().map(result).collect();
            topics.push(WritableTxnMarkerTopicResult { name: topic.name, partitions });
        }
        markers.push(WritableTxnMarkerResult { producer_id: marker.producer_id, topics });
    }
    WriteTxnMarkersResponse { markers }
}

//! The stored state of a share partition whose log has fewer records than the state: a power cut or a repair can remove the last ones.
//!
//! Later records get the offsets of those that are lost. With the state of the lost ones they would never be delivered.

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::window::RecordState;
use crate::cluster::Cluster;
use crate::coordinator::share_state::{SharePartitionKey, ShareState, StateBatch};

/// Replaces a state that has offsets at or above the end of the log by its part below. Returns the state.
///
/// # Errors
/// Those of [`ShareStates::replace`](crate::coordinator::share_state::ShareStates::replace).
pub(super) async fn forget_lost_records(
    cluster: &Arc<Cluster>,
    key: &SharePartitionKey,
    mut stored: ShareState,
    log_end: i64,
) -> Result<ShareState, ErrorCode> {
    if stored.start_offset <= log_end && stored.batches.iter().all(|batch| batch.last < log_end) {
        return Ok(stored);
    }
    tracing::warn!(group = %key.group, topic = %key.topic, partition = key.partition, start = stored.start_offset, log_end,
        "the state of a share partition has records that its log does not have: they are forgotten");
    stored.start_offset = stored.start_offset.min(log_end);
    stored.batches = below(&stored.batches, log_end);
    stored.delivery_complete_count = complete(&stored.batches);
    // With one record: a connection that ends meanwhile must not leave acknowledged records available.
    cluster.share_states.replace(cluster, key, &stored).await?;
    Ok(stored)
}

/// The parts of batches below an offset.
fn below(batches: &[StateBatch], end: i64) -> Vec<StateBatch> {
    let kept = batches.iter().filter(|batch| batch.first < end);
    kept.map(|batch| StateBatch { last: batch.last.min(end - 1), ..*batch }).collect()
}

/// The number of records that are done with.
fn complete(batches: &[StateBatch]) -> i32 {
    let terminal = [RecordState::Acknowledged as i8, RecordState::Archived as i8];
    let done = batches.iter().filter(|batch| terminal.contains(&batch.state));
    let records: i64 = done.map(|batch| batch.last - batch.first + 1).sum();
    i32::try_from(records).unwrap_or(i32::MAX)
}

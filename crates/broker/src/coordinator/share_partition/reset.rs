//! The offset at which a share group begins a partition: `share.auto.offset.reset`.

use std::sync::Arc;
use std::time::Duration;

use ottla_log::find_by_time;
use ottla_protocol::ErrorCode;

use crate::cluster::Cluster;
use crate::config::share_partitions::duration_of;
use crate::memory::ClientHost;
use crate::partition::Partition;

/// The beginning of a share group.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum ResetPolicy {
    /// With the next record.
    #[default]
    Latest,
    /// With the first record of the log.
    Earliest,
    /// With the first record that is not older.
    ByDuration(Duration),
}

impl ResetPolicy {
    /// The policy of a setting.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "latest" => Some(Self::Latest),
            "earliest" => Some(Self::Earliest),
            other => duration_of(other.strip_prefix("by_duration:")?).map(Self::ByDuration),
        }
    }
}

/// Finds the offset at which a group begins a partition.
pub(crate) async fn initial_offset(
    cluster: &Arc<Cluster>,
    partition: &Arc<Partition>,
    policy: ResetPolicy,
) -> Result<i64, ErrorCode> {
    match policy {
        ResetPolicy::Latest => Ok(partition.high_watermark()),
        ResetPolicy::Earliest => Ok(partition.log().start_offset()),
        ResetPolicy::ByDuration(age) => {
            let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
            let timestamp = cluster.clock.now_ms().saturating_sub(age_ms).max(0);
            let partition = partition.clone();
            cluster
                .run_lookup(ClientHost::LOCAL, move |cluster| first_since(cluster, &partition, timestamp))
                .await
        }
    }
}

/// The first record with this timestamp or a later one, or the next record. The log is free for others while segments are read.
fn first_since(cluster: &Cluster, partition: &Partition, timestamp: i64) -> Result<i64, ErrorCode> {
    let storage = |error: ottla_log::ReadError| {
        tracing::error!(%error, "cannot look up a time");
        ErrorCode::KafkaStorageError
    };
    // Read before: records that are appended meanwhile are behind it.
    let high_watermark = partition.high_watermark();
    let found = find_by_time(timestamp, || cluster.log_with_files(partition));
    Ok(found.map_err(storage)?.map_or(high_watermark, |found| found.offset.min(high_watermark)))
}

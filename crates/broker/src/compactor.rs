//! The cleaner: compacts the partitions of topics whose `cleanup.policy` has `compact`, the dirtiest one first.
//!
//! One compaction runs at a time, on a background thread of low priority, with a map of keys of at most
//! `log.cleaner.dedupe.buffer.size` bytes. A deletion of the topic and the end of the broker stop it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use ottla_log::{Cleanable, CompactionError, CompactionOptions, CompactionReport, LogError};
use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use crate::cluster::{Cluster, lock};
use crate::partition::{Partition, Syncer};

/// A partition whose compaction has failed is left alone this long: its damage or the full disk will still be there.
const RETRY_AFTER: Duration = Duration::from_secs(600);

/// Partitions that are not compacted before a time.
type LeftAlone = BTreeMap<(Uuid, i32), Instant>;

/// The result of a compaction for the order of the next ones.
enum Outcome {
    /// Its cleaner point has moved.
    Compacted,
    /// It was stopped, or its segments were deleted meanwhile.
    Ended,
    /// Another attempt would most likely fail as well.
    Failed,
}

/// Compacts again and again, until it is dropped.
pub(crate) async fn run(cluster: Arc<Cluster>) {
    if !cluster.config.cleaner_enabled {
        return;
    }
    let mut left_alone: LeftAlone = BTreeMap::new();
    loop {
        let pause = cluster.live.broker().cleaner_backoff;
        left_alone.retain(|_, until| Instant::now() < *until);
        loop {
            // Records and tombstones that a jump of the wall clock makes old are not removed yet.
            let age_ms = cluster.deletion_clock.now_ms();
            let found = dirtiest(&cluster, &left_alone, age_ms).await;
            let Some((partition, cleanable)) = found else { break };
            let wait = match compact(&cluster, &partition, cleanable, age_ms).await {
                Outcome::Compacted => continue,
                Outcome::Ended => pause,
                Outcome::Failed => pause.max(RETRY_AFTER),
            };
            left_alone.insert((partition.topic_id, partition.index), Instant::now() + wait);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Returns the partition with the highest part of dirty bytes, of those that are dirty enough or overdue.
async fn dirtiest(
    cluster: &Arc<Cluster>,
    left_alone: &LeftAlone,
    age_ms: i64,
) -> Option<(Arc<Partition>, Cleanable)> {
    let mut found: Option<(Arc<Partition>, Cleanable)> = None;
    for topic in cluster.topics() {
        let is_usable = |partition: &&Arc<Partition>| {
            partition.unavailable().is_none()
                && !partition.is_deleted()
                && !left_alone.contains_key(&(partition.topic_id, partition.index))
                && partition.log().config().compact
        };
        let usable: Vec<Arc<Partition>> = topic.partitions.iter().filter(is_usable).cloned().collect();
        for (partition, cleanable) in cleanable_parts(cluster, usable, age_ms).await {
            let ratio_min = partition.log().config().dirty_ratio_min;
            let is_due = cleanable.is_overdue || cleanable.dirty_ratio() > ratio_min;
            let is_dirtiest =
                found.as_ref().is_none_or(|(_, other)| cleanable.dirty_ratio() > other.dirty_ratio());
            if cleanable.dirty_bytes > 0 && is_due && is_dirtiest {
                found = Some((partition, cleanable));
            }
        }
    }
    found
}

/// Returns the segments of partitions that can be compacted, without the partitions whose logs are offline. Their time indexes may
/// have to be read: not in the thread that serves clients.
async fn cleanable_parts(
    cluster: &Arc<Cluster>,
    partitions: Vec<Arc<Partition>>,
    age_ms: i64,
) -> Vec<(Arc<Partition>, Cleanable)> {
    if partitions.is_empty() {
        return Vec::new();
    }
    let inner = cluster.clone();
    let work = move || {
        let parts = partitions.into_iter().map(|partition| {
            let cleanable = cleanable_part(&inner, &partition, age_ms)?;
            Some((partition, cleanable))
        });
        parts.flatten().collect()
    };
    cluster.run_blocking(work).await
}

/// Returns the segments of a partition that can be compacted; `None` if its log is offline. Blocks.
fn cleanable_part(cluster: &Cluster, partition: &Partition, age_ms: i64) -> Option<Cleanable> {
    let point = cluster.cleaner_points.of(&partition.topic, partition.index);
    match look_at(cluster, partition, point, age_ms) {
        Ok(cleanable) => Some(cleanable),
        Err(error) => {
            tracing::debug!(%error, topic = %partition.topic, partition = partition.index, "cannot be compacted");
            None
        }
    }
}

fn look_at(cluster: &Cluster, partition: &Partition, point: i64, age_ms: i64) -> Result<Cleanable, LogError> {
    cluster.make_room_for_files();
    // The log is free for others between two segments.
    while partition.log().load_next_dirty(point)? {}
    let stable_end = partition.stable_end();
    partition.log().cleanable(point, stable_end, age_ms)
}

/// Compacts a partition, however few of its bytes are dirty. The wall clock counts at once.
pub(crate) async fn compact_now(cluster: &Arc<Cluster>, partition: &Arc<Partition>) -> Result<(), ErrorCode> {
    if !partition.log().config().compact {
        return Err(ErrorCode::PolicyViolation);
    }
    loop {
        let age_ms = cluster.clock.now_ms();
        let parts = cleanable_parts(cluster, vec![partition.clone()], age_ms).await;
        let cleanable = parts.into_iter().next().ok_or(ErrorCode::KafkaStorageError)?.1;
        if cleanable.dirty_bytes == 0 {
            return Ok(());
        }
        match compact(cluster, partition, cleanable, age_ms).await {
            Outcome::Compacted => return Ok(()),
            Outcome::Failed => return Err(ErrorCode::KafkaStorageError),
            Outcome::Ended if cluster.compactions.is_stopping() || partition.is_deleted() => {
                return Err(ErrorCode::UnknownTopicOrPartition);
            }
            // Its segments were deleted meanwhile: others may be left.
            Outcome::Ended => {}
        }
    }
}

/// Compacts a partition, and stores its cleaner point.
async fn compact(
    cluster: &Arc<Cluster>,
    partition: &Arc<Partition>,
    cleanable: Cleanable,
    age_ms: i64,
) -> Outcome {
    let options = CompactionOptions {
        now_ms: cluster.clock.now_ms(),
        age_ms,
        first_dirty: cleanable.first_dirty,
        stable_end: partition.stable_end(),
        map_bytes_max: cluster.live.broker().cleaner_map_bytes_max,
        secret: secret(cluster),
        aborted: Vec::new(),
        segment_bytes_max: None,
    };
    let running = cluster.compactions.begin().await;
    let (inner, partition) = (cluster.clone(), partition.clone());
    let work = move || {
        let _running = running;
        inner.make_room_for_files();
        let begun = Instant::now();
        let should_stop = || partition.is_deleted() || inner.compactions.is_stopping();
        partition.compact(options, &should_stop, |result| settle(&inner, &partition, result, begun.elapsed()))
    };
    cluster.run_in_background(work).await
}

/// Stores the cleaner point and reports the result.
fn settle(
    cluster: &Cluster,
    partition: &Partition,
    result: Result<(CompactionReport, Duration), CompactionError>,
    took: Duration,
) -> Outcome {
    let (topic, index) = (&*partition.topic, partition.index);
    let (report, removal) = match result {
        Ok(done) => done,
        Err(CompactionError::Stopped | CompactionError::Changed { .. }) => {
            tracing::debug!(topic, partition = index, "a compaction was ended early");
            return Outcome::Ended;
        }
        Err(error) => {
            tracing::warn!(%error, topic, partition = index, "cannot compact; the next attempt is in 10 minutes");
            return Outcome::Failed;
        }
    };
    if let Err(error) = cluster.cleaner_points.set(topic, index, report.first_dirty) {
        tracing::warn!(%error, topic, partition = index, "cannot store the cleaner point");
        return Outcome::Failed;
    }
    tracing::info!(
        topic,
        partition = index,
        first_dirty = report.first_dirty,
        keys = report.keys,
        map_bytes = report.map_bytes,
        bytes_before = report.bytes_before,
        bytes_after = report.bytes_after,
        records_read = report.records_read,
        records_kept = report.records_kept,
        records_without_key = report.records_without_key,
        ms = took.saturating_sub(removal).as_millis() as u64,
        removal_ms = removal.as_millis() as u64,
        "compacted a partition"
    );
    Outcome::Compacted
}

/// Returns a secret for the hashes of keys, which no client can guess. A simulation takes its own random numbers.
fn secret(cluster: &Cluster) -> [u64; 2] {
    match cluster.syncer {
        Syncer::Thread => [0, 1].map(|word: u8| RandomState::new().hash_one(word)),
        Syncer::Inline(_) => {
            let mut rng = lock(&cluster.rng);
            [rng.u64(..), rng.u64(..)]
        }
    }
}

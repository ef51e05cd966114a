//! The scrub: reads and checks closed segments periodically, at a low rate.
//!
//! A batch is checked before it is served for the first time; the scrub finds the damage in batches that no client
//! reads before their backups are gone.

use std::sync::Arc;
use std::time::Duration;

use ottla_log::{ScrubCursor, ScrubTask, Scrubbed};

use crate::cluster::Cluster;
use crate::partition::{Partition, Syncer};

/// The number of bytes that are read and checked at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// The pause between two passes over all partitions: damage is rare, and a small log must not be read all the time.
const PASS_PAUSE: Duration = Duration::from_secs(3600);

/// Scrubs every partition, again and again, until it is dropped.
pub(crate) async fn run(cluster: Arc<Cluster>) {
    let Some(per_second) = cluster.config.scrub_bytes_per_second else { return };
    loop {
        for topic in cluster.topics() {
            for partition in &topic.partitions {
                scrub(&cluster, partition, per_second).await;
            }
        }
        tokio::time::sleep(PASS_PAUSE).await;
    }
}

/// Scrubs the closed segments of one partition once.
async fn scrub(cluster: &Cluster, partition: &Arc<Partition>, per_second: u64) {
    let mut cursor = ScrubCursor::default();
    while !partition.is_deleted() && partition.unavailable().is_none() {
        cluster.make_room_for_files();
        let task = match partition.log().scrub(cursor.clone(), CHUNK_BYTES) {
            Ok(Some(task)) => task,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, topic = %partition.topic, partition = partition.index, "cannot scrub");
                return;
            }
        };
        let pause = Duration::from_secs_f64(task.bytes() as f64 / per_second as f64);
        let next = match check(cluster, task).await {
            Ok(scrubbed) => partition.log().scrubbed(scrubbed).map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        match next {
            Ok(next) => cursor = next,
            Err(error) => {
                tracing::warn!(error, topic = %partition.topic, partition = partition.index, "cannot scrub");
                return;
            }
        }
        tokio::time::sleep(pause).await;
    }
}

async fn check(cluster: &Cluster, task: ScrubTask) -> Result<Scrubbed, String> {
    let checked = match cluster.syncer {
        Syncer::Thread =>
        {
            #[expect(
                clippy::disallowed_methods,
                reason = "a read from a disk blocks; only production does this"
            )]
            tokio::task::spawn_blocking(move || task.run()).await.map_err(|error| error.to_string())?
        }
        Syncer::Inline(_) => task.run(),
    };
    checked.map_err(|error| error.to_string())
}

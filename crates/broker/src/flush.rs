//! `flush.messages` and `flush.ms`, for the durability `os`: an append does not wait for the disk, except for these settings. With the
//! durability `disk` each append with `acks=all` is on disk without them.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use crate::cluster::{Cluster, lock};
use crate::config::Durability;
use crate::partition::Partition;

/// The pause between two looks for partitions whose `flush.ms` has passed.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The pause before syncs that were given up begin again.
const SYNC_AGAIN_INTERVAL: Duration = Duration::from_secs(5);

impl Cluster {
    /// Starts making what was appended to a partition durable: see [`Partition::start_sync`].
    pub(crate) fn start_sync(&self, partition: &Arc<Partition>, has_closed: bool) {
        // A sync opens files that were closed since the append.
        self.make_room_for_files();
        self.make_room_in_caches();
        let durability = self.config.durability;
        partition.start_sync(
            durability,
            has_closed,
            self.syncer,
            &self.metrics,
            &self.syncs,
            &self.data_lock,
        );
    }

    /// Makes everything that was appended to a partition durable. The sync ends even if the caller goes away: the log must
    /// learn of one that fails.
    pub(crate) async fn flush(&self, partition: &Arc<Partition>) -> Result<(), ErrorCode> {
        let pending = match partition.pending_sync() {
            Ok(Some(pending)) => pending,
            Ok(None) => return Ok(()),
            Err(_) if partition.is_deleted() => return Err(ErrorCode::UnknownTopicOrPartition),
            Err(_) => return Err(ErrorCode::KafkaStorageError),
        };
        self.make_room_for_files();
        let (done, flushed) = tokio::sync::oneshot::channel();
        let (partition, syncer, metrics) = (partition.clone(), self.syncer, self.metrics.clone());
        let held = self.data_lock.share();
        let task = async move {
            let began = Instant::now();
            let synced = syncer.run(pending).await;
            metrics.log_syncs.add(began.elapsed(), synced.is_ok());
            let applied = partition.log().sync_done(synced);
            let result = match applied {
                Ok(_) => Ok(()),
                Err(_) if partition.is_deleted() => Err(ErrorCode::UnknownTopicOrPartition),
                Err(error) => {
                    tracing::error!(%error, topic = %partition.topic, partition = partition.index, "a flush failed");
                    Err(ErrorCode::KafkaStorageError)
                }
            };
            // The connection may be closed.
            let _ = done.send(result);
            drop(held);
        };
        {
            let mut tasks = lock(&self.syncs);
            // Tasks that have ended leave the set here.
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
        flushed.await.unwrap_or(Err(ErrorCode::KafkaStorageError))
    }

    /// Begins syncs again that were given up because no file could be opened. Until they end, consumers may not get the last records.
    pub(crate) async fn keep_syncing(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(SYNC_AGAIN_INTERVAL).await;
            for topic in self.topics() {
                let given_up =
                    topic.partitions.iter().filter(|partition| partition.sync_flag.take_given_up());
                for partition in given_up.filter(|partition| !partition.is_deleted()) {
                    let has_closed = partition.log().has_unsynced_segments();
                    self.start_sync(partition, has_closed);
                }
            }
        }
    }

    /// Flushes each partition whose oldest record that is not durable has waited for `flush.ms`.
    pub(crate) async fn keep_flushing(self: &Arc<Self>) {
        if self.config.durability != Durability::Os {
            return;
        }
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let due = |partition: &&Arc<Partition>| {
                if partition.unavailable().is_some() || partition.is_deleted() {
                    return false;
                }
                let log = partition.log();
                // Read with the lock held: records that were appended after the reading would look as if the clock had gone back.
                log.is_flush_overdue(self.clock.now_ms())
            };
            for topic in self.topics() {
                for partition in topic.partitions.iter().filter(due) {
                    // An error is in the broker's log.
                    let _ = self.flush(partition).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use ottla_log::storage::faulty::{DiskCall, DiskEffect, DiskFiles, DiskRule};
    use ottla_log::storage::mem::MemStorage;
    use ottla_log::{AppendOptions, LogError};
    use ottla_wire::{BatchBuilder, Seal};

    use super::*;
    use crate::broker::Broker;
    use crate::clock::Clock;
    use crate::config::TopicConfig;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn append(partition: &Partition) {
        append_at(partition, 0);
    }

    fn append_at(partition: &Partition, now_ms: i64) {
        let mut batch = BatchBuilder::new();
        batch.push(0, None, Some(b"x"), &[]);
        let bytes = batch.seal(&Seal::default()).expect("sealed").to_bytes();
        partition.log().append(now_ms, bytes[..].into(), AppendOptions::default()).expect("appended");
    }

    /// Waits until this is true.
    async fn until(is_true: impl Fn() -> bool) {
        let waiting = async {
            while !is_true() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("it becomes true");
    }

    /// A flush succeeded after another sync had failed, and `acks=all` was answered although the records could be lost.
    #[tokio::test]
    async fn a_flush_of_an_offline_log_fails_unless_everything_is_durable() {
        let broker = Broker::builder().memory().topic("orders", 2).start().await.expect("a broker");
        let cluster = broker.cluster();
        let [lost, durable] = [0, 1].map(|index| cluster.partition("orders", index).expect("there"));
        append(&durable);
        cluster.flush(&durable).await.expect("flushed");
        let closed = durable.log().shut();
        closed.expect("closed");
        cluster.flush(&durable).await.expect("everything is durable");

        append(&lost);
        let pending = lost.pending_sync().expect("online").expect("something to sync");
        let files = DiskFiles::Topic("orders".into());
        let rule = DiskRule { files, ..DiskRule::new(DiskCall::Sync, DiskEffect::Fail) };
        let rule = cluster.add_disk_fault(rule);
        let synced = pending.run();
        cluster.remove_disk_fault(rule);
        let reported = lost.log().sync_done(synced);
        assert!(matches!(reported, Err(LogError::Offline { .. })));
        assert_eq!(cluster.flush(&lost).await, Err(ErrorCode::KafkaStorageError));
        lost.delete();
        assert_eq!(cluster.flush(&lost).await, Err(ErrorCode::UnknownTopicOrPartition));
    }

    /// Such a sync began again with the next append alone. Until then consumers did not get the records before it.
    #[tokio::test]
    async fn a_sync_that_was_given_up_begins_again() {
        let builder = Broker::builder().storage(Arc::new(MemStorage::new())).topic("orders", 1);
        let broker = builder.start().await.expect("a broker");
        let partition = broker.cluster().partition("orders", 0).expect("there");
        append(&partition);
        partition.sync_flag.give_up();
        until(|| partition.log().synced_offset() == 1).await;
    }

    /// They were flushed at once: the time was read before them, and seemed to be that of a clock that has gone back.
    #[tokio::test]
    async fn records_that_come_in_while_another_partition_is_flushed_wait_for_flush_ms() {
        let mut config = TopicConfig::default();
        config.set("flush.ms", "1000").expect("a setting");
        let began_ms = 1_000_000;
        let now_ms = Arc::new(AtomicI64::new(began_ms));
        let mut builder = Broker::builder()
            .configure(|config| config.durability = Durability::Os)
            .storage(Arc::new(MemStorage::new()))
            .clock(Clock::Fixed(now_ms.clone()));
        // They are flushed in the order of their names.
        let topics = ["a-slow", "b-new", "c-last"];
        for topic in topics {
            builder = builder.topic_with(topic, 1, config.clone());
        }
        let broker = builder.start().await.expect("a broker");
        let cluster = broker.cluster();
        let [slow, new, last] = topics.map(|topic| cluster.partition(topic, 0).expect("there"));
        append_at(&slow, began_ms);
        append_at(&last, began_ms);
        let files = DiskFiles::Topic("a-slow".into());
        let rule = DiskRule::new(DiskCall::Sync, DiskEffect::Slow(PATIENCE));
        let rule = cluster.add_disk_fault(DiskRule { files, count: 1, ..rule });
        now_ms.store(began_ms + 1000, Ordering::Relaxed);
        until(|| cluster.disk_faults().is_empty()).await;
        now_ms.store(began_ms + 1500, Ordering::Relaxed);
        append_at(&new, began_ms + 1500);
        cluster.remove_disk_fault(rule);
        until(|| last.log().synced_offset() == 1).await;
        assert_eq!(slow.log().synced_offset(), 1);
        assert_eq!(new.log().synced_offset(), 0);
        now_ms.store(began_ms + 2500, Ordering::Relaxed);
        until(|| new.log().synced_offset() == 1).await;
    }
}

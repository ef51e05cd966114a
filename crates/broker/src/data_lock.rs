//! The lock on the data directory, which work on other threads holds beside the broker.
//!
//! A broker that stops waits for what writes there. One that is dropped cannot wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_log::storage::fs::DirLock;

/// The broker's share of the lock; nothing if its data is not in a directory, or after its end.
#[derive(Debug, Default)]
pub(crate) struct DataLock(Mutex<HeldLock>);

/// A share of the lock, which work has until it ends.
pub(crate) type HeldLock = Option<Arc<Mutex<Option<DirLock>>>>;

impl DataLock {
    pub(crate) fn set(&self, locked: DirLock) {
        *self.lock() = Some(Arc::new(Mutex::new(Some(locked))));
    }

    pub(crate) fn share(&self) -> HeldLock {
        self.lock().clone()
    }

    /// Gives up the broker's share: the directory is free when the work that runs has ended.
    pub(crate) fn leave(&self) {
        *self.lock() = None;
    }

    /// Frees the directory now: nothing writes there any more.
    pub(crate) fn release(&self) {
        let held = self.lock().take();
        if let Some(held) = held {
            *held.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HeldLock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use ottla_log::AppendOptions;
    use ottla_log::storage::faulty::{DiskCall, DiskEffect, DiskFiles, DiskRule};
    use ottla_log::storage::fs::{self, LockError};
    use ottla_wire::{BatchBuilder, Seal};
    use tokio::time::timeout;

    use crate::broker::Broker;
    use crate::cluster::Cluster;
    use crate::config::TopicConfig;

    /// Only a defect exhausts it.
    const PATIENCE: Duration = Duration::from_secs(60);
    const PAUSE: Duration = Duration::from_millis(5);

    async fn start(dir: &std::path::Path) -> Broker {
        let mut compacted = TopicConfig::default();
        compacted.set("cleanup.policy", "compact").expect("a known setting");
        let builder = Broker::builder().data_dir(dir).no_listener().topic_with("orders", 1, compacted);
        // The test says when a compaction begins.
        let builder = builder.configure(|config| config.cleaner_enabled = false);
        builder.start().await.expect("a broker")
    }

    async fn free(dir: &std::path::Path) {
        let freed = async {
            while let Err(error) = fs::lock(dir) {
                assert!(matches!(error, LockError::InUse { .. }), "{error}");
                tokio::time::sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, freed).await.expect("the directory is free");
    }

    /// The directory was free at once: another broker opened the logs while the compaction still replaced their segments.
    #[tokio::test]
    async fn the_directory_of_a_dropped_broker_stays_locked_until_its_compaction_has_ended() {
        let dir = tempfile::tempdir().expect("a directory");
        let broker = start(dir.path()).await;
        let cluster = broker.cluster();
        let partition = cluster.partition("orders", 0).expect("there");
        for _ in 0..2 {
            let mut batch = BatchBuilder::new();
            batch.push(0, Some(b"k"), Some(b"v"), &[]);
            let bytes = batch.seal(&Seal::default()).expect("sealed").to_bytes();
            partition.log().append(0, bytes[..].into(), AppendOptions::default()).expect("appended");
        }
        cluster.flush(&partition).await.expect("flushed");
        assert_eq!(cluster.roll_now("orders").await, Ok(1));
        // It ends when it is removed.
        let slow = DiskEffect::Slow(Duration::from_secs(3600));
        let files = DiskFiles::Topic("orders".into());
        let slow =
            cluster.add_disk_fault(DiskRule { files, count: 1, ..DiskRule::new(DiskCall::Write, slow) });
        let compacting = cluster.clone();
        let compaction = tokio::spawn(async move { compacting.compact_now("orders").await });
        let begun = async {
            while !cluster.disk_faults().is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, begun).await.expect("the compaction writes");
        drop(broker);
        let taken = fs::lock(dir.path());
        assert!(matches!(taken, Err(LockError::InUse { .. })), "{taken:?}");
        assert!(!cluster.remove_disk_fault(slow), "its only call has come");
        free(dir.path()).await;
        let _ended = timeout(PATIENCE, compaction).await.expect("it ends").expect("no panic");
    }

    /// It was free at once while a thread still created or deleted topics there. A broker that stops waits for that.
    #[tokio::test]
    async fn the_directory_of_a_dropped_broker_stays_locked_until_its_change_of_topics_has_ended() {
        let dir = tempfile::tempdir().expect("a directory");
        let broker = start(dir.path()).await;
        let cluster = broker.cluster();
        let (hold, held) = mpsc::channel::<()>();
        let (started, start_of_work) = tokio::sync::oneshot::channel();
        let work = move |_: &Cluster| {
            started.send(()).expect("awaited");
            held.recv().unwrap_or_default();
        };
        let changing = cluster.clone();
        let change = tokio::spawn(async move { changing.change_topics(work).await });
        timeout(PATIENCE, start_of_work).await.expect("in time").expect("the work has started");
        drop(broker);
        let taken = fs::lock(dir.path());
        assert!(matches!(taken, Err(LockError::InUse { .. })), "{taken:?}");
        drop(hold);
        free(dir.path()).await;
        timeout(PATIENCE, change).await.expect("it ends").expect("no panic");

        let again = start(dir.path()).await;
        let cluster = again.cluster();
        again.stop().await;
        fs::lock(dir.path()).expect("a handle of the cluster does not keep the lock");
        drop(cluster);
    }
}

//! A disk that fails, is full or is slow, for tests.

use ottla_log::storage::faulty::DiskRule;

use crate::cluster::Cluster;

/// Calls that make the broker's disk misbehave, for tests. They work with every storage, memory included.
impl Cluster {
    /// Adds an effect on the calls of the broker to its disk. Returns its id.
    ///
    /// A full disk refuses records with `KAFKA_STORAGE_ERROR` and takes the next ones when it has room. Writes and syncs that fail
    /// ([`DiskEffect::Fail`](crate::DiskEffect::Fail)) do the same and take their partition offline until the broker restarts, because
    /// it is unknown which bytes the disk has kept. A slow call blocks its thread; writes run on the one that serves clients, as with a
    /// real disk, and syncs and reads of old records on others. Its time is real time, also on a paused clock. Records that were just
    /// written are read from memory.
    ///
    /// ```
    /// use ottla_broker::{Broker, DiskCall, DiskEffect, DiskFiles, DiskRule};
    ///
    /// let broker = Broker::builder().memory().topic("orders", 1).spawn()?;
    /// let rule = DiskRule::new(DiskCall::Write, DiskEffect::Full);
    /// let id = broker.cluster().add_disk_fault(DiskRule { files: DiskFiles::Topic("orders".into()), ..rule });
    /// // Produce requests for `orders` now fail with KAFKA_STORAGE_ERROR.
    /// assert!(broker.cluster().remove_disk_fault(id));
    /// # Ok::<_, ottla_broker::StartError>(())
    /// ```
    pub fn add_disk_fault(&self, rule: DiskRule) -> u64 {
        tracing::warn!(%rule, "the disk misbehaves for a test");
        self.disk_faults.add(rule)
    }

    /// Returns the disk's faults that still have calls to come, oldest first, with their ids.
    pub fn disk_faults(&self) -> Vec<(u64, DiskRule)> {
        self.disk_faults.all()
    }

    /// Removes a fault of the disk. Returns `false` if there is none with this id: its last call may have come.
    pub fn remove_disk_fault(&self, id: u64) -> bool {
        self.disk_faults.remove(id)
    }

    /// Removes all faults of the disk.
    pub fn clear_disk_faults(&self) {
        self.disk_faults.clear();
    }
}

//! The offset floor of a partition: no record of it has ever had an offset at or above the floor.
//!
//! The journal keeps one floor per partition. A partition directory can disappear with all its files; a repair then starts
//! the partition at its floor, so that no offset is given to a second record. The floor runs ahead of the log in steps of
//! [`FLOOR_STEP`], so that few appends write a journal record. A clean close sets it to the end of the log.

use std::sync::Arc;

use bytes::Bytes;
use ottla_log::{Journal, JournalError};
use ottla_protocol::Uuid;

use crate::cluster::{Cluster, lock};
use crate::config::Durability;
use crate::partition::{FLOOR_STEP, Partition};

const FLOOR_KEY: &str = "floor/";

/// The floor that the journal has for a partition.
pub(crate) fn floor_of(journal: &Journal, topic: Uuid, partition: i32) -> Option<i64> {
    let value = journal.get(&floor_key(topic, partition))?;
    Some(i64::from_be_bytes(*value.first_chunk::<8>()?))
}

/// The journal entries that remove the floors of a topic.
pub(crate) fn without_floors(journal: &Journal, topic: Uuid) -> Vec<(Bytes, Option<Bytes>)> {
    let prefix = format!("{FLOOR_KEY}{topic}/");
    journal.iter_prefix(prefix.as_bytes()).map(|(key, _)| (key.clone(), None)).collect()
}

fn floor_key(topic: Uuid, partition: i32) -> Bytes {
    format!("{FLOOR_KEY}{topic}/{partition}").into()
}

fn entry(partition: &Partition, floor: i64) -> (Bytes, Option<Bytes>) {
    let key = floor_key(partition.topic_id, partition.index);
    (key, Some(Bytes::copy_from_slice(&floor.to_be_bytes())))
}

impl Cluster {
    /// Returns `true` if an append up to `end` needs no higher floor.
    #[inline]
    pub(crate) fn is_reserved(&self, partition: &Partition, end: i64) -> bool {
        end <= partition.floor() || self.config.durability == Durability::Memory
    }

    /// Raises the floor of a partition whose log ends at `end`, or will after an append, if the log has reached it.
    ///
    /// The record is in the journal when this returns. With `acks=all` the producer waits for
    /// [`Cluster::await_floor`] as well.
    #[inline]
    pub(crate) fn raise_floor(self: &Arc<Self>, partition: &Partition, end: i64) -> Result<(), JournalError> {
        if self.is_reserved(partition, end) {
            return Ok(());
        }
        self.write_floor(partition, end)
    }

    #[cold]
    fn write_floor(self: &Arc<Self>, partition: &Partition, end: i64) -> Result<(), JournalError> {
        let mut journal = lock(&self.journal);
        if end <= partition.floor() || partition.is_deleted() {
            return Ok(());
        }
        let floor = end.saturating_add(FLOOR_STEP);
        let written = journal.put_all(self.clock.now_ms(), &[entry(partition, floor)])?;
        partition.set_floor(floor, written);
        if self.config.durability != Durability::Disk && journal.wants_sync() {
            self.sync_journal_later();
        }
        Ok(())
    }

    /// [`Cluster::raise_floor`] and the wait for the journal, for callers that may block.
    pub(crate) fn raise_floor_blocking(&self, partition: &Partition, end: i64) -> Result<(), JournalError> {
        if self.is_reserved(partition, end) {
            return Ok(());
        }
        let floor = end.saturating_add(FLOOR_STEP);
        let written = {
            let mut journal = lock(&self.journal);
            let written = journal.put_all(self.clock.now_ms(), &[entry(partition, floor)])?;
            partition.set_floor(floor, written);
            written
        };
        self.sync_journal(written)?;
        partition.floor_is_durable(written);
        Ok(())
    }

    /// Syncs the journal soon. No request waits for it, but the deletion of old entries does.
    fn sync_journal_later(self: &Arc<Self>) {
        let (cluster, held) = (self.clone(), self.data_lock.share());
        let sync = async move {
            let record = lock(&cluster.journal).end_offset();
            if let Err(error) = cluster.await_journal(record).await {
                tracing::warn!(%error, "cannot sync the journal of topics");
            }
            drop(held);
        };
        let mut tasks = lock(&self.syncs);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(sync);
    }

    /// Waits until the floor of a partition survives a power cut.
    pub(crate) async fn await_floor(&self, partition: &Partition) -> Result<(), JournalError> {
        let written = partition.floor_record();
        self.await_journal(written).await?;
        partition.floor_is_durable(written);
        Ok(())
    }

    /// Writes the floors of partitions whose logs have grown past them: those from before there were floors.
    pub(crate) fn write_missing_floors(&self) -> Result<(), JournalError> {
        let has_grown = |partition: &Partition, end| partition.floor() < end;
        self.write_floors(has_grown)
    }

    /// Sets every floor to the end of its log: for a clean close, after which no offset is given out.
    pub(crate) fn settle_floors(&self) -> Result<(), JournalError> {
        let differs = |partition: &Partition, end| partition.floor() != end;
        self.write_floors(differs)
    }

    fn write_floors(&self, is_due: impl Fn(&Partition, i64) -> bool) -> Result<(), JournalError> {
        if self.config.durability == Durability::Memory {
            return Ok(());
        }
        let mut due: Vec<(Arc<Partition>, i64)> = Vec::new();
        for topic in self.topics() {
            for partition in topic.partitions.iter().filter(|partition| partition.unavailable().is_none()) {
                let end = partition.log().end_offset();
                if is_due(partition, end) {
                    due.push((partition.clone(), end));
                }
            }
        }
        let entries: Vec<_> = due.iter().map(|(partition, end)| entry(partition, *end)).collect();
        let written = lock(&self.journal).put_all(self.clock.now_ms(), &entries)?;
        self.sync_journal(written)?;
        for (partition, end) in due {
            partition.set_floor(end, written);
            partition.floor_is_durable(written);
        }
        Ok(())
    }
}

//! The records that the producer buffers at one moment, for the statistics and the watchdog.

use std::collections::BTreeMap;

use super::batch::Compressing;
use super::core::Scope;
use super::sender::Sender;
use crate::stats::buffers::{BufferSnapshot, PartitionBuffer};

impl Sender {
    /// The state of the producer id, in librdkafka's words.
    fn idempotence(&self) -> &'static str {
        let transactions = &self.produce.transactions;
        let has_id = match transactions.id {
            Some(_) => !transactions.status().needs_epoch,
            None => self.core.has_producer_id(),
        };
        match (transactions.fatal().is_some(), has_id) {
            (true, _) => "FatalError",
            (false, true) => "Assigned",
            (false, false) if self.core.awaits_producer_id() => "WaitPID",
            (false, false) if self.produce.config.enable_idempotence && self.core.is_active() => "RequestPID",
            (false, false) => "Init",
        }
    }

    /// The records that are neither acknowledged nor failed.
    pub(super) fn snapshot(&self) -> BufferSnapshot {
        let mut snapshot = BufferSnapshot { idempotence: self.idempotence(), ..BufferSnapshot::default() };
        let mut in_flight: BTreeMap<usize, u64> = BTreeMap::new();
        for (node, index, records) in self.core.records_in_flight() {
            *in_flight.entry(index).or_default() += records;
            *snapshot.in_flight.entry(node).or_default() += records;
        }
        for index in self.core.examined(Scope::All) {
            let partition = &self.core.partitions[*index];
            let mut outgoing = (0, 0);
            for batch in &partition.retry {
                outgoing.0 += batch.sealed.header.record_count as u64;
                outgoing.1 += batch.sealed.len() as u64;
            }
            for entry in &partition.compressing {
                if let Compressing::Ready(batch) = entry {
                    outgoing.0 += u64::from(batch.closed.count());
                    outgoing.1 += batch.closed.len() as u64;
                }
            }
            snapshot.partitions.push(PartitionBuffer {
                topic: partition.topic.clone(),
                partition: partition.number,
                is_known: self.cluster.topic(&partition.topic).is_some(),
                leader: self.cluster.leader(&partition.topic, partition.number),
                queued: self.queues[*index].buffered(),
                outgoing,
                in_flight: in_flight.get(index).copied().unwrap_or(0),
            });
        }
        snapshot
    }
}

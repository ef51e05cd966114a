//! What the sender holds at one moment, for the statistics and for the watchdog.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::Closing;
use super::sender::Sender;

/// Everything that is not acknowledged, by partition.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) partitions: Vec<Held>,
    /// Where the producer stands with its id: librdkafka's word.
    pub(crate) idempotence: &'static str,
    /// Records in produce requests without an answer, by node.
    pub(crate) in_flight: BTreeMap<i32, u64>,
}

/// What one partition holds.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// Whether the topic's layout is known.
    pub(crate) is_known: bool,
    pub(crate) leader: Option<i32>,
    /// Records and bytes that the sender has not taken.
    pub(crate) queued: (u64, u64),
    /// Records and bytes that wait to be sent, or to be sent again.
    pub(crate) outgoing: (u64, u64),
    pub(crate) in_flight: u64,
}

impl Held {
    /// Records that wait for a leader.
    pub(crate) fn waiting(&self) -> u64 {
        self.queued.0 + self.outgoing.0
    }
}

impl Sender {
    /// Where it stands with its producer id.
    fn idempotence(&self) -> &'static str {
        let transactions = &self.produce.transactions;
        let wants_id = self.produce.config.idempotence && !self.active.is_empty();
        let is_asked_for = self.is_asking();
        let has_id = match transactions.id {
            Some(_) => !transactions.told().needs_epoch,
            None => self.producer_id.is_some(),
        };
        match (transactions.fatal().is_some(), has_id) {
            (true, _) => "FatalError",
            (false, true) => "Assigned",
            (false, false) if is_asked_for => "WaitPID",
            (false, false) if wants_id => "RequestPID",
            (false, false) => "Init",
        }
    }

    /// Says what it holds.
    pub(super) fn survey(&self) -> Survey {
        let mut survey = Survey { idempotence: self.idempotence(), ..Survey::default() };
        let mut in_flight: BTreeMap<usize, u64> = BTreeMap::new();
        for request in self.requests.values() {
            for (at, batch) in &request.batches {
                let records = batch.as_ref().map_or(0, |batch| batch.sealed.header.record_count as u64);
                *in_flight.entry(*at).or_default() += records;
                *survey.in_flight.entry(request.node).or_default() += records;
            }
        }
        for at in self.active.iter().copied() {
            let partition = &self.partitions[at];
            let queue = &partition.queue;
            let mut outgoing = (0, 0);
            for batch in &partition.retry {
                outgoing.0 += batch.sealed.header.record_count as u64;
                outgoing.1 += batch.sealed.len() as u64;
            }
            for closing in &partition.closing {
                if let Closing::Ready(batch) = closing {
                    outgoing.0 += u64::from(batch.closed.count());
                    outgoing.1 += batch.closed.len() as u64;
                }
            }
            survey.partitions.push(Held {
                topic: queue.topic.clone(),
                partition: queue.partition,
                is_known: self.cluster.topic(&queue.topic).is_some(),
                leader: self.cluster.leader(&queue.topic, queue.partition),
                queued: queue.held(),
                outgoing,
                in_flight: in_flight.get(&at).copied().unwrap_or(0),
            });
        }
        survey
    }
}

//! The records of a share group: their locks and deliveries as the broker sees them, and the acknowledgements that it has confirmed.

use std::collections::{BTreeMap, BTreeSet};

use ottla_broker::ShareEventKind;
use ottla_client::AcknowledgeType;
use tokio::time::Instant;

use crate::checker::Anomaly;

/// A broker process and the epoch of a leader in it: locks do not survive either.
type Era = (u32, i32);

/// The lock of a member.
#[derive(Clone, Debug)]
struct Lock {
    member: String,
    era: Era,
    until: Instant,
}

/// One record as the group sees it.
#[derive(Clone, Debug, Default)]
struct ShareRecord {
    lock: Option<Lock>,
    /// The last acquisition.
    last: Option<(Era, i16)>,
    /// All counts with which it was acquired.
    counts: BTreeSet<i16>,
    /// A member has received the answer that its acceptance or rejection is stored.
    is_completed: bool,
    /// The highest count of a delivery whose release was confirmed.
    released_count: i16,
    /// A leader took an acceptance or a rejection, whatever the answer was.
    is_attempted: bool,
    /// It was delivered as often as allowed.
    is_last_delivery: bool,
}

/// The history of the share group.
#[derive(Debug)]
pub(crate) struct ShareHistory {
    deliveries_max: i16,
    /// Writes of states do not fail, so that delivery counts of one leader rise by one.
    counts_are_exact: bool,
    process: u32,
    records: BTreeMap<(i32, i64), ShareRecord>,
    lock_ms: BTreeMap<i32, std::time::Duration>,
    starts: BTreeMap<i32, i64>,
    accepted: usize,
    found: Vec<Anomaly>,
}

impl ShareHistory {
    pub(crate) const fn new(deliveries_max: i16, counts_are_exact: bool) -> Self {
        Self {
            deliveries_max,
            counts_are_exact,
            process: 0,
            records: BTreeMap::new(),
            lock_ms: BTreeMap::new(),
            starts: BTreeMap::new(),
            accepted: 0,
            found: Vec::new(),
        }
    }

    /// Records the start of another broker process.
    pub(crate) fn restarted(&mut self) {
        self.process += 1;
    }

    /// Records an event in the broker.
    pub(crate) fn observe(&mut self, now: Instant, slot: i32, member: &str, kind: ShareEventKind) {
        match kind {
            ShareEventKind::Acquired { first, last, delivery_count, lock, leader_epoch } => {
                self.lock_ms.insert(slot, lock);
                let era = (self.process, leader_epoch);
                let lock = Lock { member: member.to_owned(), era, until: now + lock };
                for offset in first..=last {
                    self.acquired(now, (slot, offset), lock.clone(), delivery_count);
                }
            }
            ShareEventKind::Acknowledged { first, last, acknowledge_type } => {
                let renewed_until = self.lock_ms.get(&slot).map(|lock| now + *lock);
                for (_, record) in self.records.range_mut((slot, first)..=(slot, last)) {
                    let Some(lock) = record.lock.as_mut().filter(|lock| lock.member == member) else {
                        // Records below the start are done with: their acknowledgements are confirmed without effect.
                        continue;
                    };
                    match (acknowledge_type, renewed_until) {
                        (RENEW, Some(until)) => lock.until = until,
                        (RENEW, None) => {}
                        (RELEASE, _) => record.lock = None,
                        (_, _) => (record.lock, record.is_attempted) = (None, true),
                    }
                }
            }
            ShareEventKind::Released => {
                for (_, record) in self.records.range_mut((slot, 0)..=(slot, i64::MAX)) {
                    if record.lock.as_ref().is_some_and(|lock| lock.member == member) {
                        record.lock = None;
                    }
                }
            }
        }
    }

    fn acquired(&mut self, now: Instant, at: (i32, i64), lock: Lock, count: i16) {
        let record = self.records.entry(at).or_default();
        let (slot, offset) = at;
        let what = |text: String| format!("{slot}-{offset}: delivery {count} to {}: {text}", lock.member);
        if record.is_completed {
            let what = what("a member has completed it, and that was confirmed".into());
            self.found.push(Anomaly::DeliveredAgain { what });
        }
        if count > self.deliveries_max || count < 1 {
            let what = what(format!("the limit is {}", self.deliveries_max));
            self.found.push(Anomaly::DeliveryCount { what });
        }
        if let Some(held) = record.lock.as_ref().filter(|held| held.era == lock.era && held.until > now) {
            let what = what(format!("{} has a lock on it", held.member));
            self.found.push(Anomaly::LockedTwice { what });
        }
        let before = record.last.filter(|(era, _)| *era == lock.era).map_or(0, |(_, count)| count);
        if self.counts_are_exact && (count <= before || count <= record.released_count) {
            let what = what(format!("after delivery {}", before.max(record.released_count)));
            self.found.push(Anomaly::DeliveryCount { what });
        }
        record.last = Some((lock.era, count));
        record.lock = Some(lock);
        record.counts.insert(count);
        record.is_last_delivery |= count >= self.deliveries_max;
    }

    /// Records that a member has polled a record.
    pub(crate) fn delivered(&mut self, slot: i32, offset: i64, count: i16) {
        if !self.records.get(&(slot, offset)).is_some_and(|record| record.counts.contains(&count)) {
            let what = format!("{slot}-{offset}: delivery {count} was not acquired");
            self.found.push(Anomaly::DeliveryCount { what });
        }
    }

    /// Records that a member has received the answer that its acknowledgement of a delivery is stored.
    pub(crate) fn confirmed(&mut self, slot: i32, offset: i64, ack: AcknowledgeType, count: i16) {
        let Some(record) = self.records.get_mut(&(slot, offset)) else { return };
        match ack {
            AcknowledgeType::Accept | AcknowledgeType::Reject => {
                self.accepted += usize::from(!record.is_completed && ack == AcknowledgeType::Accept);
                record.is_completed = true;
            }
            AcknowledgeType::Release => record.released_count = record.released_count.max(count),
            AcknowledgeType::Renew => {}
        }
    }

    /// Records the start offsets that the coordinator reports.
    pub(crate) fn set_starts(&mut self, starts: BTreeMap<i32, i64>) {
        self.starts = starts;
    }

    pub(crate) fn start_of(&self, slot: i32) -> i64 {
        self.starts.get(&slot).copied().unwrap_or(0)
    }

    /// The number of records whose acceptance was confirmed.
    pub(crate) const fn accepted(&self) -> usize {
        self.accepted
    }

    /// All anomalies: those of the run, and records that the group has passed without a reason.
    pub(crate) fn check(&self) -> Vec<Anomaly> {
        let mut found = self.found.clone();
        for (slot, start) in &self.starts {
            let is_explained =
                |record: &ShareRecord| record.is_completed || record.is_attempted || record.is_last_delivery;
            let passed =
                (0..*start).find(|offset| !self.records.get(&(*slot, *offset)).is_some_and(is_explained));
            found.extend(passed.map(|offset| Anomaly::ShareSkip {
                what: format!("{slot}-{offset}: nobody has completed it, and the group is at {start}"),
            }));
        }
        found
    }
}

/// Kafka's numbers of the types.
const RELEASE: i8 = 2;
const RENEW: i8 = 4;

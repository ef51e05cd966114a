//! Checks for anomalies, named as in Jepsen's Kafka workload.
//!
//! Values are unique, so the history of sends and reads is complete: the value at each offset, its readers, and the
//! result that the producer received. `groups` has the checks of committed offsets.

mod anomaly;
mod groups;
#[cfg(test)]
mod tests;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

pub use anomaly::Anomaly;
pub use value::{SendResult, Value};

use self::groups::Groups;

/// One incarnation of a consumer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Reader {
    /// The consumer's number.
    pub id: u32,
    /// The group that it is a member of.
    pub group: Option<u8>,
    /// `true` if its records arrive in the order of a poll. A processor handles them in parallel.
    pub is_ordered: bool,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    offset: i64,
    value: Value,
    /// The first read after an assignment, which may be anywhere.
    starts: bool,
}

/// The reads of one reader in one partition.
#[derive(Debug, Default)]
struct Reads {
    list: Vec<Read>,
    /// The offset after the highest one.
    position: i64,
    /// The next read starts a new assignment.
    starts: bool,
}

/// The sends and reads of a run. A slot is a partition of any topic: see `topics`.
#[derive(Debug, Default)]
pub struct History {
    sends: BTreeMap<Value, SendResult>,
    /// Acknowledged records, by slot: the time of the acknowledgement and the offset.
    acknowledged: BTreeMap<i32, Vec<(Instant, i64)>>,
    reads: BTreeMap<(Reader, i32), Reads>,
    groups: Groups,
    /// Anomalies that were found during the run.
    found: Vec<Anomaly>,
    /// Readers that had to read to the end.
    finished: BTreeSet<Reader>,
}

impl History {
    /// Records that a record was passed to the producer.
    pub fn sent(&mut self, value: Value) {
        self.sends.insert(value, SendResult::Unknown);
    }

    /// Records a delivery result.
    pub fn settled(&mut self, value: Value, result: SendResult) {
        if let SendResult::Acked(offset @ 0..) = result {
            self.acknowledged.entry(value.slot).or_default().push((Instant::now(), offset));
        }
        self.sends.insert(value, result);
    }

    /// Records that a reader received a record.
    pub fn read(&mut self, reader: Reader, slot: i32, offset: i64, bytes: &[u8]) {
        let value = Value::parse(bytes).filter(|value| value.slot == slot && self.sends.contains_key(value));
        let Some(value) = value else {
            let what =
                format!("{slot}-{offset}: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
            self.found.push(Anomaly::Stranger { what });
            return;
        };
        let reads = self.reads.entry((reader, slot)).or_default();
        let starts = reads.list.is_empty() || std::mem::take(&mut reads.starts);
        reads.list.push(Read { offset, value, starts });
        reads.position = reads.position.max(offset + 1);
        if let (Some(group), true, true) = (reader.group, starts, reader.is_ordered) {
            self.groups.check_start(reader, group, slot, offset, &mut self.found);
        }
    }

    /// Records that a reader has finished the handling of a record.
    pub fn handled(&mut self, reader: Reader, slot: i32, offset: i64) {
        if let Some(group) = reader.group {
            self.groups.handled(group, slot, offset);
        }
    }

    /// Records that a group assigned a partition to a member.
    pub fn assigned(&mut self, reader: Reader, slot: i32) {
        self.groups.assigned(reader, slot);
    }

    /// Records that a group took a partition from a member: its next read may be anywhere.
    pub fn revoked(&mut self, reader: Reader, slot: i32) {
        if let Some(reads) = self.reads.get_mut(&(reader, slot)) {
            reads.starts = true;
        }
    }

    /// Records that the broker acknowledged a commit.
    pub fn commit_acknowledged(&mut self, group: u8, slot: i32, offset: i64) {
        self.groups.acknowledged(group, slot, offset);
    }

    /// Records the committed offset that a broker has now. `restarted`: it is the first one since its start.
    pub fn committed(&mut self, group: u8, slot: i32, offset: i64, restarted: bool) {
        self.groups.committed(group, slot, offset, restarted, &mut self.found);
    }

    /// Records an anomaly that is not found in sends and reads.
    pub fn report(&mut self, anomaly: Anomaly) {
        self.found.push(anomaly);
    }

    /// The offset after the last one that this reader received.
    pub fn position(&self, reader: Reader, slot: i32) -> i64 {
        self.reads.get(&(reader, slot)).map_or(0, |reads| reads.position)
    }

    /// The offset before which a group has handled every record.
    pub fn group_position(&self, group: u8, slot: i32) -> i64 {
        self.groups.position(group, slot)
    }

    /// Requires this reader, or its group, to have read everything.
    pub fn finish(&mut self, reader: Reader) {
        self.finished.insert(reader);
    }

    /// The number of acknowledged records, and the number of reads.
    pub fn counts(&self) -> (usize, usize) {
        let acked = self.sends.values().filter(|result| matches!(result, SendResult::Acked(_))).count();
        (acked, self.reads.values().map(|reads| reads.list.len()).sum())
    }

    /// The values that must be in a slot's log, by offset: acknowledged ones, and those that a reader saw.
    pub fn known_log(&self, slot: i32) -> BTreeMap<i64, Value> {
        let mut ignored = Vec::new();
        let (of, _) = self.log(&mut ignored);
        of.into_iter()
            .filter(|(value, _)| value.slot == slot)
            .map(|(value, offset)| (offset, value))
            .collect()
    }

    /// Returns `true` if a producer sent this value.
    pub fn is_known(&self, value: Value) -> bool {
        self.sends.contains_key(&value)
    }

    /// The acknowledged offsets of a slot whose loss a broker must notice. After a power cut it may miss those that
    /// were acknowledged within `unnoticed` before the log's last syncs: docs/LOG_FORMAT.md, `synced`.
    pub fn required(&self, slot: i32, unnoticed: Option<Duration>) -> BTreeSet<i64> {
        let acknowledged = self.acknowledged.get(&slot).map(Vec::as_slice).unwrap_or_default();
        let mut times: Vec<Instant> = acknowledged.iter().map(|(at, _)| *at).collect();
        times.sort_unstable();
        times.dedup();
        // The last sync but one has noted what was durable before it began.
        let until = match (unnoticed, times.len().checked_sub(2)) {
            (None, _) => Some(Instant::now()),
            (Some(unnoticed), Some(index)) => times[index].checked_sub(unnoticed),
            (Some(_), None) => None,
        };
        let is_required = |at: &Instant| until.is_some_and(|until| *at <= until);
        acknowledged.iter().filter(|(at, _)| is_required(at)).map(|(_, offset)| *offset).collect()
    }

    /// The commits that were acknowledged until `until`: the highest of each group and slot.
    pub fn required_commits(&self, until: Instant) -> BTreeMap<(u8, i32), i64> {
        self.groups.required(until)
    }

    /// All anomalies, in a fixed order.
    pub fn check(&self) -> Vec<Anomaly> {
        let mut found = self.found.clone();
        let (seen, read) = self.log(&mut found);
        self.check_fates(&seen, &read, &mut found);
        self.check_unseen(&seen, &mut found);
        self.check_polls(&mut found);
        Self::check_order(&seen, &mut found);
        found
    }

    /// The offset of each value, from reads and acknowledgements: one offset per value and one value per offset. Also
    /// the values that were read.
    fn log(&self, found: &mut Vec<Anomaly>) -> (BTreeMap<Value, i64>, BTreeSet<Value>) {
        let mut at: BTreeMap<(i32, i64), Value> = BTreeMap::new();
        let mut of: BTreeMap<Value, i64> = BTreeMap::new();
        let mut read: BTreeSet<Value> = BTreeSet::new();
        let mut note = |value: Value, offset: i64| {
            let there = *at.entry((value.slot, offset)).or_insert(value);
            if there != value {
                found.push(Anomaly::InconsistentOffsets { slot: value.slot, offset, values: [there, value] });
            }
            let known = *of.entry(value).or_insert(offset);
            if known != offset {
                found.push(Anomaly::Duplicate { value, offsets: [known, offset] });
            }
        };
        for (value, result) in &self.sends {
            if let SendResult::Acked(offset @ 0..) = result {
                note(*value, *offset);
            }
        }
        // Most readers see the same value at the same offset.
        let mut noted: BTreeSet<(i32, i64, Value)> = BTreeSet::new();
        for ((_, slot), reads) in &self.reads {
            for read_ in &reads.list {
                if noted.insert((*slot, read_.offset, read_.value)) {
                    note(read_.value, read_.offset);
                    read.insert(read_.value);
                }
            }
        }
        (of, read)
    }

    fn check_fates(&self, seen: &BTreeMap<Value, i64>, read: &BTreeSet<Value>, found: &mut Vec<Anomaly>) {
        let mut highest: BTreeMap<i32, i64> = BTreeMap::new();
        for value in read {
            let high = highest.entry(value.slot).or_insert(-1);
            *high = (*high).max(seen[value]);
        }
        for (value, result) in &self.sends {
            match result {
                SendResult::NotWritten if read.contains(value) => {
                    found.push(Anomaly::FailedRead { value: *value });
                }
                SendResult::Acked(offset) if !read.contains(value) => {
                    if highest.get(&value.slot).is_some_and(|high| offset <= high) {
                        found.push(Anomaly::LostWrite { value: *value, offset: *offset });
                    }
                    if !self.finished.is_empty() {
                        found.push(Anomaly::Unseen { value: *value, offset: *offset, by: "anyone".into() });
                    }
                }
                SendResult::Acked(_)
                | SendResult::Unknown
                | SendResult::PossiblyWritten
                | SendResult::NotWritten => {}
            }
        }
    }

    /// Every reader without a group, and each group as a whole, must have seen every acknowledged value.
    fn check_unseen(&self, seen: &BTreeMap<Value, i64>, found: &mut Vec<Anomaly>) {
        let mut audiences: BTreeMap<String, BTreeSet<Value>> = BTreeMap::new();
        let name = |reader: &Reader| match reader.group {
            Some(group) => format!("group {group}"),
            None => format!("reader {}", reader.id),
        };
        for reader in &self.finished {
            audiences.entry(name(reader)).or_default();
        }
        for ((reader, _), reads) in &self.reads {
            if let Some(values) = audiences.get_mut(&name(reader)) {
                values.extend(reads.list.iter().map(|read| read.value));
            }
        }
        let anyone: BTreeSet<Value> = audiences.values().flatten().copied().collect();
        for (value, result) in &self.sends {
            // `check_fates` reports a value that no reader has seen.
            if !matches!(result, SendResult::Acked(_)) || !anyone.contains(value) {
                continue;
            }
            for (by, _) in audiences.iter().filter(|(_, values)| !values.contains(value)) {
                found.push(Anomaly::Unseen { value: *value, offset: seen[value], by: by.clone() });
            }
        }
    }

    /// A reader never goes back and skips nothing while its partitions are its own: no record is removed during a run.
    fn check_polls(&self, found: &mut Vec<Anomaly>) {
        for ((reader, slot), reads) in self.reads.iter().filter(|((reader, _), _)| reader.is_ordered) {
            let (reader, slot) = (*reader, *slot);
            let mut from = -1;
            for Read { offset: to, starts, .. } in &reads.list {
                let is_free = *starts && reader.group.is_some();
                if !is_free && *to <= from {
                    found.push(Anomaly::NonmonotonicPoll { reader, slot, from, to: *to });
                } else if !is_free && *to > from + 1 {
                    found.push(Anomaly::PollSkip { reader, slot, from, to: *to });
                }
                from = *to;
            }
        }
    }

    /// A producer's records in a partition are in the order in which they were sent. `seen` is sorted in that order.
    fn check_order(seen: &BTreeMap<Value, i64>, found: &mut Vec<Anomaly>) {
        let mut last: Option<(Value, i64)> = None;
        for (value, offset) in seen {
            if let Some((earlier, before)) = last
                && (earlier.producer, earlier.slot) == (value.producer, value.slot)
                && before >= *offset
            {
                let offsets = [before, *offset];
                found.push(Anomaly::NonmonotonicSend { earlier, later: *value, offsets });
            }
            last = Some((*value, *offset));
        }
    }
}

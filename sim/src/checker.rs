//! Checks for anomalies, named as in Jepsen's Kafka workload.
//!
//! Values are unique, so the history of sends and reads is complete: the value at each offset, its readers, and the
//! result that the producer received.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A record's value: its producer, and its number among that producer's records for the partition.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Value {
    /// The incarnation of the producer: a restarted producer is a different one.
    pub producer: u32,
    /// The partition it was sent to.
    pub partition: i32,
    /// The record's number, from 0.
    pub number: u32,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}/{}/{}", self.producer, self.partition, self.number)
    }
}

impl Value {
    /// Decodes a value; `None` for bytes that no producer sent.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.split(' ').next()?;
        let mut parts = text.strip_prefix('p')?.split('/');
        let value = Self {
            producer: parts.next()?.parse().ok()?,
            partition: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(value)
    }
}

/// The delivery result of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendResult {
    /// No result yet: the record may be written, once.
    Unknown,
    /// Acknowledged at this offset; -1 if the broker no longer knew it.
    Acked(i64),
    /// Failed, but possibly written.
    PossiblyWritten,
    /// Failed and not written.
    NotWritten,
}

/// One incarnation of a consumer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Reader {
    /// The consumer's number.
    pub id: u32,
    /// `true` if it is a group member. A member need not see every record, and may go back after a rebalance.
    pub in_group: bool,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    offset: i64,
    value: Value,
}

/// The sends and reads of a run.
#[derive(Debug, Default)]
pub struct History {
    sends: BTreeMap<Value, SendResult>,
    reads: BTreeMap<(Reader, i32), Vec<Read>>,
    strangers: Vec<String>,
    /// Readers that had to read to the end.
    finished: BTreeSet<Reader>,
}

/// An anomaly.
#[expect(missing_docs, reason = "the fields are what the sentence above each variant names")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Anomaly {
    /// One offset had two values.
    InconsistentOffsets { partition: i32, offset: i64, values: [Value; 2] },
    /// One value had two offsets.
    Duplicate { value: Value, offsets: [i64; 2] },
    /// An acknowledged value was never read, although later values were.
    LostWrite { value: Value, offset: i64 },
    /// A reader that read to the end did not see an acknowledged value.
    Unseen { value: Value, offset: i64, by: String },
    /// A value was read that was reported as not written.
    FailedRead { value: Value },
    /// A reader went back.
    NonmonotonicPoll { reader: Reader, partition: i32, from: i64, to: i64 },
    /// A reader without a group skipped offsets.
    PollSkip { reader: Reader, partition: i32, from: i64, to: i64 },
    /// A producer's records are not in the order in which they were sent.
    NonmonotonicSend { earlier: Value, later: Value, offsets: [i64; 2] },
    /// Bytes that no producer sent, or that were sent to another partition.
    Stranger { what: String },
    /// Clients and broker exchanged messages without end while no time passed.
    Livelock { what: String },
    /// A client sent requests faster than its backoff allows.
    Busy { what: String },
    /// An operation did not finish in time after the faults ended.
    Stuck { what: String },
}

impl History {
    /// Records that a record was passed to the producer.
    pub fn sent(&mut self, value: Value) {
        self.sends.insert(value, SendResult::Unknown);
    }

    /// Records a delivery result.
    pub fn settled(&mut self, value: Value, result: SendResult) {
        self.sends.insert(value, result);
    }

    /// Records that a reader received a record.
    pub fn read(&mut self, reader: Reader, partition: i32, offset: i64, bytes: &[u8]) {
        let value = Value::parse(bytes)
            .filter(|value| value.partition == partition && self.sends.contains_key(value));
        match value {
            Some(value) => self.reads.entry((reader, partition)).or_default().push(Read { offset, value }),
            None => self.strangers.push(format!("{partition}-{offset}: {}", String::from_utf8_lossy(bytes))),
        }
    }

    /// The offset after the last one that this reader received.
    pub fn position(&self, reader: Reader, partition: i32) -> i64 {
        let reads = self.reads.get(&(reader, partition));
        reads.and_then(|reads| reads.iter().map(|read| read.offset + 1).max()).unwrap_or(0)
    }

    /// The offset after the last one that the group received.
    pub fn group_position(&self, partition: i32) -> i64 {
        let of_group = self.reads.keys().filter(|(reader, index)| reader.in_group && *index == partition);
        of_group.map(|(reader, _)| self.position(*reader, partition)).max().unwrap_or(0)
    }

    /// Requires this reader to have read everything.
    pub fn finish(&mut self, reader: Reader) {
        self.finished.insert(reader);
    }

    /// The number of acknowledged records, and the number of reads.
    pub fn counts(&self) -> (usize, usize) {
        let acked = self.sends.values().filter(|result| matches!(result, SendResult::Acked(_))).count();
        (acked, self.reads.values().map(Vec::len).sum())
    }

    /// All anomalies, in a fixed order.
    pub fn check(&self) -> Vec<Anomaly> {
        let mut found: Vec<Anomaly> =
            self.strangers.iter().map(|what| Anomaly::Stranger { what: what.clone() }).collect();
        let seen = self.log(&mut found);
        self.check_fates(&seen, &mut found);
        self.check_readers(&mut found);
        Self::check_order(&seen, &mut found);
        found
    }

    /// The offset of each value, from reads and acknowledgements: one offset per value and one value per offset.
    fn log(&self, found: &mut Vec<Anomaly>) -> BTreeMap<Value, i64> {
        let mut at: BTreeMap<(i32, i64), Value> = BTreeMap::new();
        let mut of: BTreeMap<Value, i64> = BTreeMap::new();
        let acked = self.sends.iter().filter_map(|(value, result)| match result {
            SendResult::Acked(offset) if *offset >= 0 => Some((*value, *offset)),
            _ => None,
        });
        let read = self.reads.values().flatten().map(|read| (read.value, read.offset));
        for (value, offset) in acked.chain(read) {
            let there = *at.entry((value.partition, offset)).or_insert(value);
            if there != value {
                let values = [there, value];
                found.push(Anomaly::InconsistentOffsets { partition: value.partition, offset, values });
            }
            let known = *of.entry(value).or_insert(offset);
            if known != offset {
                found.push(Anomaly::Duplicate { value, offsets: [known, offset] });
            }
        }
        of
    }

    fn check_fates(&self, seen: &BTreeMap<Value, i64>, found: &mut Vec<Anomaly>) {
        let read: BTreeSet<Value> = self.reads.values().flatten().map(|read| read.value).collect();
        let mut highest: BTreeMap<i32, i64> = BTreeMap::new();
        for value in &read {
            let high = highest.entry(value.partition).or_insert(-1);
            *high = (*high).max(seen[value]);
        }
        for (value, result) in &self.sends {
            match result {
                SendResult::NotWritten if read.contains(value) => {
                    found.push(Anomaly::FailedRead { value: *value });
                }
                SendResult::Acked(offset) if !read.contains(value) => {
                    if highest.get(&value.partition).is_some_and(|high| offset <= high) {
                        found.push(Anomaly::LostWrite { value: *value, offset: *offset });
                    }
                    if !self.finished.is_empty() {
                        found.push(Anomaly::Unseen { value: *value, offset: *offset, by: "anyone".into() });
                    }
                }
                SendResult::Acked(offset) => self.check_seen(*value, *offset, found),
                SendResult::Unknown | SendResult::PossiblyWritten | SendResult::NotWritten => {}
            }
        }
    }

    /// Every reader without a group, and the group as a whole, must have seen the value.
    fn check_seen(&self, value: Value, offset: i64, found: &mut Vec<Anomaly>) {
        let saw = |reader: &Reader| {
            let reads = self.reads.get(&(*reader, value.partition));
            reads.is_some_and(|reads| reads.iter().any(|read| read.value == value))
        };
        for reader in self.finished.iter().filter(|reader| !reader.in_group && !saw(reader)) {
            found.push(Anomaly::Unseen { value, offset, by: format!("reader {}", reader.id) });
        }
        let group: Vec<&Reader> =
            self.reads.keys().map(|(reader, _)| reader).filter(|reader| reader.in_group).collect();
        if self.finished.iter().any(|reader| reader.in_group) && !group.iter().any(|reader| saw(reader)) {
            found.push(Anomaly::Unseen { value, offset, by: "the group".into() });
        }
    }

    /// A reader without a group never goes back and skips nothing: no record is removed during a run.
    fn check_readers(&self, found: &mut Vec<Anomaly>) {
        for ((reader, partition), reads) in self.reads.iter().filter(|((reader, _), _)| !reader.in_group) {
            let (reader, partition) = (*reader, *partition);
            let mut from = -1;
            for Read { offset: to, .. } in reads {
                if *to <= from {
                    found.push(Anomaly::NonmonotonicPoll { reader, partition, from, to: *to });
                } else if *to > from + 1 {
                    found.push(Anomaly::PollSkip { reader, partition, from, to: *to });
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
                && (earlier.producer, earlier.partition) == (value.producer, value.partition)
                && before >= *offset
            {
                let offsets = [before, *offset];
                found.push(Anomaly::NonmonotonicSend { earlier, later: *value, offsets });
            }
            last = Some((*value, *offset));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Reader = Reader { id: 0, in_group: false };

    fn value(number: u32) -> Value {
        Value { producer: 1, partition: 0, number }
    }

    fn history(acked: &[(u32, i64)], reads: &[(u32, i64)]) -> History {
        let mut history = History::default();
        for number in 0..10 {
            history.sent(value(number));
        }
        for (number, offset) in acked {
            history.settled(value(*number), SendResult::Acked(*offset));
        }
        for (number, offset) in reads {
            history.read(ALONE, 0, *offset, value(*number).to_string().as_bytes());
        }
        history.finish(ALONE);
        history
    }

    #[test]
    fn a_sound_history_has_no_anomalies() {
        let history = history(&[(0, 0), (2, 2)], &[(0, 0), (1, 1), (2, 2)]);
        assert_eq!(history.check(), []);
        assert_eq!(history.position(ALONE, 0), 3);
    }

    #[test]
    fn each_anomaly_has_its_name() {
        let names = |history: &History| -> Vec<String> {
            let text =
                |anomaly: &Anomaly| format!("{anomaly:?}").split(' ').next().unwrap_or_default().into();
            history.check().iter().map(text).collect()
        };
        assert_eq!(
            names(&history(&[(0, 0), (1, 1)], &[(0, 0), (2, 1)])),
            ["InconsistentOffsets", "LostWrite", "Unseen", "NonmonotonicSend"]
        );
        assert_eq!(names(&history(&[], &[(0, 0), (0, 1)])), ["Duplicate"]);
        assert_eq!(names(&history(&[(1, 1)], &[(0, 0)])), ["Unseen"]);
        assert_eq!(names(&history(&[], &[(0, 0), (1, 1), (0, 0)])), ["NonmonotonicPoll"]);
        assert_eq!(names(&history(&[], &[(0, 0), (1, 2)])), ["PollSkip"]);
        assert_eq!(names(&history(&[], &[(1, 0), (0, 1)])), ["NonmonotonicSend"]);
        let mut failed = history(&[], &[(0, 0)]);
        failed.settled(value(0), SendResult::NotWritten);
        assert_eq!(names(&failed), ["FailedRead"]);
        let mut unknown_bytes = history(&[], &[]);
        unknown_bytes.read(ALONE, 0, 0, b"what is this");
        assert_eq!(names(&unknown_bytes), ["Stranger"]);
    }
}

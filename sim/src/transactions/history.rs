//! The entries and outcomes of transactions, and what readers with `read_committed` saw of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{COPIES, LEDGER};
use crate::checker::Anomaly;

/// One entry of a transaction.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Entry {
    /// The transaction: its writer, and its number among that writer's.
    pub(crate) transaction: (u32, u32),
    /// The partition of the ledger, and of the copy.
    pub(crate) partition: i32,
    /// The number of the entry among those of its transaction.
    pub(crate) number: u32,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (writer, transaction) = self.transaction;
        write!(f, "t{writer}/{transaction}/{}/{}", self.partition, self.number)
    }
}

impl Entry {
    /// Decodes an entry; `None` for bytes that no writer sent.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(bytes).ok()?.strip_prefix('t')?.split('/');
        let transaction = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let entry =
            Self { transaction, partition: parts.next()?.parse().ok()?, number: parts.next()?.parse().ok()? };
        parts.next().is_none().then_some(entry)
    }
}

/// The state of a transaction as its writer knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// No commit was requested: no reader may ever see an entry, unless one follows.
    Open,
    /// A commit was requested, and its outcome is not known.
    Committing,
    /// The commit succeeded.
    Committed,
    /// The abort succeeded, or a commit failed in a way that excludes it.
    Aborted,
}

#[derive(Debug)]
struct Transaction {
    outcome: Outcome,
    entries: BTreeSet<Entry>,
}

/// The records that one incarnation of a reader saw of one partition.
#[derive(Debug, Default)]
struct Seen {
    /// The offset of the last record.
    last: Option<i64>,
    entries: BTreeSet<Entry>,
}

/// All transactions of a run, and all reads.
#[derive(Debug, Default)]
pub(crate) struct TransactionHistory {
    transactions: BTreeMap<(u32, u32), Transaction>,
    /// The entry at each offset, and the offset of each entry, by topic.
    at: BTreeMap<(&'static str, i32, i64), Entry>,
    offsets: BTreeMap<(&'static str, Entry), i64>,
    seen: BTreeMap<(u32, &'static str, i32), Seen>,
    /// The readers that must see everything in the end: the last incarnation of each.
    current: BTreeMap<u32, u32>,
    found: Vec<Anomaly>,
}

impl TransactionHistory {
    /// Records the start of a transaction.
    pub(crate) fn begun(&mut self, transaction: (u32, u32)) {
        let new = Transaction { outcome: Outcome::Open, entries: BTreeSet::new() };
        assert!(self.transactions.insert(transaction, new).is_none(), "a number is used once");
    }

    /// Records that an entry was passed to the producer.
    pub(crate) fn sent(&mut self, entry: Entry) {
        let transaction = self.transactions.get_mut(&entry.transaction).expect("it has begun");
        transaction.entries.insert(entry);
    }

    /// Records what the writer knows.
    pub(crate) fn set(&mut self, transaction: (u32, u32), outcome: Outcome) {
        self.transactions.get_mut(&transaction).expect("it has begun").outcome = outcome;
    }

    /// Records an anomaly that is not found in entries and reads.
    pub(crate) fn report(&mut self, anomaly: Anomaly) {
        self.found.push(anomaly);
    }

    /// Sets the current incarnation of a reader.
    pub(crate) fn reads_as(&mut self, reader: u32, incarnation: u32) {
        self.current.insert(reader, incarnation);
    }

    /// Checks a record that a consumer with `read_committed` received, and returns its entry.
    pub(crate) fn check_visible(
        &mut self,
        topic: &'static str,
        partition: i32,
        offset: i64,
        bytes: &[u8],
    ) -> Option<Entry> {
        let known = Entry::parse(bytes).filter(|entry| {
            let transaction = self.transactions.get(&entry.transaction);
            entry.partition == partition
                && transaction.is_some_and(|transaction| transaction.entries.contains(entry))
        });
        let Some(entry) = known else {
            let what = format!("{topic}-{partition}@{offset}: {}", String::from_utf8_lossy(bytes));
            self.found.push(Anomaly::Stranger { what });
            return None;
        };
        let what = || format!("{entry} at {topic}-{partition}@{offset}");
        match self.transactions[&entry.transaction].outcome {
            Outcome::Open => self.found.push(Anomaly::PrecommittedRead { what: what() }),
            Outcome::Aborted => self.found.push(Anomaly::AbortedRead { what: what() }),
            Outcome::Committing | Outcome::Committed => {}
        }
        let there = *self.at.entry((topic, partition, offset)).or_insert(entry);
        if there != entry {
            let what = format!("{there} and {entry} at {topic}-{partition}@{offset}");
            self.found.push(Anomaly::TwoEntries { what });
        }
        let first = *self.offsets.entry((topic, entry)).or_insert(offset);
        if first != offset {
            let what = format!("{entry} at {first} and {offset} of {topic}-{partition}");
            self.found.push(Anomaly::CommittedTwice { what });
        }
        Some(entry)
    }

    /// Records that a reader received a record.
    pub(crate) fn read(
        &mut self,
        incarnation: u32,
        topic: &'static str,
        partition: i32,
        offset: i64,
        bytes: &[u8],
    ) {
        let Some(entry) = self.check_visible(topic, partition, offset, bytes) else { return };
        let seen = self.seen.entry((incarnation, topic, partition)).or_default();
        if let Some(last) = seen.last.replace(offset).filter(|last| *last >= offset) {
            let what = format!("reader {incarnation} of {topic}-{partition}: {offset} after {last}");
            self.found.push(Anomaly::WentBack { what });
        }
        seen.entries.insert(entry);
    }

    /// Committed entries that a current reader has not seen yet, at most one per reader and topic.
    pub(crate) fn unseen(&self, has_copies: bool) -> Vec<String> {
        let mut unseen = Vec::new();
        let committed = || {
            let committed = self.transactions.values().filter(|it| it.outcome == Outcome::Committed);
            committed.flat_map(|transaction| &transaction.entries)
        };
        for incarnation in self.current.values() {
            for topic in [LEDGER, COPIES].into_iter().filter(|topic| has_copies || *topic == LEDGER) {
                if let Some(entry) = committed().find(|entry| !self.has_seen(*incarnation, topic, entry)) {
                    unseen.push(format!("reader {incarnation} has not seen {entry} in {topic}"));
                }
            }
        }
        unseen
    }

    fn has_seen(&self, incarnation: u32, topic: &'static str, entry: &Entry) -> bool {
        let seen = self.seen.get(&(incarnation, topic, entry.partition));
        seen.is_some_and(|seen| seen.entries.contains(entry))
    }

    /// The number of committed transactions.
    pub(crate) fn committed(&self) -> usize {
        self.transactions.values().filter(|it| it.outcome == Outcome::Committed).count()
    }

    /// All anomalies. Every current reader has read to the end.
    pub(crate) fn check(&self, has_copies: bool) -> Vec<Anomaly> {
        let mut found = self.found.clone();
        let topics = || [LEDGER, COPIES].into_iter().filter(|topic| has_copies || *topic == LEDGER);
        for (id, transaction) in &self.transactions {
            for topic in topics() {
                let is_read = |entry: &&Entry| self.offsets.contains_key(&(topic, **entry));
                let read = transaction.entries.iter().filter(is_read).count();
                let all = transaction.entries.len();
                let outcome = transaction.outcome;
                if read > 0 && matches!(outcome, Outcome::Open | Outcome::Aborted) {
                    let what =
                        format!("transaction {id:?} is {outcome:?}, and {read} entries of {topic} were read");
                    found.push(Anomaly::AbortedRead { what });
                }
                // A transaction whose outcome is unknown happened as a whole or not at all.
                let is_torn = match outcome {
                    Outcome::Committed => read < all,
                    Outcome::Committing => read > 0 && read < all,
                    Outcome::Open | Outcome::Aborted => false,
                };
                if is_torn && !self.current.is_empty() {
                    let what = format!(
                        "transaction {id:?} is {outcome:?}, and {read} of {all} entries of {topic} were read"
                    );
                    found.push(Anomaly::TornTransaction { what });
                }
            }
            if has_copies && !self.current.is_empty() {
                let copied = |entry: &&Entry| {
                    self.offsets.contains_key(&(LEDGER, **entry))
                        != self.offsets.contains_key(&(COPIES, **entry))
                };
                if let Some(entry) = transaction.entries.iter().find(copied) {
                    let what = format!("{entry} is in one of {LEDGER} and {COPIES} only");
                    found.push(Anomaly::TornTransaction { what });
                }
            }
        }
        found.extend(self.unordered());
        found
    }

    /// Entries of one transaction that are not in the order in which they were sent.
    fn unordered(&self) -> Vec<Anomaly> {
        let mut found = Vec::new();
        let mut last: Option<(&'static str, Entry, i64)> = None;
        // Sorted by topic, writer, transaction, partition and number: the order of the sends within a partition.
        for ((topic, entry), offset) in &self.offsets {
            if let Some((earlier_topic, earlier, before)) = last
                && (earlier_topic, earlier.transaction, earlier.partition)
                    == (*topic, entry.transaction, entry.partition)
                && before >= *offset
            {
                let what = format!("{earlier} at {before}, {entry} at {offset} of {topic}");
                found.push(Anomaly::EntriesOutOfOrder { what });
            }
            last = Some((*topic, *entry, *offset));
        }
        found
    }
}

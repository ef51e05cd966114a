//! The records that groups have handled, and their committed offsets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::{Anomaly, Reader};

/// A member learns its assignment, and its start, at most this long before its application does. A member that
/// another one has replaced meanwhile reads on until it learns that.
const SEEN_WITHIN: Duration = Duration::from_millis(2500);

#[derive(Debug, Default)]
pub(super) struct Groups {
    handled: BTreeMap<(u8, i32), Handled>,
    /// Acknowledged commits with rising offsets, and the times of their acknowledgements.
    acknowledged: BTreeMap<(u8, i32), Vec<(Instant, i64)>>,
    /// The assignments that have had no record yet: their times.
    assigned: BTreeMap<(Reader, i32), Instant>,
    /// The last committed offset that was seen at the running broker.
    committed: BTreeMap<(u8, i32), i64>,
}

/// The handled offsets of a slot: all below `prefix`, and `beyond`.
#[derive(Debug, Default)]
struct Handled {
    prefix: i64,
    beyond: BTreeSet<i64>,
}

impl Groups {
    pub(super) fn handled(&mut self, group: u8, slot: i32, offset: i64) {
        let handled = self.handled.entry((group, slot)).or_default();
        if offset > handled.prefix {
            handled.beyond.insert(offset);
        } else if offset == handled.prefix {
            handled.prefix += 1;
            while handled.beyond.remove(&handled.prefix) {
                handled.prefix += 1;
            }
        }
    }

    pub(super) fn position(&self, group: u8, slot: i32) -> i64 {
        self.handled.get(&(group, slot)).map_or(0, |handled| handled.prefix)
    }

    pub(super) fn acknowledged(&mut self, group: u8, slot: i32, offset: i64) {
        let commits = self.acknowledged.entry((group, slot)).or_default();
        if commits.last().is_none_or(|(_, highest)| *highest < offset) {
            commits.push((Instant::now(), offset));
        }
    }

    /// The highest acknowledged commit; -1 if there is none.
    fn highest(&self, group: u8, slot: i32) -> i64 {
        let commits = self.acknowledged.get(&(group, slot));
        commits.and_then(|commits| commits.last()).map_or(-1, |(_, offset)| *offset)
    }

    /// The highest commit that was acknowledged until `until`.
    fn highest_until(&self, group: u8, slot: i32, until: Instant) -> Option<i64> {
        let commits = self.acknowledged.get(&(group, slot))?;
        commits.iter().rev().find(|(at, _)| *at <= until).map(|(_, offset)| *offset)
    }

    pub(super) fn required(&self, until: Instant) -> BTreeMap<(u8, i32), i64> {
        let keys = self.acknowledged.keys().copied();
        keys.filter_map(|key| Some((key, self.highest_until(key.0, key.1, until)?))).collect()
    }

    pub(super) fn committed(
        &mut self,
        group: u8,
        slot: i32,
        offset: i64,
        restarted: bool,
        found: &mut Vec<Anomaly>,
    ) {
        let key = (group, slot);
        let handled = self.position(group, slot);
        if offset > handled {
            found.push(Anomaly::CommitPastUnhandled { group, slot, committed: offset, handled });
        }
        let before = self.committed.insert(key, offset).filter(|_| !restarted);
        if let Some(from) = before.filter(|from| *from > offset) {
            found.push(Anomaly::CommitWentBack { group, slot, from, to: offset });
        }
        let acknowledged = self.highest(group, slot);
        if acknowledged > offset {
            found.push(Anomaly::LostCommit { group, slot, acknowledged, found: offset });
        }
    }

    pub(super) fn assigned(&mut self, reader: Reader, slot: i32) {
        self.assigned.insert((reader, slot), Instant::now());
    }

    /// Checks the first record of an assignment: not before a commit that was acknowledged some time before the
    /// assignment, and not behind unhandled records.
    pub(super) fn check_start(
        &mut self,
        reader: Reader,
        group: u8,
        slot: i32,
        started: i64,
        found: &mut Vec<Anomaly>,
    ) {
        let assigned = self.assigned.remove(&(reader, slot));
        let acknowledged = assigned.and_then(|at| self.highest_until(group, slot, at - SEEN_WITHIN));
        if let Some(acknowledged) = acknowledged.filter(|acknowledged| started < *acknowledged) {
            found.push(Anomaly::CommitIgnored { reader, slot, acknowledged, started });
        }
        let handled = self.position(group, slot);
        if started > handled {
            found.push(Anomaly::PollSkip { reader, slot, from: handled - 1, to: started });
        }
    }
}

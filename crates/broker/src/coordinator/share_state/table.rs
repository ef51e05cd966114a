//! The states of share-partitions, and the decisions about their changes: Kafka's `ShareCoordinatorShard`, without I/O.
//!
//! A decision returns a record. [`ShareTable::apply`] changes the state when the record is appended, and at the start.

use std::collections::BTreeMap;

use ottla_protocol::messages::share_state_records::{ShareSnapshotValue, ShareUpdateValue};
use ottla_protocol::{ErrorCode, Uuid};

use super::combine::combine;
use super::records::{ShareRecord, read, stored};
use super::{ANY_EPOCH, SharePartitionKey, ShareState, StateBatch, StateChange, UNINITIALIZED};
use crate::memory::{Kept, KeptMemory};

/// Batches of one state. A snapshot with more, of 20 bytes each, would not fit into a batch of a megabyte.
const BATCHES_MAX: usize = 40_000;

/// The states of all share-partitions.
#[derive(Debug)]
pub(super) struct ShareTable {
    entries: BTreeMap<SharePartitionKey, Entry>,
    /// The number of states that have begun.
    begun: u64,
    /// The memory of the states, besides their batches.
    memory: KeptMemory,
    /// The memory of the batches, which leaders store without a limit: they acquire no more records while it is used up.
    batch_memory: KeptMemory,
}

#[derive(Debug)]
struct Entry {
    state: ShareState,
    /// Another one of the same share-partition begins when its offset is reset or its group is deleted.
    incarnation: u64,
    snapshot_epoch: i32,
    created_ms: i64,
    written_ms: i64,
    /// The highest leader epoch and the highest state epoch of any record: the state may have lower ones.
    seen_leader_epoch: i32,
    seen_state_epoch: i32,
    /// The updates since the last snapshot.
    updates: u32,
    /// The partition of `__share_group_state`, and the offset of the last snapshot in it.
    snapshot_at: (i32, i64),
    /// The memory of the state, until it is deleted.
    _kept: Kept,
    kept_batches: Kept,
}

/// The number of updates after which the next record is a snapshot, and the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteContext {
    pub(super) updates_per_snapshot: u32,
    pub(super) now_ms: i64,
}

impl ShareTable {
    pub(super) fn new(memory: KeptMemory, batch_memory: KeptMemory) -> Self {
        Self { entries: BTreeMap::new(), begun: 0, memory, batch_memory }
    }

    /// The state for a leader, and the record that stores the leader's epoch, if it is a new one.
    ///
    /// # Errors
    /// INVALID_REQUEST if the group coordinator has not initialized the state; FENCED_LEADER_EPOCH if a newer leader has
    /// read it.
    pub(super) fn decide_read(
        &self,
        key: &SharePartitionKey,
        leader_epoch: i32,
        context: WriteContext,
    ) -> Result<(ShareState, Option<ShareRecord>), ErrorCode> {
        let entry = self.entries.get(key).ok_or(ErrorCode::InvalidRequest)?;
        if leader_epoch != ANY_EPOCH && entry.seen_leader_epoch > leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        let is_known = leader_epoch == ANY_EPOCH || entry.seen_leader_epoch == leader_epoch;
        let record = (!is_known).then(|| {
            let change = StateChange {
                state_epoch: entry.state.state_epoch,
                leader_epoch,
                start_offset: entry.state.start_offset,
                delivery_complete_count: entry.state.delivery_complete_count,
                batches: Vec::new(),
            };
            entry.record_of(&change, context)
        });
        let mut state = entry.state.clone();
        if leader_epoch != ANY_EPOCH {
            state.leader_epoch = leader_epoch;
        }
        Ok((state, record))
    }

    /// The record of a change.
    ///
    /// # Errors
    /// INVALID_REQUEST if the state is not initialized, a batch ends before it begins, or the state would not fit into a snapshot;
    /// FENCED_LEADER_EPOCH and FENCED_STATE_EPOCH if a newer one is known.
    pub(super) fn decide_write(
        &self,
        key: &SharePartitionKey,
        change: &StateChange,
        context: WriteContext,
    ) -> Result<ShareRecord, ErrorCode> {
        let entry = self.entries.get(key).ok_or(ErrorCode::InvalidRequest)?;
        if change.leader_epoch != ANY_EPOCH && entry.seen_leader_epoch > change.leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if change.state_epoch != ANY_EPOCH && entry.seen_state_epoch > change.state_epoch {
            return Err(ErrorCode::FencedStateEpoch);
        }
        let is_sound = |batch: &StateBatch| 0 <= batch.first && batch.first <= batch.last;
        if !change.batches.iter().all(is_sound) || entry.has_too_many_with(change) {
            return Err(ErrorCode::InvalidRequest);
        }
        Ok(entry.record_of(change, context))
    }

    /// The record that begins a state at this offset, which may be [`UNINITIALIZED`].
    ///
    /// # Errors
    /// FENCED_STATE_EPOCH if a newer one is known; POLICY_VIOLATION if `memory.max.bytes` has no room for another state.
    pub(super) fn decide_initialize(
        &self,
        key: &SharePartitionKey,
        (state_epoch, start_offset): (i32, i64),
        now_ms: i64,
    ) -> Result<ShareRecord, ErrorCode> {
        let known = self.entries.get(key);
        if state_epoch != ANY_EPOCH && known.is_some_and(|entry| entry.seen_state_epoch > state_epoch) {
            return Err(ErrorCode::FencedStateEpoch);
        }
        if known.is_none() && self.memory.keep(bytes_of(key)).is_none() {
            return Err(ErrorCode::PolicyViolation);
        }
        Ok(ShareRecord::Snapshot(ShareSnapshotValue {
            snapshot_epoch: known.map_or(0, |entry| entry.snapshot_epoch + 1),
            state_epoch,
            leader_epoch: 0,
            start_offset,
            delivery_complete_count: if start_offset == UNINITIALIZED { -1 } else { 0 },
            create_timestamp: now_ms,
            write_timestamp: now_ms,
            state_batches: Vec::new(),
        }))
    }

    /// The record that replaces a state that was read, also by one with less: of an update the higher start and the higher counts win.
    ///
    /// # Errors
    /// INVALID_REQUEST if the state is not initialized; FENCED_LEADER_EPOCH and FENCED_STATE_EPOCH if a newer one is known.
    pub(super) fn decide_replace(
        &self,
        key: &SharePartitionKey,
        state: &ShareState,
        now_ms: i64,
    ) -> Result<ShareRecord, ErrorCode> {
        let entry = self.entries.get(key).ok_or(ErrorCode::InvalidRequest)?;
        if entry.seen_leader_epoch > state.leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if entry.seen_state_epoch > state.state_epoch {
            return Err(ErrorCode::FencedStateEpoch);
        }
        Ok(ShareRecord::Snapshot(ShareSnapshotValue {
            snapshot_epoch: entry.snapshot_epoch + 1,
            state_epoch: state.state_epoch,
            leader_epoch: state.leader_epoch,
            start_offset: state.start_offset,
            delivery_complete_count: state.delivery_complete_count,
            create_timestamp: now_ms,
            write_timestamp: now_ms,
            state_batches: stored(&state.batches),
        }))
    }

    /// The epoch of a state that a group begins: the group's, or one above that of a state which an earlier group of this name has left.
    pub(super) fn state_epoch_for(&self, key: &SharePartitionKey, group_epoch: i32) -> i32 {
        let seen = self.entries.get(key).map(|entry| entry.seen_state_epoch);
        seen.filter(|seen| *seen > group_epoch).map_or(group_epoch, |seen| seen.saturating_add(1))
    }

    /// A number that changes when another state of the share-partition begins.
    pub(super) fn incarnation(&self, key: &SharePartitionKey) -> Option<u64> {
        self.entries.get(key).map(|entry| entry.incarnation)
    }

    /// Returns `true` if there is memory for so many bytes of batches more.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.batch_memory.keep(bytes).is_some()
    }

    pub(super) fn contains(&self, key: &SharePartitionKey) -> bool {
        self.entries.contains_key(key)
    }

    /// The record that deletes a state, if there is one.
    pub(super) fn decide_delete(&self, key: &SharePartitionKey) -> Option<ShareRecord> {
        self.entries.contains_key(key).then_some(ShareRecord::Tombstone)
    }

    /// The state without its batches. A state that was never initialized looks like an uninitialized one.
    pub(super) fn summary(&self, key: &SharePartitionKey) -> ShareState {
        let nothing = ShareState {
            state_epoch: 0,
            leader_epoch: 0,
            start_offset: UNINITIALIZED,
            delivery_complete_count: -1,
            batches: Vec::new(),
        };
        self.entries.get(key).map_or(nothing, |entry| ShareState { batches: Vec::new(), ..entry.state })
    }

    /// Applies a record that is at this offset of a partition of `__share_group_state`.
    pub(super) fn apply(&mut self, key: &SharePartitionKey, record: &ShareRecord, at: (i32, i64)) {
        match record {
            ShareRecord::Tombstone => drop(self.entries.remove(key)),
            ShareRecord::Snapshot(value) => self.apply_snapshot(key, value, at),
            ShareRecord::Update(value) => self.apply_update(key, value, at),
        }
    }

    fn apply_snapshot(&mut self, key: &SharePartitionKey, value: &ShareSnapshotValue, at: (i32, i64)) {
        let known = self.entries.remove(key);
        let same = known.as_ref().filter(|it| it.state.state_epoch == value.state_epoch);
        let incarnation = same.map_or_else(|| self.begun + 1, |it| it.incarnation);
        self.begun = self.begun.max(incarnation);
        let seen = known.map_or((i32::MIN, i32::MIN), |it| (it.seen_leader_epoch, it.seen_state_epoch));
        let batches = read(&value.state_batches);
        let kept_batches = self.batch_memory.keep_known(size_of_val(&*batches));
        let entry = Entry {
            incarnation,
            snapshot_epoch: value.snapshot_epoch,
            created_ms: value.create_timestamp,
            written_ms: value.write_timestamp,
            seen_leader_epoch: seen.0.max(value.leader_epoch),
            seen_state_epoch: seen.1.max(value.state_epoch),
            updates: 0,
            snapshot_at: at,
            _kept: self.memory.keep_known(bytes_of(key)),
            kept_batches,
            state: ShareState {
                state_epoch: value.state_epoch,
                leader_epoch: value.leader_epoch,
                start_offset: value.start_offset,
                delivery_complete_count: value.delivery_complete_count,
                batches,
            },
        };
        self.entries.insert(key.clone(), entry);
    }

    fn apply_update(&mut self, key: &SharePartitionKey, value: &ShareUpdateValue, at: (i32, i64)) {
        let Some(entry) = self.entries.get_mut(key) else {
            // Kafka takes an update without its snapshot for the state, too.
            let snapshot = ShareSnapshotValue {
                snapshot_epoch: value.snapshot_epoch,
                state_epoch: 0,
                leader_epoch: value.leader_epoch,
                start_offset: value.start_offset,
                delivery_complete_count: value.delivery_complete_count,
                create_timestamp: 0,
                write_timestamp: 0,
                state_batches: value.state_batches.clone(),
            };
            return self.apply_snapshot(key, &snapshot, at);
        };
        entry.updates += 1;
        entry.seen_leader_epoch = entry.seen_leader_epoch.max(value.leader_epoch);
        let state = &mut entry.state;
        if value.leader_epoch != ANY_EPOCH {
            state.leader_epoch = value.leader_epoch;
        }
        // The start of a share-partition only moves on.
        state.start_offset = state.start_offset.max(value.start_offset);
        state.delivery_complete_count = value.delivery_complete_count;
        let before = size_of_val(&*state.batches);
        state.batches = combine(&state.batches, &read(&value.state_batches), state.start_offset);
        let after = size_of_val(&*state.batches);
        entry.kept_batches.add(after.saturating_sub(before));
        entry.kept_batches.release(before.saturating_sub(after));
    }

    /// The states of a topic.
    pub(super) fn keys_of_topic(&self, topic: Uuid) -> Vec<SharePartitionKey> {
        self.entries.keys().filter(|key| key.topic == topic).cloned().collect()
    }

    /// The states that did not change for `cold_ms`, in one partition of `__share_group_state`. They need a new snapshot: without it, the
    /// first record of a quiet state would keep all later ones. None if every state has one.
    pub(super) fn cold_states(&self, partition: i32, cold_ms: i64, now_ms: i64) -> Vec<SharePartitionKey> {
        let here = || self.entries.iter().filter(|(_, entry)| entry.snapshot_at.0 == partition);
        if here().all(|(_, entry)| entry.created_ms != entry.written_ms) {
            return Vec::new();
        }
        here().filter(|(_, entry)| entry.is_cold(cold_ms, now_ms)).map(|(key, _)| key.clone()).collect()
    }

    /// The snapshot that replaces that of a state, if it did not change for `cold_ms`.
    pub(super) fn cold_snapshot(
        &self,
        key: &SharePartitionKey,
        cold_ms: i64,
        now_ms: i64,
    ) -> Option<ShareRecord> {
        let entry = self.entries.get(key).filter(|entry| entry.is_cold(cold_ms, now_ms))?;
        Some(ShareRecord::Snapshot(entry.cold_snapshot(now_ms)))
    }

    /// The offset of the first snapshot in a partition of `__share_group_state`: no state needs an earlier record. `None` if
    /// no state is there.
    pub(super) fn first_snapshot(&self, partition: i32) -> Option<i64> {
        let here = self.entries.values().filter(|entry| entry.snapshot_at.0 == partition);
        here.map(|entry| entry.snapshot_at.1).min()
    }
}

impl Entry {
    fn is_cold(&self, cold_ms: i64, now_ms: i64) -> bool {
        // After a jump of the wall clock that was put right, a state may have been written later than now.
        !(0..cold_ms).contains(&now_ms.saturating_sub(self.written_ms))
    }

    /// Returns `true` if a snapshot of the state with this change would be too large for a batch.
    fn has_too_many_with(&self, change: &StateChange) -> bool {
        if self.state.batches.len() + change.batches.len() <= BATCHES_MAX {
            return false;
        }
        let start_offset = self.state.start_offset.max(change.start_offset);
        combine(&self.state.batches, &change.batches, start_offset).len() > BATCHES_MAX
    }

    fn record_of(&self, change: &StateChange, context: WriteContext) -> ShareRecord {
        let leader_epoch =
            if change.leader_epoch == ANY_EPOCH { self.state.leader_epoch } else { change.leader_epoch };
        if self.updates < context.updates_per_snapshot {
            return ShareRecord::Update(ShareUpdateValue {
                snapshot_epoch: self.snapshot_epoch,
                leader_epoch,
                start_offset: change.start_offset,
                delivery_complete_count: change.delivery_complete_count,
                state_batches: stored(&combine(&[], &change.batches, change.start_offset)),
            });
        }
        let start_offset = self.state.start_offset.max(change.start_offset);
        ShareRecord::Snapshot(ShareSnapshotValue {
            snapshot_epoch: self.snapshot_epoch + 1,
            state_epoch: self.state.state_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count: change.delivery_complete_count,
            create_timestamp: context.now_ms,
            write_timestamp: context.now_ms,
            state_batches: stored(&combine(&self.state.batches, &change.batches, start_offset)),
        })
    }

    fn cold_snapshot(&self, now_ms: i64) -> ShareSnapshotValue {
        ShareSnapshotValue {
            snapshot_epoch: self.snapshot_epoch + 1,
            state_epoch: self.state.state_epoch,
            leader_epoch: self.state.leader_epoch,
            start_offset: self.state.start_offset,
            delivery_complete_count: self.state.delivery_complete_count,
            create_timestamp: self.created_ms,
            write_timestamp: now_ms,
            state_batches: stored(&self.state.batches),
        }
    }
}

/// The memory of a state without its batches.
fn bytes_of(key: &SharePartitionKey) -> usize {
    2 * (size_of::<SharePartitionKey>() + size_of::<Entry>()) + key.group.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "g";
    const CONTEXT: WriteContext = WriteContext { updates_per_snapshot: 2, now_ms: 5 };

    /// A table and the records that were appended.
    struct Story {
        table: ShareTable,
        log: Vec<(SharePartitionKey, ShareRecord)>,
    }

    fn key(group: &str) -> SharePartitionKey {
        SharePartitionKey { group: group.into(), topic: Uuid([7; 16]), partition: 0 }
    }

    fn batch(first: i64, last: i64, state: i8) -> StateBatch {
        StateBatch { first, last, state, delivery_count: 1 }
    }

    fn change(leader_epoch: i32, start_offset: i64, batches: &[StateBatch]) -> StateChange {
        let (state_epoch, batches) = (1, batches.to_vec());
        StateChange { state_epoch, leader_epoch, start_offset, delivery_complete_count: 0, batches }
    }

    impl Story {
        fn new() -> Self {
            let memory = || KeptMemory::new(1 << 20);
            Self { table: ShareTable::new(memory(), memory()), log: Vec::new() }
        }

        fn append(&mut self, key: &SharePartitionKey, record: ShareRecord) {
            self.table.apply(key, &record, (0, self.log.len() as i64));
            self.log.push((key.clone(), record));
        }

        fn initialize(&mut self, state_epoch: i32, start: i64) -> Result<(), ErrorCode> {
            let record = self.table.decide_initialize(&key(KEY), (state_epoch, start), 5)?;
            self.append(&key(KEY), record);
            Ok(())
        }

        fn write(&mut self, change: &StateChange) -> Result<(), ErrorCode> {
            let record = self.table.decide_write(&key(KEY), change, CONTEXT)?;
            self.append(&key(KEY), record);
            Ok(())
        }

        fn read(&mut self, leader_epoch: i32) -> Result<ShareState, ErrorCode> {
            let (state, record) = self.table.decide_read(&key(KEY), leader_epoch, CONTEXT)?;
            if let Some(record) = record {
                self.append(&key(KEY), record);
            }
            Ok(state)
        }

        /// The new snapshots of states that did not change for 100 ms.
        fn cold_snapshots(&self, now_ms: i64) -> Vec<(SharePartitionKey, ShareRecord)> {
            let snapshot = |key: SharePartitionKey| {
                let record = self.table.cold_snapshot(&key, 100, now_ms)?;
                Some((key, record))
            };
            self.table.cold_states(0, 100, now_ms).into_iter().filter_map(snapshot).collect()
        }

        /// The state after a start that reads the log from this offset on.
        fn replayed(&self, from: usize) -> ShareTable {
            let memory = || KeptMemory::new(1 << 20);
            let mut table = ShareTable::new(memory(), memory());
            for (at, (key, record)) in self.log.iter().enumerate().skip(from) {
                let encoded = record.encode(key).expect("it fits");
                let (key, record) =
                    ShareRecord::decode(encoded.key, encoded.value).expect("a record").expect("known");
                table.apply(&key, &record, (0, at as i64));
            }
            table
        }
    }

    #[test]
    fn only_an_initialized_state_is_read_and_written() {
        let mut story = Story::new();
        assert_eq!(story.read(0), Err(ErrorCode::InvalidRequest));
        assert_eq!(story.write(&change(0, 0, &[])), Err(ErrorCode::InvalidRequest));
        assert_eq!(story.table.summary(&key(KEY)).start_offset, UNINITIALIZED);
        story.initialize(1, UNINITIALIZED).expect("a new state");
        let state = story.read(0).expect("a state");
        assert_eq!((state.start_offset, state.delivery_complete_count, state.state_epoch), (-1, -1, 1));
        story.write(&change(0, 10, &[batch(10, 12, 2), batch(14, 14, 0)])).expect("a change");
        let state = story.read(0).expect("a state");
        assert_eq!((state.start_offset, state.batches.len()), (10, 2));
        assert_eq!(story.write(&change(0, 10, &[batch(12, 11, 0)])), Err(ErrorCode::InvalidRequest));
        let deletion = story.table.decide_delete(&key(KEY)).expect("a state");
        story.append(&key(KEY), deletion);
        assert_eq!(story.table.decide_delete(&key(KEY)), None);
        assert_eq!(story.read(0), Err(ErrorCode::InvalidRequest));
    }

    #[test]
    fn older_leaders_and_older_states_are_fenced() {
        let mut story = Story::new();
        story.initialize(1, 0).expect("a new state");
        assert_eq!(story.read(5).expect("a state").leader_epoch, 5);
        assert_eq!(story.read(4), Err(ErrorCode::FencedLeaderEpoch));
        assert_eq!(story.write(&change(4, 0, &[])), Err(ErrorCode::FencedLeaderEpoch));
        // The epoch that was read is stored: a start does not forget it.
        assert_eq!(
            story.replayed(0).decide_read(&key(KEY), 4, CONTEXT).err(),
            Some(ErrorCode::FencedLeaderEpoch)
        );
        story.write(&change(5, 3, &[batch(3, 4, 2)])).expect("a change");
        story.write(&change(ANY_EPOCH, 1, &[])).expect("a change");
        assert_eq!(story.read(5).expect("a state").start_offset, 3, "the start does not go back");
        // The offset is reset.
        story.initialize(2, 1).expect("a new state");
        assert_eq!(story.initialize(1, 0), Err(ErrorCode::FencedStateEpoch));
        assert_eq!(story.write(&change(5, 4, &[])), Err(ErrorCode::FencedStateEpoch));
        let state = story.read(5).expect("a state");
        assert_eq!((state.start_offset, state.batches.len(), state.state_epoch), (1, 0, 2));
        assert_eq!(story.table.incarnation(&key(KEY)), Some(2), "snapshots do not count");
    }

    /// It took two records: between them, acknowledged records counted as available.
    #[test]
    fn a_state_is_replaced_by_one_with_less_in_one_record() {
        let mut story = Story::new();
        story.initialize(1, 0).expect("a new state");
        story.read(5).expect("a state");
        story.write(&change(5, 4, &[batch(6, 8, 2), batch(10, 19, 2)])).expect("a change");
        let read = story.read(5).expect("a state");
        let less = ShareState { start_offset: 2, batches: vec![batch(6, 8, 2)], ..read };
        let record = story.table.decide_replace(&key(KEY), &less, 6).expect("a record");
        story.append(&key(KEY), record);
        assert_eq!(story.read(5), Ok(less.clone()));
        let mut started = Story { table: story.replayed(story.log.len() - 1), log: Vec::new() };
        assert_eq!(started.read(5), Ok(less.clone()));
        assert_eq!(started.read(4), Err(ErrorCode::FencedLeaderEpoch));
        assert_eq!(story.table.incarnation(&key(KEY)), Some(1), "it is the same state");
        let older = ShareState { leader_epoch: 4, ..less.clone() };
        let refused = |state: &ShareState| story.table.decide_replace(&key(KEY), state, 6).err();
        assert_eq!(refused(&older), Some(ErrorCode::FencedLeaderEpoch));
        assert_eq!(refused(&ShareState { state_epoch: 0, ..less }), Some(ErrorCode::FencedStateEpoch));
    }

    #[test]
    fn snapshots_replace_updates_and_hold_everything() {
        let mut story = Story::new();
        story.initialize(1, 0).expect("a new state");
        for at in 0..7 {
            let start = at / 2;
            story.write(&change(0, start, &[batch(2 * at, 2 * at, 2)])).expect("a change");
        }
        let kinds: Vec<bool> =
            story.log.iter().map(|(_, record)| matches!(record, ShareRecord::Snapshot(_))).collect();
        assert_eq!(kinds, [true, false, false, true, false, false, true, false]);
        let whole = story.replayed(0);
        let (wanted, _) = story.table.decide_read(&key(KEY), ANY_EPOCH, CONTEXT).expect("a state");
        assert_eq!(wanted.batches.iter().map(|batch| batch.first).collect::<Vec<_>>(), [4, 6, 8, 10, 12]);
        // The records before the last snapshot are not needed.
        assert_eq!(story.table.first_snapshot(0), Some(6));
        for table in [whole, story.replayed(6)] {
            let (state, _) = table.decide_read(&key(KEY), ANY_EPOCH, CONTEXT).expect("a state");
            assert_eq!(state, wanted);
        }
    }

    #[test]
    fn quiet_states_get_new_snapshots_once() {
        let mut story = Story::new();
        story.initialize(1, 0).expect("a new state");
        assert!(story.cold_snapshots(104).is_empty(), "it is not old");
        let cold = story.cold_snapshots(105);
        assert_eq!(cold.len(), 1);
        for (key, record) in cold {
            story.append(&key, record);
        }
        assert_eq!(story.table.first_snapshot(0), Some(1));
        assert!(story.cold_snapshots(900).is_empty(), "every state has one");
        assert_eq!(story.table.first_snapshot(1), None);
    }

    /// Records behind its snapshot were not deleted until the clock had caught up.
    #[test]
    fn a_state_that_was_written_before_the_clock_went_back_gets_a_new_snapshot() {
        let mut story = Story::new();
        story.initialize(1, 0).expect("a new state");
        let cold = story.cold_snapshots(4);
        assert_eq!(cold.len(), 1);
        for (key, record) in cold {
            story.append(&key, record);
        }
        assert_eq!(story.table.first_snapshot(0), Some(1));
        assert!(story.cold_snapshots(5).is_empty(), "every state has one");
    }

    /// A state grew with each request until no snapshot of it could be written, and its replay took minutes.
    #[test]
    fn a_state_has_no_more_batches_than_a_snapshot_can_have() {
        let mut story = Story::new();
        story.initialize(1, 0).expect("new");
        let alternate = |from: i64, count: usize| -> Vec<StateBatch> {
            (0..count as i64).map(|number| batch(from + 2 * number, from + 2 * number, 0)).collect()
        };
        story.write(&change(0, 0, &alternate(0, BATCHES_MAX - 1))).expect("fits");
        let more = change(0, 0, &alternate(1_000_000, 2));
        assert_eq!(story.write(&more), Err(ErrorCode::InvalidRequest));
        // Acknowledged records leave room.
        story.write(&change(0, 100, &[])).expect("no more batches");
        story.write(&more).expect("fits");
        assert!(story.table.summary(&key(KEY)).start_offset == 100);
    }

    #[test]
    fn the_memory_of_states_is_limited() {
        let mut table = ShareTable::new(KeptMemory::new(2 * bytes_of(&key(KEY))), KeptMemory::new(1 << 20));
        for group in ["a", "b"] {
            let record = table.decide_initialize(&key(group), (0, 0), 0).expect("room");
            table.apply(&key(group), &record, (0, 0));
        }
        assert_eq!(table.decide_initialize(&key("c"), (0, 0), 0).err(), Some(ErrorCode::PolicyViolation));
        table.apply(&key("a"), &ShareRecord::Tombstone, (0, 1));
        assert!(table.decide_initialize(&key("c"), (0, 0), 0).is_ok());
    }

    /// The batches of one group's states took the memory for all groups.
    #[test]
    fn batches_of_states_do_not_take_the_memory_of_groups() {
        let (memory, batch_memory) = (KeptMemory::new(1 << 20), KeptMemory::new(1 << 20));
        let mut table = ShareTable::new(memory.clone(), batch_memory.clone());
        let record = table.decide_initialize(&key(KEY), (1, 0), 0).expect("room");
        table.apply(&key(KEY), &record, (0, 0));
        let before = memory.used_bytes();
        let batches: Vec<StateBatch> = (0..100).map(|number| batch(2 * number, 2 * number, 0)).collect();
        let record = table.decide_write(&key(KEY), &change(0, 0, &batches), CONTEXT).expect("fits");
        table.apply(&key(KEY), &record, (0, 1));
        assert_eq!((memory.used_bytes(), batch_memory.used_bytes()), (before, size_of_val(&*batches)));
        table.apply(&key(KEY), &ShareRecord::Tombstone, (0, 2));
        assert_eq!((memory.used_bytes(), batch_memory.used_bytes()), (0, 0));
    }
}

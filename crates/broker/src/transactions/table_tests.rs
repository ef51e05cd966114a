//! The coordinator's rules, one test each. Those named after an issue are faults that Kafka had.

mod renewals;

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::metadata::{EPOCH_MAX, ProducerIdentity, TopicPartition, TransactionVersion};
use super::records::{self, StateRecord};
use super::state::TransactionState;
use super::table::{Decision, Markers, TransactionLimits, Transactions};
use crate::memory::KeptMemory;

const ID: &str = "till-1";
const TIMEOUT_MS: i32 = 60_000;
const V2: TransactionVersion = TransactionVersion::V2;
const V0: TransactionVersion = TransactionVersion::V0;

type Answer = Result<ProducerIdentity, ErrorCode>;

/// A coordinator whose records are stored at once.
struct Story {
    table: Transactions,
    now_ms: i64,
    next_producer_id: i64,
    log: Vec<StateRecord>,
    /// Markers to be written.
    markers: Vec<Markers>,
}

impl Story {
    fn new() -> Self {
        let limits = TransactionLimits { timeout_ms_max: 900_000, id_expiration_ms: 1_000_000 };
        let table = Transactions::new(limits, KeptMemory::new(1 << 20));
        Self { table, now_ms: 1_000, next_producer_id: 100, log: Vec::new(), markers: Vec::new() }
    }

    fn act(
        &mut self,
        mut decide: impl FnMut(&mut Transactions, i64, Option<i64>) -> Result<Decision, ErrorCode>,
    ) -> Answer {
        let mut decision = decide(&mut self.table, self.now_ms, None)?;
        if decision == Decision::NeedsProducerId {
            let fresh = self.next_producer_id;
            self.next_producer_id += 1;
            decision = decide(&mut self.table, self.now_ms, Some(fresh))?;
        }
        match decision {
            Decision::Answer(identity) => Ok(identity),
            Decision::NeedsProducerId => panic!("it has one"),
            Decision::Store(record) => Ok(self.store(record)),
            Decision::StoreAndRetry(record) => {
                self.store(record);
                Err(ErrorCode::ConcurrentTransactions)
            }
        }
    }

    fn store(&mut self, record: super::table::NewRecord) -> ProducerIdentity {
        self.log.push(records::read(record.key, record.value).expect("ours"));
        let stored = self.table.stored(&record.id);
        self.markers.extend(stored.markers);
        stored.identity
    }

    fn init_as(&mut self, expected: Option<ProducerIdentity>) -> Answer {
        self.act(|table, now_ms, fresh| table.init_producer_id(now_ms, ID, TIMEOUT_MS, expected, fresh))
    }

    fn init(&mut self) -> Answer {
        self.init_as(None)
    }

    fn add_with(&mut self, producer: ProducerIdentity, index: i32, version: TransactionVersion) -> Answer {
        let partitions = [orders(index)];
        self.act(|table, now_ms, _| table.add_partitions(now_ms, ID, producer, &partitions, version))
    }

    fn add(&mut self, producer: ProducerIdentity, index: i32) -> Answer {
        self.add_with(producer, index, V2)
    }

    fn end_with(
        &mut self,
        producer: ProducerIdentity,
        committed: bool,
        version: TransactionVersion,
    ) -> Answer {
        self.act(|table, now_ms, fresh| table.end(now_ms, ID, producer, committed, version, fresh))
    }

    fn commit(&mut self, producer: ProducerIdentity) -> Answer {
        self.end_with(producer, true, V2)
    }

    fn abort(&mut self, producer: ProducerIdentity) -> Answer {
        self.end_with(producer, false, V2)
    }

    /// Writes every marker, and completes the transactions.
    fn write_markers(&mut self) -> Vec<Markers> {
        let written = std::mem::take(&mut self.markers);
        for markers in &written {
            let id = markers.id.clone();
            self.act(|table, now_ms, _| table.markers_written(now_ms, &id)).expect("it was prepared");
        }
        written
    }

    fn committed(&mut self, producer: ProducerIdentity, version: TransactionVersion) -> ProducerIdentity {
        self.add_with(producer, 0, version).expect("added");
        let next = self.end_with(producer, true, version).expect("committed");
        self.write_markers();
        next
    }

    fn state(&self) -> TransactionState {
        self.table.describe(ID).expect("known").state
    }

    fn current(&self) -> ProducerIdentity {
        self.table.describe(ID).expect("known").identity()
    }

    /// Sets the epoch, which would take 32,000 requests.
    fn set_epoch(&mut self, epoch: i16) -> ProducerIdentity {
        let metadata = &mut self.table.by_id.get_mut(ID).expect("known").current;
        metadata.producer_epoch = epoch;
        metadata.identity()
    }

    /// The broker ends and starts again.
    fn restart(&mut self) {
        let fresh = Self::new();
        self.table = fresh.table;
        self.markers.clear();
        for record in &self.log {
            match record {
                StateRecord::State(id, metadata) => {
                    self.table.load(id.clone(), Some(metadata.clone()), self.now_ms);
                }
                StateRecord::Removed(id) => self.table.load(id.clone(), None, self.now_ms),
                StateRecord::Unknown => {}
            }
        }
        self.markers = self.table.resume();
    }
}

fn orders(index: i32) -> TopicPartition {
    TopicPartition { topic: "orders".into(), index }
}

fn bumped(producer: ProducerIdentity) -> ProducerIdentity {
    ProducerIdentity { epoch: producer.epoch + 1, ..producer }
}

const CONCURRENT: Answer = Err(ErrorCode::ConcurrentTransactions);
const FENCED: Answer = Err(ErrorCode::ProducerFenced);
const INVALID_STATE: Answer = Err(ErrorCode::InvalidTxnState);
const INVALID_MAPPING: Answer = Err(ErrorCode::InvalidProducerIdMapping);

// InitProducerId.

#[test]
fn each_new_producer_of_an_id_fences_the_one_before() {
    let mut story = Story::new();
    let first = story.init().expect("new");
    assert_eq!(first, ProducerIdentity { id: 100, epoch: 0 });
    let second = story.init().expect("known");
    assert_eq!(second, bumped(first));
    assert_eq!(story.add(first, 0), FENCED);
    assert_eq!(story.add(second, 0), Ok(second));
}

#[test]
fn an_empty_id_and_a_timeout_outside_the_limits_are_refused() {
    let mut story = Story::new();
    let mut init = |id: &str, timeout_ms| story.table.init_producer_id(0, id, timeout_ms, None, Some(1));
    assert_eq!(init("", TIMEOUT_MS), Err(ErrorCode::InvalidRequest));
    for timeout_ms in [0, -1, 900_001, i32::MAX] {
        assert_eq!(init(ID, timeout_ms), Err(ErrorCode::InvalidTransactionTimeout), "{timeout_ms}");
    }
    assert_eq!(story.table.describe(ID), None, "nothing was begun");
}

#[test]
fn a_producer_that_continues_after_an_error_gets_the_next_epoch_and_the_same_one_again() {
    let mut story = Story::new();
    let first = story.init().expect("new");
    let second = story.init_as(Some(first)).expect("it continues");
    assert_eq!(second, bumped(first));
    assert_eq!(story.init_as(Some(first)), Ok(second), "the answer was lost, and the request is repeated");
    let other = story.init().expect("another producer");
    assert_eq!(other, bumped(second));
    assert_eq!(story.init_as(Some(first)), FENCED);
    assert_eq!(story.init_as(Some(second)), FENCED);
    assert_eq!(story.init_as(Some(ProducerIdentity { id: 99, epoch: other.epoch })), FENCED);
}

#[test]
fn a_new_producer_aborts_the_transaction_of_the_old_one_and_comes_back() {
    let mut story = Story::new();
    let old = story.init().expect("new");
    story.add(old, 0).expect("added");
    assert_eq!(story.init(), CONCURRENT);
    assert_eq!(story.state(), TransactionState::PrepareAbort);
    assert_eq!(story.init(), CONCURRENT, "the markers are not written yet");
    let markers = story.write_markers();
    assert_eq!((markers.len(), markers[0].committed), (1, false));
    assert_eq!(markers[0].partitions, [orders(0)]);
    assert_eq!(markers[0].producer, bumped(old), "the marker fences the old producer in the log");
    let new = story.init().expect("the abort is complete");
    assert_eq!(story.commit(old), FENCED);
    assert_eq!(story.add(new, 0), Ok(new));
}

#[test]
fn kafka_19367_an_abort_by_a_new_producer_bumps_the_epoch_once() {
    let mut story = Story::new();
    let old = story.init().expect("new");
    story.add(old, 0).expect("added");
    assert_eq!(story.init(), CONCURRENT);
    assert_eq!(story.current(), bumped(old));
    story.write_markers();
    assert_eq!(story.current(), bumped(old));
}

#[test]
fn used_up_epochs_rotate_the_producer_id() {
    let mut story = Story::new();
    story.init().expect("new");
    let last = story.set_epoch(EPOCH_MAX);
    let rotated = story.init().expect("known");
    assert_eq!(rotated, ProducerIdentity { id: 101, epoch: 0 });
    assert_eq!(story.add(last, 0), INVALID_MAPPING);
}

#[test]
fn a_repeated_request_after_a_rotation_gets_the_same_producer_id() {
    let mut story = Story::new();
    story.init().expect("new");
    let last = story.set_epoch(EPOCH_MAX);
    let rotated = story.init_as(Some(last)).expect("it continues");
    assert_eq!(rotated, ProducerIdentity { id: 101, epoch: 0 });
    assert_eq!(story.init_as(Some(last)), Ok(rotated));
    let older = ProducerIdentity { epoch: EPOCH_MAX - 1, ..last };
    assert_eq!(story.init_as(Some(older)), FENCED);
}

#[test]
fn a_change_that_is_not_stored_leaves_everything_as_it_was() {
    let mut story = Story::new();
    let decided = story.table.init_producer_id(0, ID, TIMEOUT_MS, None, Some(7));
    assert!(matches!(decided, Ok(Decision::Store(_))));
    assert_eq!(story.init(), CONCURRENT, "the record is being stored");
    story.table.not_stored(ID);
    assert_eq!(story.table.describe(ID), None);
    let producer = story.init().expect("new");
    let added = story.table.add_partitions(0, ID, producer, &[orders(0)], V2);
    assert!(matches!(added, Ok(Decision::Store(_))));
    story.table.not_stored(ID);
    assert_eq!((story.state(), story.commit(producer)), (TransactionState::Empty, INVALID_STATE));
}

// AddPartitionsToTxn and verification.

#[test]
fn partitions_are_stored_once() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    story.add(producer, 0).expect("added");
    let records = story.log.len();
    story.add(producer, 0).expect("known");
    assert_eq!(story.log.len(), records);
    story.add(producer, 1).expect("added");
    assert_eq!(story.log.len(), records + 1);
    let metadata = story.table.describe(ID).expect("known");
    assert_eq!(metadata.partitions.into_iter().collect::<Vec<_>>(), [orders(0), orders(1)]);
}

#[test]
fn an_unknown_id_has_no_producer() {
    let mut story = Story::new();
    let nobody = ProducerIdentity { id: 1, epoch: 0 };
    assert_eq!(story.add(nobody, 0), INVALID_MAPPING);
    assert_eq!(story.commit(nobody), INVALID_MAPPING);
    assert_eq!(story.table.verify(ID, nobody, &orders(0)), Err(ErrorCode::InvalidProducerIdMapping));
}

#[test]
fn kafka_18660_what_is_under_way_is_checked_before_the_producer() {
    let mut story = Story::new();
    story.init().expect("new");
    let last = story.set_epoch(EPOCH_MAX);
    story.add(last, 0).expect("added");
    let next = story.commit(last).expect("committed");
    assert_eq!(next, ProducerIdentity { id: 101, epoch: 0 }, "the producer may use it at once");
    assert_eq!(story.add(next, 0), CONCURRENT, "not INVALID_PRODUCER_ID_MAPPING, which is final");
    assert_eq!(story.abort(next), CONCURRENT);
    story.write_markers();
    assert_eq!(story.add(next, 0), Ok(next));
}

#[test]
fn only_partitions_of_the_ongoing_transaction_are_verified() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    let verify = |story: &Story, producer, index| story.table.verify(ID, producer, &orders(index));
    assert_eq!(verify(&story, producer, 0), Err(ErrorCode::TransactionAbortable));
    story.add(producer, 0).expect("added");
    assert_eq!(verify(&story, producer, 0), Ok(()));
    assert_eq!(verify(&story, producer, 1), Err(ErrorCode::TransactionAbortable));
    assert_eq!(verify(&story, bumped(producer), 0), Err(ErrorCode::ProducerFenced));
    let next = story.commit(producer).expect("committed");
    assert_eq!(verify(&story, next, 0), Err(ErrorCode::ConcurrentTransactions));
    story.write_markers();
    assert_eq!(verify(&story, next, 0), Err(ErrorCode::TransactionAbortable));
}

// EndTxn.

#[test]
fn each_end_bumps_the_epoch() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    let after_commit = story.committed(producer, V2);
    assert_eq!(after_commit, bumped(producer));
    assert_eq!(story.state(), TransactionState::CompleteCommit);
    story.add(after_commit, 0).expect("added");
    let after_abort = story.abort(after_commit).expect("aborted");
    let markers = story.write_markers();
    assert_eq!(after_abort, bumped(after_commit));
    assert_eq!((markers[0].producer, markers[0].committed), (after_abort, false));
    assert_eq!(story.add(after_commit, 0), FENCED);
}

#[test]
fn a_repeated_end_gets_the_same_answer_and_the_other_kind_is_refused() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    let next = story.committed(producer, V2);
    let records = story.log.len();
    assert_eq!(story.commit(producer), Ok(next));
    assert_eq!(story.abort(producer), INVALID_STATE);
    assert_eq!(story.log.len(), records);
    story.add(next, 0).expect("added");
    let last = story.abort(next).expect("aborted");
    assert_eq!(story.abort(next), CONCURRENT, "the markers are not written yet");
    story.write_markers();
    assert_eq!(story.abort(next), Ok(last));
    assert_eq!(story.commit(next), INVALID_STATE);
    assert_eq!(story.commit(producer), FENCED, "older than a repetition");
}

#[test]
fn a_transaction_without_partitions_is_aborted_and_not_committed() {
    let mut story = Story::new();
    let mut producer = story.init().expect("new");
    // From Empty, then from CompleteAbort, then from CompleteCommit.
    for _ in 0..2 {
        assert_eq!(story.commit(producer), INVALID_STATE);
        producer = story.abort(producer).expect("aborted");
        let markers = story.write_markers();
        assert!(markers[0].partitions.is_empty());
        assert_eq!(story.table.describe(ID).expect("known").started_ms, story.now_ms);
    }
    producer = story.committed(producer, V2);
    assert_eq!(story.commit(producer), INVALID_STATE);
    assert_eq!(story.abort(producer), Ok(bumped(producer)));
}

#[test]
fn an_end_with_used_up_epochs_rotates_the_producer_id() {
    let mut story = Story::new();
    story.init().expect("new");
    let last = story.set_epoch(EPOCH_MAX);
    let next = story.committed(last, V2);
    assert_eq!(next, ProducerIdentity { id: 101, epoch: 0 });
    assert_eq!(story.commit(last), Ok(next), "the answer was lost");
    assert_eq!(story.abort(last), INVALID_STATE);
    assert_eq!(story.current(), next);
    story.add(next, 0).expect("added");
    assert_eq!(story.commit(last), INVALID_MAPPING);
}

#[test]
fn kafka_20090_fencing_at_the_last_epoch_rotates_and_the_transaction_ends() {
    for epoch in [EPOCH_MAX, i16::MAX] {
        let mut story = Story::new();
        story.init().expect("new");
        let last = story.set_epoch(epoch);
        story.add(last, 0).expect("added");
        assert_eq!(story.init(), CONCURRENT);
        let markers = story.write_markers();
        assert_eq!(markers[0].producer, ProducerIdentity { id: 100, epoch: i16::MAX }, "{epoch}");
        assert_eq!(story.current(), ProducerIdentity { id: 101, epoch: 0 });
        assert_eq!(story.init(), Ok(ProducerIdentity { id: 101, epoch: 1 }));
        assert_eq!(story.add(last, 0), INVALID_MAPPING);
    }
}

#[test]
fn old_clients_keep_their_epoch_and_may_repeat() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    for round in 0..3 {
        assert_eq!(story.committed(producer, V0), producer, "{round}");
        assert_eq!(story.end_with(producer, true, V0), Ok(producer));
        assert_eq!(story.end_with(producer, false, V0), INVALID_STATE);
    }
    story.add_with(producer, 0, V0).expect("added");
    assert_eq!(story.end_with(producer, false, V0), Ok(producer));
    assert_eq!(story.end_with(producer, false, V0), CONCURRENT);
    let markers = story.write_markers();
    assert_eq!((markers[0].producer, markers[0].version), (producer, V0));
    assert_eq!(story.end_with(producer, false, V0), Ok(producer));
    assert_eq!(story.end_with(producer, true, V0), INVALID_STATE);
    assert_eq!(story.end_with(bumped(producer), false, V0), FENCED);
}

#[test]
fn old_clients_cannot_end_a_transaction_that_has_not_begun() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    assert_eq!(story.end_with(producer, true, V0), INVALID_STATE);
    assert_eq!(story.end_with(producer, false, V0), INVALID_STATE);
}

/// Found by random histories; Kafka answers NONE, with the identity of the newer producer.
#[test]
fn an_older_producer_with_epoch_bumps_does_not_pass_for_a_newer_one_without() {
    let mut story = Story::new();
    let older = story.init().expect("new");
    let newer = story.init().expect("known");
    assert_eq!(newer, bumped(older));
    story.committed(newer, V0);
    assert_eq!(story.commit(older), FENCED);
    assert_eq!(story.add_with(newer, 0, V0), Ok(newer));
}

// Timeouts and idle ids.

#[test]
fn a_transaction_is_aborted_after_its_timeout_and_not_at_it() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    story.add(producer, 0).expect("added");
    story.now_ms += 500;
    story.add(producer, 1).expect("added");
    story.now_ms += i64::from(TIMEOUT_MS) - 500;
    assert!(story.table.timed_out(story.now_ms).is_empty(), "it counts from the first partition");
    story.now_ms += 1;
    assert_eq!(story.table.timed_out(story.now_ms), [Arc::from(ID)]);
    story.act(|table, now_ms, fresh| table.time_out(now_ms, ID, fresh)).expect("late");
    assert!(story.table.timed_out(story.now_ms).is_empty());
    let markers = story.write_markers();
    assert_eq!((markers[0].producer, markers[0].committed), (bumped(producer), false));
    assert_eq!(story.commit(producer), INVALID_STATE, "the client learns that it was not committed");
    assert_eq!(story.add(producer, 0), FENCED);
    assert_eq!(story.init_as(Some(producer)), Ok(bumped(producer)), "it continues under the bumped epoch");
}

/// The deadline was one of the wall clock: after a jump back, an abandoned transaction held up its readers for days.
#[test]
fn a_jump_of_the_wall_clock_ends_no_transaction_early_or_late() {
    const DAY_MS: i64 = 24 * 3_600_000;
    for jump in [-DAY_MS, DAY_MS] {
        let mut story = Story::new();
        let producer = story.init().expect("new");
        story.table.set_clocks(story.now_ms, 0);
        story.add(producer, 0).expect("added");
        story.now_ms += jump;
        story.table.set_clocks(story.now_ms, i64::from(TIMEOUT_MS));
        assert!(story.table.timed_out(story.now_ms).is_empty(), "after a jump by {jump}");
        story.now_ms += 1;
        story.table.set_clocks(story.now_ms, i64::from(TIMEOUT_MS) + 1);
        assert_eq!(story.table.timed_out(story.now_ms), [Arc::from(ID)], "after a jump by {jump}");
        story.act(|table, now_ms, fresh| table.time_out(now_ms, ID, fresh)).expect("late");
    }
}

/// The wall clock went back while the broker was down.
#[test]
fn a_loaded_transaction_that_begins_in_the_future_has_its_whole_timeout() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    story.add(producer, 0).expect("added");
    let ongoing = story.table.describe(ID).expect("known");
    story.now_ms -= 24 * 3_600_000;
    story.table.set_clocks(story.now_ms, 0);
    story.table.load(ID.into(), Some(ongoing), story.now_ms);
    story.now_ms += i64::from(TIMEOUT_MS);
    story.table.set_clocks(story.now_ms, i64::from(TIMEOUT_MS));
    assert!(story.table.timed_out(story.now_ms).is_empty(), "not before its timeout");
    story.now_ms += 1;
    assert_eq!(story.table.timed_out(story.now_ms), [Arc::from(ID)]);
}

#[test]
fn a_transaction_that_ends_in_time_is_not_timed_out() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    story.committed(producer, V2);
    story.now_ms += 10 * i64::from(TIMEOUT_MS);
    assert!(story.table.timed_out(story.now_ms).is_empty());
    let late = story.act(|table, now_ms, fresh| table.time_out(now_ms, ID, fresh));
    assert_eq!(late, INVALID_STATE);
}

#[test]
fn idle_ids_are_removed_and_ongoing_ones_stay() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    story.now_ms += 1_000_000;
    let (records, _) = story.table.remove_idle(story.now_ms - 1, None, 10);
    assert!(records.is_empty(), "one millisecond is left");
    let (mut tombstones, more) = story.table.remove_idle(story.now_ms, None, 10);
    assert_eq!((tombstones.len(), more), (1, None));
    assert_eq!(story.init(), CONCURRENT, "the tombstone is being stored");
    assert_eq!(story.table.describe(ID), None);
    story.store(tombstones.remove(0));
    assert_eq!(story.add(producer, 0), INVALID_MAPPING);
    let again = story.init().expect("new");
    assert_eq!(again, ProducerIdentity { id: 101, epoch: 0 });
    story.add(again, 0).expect("added");
    story.now_ms += 10_000_000;
    assert!(story.table.remove_idle(story.now_ms, None, 10).0.is_empty());
    story.restart();
    assert_eq!(story.current(), again);
}

#[test]
fn a_producer_of_a_removed_id_continues_under_a_new_producer_id() {
    let mut story = Story::new();
    let forgotten = ProducerIdentity { id: 5, epoch: 3 };
    assert_eq!(story.init_as(Some(forgotten)), Ok(ProducerIdentity { id: 100, epoch: 0 }));
}

// Restarts and limits.

#[test]
fn a_prepared_transaction_is_completed_after_a_restart() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    story.add(producer, 0).expect("added");
    story.add(producer, 1).expect("added");
    let next = story.commit(producer).expect("committed");
    story.restart();
    assert_eq!(story.add(next, 0), CONCURRENT);
    let markers = story.write_markers();
    assert!(markers[0].committed && markers[0].producer == next);
    assert_eq!(markers[0].partitions, [orders(0), orders(1)]);
    assert_eq!(story.commit(producer), Ok(next), "the answer was lost");
    assert_eq!(story.add(next, 0), Ok(next));
}

#[test]
fn an_ongoing_transaction_continues_after_a_restart_until_its_timeout() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    story.add(producer, 0).expect("added");
    story.restart();
    assert_eq!(story.table.verify(ID, producer, &orders(0)), Ok(()));
    story.now_ms += i64::from(TIMEOUT_MS) + 1;
    assert_eq!(story.table.timed_out(story.now_ms), [Arc::from(ID)]);
}

#[test]
fn markers_that_are_written_are_not_described_any_more() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    story.add(producer, 0).expect("added");
    story.add(producer, 1).expect("added");
    story.commit(producer).expect("committed");
    story.table.marker_written(ID, &orders(0));
    let rest = story.table.describe(ID).expect("known").partitions;
    assert_eq!(rest.into_iter().collect::<Vec<_>>(), [orders(1)]);
}

#[test]
fn another_attempt_writes_the_markers_that_are_left_while_the_transaction_is_prepared() {
    let mut story = Story::new();
    let producer = story.init().expect("new");
    story.add(producer, 0).expect("added");
    story.add(producer, 1).expect("added");
    assert_eq!(story.table.markers_left(ID, false), None, "it is ongoing");
    let next = story.commit(producer).expect("committed");
    story.table.marker_written(ID, &orders(0));
    let left = story.table.markers_left(ID, false).expect("prepared");
    assert!(left.committed && left.producer == next);
    assert_eq!(left.partitions, [orders(1)]);
    // The record of the completion is not stored.
    assert!(matches!(story.table.markers_written(story.now_ms, ID), Ok(Decision::Store(_))));
    assert!(story.table.markers_left(ID, false).is_some());
    assert!(matches!(story.table.markers_written(story.now_ms, ID), Ok(Decision::Store(_))));
    // It is in the log, and stays pending.
    assert!(story.table.markers_left(ID, true).is_some());
    assert_eq!(story.table.markers_written(story.now_ms, ID), Err(ErrorCode::InvalidTxnState));
    assert!(story.table.markers_left(ID, false).is_some());
    story.write_markers();
    assert_eq!(story.table.markers_left(ID, false), None, "it has ended");
    assert_eq!(story.add(next, 0), Ok(next));
}

#[test]
fn more_ids_and_partitions_than_fit_the_memory_are_refused() {
    let limits = TransactionLimits { timeout_ms_max: 900_000, id_expiration_ms: 1_000_000 };
    let memory = KeptMemory::new(2_000);
    let mut table = Transactions::new(limits, memory);
    let mut producers = Vec::new();
    for number in 0..4 {
        let id = format!("till-{number}");
        match table.init_producer_id(0, &id, TIMEOUT_MS, None, Some(number)) {
            Ok(_) => producers.push((table.stored(&id).identity, id)),
            Err(code) => assert_eq!((number, code), (3, ErrorCode::PolicyViolation)),
        }
    }
    assert_eq!(producers.len(), 3);
    let (producer, id) = &producers[0];
    let many: Vec<TopicPartition> = (0..100).map(orders).collect();
    let refused = table.add_partitions(0, id, *producer, &many, V2);
    assert_eq!(refused, Err(ErrorCode::TransactionAbortable));
    let few = table.add_partitions(0, id, *producer, &many[..2], V2);
    assert!(matches!(few, Ok(Decision::Store(_))), "{few:?}");
}

#[test]
fn ids_are_listed_in_steps() {
    let mut story = Story::new();
    for number in 0..5 {
        let id = format!("till-{number}");
        story
            .act(|table, now_ms, fresh| table.init_producer_id(now_ms, &id, TIMEOUT_MS, None, fresh))
            .expect("new");
    }
    let first = story.table.list(None, 3);
    let rest = story.table.list(first.last().map(|last| &*last.id), 3);
    let names: Vec<&str> = first.iter().chain(&rest).map(|described| &*described.id).collect();
    assert_eq!(names, ["till-0", "till-1", "till-2", "till-3", "till-4"]);
}

/// Each attempt counted its partitions again, until no client had memory for anything.
#[test]
fn partitions_that_could_not_be_stored_take_no_memory() {
    let limits = TransactionLimits { timeout_ms_max: 900_000, id_expiration_ms: 1_000_000 };
    let memory = KeptMemory::new(10_000);
    let mut table = Transactions::new(limits, memory.clone());
    table.init_producer_id(0, ID, TIMEOUT_MS, None, Some(1)).expect("new");
    let producer = table.stored(ID).identity;
    table.add_partitions(0, ID, producer, &[orders(0)], V2).expect("added");
    table.stored(ID);
    let used = memory.used_bytes();
    for _ in 0..100 {
        let added = table.add_partitions(0, ID, producer, &[orders(1), orders(2)], V2);
        assert!(matches!(added, Ok(Decision::Store(_))), "{added:?}");
        assert!(memory.used_bytes() > used);
        table.not_stored(ID);
        assert_eq!(memory.used_bytes(), used);
    }
}

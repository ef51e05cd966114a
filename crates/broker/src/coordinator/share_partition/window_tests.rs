//! Stories of one share partition.

use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use super::acknowledge::{AckBatch, AckType};
use super::acquire::{AcquireMode, Acquired, Acquirer};
use super::batches::BatchSpan;
use super::window::{RecordState, ShareLimits, SharePartition};
use crate::coordinator::dead_letters::{DeadLetterCause, DeadLetters};
use crate::coordinator::share_state::StateBatch;

const LIMITS: ShareLimits = ShareLimits {
    lock_duration: Duration::from_secs(30),
    delivery_count_max: 5,
    locks_max: 200,
    renews: true,
    splits_batches: false,
    has_dead_letters: false,
};

/// A partition whose log has batches of ten records.
pub(super) fn batches_of_ten(from: i64, end: i64) -> Vec<BatchSpan> {
    let bases = (0..).map(|number| number * 10).take_while(|base| *base < end);
    let spans = bases.filter(|base| base + 9 >= from);
    spans
        .map(|base| BatchSpan { base, last: base + 9, is_unseen: false, is_control: false, begin: 0, end: 0 })
        .collect()
}

#[allow(clippy::disallowed_methods, reason = "the start of a virtual time")]
fn start_of_time() -> Instant {
    Instant::now()
}

struct Story {
    now: Instant,
    limits: ShareLimits,
    partition: SharePartition,
    end: i64,
}

impl Story {
    fn new() -> Self {
        Self { now: start_of_time(), limits: LIMITS, partition: SharePartition::new(0, &[]), end: 1000 }
    }

    fn acquire_with(&mut self, member: &str, mode: AcquireMode, records_max: i64) -> Vec<(i64, i64, i16)> {
        self.partition.expire(self.now, &self.limits);
        let acquirer = Acquirer { member: member.into(), mode, records_max, batch_size: 500 };
        let offset = self.partition.next_fetch_offset();
        let spans = batches_of_ten(offset, self.end);
        let acquired = self.partition.acquire(self.now, &acquirer, &self.limits, offset, &spans);
        self.partition.check();
        acquired.iter().map(|batch| (batch.first, batch.last, batch.delivery_count)).collect()
    }

    fn acquire(&mut self, member: &str, records_max: i64) -> Vec<(i64, i64, i16)> {
        self.acquire_with(member, AcquireMode::BatchOptimized, records_max)
    }

    /// Acknowledges and stores.
    fn ack(&mut self, member: &str, first: i64, last: i64, ack: AckType) -> Result<(), ErrorCode> {
        let batch = AckBatch { first, last, types: vec![ack] };
        self.partition.acknowledge(self.now, member, &[batch], &self.limits)?;
        self.store();
        Ok(())
    }

    fn store(&mut self) {
        while self.partition.next_write().is_some() {
            self.partition.complete_write(true);
        }
        self.partition.check();
    }

    /// A group with a dead-letter queue.
    fn with_dead_letters() -> Self {
        let limits = ShareLimits { has_dead_letters: true, ..LIMITS };
        Self { limits, ..Self::new() }
    }

    fn take_dead_letters(&mut self) -> Vec<DeadLetters> {
        self.partition.take_dead_letters(self.limits.delivery_count_max)
    }

    fn state_of(&self, offset: i64) -> Option<RecordState> {
        self.partition.state_of(offset).map(|(state, _)| state)
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

#[test]
fn members_share_the_records_in_whole_batches() {
    let mut story = Story::new();
    assert_eq!(story.acquire("a", 15), [(0, 19, 1)]);
    assert_eq!(story.acquire("b", 10), [(20, 29, 1)]);
    assert_eq!(story.ack("b", 0, 9, AckType::Accept), Err(ErrorCode::InvalidRecordState), "a has the lock");
    assert_eq!(story.ack("a", 0, 9, AckType::Accept), Ok(()));
    assert_eq!(story.partition.start_offset(), 10);
    assert_eq!(
        story.ack("b", 25, 35, AckType::Accept),
        Err(ErrorCode::InvalidRequest),
        "30 was not acquired"
    );
    assert_eq!(story.ack("a", 0, 19, AckType::Accept), Ok(()), "records below the start are done with");
    assert_eq!(story.partition.start_offset(), 20);
}

#[test]
fn a_record_limit_is_exact() {
    let mut story = Story::new();
    assert_eq!(story.acquire_with("a", AcquireMode::RecordLimit, 3), [(0, 2, 1)]);
    assert_eq!(story.acquire_with("b", AcquireMode::RecordLimit, 3), [(3, 5, 1)]);
    story.ack("a", 0, 2, AckType::Release).expect("a has the lock");
    assert_eq!(story.acquire_with("b", AcquireMode::RecordLimit, 2), [(0, 1, 2)]);
    assert_eq!(story.acquire_with("b", AcquireMode::RecordLimit, 5), [(2, 2, 2), (6, 9, 1)]);
}

#[test]
fn acquired_batches_have_at_least_the_batch_size() {
    let mut story = Story::new();
    let acquirer =
        Acquirer { member: "a".into(), mode: AcquireMode::BatchOptimized, records_max: 50, batch_size: 15 };
    let spans = batches_of_ten(0, 1000);
    let acquired = story.partition.acquire(story.now, &acquirer, &LIMITS, 0, &spans);
    let ranges: Vec<(i64, i64)> = acquired.iter().map(|batch| (batch.first, batch.last)).collect();
    assert_eq!(ranges, [(0, 19), (20, 39), (40, 49)]);
}

#[test]
fn a_lock_that_ends_makes_its_records_available() {
    let mut story = Story::new();
    story.acquire("a", 10);
    story.pass(20);
    story.ack("a", 5, 9, AckType::Renew).expect("a has the lock");
    assert!(!story.partition.has_changes(), "renewals are not stored");
    story.pass(10);
    assert_eq!(story.acquire("b", 5), [(0, 4, 2)]);
    assert_eq!(story.ack("a", 0, 4, AckType::Accept), Err(ErrorCode::InvalidRecordState));
    assert_eq!(story.ack("a", 5, 9, AckType::Accept), Ok(()), "it was renewed");
    story.limits.renews = false;
    assert_eq!(story.ack("b", 0, 4, AckType::Renew), Err(ErrorCode::InvalidRecordState));
    assert_eq!(story.ack("b", 0, 4, AckType::Accept), Ok(()), "it still has the lock");
}

#[test]
fn a_failed_write_changes_nothing() {
    let mut story = Story::new();
    story.acquire("a", 10);
    let batch = AckBatch { first: 0, last: 9, types: vec![AckType::Accept] };
    let change =
        story.partition.acknowledge(story.now, "a", std::slice::from_ref(&batch), &LIMITS).expect("locked");
    let write = story.partition.next_write().expect("a change");
    assert_eq!((write.start_offset, write.batches.len()), (10, 0), "the start has passed the batch");
    assert_eq!(
        story.partition.acknowledge(story.now, "a", std::slice::from_ref(&batch), &LIMITS),
        Err(ErrorCode::InvalidRecordState),
        "it is being written"
    );
    assert!(!story.partition.expire(story.now + Duration::from_secs(60), &LIMITS));
    assert_eq!(story.partition.complete_write(false), change.into_iter().collect::<Vec<_>>());
    assert_eq!(story.partition.start_offset(), 0);
    assert_eq!(story.ack("a", 0, 9, AckType::Accept), Ok(()), "the lock has lasted");
    story.acquire("a", 10);
    let batch = AckBatch { first: 10, last: 19, types: vec![AckType::Accept] };
    story.partition.acknowledge(story.now, "a", &[batch], &LIMITS).expect("locked");
    story.partition.next_write().expect("a change");
    story.pass(31);
    story.partition.complete_write(false);
    assert_eq!(story.acquire("b", 10), [(10, 19, 2)], "the lock has ended meanwhile");
}

#[test]
fn a_record_is_archived_after_its_last_delivery() {
    let mut story = Story::new();
    story.end = 10;
    for count in 1..=2 {
        assert_eq!(story.acquire("a", 10), [(0, 9, count)]);
        story.ack("a", 0, 9, AckType::Release).expect("a has the lock");
    }
    // From half the limit on, fewer records are delivered together.
    assert_eq!(story.acquire("a", 10), [(0, 9, 3)]);
    story.ack("a", 0, 9, AckType::Release).expect("a has the lock");
    assert_eq!(story.acquire("a", 10), [(0, 4, 4)]);
    assert_eq!(story.acquire("a", 10), [(5, 9, 4)]);
    story.ack("a", 0, 9, AckType::Release).expect("a has the lock");
    for record in 0..10 {
        assert_eq!(story.acquire("a", 10), [(record, record, 5)], "alone");
        let ack = if record == 7 { AckType::Release } else { AckType::Accept };
        story.ack("a", record, record, ack).expect("a has the lock");
    }
    assert_eq!(story.partition.start_offset(), 10, "the poisoned record is archived");
}

#[test]
fn the_number_of_locks_is_limited() {
    let mut story = Story::new();
    assert_eq!(story.acquire("a", 500), [(0, 199, 1)]);
    assert!(!story.partition.can_acquire(&LIMITS));
    assert_eq!(story.acquire("b", 10), []);
    story.ack("a", 100, 109, AckType::Release).expect("a has the lock");
    assert_eq!(story.acquire("b", 500), [(100, 109, 2)], "nothing beyond the limit");
    story.ack("a", 0, 9, AckType::Accept).expect("a has the lock");
    assert_eq!(story.acquire("b", 500), [(200, 209, 1)]);
}

#[test]
fn stored_batches_are_continued() {
    let batch = |first, last, state, delivery_count| StateBatch { first, last, state, delivery_count };
    let stored = [batch(20, 29, 0, 2), batch(5, 9, 2, 1), batch(12, 12, 4, 5)];
    let mut story = Story::new();
    story.partition = SharePartition::new(5, &stored);
    assert_eq!(story.partition.start_offset(), 10);
    assert_eq!(story.partition.state_of(12), Some((RecordState::Archived, 5)));
    let acquired = story.acquire("a", 25);
    assert_eq!(acquired, [(10, 11, 1), (13, 19, 1), (20, 29, 3), (30, 39, 1)]);
}

#[test]
fn records_that_no_consumer_sees_are_archived() {
    let mut story = Story::new();
    let span =
        |base, last, is_unseen| BatchSpan { base, last, is_unseen, is_control: false, begin: 0, end: 0 };
    let acquirer =
        Acquirer { member: "a".into(), mode: AcquireMode::BatchOptimized, records_max: 50, batch_size: 500 };
    let spans = [span(0, 4, true), span(5, 9, false), span(10, 10, true), span(12, 14, false)];
    let acquired = story.partition.acquire(story.now, &acquirer, &LIMITS, 0, &spans);
    let batch = |first, last| Acquired { first, last, delivery_count: 1 };
    assert_eq!(acquired, [batch(5, 9), batch(12, 14)]);
    assert_eq!(story.partition.start_offset(), 5);
    story.ack("a", 5, 9, AckType::Accept).expect("a has the lock");
    assert_eq!(story.partition.start_offset(), 12, "11 does not exist");
    // Compaction has removed the records 12 to 14 before they were delivered again.
    story.ack("a", 12, 14, AckType::Release).expect("a has the lock");
    let acquired = story.partition.acquire(story.now, &acquirer, &LIMITS, 12, &[span(20, 24, false)]);
    assert_eq!(acquired, [batch(20, 24)]);
    story.partition.check();
    assert_eq!(story.partition.start_offset(), 20);
}

/// The start behind aborted records at the end of the log was not stored, and the group had a lag.
#[test]
fn the_start_behind_records_that_no_consumer_sees_is_stored() {
    let mut story = Story::new();
    assert_eq!(story.acquire("a", 10), [(0, 9, 1)]);
    story.ack("a", 0, 9, AckType::Accept).expect("a has the lock");
    let acquirer =
        Acquirer { member: "a".into(), mode: AcquireMode::BatchOptimized, records_max: 10, batch_size: 500 };
    let aborted = BatchSpan { base: 10, last: 10, is_unseen: true, is_control: false, begin: 0, end: 0 };
    assert_eq!(story.partition.acquire(story.now, &acquirer, &LIMITS, 10, &[aborted]), []);
    let write = story.partition.next_write().expect("the start has moved");
    assert_eq!((write.start_offset, write.delivery_complete_count), (11, 0));
    assert_eq!(write.batches, []);
    story.partition.complete_write(true);
    // Records that are acquired hold the start: it is stored with their acknowledgement.
    let span =
        |base, last, is_unseen| BatchSpan { base, last, is_unseen, is_control: false, begin: 0, end: 0 };
    let spans = [span(11, 11, true), span(12, 14, false)];
    let acquired = story.partition.acquire(story.now, &acquirer, &LIMITS, 11, &spans);
    assert_eq!(acquired, [Acquired { first: 12, last: 14, delivery_count: 1 }]);
    assert!(!story.partition.has_changes());
    story.partition.check();
}

/// They were archived by the broker: clients that count acknowledged offsets missed them. One that does not acknowledge them gets
/// them once, and they are no dead letters.
#[test]
fn control_records_are_delivered_once() {
    let mut story = Story::new();
    let span =
        |base, last, is_control| BatchSpan { base, last, is_unseen: false, is_control, begin: 0, end: 0 };
    let acquirer =
        Acquirer { member: "a".into(), mode: AcquireMode::BatchOptimized, records_max: 50, batch_size: 500 };
    let spans = [span(0, 4, false), span(5, 5, true), span(6, 9, false), span(10, 10, true)];
    let acquired = story.partition.acquire(story.now, &acquirer, &LIMITS, 0, &spans);
    assert_eq!(acquired, [Acquired { first: 0, last: 10, delivery_count: 1 }]);
    story.ack("a", 5, 5, AckType::Gap).expect("a has the lock");
    assert_eq!(story.state_of(5), Some(RecordState::Archived));
    for (first, last) in [(0, 4), (6, 10)] {
        story.ack("a", first, last, AckType::Release).expect("a has the lock");
    }
    let acquired = story.partition.acquire(story.now, &acquirer, &LIMITS, 0, &spans);
    let batch = |first, last| Acquired { first, last, delivery_count: 2 };
    assert_eq!(acquired, [batch(0, 4), batch(6, 9)]);
    assert_eq!(story.state_of(10), Some(RecordState::Archived));
    story.partition.check();
}

#[test]
fn deleted_records_are_passed() {
    let mut story = Story::new();
    story.acquire("a", 20);
    story.partition.set_log_start(15);
    story.partition.check();
    assert_eq!(story.partition.start_offset(), 15);
    assert_eq!(story.ack("a", 0, 19, AckType::Accept), Ok(()));
    story.partition.set_log_start(100);
    assert_eq!((story.partition.start_offset(), story.partition.next_fetch_offset()), (100, 100));
}

#[test]
fn the_end_of_a_session_releases_its_records() {
    let mut story = Story::new();
    story.acquire("a", 10);
    story.acquire("b", 10);
    story.ack("a", 0, 2, AckType::Accept).expect("a has the lock");
    assert!(story.partition.release("a", &LIMITS).is_some());
    story.store();
    assert!(!story.partition.is_idle(), "b has locks");
    assert_eq!(story.acquire("b", 5), [(3, 9, 2)]);
    assert!(story.partition.release("a", &LIMITS).is_none());
}

#[test]
fn records_that_were_not_sent_were_not_delivered() {
    let mut story = Story::new();
    let acquirer =
        Acquirer { member: "a".into(), mode: AcquireMode::BatchOptimized, records_max: 10, batch_size: 500 };
    let acquired = story.partition.acquire(story.now, &acquirer, &LIMITS, 0, &batches_of_ten(0, 1000));
    story.partition.return_unsent("a", &acquired);
    assert_eq!(story.acquire("b", 10), [(0, 9, 1)]);
}

#[test]
fn records_that_were_delivered_again_are_not_returned() {
    let mut story = Story::new();
    let acquirer =
        Acquirer { member: "a".into(), mode: AcquireMode::BatchOptimized, records_max: 10, batch_size: 500 };
    let acquired = story.partition.acquire(story.now, &acquirer, &LIMITS, 0, &batches_of_ten(0, 1000));
    assert!(story.partition.release("a", &LIMITS).is_some(), "its session has ended");
    story.store();
    assert_eq!(story.acquire("a", 10), [(0, 9, 2)], "in the next session");
    story.partition.return_unsent("a", &acquired);
    assert_eq!(story.ack("a", 0, 9, AckType::Accept), Ok(()));
}

#[test]
fn two_states_of_a_record_have_two_writes() {
    let mut story = Story::new();
    story.acquire("a", 10);
    story.pass(31);
    assert_eq!(story.acquire("b", 10), [(0, 9, 2)]);
    let batch = AckBatch { first: 0, last: 4, types: vec![AckType::Accept] };
    story.partition.acknowledge(story.now, "b", &[batch], &LIMITS).expect("b has the lock");
    let write = story.partition.next_write().expect("the end of the lock");
    assert_eq!(write.batches, [StateBatch { first: 0, last: 9, state: 0, delivery_count: 1 }]);
    story.partition.complete_write(true);
    let write = story.partition.next_write().expect("the acknowledgement");
    assert_eq!((write.start_offset, write.delivery_complete_count), (5, 0));
    story.partition.complete_write(true);
    story.partition.check();
}

fn letters(first: i64, last: i64, delivery_count: i16, cause: DeadLetterCause) -> DeadLetters {
    DeadLetters { first, last, delivery_count, cause }
}

#[test]
fn a_rejected_record_holds_the_start_until_its_letter_is_written() {
    let mut story = Story::with_dead_letters();
    story.acquire("a", 10);
    let batch = AckBatch { first: 0, last: 4, types: vec![AckType::Reject] };
    story.partition.acknowledge(story.now, "a", &[batch], &story.limits).expect("a has the lock");
    assert_eq!(story.take_dead_letters(), [], "the state is not stored");
    let write = story.partition.next_write().expect("the rejection");
    assert_eq!((write.start_offset, write.delivery_complete_count), (0, 0));
    assert_eq!(write.batches, [StateBatch { first: 0, last: 4, state: 3, delivery_count: 1 }]);
    story.partition.complete_write(true);
    story.ack("a", 5, 9, AckType::Accept).expect("a has the lock");
    assert_eq!(story.partition.start_offset(), 0);
    assert_eq!(story.take_dead_letters(), [letters(0, 4, 1, DeadLetterCause::ClientReject)]);
    assert_eq!(story.take_dead_letters(), [], "they are taken once");
    assert!(!story.partition.is_idle() && !story.partition.has_changes());
    // Letters end in the order of their batches.
    story.partition.finish_dead_letters(0, 2);
    let write = story.partition.next_write().expect("the end of the archiving");
    assert_eq!((write.start_offset, write.delivery_complete_count), (3, 5));
    assert_eq!(story.partition.start_offset(), 0);
    story.partition.complete_write(true);
    assert_eq!(story.partition.start_offset(), 3);
    story.partition.finish_dead_letters(3, 4);
    story.store();
    assert_eq!(story.partition.start_offset(), 10);
    assert!(story.partition.is_idle());
}

#[test]
fn records_that_are_delivered_too_often_need_letters_and_gaps_do_not() {
    let mut story = Story::with_dead_letters();
    (story.end, story.limits.delivery_count_max) = (10, 2);
    story.acquire("a", 10);
    story.ack("a", 0, 9, AckType::Release).expect("a has the lock");
    story.acquire("a", 10);
    story.ack("a", 0, 1, AckType::Gap).expect("a has the lock");
    story.ack("a", 2, 3, AckType::Release).expect("a has the lock");
    story.ack("a", 4, 4, AckType::Reject).expect("a has the lock");
    let exceeded = DeadLetterCause::DeliveryCountExceeded;
    let expected = [letters(2, 3, 2, exceeded), letters(4, 4, 2, DeadLetterCause::ClientReject)];
    assert_eq!(story.take_dead_letters(), expected);
    // The locks of the others end. Their state is stored before their letters are written.
    story.pass(31);
    assert_eq!(story.acquire("b", 10), []);
    assert_eq!(story.take_dead_letters(), []);
    story.store();
    assert_eq!(story.take_dead_letters(), [letters(5, 9, 2, exceeded)]);
    story.partition.finish_dead_letters(2, 9);
    story.store();
    assert_eq!(story.partition.start_offset(), 10);
}

#[test]
fn states_of_archived_records_are_written_again_after_a_failure() {
    let mut story = Story::with_dead_letters();
    (story.end, story.limits.delivery_count_max) = (10, 1);
    story.acquire("a", 10);
    // The rejection of a member is rolled back.
    let batch = AckBatch { first: 0, last: 4, types: vec![AckType::Reject] };
    story.partition.acknowledge(story.now, "a", &[batch], &story.limits).expect("a has the lock");
    story.partition.next_write().expect("the rejection");
    story.partition.complete_write(false);
    assert_eq!(story.state_of(0), Some(RecordState::Acquired));
    assert!(!story.partition.has_failed_archiving());
    // The end of a lock is not: no request waits for it.
    story.pass(31);
    story.acquire("b", 10);
    assert_eq!(story.state_of(0), Some(RecordState::Archiving));
    story.partition.next_write().expect("the end of the locks");
    story.partition.complete_write(false);
    assert_eq!(story.take_dead_letters(), []);
    assert!(story.partition.has_failed_archiving() && !story.partition.has_changes());
    story.partition.retry_archiving();
    story.store();
    assert_eq!(story.take_dead_letters(), [letters(0, 9, 1, DeadLetterCause::DeliveryCountExceeded)]);
    // A letter is not written again because its last state was not stored.
    story.partition.finish_dead_letters(0, 9);
    story.partition.next_write().expect("the last state");
    story.partition.complete_write(false);
    assert_eq!(story.take_dead_letters(), []);
    story.partition.retry_archiving();
    story.store();
    assert_eq!((story.take_dead_letters(), story.partition.start_offset()), (Vec::new(), 10));
}

#[test]
fn stored_archiving_records_get_their_letters() {
    let batch = |first, last, state, delivery_count| StateBatch { first, last, state, delivery_count };
    let stored = [batch(0, 1, 3, 1), batch(2, 2, 2, 1), batch(5, 9, 3, 5)];
    let mut story = Story::with_dead_letters();
    story.partition = SharePartition::new(0, &stored);
    assert_eq!(story.partition.start_offset(), 0);
    assert_eq!(story.acquire("a", 2), [(3, 4, 1)]);
    // The cause is not stored: the number of deliveries shows it.
    let expected = [
        letters(0, 1, 1, DeadLetterCause::ClientReject),
        letters(5, 9, 5, DeadLetterCause::DeliveryCountExceeded),
    ];
    assert_eq!(story.take_dead_letters(), expected);
    // Records that are deleted meanwhile need no last state.
    story.partition.set_log_start(8);
    story.partition.finish_dead_letters(0, 9);
    story.store();
    assert_eq!(story.partition.start_offset(), 10);
}

/// The count overflowed when the record was acquired: a panic, or a negative count, with which it was delivered tens of thousands of times.
#[test]
fn a_record_with_the_highest_delivery_count_is_delivered_once_more() {
    let mut story = Story::new();
    let stored = [StateBatch { first: 0, last: 0, state: 0, delivery_count: i16::MAX }];
    story.partition = SharePartition::new(0, &stored);
    assert_eq!(story.acquire("a", 1), [(0, 0, i16::MAX)]);
    story.partition.release("a", &story.limits).expect("it has the lock");
    story.store();
    assert_eq!(story.partition.state_of(0), None, "it was delivered too often");
}

/// The runs of a window had no limit: 2,000 acknowledgements of single records made as many.
#[test]
fn without_memory_acknowledgements_split_a_window_into_few_runs_only() {
    let mut story = Story::new();
    assert_eq!(story.acquire("a", 100), [(0, 99, 1)]);
    let alternate = [AckType::Accept, AckType::Release].repeat(5);
    let many = [AckBatch { first: 0, last: 9, types: alternate.clone() }];
    assert!(story.partition.is_split_too_far_by(&many));
    let few = [AckBatch { first: 0, last: 1, types: alternate[..2].to_vec() }];
    assert!(!story.partition.is_split_too_far_by(&few));
    let whole = [AckBatch { first: 0, last: 99, types: vec![AckType::Accept] }];
    assert!(!story.partition.is_split_too_far_by(&whole));
    let one_run = story.partition.memory_bytes();
    story.partition.acknowledge(story.now, "a", &many, &story.limits).expect("it has the lock");
    assert_eq!(story.partition.memory_bytes(), 11 * one_run);
}

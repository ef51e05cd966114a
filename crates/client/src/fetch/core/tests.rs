//! The core's decisions, one story each: no runtime, no clock.

use ottla_protocol::messages::fetch::{FetchResponse, LeaderIdAndEpoch};

use super::action::EpochEnd;
use super::harness::*;
use super::*;
use crate::config::OffsetReset;
use crate::fetch::inbox::Item;

/// Any thread can drive a core and perform its actions.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<FetchCore>();
    is_send::<Table>();
    is_send::<Action>();
};

const SESSION: i32 = 77;
const MS: Duration = Duration::from_millis(1);

fn timed_out() -> Error {
    Error::TimedOut { what: "answer to Fetch".into(), waited_ms: 1 }
}

fn at(offset: i64) -> StartAt {
    StartAt::Offset(offset)
}

/// A consumer whose fetch waits for records at broker 1.
fn waiting(starts: &[StartAt]) -> (Harness, FetchSpec) {
    let mut harness = Harness::new(starts);
    let first = harness.one_fetch();
    // An earlier response without records would cause a pause when it is repeated.
    harness.now += first.wait;
    harness.answer(&first, response(SESSION, Vec::new()));
    let spec = harness.one_fetch();
    (harness, spec)
}

#[test]
fn records_are_delivered_and_the_next_fetch_names_only_what_changed() {
    let mut harness = Harness::new(&[at(10), at(20)]);
    let first = harness.one_fetch();
    assert_eq!((first.request.epoch, first.node), (0, ONE));
    assert_eq!(named(&first).len(), 2);
    harness.answer(&first, response(SESSION, vec![records(0, 10, 5)]));
    assert_eq!(harness.poll_offsets(), [(0, 10, 15)]);

    let second = harness.one_fetch();
    assert_eq!((second.request.id, second.request.epoch), (SESSION, 1));
    assert_eq!(named(&second), [(0, 15)]);
}

#[test]
fn a_batch_that_begins_before_the_position_is_delivered_from_the_position_on() {
    let mut harness = Harness::new(&[at(12)]);
    let spec = harness.one_fetch();
    harness.answer(&spec, response(SESSION, vec![records(0, 10, 5)]));
    assert_eq!(harness.poll_offsets(), [(0, 12, 15)]);
}

/// A flipped bit in the base offset, which no checksum covers, made a consumer fetch the same batch without end.
#[test]
fn batches_that_end_before_the_position_stop_the_partition() {
    let mut harness = Harness::new(&[at(22)]);
    let spec = harness.one_fetch();
    harness.answer(&spec, response(SESSION, vec![records(0, 10, 5)]));
    let polled = harness.poll_all();
    assert!(
        matches!(&polled[..], [Item::Error(Error::Corrupt { offset: 22, reason, .. })] if reason == "the batches end at 15")
    );
}

#[test]
fn a_moved_leader_gets_the_partition_and_the_old_one_forgets_it() {
    let (mut harness, spec) = waiting(&[at(0), at(0)]);
    harness.move_leader(1, TWO, 6);
    let to_new = harness.one_fetch();
    assert_eq!((to_new.node, named(&to_new)), (TWO, vec![(1, 0)]));
    harness.answer(&spec, response(SESSION, Vec::new()));
    let to_old = harness.one_fetch();
    assert_eq!((to_old.node, forgotten(&to_old)), (ONE, vec![1]));
}

#[test]
fn a_leader_named_by_the_old_one_is_sent_a_fetch_at_once() {
    let (mut harness, spec) = waiting(&[at(0)]);
    let current_leader = LeaderIdAndEpoch { leader_id: TWO, leader_epoch: 6 };
    let moved = failed(0, ErrorCode::NotLeaderOrFollower);
    let moved = ottla_protocol::messages::fetch::PartitionData { current_leader, ..moved };
    harness.answer(&spec, response(SESSION, vec![moved]));
    harness.update();
    let fetches = harness.fetches();
    let to_new = fetches.iter().find(|spec| spec.node == TWO).expect("a fetch from the new leader");
    assert_eq!(named(to_new), [(0, 0)]);
}

#[test]
fn an_old_leader_that_names_no_other_causes_fresh_metadata_and_a_pause() {
    let (mut harness, spec) = waiting(&[at(0)]);
    harness.answer(&spec, response(SESSION, vec![failed(0, ErrorCode::NotLeaderOrFollower)]));
    assert!(harness.sent.iter().any(|action| matches!(action, Action::ForgetLeader(_))));
    harness.update();
    assert!(harness.fetches().iter().all(|spec| named(spec).is_empty()));
    harness.move_leader(0, TWO, 6);
    harness.update();
    assert!(harness.fetches().is_empty(), "the pause is not over");
    let wake_at = harness.core.wake_at().expect("the end of the pause");
    harness.now = wake_at;
    assert_eq!(harness.one_fetch().node, TWO);
}

#[test]
fn a_lost_session_begins_again_at_once_and_the_second_time_after_a_pause() {
    let (mut harness, spec) = waiting(&[at(7)]);
    let lost = |code| Ok(FetchResponse { error_code: code, ..Default::default() });
    harness.answer(&spec, lost(ErrorCode::FetchSessionIdNotFound));
    let again = harness.one_fetch();
    assert_eq!((again.request.id, again.request.epoch, named(&again)), (0, 0, vec![(0, 7)]));
    harness.answer(&again, lost(ErrorCode::InvalidFetchSessionEpoch));
    harness.update();
    assert!(harness.fetches().is_empty());
    harness.now = harness.core.wake_at().expect("the end of the pause");
    assert_eq!(named(&harness.one_fetch()), [(0, 7)]);
}

#[test]
fn fetches_without_responses_are_repeated_after_growing_pauses() {
    let (mut harness, mut spec) = waiting(&[at(7)]);
    let mut pauses = Vec::new();
    for _ in 0..4 {
        harness.sent.clear();
        harness.answer(&spec, Err(timed_out()));
        assert!(harness.sent.iter().any(|action| matches!(action, Action::RefreshMetadata)));
        harness.update();
        let wake_at = harness.core.wake_at().expect("the end of the pause");
        pauses.push(wake_at - harness.now);
        harness.now = wake_at;
        harness.sent.clear();
        spec = harness.one_fetch();
    }
    assert!(
        pauses.is_sorted_by(|before, after| before < after || *after == Duration::from_secs(1)),
        "{pauses:?}"
    );
    assert_eq!(spec.unanswered, 4, "the wait for a response grows");
}

#[test]
fn a_response_with_an_unrequested_partition_begins_a_new_session() {
    let (mut harness, spec) = waiting(&[at(0)]);
    harness.answer(&spec, response(SESSION, vec![empty(9)]));
    harness.update();
    assert_eq!(harness.fetches()[0].request.epoch, 0);
}

#[test]
fn a_partition_error_is_repeated_after_a_pause_and_others_go_on() {
    let (mut harness, spec) = waiting(&[at(0), at(0)]);
    let busy = failed(0, ErrorCode::KafkaStorageError);
    harness.answer(&spec, response(SESSION, vec![busy, records(1, 0, 3)]));
    assert_eq!(harness.poll_offsets(), [(1, 0, 3)]);
    let next = harness.one_fetch();
    assert_eq!((named(&next), forgotten(&next)), (vec![(1, 3)], vec![0]));
}

/// librdkafka's test 0104: the leader that does not know its high watermark was no leader any more.
#[test]
fn an_offset_that_is_not_available_asks_for_new_metadata() {
    let (mut harness, spec) = waiting(&[at(0)]);
    harness.answer(&spec, response(SESSION, vec![failed(0, ErrorCode::OffsetNotAvailable)]));
    harness.update();
    assert!(
        harness.sent.iter().any(|action| matches!(action, Action::ForgetLeader(_))),
        "{:?}",
        harness.sent
    );
}

#[test]
fn a_fatal_error_stops_the_partition_and_reaches_the_application() {
    let (mut harness, spec) = waiting(&[at(0)]);
    harness.answer(&spec, response(SESSION, vec![failed(0, ErrorCode::UnsupportedCompressionType)]));
    assert!(matches!(&harness.poll_all()[..], [Item::Error(Error::Partition { offset: 0, .. })]));
    harness.pass(Duration::from_secs(60));
    assert!(harness.fetches().is_empty());
    harness.seek(0, at(3));
    assert_eq!(named(&harness.one_fetch()), [(0, 3)]);
}

/// The partition stopped until a seek, also after the client was allowed to read it. librdkafka and Kafka's clients continue.
#[test]
fn a_topic_that_may_not_be_read_is_reported_once_and_fetched_again() {
    let (mut harness, spec) = waiting(&[at(0)]);
    let refused = || response(SESSION, vec![failed(0, ErrorCode::TopicAuthorizationFailed)]);
    harness.answer(&spec, refused());
    assert!(matches!(&harness.poll_all()[..], [Item::Error(Error::Partition { offset: 0, .. })]));
    assert!(harness.fetches().is_empty(), "a pause comes first");
    harness.pass(Duration::from_secs(2));
    let spec = harness.one_fetch();
    harness.answer(&spec, refused());
    assert!(harness.poll_all().is_empty(), "the application knows it");
    harness.pass(Duration::from_secs(2));
    let spec = harness.one_fetch();
    harness.answer(&spec, response(SESSION, vec![records(0, 0, 1)]));
    assert!(matches!(&harness.poll_all()[..], [Item::Chunk(_)]));
}

#[test]
fn bytes_that_cannot_be_parsed_stop_the_partition() {
    let (mut harness, spec) = waiting(&[at(0)]);
    let mut corrupt = records(0, 0, 1);
    corrupt.records = Some(bytes::Bytes::from(vec![0; 17]).into());
    harness.answer(&spec, response(SESSION, vec![corrupt]));
    assert!(matches!(&harness.poll_all()[..], [Item::Error(Error::Corrupt { .. })]));
}

#[test]
fn an_offset_out_of_range_is_reset_and_the_start_is_requested() {
    let (mut harness, spec) = waiting(&[at(500)]);
    harness.answer(&spec, response(SESSION, vec![failed(0, ErrorCode::OffsetOutOfRange)]));
    harness.update();
    let questions = take_questions(&mut harness);
    assert_eq!(questions.iter().map(|(_, start)| *start).collect::<Vec<_>>(), [StartAt::Beginning]);
    let answers = questions.into_iter().map(|(cursor, start)| (cursor, start, Ok(40))).collect();
    harness.answer_offsets(answers);
    assert_eq!(named(&harness.one_fetch()), [(0, 40)]);
}

/// A flipped bit in the header of a fetched batch led the next fetch out of range. The reset then returned the reader to the
/// start, before it learned of the damage.
#[test]
fn an_offset_out_of_range_behind_unread_records_waits_for_them() {
    let (mut harness, spec) = waiting(&[at(0)]);
    harness.answer(&spec, response(SESSION, vec![records(0, 0, 34)]));
    harness.update();
    let spec = harness.one_fetch();
    assert_eq!(named(&spec), [(0, 34)]);
    harness.answer(&spec, response(SESSION, vec![failed(0, ErrorCode::OffsetOutOfRange)]));
    harness.update();
    assert!(take_questions(&mut harness).is_empty(), "the records before it are not read");
    assert!(harness.fetches().is_empty(), "the pause comes first");

    harness.progress[0].set_position(34);
    harness.now = harness.core.wake_at().expect("the end of the pause");
    harness.update();
    let spec = harness.one_fetch();
    harness.answer(&spec, response(SESSION, vec![failed(0, ErrorCode::OffsetOutOfRange)]));
    harness.update();
    harness.now = harness.core.wake_at().expect("the end of the pause");
    harness.update();
    assert_eq!(take_questions(&mut harness).len(), 1, "now the reset is due");
}

#[test]
fn offsets_out_of_range_again_and_again_are_requested_with_a_pause() {
    let (mut harness, mut spec) = waiting(&[at(500)]);
    for round in 0..3 {
        harness.answer(&spec, response(SESSION, vec![failed(0, ErrorCode::OffsetOutOfRange)]));
        harness.update();
        if round > 0 {
            assert!(take_questions(&mut harness).is_empty(), "the pause comes first");
            harness.now = harness.core.wake_at().expect("the end of the pause");
            harness.update();
        }
        let questions = take_questions(&mut harness);
        assert_eq!(questions.len(), 1);
        let answers = questions.into_iter().map(|(cursor, start)| (cursor, start, Ok(500))).collect();
        harness.answer_offsets(answers);
        harness.update();
        spec = harness.fetches().pop().expect("a fetch");
    }
}

#[test]
fn an_offset_out_of_range_without_a_reset_is_an_error() {
    let mut harness = Harness::new(&[at(500)]);
    harness.progress[0].set_reset(OffsetReset::Error);
    let spec = harness.one_fetch();
    harness.answer(&spec, response(SESSION, vec![failed(0, ErrorCode::OffsetOutOfRange)]));
    let items = harness.poll_all();
    assert!(matches!(&items[..], [Item::Error(Error::OffsetOutOfRange { offset: 500, .. })]), "{items:?}");
}

#[test]
fn unresolved_starts_wait_for_the_topic_and_are_requested_once_per_leader() {
    let mut harness = Harness::new(&[StartAt::Beginning, StartAt::End, StartAt::Committed]);
    harness.facts.topic_known = false;
    harness.update();
    let Some(Action::AwaitTopic { topic, cursors }) = harness.sent.pop() else {
        panic!("{:?}", harness.sent)
    };
    assert_eq!((&*topic, cursors.len()), ("orders", 2), "the group resolves committed offsets");

    harness.facts.topic_known = true;
    harness.core.on_topic_awaited(&cursors, Ok(()), harness.now, &mut harness.table);
    harness.update();
    let questions = take_questions(&mut harness);
    assert_eq!(questions.len(), 2);
    let lagging = Error::Broker { what: "offsets".into(), code: ErrorCode::NotLeaderOrFollower };
    let results = [Ok(3), Err(lagging)];
    let answers = questions.into_iter().zip(results).map(|((cursor, start), result)| (cursor, start, result));
    let answers = answers.collect();
    harness.answer_offsets(answers);
    assert_eq!(named(&harness.one_fetch()), [(0, 3)]);
    harness.now = harness.core.wake_at().expect("the end of the back-off");
    harness.update();
    assert_eq!(take_questions(&mut harness)[0].1, StartAt::End, "requested again");
}

#[test]
fn a_start_without_a_leader_is_requested_after_the_back_off() {
    let mut harness = Harness::new(&[StartAt::Beginning]);
    harness.facts.leaders.clear();
    harness.update();
    assert!(matches!(harness.sent[..], [Action::RefreshMetadata]));
    assert!(harness.cursor(0).last_error.is_some());
    harness.sent.clear();
    harness.move_leader(0, TWO, 1);
    harness.now = harness.core.wake_at().expect("the end of the back-off");
    harness.update();
    assert!(matches!(harness.sent[..], [Action::ListOffsets { leader: TWO, .. }]), "{:?}", harness.sent);
}

#[test]
fn an_answer_for_a_cursor_that_moved_is_dropped() {
    let mut harness = Harness::new(&[StartAt::Beginning]);
    harness.update();
    let questions = take_questions(&mut harness);
    harness.seek(0, at(30));
    let answers = questions.into_iter().map(|(cursor, start)| (cursor, start, Ok(0))).collect();
    harness.answer_offsets(answers);
    let spec = harness.one_fetch();
    assert_eq!(named(&spec), [(0, 30)]);
    harness.seek(0, at(60));
    harness.answer(&spec, response(SESSION, vec![records(0, 30, 5)]));
    assert!(harness.poll_offsets().is_empty(), "records of the old position");
    assert_eq!(named(&harness.one_fetch()), [(0, 60)]);
}

#[test]
fn a_security_failure_is_reported_and_tried_again() {
    let mut harness = Harness::new(&[StartAt::Beginning]);
    harness.update();
    let questions = take_questions(&mut harness);
    let refused = Error::Broker { what: "offsets".into(), code: ErrorCode::SaslAuthenticationFailed };
    let is_security = refused.is_security();
    let answers =
        questions.into_iter().map(|(cursor, start)| (cursor, start, Err(refused.clone()))).collect();
    harness.answer_offsets(answers);
    assert!(matches!(&harness.poll_all()[..], [Item::Error(_)]));
    harness.pass(Duration::from_secs(2));
    assert_eq!(take_questions(&mut harness).len(), usize::from(is_security));
}

#[test]
fn a_preferred_replica_is_fetched_from_until_it_fails() {
    let (mut harness, spec) = waiting(&[at(0)]);
    let mut redirected = empty(0);
    redirected.preferred_read_replica = TWO;
    harness.answer(&spec, response(SESSION, vec![redirected]));
    harness.update();
    let fetches = harness.fetches();
    let to_replica = fetches.iter().find(|spec| spec.node == TWO).expect("a fetch from the replica");
    assert_eq!(named(to_replica), [(0, 0)]);
    harness.answer(to_replica, response(5, vec![failed(0, ErrorCode::OffsetOutOfRange)]));
    assert!(harness.poll_all().is_empty(), "a replica may lag behind");
    harness.update();
    let fetches = harness.fetches();
    assert!(fetches.iter().any(|spec| spec.node == ONE && named(spec) == [(0, 0)]), "{fetches:?}");
}

#[test]
fn a_preferred_replica_expires() {
    let (mut harness, spec) = waiting(&[at(0)]);
    let mut redirected = empty(0);
    redirected.preferred_read_replica = TWO;
    harness.answer(&spec, response(SESSION, vec![redirected]));
    harness.update();
    assert!(harness.fetches().iter().any(|spec| spec.node == TWO));
    harness.now = harness.core.wake_at().expect("the time at which it expires");
    harness.update();
    assert!(harness.fetches().iter().any(|spec| spec.node == ONE && named(spec) == [(0, 0)]));
}

#[test]
fn a_new_leader_confirms_its_log_before_it_is_fetched_from() {
    let mut harness = Harness::new(&[at(0)]);
    let spec = harness.one_fetch();
    harness.answer(&spec, response(SESSION, vec![records(0, 0, 10)]));
    harness.move_leader(0, TWO, 6);
    harness.update();
    let question = take_epoch_question(&mut harness);
    assert_eq!((question.leader, question.leader_epoch, question.epoch, question.offset), (TWO, 6, 5, 10));
    harness.answer_epoch_end(&question, Ok(EpochEnd::At(10)));
    harness.update();
    assert!(harness.fetches().iter().any(|spec| spec.node == TWO && named(spec) == [(0, 10)]));
}

#[test]
fn a_truncated_log_moves_the_position_back_and_drops_what_is_buffered() {
    for (given, resumed) in [(8, 7), (5, 5)] {
        let mut harness = Harness::new(&[at(0)]);
        let spec = harness.one_fetch();
        harness.answer(&spec, response(SESSION, vec![records(0, 0, 10)]));
        harness.progress[0].set_position(given);
        harness.move_leader(0, TWO, 6);
        harness.update();
        let question = take_epoch_question(&mut harness);
        harness.answer_epoch_end(&question, Ok(EpochEnd::At(7)));
        assert!(harness.poll_all().is_empty(), "records that the leader does not have");
        harness.update();
        assert!(harness.fetches().iter().any(|spec| named(spec) == [(0, resumed)]), "given to {given}");
    }
}

/// A leader that answers so was set back to a state before the records that were read. Taking the answer for a confirmation
/// left the reader at an offset that other records will have.
#[test]
fn an_epoch_that_the_leader_does_not_know_resets_the_position() {
    let mut harness = Harness::new(&[at(0)]);
    let question = question_of_next_leader(&mut harness);
    harness.answer_epoch_end(&question, Ok(EpochEnd::Undefined));
    assert!(harness.poll_all().is_empty(), "records that the leader does not have");
    harness.update();
    let starts: Vec<StartAt> = take_questions(&mut harness).iter().map(|(_, start)| *start).collect();
    assert_eq!(starts, [StartAt::Beginning]);
}

#[test]
fn an_epoch_that_the_leader_does_not_know_is_an_error_without_resets() {
    let mut harness = Harness::new(&[at(0)]);
    harness.progress[0].set_reset(OffsetReset::Error);
    let question = question_of_next_leader(&mut harness);
    harness.poll_all();
    harness.answer_epoch_end(&question, Ok(EpochEnd::Undefined));
    let items = harness.poll_all();
    assert!(
        matches!(&items[..], [Item::Error(Error::LogTruncated { offset: 10, end: None, .. })]),
        "{items:?}"
    );
}

/// The answer set the position behind the dropped records: nothing fetched them again.
#[test]
fn an_answer_about_an_epoch_does_not_skip_parked_records_that_were_dropped_meanwhile() {
    let mut harness = Harness::new(&[at(0)]);
    let question = question_of_next_leader(&mut harness);
    harness.pause(0, true);
    assert!(harness.poll_all().is_empty(), "the partition is paused");
    let held = harness.facts.inbox.budget.hold(vec![0; BUDGET]);
    let rewound = harness.facts.inbox.drop_parked(BUDGET);
    harness.core.on_parked_freed(rewound, &mut harness.table);
    assert_eq!(harness.cursor(0).position, Position::At(0), "the records were dropped");
    harness.answer_epoch_end(&question, Ok(EpochEnd::At(10)));
    drop(held);

    harness.pause(0, false);
    harness.update();
    let again = take_epoch_question(&mut harness);
    assert_eq!(again.offset, 0);
    harness.answer_epoch_end(&again, Ok(EpochEnd::At(10)));
    harness.update();
    let fetches = harness.fetches();
    assert!(fetches.iter().any(|spec| spec.node == TWO && named(spec) == [(0, 0)]), "{fetches:?}");
}

#[test]
fn a_leader_without_support_for_epochs_is_fetched_from() {
    let mut harness = Harness::new(&[at(0)]);
    let question = question_of_next_leader(&mut harness);
    harness.answer_epoch_end(&question, Ok(EpochEnd::Unsupported));
    harness.update();
    assert!(harness.fetches().iter().any(|spec| spec.node == TWO && named(spec) == [(0, 10)]));
}

/// The question was repeated for ever, and the application did not learn why it got no records.
#[test]
fn a_refusal_to_confirm_the_log_is_reported_once() {
    let mut harness = Harness::new(&[at(0)]);
    let mut question = question_of_next_leader(&mut harness);
    assert_eq!(harness.poll_all().len(), 1, "the records");
    let mut reported = 0;
    for _ in 0..3 {
        let code = ErrorCode::TopicAuthorizationFailed;
        harness.answer_epoch_end(&question, Err(Error::Broker { what: "an epoch".into(), code }));
        reported += harness.poll_all().len();
        harness.pass(Duration::from_secs(2));
        question = take_epoch_question(&mut harness);
    }
    assert_eq!(reported, 1);
}

#[test]
fn a_paused_partition_leaves_the_session_and_comes_back() {
    let (mut harness, spec) = waiting(&[at(0), at(0)]);
    harness.pause(0, true);
    harness.update();
    harness.answer(&spec, response(SESSION, Vec::new()));
    let without = harness.one_fetch();
    assert_eq!(forgotten(&without), [0]);
    harness.pause(0, false);
    harness.now += without.wait;
    harness.answer(&without, response(SESSION, Vec::new()));
    assert_eq!(named(&harness.one_fetch()), [(0, 0)]);
}

#[test]
fn a_removed_partition_leaves_the_session_and_its_records_are_dropped() {
    let (mut harness, spec) = waiting(&[at(0), at(0)]);
    harness.remove(0);
    harness.update();
    harness.answer(&spec, response(SESSION, vec![records(0, 0, 3), records(1, 0, 3)]));
    assert_eq!(harness.poll_offsets(), [(1, 0, 3)]);
    let next = harness.one_fetch();
    assert_eq!((next.request.epoch, forgotten(&next)), (2, vec![0]));
}

#[test]
fn a_full_inbox_stops_its_partition_until_it_is_drained() {
    let (mut harness, spec) = waiting(&[at(0), at(0)]);
    harness.answer(&spec, response(SESSION, vec![records(0, 0, 1000)]));
    let without = harness.one_fetch();
    assert_eq!(forgotten(&without), [0]);
    harness.answer(&without, response(SESSION, Vec::new()));
    let _waits = harness.one_fetch();
    assert_eq!(harness.poll_offsets(), [(0, 0, 1000)]);
    harness.pass(6 * MS);
    let outside = harness.fetches().pop().expect("a fetch of the drained partition");
    assert_eq!((outside.outside_session, named(&outside)), (true, vec![(0, 1000)]));
}

#[test]
fn partitions_added_behind_a_long_poll_are_fetched_outside_the_session() {
    let (mut harness, long_poll) = waiting(&[at(0), StartAt::Beginning]);
    let questions = take_questions(&mut harness);
    let questions = if questions.is_empty() { first_questions(&mut harness) } else { questions };
    let answers = questions.into_iter().map(|(cursor, start)| (cursor, start, Ok(50))).collect();
    harness.answer_offsets(answers);
    harness.update();
    assert!(harness.fetches().is_empty(), "the response may come at any moment");
    harness.pass(5 * MS);
    let outside = harness.fetches().pop().expect("a fetch outside the session");
    assert_eq!((outside.outside_session, outside.request.epoch, named(&outside)), (true, -1, vec![(1, 50)]));
    assert_eq!(outside.wait, OUTSIDE_SESSION_WAIT);
    harness.answer(&outside, response(0, vec![records(1, 50, 2)]));
    assert_eq!(harness.poll_offsets(), [(1, 50, 52)]);

    harness.answer(&long_poll, response(SESSION, Vec::new()));
    assert_eq!(named(&harness.one_fetch()), [(1, 52)], "it joins the session");
}

#[test]
fn nothing_is_fetched_outside_the_session_while_the_response_arrives() {
    let (mut harness, _long_poll) = waiting(&[at(0), at(0)]);
    harness.seek(1, at(30));
    harness.facts.arriving.insert(ONE);
    harness.pass(50 * MS);
    assert!(harness.fetches().is_empty());
    harness.facts.arriving.clear();
    harness.pass(MS);
    assert_eq!(named(&harness.one_of_now()), [(1, 30)]);
}

#[test]
fn a_failed_fetch_outside_the_session_is_repeated_after_a_pause() {
    let (mut harness, _long_poll) = waiting(&[at(0), at(0)]);
    harness.seek(1, at(30));
    harness.pass(10 * MS);
    let outside = harness.one_of_now();
    harness.answer(&outside, Err(timed_out()));
    harness.update();
    assert!(harness.fetches().is_empty());
    harness.now = harness.core.wake_at().expect("the end of the pause");
    harness.update();
    assert!(harness.one_of_now().outside_session);
}

#[test]
fn a_budget_without_room_holds_fetches_back_until_records_are_dropped() {
    let mut harness =
        Harness::with(&[at(0), at(0)], 2 << 20, |config| config.max_partition_fetch_bytes = 1 << 20);
    harness.move_leader(1, TWO, 5);
    harness.update();
    let fetches = harness.fetches();
    let reserved: usize = fetches.iter().map(|spec| spec.bytes).sum();
    assert!(reserved <= 1 << 20, "long polls reserve at most half of the budget: {reserved}");
    let held = harness.facts.inbox.budget.hold(vec![0; 2 << 20]);
    harness.facts.inbox.push_to(harness.slots[1], Item::Error(timed_out()));
    for spec in &fetches {
        harness.answer(spec, response(SESSION, Vec::new()));
    }
    harness.update();
    assert!(harness.fetches().is_empty());
    assert!(harness.core.source(ONE).expect("a source").waits_for_room);
    drop(held);
    harness.update();
    assert!(!harness.fetches().is_empty());
}

#[test]
fn a_budget_smaller_than_a_fetch_allows_one_response_at_a_time() {
    let mut harness = Harness::with(&[at(0), at(0)], 100, |_| {});
    harness.move_leader(1, TWO, 5);
    harness.update();
    let fetches = harness.fetches();
    assert_eq!(fetches.len(), 1, "{fetches:?}");
}

#[test]
fn records_of_paused_partitions_make_room_for_others() {
    let mut harness = Harness::new(&[at(0), at(0)]);
    let spec = harness.one_fetch();
    harness.answer(&spec, response(SESSION, vec![records(0, 0, 5)]));
    harness.pause(0, true);
    assert!(harness.poll_all().is_empty(), "the partition is paused");
    let _held = harness.facts.inbox.budget.hold(vec![0; BUDGET]);
    harness.update();
    harness.pause(0, false);
    assert!(harness.poll_offsets().is_empty(), "they were dropped");
    assert_eq!(harness.cursor(0).position, Position::At(0), "and are fetched again");
}

#[test]
fn the_watchdog_can_begin_a_new_session() {
    let (mut harness, spec) = waiting(&[at(0)]);
    harness.core.restart_session(ONE);
    harness.answer(&spec, response(SESSION, Vec::new()));
    let next = harness.one_fetch();
    assert_eq!((next.request.epoch, named(&next)), (0, vec![(0, 0)]));
}

#[test]
fn the_end_of_a_partition_is_reported_once_for_each_end() {
    let mut harness = Harness::with(&[at(95)], BUDGET, |config| config.enable_partition_eof = true);
    let spec = harness.one_fetch();
    harness.answer(&spec, response(SESSION, vec![records(0, 95, 5)]));
    let items = harness.poll_all();
    assert!(matches!(&items[..], [Item::Chunk(_), Item::Event(_)]), "{items:?}");
    let spec = harness.one_fetch();
    harness.answer(&spec, response(SESSION, vec![empty(0)]));
    assert!(harness.poll_all().is_empty());
}

impl Harness {
    /// The only fetch since the last call.
    fn one_of_now(&mut self) -> FetchSpec {
        let mut fetches = self.fetches();
        assert_eq!(fetches.len(), 1, "{fetches:?}");
        fetches.remove(0)
    }
}

/// The ListOffsets questions that were sent; all other actions stay.
pub(super) fn take_questions(harness: &mut Harness) -> Vec<(CursorRef, StartAt)> {
    let mut found = Vec::new();
    for action in std::mem::take(&mut harness.sent) {
        match action {
            Action::ListOffsets { questions, .. } => found.extend(questions),
            other => harness.sent.push(other),
        }
    }
    found
}

/// The questions of a partition that is assigned a second time.
fn first_questions(harness: &mut Harness) -> Vec<(CursorRef, StartAt)> {
    harness.seek(1, StartAt::Beginning);
    harness.update();
    take_questions(harness)
}

/// Ten records were read from partition 0, whose leader moved then.
pub(super) fn question_of_next_leader(harness: &mut Harness) -> EpochQuestion {
    let spec = harness.one_fetch();
    harness.answer(&spec, response(SESSION, vec![records(0, 0, 10)]));
    harness.move_leader(0, TWO, 6);
    harness.update();
    take_epoch_question(harness)
}

fn take_epoch_question(harness: &mut Harness) -> EpochQuestion {
    let is_question = |action: &Action| matches!(action, Action::OffsetForLeaderEpoch(_));
    let found = harness.sent.iter().position(is_question).expect("a question");
    let Action::OffsetForLeaderEpoch(question) = harness.sent.remove(found) else { unreachable!() };
    question
}

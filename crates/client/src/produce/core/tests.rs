//! The core's decisions, one by one.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::produce::LeaderIdAndEpoch;

use super::harness::{Producer, broken};
use super::*;
use crate::error::Persisted;
use crate::produce::Purge;

/// A sealed batch is larger than this, whatever it carries.
const LARGE: usize = 600_000;

fn open_transaction(serial: u64, epoch: Option<i16>, adds_partitions: bool) -> Permission {
    let producer = epoch.map(|epoch| ProducerId { id: 9, epoch });
    Permission::Transaction(OpenTransaction { serial, producer, adds_partitions })
}

/// A producer whose broker has acknowledged record 0 of partition 0, and so detects a wrong order.
fn known_producer(properties: &[(&str, &str)]) -> Producer {
    let mut producer = Producer::with_id(1, properties);
    producer.produce(0, 0);
    producer.poll();
    producer.respond(ErrorCode::None);
    producer
}

#[test]
fn any_thread_can_drive_the_core() {
    fn assert_send<T: Send>() {}
    assert_send::<ProduceCore>();
}

#[test]
fn records_are_sent_at_once_while_nothing_is_in_flight_and_collect_otherwise() {
    let mut producer = known_producer(&[]);
    producer.produce(0, 1);
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]]);
    producer.produce(0, 2);
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]], "record 2 waits for the response");
    assert_eq!(producer.wake_at, Some(producer.now + std::time::Duration::from_millis(5)));
    producer.respond(ErrorCode::None);
    producer.poll();
    assert_eq!(producer.in_flight(), [[2]]);
}

#[test]
fn an_open_batch_waits_for_the_response_no_longer_than_the_adaptive_linger() {
    let mut producer = known_producer(&[]);
    for id in 1..=2 {
        producer.produce(0, id);
        producer.poll();
    }
    producer.advance(5);
    producer.poll();
    assert_eq!(producer.in_flight(), [[1], [2]]);
}

#[test]
fn linger_holds_an_open_batch_back_and_a_full_one_goes() {
    let mut producer = Producer::with_id(2, &[("linger.ms", "50")]);
    producer.produce(0, 1);
    producer.produce_full(1, &[2], 100);
    producer.poll();
    assert_eq!(producer.in_flight(), [[2]]);
    assert_eq!(producer.wake_at, Some(producer.now + std::time::Duration::from_millis(50)));
    producer.advance(50);
    producer.poll();
    assert_eq!(producer.in_flight(), [[2], [1]]);
}

#[test]
fn a_flush_sends_what_lingers() {
    let mut producer = Producer::with_id(1, &[("linger.ms", "5000")]);
    producer.produce(0, 1);
    producer.poll();
    assert!(producer.sent.is_empty());
    producer.urgent = true;
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]]);
}

#[test]
fn nothing_is_sent_before_the_producer_id_and_its_request_is_repeated_after_the_back_off() {
    let mut producer = Producer::new(1, &[("retry.backoff.ms", "100")]);
    producer.produce(0, 1);
    producer.poll();
    producer.poll();
    assert_eq!((producer.id_requests, producer.sent.len()), (1, 0));
    producer.core.on_producer_id(Err(broken()));
    producer.poll();
    assert_eq!(producer.id_requests, 1, "the back-off is not over");
    producer.advance(100);
    producer.poll();
    assert_eq!(producer.id_requests, 2);
    producer.core.on_producer_id(Ok(ProducerId { id: 7, epoch: 0 }));
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]]);
}

#[test]
fn records_fail_at_once_if_the_cluster_refuses_a_producer_id() {
    let mut producer = Producer::new(1, &[("retry.backoff.ms", "100")]);
    producer.produce(0, 1);
    producer.poll();
    let code = ErrorCode::ClusterAuthorizationFailed;
    let refusal = || Error::NoProducerId(Box::new(Error::Broker { what: "InitProducerId".into(), code }));
    producer.core.on_producer_id(Err(refusal()));
    producer.poll();
    let error = producer.outcomes[&1].as_ref().expect_err("failed");
    let ProduceErrorKind::Request(error) = &error.kind else { panic!("{error}") };
    assert_eq!(error.broker_code(), Some(code));
    assert_eq!(producer.id_requests, 1, "no record needs an id");
    producer.produce(0, 2);
    producer.advance(100);
    producer.poll();
    producer.core.on_producer_id(Ok(ProducerId { id: 7, epoch: 0 }));
    producer.poll();
    assert_eq!((producer.id_requests, producer.in_flight()), (2, vec![vec![2]]));
}

#[test]
fn until_the_broker_has_acknowledged_a_batch_one_is_in_flight() {
    let mut producer = Producer::with_id(1, &[]);
    producer.produce_full(0, &[1], 100);
    producer.produce_full(0, &[2], 100);
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]]);
    producer.respond(ErrorCode::None);
    producer.produce_full(0, &[3], 100);
    producer.poll();
    assert_eq!(producer.in_flight(), [[2], [3]]);
}

#[test]
fn no_more_requests_are_in_flight_than_allowed() {
    let mut producer = known_producer(&[("max.in.flight.requests.per.connection", "2")]);
    for id in 1..=3 {
        producer.produce_full(0, &[id], 100);
    }
    producer.poll();
    assert_eq!(producer.in_flight(), [[1], [2]]);
    producer.respond(ErrorCode::None);
    producer.poll();
    assert_eq!(producer.in_flight(), [[2], [3]]);
}

#[test]
fn batches_that_exceed_the_request_size_go_in_the_next_request() {
    let mut producer = Producer::with_id(3, &[("max.request.size", "1000000")]);
    for partition in 0..3 {
        producer.produce_full(partition, &[partition as u128], LARGE);
    }
    producer.poll();
    assert_eq!(producer.in_flight().len(), 1, "a large request waits for its response");
    producer.advance(1000);
    producer.poll();
    producer.advance(1000);
    producer.poll();
    let mut all: Vec<_> = producer.in_flight().concat();
    all.sort_unstable();
    assert_eq!((producer.in_flight().len(), all), (3, vec![0, 1, 2]));
}

#[test]
fn retried_batches_keep_their_order_and_sequence_and_go_one_at_a_time() {
    let mut producer = known_producer(&[]);
    for id in 1..=3 {
        producer.produce_full(0, &[id], 100);
    }
    producer.poll();
    assert_eq!(producer.in_flight(), [[1], [2], [3]]);
    for _ in 0..3 {
        producer.respond(ErrorCode::NotEnoughReplicas);
    }
    producer.produce_full(0, &[4], 100);
    for (id, in_flight) in [(1, 1), (2, 1), (3, 2), (4, 1)] {
        producer.advance(2000);
        producer.poll();
        // Behind the last retry the next batch may follow.
        assert_eq!(producer.in_flight().len(), in_flight);
        let request = producer.respond(ErrorCode::None);
        assert_eq!((request.ids(), request.batches[0].header.base_sequence), (vec![id], id as i32));
    }
}

#[test]
fn a_retry_waits_for_the_back_off() {
    let mut producer = known_producer(&[("retry.backoff.ms", "100"), ("retry.backoff.max.ms", "100")]);
    producer.produce(0, 1);
    producer.poll();
    producer.respond(ErrorCode::NotEnoughReplicas);
    producer.advance(79);
    producer.poll();
    assert!(producer.sent.is_empty(), "80 ms is the least that a jitter of 20 % allows");
    producer.advance(41);
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]]);
}

#[test]
fn a_batch_fails_when_its_retries_are_used_up() {
    let mut producer = known_producer(&[("message.send.max.retries", "2")]);
    producer.produce(0, 1);
    for _ in 0..3 {
        producer.advance(5000);
        producer.poll();
        producer.respond(ErrorCode::NotEnoughReplicas);
    }
    let error = producer.error(1);
    assert_eq!(error.persisted, Persisted::NotWritten);
    assert!(matches!(error.kind, ProduceErrorKind::Broker { code: ErrorCode::NotEnoughReplicas, .. }));
}

#[test]
fn a_permanent_error_fails_the_batch_at_once() {
    let mut producer = known_producer(&[]);
    producer.produce(0, 1);
    producer.poll();
    producer.respond(ErrorCode::TopicAuthorizationFailed);
    assert_eq!(producer.error(1).persisted, Persisted::NotWritten);
}

#[test]
fn a_lost_request_may_be_written_and_a_request_that_never_left_is_not() {
    for (outcome, persisted) in [
        (RequestOutcome::Lost(broken()), Persisted::PossiblyWritten),
        (RequestOutcome::NotSent(broken()), Persisted::NotWritten),
    ] {
        let mut producer = known_producer(&[("delivery.timeout.ms", "1000")]);
        producer.produce(0, 1);
        producer.poll();
        let request = producer.sent.pop_front().expect("a request");
        producer.world.leaders.clear();
        producer.finish(&request, outcome);
        producer.advance(1000);
        producer.poll();
        let error = producer.error(1);
        assert_eq!(error.persisted, persisted);
        assert!(matches!(error.kind, ProduceErrorKind::TimedOut { timeout_ms: 1000, .. }));
    }
}

#[test]
fn queued_records_expire_and_name_the_reason() {
    let mut producer = Producer::with_id(1, &[("delivery.timeout.ms", "1000")]);
    producer.world.leaders.clear();
    producer.produce(0, 1);
    producer.poll();
    assert!(producer.refreshes > 0, "a missing leader asks for metadata");
    producer.advance(999);
    producer.poll();
    assert!(producer.outcomes.is_empty());
    producer.advance(101);
    producer.poll();
    let error = producer.error(1);
    assert!(matches!(&error.kind, ProduceErrorKind::TimedOut { timeout_ms: 1000, last } if last == "unsent"));
}

#[test]
fn batches_in_flight_expire_and_their_response_comes_too_late() {
    let mut producer = Producer::with_id(1, &[("delivery.timeout.ms", "1000")]);
    producer.produce(0, 1);
    producer.poll();
    producer.advance(900);
    producer.poll();
    assert!(producer.outcomes.is_empty());
    // The connection has just closed: the end of the request is the next event.
    producer.world.links.insert(1, LinkState::Closed);
    producer.advance(200);
    producer.poll();
    assert!(producer.outcomes.is_empty());
    producer.world.links.insert(1, LinkState::Open);
    producer.advance(200);
    producer.poll();
    let error = producer.error(1);
    assert!(matches!(&error.kind, ProduceErrorKind::TimedOut { timeout_ms: 1000, .. }), "{error}");
    assert_eq!(error.persisted, Persisted::PossiblyWritten);
    // The harness rejects a second outcome.
    producer.respond(ErrorCode::None);
    producer.produce(0, 2);
    producer.poll();
    producer.respond(ErrorCode::None);
    assert_eq!(producer.outcomes[&2].as_ref().ok(), Some(&100));
}

#[test]
fn a_new_leader_that_the_broker_names_is_used_at_once() {
    let mut producer = known_producer(&[]);
    producer.produce(0, 1);
    producer.poll();
    producer.respond_with(|_| {
        (ErrorCode::NotLeaderOrFollower, -1, LeaderIdAndEpoch { leader_id: 2, leader_epoch: 5 })
    });
    assert_eq!(producer.named_leaders, [(0, 2)]);
    producer.poll();
    assert_eq!(producer.sent[0].node, 2);
}

#[test]
fn nothing_goes_to_a_new_leader_while_the_old_one_has_requests() {
    let mut producer = known_producer(&[]);
    producer.produce_full(0, &[1], 100);
    producer.poll();
    producer.world.leaders.insert(0, 2);
    producer.produce_full(0, &[2], 100);
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]]);
    producer.respond(ErrorCode::None);
    producer.poll();
    assert_eq!((producer.sent[0].node, producer.in_flight()), (2, vec![vec![2]]));
}

#[test]
fn requests_on_a_broken_connection_are_not_overtaken() {
    let mut producer = known_producer(&[]);
    producer.produce_full(0, &[1], 100);
    producer.poll();
    producer.world.links.insert(1, LinkState::Closed);
    producer.produce_full(0, &[2], 100);
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]]);
    producer.lose();
    producer.advance(2000);
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]], "the lost batch goes first, on a new connection");
}

#[test]
fn a_full_outbox_holds_requests_back() {
    let mut producer = Producer::with_id(1, &[]);
    producer.world.links.insert(1, LinkState::BackedUp);
    producer.produce_full(0, &[1], 100);
    producer.poll();
    assert!(producer.sent.is_empty());
    producer.world.links.insert(1, LinkState::Open);
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]]);
}

#[test]
fn a_sequence_that_the_broker_refuses_begins_again_under_the_next_epoch() {
    let mut producer = known_producer(&[]);
    for id in 1..=2 {
        producer.produce_full(0, &[id], 100);
    }
    producer.poll();
    producer.respond(ErrorCode::OutOfOrderSequenceNumber);
    producer.respond(ErrorCode::OutOfOrderSequenceNumber);
    assert!(producer.epochs_raised.is_empty(), "only a refusal with nothing else in flight is a proof");
    producer.advance(2000);
    producer.poll();
    producer.respond(ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(producer.epochs_raised, [(0, 1)]);
    for (id, sequence) in [(1, 0), (2, 1)] {
        producer.advance(2000);
        producer.poll();
        let header = &producer.sent[0].batches[0].header;
        assert_eq!((header.producer_epoch, header.base_sequence), (1, sequence));
        assert_eq!(producer.respond(ErrorCode::None).ids(), [id]);
    }
}

/// Two batches in flight of a transaction whose broker knows the producer; the first has failed for now.
fn reordered_in_transaction(abort_out_of_order: bool, adds_partitions: bool) -> Producer {
    let mut config = Config::default();
    config.set("transactional.id", "till").expect("a valid property");
    config.abort_out_of_order = abort_out_of_order;
    let mut producer = Producer::with_config(1, config, false);
    producer.produce_full(0, &[0], 100);
    producer.poll_with(open_transaction(1, Some(0), adds_partitions));
    producer.core.on_partitions_added(vec![0]);
    producer.poll_with(open_transaction(1, Some(0), adds_partitions));
    producer.respond(ErrorCode::None);
    for id in 1..=2 {
        producer.produce_full(0, &[id], 100);
    }
    producer.poll_with(open_transaction(1, Some(0), adds_partitions));
    assert_eq!(producer.respond(ErrorCode::NotLeaderOrFollower).ids(), [1]);
    assert_eq!(producer.respond(ErrorCode::OutOfOrderSequenceNumber).ids(), [2]);
    producer
}

#[test]
fn in_a_transaction_a_batch_behind_one_that_failed_for_now_goes_again() {
    // librdkafka's test 0103 against Kafka 4.1: with librdkafka's habit as well, where brokers add partitions.
    for (abort_out_of_order, adds_partitions) in [(false, false), (false, true), (true, false)] {
        let mut producer = reordered_in_transaction(abort_out_of_order, adds_partitions);
        for id in 1..=2 {
            producer.advance(2000);
            producer.poll_with(open_transaction(1, Some(0), adds_partitions));
            assert_eq!(producer.respond(ErrorCode::None).ids(), [id]);
            assert!(producer.outcomes[&id].is_ok());
        }
    }
}

/// librdkafka's test 0105 (`do_test_out_of_order_seq`) demands the abort.
#[test]
fn with_the_habit_of_librdkafka_a_batch_out_of_order_fails_at_once() {
    let producer = reordered_in_transaction(true, true);
    let kind = &producer.error(2).kind;
    let is_refused =
        matches!(kind, ProduceErrorKind::Broker { code: ErrorCode::OutOfOrderSequenceNumber, .. });
    assert!(is_refused, "{kind:?}");
    assert!(!producer.outcomes.contains_key(&1), "the abort decides about the first");
}

#[test]
fn a_later_batch_that_the_log_has_proves_an_earlier_one_that_the_broker_forgot() {
    let mut producer = known_producer(&[]);
    for id in 1..=2 {
        producer.produce_full(0, &[id], 100);
    }
    producer.poll();
    producer.lose();
    producer.lose();
    producer.advance(2000);
    producer.poll();
    assert_eq!(producer.respond(ErrorCode::OutOfOrderSequenceNumber).ids(), [1]);
    producer.poll();
    assert_eq!(producer.respond(ErrorCode::DuplicateSequenceNumber).ids(), [2]);
    assert_eq!(producer.outcomes[&1].as_ref().ok(), Some(&-1), "written, at an unknown offset");
    assert!(producer.outcomes[&2].is_ok());
    assert!(producer.epochs_raised.is_empty());
}

#[test]
fn a_batch_behind_which_the_broker_acknowledged_another_is_not_written_twice() {
    let mut producer = known_producer(&[]);
    for id in 1..=2 {
        producer.produce_full(0, &[id], 100);
    }
    producer.poll();
    assert_eq!(producer.respond(ErrorCode::RequestTimedOut).ids(), [1]);
    assert_eq!(producer.respond(ErrorCode::None).ids(), [2]);
    producer.advance(2000);
    producer.poll();
    // A restarted broker remembers batch 2 only.
    assert_eq!(producer.respond(ErrorCode::OutOfOrderSequenceNumber).ids(), [1]);
    assert_eq!(producer.outcomes[&1].as_ref().ok(), Some(&-1), "written, at an unknown offset");
    assert!(producer.epochs_raised.is_empty());
}

#[test]
fn a_used_up_epoch_brings_a_new_producer_id() {
    let mut producer = Producer::new(1, &[]);
    producer.core.on_producer_id(Ok(ProducerId { id: 7, epoch: i16::MAX }));
    producer.produce(0, 1);
    producer.poll();
    producer.respond(ErrorCode::OutOfOrderSequenceNumber);
    producer.advance(2000);
    producer.poll();
    assert_eq!((producer.id_requests, producer.sent.len()), (1, 0));
}

/// They kept the numbers of the used up producer id, which the broker refused until their timeout.
#[test]
fn waiting_batches_take_the_next_producer_id_when_the_epochs_are_used_up() {
    let mut producer = Producer::new(1, &[]);
    producer.core.on_producer_id(Ok(ProducerId { id: 7, epoch: i16::MAX }));
    producer.produce_full(0, &[1], 100);
    producer.poll();
    producer.respond(ErrorCode::None);
    for id in 2..=3 {
        producer.produce_full(0, &[id], 100);
    }
    producer.poll();
    producer.respond(ErrorCode::OutOfOrderSequenceNumber);
    producer.respond(ErrorCode::OutOfOrderSequenceNumber);
    producer.advance(2000);
    producer.poll();
    producer.respond(ErrorCode::OutOfOrderSequenceNumber);
    producer.advance(2000);
    producer.poll();
    assert_eq!((producer.id_requests, producer.sent.len()), (1, 0));
    producer.core.on_producer_id(Ok(ProducerId { id: 8, epoch: 0 }));
    for id in 2..=3 {
        producer.advance(2000);
        producer.poll();
        let header = &producer.sent[0].batches[0].header;
        let expected = (8, 0, id as i32 - 2);
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), expected);
        assert_eq!(producer.respond(ErrorCode::None).ids(), [id]);
    }
}

#[test]
fn an_unknown_topic_is_waited_for_and_then_fails() {
    let mut producer = Producer::with_id(1, &[("topic.metadata.propagation.max.ms", "1000")]);
    producer.produce(0, 1);
    producer.poll();
    producer.respond(ErrorCode::UnknownTopicOrPartition);
    producer.advance(1000);
    producer.poll();
    producer.respond(ErrorCode::UnknownTopicOrPartition);
    let kind = &producer.error(1).kind;
    assert!(matches!(kind, ProduceErrorKind::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }));
}

#[test]
fn records_of_a_partition_that_no_longer_exists_fail() {
    let mut producer = Producer::with_id(1, &[("topic.metadata.propagation.max.ms", "1000")]);
    producer.world.leaders.clear();
    producer.world.topic = Some(TopicState { error: ErrorCode::None, partitions: 0, responses: 1 });
    producer.produce(0, 1);
    for _ in 0..2 {
        producer.poll();
        producer.advance(1000);
    }
    producer.poll();
    let kind = &producer.error(1).kind;
    assert!(matches!(kind, ProduceErrorKind::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }));
}

/// librdkafka's test 0107: a flush waited for records of partitions that will never exist again.
#[test]
fn records_of_a_partition_that_a_topic_created_again_lacks_fail_at_once() {
    let mut producer = Producer::with_id(2, &[]);
    producer.world.leaders.clear();
    producer.produce(0, 1);
    producer.poll();
    producer.world.topic = Some(TopicState { error: ErrorCode::None, partitions: 0, responses: 1 });
    producer.core.on_topic_recreated(harness::TOPIC, 100);
    producer.advance(100);
    producer.poll();
    assert!(!producer.outcomes.contains_key(&1), "its partition may only be missing in old metadata");
    producer.produce(1, 2);
    producer.core.on_topic_recreated(harness::TOPIC, 1);
    producer.advance(100);
    producer.poll();
    let kind = &producer.error(2).kind;
    assert!(matches!(kind, ProduceErrorKind::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }));
    assert!(!producer.outcomes.contains_key(&1));
}

#[test]
fn an_answer_about_a_deleted_topic_says_nothing_about_the_new_one() {
    let mut producer = known_producer(&[]);
    producer.produce(0, 1);
    producer.poll();
    producer.core.on_topic_recreated(harness::TOPIC, 100);
    producer.respond(ErrorCode::None);
    // The new topic's broker has acknowledged nothing: one batch at a time.
    producer.produce_full(0, &[2], 100);
    producer.produce_full(0, &[3], 100);
    producer.poll();
    assert_eq!(producer.in_flight(), [[2]]);
}

#[test]
fn a_broker_without_zstd_refuses_the_zstd_batches_only() {
    let mut producer = Producer::with_id(2, &[]);
    let mut zstd = Config::default();
    zstd.set("compression.codec", "zstd").expect("a codec");
    producer.core.partitions[0].config = Arc::new(zstd);
    producer.produce_full(0, &[1], 1000);
    producer.produce_full(1, &[2], 1000);
    producer.poll();
    let request = producer.sent.pop_front().expect("a request");
    assert_eq!(request.batches.len(), 2);
    let error = Error::Unsupported { address: "node 1".into(), reason: "zstd".into() };
    producer.finish(&request, RequestOutcome::NotSent(error));
    assert!(matches!(producer.error(1).kind, ProduceErrorKind::Request(_)));
    producer.advance(2000);
    producer.poll();
    assert_eq!(producer.in_flight(), [[2]]);
}

#[test]
fn batches_leave_in_the_order_in_which_they_were_filled_whatever_the_worker_returns_first() {
    let properties = [("compression.codec", "lz4"), ("enable.idempotence", "false")];
    let mut producer = Producer::with_worker(1, &properties, true);
    producer.produce_full(0, &[1], 100_000);
    producer.produce_full(0, &[2], 100_000);
    producer.poll();
    assert!(producer.sent.is_empty(), "the worker has both");
    producer.compressed(1);
    producer.poll();
    assert!(producer.sent.is_empty(), "batch 2 waits for batch 1");
    producer.compressed(0);
    producer.poll();
    producer.advance(1000);
    producer.poll();
    assert_eq!(producer.in_flight(), [[1], [2]]);
}

#[test]
fn a_purge_fails_queued_records_at_once_and_compressed_ones_when_they_return() {
    let properties = [("compression.codec", "lz4"), ("enable.idempotence", "false")];
    let mut producer = Producer::with_worker(1, &properties, true);
    producer.produce_full(0, &[1], 100_000);
    producer.poll();
    producer.produce(0, 2);
    producer.purge(Purge { queued: true, in_flight: false });
    assert!(matches!(producer.error(2).kind, ProduceErrorKind::Purged { in_flight: false }));
    assert!(!producer.outcomes.contains_key(&1));
    producer.compressed(0);
    assert!(matches!(producer.error(1).kind, ProduceErrorKind::Purged { in_flight: false }));
}

/// The error said that the application had purged the record.
#[test]
fn a_batch_in_the_worker_fails_for_the_reason_of_the_records_behind_it() {
    let properties = [("compression.codec", "lz4"), ("enable.idempotence", "false")];
    let mut producer = Producer::with_worker(1, &properties, true);
    producer.produce_full(0, &[1], 100_000);
    producer.poll();
    producer.produce(0, 2);
    producer.poll_with(Permission::Denied(ProduceErrorKind::Fatal("fenced".into())));
    producer.compressed(0);
    for id in 1..=2 {
        assert!(matches!(producer.error(id).kind, ProduceErrorKind::Fatal(_)), "{:?}", producer.error(id));
    }
}

#[test]
fn a_purge_of_requests_fails_their_records_and_ignores_the_response() {
    let mut producer = Producer::with_id(1, &[]);
    producer.produce(0, 1);
    producer.poll();
    producer.purge(Purge { queued: false, in_flight: true });
    let error = producer.error(1);
    assert_eq!(error.persisted, Persisted::PossiblyWritten);
    assert!(matches!(error.kind, ProduceErrorKind::Purged { in_flight: true }));
    producer.respond(ErrorCode::None);
}

#[test]
fn in_a_transaction_partitions_are_added_before_their_batches_are_sent() {
    let mut producer = Producer::new(1, &[("transactional.id", "t")]);
    producer.produce(0, 1);
    producer.poll_with(open_transaction(1, None, true));
    assert_eq!(producer.prepared, [Vec::<usize>::new()], "the epoch comes first");
    producer.core.on_partitions_added(Vec::new());
    producer.poll_with(open_transaction(1, Some(3), true));
    assert_eq!((producer.prepared.len(), producer.sent.len()), (2, 0));
    assert_eq!(producer.prepared[1], [0]);
    producer.core.on_partitions_added(vec![0]);
    producer.poll_with(open_transaction(1, Some(3), true));
    assert_eq!(producer.in_flight(), [[1]]);
    let request = &producer.sent[0];
    assert_eq!((request.version_max, request.batches[0].header.producer_epoch), (11, 3));
}

#[test]
fn the_next_transaction_adds_its_partitions_again() {
    let mut producer = Producer::new(1, &[("transactional.id", "t")]);
    for serial in 1..=2 {
        producer.produce(0, u128::from(serial));
        producer.poll_with(open_transaction(serial, Some(0), true));
        assert_eq!(producer.prepared.last(), Some(&vec![0]));
        assert_eq!(producer.prepared.len(), serial as usize);
        producer.core.on_partitions_added(vec![0]);
        producer.poll_with(open_transaction(serial, Some(0), true));
        producer.respond(ErrorCode::None);
    }
}

#[test]
fn records_outside_a_transaction_fail_with_the_reason() {
    let mut producer = Producer::new(1, &[("transactional.id", "t")]);
    producer.produce(0, 1);
    producer.poll_with(Permission::Denied(ProduceErrorKind::Closed));
    assert!(matches!(producer.error(1).kind, ProduceErrorKind::Closed));
    assert!(!producer.core.is_active());
}

#[test]
fn closing_fails_everything_that_is_left_once() {
    let mut producer = known_producer(&[]);
    for id in 1..=2 {
        producer.produce_full(0, &[id], 100);
    }
    producer.poll();
    producer.lose();
    producer.close();
    for id in 1..=2 {
        let error = producer.error(id);
        assert!(matches!(error.kind, ProduceErrorKind::Closed));
        assert_eq!(error.persisted, Persisted::PossiblyWritten);
    }
}

//! The core's decisions at a broker that has forgotten the producer, and so accepts any sequence number.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::produce::LeaderIdAndEpoch;

use super::harness::{Producer, response};
use super::*;

/// A producer whose broker has acknowledged record 0, at offset 100.
fn known_producer() -> Producer {
    let mut producer = Producer::with_id(1, &[]);
    producer.produce(0, 0);
    producer.poll();
    producer.respond(ErrorCode::None);
    producer
}

/// The same with the records 1 and 2 in flight, each in a request of its own.
fn with_two_in_flight() -> Producer {
    let mut producer = known_producer();
    for id in 1..=2 {
        producer.produce_full(0, &[id], 100);
    }
    producer.poll();
    assert_eq!(producer.in_flight(), [[1], [2]]);
    producer
}

/// The broker refuses the sequence of record 1 with this code. The record is then written under the next epoch.
fn refuse_and_write_again(producer: &mut Producer, code: ErrorCode) {
    producer.advance(2000);
    producer.poll();
    assert_eq!(producer.respond(code).ids(), [1]);
    assert!(!producer.outcomes.contains_key(&1), "no broker has it: {:?}", producer.outcomes[&1]);
    assert_eq!(producer.epochs_raised, [(0, 1)]);
    producer.advance(2000);
    producer.poll();
    let header = &producer.sent[0].batches[0].header;
    assert_eq!((header.producer_epoch, header.base_sequence), (1, 0));
    assert_eq!(producer.respond(ErrorCode::None).ids(), [1]);
    assert_eq!(producer.outcomes[&1].as_ref().ok(), Some(&100));
}

/// It was reported as written, because the broker had acknowledged the later one.
#[test]
fn a_batch_that_was_refused_is_not_written_because_a_later_one_was_accepted() {
    for code in [
        ErrorCode::OutOfOrderSequenceNumber,
        ErrorCode::DuplicateSequenceNumber,
        ErrorCode::UnknownProducerId,
    ] {
        let mut producer = with_two_in_flight();
        assert_eq!(producer.respond(ErrorCode::NotEnoughReplicas).ids(), [1]);
        assert_eq!(producer.respond(ErrorCode::None).ids(), [2]);
        refuse_and_write_again(&mut producer, code);
    }
}

/// As in Java's client: the broker may have deleted the state of the producer with its records.
#[test]
fn a_later_batch_proves_nothing_in_a_log_without_the_last_acknowledged_one() {
    let mut producer = with_two_in_flight();
    assert_eq!(producer.respond(ErrorCode::KafkaStorageError).ids(), [1]);
    let request = producer.sent.pop_front().expect("the request of record 2");
    let no_leader = LeaderIdAndEpoch { leader_id: -1, leader_epoch: -1 };
    let mut answer = response(&request, |_| (ErrorCode::None, 102, no_leader.clone()));
    answer.responses[0].partition_responses[0].log_start_offset = 102;
    producer.finish(&request, RequestOutcome::Answered(answer));
    refuse_and_write_again(&mut producer, ErrorCode::OutOfOrderSequenceNumber);
}

/// The broker would have accepted the second batch in place of the first.
#[test]
fn an_unknown_producer_sends_its_first_batch_again_and_not_a_later_one() {
    let mut producer = with_two_in_flight();
    producer.lose();
    producer.lose();
    refuse_and_write_again(&mut producer, ErrorCode::UnknownProducerId);
    producer.poll();
    let header = &producer.sent[0].batches[0].header;
    assert_eq!((header.producer_epoch, header.base_sequence), (1, 1));
    assert_eq!(producer.respond(ErrorCode::None).ids(), [2]);
}

#[test]
fn after_a_minute_without_acknowledgements_one_batch_goes_first() {
    let mut producer = known_producer();
    producer.advance(60_000);
    for id in 1..=3 {
        producer.produce_full(0, &[id], 100);
    }
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]], "the broker may have forgotten the producer");
    producer.respond(ErrorCode::None);
    producer.poll();
    assert_eq!(producer.in_flight(), [[2], [3]]);
}

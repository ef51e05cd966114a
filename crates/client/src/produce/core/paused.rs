//! The core's decisions about partitions that the application has paused.

use ottla_protocol::ErrorCode;

use super::harness::Producer;
use super::*;

#[test]
fn nothing_is_sent_to_a_paused_partition_before_it_is_resumed() {
    let mut producer = Producer::with_id(2, &[]);
    producer.urgent = true;
    producer.world.paused.insert(0);
    producer.produce(0, 1);
    producer.produce_full(0, &[2, 3], 50_000);
    producer.produce(1, 4);
    producer.poll();
    assert_eq!(producer.in_flight(), [[4]], "the other partition does not wait");
    producer.respond(ErrorCode::None);
    producer.poll();
    assert!(producer.in_flight().is_empty(), "a flush does not end the pause");
    producer.world.paused.clear();
    producer.poll();
    producer.respond(ErrorCode::None);
    producer.poll();
    producer.respond(ErrorCode::None);
    assert!((1..=4).all(|id| producer.outcomes[&id].is_ok()), "{:?}", producer.outcomes);
}

#[test]
fn a_batch_that_must_be_sent_again_waits_for_the_end_of_the_pause() {
    let mut producer = Producer::with_id(1, &[("retry.backoff.ms", "10")]);
    producer.produce(0, 1);
    producer.poll();
    producer.world.paused.insert(0);
    producer.respond(ErrorCode::NotEnoughReplicas);
    producer.advance(1000);
    producer.poll();
    assert!(producer.in_flight().is_empty());
    producer.world.paused.clear();
    producer.poll();
    assert_eq!(producer.in_flight(), [[1]]);
}

#[test]
fn records_of_a_paused_partition_expire() {
    let mut producer = Producer::with_id(1, &[("delivery.timeout.ms", "1000")]);
    producer.world.paused.insert(0);
    producer.produce(0, 1);
    producer.poll();
    producer.advance(999);
    producer.poll();
    assert!(producer.outcomes.is_empty(), "{:?}", producer.outcomes);
    producer.advance(200);
    producer.poll();
    assert!(matches!(producer.error(1).kind, ProduceErrorKind::TimedOut { .. }), "{}", producer.error(1));
    assert!(producer.in_flight().is_empty());
}

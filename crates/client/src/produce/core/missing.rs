//! The core's decisions about partitions that a leader or the metadata does not know for a while.

use ottla_protocol::ErrorCode;

use super::harness::Producer;
use super::*;

fn producer() -> Producer {
    Producer::with_id(1, &[("topic.metadata.propagation.max.ms", "1000")])
}

/// A partition without a leader, which the metadata has or not.
fn set_known(producer: &mut Producer, is_known: bool) {
    producer.world.leaders.clear();
    let partitions = usize::from(is_known);
    producer.world.topic = Some(TopicState { error: ErrorCode::None, partitions, responses: 1 });
}

/// The time counted from the first of all answers that did not know the partition: the record failed at once.
#[test]
fn another_answer_of_the_leader_ends_the_time_for_which_the_partition_is_unknown() {
    let mut producer = producer();
    producer.produce(0, 1);
    for (code, pause_ms) in [
        (ErrorCode::UnknownTopicOrPartition, 200),
        (ErrorCode::NotLeaderOrFollower, 2000),
        (ErrorCode::UnknownTopicOrPartition, 200),
    ] {
        producer.poll();
        producer.respond(code);
        producer.advance(pause_ms);
    }
    assert!(producer.outcomes.is_empty(), "{:?}", producer.outcomes);
    producer.poll();
    producer.respond(ErrorCode::None);
    assert_eq!(producer.outcomes[&1].as_ref().ok(), Some(&100));
}

/// The time counted from the first metadata without the partition, also if later metadata had it.
#[test]
fn metadata_with_the_partition_ends_the_time_for_which_it_is_missing() {
    let mut producer = producer();
    producer.produce(0, 1);
    for is_known in [false, true, false] {
        set_known(&mut producer, is_known);
        producer.poll();
        producer.advance(800);
    }
    producer.poll();
    assert!(producer.outcomes.is_empty(), "{:?}", producer.outcomes);
    producer.advance(800);
    producer.poll();
    assert!(producer.outcomes[&1].is_err());
}

/// Records long after the first one failed at once, without a chance for the topic to be created.
#[test]
fn a_record_after_one_that_failed_waits_for_its_partition_again() {
    let mut producer = producer();
    set_known(&mut producer, false);
    producer.produce(0, 1);
    producer.poll();
    producer.advance(1000);
    producer.poll();
    assert!(producer.outcomes[&1].is_err());
    producer.advance(600_000);
    producer.produce(0, 2);
    producer.poll();
    assert!(!producer.outcomes.contains_key(&2));
}

/// Each record waited for the topic as long as the first one did, and a producer of a missing topic filled its whole queue again and again.
#[test]
fn a_record_after_one_that_failed_waits_only_for_the_next_response() {
    let mut producer = producer();
    producer.world.leaders.clear();
    producer.core.partitions[0].number = -1;
    let missing = |responses| {
        let (error, partitions) = (ErrorCode::UnknownTopicOrPartition, 0);
        Some(TopicState { error, partitions, responses })
    };
    producer.world.topic = missing(1);
    producer.produce(0, 1);
    producer.poll();
    producer.advance(1000);
    producer.poll();
    assert!(producer.outcomes[&1].is_err());
    producer.produce(0, 2);
    for _ in 0..3 {
        producer.advance(100);
        producer.poll();
        assert!(!producer.outcomes.contains_key(&2), "the last response is older than the record");
    }
    producer.world.topic = missing(2);
    producer.advance(100);
    producer.poll();
    assert!(producer.outcomes[&2].is_err());
}

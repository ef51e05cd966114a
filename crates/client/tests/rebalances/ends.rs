//! The ends of partitions that are resumed or moved there.

use ottla_client::{Consumer, Event, Polled, Rebalance, StartAt, TopicPartition};

use super::{PATIENCE, broker, member, poll_until};

/// librdkafka's test 0026: a partition that is resumed at its end has an end to report, although no fetch returns anything
/// about it.
#[test]
fn a_partition_that_is_resumed_at_its_end_reports_the_end_again() {
    let broker = broker();
    let mut config = member(&broker, Rebalance::Silent);
    config.set("enable.partition.eof", "true").expect("a known property");
    let mut consumer = Consumer::new(config).expect("a consumer");
    let control = consumer.control().clone();
    let at = TopicPartition::new("orders", 0);
    control.assign(&[(at.clone(), StartAt::End)]).wait(PATIENCE).expect("assigned");
    let is_end = |polled: &Polled| matches!(polled, Polled::Event(Event::EndOfPartition { offset: 10, .. }));
    poll_until(&mut consumer, is_end);
    for _ in 0..2 {
        control.pause(std::slice::from_ref(&at));
        control.resume(std::slice::from_ref(&at));
        poll_until(&mut consumer, is_end);
    }
}

/// The broker has no answer about a partition of a session that is requested at the same offset again, and the application waited for
/// its end.
#[test]
fn a_partition_that_is_moved_to_its_end_again_reports_the_end_again() {
    let broker = broker();
    let mut config = member(&broker, Rebalance::Silent);
    config.set("enable.partition.eof", "true").expect("a known property");
    let mut consumer = Consumer::new(config).expect("a consumer");
    let control = consumer.control().clone();
    let at = TopicPartition::new("orders", 0);
    control.assign(&[(at.clone(), StartAt::End)]).wait(PATIENCE).expect("assigned");
    let is_end = |polled: &Polled| matches!(polled, Polled::Event(Event::EndOfPartition { offset: 10, .. }));
    poll_until(&mut consumer, is_end);
    // The first answer of the session comes after the fetch outside it that has reached the end, and would report the end of one seek.
    for _ in 0..3 {
        control.seek(&at, StartAt::Offset(10)).wait(PATIENCE).expect("moved");
        poll_until(&mut consumer, is_end);
    }
}

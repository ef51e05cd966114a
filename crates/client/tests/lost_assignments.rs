//! Calls of an application that does not know yet that its assignment is lost.

use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode, Fault};
use ottla_client::{Config, Consumer, Error, Event, Polled, Producer, Record, TopicPartition};

const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until `seen` returns `true`.
fn poll_until(what: &str, consumer: &mut Consumer, mut seen: impl FnMut(&Polled) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(polled) = consumer.poll_blocking(Duration::from_millis(100)).expect("no error")
            && seen(&polled)
        {
            return;
        }
    }
    panic!("not in time: {what}");
}

/// A consumer that has lost its only partition and got it again, which its application does not know yet.
fn lost_and_assigned_again() -> (BrokerThread, Consumer, TopicPartition) {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    let properties = [
        ("group.id", "billing"),
        ("auto.offset.reset", "earliest"),
        ("heartbeat.interval.ms", "50"),
        ("session.timeout.ms", "3000"),
    ];
    config.set_all(properties).expect("known properties");
    let mut consumer = Consumer::new(config).expect("a consumer");
    let control = consumer.control().clone();
    control.subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    poll_until("assigned", &mut consumer, |polled| matches!(polled, Polled::Event(Event::Assigned(_))));

    broker.cluster().intercept(ApiKey::Heartbeat, None, 1, Fault::Fail(ErrorCode::UnknownMemberId));
    let at = TopicPartition::new("orders", 0);
    let deadline = Instant::now() + PATIENCE;
    while !control.has_unseen_loss() || control.assignment() != [at.clone()] {
        assert!(Instant::now() < deadline, "it joins again without a poll");
        std::thread::sleep(Duration::from_millis(5));
    }
    (broker, consumer, at)
}

/// The pause was meant for the lost assignment, and paused the next one. An application that keeps account of its pauses by assignment
/// did not resume it, and its records were never read.
#[test]
fn a_pause_before_the_loss_is_polled_does_not_pause_the_next_assignment() {
    let (broker, mut consumer, at) = lost_and_assigned_again();
    let control = consumer.control().clone();
    control.pause(std::slice::from_ref(&at));
    poll_until("lost", &mut consumer, |polled| matches!(polled, Polled::Event(Event::Lost(_))));
    poll_until("assigned again", &mut consumer, |polled| matches!(polled, Polled::Event(Event::Assigned(_))));

    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    let delivery = producer.enqueue_blocking(Record::to("orders").value("paid")).expect("taken");
    delivery.wait(PATIENCE).expect("in time").expect("written");
    poll_until("the record is read", &mut consumer, |polled| matches!(polled, Polled::Records(_)));
    // In the assignment that the application knows, a pause has its effect.
    control.pause(std::slice::from_ref(&at));
    let delivery = producer.enqueue_blocking(Record::to("orders").value("paid")).expect("taken");
    delivery.wait(PATIENCE).expect("in time").expect("written");
    assert!(consumer.poll_blocking(Duration::from_millis(300)).expect("no error").is_none());
    control.resume(std::slice::from_ref(&at));
    poll_until("it is resumed", &mut consumer, |polled| matches!(polled, Polled::Records(_)));
}

/// The offset was that of the lost assignment. The next commit replaced a later one, which another member may have committed since.
#[test]
fn an_offset_that_is_stored_before_the_loss_is_polled_is_none_of_the_next_assignment() {
    let (_broker, mut consumer, at) = lost_and_assigned_again();
    let stored = consumer.store_offset(&at, 3);
    assert!(matches!(stored, Err(Error::NotAssigned { .. })), "{stored:?}");
    consumer.done_until(&at, 3);
    assert!(consumer.positions().is_empty(), "{:?}", consumer.positions());

    poll_until("lost", &mut consumer, |polled| matches!(polled, Polled::Event(Event::Lost(_))));
    poll_until("assigned again", &mut consumer, |polled| matches!(polled, Polled::Event(Event::Assigned(_))));
    consumer.store_offset(&at, 3).expect("of the assignment that the application knows");
    assert_eq!(consumer.positions()[&at], 3);
}

//! The core's decisions about batches whose request waits for a connection.

use ottla_protocol::ErrorCode;

use super::harness::Producer;
use super::*;
use crate::error::Persisted;
use crate::produce::Purge;

/// It failed when the attempt to connect ended: up to twenty seconds late if the broker's host was down.
#[test]
fn a_batch_that_waits_for_its_connection_expires_in_time_and_is_not_sent() {
    let mut producer = Producer::with_id(2, &[("delivery.timeout.ms", "1000")]);
    producer.world.links.insert(1, LinkState::Closed);
    producer.produce(0, 1);
    producer.advance(500);
    producer.produce(1, 2);
    producer.poll();
    let mut request = producer.outgoing.take().expect("a request");
    assert_eq!(producer.in_flight(), [[1, 2]]);
    producer.advance(600);
    producer.poll();
    let error = producer.error(1);
    assert!(matches!(&error.kind, ProduceErrorKind::TimedOut { timeout_ms: 1000, last } if last == "unsent"));
    assert_eq!(error.persisted, Persisted::NotWritten);
    assert!(!producer.outcomes.contains_key(&2), "its time is not over");
    producer.world.links.insert(1, LinkState::Open);
    assert!(producer.core.on_connected(&mut request));
    let parts = request.request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    assert_eq!(parts.map(|data| data.index).collect::<Vec<_>>(), [1]);
    producer.respond(ErrorCode::None);
    assert_eq!(producer.outcomes[&2].as_ref().ok(), Some(&100));
}

/// It stayed in its request, and was written when the broker came back.
#[test]
fn a_purge_of_the_queue_fails_a_batch_that_waits_for_its_connection() {
    let mut producer = Producer::with_id(1, &[]);
    producer.world.links.insert(1, LinkState::Closed);
    producer.produce(0, 1);
    producer.poll();
    let mut request = producer.outgoing.take().expect("a request");
    producer.purge(Purge { queued: true, in_flight: false });
    let error = producer.error(1);
    assert!(matches!(error.kind, ProduceErrorKind::Purged { in_flight: false }), "{error}");
    assert_eq!(error.persisted, Persisted::NotWritten);
    assert!(!producer.core.on_connected(&mut request), "nothing is left to send");
}

/// It was written if the connection opened after the end of the producer or the abort of its transaction.
#[test]
fn a_batch_that_waits_for_its_connection_fails_when_no_batch_may_be_sent_any_more() {
    let mut producer = Producer::with_id(1, &[]);
    producer.world.links.insert(1, LinkState::Closed);
    producer.produce(0, 1);
    producer.poll();
    let mut request = producer.outgoing.take().expect("a request");
    producer.poll_with(Permission::Denied(ProduceErrorKind::Fatal("fenced".into())));
    let error = producer.error(1);
    assert!(matches!(&error.kind, ProduceErrorKind::Fatal(reason) if reason == "fenced"), "{error}");
    assert_eq!(error.persisted, Persisted::NotWritten);
    assert!(!producer.core.on_connected(&mut request), "nothing is left to send");
}

//! The stalls of a share consumer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use ottla_client::{AcknowledgeType, AlterOptions, ConfigChange, ConfigResource, ShareConsumer};

use super::*;

/// A member of the share group `billing`, which begins with the first record.
fn sharer(broker: &BrokerThread, properties: &[(&str, &str)]) -> (Client, ShareConsumer) {
    let client = client(&broker.bootstrap_servers(), |config| {
        config.set("group.id", "billing").expect("a known property");
        config.set_all(properties.iter().copied()).expect("known properties");
    });
    let earliest = ("share.auto.offset.reset".to_owned(), ConfigChange::Set("earliest".into()));
    let changes = [(ConfigResource::group("billing"), vec![earliest])];
    let altered = run(client.admin().incremental_alter_configs(&changes, AlterOptions::default()));
    altered.expect("answered").into_iter().for_each(|(_, result)| result.expect("altered"));
    let mut consumer = client.share_consumer().expect("a group");
    run(consumer.subscribe(&["orders"])).expect("subscribed");
    (client, consumer)
}

/// A thread that polls: a share consumer fetches only for a poll.
struct Polling {
    ends: Arc<AtomicBool>,
    records: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Polling {
    fn start(mut consumer: ShareConsumer) -> Self {
        let (ends, records) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (its_end, its_records) = (ends.clone(), records.clone());
        let thread = std::thread::spawn(move || {
            while !its_end.load(Ordering::Relaxed) {
                // Errors of the group and of partitions; the watchdog reports their stalls.
                if let Ok(Some(batch)) = consumer.poll_blocking(Duration::from_millis(50)) {
                    its_records.fetch_add(batch.len(), Ordering::Relaxed);
                }
            }
        });
        Self { ends, records, thread }
    }

    /// Waits until this number of records was polled.
    fn until(&self, records: usize) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.records.load(Ordering::Relaxed) < records {
            assert!(std::time::Instant::now() < deadline, "no record in time");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic");
    }
}

#[test]
fn a_share_group_without_a_coordinator_is_a_stall() {
    let broker = broker();
    let fault = Fault::Fail(ErrorCode::CoordinatorNotAvailable);
    broker.cluster().intercept(ApiKey::FindCoordinator, None, ALWAYS, fault);
    let (client, consumer) = sharer(&broker, &[]);
    wait(&send(&client));
    let polling = Polling::start(consumer);
    let stall = said_once(&client, in_group(Cause::NoCoordinator), || {
        broker.cluster().clear_intercepts();
        polling.until(1);
    });
    assert!(stall.trying.contains("looking for the coordinator"), "{stall}");
    polling.end();
}

#[test]
fn a_share_consumer_that_is_not_authorized_is_a_stall() {
    for (api, code) in [
        (ApiKey::ShareGroupHeartbeat, ErrorCode::GroupAuthorizationFailed),
        (ApiKey::ShareFetch, ErrorCode::GroupAuthorizationFailed),
    ] {
        let broker = broker();
        broker.cluster().intercept(api, None, ALWAYS, Fault::Fail(code));
        let (client, consumer) = sharer(&broker, &[]);
        wait(&send(&client));
        let polling = Polling::start(consumer);
        let mend = || {
            broker.cluster().clear_intercepts();
            polling.until(1);
        };
        if api == ApiKey::ShareFetch {
            said_once(&client, consuming(Cause::Unauthorized), mend);
        } else {
            said_once(&client, in_group(Cause::Unauthorized), mend);
        }
        polling.end();
    }
}

#[test]
fn a_share_fetch_that_is_put_off_or_not_answered_is_a_stall() {
    let put_off = Fault::Fail(ErrorCode::ThrottlingQuotaExceeded);
    let unanswered = Fault::Delay(PATIENCE * 2);
    for (fault, times, cause) in [(put_off, ALWAYS, Cause::BackOff), (unanswered, 1, Cause::NoAnswer)] {
        let broker = broker();
        broker.cluster().intercept(ApiKey::ShareFetch, None, times, fault);
        let (client, consumer) = sharer(&broker, &[("socket.timeout.ms", "2000")]);
        wait(&send(&client));
        let polling = Polling::start(consumer);
        let stall = said_once(&client, consuming(cause), || {
            broker.cluster().clear_intercepts();
            polling.until(1);
        });
        assert!(stall.trying.contains("ShareFetch") || cause == Cause::BackOff, "{stall}");
        polling.end();
    }
}

/// The connection was closed after the patience for a response, before the throttle had ended, and the acknowledgements were lost.
#[test]
fn a_share_fetch_behind_a_throttle_is_no_stall_and_keeps_its_acknowledgements() {
    let broker = broker();
    let properties = [("share.acknowledgement.mode", "explicit"), ("fetch.wait.max.ms", "50")];
    let (client, mut consumer) = sharer(&broker, &properties);
    wait(&send(&client));
    broker.cluster().set_throttle(STALL_AFTER * 4);
    let results = consumer.acknowledgement_results();
    consumer.begin_poll().expect("begun");
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut is_acknowledged = false;
    let settled = loop {
        if let Some(batch) = consumer.take_ready().expect("no error") {
            assert!(batch.len() == 1 && !is_acknowledged, "the record is delivered once");
            consumer.acknowledge_offsets(&first(), 0..=0, AcknowledgeType::Accept).expect("delivered");
            is_acknowledged = true;
        }
        if let Some(settled) = results.try_next() {
            break settled;
        }
        assert!(std::time::Instant::now() < deadline, "the result comes");
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(settled.result.is_ok(), "{settled:?}");
    let stalls: Vec<_> = std::iter::from_fn(|| client.stalls().try_next()).collect();
    assert!(!stalls.iter().any(|report| consuming(Cause::NoAnswer)(&report.stall)), "{stalls:?}");
}

#[test]
fn a_share_consumer_without_the_leader_or_a_connection_to_it_is_a_stall() {
    let broker = broker();
    let (client, consumer) = sharer(&broker, &[]);
    wait(&send(&client));
    let polling = Polling::start(consumer);
    polling.until(1);
    assert!(broker.cluster().set_leader("orders", 0, -1));
    said_once(&client, consuming(Cause::NoLeader), || {
        assert!(broker.cluster().set_leader("orders", 0, 1));
        wait(&send(&client));
        polling.until(2);
    });
    broker.cluster().take_down(1);
    let stall = said_once(&client, consuming(Cause::NoConnection), || {
        broker.cluster().take_up(1);
        wait(&send(&client));
        polling.until(3);
    });
    assert!(stall.trying.contains("connect"), "{stall}");
    polling.end();
}

#[test]
fn records_of_a_share_group_that_nobody_polls_are_a_stall() {
    let broker = broker();
    let (client, mut consumer) = sharer(&broker, &[("max.poll.records", "1")]);
    for _ in 0..3 {
        wait(&send(&client));
    }
    // The next records are fetched ahead of the next poll.
    let first = consumer.poll_blocking(PATIENCE).expect("no error").expect("a record");
    assert_eq!(first.len(), 1);
    let stall = said_once(&client, consuming(Cause::NotPolled), || {
        for _ in 0..2 {
            consumer.poll_blocking(PATIENCE).expect("no error").expect("a record");
        }
    });
    assert!(stall.trying.contains("wait in the queue"), "{stall}");
}

#[test]
fn memory_of_a_share_group_that_the_application_does_not_let_go_of_is_a_stall() {
    let broker = broker();
    let small = [
        ("queued.max.messages.kbytes", "100"),
        ("fetch.max.bytes", "30000"),
        ("message.max.bytes", "25000"),
        ("max.poll.records", "1"),
    ];
    let (client, mut consumer) = sharer(&broker, &small);
    let value = vec![b'v'; 19_000];
    for _ in 0..20 {
        wait(&client.producer().try_enqueue(Record::to("orders").value(&value)).expect("taken"));
    }
    let mut held = Vec::new();
    while let Some(batch) = consumer.poll_blocking(STALL_AFTER * 3).expect("no error") {
        held.push(batch);
        assert!(held.len() < 20, "all of it was returned: the budget has no effect");
    }
    let count = held.len();
    let mut polling = None;
    // The poll that waits is what needs the memory.
    let stall = said_once(&client, consuming(Cause::BudgetHeld), || {
        held.clear();
        let polls = Polling::start(consumer);
        polls.until(20 - count);
        polling = Some(polls);
    });
    assert!(stall.trying.contains("dropped"), "{stall}");
    polling.expect("started").end();
}

#[test]
fn a_share_consumer_that_has_everything_is_no_stall() {
    let broker = broker();
    let (client, consumer) = sharer(&broker, &[]);
    wait(&send(&client));
    let polling = Polling::start(consumer);
    polling.until(1);
    let none = client.stalls().next_blocking(STALL_AFTER * 3);
    assert!(none.is_none(), "{none:?}");
    polling.end();
}

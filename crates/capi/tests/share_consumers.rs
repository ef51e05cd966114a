//! Share consumers through the C interface: the stories of their records, and the errors of each function.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and time")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ottla_broker::{ApiKey, Fault};
use rdkafka::client::client_interceptors::rd_kafka_interceptor_add_on_consume;
use rdkafka::client::handle::*;
use rdkafka::conf::conf_interceptors::rd_kafka_conf_interceptor_add_on_new;
use rdkafka::conf::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;
use rdkafka::share::acknowledge::*;
use rdkafka::share::close::*;
use rdkafka::share::commit::*;
use rdkafka::share::commit_callback::*;
use rdkafka::share::message_batch::*;
use rdkafka::share::open::*;
use rdkafka::share::partition_offsets::*;
use rdkafka::share::poll::*;
use rdkafka::share::security::*;
use rdkafka::share::subscription::*;

use crate::common;
use crate::common::{conf, list, new, until};
use crate::sharing::{
    ACCEPT, Cluster, Consumer, EXPLICIT, OK, REJECT, RELEASE, Seen, code_of, entries, topic_of,
};

const STATE: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR__STATE;
const INVALID: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR__INVALID_ARG;

static STATISTICS: AtomicUsize = AtomicUsize::new(0);
unsafe extern "C" fn on_statistics(_: *mut rd_kafka_t, _: *mut c_char, _: usize, _: *mut c_void) -> c_int {
    STATISTICS.fetch_add(1, Ordering::Relaxed);
    0
}

static REQUESTS: AtomicUsize = AtomicUsize::new(0);
/// Two tests count in [`REQUESTS`].
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
unsafe extern "C" fn on_request(_: *mut rd_kafka_t, _: *const c_char, _: *mut c_void) {
    REQUESTS.fetch_add(1, Ordering::Relaxed);
}

fn values(records: &[(String, i16)]) -> BTreeSet<usize> {
    records.iter().map(|(value, _)| value.parse().unwrap()).collect()
}

fn commit(consumer: &Consumer) -> Vec<(String, i32, rd_kafka_resp_err_t)> {
    let mut results = null_mut();
    // Without a limit.
    assert_eq!(code_of(unsafe { rd_kafka_share_commit_sync(consumer.0, -1, &raw mut results) }), Ok(()));
    entries(results)
}

#[test]
fn implicit_acknowledgement_accepts_the_records_of_the_last_poll() {
    let cluster = Cluster::start(1);
    cluster.produce(0, 0..10);
    let seen = Seen::default();
    let consumer = cluster.member(&[]);
    consumer.observe(&seen);
    let batch = consumer.batch();
    assert_eq!(batch.records().len(), 10);
    let first = batch.messages()[0];
    assert_eq!(topic_of(first).as_c_str(), c"orders");
    unsafe {
        assert_eq!(((*first).partition, (*first).offset), (0, 0));
        assert!(rd_kafka_messages_get(batch.0, 10).is_null(), "no such message");
        assert_eq!(rd_kafka_share_acknowledge(consumer.0, first), STATE, "polls acknowledge");
    }
    drop(batch);
    // The next poll accepts them.
    until("the acknowledgement is reported", || {
        assert!(consumer.poll(50).expect("no error").is_none());
        !seen.results.lock().unwrap().is_empty()
    });
    assert_eq!(seen.take(), [("orders".into(), 0, (0..10).collect(), OK)]);
    assert_eq!(*seen.inside.lock().unwrap(), Some(STATE), "a poll inside the callback");
    assert_eq!(commit(&consumer), [], "nothing is left to commit");
    cluster.produce(0, 10..15);
    assert_eq!(consumer.read(5).len(), 5);
    assert_eq!(commit(&consumer), [("orders".into(), 0, OK)]);
    // The consumer waits for records: the first of them may come before the others.
    let results = seen.take();
    assert!(
        results.iter().all(|(topic, partition, _, code)| (&**topic, *partition, *code) == ("orders", 0, OK))
    );
    assert_eq!(
        results.into_iter().flat_map(|(.., offsets, _)| offsets).collect::<Vec<_>>(),
        [10, 11, 12, 13, 14]
    );
    // A close releases the records of the last poll: nothing has accepted them.
    cluster.produce(0, 15..17);
    assert_eq!(consumer.read(2).len(), 2);
    assert_eq!(consumer.close(), Ok(()));
    assert_eq!(seen.take(), []);
    let other = cluster.member(&[]);
    assert_eq!(other.read(2), [("15".into(), 2), ("16".into(), 2)]);
}

#[test]
fn explicit_acknowledgements_accept_release_and_reject() {
    let cluster = Cluster::start(1);
    cluster.produce(0, 0..6);
    let seen = Seen::default();
    let consumer = cluster.member(&[EXPLICIT]);
    consumer.observe(&seen);
    let batch = consumer.batch();
    let messages = batch.messages();
    assert_eq!(messages.len(), 6);
    assert_eq!(consumer.poll(0).err(), Some(STATE), "no record is acknowledged");
    assert_eq!(commit(&consumer), [], "there is nothing to commit");
    unsafe {
        assert_eq!(rd_kafka_share_acknowledge(consumer.0, messages[0]), OK);
        assert_eq!(consumer.acknowledge(messages[0], RELEASE), OK, "replaces what was not sent");
        assert_eq!(consumer.acknowledge(messages[1], REJECT), OK);
        assert_eq!(consumer.acknowledge(messages[2], ACCEPT), OK);
        assert_eq!(rd_kafka_share_acknowledge_offset(consumer.0, c"orders".as_ptr(), 0, 3, RELEASE), OK);
    }
    assert_eq!(consumer.poll(0).err(), Some(STATE), "two records are not acknowledged");
    assert_eq!(commit(&consumer), [("orders".into(), 0, OK)]);
    assert_eq!(seen.take(), [("orders".into(), 0, vec![0, 1, 2, 3], OK)]);
    assert_eq!(consumer.acknowledge(messages[2], ACCEPT), STATE, "it was sent");
    assert_eq!(consumer.acknowledge(messages[4], ACCEPT), OK);
    assert_eq!(consumer.acknowledge(messages[5], ACCEPT), OK);
    drop(batch);
    // The poll sends the rest; what was released comes again, what was rejected does not.
    let again = consumer.batch();
    assert_eq!(again.records(), [("0".into(), 2), ("3".into(), 2)]);
    for message in again.messages() {
        assert_eq!(consumer.acknowledge(message, ACCEPT), OK);
    }
    drop(again);
    assert_eq!(code_of(unsafe { rd_kafka_share_commit_async(consumer.0) }), Ok(()));
    until("the results have come", || {
        assert!(consumer.poll(50).expect("no error").is_none());
        seen.results.lock().unwrap().len() == 2
    });
    assert_eq!(seen.take(), [("orders".into(), 0, vec![4, 5], OK), ("orders".into(), 0, vec![0, 3], OK)]);
}

#[test]
fn wrong_acknowledgements_are_refused() {
    let cluster = Cluster::start(1);
    cluster.produce(0, 0..2);
    let consumer = cluster.member(&[EXPLICIT]);
    let batch = consumer.batch();
    let first = batch.messages()[0];
    for kind in [-1, 0, 4, 9] {
        assert_eq!(consumer.acknowledge(first, kind), INVALID, "{kind}");
    }
    let by_offset = |topic: *const c_char, partition, offset, kind| unsafe {
        rd_kafka_share_acknowledge_offset(consumer.0, topic, partition, offset, kind)
    };
    let orders = c"orders".as_ptr();
    assert_eq!(by_offset(null(), 0, 0, ACCEPT), INVALID);
    assert_eq!(by_offset(orders, -1, 0, ACCEPT), INVALID);
    assert_eq!(by_offset(orders, 0, -1, ACCEPT), INVALID);
    assert_eq!(by_offset(orders, 0, 0, 7), INVALID);
    assert_eq!(by_offset(orders, 0, 1000, ACCEPT), STATE, "not delivered");
    assert_eq!(by_offset(orders, 7, 0, ACCEPT), STATE);
    assert_eq!(by_offset(c"other".as_ptr(), 0, 0, ACCEPT), STATE);
    unsafe {
        assert_eq!(rd_kafka_share_acknowledge(consumer.0, null()), INVALID);
        assert_eq!(rd_kafka_share_acknowledge_type(consumer.0, null(), ACCEPT), INVALID);
    }
    // A record is acknowledged by its offset after its message is destroyed.
    drop(batch);
    assert_eq!(by_offset(orders, 0, 0, ACCEPT), OK);
    assert_eq!(by_offset(orders, 0, 1, ACCEPT), OK);
    assert_eq!(commit(&consumer), [("orders".into(), 0, OK)]);
}

#[test]
fn two_consumers_share_the_records_of_one_partition() {
    let cluster = Cluster::start(1);
    let (one, other) =
        (cluster.member(&[("max.poll.records", "10")]), cluster.member(&[("max.poll.records", "10")]));
    let mut read = BTreeSet::new();
    let (mut of_one, mut of_other) = (0, 0);
    let mut next = 0;
    until("both get records, each once", || {
        cluster.produce(0, next..next + 10);
        next += 10;
        for (consumer, count) in [(&one, &mut of_one), (&other, &mut of_other)] {
            if let Some(batch) = consumer.poll(100).expect("no error") {
                for (value, deliveries) in batch.records() {
                    assert_eq!(deliveries, 1);
                    assert!(read.insert(value.clone()), "{value} came twice");
                    *count += 1;
                }
            }
        }
        of_one > 0 && of_other > 0
    });
}

#[test]
fn a_poll_returns_the_records_of_several_partitions() {
    let cluster = Cluster::start(3);
    let consumer = cluster.member(&[]);
    for partition in 0..3 {
        cluster.produce(partition, 0..2);
    }
    let mut partitions = BTreeSet::new();
    let mut records = 0;
    until("all records have come", || {
        if let Some(batch) = consumer.poll(100).expect("no error") {
            partitions.extend(batch.messages().into_iter().map(|message| unsafe { (*message).partition }));
            records += batch.records().len();
        }
        records == 6
    });
    assert_eq!(partitions, BTreeSet::from([0, 1, 2]));
    let committed: BTreeSet<i32> = commit(&consumer).into_iter().map(|(_, partition, _)| partition).collect();
    assert!(committed.is_subset(&partitions) && !committed.is_empty(), "{committed:?}");
}

#[test]
fn a_subscription_is_a_sorted_list_of_topics() {
    let cluster = Cluster::start(1);
    let consumer = cluster.consumer(&[]);
    let subscription = || {
        let mut topics = null_mut();
        assert_eq!(unsafe { rd_kafka_share_subscription(consumer.0, &raw mut topics) }, OK);
        entries(topics).into_iter().map(|(topic, partition, _)| (topic, partition)).collect::<Vec<_>>()
    };
    assert_eq!(subscription(), []);
    assert_eq!(consumer.poll(0).err(), Some(STATE), "not subscribed");
    assert_eq!(consumer.subscribe(&[c"z", c"orders", c"a"]), OK);
    assert_eq!(subscription(), [("a".into(), -1), ("orders".into(), -1), ("z".into(), -1)]);
    assert_eq!(consumer.subscribe(&[c"orders", c"orders"]), INVALID);
    assert_eq!(consumer.subscribe(&[c""]), INVALID);
    assert_eq!(subscription().len(), 3, "refused lists change nothing");
    unsafe {
        assert_eq!(rd_kafka_share_subscribe(consumer.0, null()), INVALID);
        assert_eq!(rd_kafka_share_subscription(consumer.0, null_mut()), INVALID);
        assert_eq!(rd_kafka_share_unsubscribe(consumer.0), OK);
        assert_eq!(subscription(), []);
        let topics = list(&[(c"orders", 3)]);
        assert_eq!(rd_kafka_share_subscribe(consumer.0, topics), OK);
        rd_kafka_topic_partition_list_destroy(topics);
    }
    assert_eq!(subscription(), [("orders".into(), 3)], "the partition is remembered and has no effect");
    assert_eq!(consumer.subscribe(&[]), OK, "an empty list ends the subscription");
    assert_eq!(subscription(), []);
}

#[test]
fn a_closed_consumer_refuses_calls() {
    let cluster = Cluster::start(1);
    cluster.produce(0, 0..3);
    let seen = Seen::default();
    let consumer = cluster.member(&[EXPLICIT]);
    consumer.observe(&seen);
    let batch = consumer.batch();
    let messages = batch.messages();
    assert_eq!(consumer.acknowledge(messages[0], ACCEPT), OK);
    unsafe {
        assert_eq!(rd_kafka_share_consumer_closed(consumer.0), 0);
        assert_eq!(consumer.close(), Ok(()));
        assert_eq!(seen.take(), [("orders".into(), 0, vec![0], OK)], "a close sends acknowledgements");
        assert_eq!(rd_kafka_share_consumer_closed(consumer.0), 1);
        assert_eq!(consumer.close(), Err(STATE));
        assert_eq!(consumer.poll(0).err(), Some(STATE));
        assert_eq!(consumer.subscribe(&[c"orders"]), STATE);
        assert_eq!(rd_kafka_share_unsubscribe(consumer.0), STATE);
        let mut topics = null_mut();
        assert_eq!(rd_kafka_share_subscription(consumer.0, &raw mut topics), STATE);
        assert_eq!(rd_kafka_share_acknowledge(consumer.0, messages[1]), STATE);
        let mut results = null_mut();
        assert_eq!(code_of(rd_kafka_share_commit_sync(consumer.0, 10, &raw mut results)), Err(STATE));
        assert_eq!(code_of(rd_kafka_share_commit_async(consumer.0)), Err(STATE));
        let removed = rd_kafka_share_set_acknowledgement_commit_cb(consumer.0, None, null_mut());
        assert_eq!(code_of(removed), Err(STATE));
        assert_eq!(code_of(rd_kafka_share_consumer_close_queue(consumer.0, null_mut())), Err(STATE));
    }
    drop(consumer);
    assert_eq!(batch.records().len(), 3, "messages outlive their consumer");
    assert_eq!(topic_of(batch.messages()[2]).as_c_str(), c"orders");
    // The close has released the other two.
    assert_eq!(cluster.member(&[]).read(2), [("1".into(), 2), ("2".into(), 2)]);
}

#[test]
fn a_destroyed_consumer_sends_acknowledgements_unless_it_is_not_to_close() {
    let cluster = Cluster::start(1);
    cluster.produce(0, 0..2);
    let seen = Seen::default();
    let mut consumer = cluster.member(&[EXPLICIT]);
    consumer.observe(&seen);
    let messages = consumer.batch();
    assert_eq!(consumer.acknowledge(messages.messages()[0], ACCEPT), OK);
    assert_eq!(code_of(unsafe { rd_kafka_share_destroy(consumer.0) }), Ok(()));
    assert_eq!(seen.take(), [("orders".into(), 0, vec![0], OK)]);
    consumer.0 = null_mut();

    let mut next = cluster.member(&[EXPLICIT]);
    assert_eq!(next.batch().records(), [("1".into(), 2)]);
    let flags = RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE;
    assert_eq!(code_of(unsafe { rd_kafka_share_destroy_flags(next.0, flags) }), Ok(()));
    next.0 = null_mut();
    let last = cluster.member(&[]);
    assert!(last.poll(500).expect("no error").is_none(), "the record is locked");
}

#[test]
fn a_consumer_closes_while_the_application_polls_a_queue() {
    let cluster = Cluster::start(1);
    cluster.produce(0, 0..2);
    let seen = Seen::default();
    let consumer = cluster.member(&[EXPLICIT]);
    consumer.observe(&seen);
    let batch = consumer.batch();
    assert_eq!(consumer.acknowledge(batch.messages()[0], ACCEPT), OK);
    let rk = new(RD_KAFKA_CONSUMER, conf(&[]));
    unsafe {
        let queue = rd_kafka_queue_new(rk);
        assert_eq!(code_of(rd_kafka_share_consumer_close_queue(consumer.0, null_mut())), Err(INVALID));
        assert_eq!(code_of(rd_kafka_share_consumer_close_queue(consumer.0, queue)), Ok(()));
        assert_eq!(consumer.poll(0).err(), Some(STATE), "it is closing");
        until("it is closed", || {
            assert!(rd_kafka_queue_poll(queue, 10).is_null());
            rd_kafka_share_consumer_closed(consumer.0) == 1
        });
        // The queue runs the callback.
        assert!(rd_kafka_queue_poll(queue, 0).is_null());
        assert_eq!(seen.take(), [("orders".into(), 0, vec![0], OK)]);
        drop(consumer);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn one_thread_at_a_time_uses_a_consumer() {
    let cluster = Cluster::start(1);
    let consumer = cluster.member(&[]);
    let address = consumer.0.addr();
    std::thread::scope(|scope| {
        let polling = scope.spawn(move || {
            let consumer = std::mem::ManuallyDrop::new(Consumer(std::ptr::without_provenance_mut(address)));
            loop {
                match consumer.poll(3000) {
                    // The first thread was inside a function.
                    Err(RD_KAFKA_RESP_ERR__CONFLICT) => {}
                    other => return other.map(|batch| batch.is_none()),
                }
            }
        });
        let conflict = RD_KAFKA_RESP_ERR__CONFLICT;
        until("the other thread polls", || consumer.poll(0).err() == Some(conflict));
        assert_eq!(consumer.subscribe(&[c"orders"]), conflict);
        assert_eq!(consumer.close(), Err(conflict));
        assert_eq!(code_of(unsafe { rd_kafka_share_destroy(consumer.0) }), Err(conflict));
        assert_eq!(unsafe { rd_kafka_share_consumer_closed(consumer.0) }, 0);
        assert_eq!(polling.join().unwrap(), Ok(true));
    });
    assert!(consumer.poll(0).expect("the other call has ended").is_none());
}

#[test]
fn a_configuration_that_no_share_consumer_can_have_is_refused() {
    let refused = |properties: &[(&str, &str)]| {
        let conf = conf(properties);
        let mut text = [0; 512];
        unsafe {
            assert!(rd_kafka_share_consumer_new(conf, text.as_mut_ptr(), text.len()).is_null());
            // The application keeps the configuration.
            rd_kafka_conf_destroy(conf);
            CStr::from_ptr(text.as_ptr()).to_str().unwrap().to_owned()
        }
    };
    for (name, value) in
        [("auto.offset.reset", "earliest"), ("enable.auto.commit", "false"), ("group.protocol", "consumer")]
    {
        let text = refused(&[("group.id", "g"), (name, value)]);
        assert!(text.contains(name), "{text}");
    }
    let text = refused(&[("group.id", "g"), ("share.acknowledgement.mode", "nonsense")]);
    assert!(text.contains("nonsense") && text.contains("explicit"), "{text}");
    let mut text = [0; 512];
    assert!(unsafe { rd_kafka_share_consumer_new(null_mut(), text.as_mut_ptr(), text.len()) }.is_null());
    assert_ne!(text[0], 0);
}

unsafe extern "C" fn add_interceptor(
    rk: *mut rd_kafka_t,
    _conf: *const rd_kafka_conf_t,
    code: *mut c_void,
    _text: *mut c_char,
    _len: usize,
) -> rd_kafka_resp_err_t {
    let added = unsafe { rd_kafka_interceptor_add_on_consume(rk, c"any".as_ptr(), None, null_mut()) };
    unsafe { *code.cast() = added };
    RD_KAFKA_RESP_ERR_NO_ERROR
}

/// librdkafka's test 0180.
#[test]
fn a_share_consumer_takes_no_interceptors_of_its_client() {
    let conf = conf(&[("bootstrap.servers", "127.0.0.1:1"), ("group.id", "g")]);
    let mut code = RD_KAFKA_RESP_ERR_NO_ERROR;
    unsafe {
        let result = (&raw mut code).cast();
        rd_kafka_conf_interceptor_add_on_new(conf, c"any".as_ptr(), Some(add_interceptor), result);
    }
    drop(Consumer::of(conf));
    assert_eq!(code, RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED);
}

#[test]
fn without_a_group_there_is_nothing_to_subscribe_to() {
    let consumer = Consumer::of(conf(&[("bootstrap.servers", "127.0.0.1:1")]));
    assert_eq!(consumer.subscribe(&[c"orders"]), RD_KAFKA_RESP_ERR__UNKNOWN_GROUP);
    assert_eq!(consumer.poll(0).err(), Some(STATE));
    assert_eq!(commit(&consumer), []);
    assert_eq!(consumer.close(), Err(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP));
}

#[test]
fn null_is_refused() {
    let state = Err(STATE);
    unsafe {
        assert_eq!(Consumer(null_mut()).poll(0).err(), Some(STATE));
        assert_eq!(rd_kafka_share_subscribe(null_mut(), null()), STATE);
        assert_eq!(code_of(rd_kafka_share_commit_sync(null_mut(), 0, null_mut())), state);
        assert_eq!(code_of(rd_kafka_share_commit_async(null_mut())), state);
        assert_eq!(code_of(rd_kafka_share_consumer_close(null_mut())), state);
        assert_eq!(code_of(rd_kafka_share_destroy(null_mut())), state);
        assert_eq!(rd_kafka_share_consumer_closed(null_mut()), 0);
        // A message is not read without a share consumer: this one is not of the library (librdkafka's test 0172).
        let foreign: rd_kafka_message_t = std::mem::zeroed();
        assert_eq!(rd_kafka_share_acknowledge(null_mut(), &raw const foreign), STATE);
        assert_eq!(rd_kafka_share_acknowledge_type(null_mut(), &raw const foreign, ACCEPT), STATE);
        assert_eq!(rd_kafka_messages_count(null()), 0);
        assert!(rd_kafka_messages_get(null(), 0).is_null());
        rd_kafka_messages_destroy(null_mut());
        assert_eq!(rd_kafka_message_delivery_count(null()), 0);
        assert_eq!(rd_kafka_share_partition_offsets_list_count(null()), 0);
        assert!(rd_kafka_share_partition_offsets_list_get(null(), 0).is_null());
        rd_kafka_share_partition_offsets_list_destroy(null_mut());
        assert!(rd_kafka_share_partition_offsets_partition(null()).is_null());
        assert!(rd_kafka_share_partition_offsets_offsets(null()).is_null());
        assert_eq!(rd_kafka_share_partition_offsets_offsets_cnt(null()), 0);
        let consumer = Cluster::start(1).consumer(&[]);
        assert_eq!(code_of(rd_kafka_share_poll(consumer.0, 0, null_mut())), Err(INVALID));
        assert_eq!(code_of(rd_kafka_share_commit_sync(consumer.0, 0, null_mut())), Ok(()), "not wanted");
    }
}

/// A batch has a checked handle, and its messages are destroyed once.
#[test]
fn a_batch_is_stale_after_its_destruction() {
    let cluster = Cluster::start(1);
    cluster.produce(0, 0..3);
    let consumer = cluster.member(&[EXPLICIT]);
    let batch = consumer.batch();
    let messages = batch.messages();
    unsafe {
        // A message belongs to its batch.
        rd_kafka_message_destroy(messages[0]);
        assert_eq!(batch.records()[0], ("0".into(), 1));
        let handle = batch.0;
        drop(batch);
        assert_eq!(rd_kafka_messages_count(handle), 0);
        assert!(rd_kafka_messages_get(handle, 0).is_null());
        rd_kafka_messages_destroy(handle);
        assert_eq!(rd_kafka_message_delivery_count(messages[0]), 0, "a destroyed message");
        assert_eq!(consumer.acknowledge(messages[0], ACCEPT), INVALID, "a destroyed message");
    }
}

/// Statistics, log lines and token requests reach the application as those of other clients do.
#[test]
fn the_functions_of_the_client_run_in_polls() {
    let cluster = Cluster::start(1);
    let conf = cluster.conf(&[("statistics.interval.ms", "50"), ("log.queue", "true"), ("debug", "all")]);
    unsafe { rd_kafka_conf_set_stats_cb(conf, Some(on_statistics)) };
    let consumer = Consumer::of(conf);
    assert_eq!(consumer.subscribe(&[c"orders"]), OK);
    until("statistics come", || {
        assert!(consumer.poll(50).expect("no error").is_none());
        STATISTICS.load(Ordering::Relaxed) > 1
    });
    let rk = new(RD_KAFKA_CONSUMER, common::conf(&[]));
    unsafe {
        let queue = rd_kafka_queue_new(rk);
        assert_eq!(code_of(rd_kafka_share_set_log_queue(consumer.0, queue)), Ok(()));
        until("a line of the log comes", || {
            let event = rd_kafka_queue_poll(queue, 100);
            let found = rdkafka::queue::event::rd_kafka_event_type(event) == RD_KAFKA_EVENT_LOG;
            rdkafka::queue::event::rd_kafka_event_destroy(event);
            found
        });
        let without = cluster.consumer(&[]);
        let refused = rd_kafka_share_set_log_queue(without.0, null_mut());
        assert_eq!(code_of(refused), Err(RD_KAFKA_RESP_ERR__NOT_CONFIGURED));
        drop((without, consumer));
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn the_functions_of_sasl_are_those_of_the_client() {
    let consumer = Consumer::of(conf(&[("bootstrap.servers", "127.0.0.1:1"), ("group.id", "g")]));
    let mut text = [0; 256];
    unsafe {
        assert_eq!(
            code_of(rd_kafka_share_sasl_set_credentials(consumer.0, c"u".as_ptr(), c"p".as_ptr())),
            Ok(())
        );
        let without_name = rd_kafka_share_sasl_set_credentials(consumer.0, null(), c"p".as_ptr());
        assert_eq!(code_of(without_name), Err(INVALID));
        let enabled = rd_kafka_share_sasl_background_callbacks_enable(consumer.0);
        assert_eq!(code_of(enabled), Err(RD_KAFKA_RESP_ERR__NOT_CONFIGURED));
        assert!(rd_kafka_share_queue_get_sasl(consumer.0).is_null());
        let mut set = |handle| {
            rd_kafka_share_oauthbearer_set_token(
                handle,
                c"token".as_ptr(),
                i64::MAX,
                c"me".as_ptr(),
                null_mut(),
                0,
                text.as_mut_ptr(),
                text.len(),
            )
        };
        assert_eq!(set(consumer.0), STATE, "OAUTHBEARER is not configured");
        assert_eq!(set(null_mut()), INVALID);
        assert_eq!(rd_kafka_share_oauthbearer_set_token_failure(consumer.0, c"none".as_ptr()), STATE);
    }
}

/// A configuration without a broker, whose application is asked for tokens.
fn with_requests_for_tokens() -> *mut rd_kafka_conf_t {
    let conf = conf(&[
        ("bootstrap.servers", "127.0.0.1:1"),
        ("group.id", "g"),
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanisms", "OAUTHBEARER"),
    ]);
    unsafe { rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, Some(on_request)) };
    conf
}

/// A poll runs the callback for tokens, which sets one through the client that it gets.
#[test]
fn a_token_is_requested_in_a_poll_or_by_the_thread_for_it() {
    let _requests = ONE_AT_A_TIME.lock();
    for in_background in [false, true] {
        REQUESTS.store(0, Ordering::Relaxed);
        let conf = with_requests_for_tokens();
        unsafe {
            rd_kafka_conf_enable_sasl_queue(conf, in_background.into());
            let consumer = Consumer::of(conf);
            assert_eq!(consumer.subscribe(&[c"orders"]), OK);
            if in_background {
                let enabled = rd_kafka_share_sasl_background_callbacks_enable(consumer.0);
                assert_eq!(code_of(enabled), Ok(()));
                let queue = rd_kafka_share_queue_get_sasl(consumer.0);
                assert!(!queue.is_null());
                rd_kafka_queue_destroy(queue);
            }
            until("a token is requested", || {
                if !in_background {
                    let _ = consumer.poll(50);
                }
                REQUESTS.load(Ordering::Relaxed) > 0
            });
            let mut text = [0; 256];
            let extensions = null_mut();
            let set = rd_kafka_share_oauthbearer_set_token(
                consumer.0,
                c"token".as_ptr(),
                i64::MAX,
                c"me".as_ptr(),
                extensions,
                0,
                text.as_mut_ptr(),
                text.len(),
            );
            assert_eq!(set, OK, "{:?}", CStr::from_ptr(text.as_ptr()));
            assert_eq!(rd_kafka_share_oauthbearer_set_token_failure(consumer.0, c"none".as_ptr()), OK);
        }
    }
}

/// librdkafka's test 0022: the first poll after the creation, without a subscription, is enough.
#[test]
fn a_poll_without_a_subscription_requests_a_token() {
    let _requests = ONE_AT_A_TIME.lock();
    REQUESTS.store(0, Ordering::Relaxed);
    let consumer = Consumer::of(with_requests_for_tokens());
    assert_eq!(consumer.poll(1000).err(), Some(STATE), "it has no subscription");
    assert_eq!(REQUESTS.load(Ordering::Relaxed), 1);
}

/// After the callback is removed, results are dropped.
#[test]
fn a_removed_callback_is_not_called() {
    let cluster = Cluster::start(1);
    cluster.produce(0, 0..1);
    let seen = Seen::default();
    let consumer = cluster.member(&[]);
    consumer.observe(&seen);
    assert_eq!(consumer.read(1).len(), 1);
    unsafe {
        let removed = rd_kafka_share_set_acknowledgement_commit_cb(consumer.0, None, null_mut());
        assert_eq!(code_of(removed), Ok(()));
    }
    assert_eq!(commit(&consumer), [("orders".into(), 0, OK)]);
    assert!(consumer.poll(100).expect("no error").is_none());
    assert_eq!(seen.take(), []);
    consumer.observe(&seen);
    cluster.produce(0, 1..2);
    let read = consumer.read(1);
    assert_eq!(values(&read), BTreeSet::from([1]));
    assert_eq!(commit(&consumer), [("orders".into(), 0, OK)]);
    assert_eq!(seen.take(), [("orders".into(), 0, vec![1], OK)]);
}

#[test]
fn a_commit_without_an_answer_in_time_says_so_for_each_partition() {
    let cluster = Cluster::start(1);
    cluster.produce(0, 0..2);
    let consumer = cluster.member(&[EXPLICIT]);
    let batch = consumer.batch();
    let late = Fault::AnswerAfter(Duration::from_millis(500));
    cluster.broker.cluster().intercept(ApiKey::ShareAcknowledge, None, 1, late);
    assert_eq!(consumer.acknowledge(batch.messages()[0], ACCEPT), OK);
    let mut results = null_mut();
    assert_eq!(code_of(unsafe { rd_kafka_share_commit_sync(consumer.0, 0, &raw mut results) }), Ok(()));
    let results = entries(results);
    assert_eq!(results, [("orders".into(), 0, RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT)]);
    // The acknowledgement was sent: the next commit has the other record only.
    assert_eq!(consumer.acknowledge(batch.messages()[0], ACCEPT), STATE);
    assert_eq!(consumer.acknowledge(batch.messages()[1], ACCEPT), OK);
    assert_eq!(commit(&consumer), [("orders".into(), 0, OK)]);
}

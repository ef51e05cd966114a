//! Consumers without a rebalance function: the client applies the group's assignment, the application may change it, and queues of
//! partitions keep their partitions.

use std::net::SocketAddr;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, BrokerThread, Fault};
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::leave_group::*;
use rdkafka::consume::offsets::*;
use rdkafka::consume::simple_consumer::*;
use rdkafka::ffi::memory::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

use crate::common::{conf, list, new, produce, read, subscribe, text_of, until};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

/// A broker with three records in each of the two partitions of `orders`.
fn broker() -> BrokerThread {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
    fill(&broker, 3);
    broker
}

fn fill(broker: &BrokerThread, count: usize) {
    let servers = broker.bootstrap_servers();
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
    for value in 0..count {
        for partition in 0..2 {
            produce(rk, c"orders", partition, &value.to_string(), null_mut());
        }
    }
    assert_eq!(unsafe { rd_kafka_flush(rk, 60_000) }, OK);
    unsafe { rd_kafka_destroy(rk) };
}

fn consumer(broker: &BrokerThread, group: &str, more: &[(&str, &str)]) -> *mut rd_kafka_t {
    let servers = broker.bootstrap_servers();
    let mut properties =
        vec![("bootstrap.servers", servers.as_str()), ("group.id", group), ("auto.offset.reset", "earliest")];
    properties.extend(more);
    new(RD_KAFKA_CONSUMER, conf(&properties))
}

/// The number of assigned partitions.
fn assigned(rk: *mut rd_kafka_t) -> usize {
    unsafe {
        let mut partitions = null_mut();
        assert_eq!(rd_kafka_assignment(rk, &raw mut partitions), OK);
        let count = (*partitions).elems().len();
        rd_kafka_topic_partition_list_destroy(partitions);
        count
    }
}

/// Polls once, and drops the message.
fn poll(rk: *mut rd_kafka_t) {
    unsafe {
        let message = rd_kafka_consumer_poll(rk, 10);
        if !message.is_null() {
            rd_kafka_message_destroy(message);
        }
    }
}

/// Both partitions of `orders` from an offset.
fn both_from(offset: i64) -> *mut rd_kafka_topic_partition_list_t {
    let partitions = list(&[(c"orders", 0), (c"orders", 1)]);
    for entry in unsafe { std::slice::from_raw_parts_mut((*partitions).elems, 2) } {
        entry.offset = offset;
    }
    partitions
}

/// The member left its group, without an error, and read the partitions that the group assigned to others. Incremental changes
/// failed.
#[test]
fn an_assignment_by_a_member_without_a_rebalance_function_keeps_the_membership() {
    let broker = broker();
    let eager = [("heartbeat.interval.ms", "100"), ("partition.assignment.strategy", "range")];
    let cooperative =
        [("heartbeat.interval.ms", "100"), ("partition.assignment.strategy", "cooperative-sticky")];
    let next = [("group.protocol", "consumer")];
    for (group, properties) in [("eager", &eager[..]), ("cooperative", &cooperative), ("next", &next)] {
        let rk = consumer(&broker, group, properties);
        subscribe(rk, c"orders");
        read(rk, 6);
        let partitions = both_from(1);
        unsafe {
            if group == "eager" {
                assert_eq!(rd_kafka_assign(rk, partitions), OK);
            } else {
                assert!(rd_kafka_incremental_unassign(rk, partitions).is_null(), "{group}");
                assert!(rd_kafka_incremental_assign(rk, partitions).is_null(), "{group}");
            }
            rd_kafka_topic_partition_list_destroy(partitions);
        }
        let mut values = read(rk, 4);
        values.sort();
        assert_eq!(values, ["1", "1", "2", "2"], "{group}");

        let second = consumer(&broker, group, properties);
        subscribe(second, c"orders");
        until(&format!("{group}: each has one partition"), || {
            [rk, second].into_iter().for_each(poll);
            (assigned(rk), assigned(second)) == (1, 1)
        });
        for rk in [second, rk] {
            unsafe { rd_kafka_destroy(rk) };
        }
    }
}

/// The offsets of the next messages of a queue. The consumer itself has none.
fn offsets_in(rk: *mut rd_kafka_t, queue: *mut rd_kafka_queue_t, count: usize) -> Vec<i64> {
    let mut offsets = Vec::new();
    until("the messages of the queue", || unsafe {
        assert!(rd_kafka_consumer_poll(rk, 1).is_null());
        let message = rd_kafka_consume_queue(queue, 10);
        if !message.is_null() {
            assert_eq!((*message).err, OK);
            offsets.push((*message).offset);
            rd_kafka_message_destroy(message);
        }
        offsets.len() == count
    });
    offsets
}

/// The queues had no records. Polls of the consumer returned them, as if its partitions had no queue.
#[test]
fn a_partition_queue_that_was_taken_before_the_assignment_gets_its_records() {
    let broker = broker();
    let rk = consumer(&broker, "early", &[]);
    unsafe {
        let first = rd_kafka_queue_get_partition(rk, c"orders".as_ptr(), 0);
        let second = rd_kafka_queue_get_partition(rk, c"orders".as_ptr(), 1);
        let own = rd_kafka_queue_new(rk);
        rd_kafka_queue_forward(first, null_mut());
        rd_kafka_queue_forward(second, own);
        subscribe(rk, c"orders");
        for queue in [first, own] {
            assert_eq!(offsets_in(rk, queue, 3), [0, 1, 2]);
        }
        // The same partitions are assigned once more.
        assert_eq!(rd_kafka_unsubscribe(rk), OK);
        until("the end of the assignment", || assigned(rk) == 0);
        fill(&broker, 1);
        subscribe(rk, c"orders");
        for queue in [first, own] {
            assert_eq!(offsets_in(rk, queue, 1), [3]);
        }
        for queue in [first, second, own] {
            rd_kafka_queue_destroy(queue);
        }
        rd_kafka_destroy(rk);
    }
}

/// A consumer, and the address of its broker, which does not run yet.
fn consumer_without_a_broker() -> (*mut rd_kafka_t, SocketAddr) {
    // A port that was free a moment ago, without a listener.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let servers = address.to_string();
    let properties = conf(&[
        ("bootstrap.servers", servers.as_str()),
        ("group.id", "g"),
        ("auto.offset.reset", "earliest"),
        ("reconnect.backoff.max.ms", "200"),
    ]);
    (new(RD_KAFKA_CONSUMER, properties), address)
}

/// The call waited for the coordinator, and assigned nothing when that failed.
#[test]
fn an_assignment_without_a_coordinator_returns_at_once_and_reads_later() {
    let (rk, address) = consumer_without_a_broker();
    let partitions = list(&[(c"orders", 0), (c"orders", 1)]);
    let begun = Instant::now();
    assert_eq!(unsafe { rd_kafka_assign(rk, partitions) }, OK);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(assigned(rk), 2);

    let broker = Broker::builder().memory().topic("orders", 2).listen(address).spawn().unwrap();
    fill(&broker, 3);
    let mut values = read(rk, 6);
    values.sort();
    assert_eq!(values, ["0", "0", "1", "1", "2", "2"]);
    unsafe {
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(rk);
    }
}

/// The call waited for the commit, and with it all other calls: the member id was NULL.
#[test]
fn giving_partitions_up_does_not_wait_for_their_commit() {
    let broker = broker();
    let rk = consumer(&broker, "slow", &[("auto.commit.interval.ms", "3600000")]);
    subscribe(rk, c"orders");
    read(rk, 6);
    broker.cluster().intercept(ApiKey::OffsetCommit, None, 1, Fault::Delay(Duration::from_secs(8)));
    let begun = Instant::now();
    unsafe {
        assert_eq!(rd_kafka_assign(rk, std::ptr::null()), OK);
        let id = rd_kafka_memberid(rk);
        assert!(!id.is_null());
        rd_kafka_mem_free(rk, id.cast());
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(assigned(rk), 0);

    // The next assignment continues from the offsets of that commit.
    fill(&broker, 1);
    let partitions = both_from(RD_KAFKA_OFFSET_INVALID);
    unsafe {
        assert_eq!(rd_kafka_assign(rk, partitions), OK);
        read(rk, 2);
        assert_eq!(rd_kafka_position(rk, partitions), OK);
        assert!((*partitions).elems().iter().all(|entry| entry.offset == 4));
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(rk);
    }
}

/// The call waited for the coordinator, and failed.
#[test]
fn a_start_at_the_stored_offset_does_not_wait_for_the_coordinator() {
    let (rk, address) = consumer_without_a_broker();
    unsafe {
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let begun = Instant::now();
        assert_eq!(rd_kafka_consume_start(rkt, 0, RD_KAFKA_OFFSET_STORED), 0);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());

        let broker = Broker::builder().memory().topic("orders", 2).listen(address).spawn().unwrap();
        fill(&broker, 3);
        let mut values = Vec::new();
        until("the records", || {
            let message = rd_kafka_consume(rkt, 0, 100);
            if !message.is_null() {
                if (*message).err == OK {
                    values.push(text_of(message));
                }
                rd_kafka_message_destroy(message);
            }
            values.len() == 3
        });
        assert_eq!(values, ["0", "1", "2"]);
        assert_eq!(rd_kafka_consume_stop(rkt, 0), 0);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
}

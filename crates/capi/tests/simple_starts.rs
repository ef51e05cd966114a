//! Partitions that a simple consumer starts and stops.

use std::ptr::null_mut;

use ottla_broker::{Broker, BrokerThread};
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::consume::simple_consumer::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::produce::flush::*;

use crate::common::{conf, new, produce};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

/// A broker with five records in partition 0 of `orders`, and a consumer without a group.
struct Stage {
    _broker: BrokerThread,
    rk: *mut rd_kafka_t,
    orders: *mut rd_kafka_topic_t,
}

impl Stage {
    fn new() -> Self {
        let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
        let servers = broker.bootstrap_servers();
        let properties = [("bootstrap.servers", servers.as_str()), ("auto.offset.reset", "earliest")];
        let producer = new(RD_KAFKA_PRODUCER, conf(&properties[..1]));
        for value in ["zero", "one", "two", "three", "four"] {
            produce(producer, c"orders", 0, value, null_mut());
        }
        assert_eq!(unsafe { rd_kafka_flush(producer, 60_000) }, OK);
        unsafe { rd_kafka_destroy(producer) };
        let rk = new(RD_KAFKA_CONSUMER, conf(&properties));
        let orders = unsafe { rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut()) };
        Self { _broker: broker, rk, orders }
    }

    fn start(&self, offset: i64) {
        assert_eq!(unsafe { rd_kafka_consume_start(self.orders, 0, offset) }, 0, "{offset}");
    }

    /// Returns the offset of the next record.
    fn next(&self) -> i64 {
        unsafe {
            let message = rd_kafka_consume(self.orders, 0, 60_000);
            assert!(!message.is_null());
            assert_eq!((*message).err, OK);
            let offset = (*message).offset;
            rd_kafka_message_destroy(message);
            offset
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        unsafe {
            rd_kafka_topic_destroy(self.orders);
            rd_kafka_destroy(self.rk);
        }
    }
}

/// It kept its first position.
#[test]
fn a_second_start_moves_a_running_partition() {
    let stage = Stage::new();
    stage.start(1);
    assert_eq!((stage.next(), stage.next()), (1, 2));
    stage.start(4);
    assert_eq!(stage.next(), 4);
    stage.start(RD_KAFKA_OFFSET_BEGINNING);
    assert_eq!((stage.next(), stage.next()), (0, 1));
    stage.start(RD_KAFKA_OFFSET_TAIL_BASE - 2);
    assert_eq!(stage.next(), 3);
    // A start that is refused does not move it.
    for refused in [-7, RD_KAFKA_OFFSET_STORED] {
        assert_eq!(unsafe { rd_kafka_consume_start(stage.orders, 0, refused) }, -1);
        assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR__INVALID_ARG);
    }
    assert_eq!(stage.next(), 4);
}

/// It was one of an unknown partition, as that of a partition which the topic does not have.
#[test]
fn a_partition_that_was_never_started_can_be_stopped() {
    let stage = Stage::new();
    stage.start(0);
    assert_eq!(stage.next(), 0);
    unsafe {
        assert_eq!(rd_kafka_consume_stop(stage.orders, 1), 0);
        assert_eq!(rd_kafka_last_error(), OK);
        assert_eq!(rd_kafka_consume_stop(stage.orders, 9), -1);
        assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
        for _ in 0..2 {
            assert_eq!(rd_kafka_consume_stop(stage.orders, 0), 0);
        }
    }
}

/// It was refused, and without an offset it looked for a committed one.
#[test]
fn a_seek_takes_each_logical_offset_but_the_stored_one() {
    let stage = Stage::new();
    let seek = |offset| unsafe { rd_kafka_seek(stage.orders, 0, offset, 60_000) };
    stage.start(3);
    assert_eq!(stage.next(), 3);
    // By `auto.offset.reset`.
    assert_eq!(seek(RD_KAFKA_OFFSET_INVALID), OK);
    assert_eq!(stage.next(), 0);
    // More records before the end than there are.
    assert_eq!(seek(i64::MIN), OK);
    assert_eq!(stage.next(), 0);
    assert_eq!(seek(RD_KAFKA_OFFSET_STORED), RD_KAFKA_RESP_ERR__INVALID_ARG);
    // The record with the newest timestamp.
    assert_eq!(seek(-3), OK);
    let newest = stage.next();
    assert!((0..5).contains(&newest), "{newest}");
    for offset in [-7, -1500] {
        assert_eq!(seek(offset), OK, "{offset}");
    }
}

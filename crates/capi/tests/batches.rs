//! `rd_kafka_produce_batch`.

use std::ptr::null_mut;
use std::time::Duration;

use ottla_broker::{ApiKey, Broker, Fault};
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::consume::offsets::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;

use crate::common::{conf, new, produce};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

/// A message for a partition, with a value that the test keeps.
fn message(partition: i32, value: &[u8]) -> rd_kafka_message_t {
    rd_kafka_message_t {
        err: OK,
        rkt: null_mut(),
        partition,
        payload: value.as_ptr().cast_mut().cast(),
        len: value.len(),
        key: null_mut(),
        key_len: 0,
        offset: 0,
        _private: null_mut(),
    }
}

/// Sends the messages to their own partitions: the number that was taken, and the error of each.
fn batch(orders: *mut rd_kafka_topic_t, mut messages: Vec<rd_kafka_message_t>) -> (i32, Vec<i32>) {
    let flags = RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_PARTITION;
    let count = i32::try_from(messages.len()).unwrap();
    let taken =
        unsafe { rd_kafka_produce_batch(orders, RD_KAFKA_PARTITION_UA, flags, messages.as_mut_ptr(), count) };
    (taken, messages.iter().map(|message| message.err).collect())
}

/// The last one, which is small enough, was taken.
#[test]
fn a_full_queue_fails_the_rest_of_a_batch() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let properties = [("bootstrap.servers", servers.as_str()), ("queue.buffering.max.kbytes", "1024")];
    let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
    // From then on the producer knows the partitions.
    produce(rk, c"orders", 0, "first", null_mut());
    unsafe {
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        let orders = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Delay(Duration::from_secs(2)));
        let large = vec![b'x'; 600_000];
        let full = RD_KAFKA_RESP_ERR__QUEUE_FULL;
        let sent = batch(orders, vec![message(0, &large), message(0, &large), message(1, b"small")]);
        assert_eq!(sent, (1, vec![OK, full, full]));
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        for (partition, expected) in [(0, 2), (1, 0)] {
            let (mut low, mut high) = (0, 0);
            let topic = c"orders".as_ptr();
            let asked =
                rd_kafka_query_watermark_offsets(rk, topic, partition, &raw mut low, &raw mut high, 60_000);
            assert_eq!((asked, high), (OK, expected));
        }
        // The next batch is taken again.
        assert_eq!(batch(orders, vec![message(1, b"small")]), (1, vec![OK]));
        rd_kafka_topic_destroy(orders);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_producer_with_a_fatal_error_takes_nothing_of_a_batch() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
    unsafe {
        let orders = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let cause = RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
        assert_eq!(rd_kafka_test_fatal_error(rk, cause, c"a test".as_ptr()), OK);
        let fatal = RD_KAFKA_RESP_ERR__FATAL;
        assert_eq!(batch(orders, vec![message(0, b"paid"), message(0, b"sent")]), (0, vec![fatal; 2]));
        assert_eq!((rd_kafka_last_error(), rd_kafka_errno()), (fatal, libc::ECANCELED));
        rd_kafka_topic_destroy(orders);
        rd_kafka_destroy(rk);
    }
}

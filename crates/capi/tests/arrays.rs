//! `rd_kafka_consume_batch_queue`: the partitions of an array's messages change while the call waits for more.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and time")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ptr::null_mut;
use std::thread::JoinHandle;

use ottla_broker::{Broker, BrokerThread};
use rdkafka::client::handle::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::offsets::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

use crate::common::{conf, list, new, produce, until};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;
/// Records in each of the two partitions.
const RECORDS: usize = 4;

/// A consumer with both partitions of a topic assigned.
struct Consumer {
    rk: *mut rd_kafka_t,
    queue: *mut rd_kafka_queue_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    _broker: BrokerThread,
}

impl Consumer {
    fn new(auto_commit: &str) -> Self {
        let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
        let servers = broker.bootstrap_servers();
        let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
        for value in 0..RECORDS {
            for partition in 0..2 {
                produce(producer, c"orders", partition, &value.to_string(), null_mut());
            }
        }
        assert_eq!(unsafe { rd_kafka_flush(producer, 60_000) }, OK);
        unsafe { rd_kafka_destroy(producer) };
        let properties = [
            ("bootstrap.servers", servers.as_str()),
            ("group.id", "g"),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", auto_commit),
        ];
        let rk = new(RD_KAFKA_CONSUMER, conf(&properties));
        let partitions = list(&[(c"orders", 0), (c"orders", 1)]);
        let queue = unsafe { rd_kafka_queue_get_consumer(rk) };
        assert_eq!(unsafe { rd_kafka_assign(rk, partitions) }, OK);
        Self { rk, queue, partitions, _broker: broker }
    }

    /// Fills an array for ten messages in another thread, and waits until it has all records. Two places stay free.
    fn fill_array(&self) -> JoinHandle<Vec<(i32, i64)>> {
        let queue = self.queue.expose_provenance();
        let filling = std::thread::spawn(move || read_array(queue, 3000));
        until("the array has all records", || unsafe {
            assert_eq!(rd_kafka_position(self.rk, self.partitions), OK);
            let elems = std::slice::from_raw_parts((*self.partitions).elems, 2);
            elems.iter().all(|elem| elem.offset == RECORDS as i64)
        });
        filling
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        unsafe {
            rd_kafka_topic_partition_list_destroy(self.partitions);
            rd_kafka_queue_destroy(self.queue);
            rd_kafka_destroy(self.rk);
        }
    }
}

/// Partition and offset of the messages of an array, partition by partition.
fn read_array(queue: usize, timeout_ms: i32) -> Vec<(i32, i64)> {
    let queue = std::ptr::with_exposed_provenance_mut(queue);
    let mut messages = [null_mut(); 10];
    let count =
        unsafe { rd_kafka_consume_batch_queue(queue, timeout_ms, messages.as_mut_ptr(), messages.len()) };
    let mut found: Vec<_> = messages[..usize::try_from(count).unwrap()]
        .iter()
        .map(|message| unsafe {
            let read = ((**message).partition, (**message).offset);
            rd_kafka_message_destroy(*message);
            read
        })
        .collect();
    found.sort_by_key(|(partition, _)| *partition);
    found
}

/// librdkafka's test 0137: the array had the records before the seek as well.
#[test]
fn an_array_loses_what_a_seek_makes_void() {
    let consumer = Consumer::new("false");
    let filling = consumer.fill_array();
    let to = list(&[(c"orders", 0)]);
    unsafe {
        (*(*to).elems).offset = 1;
        assert!(rd_kafka_seek_partitions(consumer.rk, to, 10_000).is_null());
        rd_kafka_topic_partition_list_destroy(to);
    }
    let expected = [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)];
    assert_eq!(filling.join().unwrap(), expected);
}

/// librdkafka's test 0137: the records of a partition that is paused come after it is resumed.
#[test]
fn an_array_leaves_the_records_of_a_paused_partition_for_later() {
    let consumer = Consumer::new("false");
    let filling = consumer.fill_array();
    let paused = list(&[(c"orders", 0)]);
    assert_eq!(unsafe { rd_kafka_pause_partitions(consumer.rk, paused) }, OK);
    assert_eq!(filling.join().unwrap(), [(1, 0), (1, 1), (1, 2), (1, 3)]);
    unsafe {
        assert_eq!(rd_kafka_resume_partitions(consumer.rk, paused), OK);
        rd_kafka_topic_partition_list_destroy(paused);
    }
    assert_eq!(read_array(consumer.queue.expose_provenance(), 2000), [(0, 0), (0, 1), (0, 2), (0, 3)]);
}

/// librdkafka's test 0122: the next owner reads the records, so they are neither returned nor committed.
#[test]
fn an_array_loses_the_records_of_a_partition_that_is_given_up() {
    let consumer = Consumer::new("true");
    let filling = consumer.fill_array();
    let given_up = list(&[(c"orders", 0)]);
    assert!(unsafe { rd_kafka_incremental_unassign(consumer.rk, given_up) }.is_null());
    assert_eq!(filling.join().unwrap(), [(1, 0), (1, 1), (1, 2), (1, 3)]);
    unsafe {
        assert_eq!(rd_kafka_commit(consumer.rk, null_mut(), 0), OK);
        assert_eq!(rd_kafka_committed(consumer.rk, consumer.partitions, 10_000), OK);
        let elems = std::slice::from_raw_parts((*consumer.partitions).elems, 2);
        assert_eq!([elems[0].offset, elems[1].offset], [RD_KAFKA_OFFSET_INVALID, RECORDS as i64]);
        rd_kafka_topic_partition_list_destroy(given_up);
    }
}

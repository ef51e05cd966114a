//! Producers that close as soon as they have sent their requests: the records are appended.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it waits")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_broker::{Broker, BrokerThread};
use ottla_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use ottla_wire::{Chain, Compression, Seal};

use crate::common::{PATIENCE, Raw, batch, framed, produce_request};

/// More than are appended before other connections have their turn.
const PARTITIONS: i32 = 1_500;
/// Records of a batch that a background thread checks.
const RECORDS: usize = 10_000;

fn broker(partitions: i32) -> BrokerThread {
    Broker::builder().memory().topic("orders", partitions).spawn().expect("a broker")
}

/// Sends the requests and closes the connection at once.
fn send_and_leave(broker: &BrokerThread, requests: &[u8]) {
    Raw::connect(broker.addresses()[0]).send(requests);
}

fn await_end(broker: &BrokerThread, partition: i32, end: i64) {
    let began = Instant::now();
    let cluster = broker.cluster();
    while cluster.offsets_of("orders", partition).expect("a partition").1 != end {
        assert!(began.elapsed() < PATIENCE, "records of partition {partition} are lost");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A batch that has more than 100 KiB when it is decompressed.
fn compressed() -> Vec<u8> {
    let values = vec![&b"xxxxxxxxxxxxxxxx"[..]; RECORDS];
    batch(&values, &Seal { compression: Compression::Gzip, ..Seal::default() })
}

/// The partitions after the first thousand had no records: the request ended with its connection.
#[test]
fn a_wide_request_of_a_client_that_has_left_appends_to_all_its_partitions() {
    let broker = broker(PARTITIONS);
    let records = batch(&[b"a"], &Seal::default());
    let data = |index| {
        let records = Some(Chain::from(Bytes::copy_from_slice(&records)));
        PartitionProduceData { index, records }
    };
    let partition_data = (0..PARTITIONS).map(data).collect();
    let topic = TopicProduceData { name: "orders".into(), partition_data, ..Default::default() };
    let request =
        ProduceRequest { acks: 0, timeout_ms: 10_000, topic_data: vec![topic], ..Default::default() };
    send_and_leave(&broker, &framed(12, &request));
    for partition in 0..PARTITIONS {
        await_end(&broker, partition, 1);
    }
}

/// The check of the batch was dropped with the connection, and its records were lost.
#[test]
fn a_batch_that_is_checked_while_its_client_leaves_is_appended() {
    let broker = broker(1);
    send_and_leave(&broker, &framed(12, &produce_request("orders", 0, &compressed())));
    await_end(&broker, 0, RECORDS as i64);
}

/// The requests that waited for the first one were dropped with the connection.
#[test]
fn requests_that_wait_for_an_append_while_their_client_leaves_are_appended() {
    for acks in [0, 1] {
        let broker = broker(1);
        let request = framed(12, &produce_request("orders", acks, &compressed()));
        send_and_leave(&broker, &request.repeat(3));
        await_end(&broker, 0, 3 * RECORDS as i64);
    }
}

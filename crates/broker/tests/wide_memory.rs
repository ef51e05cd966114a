//! The memory of small requests with very many partitions, of the request or of its session, is limited by `memory.max.bytes`. Each
//! attack runs alone: the tests of this file measure their own process.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod common;

use bytes::Bytes;
use common::memory::{Growth, alone};
use common::{Heard, Raw, batch, framed, produce_request};
use ottla_broker::{Broker, BrokerThread};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use ottla_wire::{Chain, Seal};

/// Memory above the budget, for buffers of connections, of the requests in progress and of this test.
const ABOVE_MIB: u64 = 32;

fn broker(budget_mib: u64, partitions: i32) -> BrokerThread {
    let builder = Broker::builder().memory().topic("orders", partitions);
    let configured = builder.configure(|config| config.memory_bytes_max = (budget_mib << 20) as usize);
    configured.spawn().expect("a broker")
}

/// A request with so many partitions without records, and one whose records are no batch.
fn empty_partitions(count: i32, padding: usize) -> Vec<u8> {
    let records = Some(Chain::from(Bytes::from(vec![0; padding])));
    let padded = PartitionProduceData { index: 0, records };
    let empty = (1..=count).map(|index| PartitionProduceData { index, records: None });
    let partition_data = std::iter::once(padded).chain(empty).collect();
    let topic = TopicProduceData { name: "orders".into(), partition_data, ..Default::default() };
    let request =
        ProduceRequest { acks: 1, timeout_ms: 10_000, topic_data: vec![topic], ..Default::default() };
    framed(12, &request)
}

/// Each was charged for its 6 bytes and used 450: a request of 32 MiB took 1 GB, and stopped all clients while it was answered.
#[test]
fn produce_requests_of_very_many_empty_partitions_are_refused_or_charged() {
    const BUDGET_MIB: u64 = 64;
    const FEW: i32 = 30_000;
    let _alone = alone();
    let broker = broker(BUDGET_MIB, 1);
    let many = empty_partitions(500_000, 7 << 20);
    let few = empty_partitions(FEW, 7 << 20);
    let mut bystander = Raw::connect(broker.addresses()[0]);
    let growth = Growth::start();
    let mut connection = Raw::connect(broker.addresses()[0]);
    connection.send(&many);
    assert!(bystander.is_served());
    assert!(matches!(connection.hear(), Heard::Closed), "half a million partitions");
    let mut connection = Raw::connect(broker.addresses()[0]);
    connection.send(&few);
    // It is appended after the earlier one.
    let records = batch(&[b"one"], &Seal::default());
    connection.send(&framed(12, &produce_request("orders", 1, &records)));
    assert!(bystander.is_served());
    let answer = connection.answer_to::<ProduceRequest>(12).expect("an answer");
    assert_eq!(answer.responses[0].partition_responses.len(), FEW as usize + 1);
    let answer = connection.answer_to::<ProduceRequest>(12).expect("an answer");
    assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::None);
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "requests with very many partitions");
}

//! The memory of small requests with very many partitions, of the request or of its session, is limited by `memory.max.bytes`. Each
//! attack runs alone: the tests of this file measure their own process.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::memory::{Growth, alone};
use common::{Heard, PATIENCE, Raw, batch, framed, metadata_of, produce_request};
use ottla_broker::{Broker, BrokerThread};
use ottla_protocol::messages::initialize_share_group_state::{
    InitializeShareGroupStateRequest, InitializeStateData, PartitionData as StateToInitialize,
};
use ottla_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use ottla_protocol::messages::share_fetch::{FetchPartition, FetchTopic, ShareFetchRequest};
use ottla_protocol::{ApiKey, ErrorCode};
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

/// 300 requests of 60 bytes held the memory of 1,000 share partitions each, for as long as their clients liked.
#[test]
fn share_fetches_of_many_partitions_of_a_session_wait_for_memory() {
    const BUDGET_MIB: u64 = 16;
    const PARTITIONS: i32 = 1_000;
    const GROUP: &str = "billing";
    let _alone = alone();
    let broker = broker(BUDGET_MIB, PARTITIONS);
    // Its session ends with it.
    let mut first = Raw::connect(broker.addresses()[0]);
    let topic_id = first.ask(12, &metadata_of("orders")).expect("an answer").topics[0].topic_id;
    let begins = |partition| StateToInitialize { partition, state_epoch: 0, start_offset: 0 };
    let topics = vec![InitializeStateData { topic_id, partitions: (0..PARTITIONS).map(begins).collect() }];
    let initialize = InitializeShareGroupStateRequest { group_id: GROUP.into(), topics };
    let initialized = first.ask(0, &initialize).expect("an answer");
    assert!(initialized.results[0].partitions.iter().all(|it| it.error_code == ErrorCode::None));
    let request = |epoch: i32| {
        let fetched =
            |partition_index| FetchPartition { partition_index, acknowledgement_batches: Vec::new() };
        let partitions = (0..PARTITIONS).map(fetched).collect();
        let topics = if epoch == 0 { vec![FetchTopic { topic_id, partitions }] } else { Vec::new() };
        ShareFetchRequest {
            group_id: Some(GROUP.into()),
            member_id: Some("member".into()),
            share_session_epoch: epoch,
            max_wait_ms: if epoch == 0 { 0 } else { i32::MAX },
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 500,
            batch_size: 500,
            topics,
            ..Default::default()
        }
    };
    let begun = first.ask(2, &request(0)).expect("an answer");
    assert_eq!((begun.error_code, begun.responses[0].partitions.len()), (ErrorCode::None, 1_000));
    assert!(begun.responses[0].partitions.iter().all(|it| it.error_code == ErrorCode::None));
    broker.cluster().requests(ApiKey::ShareFetch);
    let growth = Growth::start();
    let mut held = Vec::new();
    for epoch in 1..=300 {
        let mut connection = Raw::connect(broker.addresses()[0]);
        connection.send(&framed(2, &request(epoch)));
        let began = Instant::now();
        while broker.cluster().requests(ApiKey::ShareFetch) < epoch as u64 {
            assert!(began.elapsed() < PATIENCE, "the request has not arrived");
            std::thread::park_timeout(Duration::from_millis(1));
        }
        held.push(connection);
    }
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "300 fetches of a share session");
    let mut last = held.pop().expect("one of them");
    assert!(matches!(last.hear(), Heard::Answer(_)), "it is served when the earlier ones are");
}

//! Transactions as the logs of a broker show them: what consumers read, and what producers may append.

use std::time::Duration;

use ottla_broker::{Broker, BrokerThread, Durability};
use ottla_client::{Config, Consumer, Isolation, Polled, StartAt, TopicPartition};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
};
use ottla_protocol::messages::describe_producers::{DescribeProducersRequest, ProducerState, TopicRequest};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic, PartitionData};
use ottla_protocol::messages::find_coordinator::FindCoordinatorRequest;
use ottla_protocol::messages::init_producer_id::InitProducerIdRequest;
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest,
};
use ottla_wire::{BatchBuilder, Batches, Compression, Seal};

use crate::common;
use crate::common::{PATIENCE, Raw, batch, framed, produce_request};

fn broker() -> BrokerThread {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    broker.cluster().set_transactions_approved(true);
    broker
}

fn seal(producer_id: i64, base_sequence: i32) -> Seal {
    Seal { producer_id, producer_epoch: 0, base_sequence, transactional: true, ..Seal::default() }
}

/// Sends one record in a transaction.
fn send(connection: &mut Raw, producer_id: i64, sequence: i32) -> (ErrorCode, i64) {
    let records = batch(&[b"x"], &seal(producer_id, sequence));
    let mut request = produce_request("orders", -1, &records);
    request.transactional_id = Some("t".into());
    let answer = connection.ask(11, &request).expect("an answer");
    let part = &answer.responses[0].partition_responses[0];
    (part.error_code, part.base_offset)
}

/// Ends a producer's transaction as `kafka-transactions abort` does.
fn end(connection: &mut Raw, producer_id: i64, is_commit: bool) -> ErrorCode {
    let topics = vec![WritableTxnMarkerTopic { name: "orders".into(), partition_indexes: vec![0] }];
    let marker =
        WritableTxnMarker { producer_id, transaction_result: is_commit, topics, ..Default::default() };
    let request = WriteTxnMarkersRequest { markers: vec![marker] };
    let answer = connection.ask(1, &request).expect("an answer");
    answer.markers[0].topics[0].partitions[0].error_code
}

fn fetch_request(isolation_level: i8, offset: i64, wait: Duration) -> FetchRequest {
    let partition =
        FetchPartition { fetch_offset: offset, partition_max_bytes: 1 << 20, ..Default::default() };
    FetchRequest {
        replica_id: -1,
        max_wait_ms: wait.as_millis() as i32,
        min_bytes: 1,
        max_bytes: 1 << 20,
        isolation_level,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: "orders".into(),
            partitions: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn fetch(connection: &mut Raw, isolation_level: i8, offset: i64) -> PartitionData {
    let request = fetch_request(isolation_level, offset, Duration::ZERO);
    let mut answer = connection.ask(12, &request).expect("an answer");
    answer.responses.remove(0).partitions.remove(0)
}

/// The base offsets of the batches, and the aborted transactions.
fn seen(data: &PartitionData) -> (Vec<i64>, Option<Vec<(i64, i64)>>) {
    let bytes = data.records.as_ref().expect("records").to_bytes().expect("in memory");
    let offsets = Batches::new(&bytes).map(|found| found.expect("a batch").0.base_offset).collect();
    let aborted = data.aborted_transactions.as_ref();
    let pairs = |all: &Vec<_>| {
        let pair =
            |one: &ottla_protocol::messages::fetch::AbortedTransaction| (one.producer_id, one.first_offset);
        all.iter().map(pair).collect()
    };
    (offsets, aborted.map(pairs))
}

fn latest(connection: &mut Raw, isolation_level: i8) -> i64 {
    latest_for(connection, -1, isolation_level)
}

fn latest_for(connection: &mut Raw, replica_id: i32, isolation_level: i8) -> i64 {
    let partition = ListOffsetsPartition { timestamp: -1, current_leader_epoch: -1, ..Default::default() };
    let topic = ListOffsetsTopic { name: "orders".into(), partitions: vec![partition] };
    let request =
        ListOffsetsRequest { replica_id, isolation_level, topics: vec![topic], ..Default::default() };
    connection.ask(7, &request).expect("an answer").topics[0].partitions[0].offset
}

#[test]
fn a_committed_read_ends_at_the_last_stable_offset_and_names_the_aborted_transactions() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(send(&mut connection, 7, 0), (ErrorCode::None, 0));
    assert_eq!(send(&mut connection, 9, 0), (ErrorCode::None, 1));
    assert_eq!(send(&mut connection, 7, 1), (ErrorCode::None, 2));
    assert_eq!(end(&mut connection, 7, false), ErrorCode::None);

    let data = fetch(&mut connection, 1, 0);
    assert_eq!((data.high_watermark, data.last_stable_offset), (4, 1));
    assert_eq!(seen(&data), (vec![0], Some(vec![(7, 0)])));
    let data = fetch(&mut connection, 0, 0);
    assert_eq!((data.high_watermark, data.last_stable_offset), (4, 1));
    assert_eq!(seen(&data), (vec![0, 1, 2, 3], None));
    assert_eq!((latest(&mut connection, 1), latest(&mut connection, 0)), (1, 4));
    // The isolation level is for consumers, not for replicas, and not for the requests that any replica answers.
    assert_eq!((latest_for(&mut connection, 2, 1), latest_for(&mut connection, -2, 1)), (4, 4));

    assert_eq!(end(&mut connection, 9, false), ErrorCode::None);
    let data = fetch(&mut connection, 1, 0);
    assert_eq!(data.last_stable_offset, 5);
    assert_eq!(seen(&data), (vec![0, 1, 2, 3, 4], Some(vec![(7, 0), (9, 1)])));
    assert_eq!(seen(&fetch(&mut connection, 1, 4)), (vec![4], Some(vec![(9, 1)])));
    assert_eq!(latest(&mut connection, 1), 5);
}

/// The largest timestamp and its offset (KIP-734).
fn newest(connection: &mut Raw, isolation_level: i8) -> (ErrorCode, i64, i64) {
    let partition = ListOffsetsPartition { timestamp: -3, current_leader_epoch: -1, ..Default::default() };
    let topic = ListOffsetsTopic { name: "orders".into(), partitions: vec![partition] };
    let request =
        ListOffsetsRequest { replica_id: -1, isolation_level, topics: vec![topic], ..Default::default() };
    let answer = connection.ask(7, &request).expect("an answer");
    let partition = &answer.topics[0].partitions[0];
    (partition.error_code, partition.timestamp, partition.offset)
}

/// Apache Kafka 4.3 answers so, although an older record is visible.
#[test]
fn the_newest_record_is_not_found_while_its_transaction_is_open() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let older = connection.produce("orders", -1, &batch(&[b"x"], &Seal::default()));
    assert_eq!((older.error_code, older.base_offset), (ErrorCode::None, 0));
    let mut records = BatchBuilder::new();
    records.push(1_700_000_000_001, None, Some(b"y"), &[]);
    let records = records.seal(&seal(7, 0)).expect("a batch").to_bytes();
    let mut request = produce_request("orders", -1, &records);
    request.transactional_id = Some("t".into());
    let answer = connection.ask(11, &request).expect("an answer");
    assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::None);
    assert_eq!(newest(&mut connection, 0), (ErrorCode::None, 1_700_000_000_001, 1));
    assert_eq!(newest(&mut connection, 1), (ErrorCode::None, -1, -1));
}

/// The values that our client reads from the topic with `isolation.level=read_committed`, up to the value `end`.
fn values_up_to_end(broker: &BrokerThread) -> Vec<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut config = Config::new(broker.bootstrap_servers());
    config.isolation_level = Isolation::ReadCommitted;
    runtime.block_on(async {
        let mut consumer = Consumer::new(config).expect("a consumer");
        let start = [(TopicPartition::new("orders", 0), StartAt::Beginning)];
        consumer.assign(&start).await.expect("assigned");
        let mut values: Vec<Vec<u8>> = Vec::new();
        let reading = async {
            while values.last().is_none_or(|value| value != b"end") {
                let polled = consumer.poll(Duration::from_millis(100)).await.expect("a poll without error");
                if let Some(Polled::Records(batch)) = polled {
                    let sound = batch.iter().map(|record| record.expect("a sound record"));
                    values.extend(sound.map(|record| record.value.expect("a value").to_vec()));
                }
            }
        };
        let done = tokio::time::timeout(PATIENCE * 10, reading).await;
        assert!(done.is_ok(), "the last value did not arrive");
        values
    })
}

/// The list had all aborted transactions of the records, which are sent from their files: a request of 100 bytes had a response with a
/// list of 5 MB.
#[test]
fn a_response_has_a_limited_list_of_aborted_transactions() {
    const LIST_MAX: usize = 4_000;
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let producers: Vec<i64> = (0..4_300).collect();
    for producer in &producers {
        assert_eq!(send(&mut connection, *producer, 0).0, ErrorCode::None);
    }
    for some in producers.chunks(500) {
        let marker = |producer_id: &i64| {
            let topics = vec![WritableTxnMarkerTopic { name: "orders".into(), partition_indexes: vec![0] }];
            WritableTxnMarker { producer_id: *producer_id, topics, ..Default::default() }
        };
        let request = WriteTxnMarkersRequest { markers: some.iter().map(marker).collect() };
        let answer = connection.ask(1, &request).expect("an answer");
        let mut codes = answer.markers.iter().map(|marker| marker.topics[0].partitions[0].error_code);
        assert!(codes.all(|code| code == ErrorCode::None));
    }
    let answer = connection.produce("orders", -1, &batch(&[b"end"], &Seal::default()));
    assert_eq!(answer.error_code, ErrorCode::None);

    let end = latest(&mut connection, 1);
    let (mut from, mut longest) = (0, 0);
    while from < end {
        let data = fetch(&mut connection, 1, from);
        longest = longest.max(data.aborted_transactions.as_ref().expect("a list").len());
        let bytes = data.records.as_ref().expect("records").to_bytes().expect("in memory");
        let next = Batches::new(&bytes).map(|found| found.expect("a batch").0.next_offset()).last();
        from = next.expect("a batch from each offset");
    }
    assert_eq!(longest, LIST_MAX);
    assert_eq!(values_up_to_end(&broker), [b"end"]);
}

#[test]
fn a_waiting_committed_read_is_answered_when_the_transaction_ends() {
    let broker = broker();
    let address = broker.addresses()[0];
    assert_eq!(send(&mut Raw::connect(address), 7, 0), (ErrorCode::None, 0));
    let mut reader = Raw::connect(address);
    reader.send(&framed(12, &fetch_request(1, 0, PATIENCE * 10)));
    assert_eq!(send(&mut Raw::connect(address), 7, 1), (ErrorCode::None, 1));
    assert_eq!(end(&mut Raw::connect(address), 7, true), ErrorCode::None);
    // The socket's patience ends long before the poll's: an answer means that the marker woke it.
    assert!(matches!(reader.hear(), common::Heard::Answer(_)));
}

#[test]
fn transactional_records_that_no_coordinator_approves_are_refused() {
    let broker = broker();
    broker.cluster().set_transactions_approved(false);
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(send(&mut connection, 7, 0), (ErrorCode::InvalidProducerIdMapping, -1));
    assert_eq!(latest(&mut connection, 0), 0);
}

/// The guard of a denied batch was kept. A client that made up producer ids filled the memory of the broker, with 100,000 guards for each
/// partition.
#[test]
fn the_guards_of_denied_transactions_are_not_kept() {
    let broker = broker();
    broker.cluster().set_transactions_approved(false);
    let mut connection = Raw::connect(broker.addresses()[0]);
    let before = broker.cluster().remembered_producers();
    for producer in 0..1000 {
        assert_eq!(send(&mut connection, producer, 0), (ErrorCode::InvalidProducerIdMapping, -1));
    }
    assert_eq!(broker.cluster().remembered_producers(), before);
}

/// The batch of the first producer was appended. Kafka refuses the whole request.
#[test]
fn transactional_records_of_several_producers_in_one_request_are_refused() {
    let broker = Broker::builder().memory().topic("orders", 3).spawn().expect("a broker in memory");
    broker.cluster().set_transactions_approved(true);
    let mut connection = Raw::connect(broker.addresses()[0]);
    let plain = produce_request("orders", -1, &batch(&[b"x"], &Seal::default()));
    let mut request = produce_request("orders", -1, &batch(&[b"x"], &seal(7, 0)));
    let other = produce_request("orders", -1, &batch(&[b"x"], &seal(9, 0)));
    for (index, mut one) in [(1, other), (2, plain)] {
        one.topic_data[0].partition_data[0].index = index;
        request.topic_data.append(&mut one.topic_data);
    }
    request.transactional_id = Some("t".into());
    let answer = connection.ask(11, &request).expect("an answer");
    let parts = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
    let codes: Vec<ErrorCode> = parts.map(|part| part.error_code).collect();
    assert_eq!(codes, [ErrorCode::InvalidProducerIdMapping; 3]);
    for index in 0..3 {
        assert_eq!(broker.cluster().offsets_of("orders", index), Some((0, 0)), "partition {index}");
    }
}

#[test]
fn transactional_records_without_a_transactional_id_are_refused() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let answer = connection.produce("orders", -1, &batch(&[b"x"], &seal(7, 0)));
    assert_eq!(answer.error_code, ErrorCode::TransactionalIdAuthorizationFailed);
    assert_eq!(latest(&mut connection, 0), 0);
}

/// The epoch of the foreign batch fenced the coordinator: the transaction never ended in this partition, and its committed records were
/// never read.
#[test]
fn a_batch_outside_of_the_transaction_does_not_fence_its_coordinator() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(send(&mut connection, 7, 0), (ErrorCode::None, 0));
    let foreign = Seal { producer_id: 7, producer_epoch: 32_767, base_sequence: 0, ..Seal::default() };
    let answer = connection.produce("orders", -1, &batch(&[b"x"], &foreign));
    assert_eq!(answer.error_code, ErrorCode::InvalidTxnState);
    assert_eq!(end(&mut connection, 7, true), ErrorCode::None);
    assert_eq!(latest(&mut connection, 1), 2, "the record and its marker are stable");
}

/// The coordinator had approved the first batch, and the second was appended with it.
#[test]
fn several_batches_for_one_partition_are_refused() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let later = Seal { producer_epoch: 5, ..seal(7, 0) };
    for (first, second) in [(seal(7, 0), later), (Seal::default(), Seal::default())] {
        let mut records = batch(&[b"x"], &first);
        records.extend(batch(&[b"y"], &second));
        let mut request = produce_request("orders", -1, &records);
        request.transactional_id = first.transactional.then(|| "t".into());
        let answer = connection.ask(11, &request).expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::InvalidRecord);
    }
    assert_eq!(latest(&mut connection, 0), 0);
}

#[test]
fn zstd_is_refused_in_the_versions_before_it() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let sealed = Seal { compression: Compression::Zstd, ..Seal::default() };
    // A batch that compression does not make smaller stays as it is.
    let request = produce_request("orders", -1, &batch(&[&[b'x'; 1000]], &sealed));
    for (version, code) in [(6, ErrorCode::UnsupportedCompressionType), (7, ErrorCode::None)] {
        let answer = connection.ask(version, &request).expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].error_code, code, "version {version}");
    }
}

#[test]
fn an_open_transaction_stays_open_when_the_broker_is_started_again() {
    let disk = ottla_log::storage::mem::MemStorage::forgetful();
    let start = || {
        let builder = Broker::builder().storage(std::sync::Arc::new(disk.clone()));
        let broker = builder
            .configure(|config| config.durability = Durability::Disk)
            .topic("orders", 1)
            .spawn()
            .expect("started");
        broker.cluster().set_transactions_approved(true);
        broker
    };
    let broker = start();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(send(&mut connection, 7, 0), (ErrorCode::None, 0));
    assert_eq!(send(&mut connection, 9, 0), (ErrorCode::None, 1));
    assert_eq!(end(&mut connection, 7, false), ErrorCode::None);
    assert_eq!(send(&mut connection, 9, 1), (ErrorCode::None, 3));
    broker.stop();
    disk.crash(&mut fastrand::Rng::with_seed(3));
    let broker = start();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let data = fetch(&mut connection, 1, 0);
    assert_eq!((data.high_watermark, data.last_stable_offset), (4, 1));
    assert_eq!(seen(&data), (vec![0], Some(vec![(7, 0)])));
    assert_eq!(send(&mut connection, 9, 2), (ErrorCode::None, 4), "its transaction is open in the log");
}

#[test]
fn a_marker_for_an_unknown_partition_or_of_an_old_epoch_is_refused() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(send(&mut connection, 7, 0), (ErrorCode::None, 0));
    let topic =
        |name: &str, index| WritableTxnMarkerTopic { name: name.into(), partition_indexes: vec![index] };
    let marker = |producer_epoch, coordinator_epoch, topics| WritableTxnMarker {
        producer_id: 7,
        producer_epoch,
        coordinator_epoch,
        transaction_version: 2,
        topics,
        ..Default::default()
    };
    let markers = vec![
        marker(1, 5, vec![topic("orders", 1), topic("missing", 0)]),
        marker(0, 5, vec![topic("orders", 0)]),
        marker(1, 5, vec![topic("orders", 0)]),
        marker(1, 4, vec![topic("orders", 0)]),
    ];
    let answer = connection.ask(2, &WriteTxnMarkersRequest { markers }).expect("an answer");
    let topics = answer.markers.iter().flat_map(|marker| &marker.topics);
    let codes: Vec<ErrorCode> = topics.map(|topic| topic.partitions[0].error_code).collect();
    let expected = [
        ErrorCode::UnknownTopicOrPartition,
        ErrorCode::UnknownTopicOrPartition,
        // The epoch of the data, while the transaction is open.
        ErrorCode::InvalidProducerEpoch,
        ErrorCode::None,
        ErrorCode::TransactionCoordinatorFenced,
    ];
    assert_eq!(codes, expected);
}

/// Producers got INVALID_TOPIC_EXCEPTION, and so did brokers, whose versions begin with 4.
#[test]
fn a_producer_is_not_authorized_to_add_a_topic_of_the_coordinators() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let group = FindCoordinatorRequest { key: "billing".into(), ..Default::default() };
    assert_eq!(connection.ask(2, &group).expect("an answer").error_code, ErrorCode::None);
    let init = InitProducerIdRequest {
        transactional_id: Some("till-1".into()),
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    let producer = connection.ask(3, &init).expect("an answer");
    assert_eq!(producer.error_code, ErrorCode::None);
    let topics = ["orders", "__consumer_offsets"]
        .map(|name| AddPartitionsToTxnTopic { name: name.into(), partitions: vec![0] })
        .to_vec();
    let codes = |results: &[AddPartitionsToTxnTopicResult]| -> Vec<ErrorCode> {
        results.iter().map(|topic| topic.results_by_partition[0].partition_error_code).collect()
    };
    let request = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: "till-1".into(),
        v3_and_below_producer_id: producer.producer_id,
        v3_and_below_producer_epoch: producer.producer_epoch,
        v3_and_below_topics: topics.clone(),
        ..Default::default()
    };
    let refused = connection.ask(3, &request).expect("an answer");
    let expected = [ErrorCode::OperationNotAttempted, ErrorCode::TopicAuthorizationFailed];
    assert_eq!(codes(&refused.results_by_topic_v3_and_below), expected);
    let transaction = AddPartitionsToTxnTransaction {
        transactional_id: "till-1".into(),
        producer_id: producer.producer_id,
        producer_epoch: producer.producer_epoch,
        verify_only: false,
        topics,
    };
    let request = AddPartitionsToTxnRequest { transactions: vec![transaction], ..Default::default() };
    let added = connection.ask(4, &request).expect("an answer");
    assert_eq!(codes(&added.results_by_transaction[0].topic_results), [ErrorCode::None; 2]);
}

#[test]
fn the_producers_of_a_partition_are_described_with_their_transactions() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(send(&mut connection, 7, 0), (ErrorCode::None, 0));
    assert_eq!(send(&mut connection, 9, 0), (ErrorCode::None, 1));
    assert_eq!(end(&mut connection, 7, true), ErrorCode::None);
    let topics = vec![TopicRequest { name: "orders".into(), partition_indexes: vec![0, 1] }];
    let answer = connection.ask(0, &DescribeProducersRequest { topics }).expect("an answer");
    let [known, missing] = &answer.topics[0].partitions[..] else { panic!("two partitions") };
    assert_eq!(missing.error_code, ErrorCode::UnknownTopicOrPartition);
    let state = |state: &ProducerState| {
        (state.producer_id, state.last_sequence, state.coordinator_epoch, state.current_txn_start_offset)
    };
    let states: Vec<_> = known.active_producers.iter().map(state).collect();
    assert_eq!(states, [(7, 0, 0, -1), (9, 0, -1, 1)]);
}

/// The marker was refused: the records of the transaction, and all behind them, were never read.
#[test]
fn a_transaction_with_the_highest_epoch_can_be_ended() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let sealed = Seal { producer_epoch: i16::MAX, ..seal(7, 0) };
    let mut request = produce_request("orders", -1, &batch(&[b"x"], &sealed));
    request.transactional_id = Some("t".into());
    let answer = connection.ask(11, &request).expect("an answer");
    assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::None);
    let marker = WritableTxnMarker {
        producer_id: 7,
        producer_epoch: i16::MAX,
        transaction_version: 2,
        topics: vec![WritableTxnMarkerTopic { name: "orders".into(), partition_indexes: vec![0] }],
        ..Default::default()
    };
    let answer = connection.ask(2, &WriteTxnMarkersRequest { markers: vec![marker] }).expect("an answer");
    assert_eq!(answer.markers[0].topics[0].partitions[0].error_code, ErrorCode::None);
    assert_eq!(latest(&mut connection, 1), 2, "the record and its marker are stable");
}

//! The fault `fail`: every item of the response has the error.

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode, Fault};
use ottla_protocol::messages::api_versions::ApiVersionsRequest;
use ottla_protocol::messages::describe_topic_partitions::DescribeTopicPartitionsRequest;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch as AckOnly, ShareAcknowledgeRequest,
};
use ottla_protocol::messages::share_fetch::{
    AcknowledgementBatch, FetchPartition as SharePartition, FetchTopic as ShareTopic, ShareFetchRequest,
    ShareFetchResponse,
};

use crate::common::{Raw, framed, metadata_of};

const MOVED: ErrorCode = ErrorCode::NotLeaderOrFollower;

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 2).spawn().expect("a broker in memory")
}

fn fail(broker: &BrokerThread, api: ApiKey, code: ErrorCode) {
    broker.cluster().intercept(api, None, 1, Fault::Fail(code));
}

fn connect(broker: &BrokerThread) -> Raw {
    Raw::connect(broker.addresses()[0])
}

/// A fetch of these partitions of `orders`, by name.
fn fetch(session: (i32, i32), partitions: std::ops::Range<i32>) -> FetchRequest {
    let partitions = partitions.map(|partition| FetchPartition {
        partition,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        partition_max_bytes: 1000,
        ..Default::default()
    });
    let partitions: Vec<_> = partitions.collect();
    let topic = FetchTopic { topic: "orders".into(), partitions, ..Default::default() };
    let topics = if topic.partitions.is_empty() { Vec::new() } else { vec![topic] };
    let (session_id, session_epoch) = session;
    FetchRequest { replica_id: -1, max_bytes: 1000, session_id, session_epoch, topics, ..Default::default() }
}

/// The error of each partition, in the order of their numbers.
fn codes(response: &FetchResponse) -> Vec<(i32, ErrorCode)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let mut codes: Vec<_> = partitions.map(|data| (data.partition_index, data.error_code)).collect();
    codes.sort_unstable_by_key(|(partition, _)| *partition);
    codes
}

#[test]
fn a_failed_fetch_has_the_error_in_every_partition_of_every_version() {
    let broker = broker();
    let mut connection = connect(&broker);
    for version in [4, 6, 7, 12] {
        fail(&broker, ApiKey::Fetch, MOVED);
        let response = connection.ask(version, &fetch((0, -1), 0..2)).expect("an answer");
        assert_eq!(response.error_code, ErrorCode::None, "version {version}");
        assert_eq!(codes(&response), [(0, MOVED), (1, MOVED)], "version {version}");
    }
}

#[test]
fn a_failed_fetch_of_a_session_has_the_error_in_the_partitions_that_the_session_remembers() {
    let broker = broker();
    let mut connection = connect(&broker);
    let begun = connection.ask(12, &fetch((0, 0), 0..2)).expect("an answer");
    let id = begun.session_id;
    assert_ne!(id, 0);
    fail(&broker, ApiKey::Fetch, MOVED);
    let failed = connection.ask(12, &fetch((id, 1), 0..0)).expect("an answer");
    assert_eq!((failed.error_code, failed.session_id), (ErrorCode::None, id), "the session continues");
    assert_eq!(codes(&failed), [(0, MOVED), (1, MOVED)]);
    let next = connection.ask(12, &fetch((id, 2), 0..0)).expect("an answer");
    let both = vec![(0, ErrorCode::None), (1, ErrorCode::None)];
    assert_eq!((next.error_code, codes(&next)), (ErrorCode::None, both), "the errors have ended");
    let quiet = connection.ask(12, &fetch((id, 3), 0..0)).expect("an answer");
    assert_eq!((quiet.error_code, codes(&quiet)), (ErrorCode::None, Vec::new()));

    let lost = ErrorCode::FetchSessionIdNotFound;
    fail(&broker, ApiKey::Fetch, lost);
    let ended = connection.ask(12, &fetch((id, 4), 0..0)).expect("an answer");
    assert_eq!((ended.error_code, codes(&ended)), (lost, Vec::new()), "no partition has this error");
}

fn share_fetch(epoch: i32, topics: Vec<ShareTopic>) -> ShareFetchRequest {
    ShareFetchRequest {
        group_id: Some("sharers".into()),
        member_id: Some("one".into()),
        share_session_epoch: epoch,
        min_bytes: 1,
        max_bytes: 1 << 20,
        max_records: 10,
        batch_size: 10,
        topics,
        ..Default::default()
    }
}

/// The errors of each partition: of its records, and of its acknowledgements.
fn share_codes(response: &ShareFetchResponse) -> Vec<(i32, ErrorCode, ErrorCode)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|data| (data.partition_index, data.error_code, data.acknowledge_error_code)).collect()
}

#[test]
fn a_failed_share_fetch_has_the_error_in_the_partitions_of_its_session_and_in_its_acknowledgements() {
    let broker = broker();
    let mut connection = connect(&broker);
    let topic_id = connection.ask(12, &metadata_of("orders")).expect("an answer").topics[0].topic_id;
    let topic = |partitions: Vec<SharePartition>| vec![ShareTopic { topic_id, partitions }];
    let named = |partition_index| SharePartition { partition_index, ..Default::default() };
    fail(&broker, ApiKey::ShareFetch, MOVED);
    let begun = connection.ask(2, &share_fetch(0, topic(vec![named(0), named(1)]))).expect("an answer");
    let none = ErrorCode::None;
    assert_eq!((begun.error_code, share_codes(&begun)), (none, vec![(0, MOVED, none), (1, MOVED, none)]));

    fail(&broker, ApiKey::ShareFetch, MOVED);
    let batch = AcknowledgementBatch { first_offset: 0, last_offset: 0, acknowledge_types: vec![1] };
    let with_ack = SharePartition { partition_index: 1, acknowledgement_batches: vec![batch] };
    let next = connection.ask(2, &share_fetch(1, topic(vec![with_ack]))).expect("an answer");
    assert_eq!((next.error_code, share_codes(&next)), (none, vec![(0, MOVED, none), (1, MOVED, MOVED)]));

    let batch = AckOnly { first_offset: 0, last_offset: 0, acknowledge_types: vec![1] };
    let partition = AcknowledgePartition { partition_index: 1, acknowledgement_batches: vec![batch] };
    let acknowledge = |epoch| ShareAcknowledgeRequest {
        group_id: Some("sharers".into()),
        member_id: Some("one".into()),
        share_session_epoch: epoch,
        is_renew_ack: false,
        topics: vec![AcknowledgeTopic { topic_id, partitions: vec![partition.clone()] }],
    };
    fail(&broker, ApiKey::ShareAcknowledge, MOVED);
    let failed = connection.ask(2, &acknowledge(2)).expect("an answer");
    let partitions = failed.responses.iter().flat_map(|topic| &topic.partitions);
    let codes: Vec<_> = partitions.map(|data| (data.partition_index, data.error_code)).collect();
    assert_eq!((failed.error_code, codes), (none, vec![(1, MOVED)]));

    let lost = ErrorCode::ShareSessionNotFound;
    fail(&broker, ApiKey::ShareAcknowledge, lost);
    let ended = connection.ask(2, &acknowledge(3)).expect("an answer");
    assert_eq!((ended.error_code, ended.responses.len()), (lost, 0), "no partition has this error");
}

/// The response had no topics and no error: to a client, the cluster was empty.
#[test]
fn a_failed_metadata_request_for_all_topics_lists_all_topics_with_the_error() {
    let broker = Broker::builder().memory().topic("orders", 2).topic("bills", 1).spawn().expect("a broker");
    let mut connection = connect(&broker);
    let of_all = [(0, Some(Vec::new())), (1, None), (12, None)];
    for (version, topics) in of_all {
        fail(&broker, ApiKey::Metadata, MOVED);
        let request = MetadataRequest { topics, ..Default::default() };
        let response = connection.ask(version, &request).expect("an answer");
        let topics = response.topics.iter().map(|topic| (topic.name.as_deref(), topic.error_code));
        let mut topics: Vec<_> = topics.collect();
        topics.sort_unstable_by_key(|(name, _)| *name);
        assert_eq!(topics, [(Some("bills"), MOVED), (Some("orders"), MOVED)], "version {version}");
    }
    fail(&broker, ApiKey::Metadata, MOVED);
    let none = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
    assert_eq!(connection.ask(1, &none).expect("an answer").topics, [], "it requests no topic");
}

/// The error was that of the group. Kafka has it for each partition, and librdkafka repeats the lookup only then.
#[test]
fn a_failed_fetch_of_offsets_has_an_error_of_partitions_in_each_of_them() {
    let broker = broker();
    let mut connection = connect(&broker);
    let unstable = ErrorCode::UnstableOffsetCommit;
    for (version, code) in [(8, unstable), (9, ErrorCode::TopicAuthorizationFailed)] {
        let topic = OffsetFetchRequestTopics {
            name: "orders".into(),
            partition_indexes: vec![0, 1],
            ..Default::default()
        };
        let named = OffsetFetchRequestGroup {
            group_id: "billing".into(),
            topics: Some(vec![topic]),
            ..Default::default()
        };
        let all = OffsetFetchRequestGroup { topics: None, group_id: "audit".into(), ..Default::default() };
        fail(&broker, ApiKey::OffsetFetch, code);
        let request = OffsetFetchRequest { groups: vec![named, all], ..Default::default() };
        let response = connection.ask(version, &request).expect("an answer");
        let [named, all] = &*response.groups else { panic!("two groups: {response:?}") };
        let codes: Vec<_> = named.topics[0].partitions.iter().map(|found| found.error_code).collect();
        assert_eq!((named.error_code, codes), (ErrorCode::None, vec![code, code]), "version {version}");
        assert_eq!(all.error_code, code, "a group of which no partition is named");
    }
    let topic = OffsetFetchRequestTopic { name: "orders".into(), partition_indexes: vec![0] };
    let request = OffsetFetchRequest {
        group_id: "billing".into(),
        topics: Some(vec![topic]),
        require_stable: true,
        ..Default::default()
    };
    fail(&broker, ApiKey::OffsetFetch, unstable);
    let response = connection.ask(7, &request).expect("an answer");
    let code = response.topics[0].partitions[0].error_code;
    assert_eq!((response.error_code, code), (ErrorCode::None, unstable));
    // An error of the group stays one.
    let loading = ErrorCode::CoordinatorLoadInProgress;
    fail(&broker, ApiKey::OffsetFetch, loading);
    let response = connection.ask(7, &request).expect("an answer");
    assert_eq!((response.error_code, response.topics.len()), (loading, 0));
}

/// Its response had no topic and no error: there seemed to be no topics.
#[test]
fn a_failed_description_of_all_topics_has_the_error_in_each_topic() {
    let broker = broker();
    fail(&broker, ApiKey::DescribeTopicPartitions, MOVED);
    let all = DescribeTopicPartitionsRequest::default();
    let response = connect(&broker).ask(0, &all).expect("an answer");
    let topics: Vec<_> =
        response.topics.iter().map(|topic| (topic.name.as_deref(), topic.error_code)).collect();
    assert_eq!(topics, [(Some("orders"), MOVED)]);
}

/// KIP-511: such a response has version 0. Clients that read it in their own version found no versions in it.
#[test]
fn a_request_for_versions_that_fails_for_its_version_has_a_response_of_version_0() {
    let broker = broker();
    let request =
        ApiVersionsRequest { client_software_name: "x".into(), client_software_version: "1".into() };
    for (code, version) in [(ErrorCode::UnsupportedVersion, 0), (ErrorCode::InvalidRequest, 4)] {
        fail(&broker, ApiKey::ApiVersions, code);
        let mut connection = connect(&broker);
        connection.send(&framed(4, &request));
        let response = connection.answer_to::<ApiVersionsRequest>(version).expect("an answer");
        assert_eq!(response.error_code, code);
        let listed: Vec<_> = response.api_keys.iter().map(|api| api.api_key).collect();
        let own = (version == 0).then_some(ApiKey::ApiVersions.code());
        assert_eq!(listed, own.into_iter().collect::<Vec<_>>());
    }
}

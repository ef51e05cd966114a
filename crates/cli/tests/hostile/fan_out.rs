//! Requests with very many names and partitions.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use ottla_protocol::messages as m;

use crate::common::sound::TOPIC;
use crate::common::{Heard, Raw, framed};

/// Entries of each request.
const MANY: usize = 60_000;
/// Clients that send all requests at the same time.
const CLIENTS: usize = 8;

/// Sends each wide request, several at a time. The broker answers or closes the connection.
pub(crate) fn send_wide_requests(broker: SocketAddr, stop: &AtomicBool) {
    let requests = requests();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let requests = &requests;
            scope.spawn(move || {
                crate::be_nice();
                for at in 0..requests.len() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let (what, request) = &requests[(at + client * 3) % requests.len()];
                    let mut connection = Raw::connect(broker);
                    connection.send(request);
                    let outcome = match connection.hear() {
                        Heard::Answer(answer) => format!("{} bytes", answer.len()),
                        Heard::Closed => "closed".to_owned(),
                    };
                    if client == 0 {
                        println!("{what}, {} bytes: {outcome}", request.len());
                    }
                }
            });
        }
    });
}

fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let long = "x".repeat(32_000);
    let names = || (0..MANY).map(|at| format!("name-{at}"));
    let indexes = || (0..MANY as i32).collect::<Vec<_>>();
    let named = |name: String| m::metadata::MetadataRequestTopic { name: Some(name), ..Default::default() };
    let fetch = |topic: &str| m::fetch::FetchRequest {
        max_wait_ms: 100,
        topics: vec![m::fetch::FetchTopic {
            topic: topic.into(),
            partitions: indexes()
                .into_iter()
                .map(|partition| m::fetch::FetchPartition { partition, ..Default::default() })
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let commit = |partition_index| m::offset_commit::OffsetCommitRequestPartition {
        partition_index,
        committed_metadata: Some("x".repeat(100)),
        ..Default::default()
    };
    let resource = |_| m::describe_configs::DescribeConfigsResource {
        resource_type: 2,
        resource_name: TOPIC.into(),
        ..Default::default()
    };
    let topic = |name| m::create_topics::CreatableTopic {
        name,
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let list = |partition_index| m::list_offsets::ListOffsetsPartition {
        partition_index,
        timestamp: -1,
        ..Default::default()
    };
    let epoch =
        |partition| m::offset_for_leader_epoch::OffsetForLeaderPartition { partition, ..Default::default() };
    let protocol = |name| m::join_group::JoinGroupRequestProtocol { name, ..Default::default() };
    let delete = |partition_index| m::delete_records::DeleteRecordsPartition { partition_index, offset: 0 };
    vec![
        (
            "Metadata",
            framed(
                12,
                &m::MetadataRequest { topics: Some(names().map(named).collect()), ..Default::default() },
            ),
        ),
        ("Fetch", framed(12, &fetch(TOPIC))),
        ("Fetch of a long name", framed(12, &fetch(&long))),
        (
            "ListOffsets",
            framed(
                7,
                &m::ListOffsetsRequest {
                    replica_id: -1,
                    topics: vec![m::list_offsets::ListOffsetsTopic {
                        name: long.clone(),
                        partitions: indexes().into_iter().map(list).collect(),
                    }],
                    ..Default::default()
                },
            ),
        ),
        (
            "OffsetForLeaderEpoch",
            framed(
                4,
                &m::OffsetForLeaderEpochRequest {
                    replica_id: -1,
                    topics: vec![m::offset_for_leader_epoch::OffsetForLeaderTopic {
                        topic: long.clone(),
                        partitions: indexes().into_iter().map(epoch).collect(),
                    }],
                },
            ),
        ),
        (
            "OffsetCommit",
            framed(
                8,
                &m::OffsetCommitRequest {
                    group_id: "wide".into(),
                    generation_id_or_member_epoch: -1,
                    topics: vec![m::offset_commit::OffsetCommitRequestTopic {
                        name: TOPIC.into(),
                        partitions: indexes().into_iter().map(commit).collect(),
                        ..Default::default()
                    }],
                    ..Default::default()
                },
            ),
        ),
        (
            "OffsetFetch",
            framed(
                7,
                &m::OffsetFetchRequest {
                    group_id: "wide".into(),
                    topics: Some(vec![m::offset_fetch::OffsetFetchRequestTopic {
                        name: long.clone(),
                        partition_indexes: indexes(),
                    }]),
                    ..Default::default()
                },
            ),
        ),
        (
            "DeleteRecords",
            framed(
                2,
                &m::DeleteRecordsRequest {
                    topics: vec![m::delete_records::DeleteRecordsTopic {
                        name: long,
                        partitions: indexes().into_iter().map(delete).collect(),
                    }],
                    timeout_ms: 1000,
                },
            ),
        ),
        (
            "DescribeConfigs",
            framed(
                4,
                &m::DescribeConfigsRequest {
                    resources: names().map(resource).collect(),
                    include_synonyms: true,
                    include_documentation: true,
                },
            ),
        ),
        (
            "DescribeGroups",
            framed(5, &m::DescribeGroupsRequest { groups: names().collect(), ..Default::default() }),
        ),
        (
            "FindCoordinator",
            framed(
                4,
                &m::FindCoordinatorRequest { coordinator_keys: names().collect(), ..Default::default() },
            ),
        ),
        (
            "CreateTopics",
            framed(
                7,
                &m::CreateTopicsRequest {
                    topics: names().map(topic).collect(),
                    timeout_ms: 1000,
                    ..Default::default()
                },
            ),
        ),
        (
            "JoinGroup",
            framed(
                9,
                &m::JoinGroupRequest {
                    group_id: "wide".into(),
                    session_timeout_ms: 10_000,
                    protocol_type: "consumer".into(),
                    protocols: names().map(protocol).collect(),
                    ..Default::default()
                },
            ),
        ),
        ("DeleteGroups", framed(2, &m::DeleteGroupsRequest { groups_names: names().collect() })),
        (
            "DescribeTopicPartitions",
            framed(
                0,
                &m::DescribeTopicPartitionsRequest {
                    topics: names().map(|name| m::describe_topic_partitions::TopicRequest { name }).collect(),
                    response_partition_limit: i32::MAX,
                    cursor: None,
                },
            ),
        ),
    ]
}

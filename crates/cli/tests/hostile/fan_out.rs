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

type Wide = (&'static str, Vec<u8>);

fn requests() -> Vec<Wide> {
    [partitions(), offsets(), topics(), groups()].concat()
}

fn long_name() -> String {
    "x".repeat(32_000)
}

fn names() -> impl Iterator<Item = String> {
    (0..MANY).map(|at| format!("name-{at}"))
}

fn indexes() -> impl Iterator<Item = i32> {
    0..MANY as i32
}

fn partitions() -> Vec<Wide> {
    let fetch = |topic: String| {
        let partition = |partition| m::fetch::FetchPartition { partition, ..Default::default() };
        let partitions = indexes().map(partition).collect();
        let topics = vec![m::fetch::FetchTopic { topic, partitions, ..Default::default() }];
        framed(12, &m::FetchRequest { max_wait_ms: 100, topics, ..Default::default() })
    };
    let list = |partition_index| m::list_offsets::ListOffsetsPartition {
        partition_index,
        timestamp: -1,
        ..Default::default()
    };
    let listed =
        m::list_offsets::ListOffsetsTopic { name: long_name(), partitions: indexes().map(list).collect() };
    let epoch =
        |partition| m::offset_for_leader_epoch::OffsetForLeaderPartition { partition, ..Default::default() };
    let epochs = m::offset_for_leader_epoch::OffsetForLeaderTopic {
        topic: long_name(),
        partitions: indexes().map(epoch).collect(),
    };
    let delete = |partition_index| m::delete_records::DeleteRecordsPartition { partition_index, offset: 0 };
    let deleted = m::delete_records::DeleteRecordsTopic {
        name: long_name(),
        partitions: indexes().map(delete).collect(),
    };
    let list_offsets = m::ListOffsetsRequest { replica_id: -1, topics: vec![listed], ..Default::default() };
    let for_epochs = m::OffsetForLeaderEpochRequest { replica_id: -1, topics: vec![epochs] };
    let delete_records = m::DeleteRecordsRequest { topics: vec![deleted], timeout_ms: 1000 };
    vec![
        ("Fetch", fetch(TOPIC.into())),
        ("Fetch of a long name", fetch(long_name())),
        ("ListOffsets", framed(7, &list_offsets)),
        ("OffsetForLeaderEpoch", framed(4, &for_epochs)),
        ("DeleteRecords", framed(2, &delete_records)),
    ]
}

fn offsets() -> Vec<Wide> {
    let commit = |partition_index| m::offset_commit::OffsetCommitRequestPartition {
        partition_index,
        committed_metadata: Some("x".repeat(100)),
        ..Default::default()
    };
    let committed = m::offset_commit::OffsetCommitRequestTopic {
        name: TOPIC.into(),
        partitions: indexes().map(commit).collect(),
        ..Default::default()
    };
    let commit = m::OffsetCommitRequest {
        group_id: "wide".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![committed],
        ..Default::default()
    };
    let fetched = m::offset_fetch::OffsetFetchRequestTopic {
        name: long_name(),
        partition_indexes: indexes().collect(),
    };
    let fetch =
        m::OffsetFetchRequest { group_id: "wide".into(), topics: Some(vec![fetched]), ..Default::default() };
    vec![("OffsetCommit", framed(8, &commit)), ("OffsetFetch", framed(7, &fetch))]
}

fn topics() -> Vec<Wide> {
    let named = |name: String| m::metadata::MetadataRequestTopic { name: Some(name), ..Default::default() };
    let metadata = m::MetadataRequest { topics: Some(names().map(named).collect()), ..Default::default() };
    let described = |name| m::describe_topic_partitions::TopicRequest { name };
    let describe = m::DescribeTopicPartitionsRequest {
        topics: names().map(described).collect(),
        response_partition_limit: i32::MAX,
        cursor: None,
    };
    let created = |name| m::create_topics::CreatableTopic {
        name,
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let create = m::CreateTopicsRequest {
        topics: names().map(created).collect(),
        timeout_ms: 1000,
        ..Default::default()
    };
    let resource = |_| m::describe_configs::DescribeConfigsResource {
        resource_type: 2,
        resource_name: TOPIC.into(),
        ..Default::default()
    };
    let configs = m::DescribeConfigsRequest {
        resources: names().map(resource).collect(),
        include_synonyms: true,
        include_documentation: true,
    };
    vec![
        ("Metadata", framed(12, &metadata)),
        ("DescribeTopicPartitions", framed(0, &describe)),
        ("CreateTopics", framed(7, &create)),
        ("DescribeConfigs", framed(4, &configs)),
    ]
}

fn groups() -> Vec<Wide> {
    let describe = m::DescribeGroupsRequest { groups: names().collect(), ..Default::default() };
    let short = |count| {
        let groups = ["a".to_owned(), "b".to_owned()].into_iter().cycle().take(count).collect();
        framed(5, &m::DescribeGroupsRequest { groups, ..Default::default() })
    };
    let find = m::FindCoordinatorRequest { coordinator_keys: names().collect(), ..Default::default() };
    let protocol = |name| m::join_group::JoinGroupRequestProtocol { name, ..Default::default() };
    let join = m::JoinGroupRequest {
        group_id: "wide".into(),
        session_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        protocols: names().map(protocol).collect(),
        ..Default::default()
    };
    let delete = m::DeleteGroupsRequest { groups_names: names().collect() };
    vec![
        ("DescribeGroups", framed(5, &describe)),
        ("DescribeGroups of short names", short(MANY)),
        ("DescribeGroups of too many short names", short(2_000_000)),
        ("FindCoordinator", framed(4, &find)),
        ("JoinGroup", framed(9, &join)),
        ("DeleteGroups", framed(2, &delete)),
    ]
}

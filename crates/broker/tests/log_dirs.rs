//! DescribeLogDirs and AlterReplicaLogDirs: each node reports the partitions of which it is a replica.

use ottla_broker::Broker;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use ottla_protocol::messages::describe_log_dirs::{
    DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResult,
};
use ottla_wire::Seal;

use crate::common::{Raw, batch};

fn describe(connection: &mut Raw, topics: Option<&[(&str, &[i32])]>) -> DescribeLogDirsResult {
    let topic = |(topic, partitions): &(&str, &[i32])| DescribableLogDirTopic {
        topic: (*topic).into(),
        partitions: partitions.to_vec(),
    };
    let topics = topics.map(|topics| topics.iter().map(topic).collect());
    let answer = connection.ask(5, &DescribeLogDirsRequest { topics }).expect("an answer");
    assert_eq!((answer.error_code, answer.results.len()), (ErrorCode::None, 1));
    answer.results.into_iter().next().expect("one directory")
}

/// The topics with their partitions and whether these have records.
fn shown(result: &DescribeLogDirsResult) -> Vec<(&str, Vec<(i32, bool)>)> {
    let topics = result.topics.iter().map(|topic| {
        let partitions = topic
            .partitions
            .iter()
            .inspect(|one| assert_eq!((one.offset_lag, one.is_future_key), (0, false)));
        (topic.name.as_str(), partitions.map(|one| (one.partition_index, one.partition_size > 0)).collect())
    });
    topics.collect()
}

#[test]
fn a_node_reports_its_replicas_with_their_sizes() {
    let disk = tempfile::tempdir().expect("a directory");
    let broker = Broker::builder().data_dir(disk.path()).nodes(2).topic("orders", 3).topic("returns", 1);
    let broker = broker.spawn().expect("a broker");
    let mut first = Raw::connect(broker.addresses()[0]);
    let produced = first.produce("orders", -1, &batch(&[b"one", b"two"], &Seal::default()));
    assert_eq!(produced.error_code, ErrorCode::None);

    let result = describe(&mut first, None);
    assert_eq!(result.log_dir, disk.path().to_str().expect("a path"));
    assert!(result.total_bytes >= result.usable_bytes && result.usable_bytes > 0, "{result:?}");
    assert_eq!(shown(&result), [("orders", vec![(0, true), (2, false)]), ("returns", vec![(0, false)])]);

    // Each node has its own replicas, and unknown partitions are left out.
    let mut second = Raw::connect(broker.addresses()[1]);
    assert_eq!(shown(&describe(&mut second, None)), [("orders", vec![(1, false)])]);
    let some = describe(&mut first, Some(&[("orders", &[0, 1, 9]), ("missing", &[0])]));
    assert_eq!(shown(&some), [("orders", vec![(0, true)])]);
    assert_eq!(shown(&describe(&mut first, Some(&[]))), []);
}

#[test]
fn a_broker_in_memory_has_a_directory_of_unknown_size() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker");
    let result = describe(&mut Raw::connect(broker.addresses()[0]), None);
    assert_eq!((result.log_dir.as_str(), result.total_bytes, result.usable_bytes), ("memory", -1, -1));
    assert_eq!(shown(&result), [("orders", vec![(0, false)])]);
}

#[test]
fn a_replica_can_only_stay_in_its_directory() {
    let broker = Broker::builder().memory().nodes(2).topic("orders", 2).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let dir = |path: &str, topic: &str, partitions: &[i32]| AlterReplicaLogDir {
        path: path.into(),
        topics: vec![AlterReplicaLogDirTopic { name: topic.into(), partitions: partitions.to_vec() }],
    };
    let dirs = vec![
        dir("memory", "orders", &[0, 1, 9]),
        dir("/mnt/new", "orders", &[0]),
        dir("memory", "missing", &[0]),
    ];
    let answer = connection.ask(2, &AlterReplicaLogDirsRequest { dirs }).expect("an answer");
    let results = answer.results.iter().flat_map(|topic| {
        topic.partitions.iter().map(|one| (topic.topic_name.as_str(), one.partition_index, one.error_code))
    });
    let expected = [
        ("missing", 0, ErrorCode::UnknownTopicOrPartition),
        ("orders", 0, ErrorCode::None),
        ("orders", 1, ErrorCode::ReplicaNotAvailable),
        ("orders", 9, ErrorCode::UnknownTopicOrPartition),
        ("orders", 0, ErrorCode::LogDirNotFound),
    ];
    assert_eq!(results.collect::<Vec<_>>(), expected);
}

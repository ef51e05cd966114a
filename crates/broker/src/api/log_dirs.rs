//! DescribeLogDirs and AlterReplicaLogDirs. All nodes share one directory: each reports the partitions of which it is a replica.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_replica_log_dirs::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
};
use ottla_protocol::messages::describe_log_dirs::{
    DescribableLogDirTopic, DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeLogDirsResult, DescribeLogDirsTopic,
};

use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::partition::Partition;
use crate::topics::Topic;

/// The name of the directory of a broker that has its data in memory.
const MEMORY_DIR: &str = "memory";
/// Kafka's lag of a replica that is not open.
const UNKNOWN_LAG: i64 = -1;

impl Api for DescribeLogDirsRequest {
    async fn handle(self, context: RequestContext) -> DescribeLogDirsResponse {
        let node = context.node();
        let describe = move |cluster: &Cluster| DescribeLogDirsResult {
            log_dir: log_dir(cluster),
            topics: described(cluster, node, self.topics),
            total_bytes: space(cluster).0,
            usable_bytes: space(cluster).1,
            ..Default::default()
        };
        let result = context.cluster().run_lookup(context.connection.client_host(), describe).await;
        DescribeLogDirsResponse { results: vec![result], ..Default::default() }
    }

    fn refuse(self, context: &RequestContext, code: ErrorCode) -> DescribeLogDirsResponse {
        let log_dir = log_dir(context.cluster());
        let result = DescribeLogDirsResult { error_code: code, log_dir, ..Default::default() };
        DescribeLogDirsResponse { error_code: code, results: vec![result], ..Default::default() }
    }
}

/// The partitions of which the node is a replica: all of them, or those of a request.
fn described(
    cluster: &Cluster,
    node: i32,
    wanted: Option<Vec<DescribableLogDirTopic>>,
) -> Vec<DescribeLogDirsTopic> {
    let wanted = wanted.map(|topics| {
        let mut by_name: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
        for topic in topics {
            by_name.entry(topic.topic).or_default().extend(topic.partitions);
        }
        by_name
    });
    let topics = cluster.topics().into_iter().filter_map(|topic| {
        let indexes = match &wanted {
            Some(wanted) => Some(wanted.get(&*topic.name)?),
            None => None,
        };
        let is_wanted = |partition: &Partition| indexes.is_none_or(|all| all.contains(&partition.index));
        let partitions = topic.partitions.iter().filter(|partition| is_wanted(partition));
        let partitions = partitions.filter(|partition| is_replica(cluster, &topic, partition, node));
        let partitions: Vec<_> = partitions.map(|partition| described_partition(partition)).collect();
        // Kafka leaves out topics without a partition.
        (!partitions.is_empty()).then(|| DescribeLogDirsTopic { name: topic.name.to_string(), partitions })
    });
    topics.collect()
}

fn described_partition(partition: &Partition) -> DescribeLogDirsPartition {
    let is_open = partition.unavailable().is_none();
    DescribeLogDirsPartition {
        partition_index: partition.index,
        partition_size: i64::try_from(partition.log().size_bytes()).unwrap_or(i64::MAX),
        offset_lag: if is_open { 0 } else { UNKNOWN_LAG },
        is_future_key: false,
    }
}

fn is_replica(cluster: &Cluster, topic: &Topic, partition: &Partition, node: i32) -> bool {
    cluster.replicas(topic, partition).all.contains(&node)
}

/// The absolute path of the data directory.
fn log_dir(cluster: &Cluster) -> String {
    let Some(root) = cluster.storage.root() else { return MEMORY_DIR.to_owned() };
    std::path::absolute(root).unwrap_or_else(|_| root.to_path_buf()).to_string_lossy().into_owned()
}

/// The size of the volume and its free bytes; -1 if there is no volume.
pub(crate) fn space(cluster: &Cluster) -> (i64, i64) {
    let volume = cluster.storage.root().and_then(|root| rustix::fs::statvfs(root).ok());
    let bytes = |blocks: u64, size: u64| i64::try_from(blocks.saturating_mul(size)).unwrap_or(i64::MAX);
    volume.map_or((-1, -1), |volume| {
        (bytes(volume.f_blocks, volume.f_frsize), bytes(volume.f_bavail, volume.f_frsize))
    })
}

impl Api for AlterReplicaLogDirsRequest {
    async fn handle(self, context: RequestContext) -> AlterReplicaLogDirsResponse {
        let (cluster, node) = (context.cluster(), context.node());
        let directory = log_dir(cluster);
        let outcome = |path: &str, topic: &str, index: i32| {
            if path != directory {
                return ErrorCode::LogDirNotFound;
            }
            let known = cluster.topic(topic);
            let partition = known
                .as_ref()
                .and_then(|topic| Some((topic, topic.partitions.get(usize::try_from(index).ok()?)?)));
            match partition {
                None => ErrorCode::UnknownTopicOrPartition,
                Some((_, partition)) if partition.unavailable().is_some() => ErrorCode::KafkaStorageError,
                Some((topic, partition)) if !is_replica(cluster, topic, partition, node) => {
                    ErrorCode::ReplicaNotAvailable
                }
                // The replica is there already.
                Some(_) => ErrorCode::None,
            }
        };
        results_of(self, outcome)
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> AlterReplicaLogDirsResponse {
        results_of(self, |_, _, _| code)
    }
}

/// A result for each partition, by topic: the directory, the topic and the partition give the error code.
fn results_of(
    request: AlterReplicaLogDirsRequest,
    outcome: impl Fn(&str, &str, i32) -> ErrorCode,
) -> AlterReplicaLogDirsResponse {
    let mut by_topic: BTreeMap<String, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for dir in request.dirs {
        for topic in dir.topics {
            let results = topic.partitions.iter().map(|index| AlterReplicaLogDirPartitionResult {
                partition_index: *index,
                error_code: outcome(&dir.path, &topic.name, *index),
            });
            by_topic.entry(topic.name.clone()).or_default().extend(results);
        }
    }
    let results = by_topic
        .into_iter()
        .map(|(topic_name, partitions)| AlterReplicaLogDirTopicResult { topic_name, partitions });
    AlterReplicaLogDirsResponse { results: results.collect(), ..Default::default() }
}

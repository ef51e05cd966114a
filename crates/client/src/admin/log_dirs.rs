//! The log directories of brokers.

use std::rc::Rc;

use ottla_protocol::messages::describe_log_dirs::{
    DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult,
};

use super::operation::{Operation, Repeat, Target, each};
use super::{Admin, KeyedResults, Timeouts, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::TopicPartition;

const DESCRIBE_LOG_DIRS_VERSION_MAX: i16 = 5;

/// A log directory of a broker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogDirDescription {
    /// Its path on the broker.
    pub path: String,
    /// The error of a directory that the broker cannot use.
    pub error: Option<Error>,
    /// The size of its volume in bytes; `None` on brokers before 3.3.
    pub total_bytes: Option<i64>,
    /// The free bytes of its volume; `None` on brokers before 3.3.
    pub usable_bytes: Option<i64>,
    /// The replicas in it, by partition.
    pub replicas: Vec<LogDirReplica>,
}

/// A replica in a log directory.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LogDirReplica {
    /// The partition.
    pub partition: TopicPartition,
    /// The bytes of its log.
    pub bytes: i64,
    /// The records that it lacks.
    pub lag: i64,
    /// `true` if it will replace a replica in another directory.
    pub future: bool,
}

impl Admin {
    /// Describes the log directories of these brokers, or of all (`None`). Returns a result per node id.
    ///
    /// # Errors
    /// The whole call fails if no broker returns the list of brokers in time.
    pub async fn describe_log_dirs(
        &self,
        nodes: Option<&[i32]>,
        timeouts: Timeouts,
    ) -> Result<KeyedResults<i32, Vec<LogDirDescription>>, Error> {
        let nodes = nodes.map(<[_]>::to_vec);
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "describe_log_dirs", timeouts);
            let nodes = match nodes {
                Some(nodes) => nodes,
                None => operation.nodes().await?,
            };
            let described = each(&nodes, |node| describe(&operation, *node)).await;
            Ok(nodes.into_iter().zip(described).collect())
        };
        self.ask("describe_log_dirs", work).await
    }
}

async fn describe(operation: &Operation, node: i32) -> Result<Vec<LogDirDescription>, Error> {
    let make = |_version: i16| DescribeLogDirsRequest { topics: None };
    let again =
        |response: &DescribeLogDirsResponse| Some(response.error_code).filter(|code| code.is_retriable());
    let versions = 1..=DESCRIBE_LOG_DIRS_VERSION_MAX;
    let response = operation.call(Target::Node(node), versions, Repeat::Yes, make, again).await?;
    refused(&format!("log directories of node {node}"), response.error_code, None)?;
    Ok(response.results.into_iter().map(|result| description(node, result)).collect())
}

fn description(node: i32, result: DescribeLogDirsResult) -> LogDirDescription {
    let replicas = result.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|replica| LogDirReplica {
            partition: TopicPartition::new(&topic.name, replica.partition_index),
            bytes: replica.partition_size,
            lag: replica.offset_lag,
            future: replica.is_future_key,
        })
    });
    let mut replicas: Vec<LogDirReplica> = replicas.collect();
    replicas.sort_by(|a, b| a.partition.cmp(&b.partition));
    let what = format!("log directory {} of node {node}", result.log_dir);
    let known = |bytes: i64| Some(bytes).filter(|bytes| *bytes >= 0);
    LogDirDescription {
        error: refused(&what, result.error_code, None).err(),
        total_bytes: known(result.total_bytes),
        usable_bytes: known(result.usable_bytes),
        path: result.log_dir,
        replicas,
    }
}

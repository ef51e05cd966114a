//! Descriptions of the cluster and its topics.

use std::rc::Rc;

use ottla_protocol::messages::describe_cluster::{DescribeClusterRequest, DescribeClusterResponse};
use ottla_protocol::messages::metadata::{MetadataRequest, MetadataResponse, MetadataResponseTopic};
use ottla_protocol::{ErrorCode, Uuid};

use super::operation::{Operation, Repeat, Target};
use super::{AclOperation, Admin, DescribeOptions, KeyedResults, owned, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::topic_name::check_all;

const DESCRIBE_CLUSTER_VERSION_MAX: i16 = 1;
/// The Metadata versions that return the operations authorized on the cluster.
const METADATA_WITH_CLUSTER: std::ops::RangeInclusive<i16> = 8..=10;

/// A broker of the cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// The node id.
    pub id: i32,
    /// The host that clients connect to.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The broker's rack, if it has one.
    pub rack: Option<String>,
}

/// A description of the cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClusterDescription {
    /// The cluster id, if the broker reports it.
    pub id: Option<String>,
    /// The node id of the controller; `None` if unknown.
    pub controller: Option<i32>,
    /// All brokers, by node id.
    pub brokers: Vec<Node>,
    /// The operations that the client is authorized for, if requested and reported.
    pub authorized_operations: Option<Vec<AclOperation>>,
}

/// A topic in a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TopicListing {
    /// Its name.
    pub name: String,
    /// Its id; zero on brokers before 2.8.
    pub id: Uuid,
    /// The number of partitions.
    pub partitions: usize,
    /// `true` if the topic is internal to the broker.
    pub internal: bool,
}

/// A topic with its partitions.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its id; zero on brokers before 2.8.
    pub id: Uuid,
    /// `true` if the topic is internal to the broker.
    pub internal: bool,
    /// The partitions, by number.
    pub partitions: Vec<PartitionDescription>,
    /// The operations that the client is authorized for, if requested and reported.
    pub authorized_operations: Option<Vec<AclOperation>>,
}

/// A partition with its leader and replicas.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PartitionDescription {
    /// Its number.
    pub partition: i32,
    /// The node id of the leader, if there is one.
    pub leader: Option<i32>,
    /// The leader epoch; -1 when the broker does not report it.
    pub leader_epoch: i32,
    /// The node ids of all replicas.
    pub replicas: Vec<i32>,
    /// The node ids of the in-sync replicas.
    pub isr: Vec<i32>,
}

/// Descriptions of topics, and the brokers that they refer to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicDescriptions {
    /// The topics, in the order of the request.
    pub topics: KeyedResults<String, TopicDescription>,
    /// All brokers, by node id.
    pub brokers: Vec<Node>,
}

impl Admin {
    /// Describes the cluster. This is the cheapest call to check that a broker responds.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, Error> {
        let work = |cluster: Rc<Cluster>| async move {
            let response = cluster.describe(Some(&[])).await?;
            let description = of_metadata(&response);
            cluster.merge(response);
            Ok(description)
        };
        self.ask("describe_cluster", work).await
    }

    /// Describes the cluster, with the authorized operations if [`DescribeOptions::authorized_operations`] is set.
    ///
    /// # Errors
    /// The call fails if no broker responds in time.
    pub async fn describe_cluster_with(
        &self,
        describe: DescribeOptions,
    ) -> Result<ClusterDescription, Error> {
        let work = move |cluster: Rc<Cluster>| async move {
            describe_cluster(&Operation::new(cluster, "describe_cluster", describe.timeouts), describe).await
        };
        self.ask("describe_cluster", work).await
    }

    /// Lists all topics, by name.
    pub async fn list_topics(&self) -> Result<Vec<TopicListing>, Error> {
        self.ask("list_topics", |cluster| async move { list(&cluster).await }).await
    }

    /// Describes these topics with their partitions, in the order of the request.
    ///
    /// # Errors
    /// [`Error::Broker`] for the first topic that does not exist. The request creates no topic.
    pub async fn describe_topics(&self, names: &[&str]) -> Result<Vec<TopicDescription>, Error> {
        check_all(names.iter().copied())?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let names = owned(names);
        let work = |cluster: Rc<Cluster>| async move {
            let refs: Vec<&str> = names.iter().map(String::as_str).collect();
            let response = cluster.describe(Some(&refs)).await?;
            names.iter().map(|name| found(&response, name)).collect()
        };
        self.ask("describe_topics", work).await
    }

    /// Describes these topics with their partitions. Returns a result per topic, in the order of the request. The
    /// request creates no topic. Without names there is no request, and the result is empty.
    ///
    /// # Errors
    /// The call fails if no broker responds in time.
    pub async fn describe_topics_with(
        &self,
        names: &[&str],
        describe: DescribeOptions,
    ) -> Result<TopicDescriptions, Error> {
        if names.is_empty() {
            return Ok(TopicDescriptions { topics: Vec::new(), brokers: Vec::new() });
        }
        let names = owned(names);
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "describe_topics", describe.timeouts);
            let refs: Vec<&str> = names.iter().map(String::as_str).collect();
            let response = operation.metadata(Some(&refs), describe.authorized_operations).await?;
            let topics = names.into_iter().map(|name| {
                let topic = found(&response, &name);
                (name, topic)
            });
            Ok(TopicDescriptions { topics: topics.collect(), brokers: nodes(&response) })
        };
        self.ask("describe_topics", work).await
    }
}

async fn describe_cluster(
    operation: &Operation,
    describe: DescribeOptions,
) -> Result<ClusterDescription, Error> {
    let wanted = describe.authorized_operations;
    let make = |_version: i16| DescribeClusterRequest {
        include_cluster_authorized_operations: wanted,
        ..Default::default()
    };
    let versions = 0..=DESCRIBE_CLUSTER_VERSION_MAX;
    match operation.call(Target::Any, versions, Repeat::Yes, make, |_| None).await {
        Ok(response) => {
            refused("the cluster", response.error_code, response.error_message.as_deref())?;
            Ok(of_cluster(response))
        }
        // Brokers before 2.8 report it with the metadata.
        Err(Error::Unsupported { .. }) if wanted => {
            let make = |_version: i16| MetadataRequest {
                topics: Some(Vec::new()),
                include_cluster_authorized_operations: true,
                ..Default::default()
            };
            let call = operation.call(Target::Any, METADATA_WITH_CLUSTER, Repeat::Yes, make, |_| None);
            Ok(of_metadata(&call.await?))
        }
        Err(Error::Unsupported { .. }) => Ok(of_metadata(&operation.metadata(Some(&[]), false).await?)),
        Err(error) => Err(error),
    }
}

fn of_cluster(response: DescribeClusterResponse) -> ClusterDescription {
    let node = |broker: ottla_protocol::messages::describe_cluster::DescribeClusterBroker| Node {
        id: broker.broker_id,
        host: broker.host,
        port: broker.port as u16,
        rack: broker.rack,
    };
    let mut brokers: Vec<Node> = response.brokers.into_iter().map(node).collect();
    brokers.sort_by_key(|node| node.id);
    ClusterDescription {
        id: Some(response.cluster_id),
        controller: (response.controller_id >= 0).then_some(response.controller_id),
        brokers,
        authorized_operations: AclOperation::authorized(response.cluster_authorized_operations),
    }
}

fn of_metadata(response: &MetadataResponse) -> ClusterDescription {
    ClusterDescription {
        id: response.cluster_id.clone(),
        controller: (response.controller_id >= 0).then_some(response.controller_id),
        brokers: nodes(response),
        authorized_operations: AclOperation::authorized(response.cluster_authorized_operations),
    }
}

fn nodes(response: &MetadataResponse) -> Vec<Node> {
    let brokers = response.brokers.iter().map(|broker| Node {
        id: broker.node_id,
        host: broker.host.clone(),
        port: broker.port as u16,
        rack: broker.rack.clone(),
    });
    let mut nodes: Vec<Node> = brokers.collect();
    nodes.sort_by_key(|node| node.id);
    nodes
}

async fn list(cluster: &Rc<Cluster>) -> Result<Vec<TopicListing>, Error> {
    let response = cluster.describe(None).await?;
    let listing = |topic: &MetadataResponseTopic| {
        Some(TopicListing {
            name: topic.name.clone()?,
            id: topic.topic_id,
            partitions: topic.partitions.len(),
            internal: topic.is_internal,
        })
    };
    let mut topics: Vec<TopicListing> = response.topics.iter().filter_map(listing).collect();
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(topics)
}

fn found(response: &MetadataResponse, name: &str) -> Result<TopicDescription, Error> {
    let what = format!("topic `{name}`");
    let found = response.topics.iter().find(|topic| topic.name.as_deref() == Some(name));
    let Some(topic) = found else {
        return Err(Error::Broker { what, code: ErrorCode::UnknownTopicOrPartition });
    };
    refused(&what, topic.error_code, None)?;
    Ok(description(topic))
}

fn description(topic: &MetadataResponseTopic) -> TopicDescription {
    let mut partitions: Vec<PartitionDescription> = topic
        .partitions
        .iter()
        .map(|partition| PartitionDescription {
            partition: partition.partition_index,
            leader: (partition.leader_id >= 0).then_some(partition.leader_id),
            leader_epoch: partition.leader_epoch,
            replicas: partition.replica_nodes.clone(),
            isr: partition.isr_nodes.clone(),
        })
        .collect();
    partitions.sort_by_key(|partition| partition.partition);
    TopicDescription {
        name: topic.name.clone().unwrap_or_default(),
        id: topic.topic_id,
        internal: topic.is_internal,
        partitions,
        authorized_operations: AclOperation::authorized(topic.topic_authorized_operations),
    }
}

//! Topics: listed, described, created, grown and deleted.

use std::rc::Rc;

use ottla_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ottla_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use ottla_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
use ottla_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
};
use ottla_protocol::messages::describe_configs_0::{DescribeConfigsRequest0, DescribeConfigsResourceResult0};
use ottla_protocol::messages::metadata::MetadataResponseTopic;
use ottla_protocol::{ErrorCode, Request};
use tokio::time::Instant;

use super::{
    ClusterDescription, ConfigEntry, NewTopic, Node, PartitionDescription, TopicDescription, TopicListing,
    refused,
};
use crate::cluster::Cluster;
use crate::error::Error;

const CREATE_TOPICS_VERSION_MAX: i16 = 7;
const CREATE_PARTITIONS_VERSION_MAX: i16 = 3;
const DELETE_TOPICS_VERSION_MAX: i16 = 6;
const DESCRIBE_CONFIGS_VERSION_MAX: i16 = 4;

/// The number of topics among the kinds of things that have settings.
const RESOURCE_TOPIC: i8 = 2;
/// A setting's source is nobody's choice: Kafka's built-in default.
const SOURCE_DEFAULT: i8 = 5;
/// The broker decides: from CreateTopics version 4 on.
const BROKER_DEFAULT_SINCE: i16 = 4;

pub(super) async fn describe_cluster(cluster: &Rc<Cluster>) -> Result<ClusterDescription, Error> {
    let response = cluster.describe(Some(&[])).await?;
    let mut brokers: Vec<Node> = response
        .brokers
        .iter()
        .map(|broker| Node { id: broker.node_id, host: broker.host.clone(), port: broker.port as u16 })
        .collect();
    brokers.sort_by_key(|node| node.id);
    let description = ClusterDescription {
        id: response.cluster_id.clone(),
        controller: (response.controller_id >= 0).then_some(response.controller_id),
        brokers,
    };
    cluster.merge(response);
    Ok(description)
}

pub(super) async fn list(cluster: &Rc<Cluster>) -> Result<Vec<TopicListing>, Error> {
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

pub(super) async fn describe(
    cluster: &Rc<Cluster>,
    names: &[String],
) -> Result<Vec<TopicDescription>, Error> {
    let refs: Vec<&str> = names.iter().map(String::as_str).collect();
    let response = cluster.describe(Some(&refs)).await?;
    names
        .iter()
        .map(|name| {
            let what = format!("topic `{name}`");
            let found = response.topics.iter().find(|topic| topic.name.as_ref() == Some(name));
            let Some(topic) = found else {
                return Err(Error::Broker { what, code: ErrorCode::UnknownTopicOrPartition });
            };
            refused(&what, topic.error_code, None)?;
            Ok(description(topic))
        })
        .collect()
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
    }
}

pub(super) async fn create(cluster: &Rc<Cluster>, topics: &[NewTopic]) -> Result<(), Error> {
    let make = |version: i16| CreateTopicsRequest {
        topics: topics.iter().map(|topic| creatable(topic, version)).collect(),
        timeout_ms: timeout_ms(cluster),
        validate_only: false,
    };
    let moved = |response: &CreateTopicsResponse| {
        response.topics.iter().any(|topic| topic.error_code == ErrorCode::NotController)
    };
    let response = ask_controller(cluster, CREATE_TOPICS_VERSION_MAX, make, moved).await?;
    response.topics.iter().try_for_each(|topic| {
        let message =
            topic.error_message.as_deref().filter(|_| topic.error_code != ErrorCode::TopicAlreadyExists);
        refused(&format!("creating topic `{}`", topic.name), topic.error_code, message)
    })
}

fn creatable(topic: &NewTopic, version: i16) -> CreatableTopic {
    // Older brokers do not know "as the broker thinks fit".
    let unsaid = if version >= BROKER_DEFAULT_SINCE { -1 } else { 1 };
    CreatableTopic {
        name: topic.name.clone(),
        num_partitions: topic.partitions.unwrap_or(i32::from(unsaid)),
        replication_factor: topic.replication.unwrap_or(unsaid),
        configs: topic
            .configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig { name: name.clone(), value: Some(value.clone()) })
            .collect(),
        ..Default::default()
    }
}

pub(super) async fn delete(cluster: &Rc<Cluster>, names: &[String]) -> Result<(), Error> {
    let make = |version: i16| {
        let mut request = DeleteTopicsRequest { timeout_ms: timeout_ms(cluster), ..Default::default() };
        if version >= 6 {
            let state = |name: &String| DeleteTopicState { name: Some(name.clone()), ..Default::default() };
            request.topics = names.iter().map(state).collect();
        } else {
            request.topic_names = names.to_vec();
        }
        request
    };
    let moved = |response: &DeleteTopicsResponse| {
        response.responses.iter().any(|topic| topic.error_code == ErrorCode::NotController)
    };
    let response = ask_controller(cluster, DELETE_TOPICS_VERSION_MAX, make, moved).await?;
    response.responses.iter().try_for_each(|topic| {
        let what = format!("deleting topic `{}`", topic.name.as_deref().unwrap_or_default());
        refused(&what, topic.error_code, None)
    })
}

pub(super) async fn create_partitions(cluster: &Rc<Cluster>, topic: &str, total: i32) -> Result<(), Error> {
    let make = |_version: i16| CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic { name: topic.to_owned(), count: total, assignments: None }],
        timeout_ms: timeout_ms(cluster),
        validate_only: false,
    };
    let response = ask_controller(cluster, CREATE_PARTITIONS_VERSION_MAX, make, |response| {
        response.results.iter().any(|result| result.error_code == ErrorCode::NotController)
    })
    .await?;
    response.results.iter().try_for_each(|result| {
        let what = format!("giving topic `{topic}` {total} partitions");
        refused(&what, result.error_code, result.error_message.as_deref())
    })
}

pub(super) async fn describe_configs(cluster: &Rc<Cluster>, topic: &str) -> Result<Vec<ConfigEntry>, Error> {
    let what = format!("settings of topic `{topic}`");
    let resources = vec![DescribeConfigsResource {
        resource_type: RESOURCE_TOPIC,
        resource_name: topic.to_owned(),
        configuration_keys: None,
    }];
    let make = |_version: i16| DescribeConfigsRequest { resources: resources.clone(), ..Default::default() };
    let mut entries = Vec::new();
    match cluster.call_any(DESCRIBE_CONFIGS_VERSION_MAX, make).await {
        Ok(response) => {
            for result in response.results {
                refused(&what, result.error_code, result.error_message.as_deref())?;
                entries.extend(result.configs.into_iter().map(config_entry));
            }
        }
        // Brokers before 1.1 know version 0 only, in which a setting is the default or is not.
        Err(Error::Unsupported { .. }) => {
            let make = |_version: i16| DescribeConfigsRequest0 { resources: resources.clone() };
            for result in cluster.call_any(0, make).await?.results {
                refused(&what, result.error_code, result.error_message.as_deref())?;
                entries.extend(result.configs.into_iter().map(config_entry_0));
            }
        }
        Err(error) => return Err(error),
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn config_entry_0(entry: DescribeConfigsResourceResult0) -> ConfigEntry {
    ConfigEntry {
        name: entry.name,
        value: entry.value,
        default: entry.is_default,
        read_only: entry.read_only,
        sensitive: entry.is_sensitive,
    }
}

fn config_entry(entry: DescribeConfigsResourceResult) -> ConfigEntry {
    ConfigEntry {
        name: entry.name,
        value: entry.value,
        default: entry.config_source == SOURCE_DEFAULT,
        read_only: entry.read_only,
        sensitive: entry.is_sensitive,
    }
}

/// How long the broker may take for a change, so that its answer comes before we stop waiting for it.
fn timeout_ms(cluster: &Cluster) -> i32 {
    i32::try_from(cluster.config.request_timeout.as_millis() * 9 / 10).unwrap_or(i32::MAX)
}

/// Sends a change to the controller, and again to the next one while the answer is that it has moved. A change whose
/// connection broke is not repeated: it may have been made.
async fn ask_controller<R: Request>(
    cluster: &Rc<Cluster>,
    version_max: i16,
    make: impl Fn(i16) -> R,
    moved: impl Fn(&R::Response) -> bool,
) -> Result<R::Response, Error> {
    let deadline = Instant::now() + cluster.config.request_timeout;
    describe_cluster(cluster).await?;
    loop {
        let response = cluster.call_controller(version_max, &make).await?;
        let pause = cluster.config.retry_backoff;
        if !moved(&response) || Instant::now() + pause >= deadline {
            return Ok(response);
        }
        tokio::time::sleep(pause).await;
        describe_cluster(cluster).await?;
    }
}

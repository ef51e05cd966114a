//! Metadata: brokers, topics, and who leads which partition.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_protocol::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_protocol::{ErrorCode, Uuid};

use super::authorized_operations::{OF_TOPIC, if_requested, of_cluster_if_requested};
use super::repeats::without_repeats;
use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::internal_topics::is_internal;
use crate::partition::{NO_LEADER, Partition};
use crate::quotas::Throttled;
use crate::security::acl::ResourceType;
use crate::topics::{METADATA_TOPIC, NewTopic, Topic, check_name};

/// From this version on, a topic can be requested by its id, without a name. The fields are those of version 10, in which Kafka does not
/// accept them.
const IDS_FROM: i16 = 12;
/// From this version on, the lists of replicas have the nodes that are down, too.
const DOWN_REPLICAS_FROM: i16 = 1;

impl Api for MetadataRequest {
    async fn handle(self, context: RequestContext) -> MetadataResponse {
        let has_id = |topic: &MetadataRequestTopic| topic.name.is_none() || topic.topic_id != Uuid::ZERO;
        if context.version < IDS_FROM && self.topics.iter().flatten().any(has_id) {
            return self.refuse(&context, ErrorCode::InvalidRequest);
        }
        let cluster = context.cluster();
        let all = is_of_all(&self, &context);
        let is_requested = self.include_topic_authorized_operations;
        let of_cluster = of_cluster_if_requested(self.include_cluster_authorized_operations, &context);
        let mut throttle = Duration::ZERO;
        let mut topics: Vec<MetadataResponseTopic> = if all {
            let topics = cluster.topics().into_iter().filter(|topic| context.may_see_topic(&topic.name));
            topics.map(|topic| described(cluster, &topic, context.version)).collect()
        } else {
            let wanted = self.topics.unwrap_or_default();
            // A topic that is requested by its id has no name, or any.
            let key = |topic: &MetadataRequestTopic| match topic.topic_id {
                Uuid::ZERO => (topic.name.clone(), Uuid::ZERO),
                id => (None, id),
            };
            let wanted = without_repeats(wanted, key);
            let mut failed = BTreeMap::new();
            if self.allow_auto_topic_creation && cluster.config.auto_create_topics {
                (failed, throttle) = create_missing(&context, &wanted).await;
            }
            wanted.into_iter().map(|topic| one(&context, topic.name, topic.topic_id, &failed)).collect()
        };
        // As Kafka, also for a topic that does not exist. An id that does not exist has no name.
        for topic in &mut topics {
            let Some(name) = topic.name.as_deref().filter(|name| !name.is_empty()) else { continue };
            topic.topic_authorized_operations =
                if_requested(is_requested, &context, (ResourceType::Topic, name), OF_TOPIC);
        }
        let mut response =
            MetadataResponse { topics, cluster_authorized_operations: of_cluster, ..about_cluster(&context) };
        response.throttle(throttle);
        response
    }

    fn refuse(self, context: &RequestContext, code: ErrorCode) -> MetadataResponse {
        let failed = |name: Option<String>, topic_id: Uuid| MetadataResponseTopic {
            error_code: code,
            is_internal: name.as_deref().is_some_and(is_internal),
            name: name.or_else(|| unknown_name(context.version)),
            topic_id,
            ..Default::default()
        };
        let topics: Vec<MetadataResponseTopic> = if is_of_all(&self, context) {
            let topics = context.cluster().topics().into_iter();
            let seen = topics.filter(|topic| context.may_see_topic(&topic.name));
            seen.map(|topic| failed(Some(topic.name.to_string()), topic.id)).collect()
        } else {
            let named = self.topics.unwrap_or_default().into_iter();
            named.map(|topic| failed(topic.name, topic.topic_id)).collect()
        };
        // The only error of a whole answer: the broker is of another cluster than the client's (KIP-1102).
        let error_code = if code == ErrorCode::RebootstrapRequired { code } else { ErrorCode::None };
        MetadataResponse { topics, error_code, ..about_cluster(context) }
    }
}

/// Returns `true` for a request of all topics: before version 1 there was no null.
fn is_of_all(request: &MetadataRequest, context: &RequestContext) -> bool {
    request.topics.as_ref().is_none_or(|topics| context.version == 0 && topics.is_empty())
}

fn about_cluster(context: &RequestContext) -> MetadataResponse {
    let cluster = context.cluster();
    let brokers = cluster.nodes_up().map(|node| {
        let (host, port) = context.address_of(node);
        let rack = cluster.rack(node.id);
        MetadataResponseBroker { node_id: node.id, host, port: i32::from(port), rack }
    });
    MetadataResponse {
        brokers: brokers.collect(),
        cluster_id: Some(cluster.id().to_owned()),
        controller_id: cluster.controller(),
        ..Default::default()
    }
}

/// Creates the topics that do not exist, and returns the errors by name, and the pause of the client. Its quota of controller
/// mutations refuses no topic, as in Kafka: the clients do not know that error here.
async fn create_missing(
    context: &RequestContext,
    wanted: &[MetadataRequestTopic],
) -> (BTreeMap<String, ErrorCode>, Duration) {
    /// No version is strict.
    const STRICT_FROM: i16 = i16::MAX;
    let cluster = context.cluster();
    let named = wanted.iter().filter(|topic| topic.topic_id == Uuid::ZERO);
    let names = named.filter_map(|topic| topic.name.clone());
    // The coordinators create their topics themselves, and the controllers' log is none.
    let is_missing =
        |name: &String| cluster.topic(name).is_none() && !is_internal(name) && name != METADATA_TOPIC;
    let mut missing: Vec<String> = names.filter(is_missing).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Default::default();
    }
    let mut charge = context.mutation_charge(STRICT_FROM, false);
    let create = move |cluster: &Cluster| {
        let topics = missing.iter().map(|name| NewTopic::new(name, -1)).collect();
        let created = cluster.create_topics(topics, false, &mut |partitions| charge.admit(partitions));
        let failed = missing.into_iter().zip(created).filter_map(|(name, created)| {
            let (code, reason) = created.err()?;
            // Another request may have created it meanwhile.
            if code == ErrorCode::TopicAlreadyExists {
                return None;
            }
            tracing::debug!(name, reason, "topic not created");
            Some((name, code))
        });
        (failed.collect(), charge.pause())
    };
    cluster.change_topics(create).await
}

/// The name of a topic that is asked for by an id which does not exist.
fn unknown_name(version: i16) -> Option<String> {
    (version < IDS_FROM).then(String::new)
}

fn one(
    context: &RequestContext,
    name: Option<String>,
    id: Uuid,
    failed: &BTreeMap<String, ErrorCode>,
) -> MetadataResponseTopic {
    let cluster = context.cluster();
    // Java's admin client asks for a topic id with an empty name: the id counts.
    let name = name.filter(|_| id == Uuid::ZERO);
    let Some(name) = name else {
        return match cluster.topic_by_id(id) {
            Some(topic) => described(cluster, &topic, context.version),
            None => MetadataResponseTopic {
                error_code: ErrorCode::UnknownTopicId,
                name: unknown_name(context.version),
                topic_id: id,
                ..Default::default()
            },
        };
    };
    if let Some(topic) = cluster.topic(&name) {
        return described(cluster, &topic, context.version);
    }
    let error_code = match (failed.get(&name), check_name(&name)) {
        (Some(code), _) => *code,
        (None, Err((code, _))) => code,
        (None, Ok(())) => ErrorCode::UnknownTopicOrPartition,
    };
    MetadataResponseTopic {
        error_code,
        is_internal: is_internal(&name),
        name: Some(name),
        ..Default::default()
    }
}

fn described(cluster: &Cluster, topic: &Topic, version: i16) -> MetadataResponseTopic {
    let error_code = cluster.overrides.topic_error(&topic.name);
    let has_partitions = match error_code {
        ErrorCode::None => true,
        ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId => false,
        _ => cluster.overrides.topic_errors_keep_partitions(),
    };
    let partitions = topic.partitions.iter().filter(|_| has_partitions);
    let partitions = partitions.map(|partition| described_partition(cluster, topic, partition, version));
    MetadataResponseTopic {
        error_code,
        name: Some(topic.name.to_string()),
        topic_id: topic.id,
        is_internal: is_internal(&topic.name),
        partitions: partitions.collect(),
        ..Default::default()
    }
}

fn described_partition(
    cluster: &Cluster,
    topic: &Topic,
    partition: &Partition,
    version: i16,
) -> MetadataResponsePartition {
    let told = cluster.overrides.leader_told(&partition.topic, partition.index);
    let (leader, epoch) = told.unwrap_or_else(|| (partition.described_leader(), partition.leader_epoch()));
    let mut replicas = cluster.described_replicas(topic, partition);
    if let Some(shown) = cluster.replicas_shown(partition) {
        replicas.in_sync.clone_from(&shown);
        replicas.all = shown;
    }
    let mut error_code = if leader == NO_LEADER { ErrorCode::LeaderNotAvailable } else { ErrorCode::None };
    if version < DOWN_REPLICAS_FROM {
        // As in Kafka: these clients take every node of the lists for one that is up.
        let count = replicas.all.len();
        replicas.all.retain(|id| cluster.is_node_up(*id));
        replicas.in_sync.retain(|id| cluster.is_node_up(*id));
        if error_code == ErrorCode::None && replicas.all.len() < count {
            error_code = ErrorCode::ReplicaNotAvailable;
        }
    }
    MetadataResponsePartition {
        error_code,
        partition_index: partition.index,
        leader_id: leader,
        leader_epoch: epoch,
        isr_nodes: replicas.in_sync,
        offline_replicas: replicas.offline,
        replica_nodes: replicas.all,
    }
}

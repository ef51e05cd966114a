//! DescribeTopicPartitions: what Java's admin client asks before Metadata (KIP-966), page by page.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic, TopicRequest,
};

use super::{Api, RequestContext, authorized_operations};
use crate::cluster::Cluster;
use crate::internal_topics::is_internal;
use crate::partition::{NO_LEADER, Partition};
use crate::security::acl::{Operation, ResourceType};
use crate::topics::Topic;

/// Partitions of one page, whatever the request asks for.
const PAGE_PARTITIONS_MAX: usize = 2000;

impl Api for DescribeTopicPartitionsRequest {
    async fn handle(self, context: RequestContext) -> DescribeTopicPartitionsResponse {
        let cluster = context.cluster();
        // A cursor is a position among the topics that are asked for.
        let names_cursor = |cursor: &Cursor| {
            self.topics.is_empty() || self.topics.iter().any(|topic| topic.name == cursor.topic_name)
        };
        if self.cursor.as_ref().is_some_and(|cursor| cursor.partition_index < 0 || !names_cursor(cursor)) {
            return self.refuse(&context, ErrorCode::InvalidRequest);
        }
        let mut names = names_of(self.topics, &context);
        // The cursor is a position in the order of names.
        names.sort_unstable();
        names.dedup();
        let (from_topic, from_partition) = match self.cursor {
            Some(Cursor { topic_name, partition_index }) => (topic_name, partition_index.max(0) as usize),
            None => (String::new(), 0),
        };
        let mut room = (self.response_partition_limit.max(1) as usize).min(PAGE_PARTITIONS_MAX);
        let mut response = DescribeTopicPartitionsResponse::default();
        for name in names.into_iter().filter(|name| *name >= from_topic) {
            if room == 0 {
                response.next_cursor = Some(Cursor { topic_name: name, partition_index: 0 });
                break;
            }
            let may_see = context.may(Operation::Describe, ResourceType::Topic, &name);
            let Some(topic) = cluster.topic(&name).filter(|_| may_see) else {
                let error_code = match crate::topics::check_name(&name) {
                    _ if !may_see => ErrorCode::TopicAuthorizationFailed,
                    Ok(()) => ErrorCode::UnknownTopicOrPartition,
                    Err((code, _)) => code,
                };
                let topic = DescribeTopicPartitionsResponseTopic {
                    error_code,
                    name: Some(name),
                    ..Default::default()
                };
                response.topics.push(topic);
                continue;
            };
            let skip = if name == from_topic { from_partition } else { 0 };
            let page = topic.partitions.iter().skip(skip).take(room);
            let partitions: Vec<_> = page.map(|partition| described(cluster, &topic, partition)).collect();
            room -= partitions.len();
            let next = skip + partitions.len();
            let more = next < topic.partitions.len();
            response.topics.push(DescribeTopicPartitionsResponseTopic {
                name: Some(name.clone()),
                topic_id: topic.id,
                is_internal: is_internal(&topic.name),
                partitions,
                topic_authorized_operations: context.allowed_operations(
                    ResourceType::Topic,
                    &topic.name,
                    authorized_operations::OF_TOPIC,
                ),
                ..Default::default()
            });
            if more {
                response.next_cursor = Some(Cursor { topic_name: name, partition_index: next as i32 });
                break;
            }
        }
        response
    }

    /// The response has no error of its own: one for all topics has it in each of them, as Metadata does.
    fn refuse(self, context: &RequestContext, code: ErrorCode) -> DescribeTopicPartitionsResponse {
        let names = names_of(self.topics, context).into_iter();
        let topics = names.map(|name| DescribeTopicPartitionsResponseTopic {
            error_code: code,
            name: Some(name),
            ..Default::default()
        });
        DescribeTopicPartitionsResponse { topics: topics.collect(), ..Default::default() }
    }
}

/// The topics that a request is for: without names, all that the client may see.
fn names_of(topics: Vec<TopicRequest>, context: &RequestContext) -> Vec<String> {
    if topics.is_empty() {
        let names = context.cluster().topics().into_iter().map(|topic| topic.name.to_string());
        names.filter(|name| context.may_see_topic(name)).collect()
    } else {
        topics.into_iter().map(|topic| topic.name).collect()
    }
}

fn described(
    cluster: &Cluster,
    topic: &Topic,
    partition: &Partition,
) -> DescribeTopicPartitionsResponsePartition {
    let leader = partition.described_leader();
    let replicas = cluster.described_replicas(topic, partition);
    DescribeTopicPartitionsResponsePartition {
        error_code: if leader == NO_LEADER { ErrorCode::LeaderNotAvailable } else { ErrorCode::None },
        partition_index: partition.index,
        leader_id: leader,
        leader_epoch: partition.leader_epoch(),
        isr_nodes: replicas.in_sync,
        offline_replicas: replicas.offline,
        replica_nodes: replicas.all,
        // Java's admin client cannot take null here, though the schema allows it.
        eligible_leader_replicas: Some(Vec::new()),
        last_known_elr: Some(Vec::new()),
    }
}

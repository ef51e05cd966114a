//! AlterPartitionReassignments and ListPartitionReassignments. A change is complete at once unless a replication throttle makes it last.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ReassignablePartitionResponse,
    ReassignableTopicResponse,
};
use ottla_protocol::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment, OngoingTopicReassignment,
};

use super::{Api, RequestContext};
use crate::cluster::{Cluster, Reassignment};
use crate::topics::Topic;

impl Api for AlterPartitionReassignmentsRequest {
    async fn handle(self, context: RequestContext) -> AlterPartitionReassignmentsResponse {
        let (topics, may_change_count) = (self.topics, self.allow_replication_factor_change);
        let reassign = move |cluster: &Cluster| {
            let responses = topics.into_iter().map(|topic| {
                let changes = topic.partitions.into_iter().map(|change| Reassignment {
                    partition: change.partition_index,
                    replicas: change.replicas,
                });
                let changes: Vec<Reassignment> = changes.collect();
                let results = cluster.reassign(&topic.name, &changes, may_change_count);
                let partitions = changes.iter().zip(results).map(|(change, result)| {
                    let (error_code, error_message) = match result {
                        Ok(()) => (ErrorCode::None, None),
                        Err((code, reason)) => (code, Some(reason)),
                    };
                    let partition_index = change.partition;
                    ReassignablePartitionResponse { partition_index, error_code, error_message }
                });
                let partitions = partitions.collect();
                ReassignableTopicResponse { name: topic.name, partitions }
            });
            responses.collect()
        };
        AlterPartitionReassignmentsResponse {
            allow_replication_factor_change: may_change_count,
            responses: context.cluster().change_topics(reassign).await,
            ..Default::default()
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> AlterPartitionReassignmentsResponse {
        let error_message = Some(code.message().to_owned());
        let responses = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter().map(|change| ReassignablePartitionResponse {
                partition_index: change.partition_index,
                error_code: code,
                error_message: error_message.clone(),
            });
            ReassignableTopicResponse { name: topic.name, partitions: partitions.collect() }
        });
        AlterPartitionReassignmentsResponse {
            responses: responses.collect(),
            error_code: code,
            error_message,
            ..Default::default()
        }
    }
}

impl Api for ListPartitionReassignmentsRequest {
    async fn handle(self, context: RequestContext) -> ListPartitionReassignmentsResponse {
        let topics = ongoing(context.cluster(), self.topics);
        ListPartitionReassignmentsResponse { topics, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ListPartitionReassignmentsResponse {
        let error_message = Some(code.message().to_owned());
        ListPartitionReassignmentsResponse { error_code: code, error_message, ..Default::default() }
    }
}

/// The reassignments in progress: all of them, or those of a request.
fn ongoing(
    cluster: &Cluster,
    wanted: Option<Vec<ListPartitionReassignmentsTopics>>,
) -> Vec<OngoingTopicReassignment> {
    let wanted = wanted.map(|topics| {
        let mut by_name: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
        for topic in topics {
            by_name.entry(topic.name).or_default().extend(topic.partition_indexes);
        }
        by_name
    });
    let topics = cluster.reassigning_topics().into_iter().filter_map(|topic| {
        let indexes = match &wanted {
            Some(wanted) => Some(wanted.get(&*topic.name)?),
            None => None,
        };
        let partitions = ongoing_partitions(&topic, indexes);
        // Kafka leaves out topics without a reassignment.
        (!partitions.is_empty())
            .then(|| OngoingTopicReassignment { name: topic.name.to_string(), partitions })
    });
    topics.collect()
}

fn ongoing_partitions(topic: &Topic, indexes: Option<&BTreeSet<i32>>) -> Vec<OngoingPartitionReassignment> {
    let is_wanted = |index: &i32| indexes.is_none_or(|all| all.contains(index));
    let partitions = topic.reassignments.iter().filter(|(index, _)| is_wanted(index));
    let described = partitions.filter_map(|(index, ongoing)| {
        let target = topic.assignments.get(index)?;
        Some(OngoingPartitionReassignment {
            partition_index: *index,
            replicas: ongoing.replicas(target),
            adding_replicas: ongoing.adding(),
            removing_replicas: ongoing.removing(target),
        })
    });
    described.collect()
}

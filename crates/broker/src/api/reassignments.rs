//! AlterPartitionReassignments and ListPartitionReassignments. A change is complete at once, so that none is ever listed.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ReassignablePartitionResponse,
    ReassignableTopicResponse,
};
use ottla_protocol::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use super::{Api, RequestContext};
use crate::cluster::{Cluster, Reassignment};

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
    async fn handle(self, _context: RequestContext) -> ListPartitionReassignmentsResponse {
        ListPartitionReassignmentsResponse::default()
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ListPartitionReassignmentsResponse {
        let error_message = Some(code.message().to_owned());
        ListPartitionReassignmentsResponse { error_code: code, error_message, ..Default::default() }
    }
}

//! DescribeQuorum, AddRaftVoter and RemoveRaftVoter: the broker's journal in the place of KRaft's quorum, with one voter.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::add_raft_voter::{AddRaftVoterRequest, AddRaftVoterResponse};
use ottla_protocol::messages::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, Listener, Node, PartitionData, ReplicaState, TopicData,
};
use ottla_protocol::messages::remove_raft_voter::{RemoveRaftVoterRequest, RemoveRaftVoterResponse};

use super::{Api, RequestContext};
use crate::cluster::{Cluster, lock};
use crate::topics::METADATA_TOPIC;

/// The voter never loses an election.
const LEADER_EPOCH: i32 = 1;
const LISTENER: &str = "PLAINTEXT";

impl Api for DescribeQuorumRequest {
    async fn handle(self, context: RequestContext) -> DescribeQuorumResponse {
        let cluster = context.cluster();
        let is_quorum = match self.topics.as_slice() {
            [topic] => {
                let partitions = topic.partitions.iter().map(|partition| partition.partition_index);
                topic.topic_name == METADATA_TOPIC && partitions.eq([0])
            }
            _ => false,
        };
        if !is_quorum {
            return unknown(self);
        }
        let leader = cluster.controller();
        let end_offset = lock(&cluster.journal).end_offset();
        let state = |replica_id| ReplicaState {
            replica_id,
            log_end_offset: end_offset,
            last_fetch_timestamp: cluster.clock.now_ms(),
            last_caught_up_timestamp: cluster.clock.now_ms(),
            ..Default::default()
        };
        let observers = cluster.nodes_up().map(|node| node.id).filter(|id| *id != leader);
        let partition = PartitionData {
            leader_id: leader,
            leader_epoch: LEADER_EPOCH,
            high_watermark: end_offset,
            current_voters: vec![state(leader)],
            observers: observers.map(state).collect(),
            ..Default::default()
        };
        let topic = TopicData { topic_name: METADATA_TOPIC.to_owned(), partitions: vec![partition] };
        // Version 2 added the nodes.
        let leader_node = cluster.node(leader).filter(|_| context.version >= 2);
        let nodes = leader_node.into_iter().map(|node| {
            let (host, port) = context.address_of(node);
            let listeners = vec![Listener { name: LISTENER.to_owned(), host, port }];
            Node { node_id: leader, listeners }
        });
        let nodes = nodes.collect();
        DescribeQuorumResponse { topics: vec![topic], nodes, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeQuorumResponse {
        let error_message = Some(code.message().to_owned());
        DescribeQuorumResponse { error_code: code, error_message, ..Default::default() }
    }
}

/// The response for partitions that are not the quorum's.
fn unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| PartitionData {
            partition_index: partition.partition_index,
            error_code: ErrorCode::UnknownTopicOrPartition,
            ..Default::default()
        });
        TopicData { topic_name: topic.topic_name, partitions: partitions.collect() }
    });
    DescribeQuorumResponse { topics: topics.collect(), ..Default::default() }
}

/// The error of a change of the voters: as in Kafka with voters that are configured (`kraft.version` 0).
fn refusal(cluster: &Cluster, cluster_id: Option<&str>) -> (ErrorCode, Option<String>) {
    match cluster_id {
        Some(id) if id != cluster.id() => {
            let reason = format!("the request is for cluster `{id}`, this is `{}`", cluster.id());
            (ErrorCode::InconsistentClusterId, Some(reason))
        }
        _ => {
            let reason = "the metadata of this broker has one voter, which cannot change".to_owned();
            (ErrorCode::UnsupportedVersion, Some(reason))
        }
    }
}

impl Api for AddRaftVoterRequest {
    async fn handle(self, context: RequestContext) -> AddRaftVoterResponse {
        let (error_code, error_message) = refusal(context.cluster(), self.cluster_id.as_deref());
        AddRaftVoterResponse { error_code, error_message, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> AddRaftVoterResponse {
        let error_message = Some(code.message().to_owned());
        AddRaftVoterResponse { error_code: code, error_message, ..Default::default() }
    }
}

impl Api for RemoveRaftVoterRequest {
    async fn handle(self, context: RequestContext) -> RemoveRaftVoterResponse {
        let (error_code, error_message) = refusal(context.cluster(), self.cluster_id.as_deref());
        RemoveRaftVoterResponse { error_code, error_message, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> RemoveRaftVoterResponse {
        let error_message = Some(code.message().to_owned());
        RemoveRaftVoterResponse { error_code: code, error_message, ..Default::default() }
    }
}

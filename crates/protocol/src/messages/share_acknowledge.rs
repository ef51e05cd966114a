//! ShareAcknowledge: acknowledges acquired records without a fetch.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ShareAcknowledge, versions = "1-2", flexible = "0+", response = ShareAcknowledgeResponse)]
pub struct ShareAcknowledgeRequest {
    #[field(default = null)]
    pub group_id: Option<String>,
    pub member_id: Option<String>,
    pub share_session_epoch: i32,
    #[field(versions = "2+")]
    pub is_renew_ack: bool,
    pub topics: Vec<AcknowledgeTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AcknowledgeTopic {
    pub topic_id: Uuid,
    pub partitions: Vec<AcknowledgePartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AcknowledgePartition {
    pub partition_index: i32,
    pub acknowledgement_batches: Vec<AcknowledgementBatch>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AcknowledgementBatch {
    pub first_offset: i64,
    pub last_offset: i64,
    pub acknowledge_types: Vec<i8>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-2", flexible = "0+")]
pub struct ShareAcknowledgeResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
    #[field(versions = "2+", ignorable)]
    pub acquisition_lock_timeout_ms: i32,
    pub responses: Vec<ShareAcknowledgeTopicResponse>,
    pub node_endpoints: Vec<NodeEndpoint>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ShareAcknowledgeTopicResponse {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionData {
    pub partition_index: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
    pub current_leader: LeaderIdAndEpoch,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct LeaderIdAndEpoch {
    pub leader_id: i32,
    pub leader_epoch: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct NodeEndpoint {
    pub node_id: i32,
    pub host: String,
    pub port: i32,
    #[field(default = null)]
    pub rack: Option<String>,
}

//! ShareFetch: acquires records for a member of a share group, and acknowledges others.

use ottla_protocol_derive::Message;
use ottla_wire::Chain;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ShareFetch, versions = "1-2", flexible = "0+", response = ShareFetchResponse)]
pub struct ShareFetchRequest {
    #[field(default = null)]
    pub group_id: Option<String>,
    pub member_id: Option<String>,
    pub share_session_epoch: i32,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    #[field(default = i32::MAX)]
    pub max_bytes: i32,
    pub max_records: i32,
    pub batch_size: i32,
    #[field(versions = "2+", ignorable)]
    pub share_acquire_mode: i8,
    #[field(versions = "2+")]
    pub is_renew_ack: bool,
    pub topics: Vec<FetchTopic>,
    pub forgotten_topics_data: Vec<ForgottenTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct FetchTopic {
    pub topic_id: Uuid,
    pub partitions: Vec<FetchPartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct FetchPartition {
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
pub struct ForgottenTopic {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-2", flexible = "0+")]
pub struct ShareFetchResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
    pub acquisition_lock_timeout_ms: i32,
    pub responses: Vec<ShareFetchableTopicResponse>,
    pub node_endpoints: Vec<NodeEndpoint>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ShareFetchableTopicResponse {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionData {
    pub partition_index: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
    pub acknowledge_error_code: ErrorCode,
    #[field(default = null)]
    pub acknowledge_error_message: Option<String>,
    pub current_leader: LeaderIdAndEpoch,
    pub records: Chain,
    pub acquired_records: Vec<AcquiredRecords>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct LeaderIdAndEpoch {
    pub leader_id: i32,
    pub leader_epoch: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AcquiredRecords {
    pub first_offset: i64,
    pub last_offset: i64,
    pub delivery_count: i16,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct NodeEndpoint {
    pub node_id: i32,
    pub host: String,
    pub port: i32,
    #[field(default = null)]
    pub rack: Option<String>,
}

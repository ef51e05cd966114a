//! Fetch: reads record batches from an offset.

use ottla_protocol_derive::Message;
use ottla_wire::Chain;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = Fetch, versions = "4-18", flexible = "12+", response = FetchResponse)]
pub struct FetchRequest {
    #[field(versions = "12+", tag = 0, default = null, ignorable)]
    pub cluster_id: Option<String>,
    #[field(versions = "0-14", default = -1)]
    pub replica_id: i32,
    #[field(versions = "15+", tag = 1)]
    pub replica_state: ReplicaState,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    #[field(default = i32::MAX, ignorable)]
    pub max_bytes: i32,
    #[field(ignorable)]
    pub isolation_level: i8,
    #[field(versions = "7+", ignorable)]
    pub session_id: i32,
    #[field(versions = "7+", default = -1, ignorable)]
    pub session_epoch: i32,
    pub topics: Vec<FetchTopic>,
    #[field(versions = "7+")]
    pub forgotten_topics_data: Vec<ForgottenTopic>,
    #[field(versions = "11+", ignorable)]
    pub rack_id: String,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ReplicaState {
    #[field(default = -1)]
    pub replica_id: i32,
    #[field(default = -1)]
    pub replica_epoch: i64,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct FetchTopic {
    #[field(versions = "0-12", ignorable)]
    pub topic: String,
    #[field(versions = "13+", ignorable)]
    pub topic_id: Uuid,
    pub partitions: Vec<FetchPartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct FetchPartition {
    pub partition: i32,
    #[field(versions = "9+", default = -1, ignorable)]
    pub current_leader_epoch: i32,
    pub fetch_offset: i64,
    #[field(versions = "12+", default = -1)]
    pub last_fetched_epoch: i32,
    #[field(versions = "5+", default = -1, ignorable)]
    pub log_start_offset: i64,
    pub partition_max_bytes: i32,
    #[field(versions = "17+", tag = 0, ignorable)]
    pub replica_directory_id: Uuid,
    #[field(versions = "18+", tag = 1, default = i64::MAX, ignorable)]
    pub high_watermark: i64,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ForgottenTopic {
    #[field(versions = "7-12", ignorable)]
    pub topic: String,
    #[field(versions = "13+", ignorable)]
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "4-18", flexible = "12+")]
pub struct FetchResponse {
    #[field(ignorable)]
    pub throttle_time_ms: i32,
    #[field(versions = "7+", ignorable)]
    pub error_code: ErrorCode,
    #[field(versions = "7+")]
    pub session_id: i32,
    pub responses: Vec<FetchableTopicResponse>,
    #[field(versions = "16+", tag = 0)]
    pub node_endpoints: Vec<NodeEndpoint>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct FetchableTopicResponse {
    #[field(versions = "0-12", ignorable)]
    pub topic: String,
    #[field(versions = "13+", ignorable)]
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionData {
    pub partition_index: i32,
    pub error_code: ErrorCode,
    pub high_watermark: i64,
    #[field(default = -1, ignorable)]
    pub last_stable_offset: i64,
    #[field(versions = "5+", default = -1, ignorable)]
    pub log_start_offset: i64,
    #[field(versions = "12+", tag = 0)]
    pub diverging_epoch: EpochEndOffset,
    #[field(versions = "12+", tag = 1)]
    pub current_leader: LeaderIdAndEpoch,
    #[field(versions = "12+", tag = 2)]
    pub snapshot_id: SnapshotId,
    #[field(ignorable)]
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    #[field(versions = "11+", default = -1)]
    pub preferred_read_replica: i32,
    pub records: Option<Chain>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct EpochEndOffset {
    #[field(default = -1)]
    pub epoch: i32,
    #[field(default = -1)]
    pub end_offset: i64,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct LeaderIdAndEpoch {
    #[field(default = -1)]
    pub leader_id: i32,
    #[field(default = -1)]
    pub leader_epoch: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct SnapshotId {
    #[field(default = -1)]
    pub end_offset: i64,
    #[field(default = -1)]
    pub epoch: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct NodeEndpoint {
    pub node_id: i32,
    pub host: String,
    pub port: i32,
    #[field(default = null)]
    pub rack: Option<String>,
}

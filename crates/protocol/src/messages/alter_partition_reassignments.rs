//! AlterPartitionReassignments: changes the replicas of partitions, or cancels such changes.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = AlterPartitionReassignments, versions = "0-1", flexible = "0+", response = AlterPartitionReassignmentsResponse)]
pub struct AlterPartitionReassignmentsRequest {
    #[field(default = 60000)]
    pub timeout_ms: i32,
    #[field(versions = "1+", default = true)]
    pub allow_replication_factor_change: bool,
    pub topics: Vec<ReassignableTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ReassignableTopic {
    pub name: String,
    pub partitions: Vec<ReassignablePartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ReassignablePartition {
    pub partition_index: i32,
    #[field(default = null)]
    pub replicas: Option<Vec<i32>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1", flexible = "0+")]
pub struct AlterPartitionReassignmentsResponse {
    pub throttle_time_ms: i32,
    #[field(versions = "1+", default = true, ignorable)]
    pub allow_replication_factor_change: bool,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub responses: Vec<ReassignableTopicResponse>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ReassignableTopicResponse {
    pub name: String,
    pub partitions: Vec<ReassignablePartitionResponse>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ReassignablePartitionResponse {
    pub partition_index: i32,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
}

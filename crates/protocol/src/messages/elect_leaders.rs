//! ElectLeaders: elects preferred leaders, or unclean ones.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ElectLeaders, versions = "0-2", flexible = "2+", response = ElectLeadersResponse)]
pub struct ElectLeadersRequest {
    #[field(versions = "1+")]
    pub election_type: i8,
    pub topic_partitions: Option<Vec<TopicPartitions>>,
    #[field(default = 60000)]
    pub timeout_ms: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicPartitions {
    pub topic: String,
    pub partitions: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-2", flexible = "2+")]
pub struct ElectLeadersResponse {
    pub throttle_time_ms: i32,
    #[field(versions = "1+")]
    pub error_code: ErrorCode,
    pub replica_election_results: Vec<ReplicaElectionResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ReplicaElectionResult {
    pub topic: String,
    pub partition_result: Vec<PartitionResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionResult {
    pub partition_id: i32,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
}

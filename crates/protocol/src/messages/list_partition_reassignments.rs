//! ListPartitionReassignments: the changes of replicas that are in progress.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ListPartitionReassignments, versions = "0", flexible = "0+", response = ListPartitionReassignmentsResponse)]
pub struct ListPartitionReassignmentsRequest {
    #[field(default = 60000)]
    pub timeout_ms: i32,
    #[field(default = null)]
    pub topics: Option<Vec<ListPartitionReassignmentsTopics>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ListPartitionReassignmentsTopics {
    pub name: String,
    pub partition_indexes: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ListPartitionReassignmentsResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub topics: Vec<OngoingTopicReassignment>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OngoingTopicReassignment {
    pub name: String,
    pub partitions: Vec<OngoingPartitionReassignment>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OngoingPartitionReassignment {
    pub partition_index: i32,
    pub replicas: Vec<i32>,
    pub adding_replicas: Vec<i32>,
    pub removing_replicas: Vec<i32>,
}

//! CreatePartitions: adds partitions to topics.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = CreatePartitions, versions = "0-3", flexible = "2+", response = CreatePartitionsResponse)]
pub struct CreatePartitionsRequest {
    pub topics: Vec<CreatePartitionsTopic>,
    pub timeout_ms: i32,
    pub validate_only: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct CreatePartitionsTopic {
    pub name: String,
    pub count: i32,
    pub assignments: Option<Vec<CreatePartitionsAssignment>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct CreatePartitionsAssignment {
    pub broker_ids: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-3", flexible = "2+")]
pub struct CreatePartitionsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<CreatePartitionsTopicResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct CreatePartitionsTopicResult {
    pub name: String,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
}

//! ShareGroupDescribe: state and members of share groups.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ShareGroupDescribe, versions = "1", flexible = "0+", response = ShareGroupDescribeResponse)]
pub struct ShareGroupDescribeRequest {
    pub group_ids: Vec<String>,
    pub include_authorized_operations: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1", flexible = "0+")]
pub struct ShareGroupDescribeResponse {
    pub throttle_time_ms: i32,
    pub groups: Vec<DescribedGroup>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribedGroup {
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
    pub group_id: String,
    pub group_state: String,
    pub group_epoch: i32,
    pub assignment_epoch: i32,
    pub assignor_name: String,
    pub members: Vec<Member>,
    #[field(default = i32::MIN)]
    pub authorized_operations: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct Member {
    pub member_id: String,
    #[field(default = null)]
    pub rack_id: Option<String>,
    pub member_epoch: i32,
    pub client_id: String,
    pub client_host: String,
    pub subscribed_topic_names: Vec<String>,
    pub assignment: Assignment,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicPartitions {
    pub topic_id: Uuid,
    pub topic_name: String,
    pub partitions: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct Assignment {
    pub topic_partitions: Vec<TopicPartitions>,
}

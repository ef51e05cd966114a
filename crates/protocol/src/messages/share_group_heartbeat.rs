//! ShareGroupHeartbeat: membership and assignment of share groups (KIP-932).

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ShareGroupHeartbeat, versions = "1", flexible = "0+", response = ShareGroupHeartbeatResponse)]
pub struct ShareGroupHeartbeatRequest {
    pub group_id: String,
    pub member_id: String,
    pub member_epoch: i32,
    #[field(default = null)]
    pub rack_id: Option<String>,
    #[field(default = null)]
    pub subscribed_topic_names: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1", flexible = "0+")]
pub struct ShareGroupHeartbeatResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
    #[field(default = null)]
    pub member_id: Option<String>,
    pub member_epoch: i32,
    pub heartbeat_interval_ms: i32,
    #[field(default = null)]
    pub assignment: Option<Assignment>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct Assignment {
    pub topic_partitions: Vec<TopicPartitions>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicPartitions {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

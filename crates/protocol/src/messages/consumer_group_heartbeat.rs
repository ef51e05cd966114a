//! ConsumerGroupHeartbeat: membership and assignment of KIP-848 groups.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ConsumerGroupHeartbeat, versions = "0-1", flexible = "0+", response = ConsumerGroupHeartbeatResponse)]
pub struct ConsumerGroupHeartbeatRequest {
    pub group_id: String,
    pub member_id: String,
    pub member_epoch: i32,
    #[field(default = null)]
    pub instance_id: Option<String>,
    #[field(default = null)]
    pub rack_id: Option<String>,
    #[field(default = -1)]
    pub rebalance_timeout_ms: i32,
    #[field(default = null)]
    pub subscribed_topic_names: Option<Vec<String>>,
    #[field(versions = "1+", default = null)]
    pub subscribed_topic_regex: Option<String>,
    #[field(default = null)]
    pub server_assignor: Option<String>,
    #[field(default = null)]
    pub topic_partitions: Option<Vec<TopicPartitions>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicPartitions {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1", flexible = "0+")]
pub struct ConsumerGroupHeartbeatResponse {
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

//! Heartbeat: keeps a member of a classic group alive.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = Heartbeat, versions = "0-4", flexible = "4+", response = HeartbeatResponse)]
pub struct HeartbeatRequest {
    pub group_id: String,
    pub generation_id: i32,
    pub member_id: String,
    #[field(versions = "3+", default = null)]
    pub group_instance_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-4", flexible = "4+")]
pub struct HeartbeatResponse {
    #[field(versions = "1+", ignorable)]
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
}

//! JoinGroup: joins or rejoins a classic group.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = JoinGroup, versions = "0-9", flexible = "6+", response = JoinGroupResponse)]
pub struct JoinGroupRequest {
    pub group_id: String,
    pub session_timeout_ms: i32,
    #[field(versions = "1+", default = -1, ignorable)]
    pub rebalance_timeout_ms: i32,
    pub member_id: String,
    #[field(versions = "5+", default = null)]
    pub group_instance_id: Option<String>,
    pub protocol_type: String,
    pub protocols: Vec<JoinGroupRequestProtocol>,
    #[field(versions = "8+", default = null, ignorable)]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct JoinGroupRequestProtocol {
    pub name: String,
    pub metadata: Bytes,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-9", flexible = "6+")]
pub struct JoinGroupResponse {
    #[field(versions = "2+", ignorable)]
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(default = -1)]
    pub generation_id: i32,
    #[field(versions = "7+", default = null, ignorable)]
    pub protocol_type: Option<String>,
    #[field(nullable = "7+")]
    pub protocol_name: Option<String>,
    pub leader: String,
    #[field(versions = "9+")]
    pub skip_assignment: bool,
    pub member_id: String,
    pub members: Vec<JoinGroupResponseMember>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct JoinGroupResponseMember {
    pub member_id: String,
    #[field(versions = "5+", default = null, ignorable)]
    pub group_instance_id: Option<String>,
    pub metadata: Bytes,
}

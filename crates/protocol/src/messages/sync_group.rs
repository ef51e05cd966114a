//! SyncGroup: the leader sends the assignments, and every member receives its own.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = SyncGroup, versions = "0-5", flexible = "4+", response = SyncGroupResponse)]
pub struct SyncGroupRequest {
    pub group_id: String,
    pub generation_id: i32,
    pub member_id: String,
    #[field(versions = "3+", default = null)]
    pub group_instance_id: Option<String>,
    #[field(versions = "5+", default = null, ignorable)]
    pub protocol_type: Option<String>,
    #[field(versions = "5+", default = null, ignorable)]
    pub protocol_name: Option<String>,
    pub assignments: Vec<SyncGroupRequestAssignment>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct SyncGroupRequestAssignment {
    pub member_id: String,
    pub assignment: Bytes,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-5", flexible = "4+")]
pub struct SyncGroupResponse {
    #[field(versions = "1+", ignorable)]
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(versions = "5+", default = null, ignorable)]
    pub protocol_type: Option<String>,
    #[field(versions = "5+", default = null, ignorable)]
    pub protocol_name: Option<String>,
    pub assignment: Bytes,
}

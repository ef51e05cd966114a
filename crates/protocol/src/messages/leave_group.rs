//! LeaveGroup: removes members from a classic group.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = LeaveGroup, versions = "0-5", flexible = "4+", response = LeaveGroupResponse)]
pub struct LeaveGroupRequest {
    pub group_id: String,
    #[field(versions = "0-2")]
    pub member_id: String,
    #[field(versions = "3+")]
    pub members: Vec<MemberIdentity>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct MemberIdentity {
    pub member_id: String,
    #[field(default = null)]
    pub group_instance_id: Option<String>,
    #[field(versions = "5+", default = null, ignorable)]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-5", flexible = "4+")]
pub struct LeaveGroupResponse {
    #[field(versions = "1+", ignorable)]
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(versions = "3+")]
    pub members: Vec<MemberResponse>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct MemberResponse {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub error_code: ErrorCode,
}

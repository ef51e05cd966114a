//! DeleteGroups: deletes empty groups and their offsets.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DeleteGroups, versions = "0-2", flexible = "2+", response = DeleteGroupsResponse)]
pub struct DeleteGroupsRequest {
    pub groups_names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-2", flexible = "2+")]
pub struct DeleteGroupsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<DeletableGroupResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DeletableGroupResult {
    pub group_id: String,
    pub error_code: ErrorCode,
}

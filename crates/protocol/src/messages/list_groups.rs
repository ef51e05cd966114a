//! ListGroups: the groups that a broker coordinates.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ListGroups, versions = "0-5", flexible = "3+", response = ListGroupsResponse)]
pub struct ListGroupsRequest {
    #[field(versions = "4+")]
    pub states_filter: Vec<String>,
    #[field(versions = "5+")]
    pub types_filter: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-5", flexible = "3+")]
pub struct ListGroupsResponse {
    #[field(versions = "1+", ignorable)]
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    pub groups: Vec<ListedGroup>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ListedGroup {
    pub group_id: String,
    pub protocol_type: String,
    #[field(versions = "4+", ignorable)]
    pub group_state: String,
    #[field(versions = "5+", ignorable)]
    pub group_type: String,
}

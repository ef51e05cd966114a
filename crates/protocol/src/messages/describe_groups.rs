//! DescribeGroups: state and members of classic groups.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeGroups, versions = "0-6", flexible = "5+", response = DescribeGroupsResponse)]
pub struct DescribeGroupsRequest {
    pub groups: Vec<String>,
    #[field(versions = "3+")]
    pub include_authorized_operations: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-6", flexible = "5+")]
pub struct DescribeGroupsResponse {
    #[field(versions = "1+", ignorable)]
    pub throttle_time_ms: i32,
    pub groups: Vec<DescribedGroup>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribedGroup {
    pub error_code: ErrorCode,
    #[field(versions = "6+", default = null)]
    pub error_message: Option<String>,
    pub group_id: String,
    pub group_state: String,
    pub protocol_type: String,
    pub protocol_data: String,
    pub members: Vec<DescribedGroupMember>,
    #[field(versions = "3+", default = i32::MIN)]
    pub authorized_operations: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribedGroupMember {
    pub member_id: String,
    #[field(versions = "4+", default = null, ignorable)]
    pub group_instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub member_metadata: Bytes,
    pub member_assignment: Bytes,
}

//! DeleteAcls: deletes the ACLs that filters match, and returns them.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DeleteAcls, versions = "1-3", flexible = "2+", response = DeleteAclsResponse)]
pub struct DeleteAclsRequest {
    pub filters: Vec<DeleteAclsFilter>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DeleteAclsFilter {
    pub resource_type_filter: i8,
    pub resource_name_filter: Option<String>,
    #[field(default = 3)]
    pub pattern_type_filter: i8,
    pub principal_filter: Option<String>,
    pub host_filter: Option<String>,
    pub operation: i8,
    pub permission_type: i8,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-3", flexible = "2+")]
pub struct DeleteAclsResponse {
    pub throttle_time_ms: i32,
    pub filter_results: Vec<DeleteAclsFilterResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DeleteAclsFilterResult {
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub matching_acls: Vec<DeleteAclsMatchingAcl>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DeleteAclsMatchingAcl {
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub resource_type: i8,
    pub resource_name: String,
    #[field(default = 3)]
    pub pattern_type: i8,
    pub principal: String,
    pub host: String,
    pub operation: i8,
    pub permission_type: i8,
}

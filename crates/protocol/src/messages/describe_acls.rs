//! DescribeAcls: the ACLs that a filter matches.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeAcls, versions = "1-3", flexible = "2+", response = DescribeAclsResponse)]
pub struct DescribeAclsRequest {
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
pub struct DescribeAclsResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub resources: Vec<DescribeAclsResource>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeAclsResource {
    pub resource_type: i8,
    pub resource_name: String,
    #[field(default = 3)]
    pub pattern_type: i8,
    pub acls: Vec<AclDescription>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AclDescription {
    pub principal: String,
    pub host: String,
    pub operation: i8,
    pub permission_type: i8,
}

//! CreateAcls: creates ACLs.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = CreateAcls, versions = "1-3", flexible = "2+", response = CreateAclsResponse)]
pub struct CreateAclsRequest {
    pub creations: Vec<AclCreation>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AclCreation {
    pub resource_type: i8,
    pub resource_name: String,
    #[field(default = 3)]
    pub resource_pattern_type: i8,
    pub principal: String,
    pub host: String,
    pub operation: i8,
    pub permission_type: i8,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-3", flexible = "2+")]
pub struct CreateAclsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<AclCreationResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AclCreationResult {
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
}

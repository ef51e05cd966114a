//! AlterConfigs: replaces all configs of a resource. IncrementalAlterConfigs supersedes it.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = AlterConfigs, versions = "0-2", flexible = "2+", response = AlterConfigsResponse)]
pub struct AlterConfigsRequest {
    pub resources: Vec<AlterConfigsResource>,
    pub validate_only: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterConfigsResource {
    pub resource_type: i8,
    pub resource_name: String,
    pub configs: Vec<AlterableConfig>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterableConfig {
    pub name: String,
    pub value: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-2", flexible = "2+")]
pub struct AlterConfigsResponse {
    pub throttle_time_ms: i32,
    pub responses: Vec<AlterConfigsResourceResponse>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterConfigsResourceResponse {
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub resource_type: i8,
    pub resource_name: String,
}

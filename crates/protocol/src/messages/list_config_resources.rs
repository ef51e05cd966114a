//! ListConfigResources: the names of the resources that have a configuration (KIP-1142).

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ListConfigResources, versions = "0-1", flexible = "0+", response = ListConfigResourcesResponse)]
pub struct ListConfigResourcesRequest {
    #[field(versions = "1+")]
    pub resource_types: Vec<i8>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1", flexible = "0+")]
pub struct ListConfigResourcesResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    pub config_resources: Vec<ConfigResource>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ConfigResource {
    pub resource_name: String,
    #[field(versions = "1+", default = 16, ignorable)]
    pub resource_type: i8,
}

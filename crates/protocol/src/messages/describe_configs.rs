//! DescribeConfigs: the configs of topics and brokers, with their sources.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeConfigs, versions = "1-4", flexible = "4+", response = DescribeConfigsResponse)]
pub struct DescribeConfigsRequest {
    pub resources: Vec<DescribeConfigsResource>,
    pub include_synonyms: bool,
    #[field(versions = "3+")]
    pub include_documentation: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeConfigsResource {
    pub resource_type: i8,
    pub resource_name: String,
    pub configuration_keys: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-4", flexible = "4+")]
pub struct DescribeConfigsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<DescribeConfigsResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeConfigsResult {
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub resource_type: i8,
    pub resource_name: String,
    pub configs: Vec<DescribeConfigsResourceResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeConfigsResourceResult {
    pub name: String,
    pub value: Option<String>,
    pub read_only: bool,
    #[field(default = -1, ignorable)]
    pub config_source: i8,
    pub is_sensitive: bool,
    #[field(ignorable)]
    pub synonyms: Vec<DescribeConfigsSynonym>,
    #[field(versions = "3+", ignorable)]
    pub config_type: i8,
    #[field(versions = "3+", ignorable)]
    pub documentation: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeConfigsSynonym {
    pub name: String,
    pub value: Option<String>,
    pub source: i8,
}

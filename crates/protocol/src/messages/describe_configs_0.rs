//! DescribeConfigs in version 0. Apache Kafka 4 has removed it, and brokers before 1.1 support only this version.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::messages::describe_configs::DescribeConfigsResource;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeConfigs, versions = "0", response = DescribeConfigsResponse0)]
pub struct DescribeConfigsRequest0 {
    pub resources: Vec<DescribeConfigsResource>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0")]
pub struct DescribeConfigsResponse0 {
    pub throttle_time_ms: i32,
    pub results: Vec<DescribeConfigsResult0>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeConfigsResult0 {
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub resource_type: i8,
    pub resource_name: String,
    pub configs: Vec<DescribeConfigsResourceResult0>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeConfigsResourceResult0 {
    pub name: String,
    pub value: Option<String>,
    pub read_only: bool,
    pub is_default: bool,
    pub is_sensitive: bool,
}

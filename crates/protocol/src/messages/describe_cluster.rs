//! DescribeCluster: brokers and controller.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeCluster, versions = "0-2", flexible = "0+", response = DescribeClusterResponse)]
pub struct DescribeClusterRequest {
    pub include_cluster_authorized_operations: bool,
    #[field(versions = "1+", default = 1)]
    pub endpoint_type: i8,
    #[field(versions = "2+")]
    pub include_fenced_brokers: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-2", flexible = "0+")]
pub struct DescribeClusterResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
    #[field(versions = "1+", default = 1)]
    pub endpoint_type: i8,
    pub cluster_id: String,
    #[field(default = -1)]
    pub controller_id: i32,
    pub brokers: Vec<DescribeClusterBroker>,
    #[field(default = i32::MIN)]
    pub cluster_authorized_operations: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeClusterBroker {
    pub broker_id: i32,
    pub host: String,
    pub port: i32,
    #[field(default = null)]
    pub rack: Option<String>,
    #[field(versions = "2+")]
    pub is_fenced: bool,
}

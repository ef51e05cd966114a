//! Metadata: brokers, topics, partitions and their leaders.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = Metadata, versions = "0-13", flexible = "9+", response = MetadataResponse)]
pub struct MetadataRequest {
    #[field(nullable = "1+")]
    pub topics: Option<Vec<MetadataRequestTopic>>,
    #[field(versions = "4+", default = true)]
    pub allow_auto_topic_creation: bool,
    #[field(versions = "8-10")]
    pub include_cluster_authorized_operations: bool,
    #[field(versions = "8+")]
    pub include_topic_authorized_operations: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct MetadataRequestTopic {
    #[field(versions = "10+", ignorable)]
    pub topic_id: Uuid,
    #[field(nullable = "10+")]
    pub name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-13", flexible = "9+")]
pub struct MetadataResponse {
    #[field(versions = "3+", ignorable)]
    pub throttle_time_ms: i32,
    pub brokers: Vec<MetadataResponseBroker>,
    #[field(versions = "2+", default = null, ignorable)]
    pub cluster_id: Option<String>,
    #[field(versions = "1+", default = -1, ignorable)]
    pub controller_id: i32,
    pub topics: Vec<MetadataResponseTopic>,
    #[field(versions = "8-10", default = i32::MIN)]
    pub cluster_authorized_operations: i32,
    #[field(versions = "13+", ignorable)]
    pub error_code: ErrorCode,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct MetadataResponseBroker {
    pub node_id: i32,
    pub host: String,
    pub port: i32,
    #[field(versions = "1+", default = null, ignorable)]
    pub rack: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct MetadataResponseTopic {
    pub error_code: ErrorCode,
    #[field(nullable = "12+")]
    pub name: Option<String>,
    #[field(versions = "10+", ignorable)]
    pub topic_id: Uuid,
    #[field(versions = "1+", ignorable)]
    pub is_internal: bool,
    pub partitions: Vec<MetadataResponsePartition>,
    #[field(versions = "8+", default = i32::MIN)]
    pub topic_authorized_operations: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct MetadataResponsePartition {
    pub error_code: ErrorCode,
    pub partition_index: i32,
    pub leader_id: i32,
    #[field(versions = "7+", default = -1, ignorable)]
    pub leader_epoch: i32,
    pub replica_nodes: Vec<i32>,
    pub isr_nodes: Vec<i32>,
    #[field(versions = "5+", ignorable)]
    pub offline_replicas: Vec<i32>,
}

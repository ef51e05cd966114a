//! DescribeQuorum: the leader, the voters and the observers of the metadata quorum.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeQuorum, versions = "0-2", flexible = "0+", response = DescribeQuorumResponse)]
pub struct DescribeQuorumRequest {
    pub topics: Vec<requested::TopicData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-2", flexible = "0+")]
pub struct DescribeQuorumResponse {
    pub error_code: ErrorCode,
    #[field(versions = "2+", ignorable)]
    pub error_message: Option<String>,
    pub topics: Vec<TopicData>,
    #[field(versions = "2+")]
    pub nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicData {
    pub topic_name: String,
    pub partitions: Vec<PartitionData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionData {
    pub partition_index: i32,
    pub error_code: ErrorCode,
    #[field(versions = "2+", ignorable)]
    pub error_message: Option<String>,
    pub leader_id: i32,
    pub leader_epoch: i32,
    pub high_watermark: i64,
    pub current_voters: Vec<ReplicaState>,
    pub observers: Vec<ReplicaState>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ReplicaState {
    pub replica_id: i32,
    #[field(versions = "2+")]
    pub replica_directory_id: Uuid,
    pub log_end_offset: i64,
    #[field(versions = "1+", default = -1, ignorable)]
    pub last_fetch_timestamp: i64,
    #[field(versions = "1+", default = -1, ignorable)]
    pub last_caught_up_timestamp: i64,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct Node {
    pub node_id: i32,
    pub listeners: Vec<Listener>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct Listener {
    pub name: String,
    pub host: String,
    pub port: u16,
}

/// The topics of the request; those of the response have the same names.
pub mod requested {
    use ottla_protocol_derive::Message;

    #[derive(Clone, Debug, PartialEq, Message)]
    pub struct TopicData {
        pub topic_name: String,
        pub partitions: Vec<PartitionData>,
    }

    #[derive(Clone, Debug, PartialEq, Message)]
    pub struct PartitionData {
        pub partition_index: i32,
    }
}

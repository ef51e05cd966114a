//! AlterReplicaLogDirs: moves replicas to other log directories of a broker.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = AlterReplicaLogDirs, versions = "1-2", flexible = "2+", response = AlterReplicaLogDirsResponse)]
pub struct AlterReplicaLogDirsRequest {
    pub dirs: Vec<AlterReplicaLogDir>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterReplicaLogDir {
    pub path: String,
    pub topics: Vec<AlterReplicaLogDirTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterReplicaLogDirTopic {
    pub name: String,
    pub partitions: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-2", flexible = "2+")]
pub struct AlterReplicaLogDirsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<AlterReplicaLogDirTopicResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterReplicaLogDirTopicResult {
    pub topic_name: String,
    pub partitions: Vec<AlterReplicaLogDirPartitionResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterReplicaLogDirPartitionResult {
    pub partition_index: i32,
    pub error_code: ErrorCode,
}

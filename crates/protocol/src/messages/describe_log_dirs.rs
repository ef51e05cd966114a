//! DescribeLogDirs: the log directories of a broker, with the sizes of its replicas.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeLogDirs, versions = "1-5", flexible = "2+", response = DescribeLogDirsResponse)]
pub struct DescribeLogDirsRequest {
    pub topics: Option<Vec<DescribableLogDirTopic>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribableLogDirTopic {
    pub topic: String,
    pub partitions: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-5", flexible = "2+")]
pub struct DescribeLogDirsResponse {
    pub throttle_time_ms: i32,
    #[field(versions = "3+", ignorable)]
    pub error_code: ErrorCode,
    pub results: Vec<DescribeLogDirsResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeLogDirsResult {
    pub error_code: ErrorCode,
    pub log_dir: String,
    pub topics: Vec<DescribeLogDirsTopic>,
    #[field(versions = "4+", default = -1, ignorable)]
    pub total_bytes: i64,
    #[field(versions = "4+", default = -1, ignorable)]
    pub usable_bytes: i64,
    #[field(versions = "5+", ignorable)]
    pub is_cordoned: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeLogDirsTopic {
    pub name: String,
    pub partitions: Vec<DescribeLogDirsPartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeLogDirsPartition {
    pub partition_index: i32,
    pub partition_size: i64,
    pub offset_lag: i64,
    pub is_future_key: bool,
}

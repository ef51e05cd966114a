//! ReadShareGroupStateSummary: reads the start offsets of share-partitions.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ReadShareGroupStateSummary, versions = "0-1", flexible = "0+", response = ReadShareGroupStateSummaryResponse)]
pub struct ReadShareGroupStateSummaryRequest {
    pub group_id: String,
    pub topics: Vec<ReadStateSummaryData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ReadStateSummaryData {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionData {
    pub partition: i32,
    pub leader_epoch: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1", flexible = "0+")]
pub struct ReadShareGroupStateSummaryResponse {
    pub results: Vec<ReadStateSummaryResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ReadStateSummaryResult {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionResult {
    pub partition: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
    pub state_epoch: i32,
    pub leader_epoch: i32,
    pub start_offset: i64,
    #[field(versions = "1+", default = -1, ignorable)]
    pub delivery_complete_count: i32,
}

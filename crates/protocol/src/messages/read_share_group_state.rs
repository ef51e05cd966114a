//! ReadShareGroupState: reads the state of share-partitions for their leader.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ReadShareGroupState, versions = "0", flexible = "0+", response = ReadShareGroupStateResponse)]
pub struct ReadShareGroupStateRequest {
    pub group_id: String,
    pub topics: Vec<ReadStateData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ReadStateData {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionData {
    pub partition: i32,
    pub leader_epoch: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ReadShareGroupStateResponse {
    pub results: Vec<ReadStateResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ReadStateResult {
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
    pub start_offset: i64,
    pub state_batches: Vec<StateBatch>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct StateBatch {
    pub first_offset: i64,
    pub last_offset: i64,
    pub delivery_state: i8,
    pub delivery_count: i16,
}

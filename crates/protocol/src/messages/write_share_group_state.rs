//! WriteShareGroupState: stores changes of the state of share-partitions.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = WriteShareGroupState, versions = "0-1", flexible = "0+", response = WriteShareGroupStateResponse)]
pub struct WriteShareGroupStateRequest {
    pub group_id: String,
    pub topics: Vec<WriteStateData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct WriteStateData {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionData {
    pub partition: i32,
    pub state_epoch: i32,
    pub leader_epoch: i32,
    pub start_offset: i64,
    #[field(versions = "1+", default = -1, ignorable)]
    pub delivery_complete_count: i32,
    pub state_batches: Vec<StateBatch>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct StateBatch {
    pub first_offset: i64,
    pub last_offset: i64,
    pub delivery_state: i8,
    pub delivery_count: i16,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1", flexible = "0+")]
pub struct WriteShareGroupStateResponse {
    pub results: Vec<WriteStateResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct WriteStateResult {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionResult {
    pub partition: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
}

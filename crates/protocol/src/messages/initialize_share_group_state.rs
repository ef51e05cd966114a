//! InitializeShareGroupState: creates the state of share-partitions at a start offset.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = InitializeShareGroupState, versions = "0", flexible = "0+", response = InitializeShareGroupStateResponse)]
pub struct InitializeShareGroupStateRequest {
    pub group_id: String,
    pub topics: Vec<InitializeStateData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct InitializeStateData {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionData {
    pub partition: i32,
    pub state_epoch: i32,
    pub start_offset: i64,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct InitializeShareGroupStateResponse {
    pub results: Vec<InitializeStateResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct InitializeStateResult {
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

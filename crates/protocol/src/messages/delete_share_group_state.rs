//! DeleteShareGroupState: deletes the state of share-partitions.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DeleteShareGroupState, versions = "0", flexible = "0+", response = DeleteShareGroupStateResponse)]
pub struct DeleteShareGroupStateRequest {
    pub group_id: String,
    pub topics: Vec<DeleteStateData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DeleteStateData {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionData {
    pub partition: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct DeleteShareGroupStateResponse {
    pub results: Vec<DeleteStateResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DeleteStateResult {
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

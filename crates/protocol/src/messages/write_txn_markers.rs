//! WriteTxnMarkers: ends transactions in partitions.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = WriteTxnMarkers, versions = "1-2", flexible = "1+", response = WriteTxnMarkersResponse)]
pub struct WriteTxnMarkersRequest {
    pub markers: Vec<WritableTxnMarker>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct WritableTxnMarker {
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// `true` commits, `false` aborts.
    pub transaction_result: bool,
    pub topics: Vec<WritableTxnMarkerTopic>,
    pub coordinator_epoch: i32,
    #[field(versions = "2+", ignorable)]
    pub transaction_version: i8,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct WritableTxnMarkerTopic {
    pub name: String,
    pub partition_indexes: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-2", flexible = "1+")]
pub struct WriteTxnMarkersResponse {
    pub markers: Vec<WritableTxnMarkerResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct WritableTxnMarkerResult {
    pub producer_id: i64,
    pub topics: Vec<WritableTxnMarkerTopicResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct WritableTxnMarkerTopicResult {
    pub name: String,
    pub partitions: Vec<WritableTxnMarkerPartitionResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct WritableTxnMarkerPartitionResult {
    pub partition_index: i32,
    pub error_code: ErrorCode,
}

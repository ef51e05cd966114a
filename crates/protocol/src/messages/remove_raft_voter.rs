//! RemoveRaftVoter: removes a voter from the metadata quorum.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = RemoveRaftVoter, versions = "0", flexible = "0+", response = RemoveRaftVoterResponse)]
pub struct RemoveRaftVoterRequest {
    pub cluster_id: Option<String>,
    pub voter_id: i32,
    pub voter_directory_id: Uuid,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct RemoveRaftVoterResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(ignorable)]
    pub error_message: Option<String>,
}

//! AddRaftVoter: adds a voter to the metadata quorum.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = AddRaftVoter, versions = "0-1", flexible = "0+", response = AddRaftVoterResponse)]
pub struct AddRaftVoterRequest {
    pub cluster_id: Option<String>,
    pub timeout_ms: i32,
    pub voter_id: i32,
    pub voter_directory_id: Uuid,
    pub listeners: Vec<Listener>,
    #[field(versions = "1+", default = true)]
    pub ack_when_committed: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct Listener {
    pub name: String,
    pub host: String,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1", flexible = "0+")]
pub struct AddRaftVoterResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(ignorable)]
    pub error_message: Option<String>,
}

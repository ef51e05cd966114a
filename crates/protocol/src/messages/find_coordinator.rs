//! FindCoordinator: the broker that coordinates a group or a transaction.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = FindCoordinator, versions = "0-6", flexible = "3+", response = FindCoordinatorResponse)]
pub struct FindCoordinatorRequest {
    #[field(versions = "0-3")]
    pub key: String,
    #[field(versions = "1+")]
    pub key_type: i8,
    #[field(versions = "4+")]
    pub coordinator_keys: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-6", flexible = "3+")]
pub struct FindCoordinatorResponse {
    #[field(versions = "1+", ignorable)]
    pub throttle_time_ms: i32,
    #[field(versions = "0-3")]
    pub error_code: ErrorCode,
    #[field(versions = "1-3", ignorable)]
    pub error_message: Option<String>,
    #[field(versions = "0-3")]
    pub node_id: i32,
    #[field(versions = "0-3")]
    pub host: String,
    #[field(versions = "0-3")]
    pub port: i32,
    #[field(versions = "4+")]
    pub coordinators: Vec<Coordinator>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct Coordinator {
    pub key: String,
    pub node_id: i32,
    pub host: String,
    pub port: i32,
    pub error_code: ErrorCode,
    #[field(ignorable)]
    pub error_message: Option<String>,
}

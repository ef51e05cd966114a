//! AlterUserScramCredentials: sets and deletes users' SCRAM credentials.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = AlterUserScramCredentials, versions = "0", flexible = "0+", response = AlterUserScramCredentialsResponse)]
pub struct AlterUserScramCredentialsRequest {
    pub deletions: Vec<ScramCredentialDeletion>,
    pub upsertions: Vec<ScramCredentialUpsertion>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ScramCredentialDeletion {
    pub name: String,
    pub mechanism: i8,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ScramCredentialUpsertion {
    pub name: String,
    pub mechanism: i8,
    pub iterations: i32,
    pub salt: Bytes,
    pub salted_password: Bytes,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct AlterUserScramCredentialsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<AlterUserScramCredentialsResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterUserScramCredentialsResult {
    pub user: String,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
}

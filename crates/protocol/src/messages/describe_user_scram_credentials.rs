//! DescribeUserScramCredentials: users and their SCRAM mechanisms.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeUserScramCredentials, versions = "0", flexible = "0+", response = DescribeUserScramCredentialsResponse)]
pub struct DescribeUserScramCredentialsRequest {
    pub users: Option<Vec<UserName>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct UserName {
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct DescribeUserScramCredentialsResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub results: Vec<DescribeUserScramCredentialsResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeUserScramCredentialsResult {
    pub user: String,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub credential_infos: Vec<CredentialInfo>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct CredentialInfo {
    pub mechanism: i8,
    pub iterations: i32,
}

//! ApiVersions: the requests that a broker supports, with their versions.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ApiVersions, versions = "0-4", flexible = "3+", response = ApiVersionsResponse)]
pub struct ApiVersionsRequest {
    #[field(versions = "3+", ignorable)]
    pub client_software_name: String,
    #[field(versions = "3+", ignorable)]
    pub client_software_version: String,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-4", flexible = "3+")]
pub struct ApiVersionsResponse {
    pub error_code: ErrorCode,
    pub api_keys: Vec<ApiVersion>,
    #[field(versions = "1+", ignorable)]
    pub throttle_time_ms: i32,
    #[field(versions = "3+", tag = 0, ignorable)]
    pub supported_features: Vec<SupportedFeatureKey>,
    #[field(versions = "3+", tag = 1, default = -1, ignorable)]
    pub finalized_features_epoch: i64,
    #[field(versions = "3+", tag = 2, ignorable)]
    pub finalized_features: Vec<FinalizedFeatureKey>,
    #[field(versions = "3+", tag = 3, ignorable)]
    pub zk_migration_ready: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ApiVersion {
    pub api_key: i16,
    pub min_version: i16,
    pub max_version: i16,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct SupportedFeatureKey {
    pub name: String,
    pub min_version: i16,
    pub max_version: i16,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct FinalizedFeatureKey {
    pub name: String,
    pub max_version_level: i16,
    pub min_version_level: i16,
}

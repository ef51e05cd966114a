//! UpdateFeatures: changes the finalized levels of features.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = UpdateFeatures, versions = "0-2", flexible = "0+", response = UpdateFeaturesResponse)]
pub struct UpdateFeaturesRequest {
    #[field(default = 60000)]
    pub timeout_ms: i32,
    pub feature_updates: Vec<FeatureUpdateKey>,
    #[field(versions = "1+")]
    pub validate_only: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct FeatureUpdateKey {
    pub feature: String,
    pub max_version_level: i16,
    #[field(versions = "0")]
    pub allow_downgrade: bool,
    #[field(versions = "1+", default = 1)]
    pub upgrade_type: i8,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-2", flexible = "0+")]
pub struct UpdateFeaturesResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    #[field(versions = "0-1", ignorable)]
    pub results: Vec<UpdatableFeatureResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct UpdatableFeatureResult {
    pub feature: String,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
}

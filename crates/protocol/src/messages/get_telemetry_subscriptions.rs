//! GetTelemetrySubscriptions: the metrics that a client is asked to push (KIP-714).

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = GetTelemetrySubscriptions, versions = "0", flexible = "0+", response = GetTelemetrySubscriptionsResponse)]
pub struct GetTelemetrySubscriptionsRequest {
    pub client_instance_id: Uuid,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct GetTelemetrySubscriptionsResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    pub client_instance_id: Uuid,
    pub subscription_id: i32,
    pub accepted_compression_types: Vec<i8>,
    pub push_interval_ms: i32,
    pub telemetry_max_bytes: i32,
    pub delta_temporality: bool,
    pub requested_metrics: Vec<String>,
}

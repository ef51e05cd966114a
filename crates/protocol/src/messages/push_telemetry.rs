//! PushTelemetry: a client's metrics (KIP-714).

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = PushTelemetry, versions = "0", flexible = "0+", response = PushTelemetryResponse)]
pub struct PushTelemetryRequest {
    pub client_instance_id: Uuid,
    pub subscription_id: i32,
    pub terminating: bool,
    pub compression_type: i8,
    pub metrics: Bytes,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct PushTelemetryResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
}

//! The requests for delegation tokens. A broker of Kafka refuses them all on a connection that is not authenticated, as every
//! connection of this broker.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_delegation_token::{
    CreateDelegationTokenRequest, CreateDelegationTokenResponse,
};
use ottla_protocol::messages::describe_delegation_token::{
    DescribeDelegationTokenRequest, DescribeDelegationTokenResponse,
};
use ottla_protocol::messages::expire_delegation_token::{
    ExpireDelegationTokenRequest, ExpireDelegationTokenResponse,
};
use ottla_protocol::messages::renew_delegation_token::{
    RenewDelegationTokenRequest, RenewDelegationTokenResponse,
};

use super::{Api, RequestContext};

/// The error of a connection without authentication. With it, the error would be DELEGATION_TOKEN_AUTH_DISABLED.
const UNAUTHENTICATED: ErrorCode = ErrorCode::DelegationTokenRequestNotAllowed;
/// Kafka's time of a token that there is not.
const NO_TIME: i64 = -1;

impl Api for CreateDelegationTokenRequest {
    async fn handle(self, context: RequestContext) -> CreateDelegationTokenResponse {
        self.refuse(&context, UNAUTHENTICATED)
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> CreateDelegationTokenResponse {
        CreateDelegationTokenResponse {
            error_code: code,
            issue_timestamp_ms: NO_TIME,
            expiry_timestamp_ms: NO_TIME,
            max_timestamp_ms: NO_TIME,
            ..Default::default()
        }
    }
}

impl Api for RenewDelegationTokenRequest {
    async fn handle(self, context: RequestContext) -> RenewDelegationTokenResponse {
        self.refuse(&context, UNAUTHENTICATED)
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> RenewDelegationTokenResponse {
        RenewDelegationTokenResponse { error_code: code, expiry_timestamp_ms: NO_TIME, ..Default::default() }
    }
}

impl Api for ExpireDelegationTokenRequest {
    async fn handle(self, context: RequestContext) -> ExpireDelegationTokenResponse {
        self.refuse(&context, UNAUTHENTICATED)
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ExpireDelegationTokenResponse {
        ExpireDelegationTokenResponse { error_code: code, expiry_timestamp_ms: NO_TIME, ..Default::default() }
    }
}

impl Api for DescribeDelegationTokenRequest {
    async fn handle(self, context: RequestContext) -> DescribeDelegationTokenResponse {
        self.refuse(&context, UNAUTHENTICATED)
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeDelegationTokenResponse {
        DescribeDelegationTokenResponse { error_code: code, ..Default::default() }
    }
}

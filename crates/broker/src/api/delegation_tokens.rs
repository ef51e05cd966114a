//! The requests for delegation tokens, which get the errors of a broker of Kafka without them.

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
use crate::security::Principal;

/// Kafka's time of a token that there is not.
const NO_TIME: i64 = -1;

impl Api for CreateDelegationTokenRequest {
    async fn handle(self, context: RequestContext) -> CreateDelegationTokenResponse {
        self.refuse(&context, refusal(&context))
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
        self.refuse(&context, refusal(&context))
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> RenewDelegationTokenResponse {
        RenewDelegationTokenResponse { error_code: code, expiry_timestamp_ms: NO_TIME, ..Default::default() }
    }
}

impl Api for ExpireDelegationTokenRequest {
    async fn handle(self, context: RequestContext) -> ExpireDelegationTokenResponse {
        self.refuse(&context, refusal(&context))
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ExpireDelegationTokenResponse {
        ExpireDelegationTokenResponse { error_code: code, expiry_timestamp_ms: NO_TIME, ..Default::default() }
    }
}

impl Api for DescribeDelegationTokenRequest {
    async fn handle(self, context: RequestContext) -> DescribeDelegationTokenResponse {
        self.refuse(&context, refusal(&context))
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeDelegationTokenResponse {
        DescribeDelegationTokenResponse { error_code: code, ..Default::default() }
    }
}

/// The error: a client without authentication may not request tokens at all.
fn refusal(context: &RequestContext) -> ErrorCode {
    if context.principal() == Principal::anonymous() {
        ErrorCode::DelegationTokenRequestNotAllowed
    } else {
        ErrorCode::DelegationTokenAuthDisabled
    }
}

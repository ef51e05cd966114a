//! SaslHandshake and SaslAuthenticate: the dialogue of an authentication.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use ottla_protocol::messages::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};

use super::{Api, ConnectionContext, RequestContext};
use crate::security::sasl::{Handshake, Step};

impl Api for SaslHandshakeRequest {
    async fn handle(self, context: RequestContext) -> SaslHandshakeResponse {
        let connection = &context.connection;
        let (Some(sasl), Some(server)) = (&connection.sasl, &connection.listener.sasl) else {
            return self.refuse(&context, ErrorCode::IllegalSaslState);
        };
        let error_code = match sasl.handshake(server, &self.mechanism, context.version) {
            Handshake::Accepted => ErrorCode::None,
            Handshake::IllegalState => return self.refuse(&context, ErrorCode::IllegalSaslState),
            Handshake::UnsupportedMechanism => {
                tokio::time::sleep(server.failure_delay()).await;
                ErrorCode::UnsupportedSaslMechanism
            }
        };
        SaslHandshakeResponse { error_code, mechanisms: server.mechanisms() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> SaslHandshakeResponse {
        SaslHandshakeResponse { error_code: code, mechanisms: Vec::new() }
    }

    fn closes_after(response: &SaslHandshakeResponse) -> Option<String> {
        (response.error_code == ErrorCode::UnsupportedSaslMechanism)
            .then(|| "the client wants a SASL mechanism that the listener does not have".to_owned())
    }
}

impl Api for SaslAuthenticateRequest {
    async fn handle(self, context: RequestContext) -> SaslAuthenticateResponse {
        match context.connection.authenticate(&self.auth_bytes).await {
            Step::Continue(auth_bytes) => SaslAuthenticateResponse { auth_bytes, ..Default::default() },
            Step::Done { bytes, session } => SaslAuthenticateResponse {
                auth_bytes: bytes,
                session_lifetime_ms: session
                    .map_or(0, |session| i64::try_from(session.as_millis()).unwrap_or(i64::MAX)),
                ..Default::default()
            },
            Step::Failed { text, .. } => SaslAuthenticateResponse {
                error_code: ErrorCode::SaslAuthenticationFailed,
                error_message: Some(text),
                ..Default::default()
            },
            Step::IllegalState => {
                let text = match context.connection.principal.get() {
                    Some(_) => "SaslAuthenticate request received after successful authentication",
                    None => "SaslAuthenticate request received without a SaslHandshake",
                };
                SaslAuthenticateResponse {
                    error_message: Some(text.to_owned()),
                    ..self.refuse(&context, ErrorCode::IllegalSaslState)
                }
            }
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> SaslAuthenticateResponse {
        SaslAuthenticateResponse { error_code: code, ..Default::default() }
    }

    fn closes_after(response: &SaslAuthenticateResponse) -> Option<String> {
        (response.error_code == ErrorCode::SaslAuthenticationFailed)
            .then(|| "authentication failed".to_owned())
    }
}

impl ConnectionContext {
    /// Handles a token of the client. A failure takes the time that `connection.failed.authentication.delay.ms` says.
    pub(crate) async fn authenticate(&self, token: &Bytes) -> Step {
        let (Some(sasl), Some(server)) = (&self.sasl, &self.listener.sasl) else {
            return Step::IllegalState;
        };
        let known = (&self.cluster.scram_credentials, self.cluster.clock.now_ms());
        let step = sasl.step(server, known, token, &self.principal);
        let metrics = &self.cluster.metrics;
        match &step {
            Step::Done { .. } => {
                metrics.logins_succeeded.fetch_add(1, Ordering::Relaxed);
            }
            Step::Failed { text, user, hint } => {
                metrics.logins_failed.fetch_add(1, Ordering::Relaxed);
                let reason = hint.map_or_else(|| text.clone(), |hint| format!("{text}: {hint}"));
                let name = &self.listener.name;
                self.cluster.warnings.warn_login(&self.peer, name, user.as_deref(), &reason);
                tokio::time::sleep(server.failure_delay()).await;
            }
            Step::Continue(_) | Step::IllegalState => {}
        }
        step
    }
}

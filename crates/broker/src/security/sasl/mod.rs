//! The server's side of SASL: one state machine per connection (KIP-43, KIP-152, KIP-368).
//!
//! Before it is done, only ApiVersions, SaslHandshake and SaslAuthenticate are answered.
//!
//! - `plain`: a user and a password.
//! - `scram`: a proof of a password.
//! - `oauthbearer`: a token; `jwt` checks it.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzed;
mod jwk;
mod jwt;
mod key_endpoint;
mod key_source;
mod oauthbearer;
mod plain;
mod scram;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::ApiKey;
use tokio::time::Instant;

use self::jwt::TokenVerifier;
use self::scram::ScramExchange;
use super::Principal;
use super::scram_credentials::ScramCredentials;
use crate::config::{SaslMechanism, SaslSettings};

/// The least time between two renewals of a session: as in Kafka, which refuses a handshake that comes earlier.
const RENEWAL_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The SASL of a listener.
#[derive(Debug)]
pub(crate) struct SaslServer {
    settings: SaslSettings,
    tokens: Option<TokenVerifier>,
}

impl SaslServer {
    pub(crate) fn new(settings: SaslSettings) -> Result<Self, String> {
        if settings.mechanisms.is_empty() {
            let known = SaslMechanism::ALL.map(SaslMechanism::name).join(", ");
            return Err(format!("sasl.enabled.mechanisms is empty: use some of {known}"));
        }
        let has_oauth = settings.mechanisms.contains(&SaslMechanism::OauthBearer);
        let tokens = match &settings.oauth {
            Some(oauth) if has_oauth => Some(TokenVerifier::new(oauth.clone())?),
            None if has_oauth => {
                return Err("OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url, \
                            sasl.oauthbearer.expected.issuer and sasl.oauthbearer.expected.audience"
                    .to_owned());
            }
            Some(_) | None => None,
        };
        Ok(Self { settings, tokens })
    }

    /// The names of the mechanisms, as a handshake lists them.
    pub(crate) fn mechanisms(&self) -> Vec<String> {
        self.settings.mechanisms.iter().map(|mechanism| mechanism.name().to_owned()).collect()
    }

    /// The largest request before authentication, and the largest SaslAuthenticate after it.
    pub(crate) fn receive_bytes_max(&self) -> usize {
        self.settings.receive_bytes_max
    }

    /// Returns the reason to close the connection instead of starting a request of this size, if there is one. Before the login, no
    /// request is larger; after it, a token is not either.
    pub(crate) fn refusal_of_size(&self, api: ApiKey, bytes: usize) -> Option<String> {
        let max = self.settings.receive_bytes_max;
        (api == ApiKey::SaslAuthenticate && bytes > max)
            .then(|| format!("a {api} of {bytes} bytes; at most {max} (sasl.server.max.receive.size)"))
    }

    /// The time until a failed login is answered.
    pub(crate) fn failure_delay(&self) -> Duration {
        self.settings.failure_delay
    }
}

/// The authentication of one connection.
#[derive(Debug, Default)]
pub(crate) struct SaslConnection {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// Version 0 of the handshake: tokens follow without headers.
    is_raw: bool,
    /// The mechanism of the first authentication.
    authenticated: Option<SaslMechanism>,
    /// Requests after this time end the connection (KIP-368).
    session_end: Option<Instant>,
    /// The time of the last handshake that renews the session.
    renewal_began: Option<Instant>,
}

impl State {
    /// Returns `true` if a handshake may begin now: the first one, or one that renews a session that ends.
    fn may_begin(&self, now: Instant) -> bool {
        let is_early =
            self.renewal_began.is_some_and(|began| now.duration_since(began) < RENEWAL_INTERVAL_MIN);
        self.authenticated.is_none() || (self.session_end.is_some() && !is_early)
    }
}

#[derive(Debug, Default)]
enum Stage {
    /// Waits for a handshake.
    #[default]
    Handshake,
    /// Waits for the client's first token.
    Start(SaslMechanism),
    /// Waits for the client's proof.
    ScramProof(Box<ScramExchange>),
    /// Waits for the client to take note of its bad token.
    BadToken,
    /// Nothing more is accepted.
    Failed,
}

/// The outcome of a handshake.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Handshake {
    Accepted,
    UnsupportedMechanism,
    /// The session does not end, or was renewed just before.
    IllegalState,
}

/// The outcome of a client's token.
#[derive(Debug)]
pub(crate) enum Step {
    /// The client must send another token.
    Continue(Bytes),
    /// The client is authenticated, for this time.
    Done { bytes: Bytes, session: Option<Duration> },
    /// The login failed, with a text for the client, the user that it names, and more for the log.
    Failed { text: String, user: Option<String>, hint: Option<&'static str> },
    /// No token is expected.
    IllegalState,
}

/// The outcome of a token for a mechanism.
enum Outcome {
    Continue(Stage, Bytes),
    Done(Login),
    /// The client gets this text instead of the general one.
    FailedWith(String, Option<String>),
    Failed(Option<String>),
    /// The client gets the general text, and the log this one, too.
    FailedFor(&'static str, String),
}

/// A login that succeeded.
struct Login {
    user: String,
    bytes: Bytes,
    /// The end of the credential in milliseconds since 1970.
    expires_ms: Option<i64>,
}

impl SaslConnection {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason to close the connection instead of starting this request, if there is one.
    pub(crate) fn refusal(&self, api: ApiKey, is_authenticated: bool) -> Option<String> {
        if !is_authenticated {
            let is_login =
                matches!(api, ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate);
            return (!is_login).then(|| format!("{api} before authentication"));
        }
        let state = self.state();
        let end = state.session_end?;
        // As in Kafka, only a renewal is answered after the end.
        let renews = match api {
            ApiKey::SaslHandshake => true,
            ApiKey::SaslAuthenticate => !matches!(state.stage, Stage::Handshake),
            _ => false,
        };
        (!renews && Instant::now() >= end).then(|| format!("{api} after the end of the session"))
    }

    /// Returns `true` if the next bytes are a token without a header.
    pub(crate) fn expects_raw_token(&self) -> bool {
        let state = self.state();
        state.is_raw && !matches!(state.stage, Stage::Handshake | Stage::Failed)
    }

    /// Starts an authentication with a mechanism.
    pub(crate) fn handshake(&self, server: &SaslServer, mechanism: &str, version: i16) -> Handshake {
        let mechanism = SaslMechanism::of_name(mechanism);
        let mut state = self.state();
        let now = Instant::now();
        if !state.may_begin(now) {
            return Handshake::IllegalState;
        }
        state.renewal_began = state.authenticated.map(|_| now);
        let known = mechanism.filter(|mechanism| server.settings.mechanisms.contains(mechanism));
        let Some(mechanism) = known else {
            state.stage = Stage::Failed;
            return Handshake::UnsupportedMechanism;
        };
        state.stage = Stage::Start(mechanism);
        state.is_raw = version == 0 && state.authenticated.is_none();
        Handshake::Accepted
    }

    /// Handles a token of the client. Sets `principal` when it is authenticated for the first time.
    pub(crate) fn step(
        &self,
        server: &SaslServer,
        (credentials, now_ms): (&ScramCredentials, i64),
        token: &Bytes,
        principal: &OnceLock<Principal>,
    ) -> Step {
        let mut state = self.state();
        let is_again = state.authenticated.is_some();
        let doing = if is_again { "re-authentication" } else { "authentication" };
        let (mechanism, outcome) = match std::mem::replace(&mut state.stage, Stage::Failed) {
            Stage::Handshake | Stage::Failed => return Step::IllegalState,
            Stage::Start(mechanism) => {
                if let Some(before) = state.authenticated.filter(|before| *before != mechanism) {
                    let text = format!(
                        "SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of \
                         mechanism '{before}'"
                    );
                    return Step::Failed { text, user: None, hint: None };
                }
                let outcome = match mechanism {
                    SaslMechanism::Plain => plain::check(&server.settings, token),
                    SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512 => {
                        ScramExchange::begin(credentials, mechanism, token)
                    }
                    SaslMechanism::OauthBearer => oauthbearer::check(server.tokens.as_ref(), token, now_ms),
                };
                (mechanism, outcome)
            }
            Stage::ScramProof(exchange) => (exchange.mechanism(), exchange.finish(token)),
            Stage::BadToken => (SaslMechanism::OauthBearer, oauthbearer::refused()),
        };
        let general = || {
            format!(
                "Authentication failed during {doing} due to invalid credentials with SASL mechanism {mechanism}"
            )
        };
        let login = match outcome {
            Outcome::Continue(stage, bytes) => {
                state.stage = stage;
                return Step::Continue(bytes);
            }
            Outcome::FailedWith(text, user) => return Step::Failed { text, user, hint: None },
            Outcome::Failed(user) => return Step::Failed { text: general(), user, hint: None },
            Outcome::FailedFor(hint, user) => {
                return Step::Failed { text: general(), user: Some(user), hint: Some(hint) };
            }
            Outcome::Done(login) => login,
        };
        let user = Principal::user(&login.user);
        let known = principal.get_or_init(|| user.clone());
        if *known != user {
            let text = format!(
                "Cannot change principals during re-authentication from {}.{}: {}.{}",
                known.kind, known.name, user.kind, user.name
            );
            return Step::Failed { text, user: Some(login.user), hint: None };
        }
        let of_token = login
            .expires_ms
            .map(|end| Duration::from_millis(u64::try_from(end - now_ms).unwrap_or_default()));
        let of_listener = server.settings.session_max.get(&mechanism).copied().filter(|max| !max.is_zero());
        let session = [of_token, of_listener].into_iter().flatten().min();
        state.authenticated = Some(mechanism);
        state.session_end = session.and_then(|session| Instant::now().checked_add(session));
        state.stage = Stage::Handshake;
        state.is_raw = false;
        Step::Done { bytes: login.bytes, session }
    }
}

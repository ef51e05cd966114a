//! SASL authentication, after ApiVersions and before all other requests.
//!
//! Each mechanism is one async function for the whole exchange; [`SaslExchange`] connects it to the broker.

mod aws;
mod gssapi;
mod http;
mod oauthbearer;
pub(crate) mod oidc;
mod plain;
pub(crate) mod scram;
mod tokens;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::messages::sasl_authenticate::SaslAuthenticateRequest;
use ottla_protocol::messages::sasl_handshake::SaslHandshakeRequest;
use ottla_protocol::{ErrorCode, Request};

use self::aws::AwsTokens;
use self::gssapi::KerberosLogin;
use self::oidc::Endpoint;
use self::scram::SaltedPassword;
use self::tokens::SharedToken;
use super::connector::Connector;
use super::link::Link;
use super::tls::Tls;
use crate::config::Config;
use crate::error::Error;
use crate::security::aws_iam::AwsIam;
use crate::security::tls::TlsFiles;
use crate::security::token::parse_extensions;
use crate::security::token_endpoint::TokenEndpoint;
use crate::security::unsecured_jwt::UnsecuredClaims;
use crate::security::{
    Mechanism, OauthBearer, OauthCloud, OauthGrant, OauthMethod, Secret, TlsSettings, Token, TokenCallback,
};

/// The SASL credentials for all connections of a client.
pub(crate) struct Authenticator {
    mechanism: Mechanism,
    credentials: Mutex<Credentials>,
    token: Option<SharedToken>,
    salted: Mutex<Option<SaltedPassword>>,
    kerberos: Option<KerberosLogin>,
}

/// The credentials for PLAIN and SCRAM.
#[derive(Clone, Default)]
struct Credentials {
    username: String,
    password: Secret,
    /// The number of times that they were replaced.
    generation: u64,
}

enum TokenSource {
    Callback(TokenCallback),
    Oidc(Arc<Endpoint>),
    Aws(Arc<AwsTokens>),
    Unsecured(UnsecuredClaims),
}

impl Authenticator {
    /// Returns `None` if the protocol does not use SASL.
    pub(crate) fn of(config: &Config, connector: &Arc<dyn Connector>) -> Result<Option<Arc<Self>>, Error> {
        if !config.security.protocol.is_sasl() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Self::new(config, connector.clone())?)))
    }

    /// `connector` connects to the OIDC token endpoint, with its own TLS.
    fn new(config: &Config, connector: Arc<dyn Connector>) -> Result<Self, Error> {
        let settings = &config.security.sasl;
        let mechanism = settings.mechanism.unwrap_or_default();
        let token = if mechanism == Mechanism::OauthBearer {
            Some(SharedToken::new(token_source(config, connector)?, config.clock.clone()))
        } else {
            None
        };
        let kerberos = if mechanism == Mechanism::Gssapi { Some(KerberosLogin::new(config)?) } else { None };
        Ok(Self {
            mechanism,
            credentials: Mutex::new(Credentials {
                username: settings.username.clone().unwrap_or_default(),
                password: settings.password.clone().unwrap_or_default(),
                generation: 0,
            }),
            token,
            salted: Mutex::default(),
            kerberos,
        })
    }

    /// Replaces the credentials for PLAIN and SCRAM, for later connections and re-authentications.
    pub(crate) fn set_credentials(&self, username: String, password: Secret) {
        let mut credentials = self.credentials.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = credentials.generation + 1;
        *credentials = Credentials { username, password, generation };
        self.salted.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn credentials(&self) -> Credentials {
        self.credentials.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a token that has not expired.
    async fn token(&self) -> Result<Token, String> {
        match &self.token {
            Some(token) => token.get().await,
            None => Err("no source of tokens".into()),
        }
    }

    /// The mechanism of all connections.
    pub(crate) fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Gets tokens or Kerberos tickets before there is a connection, and later ones before the last expires, until it is
    /// dropped. Returns at once for mechanisms with a password. `on_failure` gets the reason of a missing ticket.
    pub(crate) async fn keep_fresh(&self, on_failure: impl Fn(String)) {
        match &self.kerberos {
            Some(kerberos) => kerberos.keep_ticket_fresh(on_failure).await,
            None => {
                if let Some(token) = &self.token {
                    token.keep_fresh().await;
                }
            }
        }
    }

    /// Discards the token if the source has another one now.
    pub(crate) fn discard_token_unless(&self, is_current: impl FnOnce(&Token) -> bool) {
        if let Some(token) = &self.token {
            token.discard_unless(is_current);
        }
    }

    /// Discards a token that the broker refused, unless it was replaced meanwhile.
    fn forget_token(&self, refused: &Token) {
        if let Some(token) = &self.token {
            token.forget(refused);
        }
    }
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

fn token_source(config: &Config, connector: Arc<dyn Connector>) -> Result<TokenSource, Error> {
    let settings = &config.security.sasl.oauthbearer;
    if let Some(callback) = &settings.callback {
        return Ok(TokenSource::Callback(callback.clone()));
    }
    match settings.method {
        OauthMethod::Default => Ok(TokenSource::Unsecured(UnsecuredClaims::parse(settings.config())?)),
        OauthMethod::Oidc if settings.cloud == OauthCloud::AwsIam => {
            let (aws, secure) = (AwsIam::parse(settings.config())?, https(config, connector.clone())?);
            let extensions = parse_extensions(&settings.extensions)?;
            let claim = principal_claim(settings);
            Ok(TokenSource::Aws(Arc::new(AwsTokens::new(aws, connector, secure, claim, extensions))))
        }
        OauthMethod::Oidc => {
            let is_azure = settings.cloud == OauthCloud::AzureImds;
            let url = if is_azure {
                settings.azure_endpoint()?
            } else {
                TokenEndpoint::parse(settings.token_endpoint_url.as_deref().unwrap_or_default())?
            };
            let connector = if url.is_tls { https(config, connector)? } else { connector };
            let mut endpoint = Endpoint::new(url);
            endpoint.connector = Some(connector);
            endpoint.is_azure_imds = is_azure;
            endpoint.client_id = settings.client_id.clone().unwrap_or_default();
            endpoint.client_secret = settings.client_secret.clone().unwrap_or_default();
            endpoint.assertions =
                (settings.grant == OauthGrant::JwtBearer).then(|| settings.assertions.clone());
            endpoint.scope.clone_from(&settings.scope);
            endpoint.principal_claim = principal_claim(settings);
            endpoint.extensions = parse_extensions(&settings.extensions)?;
            Ok(TokenSource::Oidc(Arc::new(endpoint)))
        }
    }
}

/// Connects with the certificates for `https`.
fn https(config: &Config, connector: Arc<dyn Connector>) -> Result<Arc<dyn Connector>, Error> {
    let settings = &config.security.sasl.oauthbearer;
    let tls = TlsSettings {
        ca_location: settings.https_ca_location.clone(),
        ca_pem: settings.https_ca_pem.clone(),
        ..TlsSettings::default()
    };
    let files = TlsFiles::load(tls, config.clock.clone())?;
    Ok(Arc::new(Tls::over(connector, Arc::new(files))))
}

fn principal_claim(settings: &OauthBearer) -> String {
    if settings.sub_claim_name.is_empty() { "sub".into() } else { settings.sub_claim_name.clone() }
}

/// The channel that carries the SASL exchange to a broker.
pub trait SaslChannel {
    /// The peer's name in errors.
    fn address(&self) -> &str;

    /// The peer's host name, which is a part of its Kerberos name.
    fn host(&self) -> &str {
        host_of(self.address())
    }

    /// The highest version of `R` that both sides support, at most `version_max`.
    fn version_of<R: Request>(&self, version_max: i16) -> Result<i16, Error>;

    /// Sends a request and waits for its response.
    fn ask<R: Request>(&self, request: &R, version: i16) -> impl Future<Output = Result<R::Response, Error>>;

    /// Sends length-prefixed bytes that are not a Kafka request, and waits for such a response: brokers before 1.0.
    fn ask_bare(&self, token: &[u8]) -> impl Future<Output = Result<Bytes, Error>>;

    /// Sends such bytes that have no response.
    fn send_bare(&self, token: &[u8]) -> Result<(), Error>;
}

/// The host of `HOST:PORT`.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

impl SaslChannel for Link {
    fn address(&self) -> &str {
        &self.address
    }

    fn version_of<R: Request>(&self, version_max: i16) -> Result<i16, Error> {
        self.version_of::<R>(version_max)
    }

    async fn ask<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, Error> {
        let frame = self.exchange(request, version).await?;
        self.decode::<R>(frame, version)
    }

    async fn ask_bare(&self, token: &[u8]) -> Result<Bytes, Error> {
        self.exchange_bare(token).await
    }

    fn send_bare(&self, token: &[u8]) -> Result<(), Error> {
        self.send_unanswered(token)
    }
}

/// Runs the whole exchange. Returns the session lifetime if the broker limits it.
pub(crate) async fn authenticate<L: SaslChannel>(
    line: &L,
    authenticator: &Authenticator,
) -> Result<Option<Duration>, Error> {
    let mut exchange = SaslExchange { line, mechanism: authenticator.mechanism, bare: false, lifetime_ms: 0 };
    exchange.handshake().await?;
    match authenticator.mechanism {
        Mechanism::Plain => plain::prove(&mut exchange, &authenticator.credentials()).await,
        Mechanism::ScramSha256 | Mechanism::ScramSha512 => scram::prove(&mut exchange, authenticator).await,
        Mechanism::OauthBearer => oauthbearer::prove(&mut exchange, authenticator).await,
        Mechanism::Gssapi => gssapi::prove(&mut exchange, authenticator.kerberos.as_ref()).await,
    }?;
    tracing::debug!(
        address = line.address(),
        mechanism = authenticator.mechanism.name(),
        lifetime_ms = exchange.lifetime_ms,
        "authenticated"
    );
    Ok(u64::try_from(exchange.lifetime_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis))
}

/// The exchange between a mechanism and the broker.
struct SaslExchange<'a, L> {
    line: &'a L,
    mechanism: Mechanism,
    /// Brokers before 1.0 expect the mechanism's messages without Kafka's framing.
    bare: bool,
    lifetime_ms: i64,
}

impl<L: SaslChannel> SaslExchange<'_, L> {
    async fn handshake(&mut self) -> Result<(), Error> {
        let version = self.line.version_of::<SaslHandshakeRequest>(1)?;
        self.bare = version == 0;
        let request = SaslHandshakeRequest { mechanism: self.mechanism.name().into() };
        let response = self.line.ask(&request, version).await?;
        match response.error_code {
            ErrorCode::None => Ok(()),
            ErrorCode::UnsupportedSaslMechanism => Err(self.refused(&format!(
                "the broker does not offer sasl.mechanism={}; it offers {}",
                self.mechanism.name(),
                response.mechanisms.join(", ")
            ))),
            ErrorCode::IllegalSaslState => Err(self.refused(
                "the listener does not do SASL: set security.protocol to plaintext or ssl, or use its SASL port",
            )),
            code => Err(self.refused(&format!("SaslHandshake: {code}"))),
        }
    }

    /// Sends one message of the mechanism and returns the broker's reply.
    async fn say(&mut self, message: Vec<u8>) -> Result<Bytes, Error> {
        if self.bare {
            return self.line.ask_bare(&message).await.map_err(|error| match error {
                // These brokers close the connection on failure.
                Error::Transport { .. } => self.refused("the broker hung up: wrong username or password?"),
                error => error,
            });
        }
        let version = self.line.version_of::<SaslAuthenticateRequest>(2)?;
        let request = SaslAuthenticateRequest { auth_bytes: message.into() };
        let response = self.line.ask(&request, version).await?;
        if response.error_code != ErrorCode::None {
            let code = response.error_code;
            let detail = response.error_message.map(|text| format!(": {text}")).unwrap_or_default();
            return Err(self.refused(&format!("refused with {code}{detail}")));
        }
        self.lifetime_ms = response.session_lifetime_ms;
        Ok(response.auth_bytes)
    }

    /// Sends the last message of a mechanism whose server has no reply to it. With Kafka's framing there is one.
    async fn say_last(&mut self, message: Vec<u8>) -> Result<(), Error> {
        if self.bare { self.line.send_bare(&message) } else { self.say(message).await.map(|_| ()) }
    }

    fn refused(&self, reason: &str) -> Error {
        Error::Authentication {
            address: self.line.address().to_owned(),
            reason: format!("{}: {reason}", self.mechanism.name()).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_has_no_port_and_no_brackets() {
        for (address, host) in
            [("broker.example:9093", "broker.example"), ("[::1]:9093", "::1"), ("10.0.0.1:1", "10.0.0.1")]
        {
            assert_eq!(host_of(address), host);
        }
    }
}
